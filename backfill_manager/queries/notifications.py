"""Notifications: what was sent, waits or was given up, to which target, about which run or backfill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

from backfill_manager.masking import mask_text
from backfill_manager.model.records import Notification
from backfill_manager.queries.documents import document
from backfill_manager.queries.paging import Order, Page, Place, Slice
from backfill_manager.schemas.resources.manager import NotificationEvent, NotificationState
from backfill_manager.store.base import Condition, Store, matching

STATES: Final[tuple[str, ...]] = get_args(NotificationState)
EVENTS: Final[tuple[str, ...]] = get_args(NotificationEvent)
NEWEST_FIRST: Final = Order("created_at", "run_seq", descending=True)
FIELDS: Final = (
    "target", "event", "state", "dag_id", "run_id", "backfill_id", "title", "text", "created_at", "ended_at", "failures",
    "error",
)  # fmt: skip


@dataclass(frozen=True)
class NotificationFilter:
    """All that is given must hold; `state` and `event` are any of these."""

    state: Sequence[str] = ()
    event: Sequence[str] = ()
    target: str | None = None
    dag_id: str | None = None
    backfill_id: str | None = None

    def conditions(self) -> list[Condition]:
        either = {"state": list(self.state), "event": list(self.event)}
        of = matching(target=self.target, dag_id=self.dag_id, backfill_id=self.backfill_id)
        return [*of, *matching(**{name: values for name, values in either.items() if values})]


def list_notifications(
    store: Store, filter: NotificationFilter, *, order: Order = NEWEST_FIRST, limit: int | None = None,
    after: Place | None = None,
) -> Page:  # fmt: skip
    return Slice(order, limit, after).page(store, Notification, filter.conditions(), notification_view)


def notification_view(row: Notification) -> dict[str, Any]:
    masked = {"title": mask_text(row.title), "text": mask_text(row.text)}
    return document(FIELDS, row, **masked, error=None if row.error is None else mask_text(row.error))
