"""`/notifications`: messages to the targets of the configuration."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from backfill_manager.api.conditional_get import Reader, read_from
from backfill_manager.api.openapi import reads
from backfill_manager.api.paging import Paging, paged
from backfill_manager.api.parameters import IN_STATES, OfDag
from backfill_manager.model import records
from backfill_manager.queries.notifications import NotificationFilter
from backfill_manager.queries.notifications import list_notifications as read_notifications
from backfill_manager.schemas.resources import Notification, Page
from backfill_manager.schemas.resources.manager import NotificationEvent, NotificationState

router = APIRouter(prefix="/notifications", tags=["notifications"])


@router.get("", operation_id="list_notifications", **reads(Page[Notification]))
@read_from("notification")
def list_notifications(
    reader: Reader,
    paging: Annotated[Paging, paged("-created_at", "created_at", limit=50)],
    state: Annotated[list[NotificationState] | None, IN_STATES] = None,
    event: Annotated[
        list[NotificationEvent] | None,
        Query(max_length=10, description="Only messages about this event. May be given several times."),
    ] = None,
    target: Annotated[str | None, Query(max_length=200, description="Only messages for this target.")] = None,
    dag_id: OfDag = None,
    backfill_id: Annotated[str | None, Query(max_length=200, description="Only messages about this backfill.")] = None,
) -> Any:
    """Returns messages about runs and backfills, newest first, whether sent, waiting or given up. They do not contain the URLs
    of the targets."""
    filter = NotificationFilter(tuple(state or ()), tuple(event or ()), target, dag_id, backfill_id)
    order = paging.order("run_seq")
    after = paging.after(records.Notification, order)
    return paging.page(*read_notifications(reader.store, filter, order=order, limit=paging.limit, after=after))
