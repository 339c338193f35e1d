"""Turns the executor's events into changes: an outcome is a value, matched once. Pure, but for a line in the manager's log
about a callback that failed: its run continues, and nothing else would report it.
"""

from __future__ import annotations

from datetime import timedelta

from backfill_manager.dags.definition import TaskSpec
from backfill_manager.execution.messages import (
    Cancelled,
    Event,
    Failed,
    Lost,
    Postponed,
    PutBack,
    Skipped,
    Succeeded,
    TaskEnded,
    TaskLogged,
    TaskStarted,
)
from backfill_manager.logging import get_logger
from backfill_manager.manager.losses import POSTPONED_FOR_S, after_loss
from backfill_manager.manager.state import ManagerState
from backfill_manager.model import states as s
from backfill_manager.model import transitions as c
from backfill_manager.model.records import TaskInstance

log = get_logger("outcomes")

NOT_COUNTED_AS_TRY = (Lost, PutBack, Postponed)  # the try ends as `lost`, and the task keeps its number of tries


def apply_outcomes(state: ManagerState, events: list[Event], term: int) -> None:
    """Applies events in the order in which they came. An event of a start that is not the task's current one (a try abandoned
    long ago) changes nothing."""
    for event in events:
        if isinstance(event, TaskLogged):
            for line in event.lines:
                state.changes.put(line)
            continue
        dag_id, run_id, task_id, launch = event.key
        run = state.runs.get((dag_id, run_id))
        ti = run.tasks.get(task_id) if run else None
        if run is None or ti is None or ti.launch != launch or ti.state not in s.TASK_STARTED:
            continue
        if isinstance(event, TaskStarted):
            state.put(c.started(ti, event.at))
            continue
        if ti.state == s.QUEUED and not isinstance(event.outcome, (*NOT_COUNTED_AS_TRY, Cancelled)):
            ti = c.started(ti, event.at)  # refused before its thread began
        moved = _ended(ti, event, run.spec.task(task_id))
        state.put(moved)
        if moved.state == s.FAILED and run.spec.is_callback(task_id):
            log.warning("callback failed", dag=dag_id, run=run_id, callback=task_id, error=moved.error)
        if isinstance(event.outcome, NOT_COUNTED_AS_TRY) and moved.state == s.UP_FOR_RETRY:
            tried, try_state = moved.evolve(try_number=ti.try_number, error=event.outcome.reason), "lost"
        else:
            tried, try_state = moved, moved_state(moved)
        state.changes.put(c.try_of(tried, term, try_state, event.spark_jobs))


def moved_state(ti: TaskInstance) -> str:
    """The state of a try: one that is followed by another has failed, whatever its task's state is."""
    return s.FAILED if ti.state == s.UP_FOR_RETRY else ti.state


def _ended(ti: TaskInstance, event: TaskEnded, task: TaskSpec) -> TaskInstance:
    match event.outcome:
        case Succeeded(result_json, rows_written):
            return c.succeeded(ti, event.at, result_json, rows_written)
        case Skipped(reason):
            return c.skipped(ti, event.at, reason)
        case Cancelled(reason):
            return c.cancelled(ti, event.at, reason)
        case Lost(reason, alone):
            return after_loss(ti, event.at, alone=alone, reason=reason)
        case PutBack(reason):
            return c.put_back(ti, event.at, reason, event.at)
        case Postponed(reason):
            return c.put_back(ti, event.at, reason, event.at + timedelta(seconds=POSTPONED_FOR_S))
        case Failed(error, retryable):
            if retryable and ti.failures < task.retries:
                return c.up_for_retry(
                    ti, event.at, error, event.at + timedelta(seconds=task.delay_before(ti.failures + 1))
                )
            return c.failed(ti, event.at, error)
