"""A month of runs on a standalone cluster of two workers of which something is killed in the middle: the tables are those of a
run that nothing disturbed. A shorter one on `local-cluster` is for every run of the suite."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support import flights_in_pandas as by_pandas
from support.manager_process import TIMEOUT_S, kill, request, wait_for
from support.process_tree import command_of, processes_below
from support.spark_cluster import Cluster, spark_home

from backfill_manager.clock import UTC
from backfill_manager.model import states as s
from backfill_manager.model.records import Backfill, TaskInstance, TaskTry
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.store import open_store
from backfill_manager.store.base import Condition, Store

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds executors in /proc")

MONTH_S = 4 * TIMEOUT_S
FIRST = datetime(2024, 1, 1, tzinfo=UTC)
HELPER = """
def spelled(number):
    return f"number {number}"
"""
DAG_FILE = """
import glob
import os

from pyspark.sql import functions as F

from backfill_manager import dag, task
from helper import spelled

ROOT = "%ROOT%"


def once(ctx, what):
    # whether this try is the one that is to do it
    wanted = f"{ROOT}/{what} {ctx.interval.start:%d}"
    if not os.path.exists(wanted):
        return False
    os.remove(wanted)
    return True


@dag(schedule="@daily", start_date="2024-01-01", end_date="2024-12-31", max_active_runs=4)
def numbers():
    @task.executor(retries=3, retry_delay=1)
    def first_key(ctx):
        return {"key": ctx.interval.start.day % 5, "text": spelled(ctx.interval.start.day)}

    @task(retries=3, retry_delay=1)
    def totals(ctx):
        day = ctx.interval.start.day
        if once(ctx, "no memory"):
            ctx.spark.range(1).selectExpr("size(transform(sequence(1, 1000), i -> repeat(uuid(), 1000000)))").collect()
        if once(ctx, "no shuffle file"):
            pairs = ctx.spark.sparkContext.parallelize(range(200), 4).map(lambda n: (n % 5, n)).groupByKey(3)
            assert pairs.count() == 5
            files = glob.glob(f"{ROOT}/cluster/local/**/shuffle_*.data", recursive=True)
            assert files
            for file in files:
                os.remove(file)
            assert pairs.mapValues(len).collectAsMap() == dict.fromkeys(range(5), 40)
        spell = F.udf(spelled)
        rows = ctx.spark.range(200).select((F.col("id") % 5).cast("int").alias("key"), (F.col("id") * day).alias("n"))
        per_key = rows.repartition(4, "key").groupBy("key").agg(F.sum("n").alias("total"))
        first = ctx.result("first_key")
        named = per_key.select(
            F.lit(ctx.interval.start).alias("at"), "key", "total", spell("key").alias("name"),
            F.lit(first["text"]).alias("text"),
        )
        ctx.write(named, f"{ROOT}/totals", time_column="at")

    first_key() >> totals()
"""


def expected(days: int) -> list[tuple[Any, ...]]:
    """What an undisturbed run leaves, computed without Spark."""
    return sorted(
        (FIRST + timedelta(days=n), key, sum(range(key, 200, 5)) * (n + 1), f"number {key}", f"number {n + 1}")
        for n in range(days)
        for key in range(5)
    )


class Story:
    """Managers on the cluster, one state, a backfill of `days`."""

    def __init__(self, root: Path, days: int, environment: dict[str, str] | None = None, **spark: Any) -> None:
        self.root, self.days = root, days
        self._environment = {**os.environ, **(environment or {})}
        self._managers: list[subprocess.Popen[bytes]] = []
        bundle = root / "bundle"
        bundle.mkdir()
        (bundle / "helper.py").write_text(HELPER)
        (bundle / "numbers.py").write_text(DAG_FILE.replace("%ROOT%", str(root)))
        conf = {
            "state": str(root / "state"),
            "warehouse": str(root / "warehouse"),
            "bundles": [{"name": "tests", "path": str(bundle)}],
            "lease": {"seconds": 20},
            "spark": spark,
        }
        (root / "manager.yaml").write_text(json.dumps(conf))
        self.store: Store = open_store(conf["state"])

    def start(self) -> subprocess.Popen[bytes]:
        command = [
            sys.executable,
            "-m",
            "backfill_manager",
            "--conf",
            str(self.root / "manager.yaml"),
            "manager",
            "start",
        ]
        with self.log(len(self._managers)).open("wb") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, env=self._environment
            )
        self._managers.append(process)
        return process

    def log(self, number: int) -> Path:
        return self.root / f"manager{number}.log"

    def begin(self) -> None:
        """The month is asked for."""
        wait_for(self.store.exists)
        wait_for(lambda: self.store.count("dag", [])[()])
        last = FIRST + timedelta(days=self.days - 1)
        request(self.store, CreateBackfill(dag_id="numbers", start_date=FIRST, end_date=last), "month")

    def when_written(self, days: int) -> None:
        """Until so many have been, and others run."""
        done = [Condition("task_id", "=", "totals"), Condition("state", "=", s.SUCCESS)]
        wait_for(lambda: self.store.count("task_instance", [], done)[()] >= days, MONTH_S)

    def end(self) -> None:
        finished = [Condition("state", "in", sorted(s.BACKFILL_FINISHED))]
        (row,) = wait_for(lambda: self.store.read(Backfill, finished), MONTH_S)
        logs = "\n".join(self.log(n).read_text() for n in range(len(self._managers)))
        assert row.state == s.SUCCESS, logs + str(
            [(ti.task_id, ti.state, ti.error) for ti in self.store.read(TaskInstance)]
        )
        assert table(self.root / "totals") == expected(self.days)

    def failed_tries(self) -> list[TaskTry]:
        return self.store.read(TaskTry, [Condition("state", "!=", s.SUCCESS)])

    def stop(self) -> None:
        for process in self._managers:
            kill(process)


def table(path: Path) -> list[tuple[Any, ...]]:
    from deltalake import DeltaTable, QueryBuilder

    rows = (
        QueryBuilder()
        .register("t", DeltaTable(str(path)))
        .execute("SELECT at, key, total, name, text FROM t")
        .read_all()
    )
    return sorted(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def test_an_executor_that_is_killed_takes_nothing_along(tmp_path: Path) -> None:
    home = spark_home(tmp_path / "spark")
    story = Story(
        tmp_path, 6, {"SPARK_HOME": str(home), "SPARK_SCALA_VERSION": "2.13"},
        master="local-cluster[2,1,1024]", conf={"spark.executor.memory": "512m", "spark.sql.shuffle.partitions": "2"},
    )  # fmt: skip
    try:
        manager = story.start()
        story.begin()
        story.when_written(1)
        executors = [pid for pid in processes_below(manager.pid) if "CoarseGrainedExecutorBackend" in command_of(pid)]
        assert len(executors) == 2, "the tasks' Spark jobs run outside the driver"
        os.kill(executors[0], signal.SIGKILL)
        story.end()
        manager.send_signal(signal.SIGTERM)
        assert manager.wait(TIMEOUT_S) == 0
    finally:
        story.stop()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path / "cluster")
    yield cluster
    cluster.stop()


@pytest.fixture
def story(tmp_path: Path, cluster: Cluster) -> Iterator[Story]:
    conf = {
        "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.executor.memory": "640m",
        "spark.sql.shuffle.partitions": "2", "spark.network.timeout": "30s",
        "spark.network.timeoutInterval": "10s", "spark.executor.heartbeatInterval": "5s",
    }  # fmt: skip
    story = Story(tmp_path, 31, master=cluster.url, conf=conf)
    yield story
    story.stop()


def one_worker_is_killed(cluster: Cluster, story: Story) -> None:
    cluster.kill_worker()


def both_workers_are_killed_and_one_is_back(cluster: Cluster, story: Story) -> None:
    cluster.kill_worker()
    cluster.kill_worker()
    wait_for(lambda: "Spark has no executor, so its jobs wait" in story.log(0).read_text())
    cluster.start_worker()


def the_master_is_gone_and_comes_back(cluster: Cluster, story: Story) -> None:
    cluster.kill_master()
    before = story.store.count("task_try", [])[()]
    wait_for(lambda: story.store.count("task_try", [])[()] > before + 4)  # the executors need no master
    cluster.start_master()
    wait_for(lambda: cluster.applications() and cluster.applications()[0]["state"] == "RUNNING")
    cluster.kill_worker()
    cluster.start_worker()  # which only the master can give to the application


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault", [one_worker_is_killed, both_workers_are_killed_and_one_is_back, the_master_is_gone_and_comes_back]
)
def test_a_month_while_machines_are_lost(
    fault: Callable[[Cluster, Story], None], cluster: Cluster, story: Story
) -> None:
    manager = story.start()
    story.begin()
    story.when_written(5)
    fault(cluster, story)
    story.end()
    assert manager.poll() is None


@pytest.mark.slow
def test_an_executor_out_of_memory_and_a_lost_shuffle_file(cluster: Cluster, story: Story) -> None:
    (story.root / "no memory 10").touch()
    (story.root / "no shuffle file 12").touch()
    story.start()
    story.begin()
    story.end()
    assert not list(story.root.glob("no *")), "both have happened"
    failed = Counter((it.run_id, it.task_id) for it in story.failed_tries())
    assert len(failed) == 1, "Spark repairs a lost shuffle by itself, and who is out of memory takes nobody along"
    (error,) = {it.error for it in story.failed_tries()}
    assert error is not None and ("ExecutorLostFailure" in error or "OutOfMemory" in error), error


@pytest.mark.slow
def test_an_application_that_is_killed_at_the_master_ends_its_manager_and_the_next_goes_on(
    cluster: Cluster, story: Story
) -> None:
    manager = story.start()
    story.begin()
    story.when_written(5)
    (application,) = cluster.applications()
    cluster.kill_application(application["id"])
    assert manager.wait(TIMEOUT_S) == 1, "its supervisor sees that it did not end well"
    assert story.log(0).read_text().rstrip().rpartition("\n")[2].startswith("Spark is gone: ")
    story.start()
    story.end()


@pytest.mark.slow
def test_a_standby_is_a_second_application_and_takes_over_from_a_killed_driver(cluster: Cluster, story: Story) -> None:
    leader = story.start()
    story.begin()
    story.when_written(5)
    story.start()
    wait_for(lambda: "standing by" in story.log(1).read_text())
    kill(leader)
    story.end()
    lease = story.store.lease()
    assert lease is not None and lease.term == 2


@pytest.mark.slow
def test_the_month_of_flights_through_spark_submit(cluster: Cluster, tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("BFM_")}
    environment |= {"BFM_STATE": str(tmp_path / "state"), "BFM_WAREHOUSE": str(tmp_path / "warehouse")}
    submit = Path(__file__).parents[2] / "jobs" / "submit.py"
    options = ["--master", cluster.url, "--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.executor.memory=640m"]
    done = subprocess.run(
        [sys.executable, str(submit), "demo", "--", *options],
        env=environment, capture_output=True, text=True, timeout=TIMEOUT_S * 4, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    for table in by_pandas.EXPECTED:
        by_pandas.check_table(tmp_path / "warehouse", table, by_pandas.days_of(date(2013, 1, 1), date(2013, 1, 31)))
