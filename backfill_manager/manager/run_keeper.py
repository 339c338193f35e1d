"""Items become runs; tasks become ready; runs and backfills end. Pure decisions over the working set.

The states of a run and of a backfill are derived, never set on the side: a run ends when its tasks have, a backfill when
its items have. What can never go on (all that is left waits for a past that failed) is a deadlock: found in the tick in
which it comes about, and told with the run and the task that block.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from backfill_manager.dags.definition import TaskSpec
from backfill_manager.manager.instructions import CancelTry, ClosePending, Instructions
from backfill_manager.manager.working_set import Alive, LiveBackfill, LiveRun
from backfill_manager.model import changes as c
from backfill_manager.model import states as s
from backfill_manager.model.records import BackfillItem, DagRun, TaskInstance
from backfill_manager.planning.readiness import PAST_IS_DONE, run_outcome, verdict
from backfill_manager.planning.timeline import place_of, run_id_for

REDO = {"none": frozenset[str](), "failed": frozenset({s.FAILED, s.CANCELLED}),
        "completed": frozenset({s.FAILED, s.CANCELLED, s.SUCCESS})}  # fmt: skip
NOT_SELECTED = "left out by the backfill's tasks"


def keep(alive: Alive, now: datetime, next_seq: Callable[[int], int], todo: Instructions) -> None:
    """What follows from the working set as it is. Runs that are made here may start in this same tick."""
    known = dict(alive.runs)
    for run in known.values():
        _keep_run(alive, run, now, todo)
    for backfill in list(alive.backfills.values()):
        _keep_backfill(alive, backfill, now, next_seq, todo)
    for run in [made for key, made in alive.runs.items() if key not in known]:
        _keep_run(alive, run, now, todo)


# -- runs -------------------------------------------------------------------------------------------------------------


def _keep_run(alive: Alive, run: LiveRun, now: datetime, todo: Instructions) -> None:
    owner = alive.backfills.get(run.row.backfill_id or "")
    if owner is not None and owner.row.is_cancelling:
        _cancel_tasks(alive, run, owner.row.reason or "cancelled", now, todo)
    blocked = _advance_tasks(alive, run, now)
    states = {task_id: ti.state for task_id, ti in run.tasks.items()}
    if run.row.state == s.QUEUED and any(state in s.TASK_STARTED for state in states.values()):
        alive.put(c.run_started(run.row, now))
    if all(state in s.TASK_FINISHED for state in states.values()):
        leaves = [states[task_id] for task_id in run.spec.leaves if task_id in run.selected]
        leaves = leaves or [states[task_id] for task_id in run.selected if task_id in states]
        every = [states[task_id] for task_id in run.selected if task_id in states]
        failed = sorted(task_id for task_id, state in states.items() if state == s.FAILED)
        state = run_outcome(leaves, every)
        reason = f"failed: {', '.join(failed)}" if state == s.FAILED and failed else None
        _end_run(alive, run, state, now, reason)
    elif blocked and not any(state in (s.SCHEDULED, s.UP_FOR_RETRY, *s.TASK_STARTED) for state in states.values()):
        never_began = all(ti.launch == 0 for ti in run.tasks.values())
        for ti in list(run.tasks.values()):
            if ti.state == s.NONE:
                alive.put(c.upstream_failed(ti, now))
        _end_run(alive, run, s.FAILED, now, blocked)
        if owner is not None and never_began and owner.counts[s.PENDING]:
            close_pending(owner, s.FAILED, blocked, todo)
            owner.row = owner.row.evolve(reason=blocked)


def _advance_tasks(alive: Alive, run: LiveRun, now: datetime) -> str | None:
    """Move tasks on as far as their upstream lets them; returns what blocks for ever, if anything does."""
    blocked: str | None = None
    for task in run.spec.in_order:
        ti = run.tasks.get(task.task_id)
        if ti is None:
            continue
        if ti.state == s.UP_FOR_RETRY and (ti.retry_at is None or ti.retry_at <= now):
            alive.put(c.scheduled(ti))
        if ti.state != s.NONE:
            continue
        upstream = [run.tasks[up].state for up in task.upstream if up in run.selected and up in run.tasks]
        match verdict(task.trigger_rule, upstream):
            case "skip":
                alive.put(c.skipped(ti, now, "skipped by its upstream"))
            case "upstream_failed":
                alive.put(c.upstream_failed(ti, now))
            case "start":
                waits_for = _past(alive, run, task)
                if waits_for is None:
                    alive.put(c.scheduled(ti))
                elif waits_for:
                    blocked = blocked or waits_for
            case "wait":
                pass
    return blocked


def _past(alive: Alive, run: LiveRun, task: TaskSpec) -> str | None:
    """None: the past does not hold it. "": it waits for a run that is going on (or is not known here yet). Else: why it
    can never start."""
    if not task.depends_on_past or run.row.previous_run_id is None:
        return None
    previous = alive.runs.get((run.row.dag_id, run.row.previous_run_id))
    if previous is not None:
        before = previous.tasks.get(task.task_id)
        return None if before is None or before.state in PAST_IS_DONE else ""
    if run.past is None:
        return ""
    state = run.past.get(task.task_id, s.SUCCESS)  # a task that the previous run did not have holds nothing up
    if state in PAST_IS_DONE:
        return None
    return (
        f"deadlock: task {task.task_id!r} of run {run.row.run_id} depends on the past, and is {state} in the run before, "
        f"{run.row.previous_run_id}"
    )


def _cancel_tasks(alive: Alive, run: LiveRun, reason: str, now: datetime, todo: Instructions) -> None:
    for ti in list(run.tasks.values()):
        if ti.state in s.TASK_STARTED:
            todo.cancels.append(CancelTry((ti.dag_id, ti.run_id, ti.task_id, ti.launch), reason))
        elif ti.state not in s.TASK_FINISHED:
            alive.put(c.cancelled(ti, now, reason))


def _end_run(alive: Alive, run: LiveRun, state: str, now: datetime, reason: str | None) -> None:
    alive.put(c.run_ended(run.row, state, now, reason))
    del alive.runs[run.key]
    for other in alive.runs.values():
        if other.row.dag_id == run.row.dag_id and other.row.previous_run_id == run.row.run_id:
            other.past = {task_id: ti.state for task_id, ti in run.tasks.items()}
    owner = alive.backfills.get(run.row.backfill_id or "")
    item = owner.running.pop(run.key, None) if owner else None
    if owner is not None and item is not None:
        alive.put_item(owner, item, c.item_ended(item, state, reason))


# -- backfills --------------------------------------------------------------------------------------------------------


def _keep_backfill(
    alive: Alive, live: LiveBackfill, now: datetime, next_seq: Callable[[int], int], todo: Instructions
) -> None:
    failures = live.counts[s.FAILED] - live.row.failed_when_resumed
    limit = live.row.stop_on_failure
    if limit is not None and failures >= limit and live.counts[s.PENDING] and not live.row.is_paused:
        alive.put(c.backfill_paused(live.row, f"{failures} failed items: paused by stop_on_failure={limit}"))
    if not live.row.is_paused and not live.row.is_cancelling:
        _make_runs(alive, live, now, next_seq)
    if live.counts[s.PENDING] == 0 and live.counts[s.RUNNING] == 0:
        _end_backfill(alive, live, now)


def _make_runs(alive: Alive, live: LiveBackfill, now: datetime, next_seq: Callable[[int], int]) -> None:
    while live.pending and len(live.running) < live.row.max_active_runs:
        item = live.pending.popleft()
        place = place_of(item.logical_date, item.partition_key)
        standing = live.stretch.standing(place)
        if standing is not None and standing.backfill_id == live.row.backfill_id and standing.ordinal == item.ordinal:
            _adopt(alive, live, item, standing)
        elif standing is not None and standing.state in s.RUN_LIVE:
            alive.put_item(live, item, c.item_ended(item, s.SKIPPED, "in flight"))
        elif standing is not None and standing.state not in REDO[live.row.reprocess]:
            alive.put_item(live, item, c.item_ended(item, s.SKIPPED, "already exists"))
        else:
            _make_run(alive, live, item, standing, now, next_seq)


def _adopt(alive: Alive, live: LiveBackfill, item: BackfillItem, run: DagRun) -> None:
    """The run was committed, then a crash came before its item was: the item is derived from the run."""
    begun = c.item_started(item, run.run_id)
    alive.put_item(live, item, begun)
    if (run.dag_id, run.run_id) in alive.runs:
        live.running[run.dag_id, run.run_id] = begun
    else:
        alive.put_item(live, begun, c.item_ended(begun, run.state, run.reason))


def _make_run(
    alive: Alive,
    live: LiveBackfill,
    item: BackfillItem,
    standing: DagRun | None,
    now: datetime,
    next_seq: Callable[[int], int],
) -> None:
    place = place_of(item.logical_date, item.partition_key)
    previous = live.stretch.previous(item.logical_date)
    row = DagRun(
        dag_id=live.row.dag_id, run_id=run_id_for(s.BACKFILL_RUN, place, standing), run_type=s.BACKFILL_RUN,
        state=s.QUEUED, dag_version=live.row.dag_version, run_seq=next_seq(1), created_at=now,
        logical_date=item.logical_date, interval_start=item.interval_start, interval_end=item.interval_end,
        partition_key=item.partition_key, previous_run_id=previous.run_id if previous else None,
        backfill_id=live.row.backfill_id, ordinal=item.ordinal, conf_json=live.row.conf_json,
    )  # fmt: skip
    if standing is not None:
        alive.put(c.run_overridden(standing, row.run_id))
    successor = live.stretch.successor(item.logical_date)
    if successor is not None:
        alive.put(c.run_follows(successor, row.run_id))
    selected = live.selected
    run = LiveRun(row=row, spec=live.spec, tasks={}, selected=selected)
    alive.runs[run.key] = run
    for other in alive.backfills.values():
        if other.row.dag_id == row.dag_id:
            other.stretch.put(row)
    alive.put(row)
    for task in live.spec.tasks:
        ti = TaskInstance(
            dag_id=row.dag_id, run_id=row.run_id, task_id=task.task_id, state=s.NONE, run_seq=row.run_seq,
            priority=task.priority + live.row.priority,
        )  # fmt: skip
        if task.task_id not in selected:
            ti = c.skipped(ti, now, NOT_SELECTED)
        elif live.row.mark_success:
            ti = c.marked_success(ti, now)
        alive.put(ti)
    begun = c.item_started(item, row.run_id)
    live.running[run.key] = begun
    alive.put_item(live, item, begun)
    if live.row.state == s.QUEUED:
        alive.put(c.backfill_started(live.row, now))
    if live.row.mark_success:
        _end_run(alive, run, s.SUCCESS, now, "marked success")


def close_pending(live: LiveBackfill, state: str, reason: str, todo: Instructions) -> None:
    """Every item that is still pending ends so, in one statement."""
    todo.closings.append(ClosePending(live.row.backfill_id, state, reason))
    live.counts[state] += live.counts[s.PENDING]
    live.counts[s.PENDING] = 0
    live.pending.clear()


def _end_backfill(alive: Alive, live: LiveBackfill, now: datetime) -> None:
    state = s.CANCELLED if live.counts[s.CANCELLED] else s.FAILED if live.counts[s.FAILED] else s.SUCCESS
    reason = live.row.reason
    if state == s.FAILED and reason is None:
        reason = f"{live.counts[s.FAILED]} of {live.row.planned} items failed"
    alive.put(c.backfill_ended(live.row, state, now, reason))
    del alive.backfills[live.row.backfill_id]
