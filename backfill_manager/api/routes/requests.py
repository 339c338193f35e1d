"""`/requests`: every command that was submitted, by whom, from where, and the manager's answer. Rows are never deleted."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query
from fastapi.responses import Response

from backfill_manager.api.conditional_get import Reader
from backfill_manager.api.openapi import reads
from backfill_manager.api.paging import Cursor, Limit, from_cursor, order_of, page
from backfill_manager.api.parameters import Id
from backfill_manager.api.submit import request_document
from backfill_manager.model import records
from backfill_manager.queries import requests
from backfill_manager.queries.requests import find_request
from backfill_manager.schemas.resources import Page, Request, RequestDetails

router = APIRouter(prefix="/requests", tags=["requests"])

TABLES: Final = ("request", "response")


@router.get("", operation_id="list_requests", **reads(Page[Request]))
def list_requests(
    reader: Reader,
    limit: Limit = 50,
    cursor: Cursor = None,
    order_by: Literal["-requested_at", "requested_at"] = "-requested_at",
    kind: Annotated[str | None, Query(max_length=100)] = None,
) -> Response:
    """Every request, newest first, each with its answer; only `GET requests/{id}` has its payload."""
    order = order_of(order_by, {"requested_at": "requested_at"}, "request_id")
    position = from_cursor(cursor, order_by, records.Request, order)

    def compute() -> dict[str, Any]:
        after = position and position.key
        rows, last = requests.list_requests(reader.store, kind=kind, order=order, limit=limit, after=after)
        return page([request_document(one) for one in rows], order_by, last)

    return reader.response(TABLES, compute)


@router.get("/{request_id}", operation_id="get_request", **reads(RequestDetails))
def get_request(request_id: Id, reader: Reader) -> Response:
    """One request, by its id, a beginning of it, or `latest`."""
    return reader.response(TABLES, lambda: request_document(find_request(reader.store, request_id)))
