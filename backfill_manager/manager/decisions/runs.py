"""Advances runs: which may start tasks, and which have ended. Pure decisions over `ManagerState`; when a task of such a run may
start is in task_readiness.py.

The state of a run is derived: it ends when its tasks and callbacks have, with the outcome of its tasks. A run that can never
continue (all that is left waits for a past that failed) is a deadlock: found in the tick in which it arises, and reported
with the run and the task that block it.

Scheduled and manual runs, and those that were cleared, start within `max_active_runs` of their DAG or backfill, older dates
first: an older run never waits for a newer one.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from backfill_manager.clock import EPOCH
from backfill_manager.manager.decisions import notification_rules
from backfill_manager.manager.decisions.auto_batch_inputs import remember_cost
from backfill_manager.manager.decisions.callbacks import add_callbacks, outcome_of, reason_of
from backfill_manager.manager.decisions.data_waits import forget_wait_ends
from backfill_manager.manager.decisions.item_outcomes import close_pending, end_items
from backfill_manager.manager.decisions.task_readiness import schedule_tasks
from backfill_manager.manager.state import ActiveBackfill, ActiveRun, ManagerState
from backfill_manager.manager.tick_context import Tick
from backfill_manager.model import states as s
from backfill_manager.model import transitions as c
from backfill_manager.number_ranges import merged


def advance_runs(tick: Tick) -> None:
    _admit(tick.state)
    for run in list(tick.state.runs.values()):
        _advance_run(tick, run)


def _admit(state: ManagerState) -> None:
    """Decides which runs may start tasks."""
    taken = Counter[tuple[str, str]]()
    for run in sorted(state.runs.values(), key=_start_order):
        owner, is_external = state.owner_of(run.row), run.row.run_type == s.EXTERNAL_RUN
        group = ("dag", run.row.dag_id) if owner is None else ("backfill", owner.row.backfill_id)
        limit = run.spec.max_active_runs if owner is None else owner.row.max_active_runs
        run.may_start = is_external or run.row.state == s.RUNNING or taken[group] < limit
        taken[group] += run.may_start and not is_external


def _start_order(run: ActiveRun) -> tuple[bool, datetime, int]:
    """Running runs keep their place, then older dates come first. Where tasks depend on the past, an older run comes before all,
    as a newer one that runs may be waiting for it."""
    keeps_place = run.row.state == s.RUNNING and not run.depends_on_past
    return (not keeps_place, run.row.logical_date or EPOCH, run.row.run_seq)


def _advance_run(tick: Tick, run: ActiveRun) -> None:
    owner = tick.state.owner_of(run.row)
    if owner is not None and owner.row.is_cancelling:
        cancel_tasks(tick, run, owner.row.reason or "cancelled")
    if not run.may_start:
        forget_wait_ends(tick, run)
    blocked = schedule_tasks(tick, run) if run.may_start else {}
    if blocked and not run.is_working:
        if owner is not None and _has_items_to_take(owner, run):
            return
        _give_up(tick, run, owner, blocked)
    if run.may_start:
        add_callbacks(tick, run)
    if all(ti.state in s.TASK_FINISHED for ti in run.tasks.values()):
        outcome = outcome_of(run)
        end_run(tick, run, outcome, reason_of(run, outcome))


def _give_up(tick: Tick, run: ActiveRun, owner: ActiveBackfill | None, blocked: dict[str, str]) -> None:
    """Ends the tasks of a deadlocked run, none of which can ever start. `blocked` has the reasons by task."""
    never_began, reason = all(ti.launch == 0 for ti in run.own_tasks), next(iter(blocked.values()))
    for ti in run.own_tasks:
        if ti.state == s.NONE:
            tick.put(c.upstream_failed(ti, tick.now, blocked.get(ti.task_id)))
    if owner is None:
        return
    if never_began and owner.counts[s.PENDING]:
        _close_what_follows(tick, owner, run, reason)
    if not owner.row.is_paused and not owner.row.is_cancelled:  # these have a reason already
        tick.put(owner.row.evolve(reason=reason))  # while the others, or callbacks, run


def _close_what_follows(tick: Tick, owner: ActiveBackfill, run: ActiveRun, reason: str) -> None:
    """Fails the pending items that would wait for a run that never began. Those behind the next run that there is already, and
    that is none of the backfill's active ones, wait for that one."""
    kept = owner.timeline.successor(run.row.logical_date)
    while kept is not None and kept.key in owner.running:
        kept = owner.timeline.successor(kept.logical_date)
    if kept is None:
        return close_pending(tick, owner, s.FAILED, reason)
    before = kept.logical_date or EPOCH
    waiting = [item.ordinal for item in owner.pending if item.logical_date is not None and item.logical_date < before]
    if waiting:
        close_pending(tick, owner, s.FAILED, reason, merged((ordinal, ordinal) for ordinal in waiting), len(waiting))


def _has_items_to_take(owner: ActiveBackfill, run: ActiveRun) -> bool:
    """After a crash between a run and its items: the backfill takes those items first, and skips those before them."""
    return run.key not in owner.running and owner.counts[s.PENDING] > 0 and not owner.row.is_paused


def cancel_tasks(tick: Tick, run: ActiveRun, reason: str) -> None:
    """Stops running tasks of the run, and cancels the others."""
    tick.cancel(run.tasks.values(), reason)
    for ti in list(run.tasks.values()):
        if ti.state not in s.TASK_FINISHED | s.TASK_STARTED:
            tick.put(c.cancelled(ti, tick.now, reason))


def end_run(tick: Tick, run: ActiveRun, outcome: str, reason: str | None) -> None:
    """Ends the run, and the items that it took."""
    state = tick.state
    if run.row.ended_at is None:  # it has worked
        run.ended_as = None
    state.put(c.run_ended(run.row, outcome, tick.now, reason))
    notification_rules.run_ended(tick, run, outcome, reason)
    del state.runs[run.key]
    for other in state.runs.values():
        if other.row.dag_id == run.row.dag_id and other.row.previous_run_id == run.row.run_id:
            other.past = dict(run.tasks)
    owner = state.owner_of(run.row)
    if owner is not None:
        if run.ended_as is None:
            owner.ended_as = None
            remember_cost(owner, run)
        end_items(state, owner, owner.running.pop(run.key, []), run.row, by_mark=run.ended_as is not None)
