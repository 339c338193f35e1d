"""*Manager*: who leads, whether it lives, who led before, and what it answered last."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from backfill_manager.queries.managers import list_standbys, list_terms, manager_status
from backfill_manager.queries.requests import list_responses
from backfill_manager.web.page import PageContextOf, page_router

router: Final = page_router()


@router.get("/manager")
def manager(visit: PageContextOf) -> Response:
    return visit.page(
        "manager.html", status=200, lead=manager_status(visit.store, visit.now),
        terms=list_terms(visit.store, visit.now), standbys=list_standbys(visit.store, visit.now),
        answers=list_responses(visit.store), root=visit.store.root, engine=visit.store.engine,
    )  # fmt: skip
