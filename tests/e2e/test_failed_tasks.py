"""A day that failed because of a file from outside: `--reprocess failed_tasks` re-runs in place what failed and what comes
after it. Delta state, DAG files, Spark and the request table are real."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from chispa.dataframe_comparer import assert_df_equality
from support.manager_process import ended, request, wait_for
from support.table_writers import runs_that_wrote

from backfill_manager.clock import UTC, SystemClock
from backfill_manager.model import states as s
from backfill_manager.model.records import BackfillItem, DagRun, Response, TaskInstance, TaskTry
from backfill_manager.requests import submit
from backfill_manager.schemas import request_kinds
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.settings import BundleSettings, Settings
from backfill_manager.store.base import Condition, Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = timedelta(days=1)
FIRST = datetime(2024, 3, 1, tzinfo=UTC)
OF_DAY = [f"backfill__2024-03-0{n}T00:00:00Z" for n in range(1, 5)]

DAG_FILE = """
from pathlib import Path

from backfill_manager import dag, task

ROOT = Path("FOLDER")


@dag(schedule="@daily", start_date="2024-03-01", end_date="2024-12-31")
def orders():
    @task
    def load(ctx):
        from pyspark.sql import functions as f
        rows = ctx.spark.range(3).select(f.lit(ctx.interval.start).alias("at"), f.col("id").alias("pieces"))
        ctx.write(rows, str(ROOT / "raw"), time_column="at")

    @task
    def price(ctx):
        from pyspark.sql import functions as f
        each = int((ROOT / f"price-{ctx.interval.start:%Y-%m-%d}").read_text())
        raw = ctx.spark.read.format("delta").load(str(ROOT / "raw")).where(ctx.in_interval("at"))
        ctx.write(raw.withColumn("cents", f.col("pieces") * each), str(ROOT / "priced"), time_column="at")

    @task(depends_on_past=True)
    def total(ctx):
        from pyspark.sql import functions as f
        priced = ctx.spark.read.format("delta").load(str(ROOT / "priced")).where(ctx.in_interval("at"))
        ctx.write(priced.groupBy("at").agg(f.sum("cents").alias("cents")), str(ROOT / "totals"), time_column="at")

    load() >> price() >> total()
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "orders.py").write_text(DAG_FILE.replace("FOLDER", str(tmp_path)))
    for n in (1, 2, 4):
        deliver(tmp_path, n)
    return Settings(
        state=str(tmp_path / "state"),
        bundles=[BundleSettings(name="tests", path=str(tmp_path / "bundle"), fetch_interval=0.2)],
    )


def deliver(folder: Path, n: int) -> None:
    """The price of the `n`-th of March arrives."""
    (folder / f"price-2024-03-0{n}").write_text(str(n * 10))


def ask_for(first: int, last: int, **result: object) -> CreateBackfill:
    return CreateBackfill(
        dag_id="orders", start_date=FIRST + (first - 1) * DAY, end_date=FIRST + (last - 1) * DAY, **result
    )  # type: ignore[arg-type]


def items(store: Store, backfill_id: str) -> list[BackfillItem]:
    return store.read(BackfillItem, [Condition("backfill_id", "=", backfill_id)], order_by=["ordinal"])


def dry_run(store: Store, ask: CreateBackfill) -> dict[str, Any]:
    payload = {"backfill_id": "dry", "ask": ask.to_payload()}
    submitted = submit.submit(store, SystemClock(), request_kinds.BACKFILL_DRY_RUN, payload).request_id
    (result,) = wait_for(lambda: store.read(Response, [Condition("request_id", "=", submitted)]))
    found: dict[str, Any] = json.loads(result.payload_json)
    return found


def tasks(store: Store) -> dict[tuple[str, str], TaskInstance]:
    return {(ti.run_id, ti.task_id): ti for ti in store.read(TaskInstance)}


def test_what_failed_runs_again_in_its_own_run_and_what_had_succeeded_does_not(
    manager: Callable[[], Store], spark: SparkSession, tmp_path: Path
) -> None:
    store = manager()
    chosen = dry_run(store, ask_for(1, 3, tasks="^price$"))["summary"]
    assert (chosen["pending"], chosen["tasks"]) == (3, ["load", "price"]), "what runs is named before anything does"
    request(store, ask_for(1, 3), "first")
    assert ended(store, "first").state == s.FAILED
    assert [item.state for item in items(store, "first")] == [s.SUCCESS, s.SUCCESS, s.FAILED]
    request(store, ask_for(4, 4, ignore_first_depends_on_past=False), "waits")
    assert ended(store, "waits").state == s.FAILED, "its first item waits for a day that has failed"
    (waits,) = items(store, "waits")
    assert "deadlock: task 'total' of run backfill__2024-03-04" in (waits.reason or "")
    before = tasks(store)
    assert [before[OF_DAY[2], name].state for name in ("load", "price", "total")] == [
        s.SUCCESS, s.FAILED, s.UPSTREAM_FAILED,
    ]  # fmt: skip

    deliver(tmp_path, 3)
    again = ask_for(1, 4, reprocess="failed_tasks")
    planned = dry_run(store, again)
    assert [(one["state"], one["run_id"]) for one in planned["items"]] == [
        (s.SKIPPED, None), (s.SKIPPED, None), (s.PENDING, OF_DAY[2]), (s.PENDING, OF_DAY[3]),
    ]  # fmt: skip
    assert planned["summary"]["reruns"]["runs"] == planned["summary"]["runs"] == 2
    request(store, again, "again")
    assert ended(store, "again").state == s.SUCCESS

    assert [(item.state, item.reason, item.run_id) for item in items(store, "again")] == [
        (s.SKIPPED, "already exists", None), (s.SKIPPED, "already exists", None),
        (s.SUCCESS, None, OF_DAY[2]), (s.SUCCESS, None, OF_DAY[3]),
    ]  # fmt: skip
    runs = store.read(DagRun, order_by=["logical_date"])
    assert [(run.run_id, run.state, run.backfill_id) for run in runs] == [
        (OF_DAY[0], s.SUCCESS, "first"), (OF_DAY[1], s.SUCCESS, "first"),
        (OF_DAY[2], s.SUCCESS, "again"), (OF_DAY[3], s.SUCCESS, "again"),
    ]  # fmt: skip
    after = tasks(store)
    assert {ti.state for ti in after.values()} == {s.SUCCESS}
    changed = {key for key in after if after[key] != before[key]}
    assert changed == {(OF_DAY[2], "price"), (OF_DAY[2], "total"), (OF_DAY[3], "total")}, "nothing else was started"
    tries = [
        (one.try_number, one.state)
        for one in store.read(TaskTry, order_by=["launch"])
        if (one.run_id, one.task_id) == (OF_DAY[2], "price")
    ]
    assert tries == [(1, s.FAILED), (2, s.SUCCESS)]

    totals = spark.read.format("delta").load(str(tmp_path / "totals"))
    expected = spark.createDataFrame(
        [(FIRST + (n - 1) * DAY, 30 * n) for n in range(1, 5)], "at timestamp, cents bigint"
    )
    assert_df_equality(totals, expected, ignore_row_order=True, ignore_nullable=True)
    assert runs_that_wrote(spark, tmp_path / "raw") == sorted(OF_DAY), "each day is loaded once"
    assert runs_that_wrote(spark, tmp_path / "priced") == runs_that_wrote(spark, tmp_path / "totals") == sorted(OF_DAY)
