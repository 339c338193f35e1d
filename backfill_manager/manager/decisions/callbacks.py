"""Callbacks: tasks of a run that report how one of its tasks, or the whole run, has ended. Pure.

A callback waits (`none`) until what it watches has ended. If the end is of its kind (`on_failure`, ...), it is scheduled like
any task: in the run's pool, with the run's version, with tries and a log of its own; else it is skipped. Callbacks of the
whole run wait for those of its tasks. The run ends after them, and its outcome is computed without them. A failure of a batch
that is tried again in halves is reported by the halves that fail, and not by the batch.

What a callback is given is derived from the task instances alone, so after a crash it is given the same again.
"""

from __future__ import annotations

from typing import Final

from backfill_manager.dags.definition import TaskSpec
from backfill_manager.execution.messages import Ended
from backfill_manager.manager.decisions.item_outcomes import MARKED_FAILED, is_split_if_it_fails
from backfill_manager.manager.decisions.trigger_rules import NEEDS_NO_FAILURE, counted_state, run_outcome
from backfill_manager.manager.state import ActiveRun, ManagerState
from backfill_manager.manager.tick_context import Tick
from backfill_manager.model import states as s
from backfill_manager.model import transitions as c

NOTHING_TO_REPORT: Final = "nothing to report"
BY_HALVES: Final = "the batch is retried in halves, which report what fails"


def add_callbacks(tick: Tick, run: ActiveRun) -> None:
    """Schedules or skips the run's callbacks whose watched task, or run, has ended."""
    for callback in run.spec.callbacks:
        ti = run.tasks.get(callback.task_id)
        if ti is None or ti.state != s.NONE or (callback.watches is None and not _task_callbacks_finished(run)):
            continue
        ended = ended_of(run, callback)
        if ended is not None:
            why_not = _why_not_called(tick.state, run, callback, ended)
            tick.put(c.skipped(ti, tick.now, why_not) if why_not else c.scheduled(ti))


def _why_not_called(state: ManagerState, run: ActiveRun, callback: TaskSpec, ended: Ended) -> str | None:
    # of one that was mapped in the run those of its mapped tasks are called
    if ended.state != callback.calls_back or callback.watches in run.spec.mapped:
        return NOTHING_TO_REPORT
    never_began = run.row.started_at is None and _deadlock(run) is not None  # its halves would not either
    has_worked = run.ended_as is None or run.row.ended_at is None  # else it was marked, and is not split
    is_halved = has_worked and not never_began and is_split_if_it_fails(state, run.row)
    return BY_HALVES if ended.state == s.FAILED and is_halved else None


def ended_of(run: ActiveRun, callback: TaskSpec) -> Ended | None:
    """How the task, or run, that the callback watches has ended; None: it has not."""
    if callback.watches is None:
        if any(ti.state not in s.TASK_FINISHED for ti in run.own_tasks):
            return None
        state = outcome_of(run)
        return Ended(None, state, reason_of(run, state))
    watched = run.tasks.get(callback.watches)
    if watched is None:
        return Ended(callback.watches, s.REMOVED)
    return Ended(watched.task_id, watched.state, watched.error) if watched.state in s.TASK_FINISHED else None


def _task_callbacks_finished(run: ActiveRun) -> bool:
    of_tasks = (run.tasks.get(callback.task_id) for callback in run.spec.callbacks if callback.watches is not None)
    return all(ti is None or ti.state in s.TASK_FINISHED for ti in of_tasks)


def outcome_of(run: ActiveRun) -> str:
    """The state of a run whose tasks have all finished; its callbacks may not have."""
    states = {ti.task_id: ti.state for ti in run.own_tasks if ti.task_id in run.selected}
    leaves = [counted_state(run, task_id) for task_id in run.spec.leaves_of(states)]
    outcome = run_outcome(leaves or list(states.values()), list(states.values()))
    return s.FAILED if outcome == s.SUCCESS and (_deadlock(run) or _is_failed_batch(run)) else outcome


def _is_failed_batch(run: ActiveRun) -> bool:
    """Whether a task of a backfill's batch has failed by its work, and others run after failures (`all_done`). That these have
    mended it says nothing for the intervals of the batch that would not have failed by themselves."""
    if run.row.items < 2 or run.row.backfill_id is None:
        return False
    chosen = (task for task in run.spec.work if task.task_id in run.selected)
    if all(task.trigger_rule in NEEDS_NO_FAILURE for task in chosen):
        return False
    failed = (ti for ti in run.own_tasks if ti.state == s.FAILED and ti.task_id in run.selected)
    return any(not (ti.error or "").startswith(MARKED_FAILED) for ti in failed)


def reason_of(run: ActiveRun, state: str) -> str | None:
    """Why the run failed, in one line; None for other states, or no reason."""
    if state != s.FAILED:
        return None
    failed = {ti.task_id: ti.error or "" for ti in run.own_tasks if ti.state == s.FAILED}
    is_marked = all(error.startswith(MARKED_FAILED) for error in failed.values())
    why = ", ".join(sorted(set(failed.values()))) if is_marked else "failed"
    return run.marked_failed or _deadlock(run) or (f"{why}: {', '.join(sorted(failed))}" if failed else None)


def _deadlock(run: ActiveRun) -> str | None:
    """The reason of a deadlock: only a task that could never start is `upstream_failed` with a reason."""
    tasks = (run.tasks[task.task_id] for task in run.spec.in_order if task.task_id in run.tasks)
    return next((ti.error for ti in tasks if ti.state == s.UPSTREAM_FAILED and ti.error), None)
