"""Success means written: whichever state asks for a run, `dags test` included, and however often its DAG was run before."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.manager_process import ended, request, wait_for

from backfill_manager.clock import UTC, SystemClock
from backfill_manager.manager import dag_test_run
from backfill_manager.model import states as s
from backfill_manager.model.records import BackfillItem, DagRun, TaskInstance
from backfill_manager.requests import submit
from backfill_manager.requests.checked_payloads import triggered_dag
from backfill_manager.schemas import request_kinds
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.settings import BundleSettings, Settings
from backfill_manager.store.base import Condition, Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST = datetime(2024, 1, 1, tzinfo=UTC)
DAG_FILE = """
from backfill_manager import dag, sql, task


@dag(schedule="@daily", start_date="2024-01-01", end_date="2024-03-31", batchable=True, max_active_runs=8)
def totals():
    @task
    def replace(ctx):
        from pyspark.sql import functions as f
        ctx.write(ctx.spark.range(1).select(f.lit(ctx.interval.start).alias("at"), f.lit(NUMBER).alias("value")),
                  "ROOT/replaced", time_column="at")

    replace() >> sql("merge", '''
        CREATE TABLE IF NOT EXISTS delta.`ROOT/merged` (at TIMESTAMP, value INT, times INT) USING delta;
        MERGE INTO delta.`ROOT/merged` AS t
        USING (SELECT explode(sequence(:interval_start, :interval_end - INTERVAL 1 DAY, INTERVAL 1 DAY)) AS at) AS n
        ON t.at = n.at
        WHEN MATCHED THEN UPDATE SET value = NUMBER, times = t.times + 1
        WHEN NOT MATCHED THEN INSERT (at, value, times) VALUES (n.at, NUMBER, 1)
    ''')
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "bundle").mkdir()
    settings = Settings(
        state=str(tmp_path / "state"),
        bundles=[BundleSettings(name="tests", path=str(tmp_path / "bundle"), fetch_interval=0.2)],
    )
    edit(tmp_path, value=1)
    return settings


def edit(root: Path, *, value: int) -> None:
    text = DAG_FILE.replace("ROOT", str(root)).replace("NUMBER", str(value))
    (root / "bundle" / "totals.py").write_text(text)


def written(spark: SparkSession, root: Path) -> tuple[list[int], list[tuple[int, int]]]:
    """The values that `replace` wrote, and (value, times) of what `merge` did."""
    replaced = spark.read.format("delta").load(str(root / "replaced")).collect()
    merged = spark.read.format("delta").load(str(root / "merged")).collect()
    return [row["value"] for row in replaced], sorted((row["value"], row["times"]) for row in merged)


def test_each_dags_test_writes_and_so_do_a_real_run_after_it_and_a_new_state(
    settings: Settings,
    start_and_stop: tuple[Callable[[], Store], Callable[[], None]],
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    start, stop = start_and_stop
    for value in (1, 2):
        edit(tmp_path, value=value)
        result = dag_test_run.run_dag_once(settings, "totals", FIRST, spark=spark)
        assert result["run"]["state"] == "success"
        assert written(spark, tmp_path) == ([value], [(value, value)])

    for value in (3, 4):
        edit(tmp_path, value=value)
        store = start()
        clock = SystemClock()
        payload = triggered_dag(store, "totals", "2024-01-01", {}, clock.now())
        submitted = submit.submit(store, clock, request_kinds.DAG_TRIGGER, payload)
        run = wait_for(lambda: next((run for run in store.read(DagRun) if run.state in s.RUN_FINISHED), None))  # noqa: B023
        assert (run.run_id, run.state) == (result["run"]["run_id"], s.SUCCESS), (submitted, store.read(TaskInstance))
        assert written(spark, tmp_path) == ([value], [(value, value)])
        stop()
        (tmp_path / "state").rename(tmp_path / f"lost{value}")  # and a new one is made in its place


def test_a_backfill_of_merges_in_batches_is_not_halved_and_costs_no_try(
    settings: Settings,
    start_and_stop: tuple[Callable[[], Store], Callable[[], None]],
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    store = start_and_stop[0]()
    last = FIRST + timedelta(days=23)
    request(store, CreateBackfill(dag_id="totals", start_date=FIRST, end_date=last, batch=3, max_active_runs=8), "b1")
    assert ended(store, "b1").state == s.SUCCESS, [ti.error for ti in store.read(TaskInstance) if ti.error]

    runs = store.read(DagRun, [Condition("backfill_id", "=", "b1")])
    assert sorted(run.items for run in runs) == [3] * 8, "no batch was parted, as none failed"
    tasks = store.read(TaskInstance)
    assert {(ti.state, ti.try_number, ti.failures) for ti in tasks} == {(s.SUCCESS, 1, 0)}
    assert {ti.rows_written for ti in tasks if ti.task_id == "merge"} == {3}
    assert {item.state for item in store.read(BackfillItem)} == {s.SUCCESS}
    assert written(spark, tmp_path)[1] == [(1, 1)] * 24
