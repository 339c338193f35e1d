"""Turns the executor's events into changes: an outcome is a value, matched once. Decides whether a failed try is followed by
another, and when; a start that was lost (the manager's process or its JVM ended) is none: `crash_loops`. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime, timedelta

from backfill_manager.dags.definition import TaskSpec
from backfill_manager.execution import messages as m
from backfill_manager.manager.decisions.crash_loops import POSTPONED_FOR_S, after_loss
from backfill_manager.manager.state import ManagerState
from backfill_manager.model import states as s
from backfill_manager.model import transitions as c
from backfill_manager.model.records import CheckResult, DagRun, TableAccess, TaskInstance

NOT_COUNTED_AS_TRY = (m.Lost, m.PutBack, m.Postponed)  # the try ends as `lost`, and the task keeps its number of tries


def apply_outcomes(state: ManagerState, events: Iterable[m.Event], term: int) -> None:
    """Applies events in the order in which they came. An event of a start that is not the task's current one (a try abandoned
    long ago) changes nothing."""
    for event in events:
        if isinstance(event, m.TaskLogged):
            for line in event.lines:
                state.changes.put(line)
            continue
        dag_id, run_id, task_id, launch = event.key
        run = state.runs.get((dag_id, run_id))
        ti = run.tasks.get(task_id) if run else None
        if run is None or ti is None or ti.launch != launch or ti.state not in s.TASK_STARTED:
            continue
        if isinstance(event, m.TaskStarted):
            state.put(c.started(ti, event.at))
            continue
        if ti.state == s.QUEUED and not isinstance(event.outcome, (*NOT_COUNTED_AS_TRY, m.Cancelled)):
            ti = c.started(ti, event.at)  # refused before it began
        moved = _ended(ti, event, run.spec.task(task_id))
        state.put(moved)
        try_state = None
        if isinstance(event.outcome, NOT_COUNTED_AS_TRY) and moved.state == s.UP_FOR_RETRY:
            moved, try_state = moved.evolve(try_number=ti.try_number, error=event.outcome.reason), "lost"
        stages = None if event.spark_stages is None else event.spark_stages.model_dump_json()
        state.changes.put(c.try_of(moved, term, try_state, event.spark_jobs, stages))
        for number, checked in enumerate(event.checks, start=1):
            state.changes.put(_check_result(run.row, ti, event, number, checked))
        if run.row.run_type == s.PREVIEW_RUN:
            continue  # its tables are clones, which nobody else reads; promoting records what has become of them
        succeeded = isinstance(event.outcome, m.Succeeded)
        for number, table in enumerate(event.tables, start=1):
            access = access_row(run.row, event.key, number, table, event.at, succeeded=succeeded)
            state.changes.put(access)
            if access.access == "write" and access.succeeded:
                state.note_write(access)


def access_row(
    run: DagRun, of_try: m.LaunchKey, number: int, table: m.AccessedTable, at: datetime, *, succeeded: bool = True
) -> TableAccess:
    """The `number`-th table that a try has read or written, as the state keeps it."""
    return TableAccess(
        *of_try, number, table.access, run.run_seq, at, succeeded, run.dag_version, table_name=table.name,
        table_path=table.path, version=table.version, rows_written=table.rows, bytes_written=table.bytes,
        interval_start=run.interval_start, interval_end=run.interval_end, partition_key=run.partition_key,
        table_id=table.table_id, interval_column=table.interval_column, columns_json=table.columns_json,
    )  # fmt: skip


def _check_result(
    run: DagRun, ti: TaskInstance, event: m.TaskEnded, number: int, checked: m.CheckedWrite
) -> CheckResult:
    return CheckResult(
        ti.dag_id, ti.run_id, ti.task_id, ti.launch, number, ti.try_number, checked.table, checked.condition,
        checked.outcome, ti.run_seq, event.at, run.dag_version, checked.name, checked.rows, checked.failing, checked.value,
        checked.message, run.interval_start, run.interval_end, run.partition_key,
    )  # fmt: skip


def _ended(ti: TaskInstance, event: m.TaskEnded, task: TaskSpec) -> TaskInstance:
    match event.outcome:
        case m.Succeeded(result_json, rows_written, shown_json):
            return c.succeeded(ti, event.at, result_json, rows_written, shown_json)
        case m.Skipped(reason):
            return c.skipped(ti, event.at, reason)
        case m.Cancelled(reason):
            return c.cancelled(ti, event.at, reason)
        case m.Lost(reason, alone):
            return after_loss(ti, event.at, alone=alone, reason=reason)
        case m.PutBack(reason):
            return c.put_back(ti, event.at, reason, event.at)
        case m.Postponed(reason):
            return c.put_back(ti, event.at, reason, event.at + timedelta(seconds=POSTPONED_FOR_S))
        case m.Failed(error, retryable):
            return after_failure(ti, event.at, error, task, retryable=retryable)


def after_failure(ti: TaskInstance, at: datetime, error: str, task: TaskSpec, *, retryable: bool) -> TaskInstance:
    """The task after a try that failed at `at`."""
    if not retryable or ti.failures >= task.retries:
        return c.failed(ti, at, error)
    return c.up_for_retry(ti, at, error, at + timedelta(seconds=retry_delay_s(task, ti.failures + 1)))


def retry_delay_s(task: TaskSpec, failures: int) -> float:
    """Seconds to wait after the `failures`-th failed try."""
    try:
        delay = task.retry_delay * task.retry_backoff ** (failures - 1)
    except OverflowError:  # the thousandth try, say
        delay = math.inf if task.retry_delay else 0.0
    return float(min(delay, task.max_retry_delay))
