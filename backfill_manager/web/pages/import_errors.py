"""*Import errors*: files that could not be read, what is wrong and where."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from backfill_manager.queries.dags import list_import_errors
from backfill_manager.web.page import PageContextOf, page_router
from backfill_manager.web.paging import PageNumber, cut

router: Final = page_router()


ON_A_PAGE: Final = 50


@router.get("/import-errors")
def import_errors(visit: PageContextOf, page: PageNumber = 1) -> Response:
    return visit.page(
        "import_errors.html", paged=cut(list_import_errors(visit.store), page, ON_A_PAGE, "import-errors")
    )
