"""A backfill of a day that has too few rows, compared with what the state knows of the days before: manager, state, Spark and
task processes are real."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from support.manager_process import ended, request, rows_in

from backfill_manager.clock import UTC
from backfill_manager.model import states as s
from backfill_manager.model.records import CheckResult, DagRun, TaskInstance
from backfill_manager.queries.tasks import list_check_results
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.settings import BundleSettings, Settings
from backfill_manager.store.base import Store

DAG_FILE = """
from backfill_manager import Check, dag, task


@dag(schedule="@daily", start_date="2024-03-01", end_date="2024-12-31", params={"db_password": "hunter2"})
def orders():
    @task(checks=["rows within 20 % of the 3 before"])
    def load(ctx):
        from pyspark.sql import functions as f
        rows = ctx.spark.range(3 if ctx.interval.start.day == 5 else 10).select(f.lit(ctx.interval.start).alias("at"), "id")
        own = Check(f"id < 9 AND '{ctx.params['db_password']}' <> ''", on_failure="warn")
        ctx.write(rows, "FOLDER/raw", time_column="at", checks=[own])

    load()
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "orders.py").write_text(DAG_FILE.replace("FOLDER", str(tmp_path)))
    return Settings(
        state=str(tmp_path / "state"),
        bundles=[BundleSettings(name="tests", path=str(tmp_path / "bundle"), fetch_interval=0.2)],
    )


def test_a_day_with_too_few_rows_is_not_published(manager: Callable[[], Store], tmp_path: Path) -> None:
    store = manager()
    first, last = (datetime(2024, 3, day, tzinfo=UTC) for day in (1, 5))
    request(store, CreateBackfill(dag_id="orders", start_date=first, end_date=last, max_active_runs=1), "b")
    assert ended(store, "b").state == s.FAILED
    assert rows_in(tmp_path / "raw", "t", "SELECT count(*), count(DISTINCT at) FROM t") == [(40, 4)]

    runs = store.read(DagRun, order_by=["logical_date"])
    assert [run.state for run in runs] == [s.SUCCESS] * 4 + [s.FAILED]
    found = [list_check_results(store, run) for run in runs]
    not_compared = "not compared: {} before it are known".format
    assert [(near["outcome"], near["message"], warn["outcome"]) for near, warn in found] == [
        ("passed", not_compared("0 intervals"), "warned"),
        ("passed", "not compared: 1 interval before it is known", "warned"),
        ("passed", not_compared("2 intervals"), "warned"),
        ("passed", "10 rows, +0.0 % against 10.0, the mean of 3 intervals before", "warned"),
        ("failed", "3 rows, -70.0 % against 10.0, the mean of 3 intervals before", "passed"),
    ]
    stored = {row.condition for row in store.read(CheckResult)}
    assert stored == {"rows within 20 % of the 3 before", "id < 9 AND '***' <> ''"}, "no secrets of params"
    error = next(ti.error for ti in store.read(TaskInstance) if ti.state == s.FAILED)
    assert error == (
        f"task 'load', file:{tmp_path}/raw: check `rows within 20 % of the 3 before` failed: {found[4][0]['message']}; "
        "nothing was written"
    )
    assert store.count(CheckResult.TABLE, ["outcome"]) == {("passed",): 5, ("warned",): 4, ("failed",): 1}
