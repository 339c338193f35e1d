"""Valid, small rows with unique ids, so that tests may share one state."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from backfill_manager.model.records import (
    Backfill,
    BackfillItem,
    DagRun,
    Manager,
    Record,
    Request,
    Response,
    TaskInstance,
)
from backfill_manager.model.transitions import Changes
from backfill_manager.store.base import Leader, Store
from backfill_manager.store.delta_rs.leader import DeltaRsLeader

AT = datetime(2024, 2, 29, 23, 59, 59, 123_456, tzinfo=timezone.utc)
_ticks = itertools.count()


def unique(stem: str) -> str:
    return f"{stem}_{uuid.uuid4().hex[:8]}"


def request(request_id: str | None = None, **fields: Any) -> Request:
    known: dict[str, Any] = {
        "request_id": request_id or unique("ask"),
        "kind": "backfill.create",
        "payload_json": "{}",
        "requested_by": "ada",
        "requested_at": AT + timedelta(seconds=next(_ticks)),
    }
    return Request(**{**known, **fields})


def response(to: Request, term: int = 1) -> Response:
    return Response(to.request_id, to.kind, "accepted", "b1", "made", None, AT, term)


def run(dag_id: str, seq: int, state: str = "running", **fields: Any) -> DagRun:
    return DagRun(dag_id, f"run{seq}", "backfill", state, 1, seq, AT, **fields)


def task(dag_id: str, seq: int, task_id: str = "t", state: str = "none", **fields: Any) -> TaskInstance:
    return TaskInstance(dag_id, f"run{seq}", task_id, state, seq, **fields)


def backfill(backfill_id: str, seq: int, state: str = "queued", **fields: Any) -> Backfill:
    return Backfill(backfill_id, "d", state, "{}", "none", 4, 0, "backfill", False, AT, seq, **fields)


def item(backfill_id: str, ordinal: int, seq: int, state: str = "pending", **fields: Any) -> BackfillItem:
    return BackfillItem(backfill_id, ordinal, state, seq, **fields)


def changes(*rows: Record) -> Changes:
    made = Changes()
    for row in rows:
        made.put(row)
    return made


def manager(term: int, **fields: Any) -> Manager:
    return Manager(term, f"manager{term}", fields.pop("host", "host"), 42, "leading", AT, AT, 15, "0.1.0", **fields)


def takes_over(store: Store, **fields: Any) -> Leader:
    last = store.lease()
    return store.lead(manager(last.term + 1 if last else 1, **fields))


def keys(rows: Sequence[Record]) -> list[tuple[Any, ...]]:
    return [row.key for row in rows]


def rows_rewritten(lead: Leader, record: type[Record], rows: Sequence[Record]) -> int:
    """Commits these rows; returns how many rows were in the files that the commit replaced."""
    assert isinstance(lead, DeltaRsLeader)
    handle = lead._writer.handles[record.TABLE]

    def files() -> dict[str, int]:
        actions = handle.get_add_actions(flatten=True)
        return dict(zip(actions["path"].to_pylist(), actions["num_records"].to_pylist(), strict=True))

    before = files()
    lead.commit(changes(*rows))
    after = files()
    return sum(number for path, number in before.items() if path not in after)
