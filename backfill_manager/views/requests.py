"""Requests beside their answers."""

from __future__ import annotations

import json
from typing import Any

from backfill_manager.clock import format_instant
from backfill_manager.model.records import Request, Response
from backfill_manager.store.contract import Condition, Store
from backfill_manager.views.ids import LATEST, choose
from backfill_manager.views.paging import Order, read_page

WAITING = "waiting"


def list_requests(store: Store, *, limit: int | None = None) -> list[dict[str, Any]]:
    """Newest first; a request that was sent twice is one."""
    rows: dict[str, Request] = {}
    for row in store.read(Request, order_by=("-requested_at",), limit=limit):
        rows.setdefault(row.request_id, row)
    where = [Condition("request_id", "in", tuple(rows))] if 0 < len(rows) <= 100 else []
    answers = {row.request_id: row for row in store.read(Response, where)} if rows else {}
    return [request_view(row, answers.get(row.request_id)) for row in rows.values()]


def page_of_requests(
    store: Store, order: Order, limit: int, after: tuple[Any, Any] | None, *, kind: str | None = None
) -> tuple[list[dict[str, Any]], tuple[Any, Any] | None]:
    """Up to `limit` requests behind the place `after`, and the place of the last if more follow."""
    where = [] if kind is None else [Condition("kind", "=", kind)]
    rows = read_page(store, Request, where, order, limit + 1, after)
    more, rows = len(rows) > limit, rows[:limit]
    once = {row.request_id: row for row in reversed(rows)}
    answers = _answers(store, tuple(once))
    shown = [request_view(row, answers.get(row.request_id)) for row in reversed(once.values())]
    return shown, order.place(rows[-1]) if more else None


def _answers(store: Store, request_ids: tuple[str, ...]) -> dict[str, Response]:
    if not request_ids:
        return {}
    return {row.request_id: row for row in store.read(Response, [Condition("request_id", "in", request_ids)])}


def find_request(store: Store, wanted: str) -> dict[str, Any]:
    """By id, a beginning of it, or `latest`."""
    where = [] if wanted == LATEST else [Condition("request_id", "starts_with", wanted)]
    rows = store.read(Request, where, order_by=("-requested_at",), limit=1 if wanted == LATEST else 20)
    if not rows and wanted != LATEST:  # for a message that names the nearest
        rows = store.read(Request, order_by=("-requested_at",), limit=1000)
    by_id = {row.request_id: row for row in reversed(rows)}
    hint = "; see `bfm requests list`." if by_id else "; nothing was asked yet."
    row = by_id[choose("request", wanted, list(reversed(by_id)), hint=hint)]
    answer = _answers(store, (row.request_id,)).get(row.request_id)
    return {**request_view(row, answer), "result": result_of(answer)}


def request_view(row: Request, answer: Response | None) -> dict[str, Any]:
    return {
        "request_id": row.request_id,
        "kind": row.kind,
        "payload": _json(row.payload_json),
        "requested_by": row.requested_by,
        "requested_at": format_instant(row.requested_at),
        "source": row.source,
        "requested_from": row.requested_from,
        "outcome": answer.outcome if answer else WAITING,
        "object_id": answer.object_id if answer else None,
        "message": answer.message if answer else None,
        "answered_at": format_instant(answer.answered_at) if answer else None,
    }


def result_of(answer: Response | None) -> Any:
    """What the manager answered beside its words: the plan of a dry run, what came of parsing a bundle."""
    return None if answer is None or answer.payload_json is None else _json(answer.payload_json)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:  # whoever wrote this row did not use `requests.asking`; show what is there
        return text
