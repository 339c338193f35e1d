"""Whether the data that a task waits for (`waits_for`) is there, and how long it waits (`wait_limit`). Pure decisions over
`ManagerState`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Final

from backfill_manager.dags.definition import DagSpec, TaskSpec
from backfill_manager.manager.state import ActiveBackfill, ActiveRun, ManagerState
from backfill_manager.manager.tick_context import Tick
from backfill_manager.model import states as s
from backfill_manager.model.records import BackfillItem, TaskInstance
from backfill_manager.planning.data.wait_conditions import MAX_OPEN, WaitCheck, open_wait_checks, wait_checks_of
from backfill_manager.schemas.waits import ExternalWait

FIRST_LOOK: Final = timedelta(minutes=5)  # at most, of a leader that has just begun, and for a batch that is to be made


def missing_data(state: ManagerState, run: ActiveRun, task: TaskSpec) -> list[str]:
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


def waiting_alike(state: ManagerState, live: ActiveBackfill, items: Sequence[BackfillItem]) -> int:
    """How many of the first of these items are as the first one: the tables that tasks wait for are written, or not. So no batch
    holds back intervals that could run."""
    written = [known for table in awaited_tables(live.spec, live.selected) if (known := state.written.get(table))]
    if not written:
        return len(items)
    is_there = [
        all(one.covers(item.interval_start, item.interval_end, item.partition_key) for one in written) for item in items
    ]
    return next((n for n, one in enumerate(is_there) if one != is_there[0]), len(items))


def looked_alike(
    state: ManagerState, live: ActiveBackfill, items: Sequence[BackfillItem], since: datetime | None, now: datetime
) -> int | None:  # fmt: skip
    """As `waiting_alike`, of files, rows and conditions. Somebody has to look for them first: None until then, but not for longer
    than `FIRST_LOOK` from `since` on (None: from now on)."""
    if items[0].batch is not None or live.row.mark_success:
        return len(items)
    waits = external_waits(live.spec, live.selected)
    looks = {wait: [_looks_for(wait, live.spec, item) for item in items] for wait in waits}
    wanted: dict[WaitCheck, None] = {}
    for of_items in looks.values():
        every = dict.fromkeys(look for of_item in of_items for look in of_item)
        later = set(open_wait_checks(every, state.wait_checks_seen)[MAX_OPEN:])
        wanted |= dict.fromkeys(look for look in every if look not in later)
    state.wait_checks_wanted |= wanted
    if any(look not in state.wait_checks_seen for look in wanted):
        live.first_look = since or now
        if now < live.first_look + FIRST_LOOK:
            return None
        live.first_look = None
    is_there = [
        _is_there(state, [look for of_items in looks.values() for look in of_items[n]]) for n in range(len(items))
    ]
    return next((n for n, one in enumerate(is_there) if one != is_there[0]), len(items))


def _looks_for(wait: ExternalWait, spec: DagSpec, item: BackfillItem) -> tuple[WaitCheck, ...]:
    return wait_checks_of(wait, spec, item.interval_start, item.interval_end, item.partition_key)


def _is_there(state: ManagerState, looks: Sequence[WaitCheck]) -> bool | None:
    """None: nobody knows, as something has not been looked for."""
    seen = [state.wait_checks_seen.get(look) for look in looks]
    if any(one is not None and not one.is_there for one in seen):
        return False
    return None if None in seen else True


def external_waits(spec: DagSpec, task_ids: Collection[str]) -> list[ExternalWait]:
    """The files, rows and conditions that these tasks of a DAG wait for."""
    tasks = (task for task in spec.work if task.task_id in task_ids)
    return list(dict.fromkeys(wait for task in tasks for wait in task.waits_for if not isinstance(wait, str)))


def awaited_tables(spec: DagSpec, task_ids: Collection[str]) -> set[str]:
    """The tables that these tasks of a DAG wait for."""
    tasks = (task for task in spec.work if task.task_id in task_ids)
    return {wait for task in tasks for wait in task.waits_for if isinstance(wait, str)}


def wait_ends_at(
    state: ManagerState, run: ActiveRun, task: TaskSpec, ti: TaskInstance, now: datetime
) -> datetime | None:
    """Counted from the moment in which nothing else keeps it from starting, also if an earlier leader saw it begin. One that
    ended while nobody led, or with the batch of which the run is a half, goes on until this leader has had the time to look for
    what is awaited; that of a half ends as soon as something was seen to be missing. None: without a limit, or it has not been
    read yet what was written."""
    tables = [wait for wait in task.waits_for if isinstance(wait, str)]
    if task.wait_limit is None or not state.written.keys() >= set(tables):
        return None
    if task.task_id not in run.wait_ends:
        limit = timedelta(seconds=task.wait_limit)
        latest = now if task.task_id in run.has_waited else now + limit
        ends_at = latest if ti.wait_ends_at is None else min(ti.wait_ends_at, latest)
        if len(tables) < len(task.waits_for):
            ends_at = max(ends_at, now + min(limit, FIRST_LOOK))
        run.wait_ends[task.task_id] = ends_at
    if task.task_id in run.has_waited and _is_seen_missing(state, run, task):
        return now
    return run.wait_ends[task.task_id]


def _is_seen_missing(state: ManagerState, run: ActiveRun, task: TaskSpec) -> bool:
    """Whether something was looked for and is not there. `missing_data` has asked for the looks."""
    part = run.row.interval_start, run.row.interval_end, run.row.partition_key
    for wait in task.waits_for:
        if isinstance(wait, str):
            if not state.written[wait].covers(*part):
                return True
        elif any((seen := state.wait_checks_seen.get(look)) and not seen.is_there for look in run.wait_checks[wait]):
            return True
    return False


def forget_wait_ends(tick: Tick, run: ActiveRun, waiting: Collection[str] = ()) -> None:
    """Of all tasks but these: their limit counts anew when they wait again."""
    run.wait_ends = {task_id: at for task_id, at in run.wait_ends.items() if task_id in waiting}
    for ti in [ti for ti in run.tasks.values() if ti.wait_ends_at is not None]:
        if ti.task_id not in waiting:
            tick.put(ti.evolve(wait_ends_at=None))


def has_waited_to_its_limit(ti: TaskInstance, spec: DagSpec) -> bool:
    """Whether a task has failed before its first try, as its data did not come."""
    task = spec.by_id.get(ti.task_id)
    return task is not None and task.wait_limit is not None and ti.state == s.FAILED and ti.try_number == 0


def next_wait_end(state: ManagerState) -> datetime | None:
    """When the next task gives up waiting for data, or the next batch is made though nobody has looked for what it waits for."""
    ends = [at for run in state.runs.values() for at in run.wait_ends.values()]
    ends += [live.first_look + FIRST_LOOK for live in state.backfills.values() if live.first_look is not None]
    return min(ends, default=None)
