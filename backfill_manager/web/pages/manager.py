"""*Manager* and *Requests*: leader, standbys, past terms, and every requested change with its response."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Query
from starlette.responses import Response

from backfill_manager.clock import format_instant, parse_instant
from backfill_manager.errors import InvalidInput
from backfill_manager.queries.managers import list_standbys, list_terms, manager_status
from backfill_manager.queries.notifications import EVENTS, STATES, NotificationFilter, list_notifications
from backfill_manager.queries.paging import Place
from backfill_manager.queries.requests import find_request, list_requests, list_responses
from backfill_manager.web import links
from backfill_manager.web.links import PathId
from backfill_manager.web.page import ViewerContext, page_router, redirect

router: Final = page_router()
REQUESTS_PER_PAGE: Final = 50
MAX_TIE: Final = 2**63 - 1


@router.get("/manager")
def manager(context: ViewerContext) -> Response:
    store, now = context.store, context.now
    return context.page(
        "manager.html", lead=manager_status(store, now), terms=list_terms(store, now),
        standbys=list_standbys(store, now), responses=list_responses(store), root=store.root, engine=store.engine,
    )  # fmt: skip


@router.get("/rest-api")
def rest_api(context: ViewerContext) -> Response:
    """Swagger UI."""
    return context.page("rest_api.html")


@router.get("/fragments/status_bar")
def status_bar(context: ViewerContext) -> Response:
    """The manager's status, the banner and the number of import errors: polled, as a manager that dies changes no table."""
    return context.page("fragments/status_bar.html")


@router.get("/requests")
def requests(
    context: ViewerContext, kind: Annotated[str, Query(max_length=100)] = "",
    before: Annotated[str, Query(max_length=40)] = "", tie: Annotated[str, Query(max_length=100)] = "",
) -> Response:  # fmt: skip
    rows, last = list_requests(context.store, kind=kind or None, limit=REQUESTS_PER_PAGE, after=_place(before, tie))
    older = links.to("requests", kind=kind, before=format_instant(last[0]), tie=last[1]) if last else None
    shown = [{**row, "object": links.to_object(row)} for row in rows]
    return context.page("requests.html", requests=shown, older=older, is_first=not before, kind=kind)


@router.get("/notifications")
def notifications(
    context: ViewerContext, state: Annotated[str, Query(max_length=20)] = "",
    event: Annotated[str, Query(max_length=20)] = "", target: Annotated[str, Query(max_length=200)] = "",
    dag: Annotated[str, Query(max_length=200)] = "", backfill: Annotated[str, Query(max_length=200)] = "",
    before: Annotated[str, Query(max_length=40)] = "", tie: Annotated[int, Query(ge=0, le=MAX_TIE)] = 0,
) -> Response:  # fmt: skip
    filter = NotificationFilter(
        (state,) if state else (), (event,) if event else (), target or None, dag or None, backfill or None
    )
    page = list_notifications(context.store, filter, limit=REQUESTS_PER_PAGE, after=_place(before, tie))
    given = {"state": state, "event": event, "target": target, "dag": dag, "backfill": backfill}
    chosen, last = {name: value for name, value in given.items() if value}, page.after
    older = links.to("notifications", **chosen, before=format_instant(last[0]), tie=last[1]) if last else None
    targets = {one.name for one in context.app.settings.notifications} | ({target} if target else set())
    return context.page(
        "notifications.html", rows=page.items, older=older, is_first=not before, chosen=chosen, given=given,
        states=STATES, events=EVENTS, targets=sorted(targets),
    )  # fmt: skip


@router.get("/requests/{request_id}")
def request(context: ViewerContext, request_id: PathId) -> Response:
    row = find_request(context.store, request_id)
    if row["request_id"] != request_id:
        return redirect(links.to("requests", row["request_id"]))
    return context.page("request.html", row={**row, "object": links.to_object(row)})


def _place(before: str, tie: str | int) -> Place | None:
    try:
        return (parse_instant(before), tie) if before else None
    except ValueError:
        raise InvalidInput(f"before={before!r} is not an instant.") from None
