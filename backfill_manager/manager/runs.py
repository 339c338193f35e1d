"""Tasks become ready; runs end. Pure decisions over the working set.

The state of a run is derived, never set on the side: it ends when its tasks and its callbacks have, as its tasks did. One
that can never go on (all that is
left waits for a past that failed) is a deadlock: found in the tick in which it comes about, and told with the run and
the task that block.

Runs that nobody waits for with a slot of their own (scheduled and manual ones, and those that were cleared) start within
`max_active_runs` of their DAG or backfill, older dates first: an older one never waits for a newer.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from backfill_manager.clock import EPOCH
from backfill_manager.dags.definition import TaskSpec
from backfill_manager.manager.callbacks import add_callbacks, outcome_of, reason_of
from backfill_manager.manager.instructions import CancelTry, Instructions
from backfill_manager.manager.items import close_pending, end_items
from backfill_manager.manager.state import ActiveBackfill, ActiveRun, ManagerState, RunKey
from backfill_manager.model import states as s
from backfill_manager.model import transitions as c
from backfill_manager.planning.trigger_rules import PAST_IS_DONE, evaluate

IN_PROGRESS = frozenset({s.SCHEDULED, s.UP_FOR_RETRY, *s.TASK_STARTED})


def advance_runs(state: ManagerState, now: datetime, todo: Instructions) -> None:
    """What follows for every run from the working set as it is."""
    admitted = _admitted(state)
    for run in list(state.runs.values()):
        _keep_run(state, run, run.key in admitted, now, todo)


def _admitted(state: ManagerState) -> set[RunKey]:
    """The runs that may start tasks."""
    admitted, taken = set[RunKey](), Counter[tuple[str, str]]()
    for run in sorted(state.runs.values(), key=_turn):
        owner = state.owner_of(run.row)
        if run.row.run_type == s.EXTERNAL_RUN:
            admitted.add(run.key)
            continue
        group = ("dag", run.row.dag_id) if owner is None else ("backfill", owner.row.backfill_id)
        limit = run.spec.max_active_runs if owner is None else owner.row.max_active_runs
        if run.row.state == s.RUNNING or taken[group] < limit:
            admitted.add(run.key)
            taken[group] += 1
    return admitted


def _turn(run: ActiveRun) -> tuple[bool, datetime, int]:
    """What runs keeps its place, then older dates first. Where tasks depend on the past an older run comes before all,
    for a newer one that runs may be waiting for it."""
    waits_for_older = any(task.depends_on_past and task.task_id in run.selected for task in run.spec.tasks)
    keeps_place = run.row.state == s.RUNNING and not waits_for_older
    return (not keeps_place, run.row.logical_date or EPOCH, run.row.run_seq)


def _keep_run(state: ManagerState, run: ActiveRun, may_start: bool, now: datetime, todo: Instructions) -> None:
    run.may_start = may_start
    owner = state.owner_of(run.row)
    if owner is not None and owner.row.is_cancelling:
        cancel_tasks(state, run, owner.row.reason or "cancelled", now, todo)
    blocked = _advance_tasks(state, run, now) if may_start else {}
    if blocked and not any(ti.state in IN_PROGRESS for ti in run.own_tasks):
        if owner is not None and _has_items_to_take(owner, run):
            return
        _give_up(state, run, owner, blocked, now, todo)
    if may_start:
        add_callbacks(state, run, now)
    if all(ti.state in s.TASK_FINISHED for ti in run.tasks.values()):
        outcome = outcome_of(run)
        end_run(state, run, outcome, now, reason_of(run, outcome))


def _give_up(
    state: ManagerState,
    run: ActiveRun,
    owner: ActiveBackfill | None,
    blocked: dict[str, str],
    now: datetime,
    todo: Instructions,
) -> None:
    """Nothing of it can ever start: a deadlock. `blocked` says why, by task."""
    never_began = all(ti.launch == 0 for ti in run.own_tasks)
    for ti in run.own_tasks:
        if ti.state == s.NONE:
            state.put(c.upstream_failed(ti, now, blocked.get(ti.task_id)))
    if owner is not None and never_began and owner.counts[s.PENDING]:
        reason = next(iter(blocked.values()))
        close_pending(state, owner, s.FAILED, reason, todo)
        state.put(owner.row.evolve(reason=reason))  # it may go on for a while: with what tells of it


def _has_items_to_take(owner: ActiveBackfill, run: ActiveRun) -> bool:
    """After a crash between a run and its items the backfill takes them first, and leaves out those before them."""
    may_take = not owner.row.is_paused and not owner.row.is_cancelling
    return run.key not in owner.running and owner.counts[s.PENDING] > 0 and may_take


def _advance_tasks(state: ManagerState, run: ActiveRun, now: datetime) -> dict[str, str]:
    """Move tasks on as far as their upstream lets them; returns those that are blocked for ever, with the reason."""
    blocked: dict[str, str] = {}
    for task in run.spec.in_order:
        ti = run.tasks.get(task.task_id)
        if ti is None or task.is_callback:
            continue
        if ti.state == s.UP_FOR_RETRY and (ti.retry_at is None or ti.retry_at <= now):
            state.put(c.scheduled(ti))
        if ti.state != s.NONE:
            continue
        upstream = [run.tasks[up].state for up in task.upstream if up in run.selected and up in run.tasks]
        match evaluate(task.trigger_rule, upstream):
            case "skip":
                state.put(c.skipped(ti, now, "skipped by its upstream"))
            case "upstream_failed":
                state.put(c.upstream_failed(ti, now))
            case "start":
                waits_for = _past(state, run, task)
                if waits_for is None:
                    state.put(c.scheduled(ti))
                elif waits_for:
                    blocked[task.task_id] = waits_for
            case "wait":
                pass
    return blocked


def _past(state: ManagerState, run: ActiveRun, task: TaskSpec) -> str | None:
    """None: the past does not hold it. "": it waits for a run that is going on (or is not known here yet). Else: why it
    can never start."""
    if not task.depends_on_past or run.row.previous_run_id is None:
        return None
    owner = state.owner_of(run.row)
    if owner is not None and owner.row.ignore_first_depends_on_past:
        if owner.first is None:
            return ""  # read before the next tick
        if owner.first == run.row.ordinal:
            return None
    previous = state.runs.get((run.row.dag_id, run.row.previous_run_id))
    if previous is not None:
        before = previous.tasks.get(task.task_id)
        return None if before is None or before.state in PAST_IS_DONE else ""
    if run.past is None:
        return ""
    before_state = run.past.get(task.task_id, s.SUCCESS)  # a task that the previous run did not have holds nothing up
    if before_state in PAST_IS_DONE:
        return None
    return (
        f"deadlock: task {task.task_id!r} of run {run.row.run_id} depends on the past, and is {before_state} in the run before, "
        f"{run.row.previous_run_id}"
    )


def cancel_tasks(state: ManagerState, run: ActiveRun, reason: str, now: datetime, todo: Instructions) -> None:
    """Stop what runs of it, and let nothing more start."""
    for ti in list(run.tasks.values()):
        if ti.state in s.TASK_STARTED:
            todo.cancels.append(CancelTry((ti.dag_id, ti.run_id, ti.task_id, ti.launch), reason))
        elif ti.state not in s.TASK_FINISHED:
            state.put(c.cancelled(ti, now, reason))


def end_run(state: ManagerState, run: ActiveRun, outcome: str, now: datetime, reason: str | None) -> None:
    """It has ended: so have the items that it took."""
    state.put(c.run_ended(run.row, outcome, now, reason))
    del state.runs[run.key]
    for other in state.runs.values():
        if other.row.dag_id == run.row.dag_id and other.row.previous_run_id == run.row.run_id:
            other.past = {task_id: ti.state for task_id, ti in run.tasks.items()}
    owner = state.owner_of(run.row)
    if owner is not None:
        end_items(state, owner, owner.running.pop(run.key, []), run.row)
