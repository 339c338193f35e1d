"""Everyone who has led, and what the manager said last."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from backfill_manager.clock import format_instant
from backfill_manager.model.records import Manager, Response
from backfill_manager.store.contract import Store
from backfill_manager.views.managers import lives


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
            "leads": n == 0 and lives(row, now),
            "started_at": format_instant(row.started_at),
            "heartbeat_at": format_instant(row.heartbeat_at),
            "ended_at": format_instant(row.ended_at),
            "version": row.version,
            "application_id": row.application_id,
        }
        for n, row in enumerate(rows)
    ]


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
