"""Measures the manager's own work: real ticks over real Delta state, with an executor whose tasks end at once. No Spark.

    python -m support.bench_orchestration throughput RUNS TASKS SLOTS
    python -m support.bench_orchestration at_once TASKS SECONDS
    python -m support.bench_orchestration make STATE TASK_INSTANCES
    python -m support.bench_orchestration ticks STATE

Each is a process of its own, so that its CPU time (user and system, of all threads) is all the manager's, and so that two
revisions can be measured in turn: with the package of the other one first on PYTHONPATH. Prints one line of JSON.
"""

from __future__ import annotations

import heapq
import json
import random
import resource
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from backfill_manager.clock import UTC, Clock, SystemClock
from backfill_manager.execution import messages as m
from backfill_manager.manager.event_queue import EventQueue
from backfill_manager.manager.leader_election import LeaderElector
from backfill_manager.manager.recovery import restore_state
from backfill_manager.manager.services.planner import PlanResult
from backfill_manager.manager.tick import TickLoop, TickMetrics
from backfill_manager.manager.tick_context import PlanRequest
from backfill_manager.model import states as s
from backfill_manager.model.pools import BACKFILL_POOL, SCHEDULED_POOL
from backfill_manager.model.records import DagRow, DagVersion, Pool, TaskInstance
from backfill_manager.model.transitions import backfill_paused
from backfill_manager.planning.backfills.backfill_plan import BackfillPlan
from backfill_manager.schemas import request_kinds
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.store import open_store
from backfill_manager.store.base import matching
from backfill_manager.testing import dag_spec
from support.large_state import write_big_state

DAG = "bench"
FIRST, HOUR = datetime(2000, 1, 1, tzinfo=UTC), timedelta(hours=1)


class ScriptedExecutor:
    """Runs nothing: what is launched has started and succeeded at once."""

    def __init__(self, events: EventQueue, slots: int, clock: Clock | None = None) -> None:
        self._events, self._slots, self._clock = events, slots, clock or SystemClock()

    def launch(self, launch: m.TaskLaunch) -> None:
        at = self._clock.now()
        self._events.put(m.TaskStarted(launch.key, at))
        self._events.put(m.TaskEnded(launch.key, m.Succeeded(), at))

    def cancel(self, key: m.LaunchKey, reason: str) -> bool:
        return False

    def set_slots(self, pool: str, slots: int) -> None:
        self._slots = slots

    def free(self, pool: str) -> int:
        return self._slots

    def load(self) -> Counter[str]:
        return Counter()


class SimulatedExecutor(ScriptedExecutor):
    """Runs nothing, but for a while: each task takes a slot for `seconds`, give or take a fifth. Others wait, in their order."""

    def __init__(self, events: EventQueue, slots: int, seconds: float) -> None:
        super().__init__(events, slots)
        self._seconds, self._random = seconds, random.Random(0)
        self._waiting: deque[m.LaunchKey] = deque()
        self._ends: list[tuple[float, m.LaunchKey]] = []  # of those that run; a heap
        self._changed, self._is_closed = threading.Condition(), False
        self._thread = threading.Thread(target=self._end_them, name="simulated tasks")
        self._thread.start()

    def launch(self, launch: m.TaskLaunch) -> None:
        with self._changed:
            self._waiting.append(launch.key)
            self._changed.notify()

    def free(self, pool: str) -> int:
        with self._changed:
            return self._slots - len(self._ends) - len(self._waiting)

    def load(self) -> Counter[str]:
        with self._changed:
            return Counter({BACKFILL_POOL: number} if (number := len(self._ends) + len(self._waiting)) else {})

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def _end_them(self) -> None:
        while True:
            with self._changed:
                if self._is_closed:
                    return
                events = list(self._due())
                if not events:
                    self._changed.wait(max(0.0, self._ends[0][0] - time.monotonic()) if self._ends else None)
            for event in events:  # not with the lock: the queue's own is held while it looks at `load`
                self._events.put(event)

    def _due(self) -> Iterator[m.TaskStarted | m.TaskEnded]:
        now, at = time.monotonic(), self._clock.now()
        while self._ends and self._ends[0][0] <= now:
            yield m.TaskEnded(heapq.heappop(self._ends)[1], m.Succeeded(), at)
        while self._waiting and len(self._ends) < self._slots:
            key = self._waiting.popleft()
            yield m.TaskStarted(key, at)
            heapq.heappush(self._ends, (now + self._seconds * self._random.uniform(0.8, 1.2), key))


class ScriptedManager:
    """Leads the state at `root`, in which the DAG `bench` of `tasks` tasks, none of which waits for another, is added. Other
    DAGs and backfills are paused."""

    def __init__(
        self, root: str, tasks: int, slots: int, executor: Callable[[EventQueue, int], Any] = ScriptedExecutor
    ) -> None:
        self.store, self.clock, self.events = open_store(root), SystemClock(), EventQueue()
        self.store.init()
        leader = LeaderElector(self.store, self.clock, lease_s=3600).run_once()
        assert leader is not None
        state = restore_state(self.store, term=leader.term, now=self.clock.now())
        for dag in list(state.catalog.dags.values()):
            state.put(dag.evolve(is_paused=True))
        for live in state.backfills.values():
            state.put(backfill_paused(live.row))
        for name in (SCHEDULED_POOL, BACKFILL_POOL):
            state.put(Pool(name, slots, 1, 0))
        names, now = [f"task_{n}" for n in range(tasks)], self.clock.now()
        self.spec = dag_spec(DAG, *names, schedule=None, max_active_runs=1000, max_active_tasks=10_000)
        state.put(DagVersion(DAG, 1, "hash", self.spec.to_json(), "bench", "dag.py", "/nowhere", now))
        state.put(DagRow(DAG, "bench", "dag.py", 1, True, True, None, "UTC", now))
        leader.commit(state.take_changes())
        self.executor = executor(self.events, slots)
        self.metrics = TickMetrics()
        self.loop = TickLoop(
            state,
            self.store,
            leader,
            clock=self.clock,
            executor=self.executor,
            events=self.events,
            metrics=self.metrics,
        )
        self.loop.has_parsed_all = True

    def request_backfill(self, items: int, max_active_runs: int, begin: datetime = FIRST) -> None:
        """As a plan that has just been made: one item an hour."""
        starts = [begin + HOUR * n for n in range(items)]
        instant = pa.timestamp("us", tz="UTC")
        plan = pa.table(
            {
                "ordinal": pa.array(range(1, items + 1), pa.int64()),
                "logical_date": pa.array(starts, instant),
                "interval_start": pa.array(starts, instant),
                "interval_end": pa.array([at + HOUR for at in starts], instant),
                "partition_key": pa.nulls(items, pa.string()),
                "state": pa.array([s.PENDING] * items),
                "reason": pa.nulls(items, pa.string()),
            }
        )
        command = CreateBackfill(
            dag_id=DAG, start_date=starts[0], end_date=starts[-1] + HOUR, max_active_runs=max_active_runs
        )  # fmt: skip
        new_id = self.clock.new_id
        request = PlanRequest(new_id(), request_kinds.BACKFILL_CREATE, new_id(), command, "bench")
        self.events.put(PlanResult(request, BackfillPlan(command, self.spec, 1, plan)))

    def run(self) -> list[tuple[float, float]]:
        """Until nothing is left to do; returns the wall and CPU seconds of each tick, its pause included."""
        laps: list[tuple[float, float]] = []
        wall, cpu = time.perf_counter(), time.process_time()

        def done() -> bool:
            nonlocal wall, cpu
            laps.append((time.perf_counter() - wall, time.process_time() - cpu))
            wall, cpu = time.perf_counter(), time.process_time()
            return self.loop.is_idle

        self.loop.run_until(done)
        return laps


def throughput(runs: int, tasks: int, slots: int) -> dict[str, Any]:
    """A backfill of `runs` runs of `tasks` tasks each, on an empty state."""
    with tempfile.TemporaryDirectory(prefix="bfm-bench-") as root:
        manager = ScriptedManager(f"{root}/state", tasks, slots)
        manager.request_backfill(1, 1)
        manager.run()  # what is imported and allocated the first time
        manager.request_backfill(runs, max_active_runs=max(20, 6 * slots // tasks), begin=FIRST + HOUR)
        laps = manager.run()
        done = manager.store.count(TaskInstance.TABLE, [], matching(state=s.SUCCESS, dag_id=DAG))[()]
    assert done == (runs + 1) * tasks, f"{done} task instances succeeded"
    total, wall, cpu = runs * tasks, sum(lap[0] for lap in laps), sum(lap[1] for lap in laps)
    return {
        "runs": runs, "tasks": tasks, "slots": slots, "per_s": round(total / wall, 1), "cpu_ms": round(cpu / total * 1000, 2),
        "ticks": len(laps), "tick_ms": round(statistics.median(lap[0] for lap in laps) * 1000, 1),
        "tick_cpu_ms": round(statistics.median(lap[1] for lap in laps) * 1000, 1),
    }  # fmt: skip


def at_once(slots: int, seconds: float) -> dict[str, Any]:
    """A backfill of runs of 50 tasks that each take `seconds`, so many of them at once. The slots could end `slots / seconds` a
    second: what is less is the manager's doing."""
    tasks, total = 50, round(min(max(4 * slots, 60 * slots / seconds), 6 * slots))
    with tempfile.TemporaryDirectory(prefix="bfm-bench-") as root:
        manager = ScriptedManager(
            f"{root}/state", tasks, slots, lambda events, slots: SimulatedExecutor(events, slots, seconds)
        )
        manager.request_backfill(1, 1)
        manager.run()
        manager.request_backfill(total // tasks, max_active_runs=min(1000, 6 * slots // tasks), begin=FIRST + HOUR)
        laps = manager.run()
        manager.executor.close()
        rows = manager.store.read(TaskInstance, matching(state=s.SUCCESS, dag_id=DAG))[tasks:]
    ends = sorted(row.ended_at for row in rows if row.ended_at is not None)
    steady = ends[len(ends) // 4 : -slots or None]  # all slots were taken
    wall, cpu = sum(lap[0] for lap in laps), sum(lap[1] for lap in laps)
    return {
        "at_once": slots, "seconds": seconds, "tasks": len(rows), "slots_allow_per_s": round(slots / seconds, 1),
        "per_s": round(len(steady) / (steady[-1] - steady[0]).total_seconds(), 1), "cpu_ms": round(cpu / len(rows) * 1000, 2),
        "cores": round(cpu / wall, 2), "ticks_per_s": round(len(laps) / wall, 2),
        "tick_ms": manager.metrics.columns()["tick_ms"],
        "memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }  # fmt: skip


def ticks(root: str) -> dict[str, Any]:
    """A backfill of 100 runs of ten tasks, on a state that is there."""
    manager = ScriptedManager(root, 10, 16)
    stored = manager.store.count(TaskInstance.TABLE, [])[()]
    manager.request_backfill(5, 3)
    manager.run()
    manager.request_backfill(100, 5, begin=FIRST + 5 * HOUR)
    laps = manager.run()
    return {
        "stored": stored, "ticks": len(laps), "tick_ms": round(statistics.median(lap[0] for lap in laps) * 1000, 1),
        "tick_cpu_ms": round(statistics.median(lap[1] for lap in laps) * 1000, 1),
    }  # fmt: skip


def make(root: str, stored: int) -> dict[str, Any]:
    """A state of so many task instances, with the columns of the revision that is measured."""
    items = max(100, stored // 10)
    state = write_big_state(Path(root), task_instances=stored, items=items, backfills=max(4, min(100, items // 50)))
    return {"stored": state.task_instances, "largest": state.largest}


def main(what: str, *given: str) -> None:
    match what:
        case "throughput":
            figures = throughput(*map(int, given))
        case "at_once":
            figures = at_once(int(given[0]), float(given[1]))
        case "make":
            figures = make(given[0], int(given[1]))
        case _:
            figures = ticks(*given)
    print(json.dumps(figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
