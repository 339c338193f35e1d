"""Rows of intervals, counted by Spark, against rows in a list; and tables whose logs do not tell them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from backfill_manager.clock import micros
from backfill_manager.execution.inputs.interval_rows import rows_counter
from backfill_manager.planning.data.data_gaps import Axis, rows_in
from backfill_manager.store.data_tables import table_log
from backfill_manager.store.data_tables.file_values import counted_in_files
from backfill_manager.store.data_tables.table_log import read_table_log

HOUR = 3_600_000_000
JANUARY = micros(datetime(2013, 1, 1, tzinfo=timezone.utc))


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> str:
    """Fifty rows, seven hours apart, in one file; deletion vectors are on, and rows 3 and 4 are behind one."""
    path = str(tmp_path / "t")
    rows = spark.range(50).coalesce(1).selectExpr(
        "id", "TIMESTAMP'2013-01-01 00:00:00Z' + make_dt_interval(0, int(id) * 7) AS at",
        "TIMESTAMP_NTZ'2013-01-01 00:00:00' + make_dt_interval(0, int(id) * 7) AS ntz",
        "DATE'2013-01-01' + int(id * 7 / 24) AS the_day",
    )  # fmt: skip
    rows.write.format("delta").option("delta.enableDeletionVectors", "true").save(path)
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id IN (3, 4)")
    return path


def read_from_files(path: str, column: str, kind: str, axis: Axis) -> Any:
    log = read_table_log(path, column, None, None)
    return counted_in_files(path, log.files, log.name_in_files, kind, axis.starts, axis.ends)


def test_rows_of_intervals_of_any_length_with_gaps_between_them(spark: SparkSession, table: str) -> None:
    ends = [(0, 1), (1, 8), (14, 21), (21, 22), (48, 200), (300, 343), (343, 344), (400, 500)]
    axis = Axis(*(JANUARY + HOUR * np.array(side, np.int64) for side in zip(*ends, strict=True)))
    hours = [n * 7 for n in range(50) if n not in (3, 4)]
    expected = [sum(low <= hour < high for hour in hours) for low, high in ends]
    for count in (rows_counter(spark), read_from_files):
        for column, kind in (("at", "timestamp"), ("ntz", "timestamp_ntz")):
            counted = count(table, column, kind, axis)
            assert counted is not None and counted.tolist() == expected, kind
    days = Axis(*(JANUARY + 24 * HOUR * np.array(side, np.int64) for side in ([0, 1, 1, 5], [1, 1, 3, 6])))
    expected = [sum(low <= hour // 24 < high for hour in hours) for low, high in ((0, 1), (1, 1), (1, 3), (5, 6))]
    for count in (rows_counter(spark), read_from_files):
        counted = count(table, "the_day", "date", days)
        assert counted is not None and counted.tolist() == expected


def test_what_the_log_does_not_tell_is_what_is_counted(
    spark: SparkSession, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    axis = Axis(np.array([JANUARY]), np.array([JANUARY + 1000 * HOUR]))
    log = read_table_log(table, "at", 0, None)
    rows = rows_in(axis, log.files)
    assert (rows.n.tolist(), rows.is_exact.tolist()) == ([48], [True]), "two of its rows are behind a deletion vector"
    assert log.changes.is_placed.all() and (log.changes.past > log.changes.first).all()
    counted = rows_counter(spark)(table, "at", "timestamp", axis)
    assert counted is not None and counted.tolist() == [48]
    monkeypatch.setattr(table_log, "MAX_DELETION_ROWS", 49)
    assert not rows_in(axis, read_table_log(table, "at", 0, None).files).is_exact.any(), "too many to look at"


def test_columns_of_other_names_in_the_files(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "mapped")
    spark.sql(
        f"CREATE TABLE delta.`{path}` (at TIMESTAMP) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (TIMESTAMP'2013-01-01 00:30:00Z')")
    spark.sql(f"ALTER TABLE delta.`{path}` RENAME COLUMN at TO `at then`")
    log = read_table_log(path, "At Then", 0, None)
    assert (log.problem, log.why_unknown, log.kind) == (None, None, "timestamp")
    rows = rows_in(Axis(np.array([JANUARY]), np.array([JANUARY + HOUR])), log.files)
    assert (rows.n.tolist(), rows.is_exact.tolist()) == ([1], [True])
    assert log.changes.version.tolist() == [1] and log.changes.is_placed.all()
    minutes = Axis(*(JANUARY + HOUR // 2 * np.array(side, np.int64) for side in ([0, 1], [1, 2])))
    counted = read_from_files(path, "at then", "timestamp", minutes)
    assert counted is not None and counted.tolist() == [0, 1]


def test_a_table_that_spark_can_not_read_is_logged(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    axis = Axis(np.array([0]), np.array([timedelta(days=1) // timedelta(microseconds=1)]))
    assert rows_counter(spark)(str(tmp_path / "gone"), "at", "timestamp", axis) is None
    assert "rows can't be counted" in caplog.text
