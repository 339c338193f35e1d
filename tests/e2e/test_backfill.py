"""A backfill through every part, nothing faked: Delta state, DAG files in their process, Spark, the request table."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from chispa.dataframe_comparer import assert_df_equality
from support.http_sink import Sink, http_sink
from support.manager_process import TIMEOUT_S, ended, request, settled, wait_for
from support.table_writers import runs_that_wrote

from backfill_manager.clock import UTC, SystemClock
from backfill_manager.manager.manager import run_manager
from backfill_manager.model import states as s
from backfill_manager.model.records import (
    BackfillItem,
    DagRun,
    ImportProblem,
    Manager,
    Notification,
    Response,
    TaskInstance,
    TaskLog,
    TaskTry,
)
from backfill_manager.requests import submit
from backfill_manager.schemas import request_kinds
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.settings import BundleSettings, Settings
from backfill_manager.settings.model import NotificationSettings
from backfill_manager.store import open_store
from backfill_manager.store.base import Condition, Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = timedelta(days=1)
FIRST = datetime(2024, 3, 29, tzinfo=UTC)

DAG_FILE = """
import helper
from backfill_manager import dag, sql, task


@dag(schedule="@daily", start_date="2024-03-01", end_date="2024-12-31", timezone="Europe/Amsterdam", params={"factor": 1})
def readings():
    @task(retries=1, retry_delay=0.1)
    def load(ctx):
        from pyspark.sql import functions as f
        ctx.log.info("loading %s", ctx.interval.start)
        hours = ctx.spark.range(24 * 40).select((f.lit(1709247600) + f.col("id") * 3600).cast("timestamp").alias("at"))
        rows = hours.where(ctx.in_interval("at")).withColumn("value", f.lit(helper.VALUE * ctx.params["factor"]))
        ctx.write(rows, "TABLE", time_column="at")

    @task.executor
    def where(ctx):
        import os
        return {"pid": os.getpid(), "hours": (ctx.interval.end - ctx.interval.start).total_seconds() / 3600}

    @task(depends_on_past=True)
    def check(ctx):
        n = ctx.spark.read.format("delta").load("TABLE").where(ctx.in_interval("at")).count()
        assert n == ctx.result("where")["hours"], (n, ctx.result("where"))
        return n

    [load(), where()] >> check()
"""


@pytest.fixture
def sink() -> Iterator[Sink]:
    with http_sink() as server:
        yield server


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@pytest.fixture
def settings(tmp_path: Path, sink: Sink) -> Settings:
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    (bundle / "readings.py").write_text(DAG_FILE.replace("TABLE", str(tmp_path / "readings")))
    (bundle / "helper.py").write_text("VALUE = 7\n")
    (bundle / "broken.py").write_text("from backfill_manager import dag\n\n1 / 0\n")
    return Settings(
        state=str(tmp_path / "state"),
        bundles=[BundleSettings(name="tests", path=str(bundle), fetch_interval=0.2)],
        openlineage={"transport": {"type": "file", "log_file_path": str(tmp_path / "lineage.jsonl"), "append": True}},
        notifications=[{"name": "ops", "url": f"json://{sink.address}", "events": ["done"], "group": 0}],
    )


def test_a_backfill_goes_from_its_request_to_its_end_and_each_interval_is_written_once(
    manager: Callable[[], Store], settings: Settings, spark: SparkSession, tmp_path: Path, sink: Sink, silent: socket.socket
) -> None:  # fmt: skip
    url = f"json://127.0.0.1:{silent.getsockname()[1]}?rto=3600"
    settings.notifications.insert(0, NotificationSettings(name="silent", url=url, events=["done"], group=0))
    store = manager()
    ask = CreateBackfill(dag_id="readings", start_date=FIRST, end_date=FIRST + 3 * DAY, conf={"factor": 2})
    request_id = request(store, ask, "b1")
    assert ended(store, "b1").state == s.SUCCESS

    runs = store.read(DagRun, order_by=["logical_date"])
    assert [(r.logical_date, r.interval_end) for r in runs] == [  # clocks go forward on the 31st in Amsterdam
        (datetime(2024, 3, 29, 23, tzinfo=UTC), datetime(2024, 3, 30, 23, tzinfo=UTC)),
        (datetime(2024, 3, 30, 23, tzinfo=UTC), datetime(2024, 3, 31, 22, tzinfo=UTC)),
        (datetime(2024, 3, 31, 22, tzinfo=UTC), datetime(2024, 4, 1, 22, tzinfo=UTC)),
    ]
    assert [r.previous_run_id for r in runs] == [None, runs[0].run_id, runs[1].run_id]
    results = {ti.run_id: ti.result_json for ti in store.read(TaskInstance, [Condition("task_id", "=", "check")])}
    assert [results[r.run_id] for r in runs] == ["24", "23", "24"]
    assert {ti.state for ti in store.read(TaskInstance)} == {s.SUCCESS}
    assert any("loading" in line.message for line in store.read(TaskLog))
    assert [r.outcome for r in store.read(Response, [Condition("request_id", "=", request_id)])] == ["accepted"]
    assert [(p.file, p.line) for p in store.read(ImportProblem)] == [("broken.py", 3)]

    written = spark.read.format("delta").load(str(tmp_path / "readings"))
    expected = spark.sql(
        "SELECT explode(sequence(timestamp'2024-03-29 23:00:00Z', timestamp'2024-04-01 21:00:00Z', interval 1 hour)) AS at, "
        "14 AS value"
    )
    assert_df_equality(written, expected, ignore_row_order=True, ignore_nullable=True)
    assert runs_that_wrote(spark, tmp_path / "readings") == sorted(run.run_id for run in runs)

    def lineage() -> list[Any] | None:
        events = [json.loads(line) for line in (tmp_path / "lineage.jsonl").read_text().splitlines()]
        ends = [e for e in events if e["eventType"] == "COMPLETE"]
        return events if len(ends) == 3 * (1 + 3) else None

    events = wait_for(lineage)
    assert {e["job"]["name"] for e in events} == {"readings", "readings.load", "readings.where", "readings.check"}
    (wrote, *_) = (e for e in events if e["job"]["name"] == "readings.load" and e["outputs"])
    (output,) = wrote["outputs"]
    assert (output["namespace"], output["name"]) == ("file", str(tmp_path / "readings"))
    assert output["outputFacets"]["outputStatistics"]["rowCount"] in (23, 24)
    assert [f["name"] for f in output["facets"]["schema"]["fields"]] == ["at", "value"]
    (read, *_) = (e for e in events if e["job"]["name"] == "readings.check" and e["inputs"])
    assert (read["inputs"][0]["name"], read["run"]["facets"]["parent"]["job"]["name"]) == (output["name"], "readings")

    (message,) = sink.wait_for(1)
    assert message["title"] == "readings: backfill b1 has succeeded"
    wait_for(
        lambda: {row.target: row.state for row in store.read(Notification)} == {"ops": "sent", "silent": "waiting"}
    )
    silent.close()

    # others read the state as it stands
    result = spark.read.format("delta").load(f"{settings.state}/dag_run").groupBy("state").count().collect()
    assert [(row[0], row[1]) for row in result] == [(s.SUCCESS, 3)]


def test_every_spark_job_of_a_backfill_ran_in_its_pool(manager: Callable[[], Store], spark: SparkSession) -> None:
    before = settled(spark).jobsList(None).size()
    store = manager()
    request(store, CreateBackfill(dag_id="readings", start_date=FIRST, end_date=FIRST + DAY), "b1")
    assert ended(store, "b1").state == s.SUCCESS
    status = settled(spark)
    jobs = status.jobsList(None)
    pools: dict[str, set[str]] = {"task": set(), "planning": set()}
    of_tasks = set[int]()
    for at in range(jobs.size() - before):  # newest first
        job = jobs.apply(at)
        tags = job.jobTags().mkString(",") if hasattr(job, "jobTags") else ""
        kind = "task" if "bfm/readings/" in tags else "planning"
        of_tasks |= {job.jobId()} if kind == "task" else set()
        stages = job.stageIds()
        for n in range(stages.size()):
            stage = status.lastStageAttempt(stages.apply(n))
            if str(stage.status()) != "SKIPPED":
                pools[kind].add(stage.schedulingPool())
    assert pools == {"task": {"backfill"}, "planning": {"control"}}
    kept = [job for one in store.read(TaskTry) for job in json.loads(one.spark_jobs_json or "[]")]
    assert set(kept) and len(set(kept)) == len(kept)
    assert set(kept) <= of_tasks, "which jobs each try ran is kept with it"
    for one in store.read(TaskTry):  # and what their stages did
        stages_kept = json.loads(one.spark_stages_json) if one.spark_stages_json else {"jobs": 0, "tasks": 0}
        assert stages_kept["jobs"] == len(json.loads(one.spark_jobs_json or "[]"))
        assert (stages_kept["tasks"] > 0) is (one.spark_jobs_json is not None)


def test_a_request_sent_twice_has_the_effect_of_once_and_a_wrong_one_is_refused(manager: Callable[[], Store]) -> None:
    store = manager()
    ask = CreateBackfill(dag_id="readings", start_date=FIRST, end_date=FIRST + DAY, mark_success=True)
    request(store, ask, "b1")
    request(store, ask, "b1")
    wrong = request(store, CreateBackfill(dag_id="reading", start_date=FIRST, end_date=FIRST + DAY), "b2")
    assert ended(store, "b1").state == s.SUCCESS
    wait_for(lambda: len(store.read(Response)) == 3)
    assert store.count("backfill", []) == {(): 1}
    assert store.count("backfill_item", [], [Condition("backfill_id", "=", "b1")]) == {(): 2 - 1}
    (refused,) = store.read(Response, [Condition("request_id", "=", wrong)])
    assert (refused.outcome, "did you mean 'readings'" in refused.message) == ("refused", True)


def test_a_dry_run_makes_nothing_and_tells_what_the_real_one_will_make(manager: Callable[[], Store]) -> None:
    store = manager()
    ask = CreateBackfill(dag_id="readings", start_date=FIRST, end_date=FIRST + 2 * DAY, mark_success=True)
    payload = {"backfill_id": "dry", "ask": ask.to_payload()}
    dry = submit.submit(store, SystemClock(), request_kinds.BACKFILL_DRY_RUN, payload).request_id
    (output,) = wait_for(lambda: store.read(Response, [Condition("request_id", "=", dry)]))
    assert store.count("backfill_item", []) == {(): 0}
    request(store, ask, "b1")
    ended(store, "b1")
    made = store.read(BackfillItem, order_by=["ordinal"])
    from backfill_manager.clock import format_instant

    assert [
        (i["ordinal"], i["interval_start"], i["interval_end"]) for i in json.loads(output.payload_json)["items"]
    ] == [(item.ordinal, format_instant(item.interval_start), format_instant(item.interval_end)) for item in made]


def test_a_second_manager_stands_by_and_takes_over_when_the_first_resigns(
    settings: Settings, spark: SparkSession
) -> None:
    stops = [threading.Event(), threading.Event()]
    readies = [threading.Event(), threading.Event()]
    threads = [
        threading.Thread(
            target=run_manager,
            args=(settings,),
            kwargs={"state": settings.state, "ready": ready, "stop": stop, "spark": spark},
        )
        for stop, ready in zip(stops, readies, strict=True)
    ]
    try:
        threads[0].start()
        assert readies[0].wait(TIMEOUT_S)
        # both are this process: the standby must not take the first one's pid for a dead one's
        store = open_store(settings.state)
        assert store.lease() is not None and store.lease().state == s.LEADING  # type: ignore[union-attr]
        stops[0].set()
        threads[0].join(TIMEOUT_S)
        assert store.lease().state == s.STOPPED  # type: ignore[union-attr]
        threads[1].start()
        assert readies[1].wait(TIMEOUT_S)
        assert [(row.term, row.state) for row in store.read(Manager, order_by=["term"])] == [
            (1, s.STOPPED),
            (2, s.LEADING),
        ]
    finally:
        for stop in stops:
            stop.set()
        for thread in threads:
            if thread.ident:
                thread.join(TIMEOUT_S)
