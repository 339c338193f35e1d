"""Task instances of a run, their tries, and what they logged."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from backfill_manager.clock import format_instant
from backfill_manager.errors import NotFound
from backfill_manager.model import states
from backfill_manager.model.records import DagRun, TaskInstance, TaskLog, TaskTry
from backfill_manager.queries.runs import NOT_LISTED
from backfill_manager.store.base import Condition, Store

LONGEST_LISTED: Final = 65_536  # characters of a result that a list tells


def _of(run: DagRun, task_id: str | None = None) -> list[Condition]:
    """`run_seq` first: it lets the engine skip every file of other runs."""
    where = [
        Condition("run_seq", "=", run.run_seq),
        Condition("dag_id", "=", run.dag_id),
        Condition("run_id", "=", run.run_id),
    ]
    return where if task_id is None else [*where, Condition("task_id", "=", task_id)]


def list_task_instances(store: Store, run: DagRun, task_id: str | None = None) -> list[dict[str, Any]]:
    """In the order in which they started; those that have not, last. Of several tasks (no `task_id`) large results are left
    out."""
    rows = store.read(TaskInstance, _of(run, task_id), order_by=("started_at", "task_id"))
    return [task_view(row) if task_id is not None else listed_task(row) for row in rows]


def listed_task(row: TaskInstance) -> dict[str, Any]:
    """As `task_view`, but for a large result: it is None, and `result_chars` says how large it is."""
    shown = task_view(row.evolve(result_json=None)) if len(row.result_json or "") > LONGEST_LISTED else task_view(row)
    return {**shown, "result_chars": None if row.result_json is None else len(row.result_json)}


def find_task_instance(store: Store, run: DagRun, task_id: str) -> TaskInstance:
    rows = store.read(TaskInstance, _of(run))
    for row in rows:
        if row.task_id == task_id:
            return row
    known = [row.task_id for row in rows]
    hint = f"; it has {', '.join(known)}." if known else ""
    raise NotFound(f"task in run {run.run_id} of {run.dag_id!r}", task_id, known, hint)


def list_tries(store: Store, run: DagRun, task_id: str | None = None) -> list[dict[str, Any]]:
    return [_try_view(row) for row in store.read(TaskTry, _of(run, task_id), order_by=("task_id", "launch"))]


def list_log_lines(
    store: Store,
    run: DagRun,
    task_id: str,
    *,
    try_number: int | None = None,
    after: tuple[int, int] = (0, -1),
    limit: int | None = None,
) -> list[dict[str, Any]]:
    """What a task logged, oldest first; `after` = (launch, line) of the last line that was seen already."""
    where = _of(run, task_id)
    if try_number is not None:
        where.append(Condition("try_number", "=", try_number))
    launch, line = after
    same, later = [Condition("launch", "=", launch), Condition("line", ">", line)], [Condition("launch", ">", launch)]
    rows: list[TaskLog] = []
    for part in (same, later) if launch else (later,):
        left = None if limit is None else limit - len(rows)
        rows += store.read(TaskLog, [*where, *part], order_by=("launch", "line"), limit=left)
    return [log_view(row) for row in rows]


def task_view(row: TaskInstance) -> dict[str, Any]:
    return {
        "dag_id": row.dag_id,
        "run_id": row.run_id,
        "task_id": row.task_id,
        "state": row.state,
        "try_number": row.try_number,
        "pool": row.pool,
        "started_at": format_instant(row.started_at),
        "ended_at": format_instant(row.ended_at),
        "duration_s": None if row.duration_s is None else round(row.duration_s, 3),
        "error": row.error,
        "rows_written": row.rows_written,
        "priority": row.priority,
        "failures": row.failures,
        "queued_at": format_instant(row.queued_at),
        "retry_at": format_instant(row.retry_at),
        "result": None if row.result_json is None else json.loads(row.result_json),
        "result_chars": None if row.result_json is None else len(row.result_json),
    }


def _try_view(row: TaskTry) -> dict[str, Any]:
    return {
        "task_id": row.task_id,
        "try_number": row.try_number,
        "launch": row.launch,
        "term": row.term,
        "state": row.state,
        "pool": row.pool,
        "started_at": format_instant(row.started_at),
        "ended_at": format_instant(row.ended_at),
        "duration_s": None if row.duration_s is None else round(row.duration_s, 3),
        "error": row.error,
        "spark_jobs": json.loads(row.spark_jobs_json or "[]"),
    }


def log_view(row: TaskLog) -> dict[str, Any]:
    return {
        "at": format_instant(row.at),
        "level": row.level,
        "message": row.message,
        "try_number": row.try_number,
        "launch": row.launch,
        "line": row.line,
    }


def log_tail(
    store: Store, run: DagRun, task_id: str, *, try_number: int | None = None, limit: int = 1000
) -> tuple[list[dict[str, Any]], bool]:
    """The last `limit` lines, oldest first, and whether there are earlier ones."""
    where = [
        Condition("run_seq", "=", run.run_seq),
        Condition("dag_id", "=", run.dag_id),
        Condition("run_id", "=", run.run_id),
        Condition("task_id", "=", task_id),
    ]
    if try_number is not None:
        where.append(Condition("try_number", "=", try_number))
    rows = store.read(TaskLog, where, order_by=("-launch", "-line"), limit=limit + 1)
    return [log_view(row) for row in rows[:limit][::-1]], len(rows) > limit


def running_tasks(store: Store, backfill: Mapping[str, Any], now: datetime) -> list[dict[str, Any]]:
    """Task instances of the backfill that run now, longest first, with `for_s` seconds."""
    if not backfill["running"]:
        return []
    of_it = [Condition("backfill_id", "=", backfill["backfill_id"]), Condition("state", "=", states.RUNNING)]
    runs = store.read(DagRun, of_it, without=NOT_LISTED)
    if not runs:
        return []
    where = [
        Condition("run_seq", ">=", min(run.run_seq for run in runs)),
        Condition("dag_id", "=", backfill["dag_id"]),
        Condition("run_id", "in", tuple(run.run_id for run in runs)),
        Condition("state", "=", states.RUNNING),
    ]
    return [
        {**listed_task(row), "for_s": None if row.started_at is None else (now - row.started_at).total_seconds()}
        for row in store.read(TaskInstance, where, order_by=("started_at",))
    ]
