"""What runs of a DAG cost that have ended, for the sizes of batches: from the runs' own tasks, or read from the tables."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from backfill_manager.dags.definition import DagSpec
from backfill_manager.model import states as s
from backfill_manager.model.records import DagRun
from backfill_manager.planning.batches.auto_batch_size import MAX_PAST, PastRun
from backfill_manager.planning.runs.timeline import OF_TIMELINE
from backfill_manager.store.base import Condition, Store, matching

_NOT_NEEDED: Final = ("conf_json", "reason")


def past_run(run: DagRun, spec: DagSpec, took_s: Mapping[str, float], rows: int, *, own: bool) -> PastRun | None:
    """`took_s`: seconds of each task that ran. None for a run that says nothing: it was cancelled, or nothing of it ran.

    Its seconds are those of the longest way through its tasks, so that it doesn't count what they waited for."""
    if run.state not in (s.SUCCESS, s.FAILED) or not took_s:
        return None
    ends: dict[str, float] = {}
    of_timeout = 0.0
    for task in spec.in_order:
        if task.is_callback:
            continue
        begins = max((ends[up] for up in task.upstream if up in ends), default=0.0)
        took = took_s.get(task.task_id, 0.0)
        # What was mapped in the run ran in its place.
        if task.over_result_of is not None and task.task_id not in spec.mapped:
            of_it = (
                one for name, one in took_s.items() if name.startswith(f"{task.task_id}.") and name not in spec.by_id
            )
            took = max(of_it, default=0.0)
        ends[task.task_id] = begins + took
        of_timeout = max(of_timeout, took / (task.timeout or math.inf))
    lasted_s = (run.ended_at - run.started_at).total_seconds() if run.started_at and run.ended_at else 0.0
    seconds = max(ends.values(), default=0.0)
    return PastRun(max(1, run.items), seconds, rows, run.state == s.FAILED, own, lasted_s, of_timeout)


def read_past(store: Store, spec: DagSpec, backfill_id: str | None = None) -> list[PastRun]:
    """The DAG's newest runs that have ended, the oldest first, and after them those of the backfill. Partial ones count only
    where they are the backfill's own, as do those that succeeded without running a task."""
    ended = [*matching(dag_id=spec.dag_id, state=(s.SUCCESS, s.FAILED)), OF_TIMELINE]
    ended.append(Condition("started_at", "not_null"))
    newest = store.read(DagRun, ended, order_by=("-run_seq",), limit=MAX_PAST, without=_NOT_NEEDED)
    runs = {run.key: run for run in newest if not run.is_partial}
    if backfill_id is not None:
        runs = {key: run for key, run in runs.items() if run.backfill_id != backfill_id}
        of_it = [*ended, *matching(backfill_id=backfill_id)]
        its_own = store.read(DagRun, of_it, order_by=("-ended_at",), limit=MAX_PAST, without=_NOT_NEEDED)
        runs |= {run.key: run for run in its_own}
    if not runs:
        return []
    of_runs = [Condition("run_seq", ">=", min(run.run_seq for run in runs.values()))]
    of_runs += matching(dag_id=spec.dag_id, run_id=sorted(run_id for _, run_id in runs))
    took, rows = defaultdict[str, dict[str, float]](dict), defaultdict[str, int](int)
    columns = ("run_id", "task_id", "duration_s", "rows_written")
    for ti in store.read_arrow("task_instance", columns, of_runs).to_pylist():
        if ti["duration_s"] is not None:
            took[ti["run_id"]][ti["task_id"]] = ti["duration_s"]
        rows[ti["run_id"]] += ti["rows_written"] or 0
    found: list[tuple[bool, datetime, PastRun]] = []
    for run in runs.values():
        own = run.backfill_id is not None and run.backfill_id == backfill_id
        one = past_run(run, spec, took[run.run_id], rows[run.run_id], own=own)
        if one is not None:
            found.append((own, run.ended_at or run.created_at, one))
    return [one for *_, one in sorted(found, key=lambda each: each[:2])]
