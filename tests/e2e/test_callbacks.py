"""Callbacks through every part: in the pool of the run, with the version of the run, and with a log of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.manager_process import ended, request, settled, wait_for

from backfill_manager.clock import UTC, SystemClock
from backfill_manager.model import states as s
from backfill_manager.model.records import DagRun, DagVersion, Response, TaskInstance, TaskLog
from backfill_manager.requests import submit
from backfill_manager.schemas import request_kinds
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.settings import BundleSettings, Settings
from backfill_manager.store.base import Condition, Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAG_FILE = """
import helper
from backfill_manager import dag, task


@dag(schedule="@daily", start_date="2024-03-01", end_date="2024-03-31", on_success=helper.tell, on_failure=helper.tell)
def telling():
    @task(on_success=helper.tell, on_failure=helper.tell)
    def load(ctx):
        assert ctx.ended is None
        return 7

    @task(on_success=helper.tell, on_failure=helper.tell)
    def check(ctx):
        raise ValueError(f"{ctx.result('load')} rows are too few")

    load() >> check()
"""
HELPER = """
def tell(ctx):
    n, ended = ctx.spark.range(5).repartition(2).count(), ctx.ended
    ctx.log.info("VERSION: %s %s, %s, of %s rows, %s counted", ended.task_id, ended.state, ended.error, ctx.result("load"), n)
    return ctx  # nobody reads it
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "telling.py").write_text(DAG_FILE)
    (tmp_path / "bundle" / "helper.py").write_text(HELPER.replace("VERSION", "first"))
    return Settings(
        state=str(tmp_path / "state"),
        bundles=[BundleSettings(name="tests", path=str(tmp_path / "bundle"), fetch_interval=0.2)],
    )


def test_callbacks_of_task_and_dag_run_in_the_pool_and_with_the_version_of_their_run(
    manager: Callable[[], Store], spark: SparkSession, tmp_path: Path
) -> None:
    begun = settled(spark).jobsList(None).size()
    store, day = manager(), datetime(2024, 3, 1, tzinfo=UTC)
    request(store, CreateBackfill(dag_id="telling", start_date=day, end_date=day), "b1")
    assert ended(store, "b1").state == s.FAILED
    (run,) = store.read(DagRun)
    assert (run.state, run.reason) == (s.FAILED, "failed: check")
    assert {ti.task_id: ti.state for ti in store.read(TaskInstance)} == {
        "load": s.SUCCESS, "load.on_success": s.SUCCESS, "load.on_failure": s.SKIPPED,
        "check": s.FAILED, "check.on_success": s.SKIPPED, "check.on_failure": s.SUCCESS,
        "on_success": s.SKIPPED, "on_failure": s.SUCCESS,
    }  # fmt: skip
    result = {
        "load.on_success": "first: load success, None, of 7 rows, 5 counted",
        "check.on_failure": "first: check failed, ValueError: 7 rows are too few, of 7 rows, 5 counted",
        "on_failure": "first: None failed, failed: check, of 7 rows, 5 counted",
    }
    assert lines(store) == Counter(result.items())
    assert pools_of_jobs(spark, begun) == {task_id: {"backfill"} for task_id in result}

    (tmp_path / "bundle" / "helper.py").write_text(HELPER.replace("VERSION", "second"))
    wait_for(lambda: len(store.read(DagVersion)) == 2)
    clear = {"ask": {"dag": "telling", "tasks": "check"}}
    cleared = submit.submit(store, SystemClock(), request_kinds.TASKS_CLEAR, clear).request_id
    wait_for(lambda: store.read(Response, [Condition("request_id", "=", cleared)]))
    assert ended(store, "b1").state == s.FAILED
    again = {task_id: line for task_id, line in result.items() if not task_id.startswith("load")}
    assert lines(store) == Counter(result.items()) + Counter(again.items()), "as the run's version has it"


def lines(store: Store) -> Counter[tuple[str, str]]:
    """What callbacks logged, by task id; each as often as it was said."""
    logged = store.read(TaskLog, [Condition("level", "=", "INFO")])
    return Counter((line.task_id, line.message) for line in logged if "counted" in line.message)


def pools_of_jobs(spark: SparkSession, begun: int) -> dict[str, set[str]]:
    """Of the Spark jobs since then that callbacks ran, by task id; from Spark's own status store."""
    status, found = settled(spark), dict[str, set[str]]()
    jobs = status.jobsList(None)
    for at in range(jobs.size() - begun):  # newest first
        job = jobs.apply(at)
        tag = next((tag for tag in job.jobTags().mkString(",").split(",") if tag.startswith("bfm/telling/")), "")
        stages = [status.lastStageAttempt(job.stageIds().apply(n)) for n in range(job.stageIds().size())]
        for stage in stages if "on_" in tag else ():
            if str(stage.status()) != "SKIPPED":
                found.setdefault(tag.split("/")[3], set()).add(stage.schedulingPool())
    return found
