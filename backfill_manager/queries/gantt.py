"""When each try of a run's tasks ran: the tries that have ended, and those that are alive. For a Gantt."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from backfill_manager.clock import format_instant
from backfill_manager.dags.definition import DagSpec
from backfill_manager.model import states
from backfill_manager.model.records import DagRun, TaskInstance, TaskTry
from backfill_manager.store.base import Store, matching


def spans_of_run(store: Store, run: DagRun, spec: DagSpec | None, now: datetime) -> list[dict[str, Any]]:
    """A row for each task that was ever queued, in the order of the definition: `task_id`, `state` (as it is now), and
    `spans`, oldest first, each with `state`, `try_number`, `launch`, `from`, `to` (`now` for what runs) and `is_live`."""
    where = matching(run_seq=run.run_seq, dag_id=run.dag_id, run_id=run.run_id)
    instances = {row.task_id: row for row in store.read(TaskInstance, where)}
    spans: dict[str, list[dict[str, Any]]] = {task_id: [] for task_id in instances}
    launches = set()
    for row in store.read(TaskTry, where, order_by=("launch",)):
        if row.started_at is not None and row.ended_at is not None:
            launches.add((row.task_id, row.launch))
            spans.setdefault(row.task_id, []).append(_span(row, row.state, row.started_at, row.ended_at, False))
    for ti in instances.values():
        if (ti.task_id, ti.launch) not in launches:
            spans[ti.task_id] += _living(ti, now)
    order = [task.task_id for task in spec.in_order] if spec else []
    ids = [one for one in order if one in spans] + sorted(set(spans) - set(order))
    return [
        {"task_id": one, "state": instances[one].state if one in instances else states.REMOVED, "spans": spans[one]}
        for one in ids
    ]


def _living(ti: TaskInstance, now: datetime) -> list[dict[str, Any]]:
    """Its wait in the pool, and its work so far."""
    found = []
    if ti.queued_at is not None and ti.state in states.TASK_STARTED:
        begun = ti.started_at or now
        found.append(_span(ti, states.QUEUED, ti.queued_at, begun, ti.started_at is None))
    if ti.started_at is not None and ti.state != states.NONE:
        is_live = ti.ended_at is None and ti.state == states.RUNNING
        if is_live or ti.ended_at is not None:
            found.append(_span(ti, ti.state, ti.started_at, ti.ended_at or now, is_live))
    return found


def _span(row: TaskTry | TaskInstance, state: str, begin: datetime, end: datetime, is_live: bool) -> dict[str, Any]:
    return {
        "state": state, "try_number": row.try_number, "launch": row.launch, "from": format_instant(begin),
        "to": format_instant(max(begin, end)), "is_live": is_live,
    }  # fmt: skip
