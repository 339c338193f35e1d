"""A day whose task waits for a table of somebody else, a file and a query, under two managers one after the other. Manager,
state, Spark and storage are real."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.manager_process import ended, request, rows_in, wait_for

from backfill_manager.clock import UTC
from backfill_manager.model import states as s
from backfill_manager.model.records import DagRun
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.settings import BundleSettings, Settings
from backfill_manager.store.base import Condition

DAG_FILE = """
dag_id: orders
schedule: "@daily"
start_date: 2024-03-01
tasks:
  load:
    sql: SELECT :interval_start AS at
    into: FOLDER/out
    time_column: at
    waits_for:
      - {rows: FOLDER/orders, time_column: at}
      - file: FOLDER/{interval_start:%Y-%m-%d}/_SUCCESS
      - condition: SELECT count(*) > 0 FROM delta.`FOLDER/orders` WHERE closed AND at >= :interval_start
"""
DAY = datetime(2024, 3, 1, tzinfo=UTC)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "orders.dag.yaml").write_text(DAG_FILE.replace("FOLDER", str(tmp_path)))
    return Settings.model_validate({
        "state": str(tmp_path / "state"), "limits": {"wait_interval": 1},
        "bundles": [BundleSettings(name="tests", path=str(tmp_path / "bundle"), fetch_interval=0.2)],
    })  # fmt: skip


def test_it_starts_once_all_is_there(
    start_and_stop: tuple[Callable[[], object], Callable[[], None]], settings: Settings, spark: SparkSession, tmp_path: Path
) -> None:  # fmt: skip
    from backfill_manager.store import open_store

    start, stop = start_and_stop
    start()
    store = open_store(settings.state)
    request(store, CreateBackfill(dag_id="orders", start_date=DAY, end_date=DAY), "b")

    def reason(text: str) -> bool:
        runs = store.read(DagRun, [Condition("backfill_id", "=", "b")])  # the schedule has runs of its own
        return bool(runs) and text in (runs[0].reason or "")

    wait_for(lambda: reason(f"waits for {tmp_path}/orders: table not found, looked at "))
    wait_for(lambda: reason("condition SELECT count(*) > 0"))
    stop()
    start()
    orders, load = str(tmp_path / "orders"), "SELECT TIMESTAMP'2024-03-01 10:00:00' AS at, {} AS closed"
    spark.sql(load.format("false")).write.format("delta").save(orders)
    wait_for(lambda: reason(f"waits for {tmp_path}/2024-03-01/_SUCCESS, condition"))
    (tmp_path / "2024-03-01").mkdir()
    (tmp_path / "2024-03-01" / "_SUCCESS").touch()
    wait_for(lambda: reason("waits for condition"))
    spark.sql(load.format("true")).write.format("delta").mode("append").save(orders)
    assert ended(store, "b").state == s.SUCCESS
    assert rows_in(tmp_path / "out", "t", "SELECT count(*) FROM t") == [(1,)]
