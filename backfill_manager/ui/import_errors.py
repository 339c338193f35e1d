"""*Import errors*: files that could not be read, what is wrong and where."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from backfill_manager.ui.site import VisitOf, page_router
from backfill_manager.views.dags import list_import_errors

router: Final = page_router()


@router.get("/import-errors")
def import_errors(visit: VisitOf) -> Response:
    return visit.page("import_errors.html", problems=list_import_errors(visit.store))
