"""Looks at real tables, files and queries: what is there, what is not, and what nobody can say."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from backfill_manager import condition, file, rows
from backfill_manager.clock import UTC
from backfill_manager.errors import InvalidInput
from backfill_manager.execution.inputs.wait_checks import (
    look_for_condition,
    look_for_file,
    look_for_rows,
    wait_checks_of_plan,
)
from backfill_manager.planning.data.wait_conditions import WaitCheck
from backfill_manager.store.data_tables import file_values
from backfill_manager.testing import days

DAY = days("2024-01-02", 1)[0]
NEW_YORK = "America/New_York"


@pytest.fixture(scope="module")
def orders(spark: SparkSession) -> Iterator[str]:
    """Two rows on the 2nd, of 20:00 and 23:00, and one at noon of the 3rd, in files of their own."""
    spark.sql("CREATE SCHEMA IF NOT EXISTS partner")
    spark.sql("CREATE TABLE partner.orders (at TIMESTAMP, ntz TIMESTAMP_NTZ, day DATE, id STRING) USING delta")
    for times in (("2024-01-02 20:00:00", "2024-01-02 23:00:00"), ("2024-01-03 12:00:00",)):
        values = ", ".join(f"(TIMESTAMP'{t}', TIMESTAMP_NTZ'{t}', DATE'{t[:10]}', '{t}')" for t in times)
        spark.sql(f"INSERT INTO partner.orders SELECT /*+ COALESCE(1) */ * FROM VALUES {values}")
    yield "partner.orders"
    spark.sql("DROP SCHEMA partner CASCADE")


def at(table: str, day: int, column: str = "at", timezone: str = "UTC", **more: Any) -> WaitCheck:
    start = DAY[0] + timedelta(days=day - 2)
    return WaitCheck(rows(table, time_column=column, **more), start, start + timedelta(days=1), None, timezone)


def test_rows_of_intervals_by_the_log_of_a_table(spark: SparkSession, orders: str) -> None:
    by_path = str(spark.conf.get("spark.sql.warehouse.dir")) + "/partner.db/orders"
    for table in (orders, by_path):
        wanted = [
            at(table, 1),
            at(table, 2),
            at(table, 2, at_least=2),
            at(table, 2, at_least=3),
            at(table, 3),
            at(table, 4),
        ]
        spark.sparkContext.setJobGroup(f"look {table}", "look")
        found = look_for_rows(spark, wanted)
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
        assert [found[look] for look in wanted] == [False, True, True, False, True, False]
    assert not spark.sparkContext.statusTracker().getJobIdsForGroup(f"look {by_path}"), "its log says enough"


def test_columns_of_each_type_are_of_the_zone_of_the_dag(spark: SparkSession, orders: str) -> None:
    """Midnight of New York is 05:00 in UTC: its 2nd has the rows of 20:00 and 23:00, whose readings are of the 2nd, too."""
    start = datetime(2024, 1, 3, 5, tzinfo=UTC)
    for column in ("at", "ntz", "day"):
        wait = rows(orders, time_column=column)
        looks = [
            WaitCheck(wait, start + timedelta(days=n), start + timedelta(days=n + 1), None, NEW_YORK)
            for n in (-1, 0, 1)
        ]
        found = look_for_rows(spark, looks)
        assert [found[look] for look in looks] == [True, True, False], column


def test_an_interval_in_which_the_column_has_no_value_waits_for_no_row(spark: SparkSession, orders: str) -> None:
    """In New York one o'clock of November 3rd comes twice; a reading of it is of the second hour, a date of the midnight."""
    midnight = datetime(2024, 11, 3, 4, tzinfo=UTC)

    def hours(column: str) -> list[bool | str]:
        wait = rows(orders, time_column=column)
        starts = [midnight + timedelta(hours=n) for n in range(4)]
        looks = [WaitCheck(wait, start, start + timedelta(hours=1), None, NEW_YORK) for start in starts]
        found = look_for_rows(spark, looks)
        return [found[look] for look in looks]

    assert hours("at") == [False, False, False, False]
    assert hours("ntz") == [False, True, False, False]
    assert hours("day") == [False, True, True, True]


def test_what_the_log_leaves_open_is_counted(spark: SparkSession, orders: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of the 2nd lies across 22:00."""
    half = DAY[0] + timedelta(hours=22)
    wait = rows(orders, time_column="at")
    looks = [
        WaitCheck(wait, DAY[0], half),
        WaitCheck(wait, half, DAY[1]),
        WaitCheck(wait, half + timedelta(minutes=1), half + timedelta(minutes=2)),
    ]
    by_values = look_for_rows(spark, looks, may_count=False)
    monkeypatch.setattr(file_values, "MAX_ROWS", 0)
    assert not look_for_rows(spark, looks, may_count=False)
    by_spark = look_for_rows(spark, looks)
    assert [[found[look] for look in looks] for found in (by_values, by_spark)] == [[True, True, False]] * 2


def test_a_table_that_is_not_there_and_others_that_say_nothing(
    spark: SparkSession, orders: str, tmp_path: Path
) -> None:
    def found(look: WaitCheck) -> bool | str:
        return look_for_rows(spark, [look])[look]

    assert found(at("partner.nothing", 2)) == found(at("nowhere.orders", 2)) == "table not found"
    assert found(at(str(tmp_path / "gone"), 2)) == "table not found"
    assert "'id' is string" in str(found(at(orders, 2, "id")))
    assert "'when' is not there" in str(found(at(orders, 2, "when")))
    assert found(WaitCheck(rows(orders, time_column="at"))) == "the run has no interval"
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.csv").write_text("1")
    assert "no Delta table" in str(found(at(str(tmp_path / "files"), 2)))
    spark.sql("CREATE TABLE partner.plain USING parquet AS SELECT 1 AS a")
    with pytest.raises(InvalidInput, match="no Delta table; wait for a condition instead"):
        found(at("partner.plain", 2))
    with pytest.raises(InvalidInput, match="neither a table's name"):
        found(at("a b c; DROP TABLE x", 2))


def test_a_table_that_another_application_makes_later_is_found_in_the_warehouse(
    spark: SparkSession, orders: str
) -> None:
    look = at("partner.late", 2)
    assert look_for_rows(spark, [look]) == {look: "table not found"}
    folder = str(spark.conf.get("spark.sql.warehouse.dir")) + "/partner.db/late"
    spark.sql("SELECT TIMESTAMP'2024-01-02 10:00:00' AS at").write.format("delta").save(folder)
    assert look_for_rows(spark, [look]) == {look: True}


def test_files_and_folders(tmp_path: Path) -> None:
    def found(path: str) -> bool | str:
        return look_for_file(WaitCheck(file(path), path=path))

    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "_SUCCESS").touch()
    (tmp_path / "a b [x]").touch()
    for there in ("in/_SUCCESS", "in", "a b [x]"):
        assert found(f"{tmp_path}/{there}") is True and found(f"file://{tmp_path}/{there}") is True
    assert found(f"{tmp_path}/out/_SUCCESS") is False and found(f"{tmp_path}/in/_SUCCESS/x") is False
    assert look_for_file(WaitCheck(file("/in/{interval_start:%Y}"))) == "the run has no interval"
    assert "xyz" in str(found("xyz://bucket/x"))
    assert "characters" in str(found("s3://bucket/[x]"))


def test_a_dry_run_looks_for_rows_by_logs_and_for_files(
    spark: SparkSession, orders: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").touch()
    half = WaitCheck(rows(orders, time_column="at"), DAY[0] + timedelta(hours=22), DAY[1])
    files = [WaitCheck(file("/x"), path=str(tmp_path / name)) for name in ("here", "there")]
    looks = [
        at(orders, 2),
        at(orders, 4),
        half,
        at("partner.nothing", 2),
        *files,
        WaitCheck(condition("SELECT true"), *DAY),
    ]
    found = {looks[0]: True, looks[1]: False, looks[3]: "table not found", files[0]: True, files[1]: False}
    assert wait_checks_of_plan(spark)(looks) == {**found, half: True}
    monkeypatch.setattr(file_values, "MAX_ROWS", 0)
    assert wait_checks_of_plan(spark)(looks) == found, "half a file is not known"


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("SELECT count(*) > 1 FROM partner.orders WHERE day = :interval_start;", True),
        ("SELECT count(*) > 2 FROM partner.orders WHERE at >= :interval_start AND at < :interval_end", False),
        ("SELECT day = :logical_date FROM partner.orders WHERE id = 'nothing'", False),
        ("SELECT NULL", False),
        ("WITH x AS (SELECT true AS a) SELECT a FROM x", True),
        ("SELECT count(*) FROM partner.orders", "it gives bigint, where one value, true or false, is wanted"),
        ("SELECT true, false", "it gives boolean, boolean, where"),
        ("SELECT day > '2024-01-01' FROM partner.orders", "it gives more than one row"),
        ("SELECT :partition_key = 'a'", "it uses :partition_key, which the run does not have; it has :interval_end"),
    ],
)
def test_what_a_condition_says(spark: SparkSession, orders: str, query: str, found: bool | str) -> None:
    answer = look_for_condition(spark, WaitCheck(condition(query), *DAY))
    assert answer == found or (isinstance(found, str) and str(answer).startswith(found))


def test_a_condition_of_a_partition_whose_key_is_a_value(spark: SparkSession) -> None:
    key = "a' OR '1'='1"
    assert look_for_condition(spark, WaitCheck(condition("SELECT :partition_key = 'a'"), partition_key=key)) is False
    assert (
        look_for_condition(spark, WaitCheck(condition("SELECT length(:partition_key) = 12"), partition_key=key)) is True
    )


@pytest.mark.parametrize(
    "query",
    [
        "INSERT INTO partner.orders TABLE partner.orders", "WITH x AS (SELECT 1) INSERT INTO partner.orders SELECT * FROM x",
        "FROM partner.orders INSERT INTO partner.orders SELECT *", "DROP TABLE partner.orders", "SELECT * FROM partner.none",
    ],
)  # fmt: skip
def test_a_condition_changes_nothing(spark: SparkSession, orders: str, query: str) -> None:
    before = spark.table(orders).count()
    with pytest.raises(PySparkException):
        look_for_condition(spark, WaitCheck(condition(query), *DAY))
    assert spark.table(orders).count() == before
