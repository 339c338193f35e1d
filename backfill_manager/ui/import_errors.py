"""*Import errors*: files that could not be read, what is wrong and where."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from backfill_manager.ui.paging import PageNumber, cut
from backfill_manager.ui.site import VisitOf, page_router
from backfill_manager.views.dags import list_import_errors

router: Final = page_router()


ON_A_PAGE: Final = 50


@router.get("/import-errors")
def import_errors(visit: VisitOf, page: PageNumber = 1) -> Response:
    return visit.page(
        "import_errors.html", paged=cut(list_import_errors(visit.store), page, ON_A_PAGE, "import-errors")
    )
