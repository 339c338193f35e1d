"""*Requests*: who asked for what, when, from where, and what the manager said."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Query
from starlette.responses import Response

from backfill_manager.clock import format_instant, parse_instant
from backfill_manager.errors import InvalidInput
from backfill_manager.queries.requests import find_request, list_requests
from backfill_manager.web import links, paths
from backfill_manager.web.page import PageContextOf, page_router, redirect

router: Final = page_router()
ON_A_PAGE: Final = 50


@router.get("/requests")
def requests(
    visit: PageContextOf,
    kind: Annotated[str, Query(max_length=100)] = "",
    before: Annotated[str, Query(max_length=40)] = "",
    tie: Annotated[str, Query(max_length=100)] = "",
) -> Response:
    try:
        after = (parse_instant(before), tie) if before else None
    except ValueError:
        raise InvalidInput(f"before={before!r} is no place in the list of requests.") from None
    found, place = list_requests(visit.store, kind=kind or None, limit=ON_A_PAGE, after=after)
    older = paths.to("requests", kind=kind, before=format_instant(place[0]), tie=place[1]) if place else None
    shown = [{**one, "about": links.about(one)} for one in found]
    return visit.page("requests.html", requests=shown, older=older, is_first=not before, kind=kind)


@router.get("/requests/{request_id}")
def request(visit: PageContextOf, request_id: str) -> Response:
    found = find_request(visit.store, paths.from_segment(request_id))
    if found["request_id"] != paths.from_segment(request_id):
        return redirect(paths.to("requests", found["request_id"]))
    return visit.page("request.html", asked={**found, "about": links.about(found)})
