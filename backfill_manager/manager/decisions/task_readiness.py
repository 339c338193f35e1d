"""When a task of a run that may start (`runs.py`) may start itself; slots and limits come after it (task_slots.py). Pure
decisions over `ManagerState`.

A task becomes ready, in this order: its upstream allows it (its trigger rule, trigger_rules.py), the tasks that it is
mapped over have ended, the run before allows it (`depends_on_past`, `wait_for_downstream`), and the data that it waits for is
there (`waits_for`, up to its `wait_limit`). Then it is `scheduled`. Which of those get a slot is in task_slots.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from functools import cache, partial
from typing import Final

from backfill_manager.dags.definition import TaskSpec
from backfill_manager.dags.mapping import made_of
from backfill_manager.errors import shorten
from backfill_manager.humanise import duration
from backfill_manager.manager.decisions import notification_rules
from backfill_manager.manager.decisions.map_tasks import map_tasks, over_tasks
from backfill_manager.manager.decisions.trigger_rules import PAST_IS_DONE, counted_state, evaluate
from backfill_manager.manager.state import ActiveBackfill, ActiveRun, ManagerState
from backfill_manager.manager.tick_context import Tick
from backfill_manager.model import states as s
from backfill_manager.model import transitions as c
from backfill_manager.model.records import Backfill, BackfillItem, TaskInstance
from backfill_manager.planning.timeline import timeline_key
from backfill_manager.planning.wait_conditions import MAX_OPEN, open_wait_checks, wait_checks_of

FIRST_LOOK: Final = timedelta(minutes=5)  # at most, of a leader that has just begun
MAX_SHOWN: Final = 10  # of what a run waits for
MAX_SHOWN_LENGTH: Final = 300


def schedule_tasks(tick: Tick, run: ActiveRun) -> dict[str, str]:
    """Schedules the tasks of a run that may start now; returns those that are blocked for ever, with the reason, when nothing
    else of the run waits for data."""
    while (blocked := _schedule_tasks(tick, run)) is None:
        pass
    return blocked


def _schedule_tasks(tick: Tick, run: ActiveRun) -> dict[str, str] | None:
    """None: the run has other tasks now, and what comes after them waits for others."""
    run.waits_for_past = False
    blocked: dict[str, str] = {}
    awaited: dict[str, None] = {}
    waiting = set[str]()
    mapped_now: list[TaskSpec] = []
    repeating_before = cache(partial(_repeating_before, tick.state, run))  # the same for all of its tasks
    to_be_mapped = {  # again: it was cleared
        task_id for task_id in run.spec.mapped_over_results
        if task_id in run.selected and task_id in run.tasks and run.tasks[task_id].state not in s.TASK_FINISHED
    }  # fmt: skip
    for task in run.spec.in_order:
        ti = run.tasks.get(task.task_id)
        if ti is None:
            continue
        if ti.state == s.UP_FOR_RETRY and (ti.retry_at is None or ti.retry_at <= tick.now):
            tick.put(c.scheduled(ti))
        if (
            ti.state == s.SCHEDULED and ti.queued_at is None  # it waits for a slot, and has not begun
            and _past_obstacle(tick.state, run, task, repeating_before) is not None
        ):  # fmt: skip
            ti = c.held_back(ti)  # a run has come before this one since
            tick.put(ti)
        if ti.state != s.NONE or task.is_callback:
            continue
        if to_be_mapped and any(run.spec.task(up).mapped_from in to_be_mapped for up in task.upstream):
            continue  # it waits for those that are mapped then
        upstream = {counted_state(run, up) for up in task.upstream if up in run.selected and up in run.tasks}
        verdict = evaluate(task.trigger_rule, upstream)
        if (
            verdict == "start" and task.over_result_of is not None
            and any(over.state not in s.TASK_FINISHED for over in over_tasks(run, task).values())
        ):  # fmt: skip
            verdict = "wait"  # whatever its rule says: there are no values yet
        obstacle = _past_obstacle(tick.state, run, task, repeating_before) if verdict == "start" else None
        if verdict == "skip":
            tick.put(c.skipped(ti, tick.now, c.SKIPPED_BY_UPSTREAM))
        elif verdict == "upstream_failed":
            tick.put(c.upstream_failed(ti, tick.now))
        elif obstacle:
            blocked[task.task_id] = obstacle
        elif obstacle is not None:
            run.waits_for_past = True
            if (repeating := repeating_before()) is not None and (waits := _waits_itself(repeating.row)):
                awaited[f"backfill {repeating.row.backfill_id}, which {waits}"] = None
        elif verdict == "start":
            missing = _missing(tick.state, run, task)
            if not missing:
                if task.over_result_of is None:
                    tick.put(c.scheduled(ti))
                else:
                    mapped_now.append(task)
                continue
            ends_at = _wait_ends_at(run, task, ti, tick.now)
            if ends_at is None or tick.now < ends_at:
                awaited |= dict.fromkeys(missing)
                waiting.add(task.task_id)
                if ti.wait_ends_at is None and ends_at is not None:
                    tick.put(ti.evolve(wait_ends_at=ends_at))  # the next manager counts on
                continue
            why = f"waited {duration(task.wait_limit or 0)} for {_listed(missing)}"
            tick.put(c.skipped(ti, tick.now, why) if task.after_wait_limit == "skip" else c.failed(ti, tick.now, why))
    if mapped_now and map_tasks(tick, run, mapped_now):
        return None
    run.waits_for_data = bool(waiting)
    forget_wait_ends(tick, run, waiting)
    now_waits = f"waits for {_listed(awaited)}" if awaited else None
    if run.row.reason != now_waits:
        tick.put(run.row.evolve(reason=now_waits))
    return {} if waiting else blocked


def forget_wait_ends(tick: Tick, run: ActiveRun, waiting: Collection[str] = ()) -> None:
    """Of all tasks but these: their limit counts anew when they wait again."""
    run.wait_ends = {task_id: at for task_id, at in run.wait_ends.items() if task_id in waiting}
    for ti in [ti for ti in run.tasks.values() if ti.wait_ends_at is not None]:
        if ti.task_id not in waiting:
            tick.put(ti.evolve(wait_ends_at=None))


def next_wait_end(state: ManagerState) -> datetime | None:
    """When the next task gives up waiting for data."""
    return min((at for run in state.runs.values() for at in run.wait_ends.values()), default=None)


def _missing(state: ManagerState, run: ActiveRun, task: TaskSpec) -> list[str]:
    """Those of `waits_for` that are not there for the run; all, as long as nobody has looked."""
    part = run.row.interval_start, run.row.interval_end, run.row.partition_key
    missing = []
    for wait in task.waits_for:
        if isinstance(wait, str):
            if not ((known := state.written.get(wait)) and known.covers(*part)):
                missing.append(wait)
            continue
        if wait not in run.wait_checks:
            run.wait_checks[wait] = wait_checks_of(wait, run.spec, *part)
        open_ = open_wait_checks(run.wait_checks[wait], state.wait_checks_seen)
        later = set(open_[MAX_OPEN:])
        state.wait_checks_wanted |= dict.fromkeys(look for look in run.wait_checks[wait] if look not in later)
        if open_:
            seen = state.wait_checks_seen.get(open_[0])
            missing.append(open_[0].label + (seen.describe() if seen else ""))
    return missing


def _listed(missing: Collection[str]) -> str:
    """As text of a bounded length: a run shows it."""
    shown = list(missing)[:MAX_SHOWN]
    more = f" and {len(missing) - MAX_SHOWN} more" if len(missing) > MAX_SHOWN else ""
    return ", ".join(shorten(one, MAX_SHOWN_LENGTH) for one in shown) + more


def _wait_ends_at(run: ActiveRun, task: TaskSpec, ti: TaskInstance, now: datetime) -> datetime | None:
    """Counted from the moment in which nothing else keeps it from starting, also if an earlier leader saw it begin. One that
    ended while nobody led goes on until this leader has had the time to look for what is awaited."""
    if task.wait_limit is None:
        return None
    if task.task_id not in run.wait_ends:
        limit = timedelta(seconds=task.wait_limit)
        ends_at = now + limit if ti.wait_ends_at is None else min(ti.wait_ends_at, now + limit)
        if not all(isinstance(wait, str) for wait in task.waits_for):
            ends_at = max(ends_at, now + min(limit, FIRST_LOOK))
        run.wait_ends[task.task_id] = ends_at
    return run.wait_ends[task.task_id]


def _past_obstacle(
    state: ManagerState, run: ActiveRun, task: TaskSpec, repeating_before: Callable[[], ActiveBackfill | None]
) -> str | None:  # fmt: skip
    """What keeps a task with `depends_on_past` from starting. None: nothing. "": a run that is active, not read yet, or whose
    dates a backfill is to run again. Else: why it can never start."""
    if not task.depends_on_past or run.row.previous_run_id is None:
        return None
    owner = state.owner_of(run.row)
    if owner is not None and owner.row.ignore_first_depends_on_past:
        if owner.first is None:
            return ""  # read by the next prefetch
        if owner.first == run.row.ordinal:
            return None
    if repeating_before() is not None:
        return ""
    previous = state.runs.get((run.row.dag_id, run.row.previous_run_id))
    past = run.past if previous is None else previous.tasks
    if past is None:
        return ""
    downstream = list(run.spec.downstream(task.task_id)) if task.wait_for_downstream else []
    for mapped in [past[one] for one in downstream if one in past and run.spec.task(one).over_result_of is not None]:
        downstream += [f"{mapped.task_id}.{key}" for key in made_of(mapped)]  # what was mapped in that run
    # the previous run may not have had a task
    before = [past[task_id] for task_id in (task.task_id, *downstream) if task_id in past]
    obstacle = next((ti for ti in before if ti.state not in PAST_IS_DONE), None)
    if obstacle is None:
        return None
    if previous is not None:
        return ""
    if obstacle.state == s.UPSTREAM_FAILED and obstacle.error:  # a deadlock itself: what it waited for, this waits for
        return obstacle.error
    is_itself = obstacle.task_id == task.task_id
    what = "depends on the past, and" if is_itself else f"waits for its downstream {obstacle.task_id!r}, which"
    return (
        f"{notification_rules.DEADLOCK}task {task.task_id!r} of run {run.row.run_id} {what} is {obstacle.state} in the run "
        f"before, {run.row.previous_run_id}"
    )


def _waits_itself(row: Backfill) -> str | None:
    if row.is_paused:
        return "is paused"
    return "waits for its time window" if row.waits_until else None


def _repeating_before(state: ManagerState, run: ActiveRun) -> ActiveBackfill | None:
    """The backfill that is to run the dates right before this run again: of a batch that failed, as halves, or of a retry. The
    new runs come between this one and the one before it."""
    at = run.row.logical_date
    for live in state.backfills.values():
        if at is None or live.row.dag_id != run.row.dag_id or not live.counts[s.PENDING]:
            continue
        if not live.pending:
            return live  # they are read before the next tick
        if not live.has_repeated:
            continue
        repeated = (one for one in live.pending if one.run_id and not _was_done_since(live, one))
        earlier = [one.logical_date for one in repeated if one.logical_date and one.logical_date < at]
        following = live.timeline.successor(max(earlier)) if earlier else None
        if following is not None and following.key == run.key:
            return live
    return None


def _was_done_since(live: ActiveBackfill, item: BackfillItem) -> bool:
    """Whether another run than that of the item has succeeded for its date: nothing waits for the item any more."""
    there = live.timeline.standing_at(timeline_key(item.logical_date, None))
    return there is not None and there.run_id != item.run_id and there.state == s.SUCCESS
