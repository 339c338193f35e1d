"""Everyone who has led, and what the manager said last."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any, Final

from backfill_manager.clock import format_instant
from backfill_manager.model.records import Manager, Request, Response
from backfill_manager.queries.managers import is_lease_live
from backfill_manager.requests.command_types import MANAGER_STAND_BY
from backfill_manager.store.base import Condition, Store

BELIEVED_FOR: Final = timedelta(minutes=12)  # a standby says so every five


def list_terms(store: Store, now: datetime, limit: int = 20) -> list[dict[str, Any]]:
    """The newest terms of leadership first. `leads` is true for the one that lives, if any does."""
    rows = store.read(Manager, order_by=("-term",), limit=limit)
    return [
        {
            "term": row.term,
            "manager_id": row.manager_id,
            "host": row.host,
            "pid": row.pid,
            "state": row.state,
            "leads": n == 0 and is_lease_live(row, now),
            "started_at": format_instant(row.started_at),
            "heartbeat_at": format_instant(row.heartbeat_at),
            "ended_at": format_instant(row.ended_at),
            "version": row.version,
            "application_id": row.application_id,
        }
        for n, row in enumerate(rows)
    ]


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
