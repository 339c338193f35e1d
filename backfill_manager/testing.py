"""Tools to test DAGs, and the manager, without a cluster.

    from backfill_manager.testing import FakeClock, InMemoryManager

`FakeClock` moves only when it is advanced. `InMemoryManager` is a manager in memory: the real tick, decisions and requests over
a `MemoryStore`, with a clock of its own and tasks whose outcomes the test gives. No Spark, no Delta, no thread, no sleep:

    manager = InMemoryManager(dag_spec("flights", "clean", "delays", upstream={"delays": ["clean"]}))
    # or a DAG of yours: (flights,) = load_file("dags/flights.py"); manager = InMemoryManager(flights.spec)
    backfill = manager.backfill("flights", days("2013-01-01", 3))
    manager.drain()
    assert manager.states(backfill) == {"success": 3}
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from backfill_manager.clock import UTC, SystemClock
from backfill_manager.dags.definition import CALLBACKS, DagSpec, TaskSpec
from backfill_manager.dags.importing.loader import load_file
from backfill_manager.execution import messages as m
from backfill_manager.execution.messages import LaunchKey, TaskLaunch
from backfill_manager.manager.event_queue import EventQueue
from backfill_manager.manager.leader_election import LeaderElector
from backfill_manager.manager.operations.create_backfill import backfill_row
from backfill_manager.manager.prefetch import refill
from backfill_manager.manager.recovery import restore_state
from backfill_manager.manager.state import ActiveBackfill, ManagerState
from backfill_manager.manager.tick import TickLoop
from backfill_manager.manager.tick_context import PlanRequest
from backfill_manager.model import states as s
from backfill_manager.model.pools import BACKFILL_POOL, SCHEDULED_POOL
from backfill_manager.model.records import Backfill, BackfillItem, DagRow, DagRun, DagVersion, Pool, TaskInstance
from backfill_manager.model.transitions import Changes
from backfill_manager.requests import submit
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.schemas.resources import SparkStages
from backfill_manager.store.base import Leader, matching
from backfill_manager.store.memory import MemoryStore

__all__ = ["FakeClock", "InMemoryManager", "MemoryStore", "dag_spec", "days", "load_file"]

Script = Callable[[TaskLaunch], m.Outcome | None]


class FakeClock:
    """Stands still until it is advanced; ids are 1, 2, 3, ..."""

    def __init__(self, now: datetime = datetime(2024, 1, 1, tzinfo=UTC)) -> None:
        self._now, self._ids = now, itertools.count(1)
        self._begun = now

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return (self._now - self._begun).total_seconds()

    def boottime(self) -> float:
        return self.monotonic()

    def new_id(self) -> str:
        return f"{next(self._ids):012x}"

    def advance(self, **duration: float) -> None:
        self._now += timedelta(**duration)


def dag_spec(
    dag_id: str, *task_ids: str, upstream: Mapping[str, Sequence[str]] | None = None,
    each: Mapping[str, Mapping[str, Any]] | None = None, callbacks: Sequence[str] = (), **settings: Any,
) -> DagSpec:  # fmt: skip
    """A definition with these tasks. `upstream` maps a task to those it waits for, `each` to settings of its own. `callbacks`
    are ids: `clean.on_failure` watches a task, `on_success` the whole run."""
    tasks = [
        TaskSpec(task_id, upstream=tuple((upstream or {}).get(task_id, ())), **(each or {}).get(task_id, {}))
        for task_id in task_ids
    ]
    for callback in callbacks:
        watches, _, name = callback.rpartition(".")
        spec = TaskSpec(callback, calls_back=CALLBACKS[name], watches=watches or None)
        tasks.append(dataclasses.replace(spec, **(each or {}).get(callback, {})))
    return DagSpec(dag_id=dag_id, tasks=tuple(tasks), **{"schedule": "0 0 * * *", **settings})


def days(first: str, n: int) -> list[tuple[datetime, datetime]]:
    """`n` days from `first` (UTC) as half-open intervals."""
    start = datetime.fromisoformat(first).replace(tzinfo=UTC)
    return [(start + timedelta(days=k), start + timedelta(days=k + 1)) for k in range(n)]


class _Script:
    """Stands for the executor: runs no task."""

    def __init__(self, manager: InMemoryManager, slots: int) -> None:
        self._manager, self._slots = manager, slots

    def launch(self, launch: TaskLaunch) -> None:
        manager = self._manager
        manager.launched.append(launch)
        manager.running[launch.key] = launch
        manager.events.put(m.TaskStarted(launch.key, manager.clock.now()))
        if (outcome := manager.script(launch)) is not None:
            manager.finish(launch.key, outcome)

    def cancel(self, key: LaunchKey, reason: str) -> bool:
        if key in self._manager.running:
            self._manager.finish(key, m.Cancelled(reason))
        return True

    def free(self, pool: str) -> int:
        return self._slots - self.load()[pool]

    def load(self) -> Counter[str]:
        return Counter(launch.pool for launch in self._manager.running.values())

    def set_slots(self, pool: str, slots: int) -> None:
        """Every pool keeps the slots of the test."""


class _ClockOfLease(SystemClock):
    """The test's time, and ids that no other state has."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock

    def now(self) -> datetime:
        return self._clock.now()


class InMemoryManager:
    """A manager in memory whose time and task outcomes are the test's. `script(launch)` gives a task's outcome; None leaves it
    running until `finish` is called. DAGs are paused (no scheduled runs) unless `scheduled` is true. With a `store` it goes on
    from the state there."""

    def __init__(
        self, *specs: DagSpec, script: Script | None = None, clock: FakeClock | None = None, slots: int = 16,
        scheduled: bool = False, store: MemoryStore | None = None, on_commit: Callable[[Changes], None] = lambda _: None,
    ) -> None:  # fmt: skip
        self.clock, self.store = clock or FakeClock(), store or MemoryStore()
        self.store.init()
        self.script: Script = script or (lambda _: m.Succeeded())
        self.running: dict[LaunchKey, TaskLaunch] = {}
        self.launched: list[TaskLaunch] = []
        self._slots, self._scheduled, self._on_commit = slots, scheduled, on_commit
        self._take_over()
        for spec in specs:
            self.add_dag(spec)
        for name in (SCHEDULED_POOL, BACKFILL_POOL):
            self.state.put(Pool(name=name, slots=slots, weight=1, min_share=0))
        self.commit()

    def _take_over(self) -> None:
        leader = LeaderElector(self.store, _ClockOfLease(self.clock), lease_s=1).run_once()
        assert leader is not None, "the lease of this process's own former manager is taken at once"
        leader.heartbeat(SystemClock().now(), ticks=0)
        self.state: ManagerState = restore_state(self.store, term=leader.term, now=self.clock.now())
        self.events, script = EventQueue(), _Script(self, self._slots)
        self._loop = TickLoop(
            self.state,
            self.store,
            leader,
            clock=self.clock,
            executor=script,
            events=self.events,
            on_commit=self._on_commit,
        )
        self._decisions = self._loop.decisions

    @property
    def leader(self) -> Leader:
        """Commits everything; a test may replace it."""
        return self._decisions.leader

    @leader.setter
    def leader(self, leader: Leader) -> None:
        self._decisions.leader = leader

    # -- input --------------------------------------------------------------------------------------------------------
    def add_dag(self, spec: DagSpec) -> None:
        """A new DAG, or a new version of one."""
        at, before = self.clock.now(), self.state.catalog.dags.get(spec.dag_id)
        number = before.current_version + 1 if before else 1
        self.state.put(
            DagVersion(spec.dag_id, number, f"hash{number}", spec.to_json(), "tests", "dag.py", "/nowhere", at)
        )
        paused = before.is_paused if before else not self._scheduled
        schedule = None if spec.schedule is None else str(spec.schedule)
        self.state.put(DagRow(spec.dag_id, "tests", "dag.py", number, paused, True, schedule, spec.timezone, at))

    def backfill(
        self, dag_id: str, intervals: Iterable[tuple[datetime, datetime]] = (), *, keys: Iterable[str] = (), **fields: Any,
    ) -> str:  # fmt: skip
        """Creates a backfill over these intervals (or partition keys), planned as given; returns its id."""
        backfill_id, now = self.clock.new_id(), self.clock.now()
        spec, version = self.state.current_spec(dag_id), self.state.catalog.dags[dag_id].current_version
        dates: list[dict[str, Any]] = []
        dates += [{"logical_date": start, "interval_start": start, "interval_end": end} for start, end in intervals]
        dates += [{"partition_key": key} for key in keys]
        first = self.leader.next_seq(len(dates) + 1)
        items = [BackfillItem(backfill_id, n + 1, s.PENDING, first + n, **date) for n, date in enumerate(dates)]
        self.store.write(items)
        command = CreateBackfill(dag_id=dag_id)
        request = PlanRequest(self.clock.new_id(), "backfill.create", backfill_id, command, "tests")
        changes = Changes()
        changes.put(backfill_row(request, spec, version, len(items), first + len(items), now).evolve(**fields))
        self.leader.commit(changes)
        row = self.row(backfill_id)
        live = ActiveBackfill(row=row, spec=self.state.spec_of_backfill(row), counts=Counter({s.PENDING: len(items)}))
        refill(live, self.store)
        self.state.backfills[backfill_id] = live
        return backfill_id

    def ask(self, kind: str, **payload: Any) -> None:
        """Submits a request, as a client does."""
        submit.submit(self.store, self.clock, kind, payload, requested_by="tests")

    # -- time ---------------------------------------------------------------------------------------------------------
    def tick(self) -> bool:
        """The manager's own tick (`manager.tick.TickLoop`); True if there may be something for the next one."""
        self.events.wake_for_requests()
        return self._loop.tick() or self.events.is_woken

    def finish(
        self,
        key: LaunchKey,
        outcome: m.Outcome,
        spark_jobs: Sequence[int] = (),
        tables: Sequence[m.AccessedTable] = (),
        checks: Sequence[m.CheckedWrite] = (),
        spark_stages: SparkStages | None = None,
    ) -> None:
        """Ends a running task. Cancelled tasks end by this, too."""
        del self.running[key]
        of_try = (tuple(spark_jobs), tuple(tables), tuple(checks), spark_stages)
        self.events.put(m.TaskEnded(key, outcome, self.clock.now(), *of_try))

    def drain(self, max_ticks: int = 10_000) -> None:
        """Tick until nothing follows; time stands still but for retries that are due."""
        for _ in range(max_ticks):
            if self.tick():
                continue
            waits = [ti.retry_at for _, ti in self.state.tasks() if ti.state == s.UP_FOR_RETRY and ti.retry_at]
            if not waits:
                return
            self.clock.advance(seconds=max(0.0, (min(waits) - self.clock.now()).total_seconds()))
        raise AssertionError(f"still busy after {max_ticks} ticks")

    def commit(self) -> bool:
        changes = self.state.take_changes()
        self.leader.commit(changes)
        return bool(len(changes))

    def crash(self) -> None:
        """The manager is killed at this instant; a new one goes on from the tables."""
        self.running.clear()
        self._take_over()
        self.commit()

    # -- tables -------------------------------------------------------------------------------------------------------
    def row(self, backfill_id: str) -> Backfill:
        return self.store.read(Backfill, matching(backfill_id=backfill_id))[0]

    def items(self, backfill_id: str) -> list[BackfillItem]:
        return self.store.read(BackfillItem, matching(backfill_id=backfill_id), order_by=["ordinal"])

    def states(self, backfill_id: str) -> dict[str, int]:
        """Items by state."""
        return dict(Counter(item.state for item in self.items(backfill_id)))

    def runs(self, dag_id: str) -> list[DagRun]:
        return self.store.read(DagRun, matching(dag_id=dag_id), order_by=["logical_date", "run_seq"])

    def tasks(self, dag_id: str, task_id: str | None = None) -> list[TaskInstance]:
        where = matching(dag_id=dag_id, task_id=task_id)
        return self.store.read(TaskInstance, where, order_by=["run_seq", "task_id"])
