"""`kill -9` of task processes at random moments of a real backfill, most of them inside of ctx.write or ctx.merge: the tables end
as those of a backfill that was left alone. And moments that chance seldom finds: a Spark job that runs, and a commit that is
going on."""

from __future__ import annotations

import errno
import heapq
import json
import os
import random
import select
import signal
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from support.manager_process import TIMEOUT_S, ended, settled, wait_for
from support.manager_process import request as ask
from support.table_writers import runs_that_wrote

from backfill_manager.clock import UTC, SystemClock
from backfill_manager.execution.output.table_turns import PROCESS_TURNS
from backfill_manager.model import states as s
from backfill_manager.model.records import TaskInstance, TaskLog, TaskTry
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.settings import BundleSettings, Settings
from backfill_manager.store.base import Condition, Store, matching
from backfill_manager.store.delta_spark.transaction import DeltaTransaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="processes are killed by descriptors, which only Linux has"
)

FIRST: Final = datetime(2024, 1, 1, tzinfo=UTC)
OF_TRY: Final = ("dag_id", "run_id", "task_id", "try_number")
KILLED: Final = "its process ended with signal 9 (SIGKILL)"
DAG_FILE = """
import json
import os
import signal
from pathlib import Path

from backfill_manager import dag, task

ROOT = Path("FOLDER")


def say(ctx, moment):
    heard = os.open(ROOT / "moments", os.O_WRONLY)
    os.write(heard, (json.dumps([moment, os.getpid(), ctx.dag_id, ctx.run_id, ctx.task_id, ctx.try_number]) + "\\n").encode())
    os.close(heard)


def write(ctx, table, put):
    from pyspark.sql import functions as f
    say(ctx, "begun")
    rows = ctx.spark.range(300, numPartitions=2).groupBy((f.col("id") % 5).alias("part")).agg(f.sum("id").alias("value"))
    rows = rows.select(f.lit(ctx.interval.start).alias("at"), "part", "value", f.lit(ctx.run_id).alias("run"))
    say(ctx, "writes")
    put(rows, str(ROOT / ctx.dag_id / table))
    say(ctx, "wrote")
    kills = json.loads((ROOT / "kills.json").read_text())
    if ctx.try_number <= kills.get(f"{ctx.dag_id} {ctx.run_id} {ctx.task_id}", 0):
        signal.pause()  # the latest moment: its rows are in the table, and the manager does not know


def four_tables(name):
    @dag(dag_id=name, schedule="@daily", start_date="2024-01-01", end_date="2024-12-31", max_active_runs=4)
    def tables():
        @task(retries=1000, retry_delay=0)
        def replace(ctx):
            write(ctx, "replaced", lambda rows, table: ctx.write(rows, table, time_column="at"))

        @task(retries=1000, retry_delay=0)
        def append(ctx):
            write(ctx, "appended", lambda rows, table: ctx.write(rows, table, mode="append"))

        @task(retries=1000, retry_delay=0)
        def overwrite(ctx):
            write(ctx, f"overwritten_{ctx.interval.start.day}", lambda rows, table: ctx.write(rows, table, mode="overwrite"))

        @task(retries=1000, retry_delay=0)
        def merge(ctx):
            write(ctx, "merged", lambda rows, table: ctx.merge(rows, table, on=["at", "part"]))

        replace()
        append()
        overwrite()
        merge()

    tables()


four_tables("killed")
four_tables("left_alone")
"""


@dataclass(frozen=True)
class Try:
    dag_id: str
    run_id: str
    task_id: str
    try_number: int

    @property
    def task_instance(self) -> str:
        return f"{self.dag_id} {self.run_id} {self.task_id}"


@dataclass
class Process:
    """A task process, by a descriptor: its number may be another one's once it has ended."""

    descriptor: int
    moments: list[str] = field(default_factory=list)

    def kill(self) -> bool:
        """False if it has ended before."""
        if self.has_ended(within=0.0):
            return False
        signal.pidfd_send_signal(self.descriptor, signal.SIGKILL)
        assert self.has_ended(within=TIMEOUT_S)
        return True

    def has_ended(self, *, within: float) -> bool:
        return bool(select.select([self.descriptor], [], [], within)[0])


class Moments:
    """What task processes say, as they say it."""

    def __init__(self, root: Path) -> None:
        os.mkfifo(root / "moments")
        self._end = os.open(root / "moments", os.O_RDWR | os.O_NONBLOCK)  # for writing too: so it never ends
        self._begun = b""
        self.processes: dict[Try, Process] = {}

    def hear(self, within: float = TIMEOUT_S) -> list[tuple[str, Try]]:
        """What has been said since; waits for it, so long."""
        if not select.select([self._end], [], [], max(0.0, within))[0]:
            return []
        *lines, self._begun = (self._begun + os.read(self._end, 1 << 16)).split(b"\n")
        heard = []
        for line in lines:
            moment, pid, *names = json.loads(line)
            assert pid != os.getpid(), "tasks run in processes of their own"
            it = Try(*names)
            if it not in self.processes:
                try:
                    self.processes[it] = Process(os.pidfd_open(pid))
                except ProcessLookupError:  # it has ended already
                    continue
            self.processes[it].moments.append(moment)
            heard.append((moment, it))
        return heard

    def wait_for(self, moment: str, try_number: int) -> Process:
        clock = SystemClock()
        end = clock.monotonic() + TIMEOUT_S
        while clock.monotonic() < end:
            for what, it in self.hear():
                if (what, it.try_number) == (moment, try_number):
                    return self.processes[it]
        raise AssertionError(f"no try {try_number} came to {moment!r}")

    def close(self) -> None:
        for process in self.processes.values():
            os.close(process.descriptor)
        os.close(self._end)


@pytest.fixture
def moments(tmp_path: Path) -> Iterator[Moments]:
    moments = Moments(tmp_path)
    yield moments
    moments.close()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "bundle").mkdir()
    return Settings(
        state=str(tmp_path / "state"),
        bundles=[BundleSettings(name="tests", path=str(tmp_path / "bundle"), fetch_interval=0.2)],
    )


def bundle(root: Path, text: str) -> None:
    (root / "bundle" / "dags.py").write_text(text.replace("FOLDER", str(root)))


def ask_for(dag_id: str, days: int) -> CreateBackfill:
    return CreateBackfill(dag_id=dag_id, start_date=FIRST, end_date=FIRST + timedelta(days=days - 1), max_active_runs=4)


def rows(spark: SparkSession, table: Path) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in spark.read.format("delta").load(str(table)).collect())


class RandomKills:
    """Kills the first tries of some task instances, each at a random moment: soon after it has begun, or after its write has,
    within a little more than the time of writes so far. How many of which instance is settled before."""

    def __init__(self, moments: Moments, kills: dict[str, int], chance: random.Random) -> None:
        self._moments, self._kills, self._random, self._clock = moments, kills, chance, SystemClock()
        self._due: list[tuple[float, Try]] = []
        self._after: dict[Try, str] = {}  # the moment after which it is to be killed
        self._since: dict[Try, float] = {}
        self._took = [1.0]
        self.killed: dict[Try, list[str]] = {}  # and what they had come to

    def kill_until(self, is_over: Callable[[], bool]) -> None:
        heard_at = self._clock.monotonic()
        while not is_over():
            now = self._clock.monotonic()
            heard = self._moments.hear(within=min(0.5, self._due[0][0] - now) if self._due else 0.5)
            heard_at = now if heard else heard_at
            assert now < heard_at + TIMEOUT_S, f"nothing happens: {self._moments.processes}"
            self._note(heard)
            while self._due and self._due[0][0] <= self._clock.monotonic():
                it = heapq.heappop(self._due)[1]
                process = self._moments.processes[it]
                assert process.kill(), "it waits for that, at the latest at its end"
                self.killed[it] = process.moments  # `hear` adds what it had said meanwhile

    def _note(self, heard: list[tuple[str, Try]]) -> None:
        now = self._clock.monotonic()
        for moment, it in heard:
            if moment == "begun" and it.try_number <= self._kills.get(it.task_instance, 0):
                self._after[it] = self._random.choice(["begun", "writes", "writes", "writes", "writes"])
            elif moment == "writes":
                self._since[it] = now
            elif moment == "wrote":
                self._took.append(now - self._since[it])
            if self._after.get(it) == moment:
                typical = statistics.median(self._took[-20:])
                heapq.heappush(self._due, (now + self._random.uniform(0, 1.2 * typical), it))


@pytest.mark.parametrize("kills", [25, pytest.param(200, marks=pytest.mark.slow)])
def test_a_backfill_whose_task_processes_are_killed_writes_what_one_writes_that_is_left_alone(
    kills: int, settings: Settings, manager: Callable[[], Store], spark: SparkSession, moments: Moments, tmp_path: Path
) -> None:
    seed = random.randrange(1 << 32)
    print(f"random.Random({seed})")
    chance, days = random.Random(seed), max(4, kills // 10)
    names = [
        f"killed backfill__{FIRST + timedelta(days=n):%Y-%m-%d}T00:00:00Z {task_id}"
        for n in range(days)
        for task_id in ("replace", "append", "overwrite", "merge")
    ]
    planned = Counter(chance.choices(names, k=kills))
    (tmp_path / "kills.json").write_text(json.dumps(planned))
    bundle(tmp_path, DAG_FILE)
    store = manager()
    for name in ("killed", "left_alone"):
        wait_for(lambda name=name: store.count("dag", [], [Condition("dag_id", "=", name)])[()])
        ask(store, ask_for(name, days), name)
    killer = RandomKills(moments, planned, chance)
    killer.kill_until(lambda: _are_done(store) or _failed_by_themselves(store))
    moments.hear(within=0.0)
    assert _failed_by_themselves(store) == []

    for name in ("killed", "left_alone"):
        assert ended(store, name).state == s.SUCCESS, [ti.error for ti in store.read(TaskInstance) if ti.error]
    assert store.count("backfill_item", ["state"]) == {(s.SUCCESS,): 2 * days}
    for table in ("replaced", "appended", "merged", *(f"overwritten_{n + 1}" for n in range(days))):
        found, expected = (rows(spark, tmp_path / name / table) for name in ("killed", "left_alone"))
        assert found == expected, table
        assert len(expected) == len(set(expected)) == 5 * (1 if "overwritten" in table else days)
        assert runs_that_wrote(spark, tmp_path / "killed" / table) == sorted({run for *_, run in expected}), table

    killed = {Try(*name.split(), n) for name, times in planned.items() for n in range(1, times + 1)}
    assert set(killer.killed) == killed
    errors = {Try(t.dag_id, t.run_id, t.task_id, t.try_number): t.error for t in store.read(TaskTry) if t.error}
    log = [line.message for line in store.read(TaskLog) if "Error" in line.message]
    assert errors == dict.fromkeys(killed, KILLED), ("all that were killed, and nobody else", log)
    came_to = Counter(said[-1] for said in killer.killed.values())
    print(came_to)
    assert came_to["writes"] >= kills / 3, "inside of ctx.write"

    # what the JVM still committed for a process that was gone may meet the next writer of the table, once
    conflicts = [line.message for line in store.read(TaskLog) if "another writer was first" in line.message]
    assert len(conflicts) <= kills, "writers of one table take turns"
    assert PROCESS_TURNS._queues == {}, "no turn stays taken"


def _failed_by_themselves(store: Store) -> list[tuple[TaskTry, list[str]]]:
    """Tries that nobody killed, with their logs: they would be tried again a thousand times."""
    return [
        (it, [line.message for line in store.read(TaskLog, matching(**{name: getattr(it, name) for name in OF_TRY}))])
        for it in store.read(TaskTry, [Condition("error", "!=", KILLED)])
    ]


def _are_done(store: Store) -> bool:
    return store.count("backfill", [], [Condition("state", "in", sorted(s.BACKFILL_FINISHED))])[()] == 2


# -- chosen moments ---------------------------------------------------------------------------------------------------

BLOCKED_FILE = (
    DAG_FILE[: DAG_FILE.index("def write(")]
    + """
@dag(schedule="@daily", start_date="2024-01-01", end_date="2024-12-31")
def blocked():
    @task(retries=1, retry_delay=0)
    def append(ctx):
        from pyspark.sql import functions as f
        first, in_udf = ctx.try_number == 1, str(ROOT / "in_udf")
        text = f.udf(lambda n: open(in_udf).read() if first and n == 0 else f"of try {2 - first}")
        rows = ctx.spark.range(3, numPartitions=1).select("id", text("id").alias("text"))
        say(ctx, "begun")
        if not first:
            (ROOT / "second_try").read_text()
        WRITE

    append()
"""
)
WRITES = {
    "write": 'ctx.write(rows, str(ROOT / "appended"), mode="append")',
    "overwrite": 'ctx.write(rows, str(ROOT / "appended"), mode="overwrite")',
    "merge": 'ctx.merge(rows, str(ROOT / "appended"), on=["id"])',
}


@dataclass
class Blocked:
    """A try whose write waits in a function on a Spark executor until the test writes into `in_udf`. The try after it waits for
    `second_try`."""

    store: Store
    process: Process
    in_udf: int
    is_staged: bool  # the manager commits it

    def kill(self) -> None:
        """Returns when it is recorded."""
        assert self.process.kill()
        (it,) = wait_for(lambda: self.store.read(TaskTry))
        assert (it.try_number, it.error) == (1, KILLED)


def reader_of(fifo: Path) -> int:
    """Returns, with the end to write, when a reader has come."""

    def look() -> int | None:
        try:
            return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            assert error.errno == errno.ENXIO  # none yet
            return None

    end: int = wait_for(look)
    return end


def write(end: int, text: str) -> None:
    os.write(end, text.encode())
    os.close(end)


@pytest.fixture(params=WRITES)
def blocked(
    request: pytest.FixtureRequest, settings: Settings, manager: Callable[[], Store], moments: Moments, tmp_path: Path
) -> Blocked:
    for name in ("in_udf", "second_try"):
        os.mkfifo(tmp_path / name)
    bundle(tmp_path, BLOCKED_FILE.replace("WRITE", WRITES[request.param]))
    if request.param == "merge":  # it looks for two rows of one key before it makes a table
        columns = pa.schema([pa.field("id", pa.int64()), pa.field("text", pa.string())])
        DeltaTable.create(str(tmp_path / "appended"), columns)
    store = manager()
    wait_for(lambda: store.count("dag", [])[()])
    ask(store, ask_for("blocked", days=1), "blocked")
    process = moments.wait_for("begun", try_number=1)
    return Blocked(store, process, reader_of(tmp_path / "in_udf"), is_staged=request.param == "write")


def test_the_spark_job_of_a_killed_process_ends_and_the_next_try_writes(
    blocked: Blocked, spark: SparkSession, tmp_path: Path
) -> None:
    assert running_jobs(spark, "blocked")
    blocked.kill()
    wait_for(lambda: not running_jobs(spark, "blocked"))
    readers_end = select.poll()
    readers_end.register(blocked.in_udf, 0)
    assert readers_end.poll(TIMEOUT_S * 1000), "Spark's Python worker, which read it, is gone"
    os.close(blocked.in_udf)
    write(reader_of(tmp_path / "second_try"), "go on")
    assert ended(blocked.store, "blocked").state == s.SUCCESS
    assert rows(spark, tmp_path / "appended") == [(n, "of try 2") for n in range(3)]


def running_jobs(spark: SparkSession, dag_id: str) -> list[str]:
    """Descriptions of those of the DAG's tasks."""
    jobs = settled(spark).jobsList(None)
    running = [jobs.apply(n) for n in range(jobs.size()) if jobs.apply(n).status().toString() == "RUNNING"]
    return [job.description().get() for job in running if f"{dag_id}." in str(job.description())]


@pytest.fixture
def in_commit(blocked: Blocked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """The JVM is in the middle of the commit: it finds the version that it was to be taken by a file that it can't read yet.
    Returns a function that lets it."""
    taken = commit_file(tmp_path, 1)
    commit = DeltaTransaction.commit

    def late(self: DeltaTransaction, *args: Any, **how: Any) -> int:
        if not taken.exists():
            os.mkfifo(taken)
        return commit(self, *args, **how)

    if blocked.is_staged:  # the transaction begins when the rows are there
        monkeypatch.setattr(DeltaTransaction, "commit", late)
    else:
        os.mkfifo(taken)
    write(blocked.in_udf, "of try 1")
    wait_for(taken.exists)
    end = reader_of(taken)

    def go_on() -> None:
        nothing = json.dumps({"commitInfo": {"timestamp": 0, "operation": "nothing", "operationParameters": {}}}) + "\n"
        (tmp_path / "nothing").write_text(nothing)
        (tmp_path / "nothing").rename(taken)  # for all who read it later
        write(end, nothing)

    return go_on


def commit_file(root: Path, version: int) -> Path:
    return root / "appended" / "_delta_log" / f"{version:020}.json"


def test_what_the_jvm_has_committed_before_its_process_heard_of_it_is_not_written_again(
    blocked: Blocked, in_commit: Callable[[], None], spark: SparkSession, tmp_path: Path
) -> None:
    signal.pidfd_send_signal(blocked.process.descriptor, signal.SIGSTOP)
    in_commit()
    wait_for(commit_file(tmp_path, 2).exists)
    blocked.kill()
    write(reader_of(tmp_path / "second_try"), "go on")
    assert ended(blocked.store, "blocked").state == s.SUCCESS
    assert rows(spark, tmp_path / "appended") == [(n, "of try 1") for n in range(3)]
    log_lines = [line.message for line in blocked.store.read(TaskLog) if line.try_number == 2]
    assert any("an earlier try of this run has written its rows" in line for line in log_lines)


def test_a_commit_that_goes_on_after_its_process_was_killed_and_the_next_try_write_the_rows_once(
    blocked: Blocked, in_commit: Callable[[], None], spark: SparkSession, tmp_path: Path
) -> None:
    """Whichever is first; the JVM may also give the commit up, as nobody waits for it."""
    blocked.kill()
    second_try = reader_of(tmp_path / "second_try")
    in_commit()
    write(second_try, "go on")
    assert ended(blocked.store, "blocked").state == s.SUCCESS
    found = rows(spark, tmp_path / "appended")
    assert found in ([(n, f"of try {k}") for n in range(3)] for k in (1, 2))
