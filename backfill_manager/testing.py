"""What is needed to test DAGs and the manager without a cluster: shipped, because users test theirs with what we use.

    from backfill_manager.testing import FakeClock, Playground

`FakeClock` moves only when told. `InMemoryManager` is a manager in memory: real decisions, real inbox, real store contract
(`MemoryStore`), a clock of its own, and tasks whose outcome the test says. No Spark, no Delta, no thread, no sleep:

    ground = Playground(dag_spec("flights", "clean", "delays", upstream={"delays": ["clean"]}))
    # or a DAG of one's own: (flights,) = load_file("dags/flights.py"); ground = Playground(flights.spec)
    backfill = ground.backfill("flights", days("2013-01-01", 3))
    ground.drain()
    assert ground.states(backfill) == {"success": 3}
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
from backfill_manager.execution.messages import Cancelled as CancelledOutcome
from backfill_manager.execution.messages import LaunchKey, Outcome, Succeeded, TaskEnded, TaskLaunch, TaskStarted
from backfill_manager.manager.create_backfill import backfill_row
from backfill_manager.manager.decisions import Decisions
from backfill_manager.manager.instructions import Instructions
from backfill_manager.manager.leader_election import LeaderElector
from backfill_manager.manager.prefetch import refill
from backfill_manager.manager.recovery import restore_state
from backfill_manager.manager.state import ActiveBackfill, ManagerState
from backfill_manager.model import states as s
from backfill_manager.model.records import (
    Backfill,
    BackfillItem,
    DagRow,
    DagRun,
    DagVersion,
    Pool,
    TaskInstance,
)
from backfill_manager.model.transitions import Changes
from backfill_manager.requests import submit
from backfill_manager.requests.backfills import CreateBackfill
from backfill_manager.store.base import Condition, Leader
from backfill_manager.store.memory import MemoryStore

__all__ = ["FakeClock", "InMemoryManager", "MemoryStore", "dag_spec", "days", "load_file"]

Script = Callable[[TaskLaunch], Outcome | None]


class FakeClock:
    """Stands still until told; ids are 1, 2, 3, ..."""

    def __init__(self, now: datetime = datetime(2024, 1, 1, tzinfo=UTC)) -> None:
        self._now, self._ids = now, itertools.count(1)
        self._begun = now

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return (self._now - self._begun).total_seconds()

    def new_id(self) -> str:
        return f"{next(self._ids):012x}"

    def advance(self, **duration: float) -> None:
        self._now += timedelta(**duration)


def dag_spec(
    dag_id: str,
    *task_ids: str,
    upstream: Mapping[str, Sequence[str]] | None = None,
    each: Mapping[str, Mapping[str, Any]] | None = None,
    callbacks: Sequence[str] = (),
    **settings: Any,
) -> DagSpec:
    """A definition with these tasks; `upstream` says who waits for whom, `each` gives single tasks settings. `callbacks`
    are ids: `clean.on_failure` tells of a task, `on_success` of the whole run."""
    tasks = [
        TaskSpec(task_id, upstream=tuple((upstream or {}).get(task_id, ())), **(each or {}).get(task_id, {}))
        for task_id in task_ids
    ]
    for callback in callbacks:
        watches, _, name = callback.rpartition(".")
        told = TaskSpec(callback, calls_back=CALLBACKS[name], watches=watches or None)
        tasks.append(dataclasses.replace(told, **(each or {}).get(callback, {})))
    return DagSpec(dag_id=dag_id, tasks=tuple(tasks), **{"schedule": "0 0 * * *", **settings})


def days(first: str, n: int) -> list[tuple[datetime, datetime]]:
    """`n` days from `first` (UTC) as half-open intervals."""
    start = datetime.fromisoformat(first).replace(tzinfo=UTC)
    return [(start + timedelta(days=k), start + timedelta(days=k + 1)) for k in range(n)]


class InMemoryManager:
    """A manager in memory whose time and task outcomes are yours. `script(launch)` says how a task ends; None leaves it
    running until `finish` is called. DAGs are paused (no scheduled runs) unless `scheduled` is true."""

    def __init__(
        self,
        *specs: DagSpec,
        script: Script | None = None,
        clock: FakeClock | None = None,
        slots: int = 16,
        scheduled: bool = False,
    ):
        self.clock = clock or FakeClock()
        self.script: Script = script or (lambda _: Succeeded())
        self.store = MemoryStore()
        self.store.init()
        self.running: dict[LaunchKey, TaskLaunch] = {}
        self.launched: list[TaskLaunch] = []
        self._happened: list[Any] = []
        self._slots, self._scheduled = slots, scheduled
        self._lead()
        for spec in specs:
            self.add_dag(spec)
        for name in (s.SCHEDULED_RUN, s.BACKFILL_RUN):
            if name not in self.state.pools:
                self.state.put(Pool(name=name, slots=slots, weight=1, min_share=0))
        self.commit()

    def _lead(self) -> None:
        last = self.store.lease()
        if last is not None and last.state == s.LEADING:
            self.clock.advance(seconds=0)
        candidate = LeaderElector(self.store, SystemClock(), lease_s=1, version="test")
        leader = candidate.run_once()
        assert leader is not None, "the lease of this process's own former manager is taken at once"
        self.state: ManagerState = restore_state(self.store, term=leader.term, now=self.clock.now())
        self._decisions = Decisions(self.state, self.store, leader)

    @property
    def leader(self) -> Leader:
        """Through which everything is committed; one of your own may take its place."""
        return self._decisions.leader

    @leader.setter
    def leader(self, leader: Leader) -> None:
        self._decisions.leader = leader

    # -- what is asked ------------------------------------------------------------------------------------------------
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
        self,
        dag_id: str,
        intervals: Iterable[tuple[datetime, datetime]] = (),
        *,
        keys: Iterable[str] = (),
        **fields: Any,
    ) -> str:
        """A backfill over these intervals (or partition keys), planned as given; returns its id."""
        backfill_id, now = self.clock.new_id(), self.clock.now()
        spec, version = self.state.current_spec(dag_id), self.state.catalog.dags[dag_id].current_version
        spans: list[dict[str, Any]] = [
            {"logical_date": start, "interval_start": start, "interval_end": end} for start, end in intervals
        ]
        spans += [{"partition_key": key} for key in keys]
        first = self.leader.next_seq(len(spans) + 1)
        items = [BackfillItem(backfill_id, n + 1, s.PENDING, first + n, **span) for n, span in enumerate(spans)]
        self.store.write(items)
        from backfill_manager.manager.instructions import PlanRequest

        wanted = PlanRequest(
            self.clock.new_id(), "backfill.create", backfill_id, CreateBackfill(dag_id=dag_id), "tests"
        )
        row = backfill_row(wanted, spec, version, len(items), first + len(items), now).evolve(**fields)
        made = Changes()
        made.put(row)
        self.leader.commit(made)
        live = ActiveBackfill(row=row, spec=self.state.spec_of_backfill(row), counts=Counter({s.PENDING: len(items)}))
        refill(live, self.store)
        self.state.backfills[backfill_id] = live
        return backfill_id

    def ask(self, kind: str, **payload: Any) -> None:
        """A request, as a client makes it."""
        submit.submit(self.store, self.clock, kind, payload, requested_by="tests")

    # -- what happens -------------------------------------------------------------------------------------------------
    def tick(self) -> bool:
        """One turn, as `manager.tick` takes it; True if anything changed."""
        now, todo = self.clock.now(), Instructions()
        happened, self._happened = self._happened, []
        used = Counter(launch.pool for launch in self.running.values())
        free = {name: self._slots - used[name] for name in self.state.pools}
        self._decisions.prefetch(now)
        self._decisions.decide(happened, self.store.unanswered(), free, now, todo)
        changed = self._decisions.commit(todo)
        for launch in todo.launches:
            self.launched.append(launch)
            self.running[launch.key] = launch
            self._happened.append(TaskStarted(launch.key, now))
            ended = self.script(launch)
            if ended is not None:
                self.finish(launch.key, ended)
        for cancel in todo.cancels:
            if cancel.key in self.running:
                self.finish(cancel.key, CancelledOutcome(cancel.reason))
        for request_id in todo.compactions:
            self._decisions.compact_state(request_id, now)
        return changed or bool(self._happened or todo.compactions)

    def finish(self, key: LaunchKey, outcome: Outcome, spark_jobs: Sequence[int] = ()) -> None:
        del self.running[key]
        self._happened.append(TaskEnded(key, outcome, self.clock.now(), tuple(spark_jobs)))

    def drain(self, most: int = 10_000) -> None:
        """Tick until nothing follows any more; time stands still but for retries that are due."""
        for _ in range(most):
            if self.tick():
                continue
            waits = [ti.retry_at for _, ti in self.state.tasks() if ti.state == s.UP_FOR_RETRY and ti.retry_at]
            if not waits:
                return
            self.clock.advance(seconds=max(0.0, (min(waits) - self.clock.now()).total_seconds()))
        raise AssertionError(f"still busy after {most} ticks")

    def commit(self) -> bool:
        changes = self.state.take_changes()
        self.leader.commit(changes)
        return bool(len(changes))

    def crash(self) -> None:
        """The manager is gone at this instant; a new one goes on from the tables."""
        self.running.clear()
        self._happened.clear()
        self._lead()
        self.commit()

    # -- what is there ------------------------------------------------------------------------------------------------
    def row(self, backfill_id: str) -> Backfill:
        return self.store.read(Backfill, [Condition("backfill_id", "=", backfill_id)])[0]

    def items(self, backfill_id: str) -> list[BackfillItem]:
        return self.store.read(BackfillItem, [Condition("backfill_id", "=", backfill_id)], order_by=["ordinal"])

    def states(self, backfill_id: str) -> dict[str, int]:
        """Items by state."""
        return dict(Counter(item.state for item in self.items(backfill_id)))

    def runs(self, dag_id: str) -> list[DagRun]:
        return self.store.read(DagRun, [Condition("dag_id", "=", dag_id)], order_by=["logical_date", "run_seq"])

    def tasks(self, dag_id: str, task_id: str | None = None) -> list[TaskInstance]:
        found = self.store.read(TaskInstance, [Condition("dag_id", "=", dag_id)], order_by=["run_seq", "task_id"])
        return [ti for ti in found if task_id is None or ti.task_id == task_id]
