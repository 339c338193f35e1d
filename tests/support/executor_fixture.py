"""Launches tasks (plain functions) on an executor by hand and records every event."""

from __future__ import annotations

import atexit
import dataclasses
import itertools
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backfill_manager.clock import SystemClock
from backfill_manager.dags.definition import DagSpec, TaskSpec
from backfill_manager.execution.executor import Executor
from backfill_manager.execution.messages import (
    Event,
    LaunchKey,
    Outcome,
    Succeeded,
    TaskEnded,
    TaskLaunch,
    TaskLogged,
    TaskStarted,
)
from backfill_manager.execution.output.write_context import StateIdentity
from backfill_manager.model.records import DagRun, DagVersion, TaskInstance
from backfill_manager.processes.fork_server_client import ForkServers
from support.file_signals import FileBarrier, FileSignal
from support.task_snapshot import with_function

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UTC = timezone.utc
THIS_STATE = StateIdentity("0123456789ab")
PATIENCE = 180.0  # seconds after which a test gives up; nothing waits this long
TOO_LATE = 2.0  # a try's timeout: long enough for its function to have begun, on a machine that is busy, too


def day(n: int) -> datetime:
    """Midnight UTC, n-th of January 2013."""
    return datetime(2013, 1, n, tzinfo=UTC)


@cache
def fork_servers() -> ForkServers:
    """Those of all tests: starting one takes longer than most tests."""
    servers = ForkServers()
    atexit.register(servers.close)
    return servers


@contextmanager
def an_executor(spark: SparkSession, on_event: Callable[[Event], None], **how: Any) -> Iterator[Executor]:
    """An open executor; all tests get theirs here. `how` replaces what it is given else."""
    given = {
        "servers": fork_servers(), "clock": SystemClock(), "term": 1, "is_leader": lambda: True, "state": THIS_STATE,
        "slots": {"backfill": 16, "scheduled": 16, "narrow": 2},
    } | how  # fmt: skip
    executor = Executor(spark, on_event=on_event, **given)
    try:
        yield executor
    finally:
        executor.close(0.0)


@dataclass
class EventRecorder:
    """Hears the events of an executor, and can wait for them."""

    events: list[Event] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def __call__(self, event: Event) -> None:
        with self.changed:
            self.events.append(event)
            self.changed.notify_all()

    def wait_until(self, seen: Callable[[], Any]) -> Any:
        with self.changed:
            assert self.changed.wait_for(seen, PATIENCE), self.events
            return seen()

    def end_of(self, launch: TaskLaunch) -> Outcome | None:
        return next((e.outcome for e in self.events if isinstance(e, TaskEnded) and e.key == launch.key), None)

    def outcome(self, launch: TaskLaunch) -> Outcome:
        """How it ended; `rows_of` has how many rows it wrote."""
        outcome: Outcome = self.wait_until(lambda: self.end_of(launch))
        return Succeeded(outcome.result_json) if isinstance(outcome, Succeeded) else outcome

    def rows_of(self, launch: TaskLaunch) -> int | None:
        outcome: Outcome = self.wait_until(lambda: self.end_of(launch))
        assert isinstance(outcome, Succeeded)
        return outcome.rows_written

    def spark_jobs_of(self, launch: TaskLaunch) -> tuple[int, ...]:
        self.outcome(launch)
        return next(e.spark_jobs for e in self.events if isinstance(e, TaskEnded) and e.key == launch.key)

    def started(self) -> list[LaunchKey]:
        return [event.key for event in self.events if isinstance(event, TaskStarted)]

    def lines(self, launch: TaskLaunch) -> list[str]:
        result = [line for event in self.events if isinstance(event, TaskLogged) for line in event.lines]
        return [x.message for x in result if (x.dag_id, x.run_id, x.task_id, x.launch) == launch.key]


_seq = itertools.count(1)


def a_launch(
    task_id: str = "work",
    *,
    dag_id: str = "work_dag",
    run_id: str | None = None,
    interval: tuple[datetime, datetime] | None = (day(1), day(2)),
    partition: str | None = None,
    timezone: str = "UTC",
    launch: int = 1,
    try_number: int = 1,
    generation: int = 0,
    pool: str = "backfill",
    params: dict[str, Any] | None = None,
    results: dict[str, Any] | None = None,
    timeout: float | None = None,
    priority: int = 0,
    run_type: str = "backfill",
    others: tuple[TaskSpec, ...] = (),
    snapshot: str = "",
    **task: Any,
) -> TaskLaunch:
    seq = next(_seq)
    start, end = interval or (None, None)
    run_id = run_id or f"backfill__{start.isoformat() if start else seq}"
    spec = TaskSpec(task_id, timeout=timeout, **task)
    dag = DagSpec(dag_id, (spec, *others), timezone=timezone)
    return TaskLaunch(
        ti=TaskInstance(
            dag_id, run_id, task_id, "queued", run_seq=seq, try_number=try_number, launch=launch, generation=generation,
            priority=priority,
        ),
        run=DagRun(
            dag_id, run_id, run_type, "running", dag_version=1, run_seq=seq, created_at=day(1), logical_date=start,
            interval_start=start, interval_end=end, partition_key=partition,
        ),
        dag=dag,
        task=spec,
        version=DagVersion(dag_id, 1, "hash", "{}", "bundle", "work_dag.py", snapshot, day(1)),
        pool=pool,
        params=params or {},
        results={**dict.fromkeys(dag.readable_by(task_id) if others else ()), **(results or {})},
    )  # fmt: skip


def again(launch: TaskLaunch, **changes: Any) -> TaskLaunch:
    """The same task instance, started once more."""
    return dataclasses.replace(launch, ti=launch.ti.evolve(launch=launch.ti.launch + 1, **changes))


@dataclass
class TaskRunner:
    """An open executor, its recorder, and a folder for what goes between tests and tasks.

    Tasks share no memory with their test: a function is stored in a snapshot, with the values that it uses as they are at that
    moment. What it finds out comes back as its result, in its log, through a signal or in a file.
    """

    spark: SparkSession
    executor: Executor
    recorder: EventRecorder
    leading: list[bool]
    folder: Path
    _names: Iterator[int] = field(default_factory=itertools.count)

    def run(self, launch: TaskLaunch, function: Callable[[Any], Any] | None = None) -> Outcome:
        """Run one launch to its end. The function is that of its task; SQL tasks have none."""
        self.start(launch, function)
        return self.recorder.outcome(launch)

    def start(self, launch: TaskLaunch, function: Callable[[Any], Any] | None = None) -> TaskLaunch:
        assert self.recorder.end_of(launch) is None, "each start has a launch number of its own"
        if function is not None:
            launch = with_function(launch, function, self.folder)
        self.executor.launch(launch)
        return launch

    def signal(self) -> FileSignal:
        return FileSignal(self.folder / f"signal {next(self._names)}")

    def barrier(self, parties: int, rounds: int = 1) -> FileBarrier:
        return FileBarrier(self.folder / f"barrier {next(self._names)}", parties, rounds)

    def log_of(self, launch: TaskLaunch) -> str:
        return "\n".join(self.recorder.lines(launch))


def outlive_the_stop(begun: FileSignal) -> None:
    """In a task, which is stopped when it has given the signal: returns then, as code does that catches everything."""
    try:
        begun.set()
        while True:
            signal.pause()
    except BaseException:  # noqa: BLE001 - what it is there for
        return


def settled(spark: SparkSession) -> Any:
    """The JVM's SparkContext, when its listeners, the status store among them, have heard all that has happened so far."""
    sc = spark.sparkContext._jsc.sc()
    sc.listenerBus().waitUntilEmpty(round(PATIENCE * 1000))
    return sc


def running_spark_jobs(spark: SparkSession) -> list[int]:
    """Those that run as soon as there are any."""
    tracker = spark.sparkContext.statusTracker()
    moment, end = threading.Event(), time.monotonic() + PATIENCE
    while not (jobs := tracker.getActiveJobsIds()):
        assert time.monotonic() < end, "no Spark job begins"
        moment.wait(0.1)
    return list(jobs)


def no_spark_job_goes_on(spark: SparkSession) -> None:
    """Returns when no Spark job runs any more."""
    tracker = spark.sparkContext.statusTracker()
    moment, end = threading.Event(), time.monotonic() + PATIENCE
    while settled(spark) and tracker.getActiveJobsIds():
        if time.monotonic() > end:
            spark.sparkContext.cancelAllJobs()  # for the tests that follow
            raise AssertionError("a Spark job goes on")
        moment.wait(0.1)


def rows_of(spark: SparkSession, table: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in spark.table(table).collect())


def version_of(spark: SparkSession, table: str) -> int:
    version: int = spark.sql(f"DESCRIBE HISTORY {table} LIMIT 1").collect()[0]["version"]
    return version
