"""Ready tasks go to the executor: by priority, within the limits of pool, DAG and task. Pure.

Their order is that of `model.pools.start_order`, here and in the executor, where they wait for slots. A pool is given more tasks
than it has slots (`QUEUE_AHEAD_FACTOR`), so that a slot that becomes free need not wait for a tick; they are `queued` until a
slot takes them. A backfill never takes a scheduled run's slots (`model.pools`). A polite backfill starts nothing while a task of
a scheduled run waits for a slot.

A task under which the manager's process or its JVM has ended twice in a row goes before all others, and nothing else is started
in its first 20 seconds: if the process ends a third time, that task is the cause (`manager.crash_loops` says why). Until a
lost task has been running again for as long, a pool is given no more than it has slots: when the process ends, tasks that wait
in the executor can't be distinguished from those that had just begun, and would be counted too.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from backfill_manager.dags.definition import TaskSpec
from backfill_manager.dags.stored_definition import UnreadableSpec
from backfill_manager.errors import InvalidInput
from backfill_manager.execution.messages import TaskLaunch
from backfill_manager.manager.decisions.callbacks import ended_of
from backfill_manager.manager.decisions.crash_loops import has_recovered, is_suspect, isolation_ends_at
from backfill_manager.manager.state import ActiveBackfill, ActiveRun, ManagerState
from backfill_manager.manager.tick_context import Tick
from backfill_manager.model import states as s
from backfill_manager.model import transitions as c
from backfill_manager.model.pools import memory_of, nice_of, pool_of, start_order
from backfill_manager.model.records import RunKey, TaskInstance
from backfill_manager.model.stored_json import read_column, unreadable_options

QUEUE_AHEAD_FACTOR = 2.0  # times a pool's slots: tasks that wait in the executor besides those that run


def dispatch(tick: Tick, free: Mapping[str, int]) -> None:
    """`free` is what the executor says of each pool: slots that are neither taken nor spoken for."""
    state, tasks = tick.state, [ti for _, ti in tick.state.tasks()]
    if isolation_ends_at(tasks, tick.now) is not None:
        return
    limits = _Limits(state, free, QUEUE_AHEAD_FACTOR if has_recovered(tasks, tick.now) else 0.0)
    results: dict[RunKey, dict[str, Any]] = {}  # read once for all that a run starts
    for run, ti in sorted(_ready(state), key=_order):
        owner, task = state.owner_of(run.row), run.spec.task(ti.task_id)
        pool = pool_of(task.pool, owner.row.pool if owner else None)
        if not limits.allow(run, owner, task, pool):
            continue
        try:
            params = _params(run, owner)
            readable = _results(run, task.task_id, results.setdefault(run.key, {}))
        except InvalidInput as error:  # a row of it is damaged
            state.put(c.failed(ti, tick.now, str(error)))
            continue
        limits.take(run, task, pool)
        taken = c.queued(ti, tick.now, pool)
        state.put(taken)
        if (run.row.started_at is None or run.row.ended_at is not None) and not task.is_callback:
            state.put(c.run_started(run.row, tick.now))
        elif run.row.state == s.QUEUED:
            state.put(c.run_started(run.row, None))
        tick.launches.append(_launch(state, run, taken, task, pool, params, readable))
        if is_suspect(taken):
            return  # the others wait: it runs alone


def _ready(state: ManagerState) -> Iterator[tuple[ActiveRun, TaskInstance]]:
    """Scheduled tasks, without those of a run whose place an older run has taken while they waited."""
    return ((run, ti) for run, ti in state.tasks() if ti.state == s.SCHEDULED and run.may_start)


def _order(ready: tuple[ActiveRun, TaskInstance]) -> tuple[float, int, int, int]:
    run, ti = ready
    suspect = -ti.queued_at.timestamp() if is_suspect(ti) and ti.queued_at is not None else 0.0
    return (suspect, *start_order(ti.priority, ti.run_seq, for_schedule=run.row.is_for_schedule))


class _Limits:
    """What may still start in this tick: of pools, DAGs and tasks."""

    def __init__(self, state: ManagerState, free: Mapping[str, int], queue_ahead: float) -> None:
        self._pools = state.pools
        self._handed_over = {name: int(pool.slots * queue_ahead) for name, pool in state.pools.items()}
        self._available = {name: free.get(name, 0) + self._handed_over[name] for name in state.pools}
        # Pools in which a task, of a scheduled run or not, needs more slots than are free: lighter ones must not overtake it.
        self._held_back = set[tuple[str, bool]]()
        # A backfill counts for itself: it takes nothing from the schedule.
        self._of_dag = Counter[tuple[str, str | None]]()
        self._of_task = Counter[tuple[str, str]]()
        self._scheduled_waits = False
        for run, ti in state.tasks():
            if ti.state in s.TASK_STARTED:
                self._of_dag[ti.dag_id, run.row.backfill_id] += 1
                self._of_task[ti.dag_id, _limited_as(run, ti)] += 1
            # One in a run whose place an older run has taken waits for that run, which may itself wait for a polite backfill.
            if run.row.is_for_schedule and (ti.state == s.QUEUED or (ti.state == s.SCHEDULED and run.may_start)):
                self._scheduled_waits = True

    def allow(self, run: ActiveRun, owner: ActiveBackfill | None, task: TaskSpec, pool: str) -> bool:
        """Asked in the order in which tasks start: one for which its pool has too few slots holds back those after it."""
        if self._scheduled_waits and owner is not None and owner.row.is_polite:
            return False
        return (
            self._has_slots(run, task, pool)
            and self._of_dag[run.row.dag_id, run.row.backfill_id] < run.spec.max_active_tasks
            and (task.max_active_tis is None or self._of_task[run.row.dag_id, task.limited_as] < task.max_active_tis)
        )

    def take(self, run: ActiveRun, task: TaskSpec, pool: str) -> None:
        self._available[pool] = self._available.get(pool, 0) - self._weight(task, pool)
        self._of_dag[run.row.dag_id, run.row.backfill_id] += 1
        self._of_task[run.row.dag_id, task.limited_as] += 1

    def _has_slots(self, run: ActiveRun, task: TaskSpec, pool: str) -> bool:
        if pool not in self._pools:
            return True  # the executor fails it
        # The executor's queue puts a task of a scheduled run before what backfills were handed, so that does not hold it back.
        for_schedule = run.row.is_for_schedule
        available = self._available[pool] + (self._handed_over[pool] if for_schedule else 0)
        if {(pool, True), (pool, for_schedule)} & self._held_back or available < self._weight(task, pool):
            self._held_back.add((pool, for_schedule))
            return False
        return True

    def _weight(self, task: TaskSpec, pool: str) -> int:
        """Slots: at most all that the pool has, else it never could start."""
        return min(task.weight, self._pools[pool].slots) if pool in self._pools else task.weight


def _limited_as(run: ActiveRun, ti: TaskInstance) -> str:
    """A run that moved to another version may still have a task that this does not know."""
    task = run.spec.by_id.get(ti.task_id)
    return ti.task_id if task is None else task.limited_as


def _results(run: ActiveRun, task_id: str, found: dict[str, Any]) -> dict[str, Any]:
    """What the tasks that this one may read have returned; of mapped ones by key, too. `found` keeps what was read from JSON."""

    def result(of: str) -> Any:
        if of not in found:
            mapped = run.spec.mapped.get(of)
            if mapped is not None:
                found[of] = {key: result(each) for key, each in mapped.items()}
            elif of in run.spec.mapped_over_results:
                found[of] = {}  # mapped over nothing
            else:
                ti = run.tasks.get(of)
                found[of] = None if ti is None else read_column(ti, "result_json")
        return found[of]

    return {of: result(of) for of in sorted(run.spec.readable_by(task_id))}


def _params(run: ActiveRun, owner: ActiveBackfill | None) -> dict[str, Any]:
    if owner is not None and (problem := unreadable_options(owner.row)):
        raise problem
    if isinstance(run.spec, UnreadableSpec):
        raise InvalidInput(run.spec.description)
    return {**run.spec.params, **read_column(run.row, "conf_json")}


def _launch(
    state: ManagerState, run: ActiveRun, ti: TaskInstance, task: TaskSpec, pool: str, params: dict[str, Any],
    results: dict[str, Any],
) -> TaskLaunch:  # fmt: skip
    limits = state.pools.get(pool)
    return TaskLaunch(
        ti=ti, run=run.row, dag=dataclasses.replace(run.spec, tasks=(task,)), task=task,
        version=state.catalog.versions[run.row.dag_id, run.row.dag_version],
        pool=pool, params=params, results=results,
        memory_mb=memory_of(task.memory, limits),
        nice=nice_of(task.nice, limits, of_backfill=run.row.backfill_id is not None),
        ended=ended_of(run, task) if task.is_callback else None, preview_id=_preview_of(state, run),
    )  # fmt: skip


def _preview_of(state: ManagerState, run: ActiveRun) -> str | None:
    """Whose clones its tasks read and write in place of the tables. Never None for a preview's run."""
    if run.row.run_type != s.PREVIEW_RUN:
        return None
    owner = state.owner_of(run.row)
    return (owner.row.preview_id if owner else None) or run.row.backfill_id
