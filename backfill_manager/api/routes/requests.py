"""`/requests`: the commands that were submitted, by whom, from where, and the manager's answers. Rows are never changed; only
`retention.requests` deletes them."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query

from backfill_manager.api.conditional_get import Reader, read_from
from backfill_manager.api.openapi import reads
from backfill_manager.api.paging import Paging, paged
from backfill_manager.api.parameters import Id
from backfill_manager.api.submit import request_document
from backfill_manager.model import records
from backfill_manager.queries import requests
from backfill_manager.schemas.resources import Page, Request, RequestDetails

router = APIRouter(prefix="/requests", tags=["requests"])

TABLES: Final = ("request", "response")


@router.get("", operation_id="list_requests", **reads(Page[Request]))
@read_from(*TABLES)
def list_requests(
    reader: Reader,
    paging: Annotated[Paging, paged("-requested_at", "requested_at", limit=50)],
    kind: Annotated[
        str | None, Query(max_length=100, description="Only requests of this kind: `backfill.create`, ...")
    ] = None,
) -> Any:
    """Returns all requests, newest first, each with its answer. Only `GET requests/{id}` returns the payload."""
    order = paging.order("request_id")
    after = paging.after(records.Request, order)
    rows, last = requests.list_requests(reader.store, kind=kind, order=order, limit=paging.limit, after=after)
    return paging.page([request_document(one) for one in rows], last)


@router.get("/{request_id}", operation_id="get_request", **reads(RequestDetails))
@read_from(*TABLES)
def get_request(request_id: Id, reader: Reader) -> Any:
    """Returns a request by its id, a unique prefix of it, or `latest`."""
    return request_document(requests.find_request(reader.store, request_id))
