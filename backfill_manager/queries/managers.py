"""Who leads, and whether it lives: the lease row, judged by the age of its heartbeat."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any, Final

from backfill_manager.clock import format_instant
from backfill_manager.model import states
from backfill_manager.model.records import Manager, Request, Response
from backfill_manager.process_info import is_gone
from backfill_manager.queries.documents import document
from backfill_manager.schemas.kinds import MANAGER_STAND_BY
from backfill_manager.store.base import Condition, Store

_TERM_FIELDS: Final = (
    "term", "manager_id", "host", "pid", "state", "started_at", "heartbeat_at", "ended_at", "version", "application_id",
)  # fmt: skip
_STATUS_FIELDS: Final = (
    "leading", "term", "manager_id", "host", "pid", "state", "started_at", "heartbeat_at", "heartbeat_age_s", "lease_s",
    "ended_at", "version", "application_id", "spark_ui", "ticks", "commits", "tick_ms", "commit_ms", "advice",
)  # fmt: skip


def is_lease_live(row: Manager | None, now: datetime) -> bool:
    """True for a leader whose lease has not run out, and that was not killed on this very machine. Two hosts' clocks may
    differ by a part of the lease, not more."""
    return (
        row is not None
        and row.state == states.LEADING
        and now - row.heartbeat_at <= timedelta(seconds=row.lease_s)
        and not is_gone(row.manager_id, row.pid)
    )


def spark_pages(row: Manager | None, now: datetime) -> str | None:
    """Where Spark shows what the manager of this term runs; None when it is gone, or when there are no such pages."""
    told = row.spark_ui if row is not None and is_lease_live(row, now) else None
    return told.rstrip("/") if told is not None and told.startswith(("http://", "https://")) else None


def has_active_manager(store: Store, now: datetime) -> bool:
    return is_lease_live(store.lease(), now)


def manager_status(store: Store, now: datetime) -> dict[str, Any]:
    """The highest term: `leading` says whether that manager lives; `advice` what to do when it does not."""
    return status_of_lease(store.lease(), now)


def status_of_lease(row: Manager | None, now: datetime) -> dict[str, Any]:
    """`manager_status` of a lease that has been read."""
    if row is None:
        return {"leading": False, "term": None, "state": None, "advice": "No manager has run here yet."}
    leading = is_lease_live(row, now)
    if leading:
        advice = None
    elif row.state == states.LEADING:
        advice = "The last manager ended without giving its lease back; the next one continues where it stopped."
    else:
        advice = "The last manager has stopped."
    age_s = round((now - row.heartbeat_at).total_seconds(), 1)
    return document(_STATUS_FIELDS, row, leading=leading, heartbeat_age_s=age_s, advice=advice)


BELIEVED_FOR: Final = timedelta(minutes=12)  # a standby says so every five


def list_terms(store: Store, now: datetime, limit: int = 20) -> list[dict[str, Any]]:
    """The newest terms of leadership first. `leads` is true for the one that lives, if any does."""
    rows = store.read(Manager, order_by=("-term",), limit=limit)
    return [{**document(_TERM_FIELDS, row), "leads": n == 0 and is_lease_live(row, now)} for n, row in enumerate(rows)]


def list_standbys(store: Store, now: datetime) -> list[dict[str, Any]]:
    """Managers that stand by, as far as they have said so of late: `manager_id`, `host`, `pid`, `since` their first sign
    of these, `said_at` their last. One that leads by now is none."""
    where = [Condition("kind", "=", MANAGER_STAND_BY), Condition("requested_at", ">=", now - BELIEVED_FOR)]
    lease = store.lease()
    found: dict[str, dict[str, Any]] = {}
    for row in store.read(Request, where, order_by=("requested_at",)):
        said = json.loads(row.payload_json)
        at = format_instant(row.requested_at)
        first = found.get(said["manager_id"], {"since": at})
        found[said["manager_id"]] = {**said, "since": first["since"], "said_at": at}
    return [one for one in found.values() if lease is None or one["manager_id"] != lease.manager_id]


def list_answers(store: Store, limit: int = 20) -> list[dict[str, Any]]:
    """What the managers answered last, newest first."""
    return [
        {
            "request_id": row.request_id,
            "kind": row.kind,
            "outcome": row.outcome,
            "object_id": row.object_id,
            "message": row.message,
            "answered_at": format_instant(row.answered_at),
            "term": row.term,
        }
        for row in store.read(Response, order_by=("-answered_at",), limit=limit)
    ]
