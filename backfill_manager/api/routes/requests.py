"""`/requests`: what was asked, by whom, from where, and what became of it. Nothing is ever taken from it."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query
from fastapi.responses import Response

from backfill_manager.api.conditional_get import ReadingOf
from backfill_manager.api.models import ListedRequest, Page, RequestView
from backfill_manager.api.openapi import READS
from backfill_manager.api.paging import Cursor, Limit, from_cursor, order_of, to_cursor
from backfill_manager.api.paths import Id
from backfill_manager.api.responses import request_document
from backfill_manager.model.records import Request
from backfill_manager.queries import requests
from backfill_manager.queries.requests import find_request

router = APIRouter(prefix="/requests", tags=["requests"])

TABLES: Final = ("request", "response")


@router.get("", operation_id="list_requests", response_model=Page[ListedRequest], responses=READS)
def list_requests(
    reading: ReadingOf,
    limit: Limit = 50,
    cursor: Cursor = None,
    order_by: Literal["-requested_at", "requested_at"] = "-requested_at",
    kind: Annotated[str | None, Query(max_length=100)] = None,
) -> Response:
    """Every request, newest first, each with its answer; what was asked in full is told of a single one."""
    order = order_of(order_by, {"requested_at": "requested_at"}, "request_id")
    after = from_cursor(cursor, order_by, Request, order)

    def page() -> dict[str, Any]:
        place = None if after is None else after.of_row
        found, last = requests.list_requests(reading.store, kind=kind, order=order, limit=limit, after=place)
        return {
            "items": [request_document(one) for one in found],
            "next_cursor": None if last is None else to_cursor(order_by, *last),
        }

    return reading.of(TABLES, Page[ListedRequest], page)


@router.get("/{request_id}", operation_id="get_request", response_model=RequestView, responses=READS)
def get_request(request_id: Id, reading: ReadingOf) -> Response:
    """One request, by its id, a beginning of it, or `latest`."""
    return reading.of(TABLES, RequestView, lambda: request_document(find_request(reading.store, request_id)))
