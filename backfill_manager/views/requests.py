"""Requests beside their answers."""

from __future__ import annotations

import json
from typing import Any

from backfill_manager.clock import format_instant
from backfill_manager.model.records import Request, Response
from backfill_manager.store.contract import Condition, Store
from backfill_manager.views.ids import choose

WAITING = "waiting"


def list_requests(store: Store, *, limit: int | None = None) -> list[dict[str, Any]]:
    """Newest first; a request that was sent twice is one."""
    rows: dict[str, Request] = {}
    for row in store.read(Request, order_by=("-requested_at",), limit=limit):
        rows.setdefault(row.request_id, row)
    where = [Condition("request_id", "in", tuple(rows))] if 0 < len(rows) <= 100 else []
    answers = {row.request_id: row for row in store.read(Response, where)} if rows else {}
    return [request_view(row, answers.get(row.request_id)) for row in rows.values()]


def find_request(store: Store, wanted: str) -> dict[str, Any]:
    rows = {row.request_id: row for row in store.read(Request, order_by=("-requested_at",))}
    row = rows[
        choose("request", wanted, list(rows), hint="; see `bfm requests list`." if rows else "; nothing was asked yet.")
    ]
    answers = store.read(Response, [Condition("request_id", "=", row.request_id)], limit=1)
    return request_view(row, answers[0] if answers else None)


def request_view(row: Request, answer: Response | None) -> dict[str, Any]:
    return {
        "request_id": row.request_id,
        "kind": row.kind,
        "payload": _json(row.payload_json),
        "requested_by": row.requested_by,
        "requested_at": format_instant(row.requested_at),
        "source": row.source,
        "outcome": answer.outcome if answer else WAITING,
        "object_id": answer.object_id if answer else None,
        "message": answer.message if answer else None,
        "answered_at": format_instant(answer.answered_at) if answer else None,
    }


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:  # whoever wrote this row did not use `requests.asking`; show what is there
        return text
