"""The tables that a try has read and written are reported with its end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession
from support.executor_fixture import TaskRunner, a_launch

from backfill_manager import condition
from backfill_manager.execution.inputs.wait_checks import look_for_condition
from backfill_manager.execution.lineage.table_access import TableAccesses
from backfill_manager.execution.messages import AccessedTable, Failed, Succeeded, TaskEnded, TaskLaunch
from backfill_manager.execution.spark.catalog import warehouse
from backfill_manager.planning.data.wait_conditions import WaitCheck


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> str:
    """A Delta table with two versions, by its path."""
    path = str(tmp_path / "source")
    for _ in range(2):
        spark.range(3).selectExpr("id", "TIMESTAMP'2013-01-01 12:00:00Z' AS at").write.format("delta").mode(
            "append"
        ).save(path)
    return path


@pytest.fixture
def named(spark: SparkSession, source: str) -> Any:
    """The same table as `bronze.events`, and a view over it."""
    spark.sql("CREATE SCHEMA bronze")
    spark.sql(f"CREATE TABLE bronze.events USING delta LOCATION '{source}'")
    spark.sql("CREATE VIEW bronze.seen AS SELECT * FROM bronze.events")
    yield "bronze.events"
    spark.sql("DROP SCHEMA bronze CASCADE")


def tables_of(
    runner: TaskRunner, launch: TaskLaunch, function: Callable[[Any], Any] | None = None
) -> list[AccessedTable]:
    outcome = runner.run(launch, function)
    assert isinstance(outcome, Succeeded), outcome
    return reported(runner, launch)


def reported(runner: TaskRunner, launch: TaskLaunch) -> list[AccessedTable]:
    return [replace(one, table_id=None) for one in with_ids(runner, launch)]


def with_ids(runner: TaskRunner, launch: TaskLaunch) -> tuple[AccessedTable, ...]:
    (end,) = (e for e in runner.recorder.events if isinstance(e, TaskEnded) and e.key == launch.key)
    return end.tables


def read(path: str, version: int | None = 1, name: str | None = None) -> AccessedTable:
    return AccessedTable("read", name, f"file:{path}", version)


def sizes_of_new_files(spark: SparkSession, path: str, version: int) -> int:
    log = spark.read.json(f"{path}/_delta_log/{version:020d}.json")
    return int(log.selectExpr("sum(add.size)").first()[0])


def test_a_write_and_what_it_was_made_of(runner: TaskRunner, source: str, tmp_path: Path) -> None:
    target = str(tmp_path / "target")

    def work(ctx: Any) -> None:
        rows = ctx.spark.read.format("delta").load(source)
        ctx.write(rows.where(ctx.in_interval("at")), target, time_column="at")

    written = AccessedTable("write", None, f"file:{target}", 1, 6, None, None, "at")
    first, second = tables_of(runner, a_launch(), work)
    ids = [row["id"] for path in (source, target) for row in runner.spark.sql(f"DESCRIBE DETAIL '{path}'").collect()]
    assert [one.table_id for one in with_ids(runner, a_launch())] == ids
    assert (first, second.bytes) == (read(source), sizes_of_new_files(runner.spark, target, 1))
    assert second == AccessedTable(**{**vars(written), "bytes": second.bytes})
    again = tables_of(runner, a_launch(launch=2), work)
    assert again == [read(source), AccessedTable("write", None, f"file:{target}")], "it was written by the try before"


def test_ways_to_read(runner: TaskRunner, named: str, source: str, tmp_path: Path) -> None:
    runner.spark.range(2).write.parquet(str(tmp_path / "plain"))
    plain, table = str(tmp_path / "plain"), read(source, name=named)

    def found(function: Callable[[Any], Any]) -> list[AccessedTable]:
        return tables_of(runner, a_launch(run_id=f"run {len(runner.recorder.events)}"), function)

    assert found(lambda ctx: ctx.spark.table("bronze.events").count()) == [table]
    assert found(lambda ctx: ctx.spark.table("bronze.seen").count()) == [table]
    assert found(lambda ctx: ctx.spark.read.table("bronze.events").count()) == [table]
    assert found(lambda ctx: ctx.spark.read.option("versionAsOf", 0).table("bronze.events").count()) == [
        read(source, 0, named)
    ]
    assert found(lambda ctx: ctx.spark.sql("SELECT * FROM bronze.events VERSION AS OF 0").count()) == [
        read(source, 0, named)
    ]
    assert found(lambda ctx: ctx.spark.read.parquet(plain).count()) == [read(plain, None)]
    subquery = f"SELECT * FROM parquet.`{plain}` WHERE id IN (SELECT id FROM bronze.events)"
    assert found(lambda ctx: ctx.spark.sql(subquery).count()) == [read(plain, None), table]
    for name in ("a.json", "b.json"):
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / name).write_text('{"id": 1}\n')
    deliveries = read(str(tmp_path / "in"), None)
    files = [f"{tmp_path}/in/a.json", f"{tmp_path}/in/b.json"]
    assert found(lambda ctx: ctx.spark.read.schema("id INT").json(files).count()) == [deliveries], (
        "files are in a folder"
    )
    assert found(lambda ctx: ctx.spark.read.json(f"{tmp_path}/in/*.json").count()) == [deliveries]
    assert found(lambda ctx: ctx.spark.read.json(f"{tmp_path}/in").count()) == [deliveries]
    assert found(lambda ctx: ctx.spark.range(3).count()) == []

    def by_delta_table(ctx: Any) -> int:
        from delta.tables import DeltaTable

        return int(DeltaTable.forPath(ctx.spark, source).toDF().count())

    assert found(by_delta_table) == [read(source)]


def test_tables_that_another_program_makes_in_the_warehouse_are_found(runner: TaskRunner) -> None:
    """Nobody registers them in the catalog of this Spark."""
    spark = runner.spark
    folder = Path(warehouse(spark).removeprefix("file:"))

    def made(name: str, place: str) -> AccessedTable:
        write_deltalake(str(folder / place), pa.table({"id": [1, 2]}))
        return read(str(folder / place), 0, f"default.{name}" if place == name else name)

    def found(function: Callable[[Any], Any]) -> list[AccessedTable]:
        return tables_of(runner, a_launch(run_id=f"run {len(runner.recorder.events)}"), function)

    table = made("made_1", "made_1")
    assert found(lambda ctx: ctx.spark.table("made_1").count()) == [table]
    table = made("elsewhere.made_2", "elsewhere.db/made_2")
    assert found(lambda ctx: ctx.spark.read.table("elsewhere.made_2").count()) == [table]
    table = made("made_3", "made_3")
    made("elsewhere.made_7", "elsewhere.db/made_7")
    joined = "SELECT * FROM made_3 WHERE id IN (SELECT id FROM spark_catalog.elsewhere.made_7)"
    assert table in found(lambda ctx: ctx.spark.sql(joined).count())
    table = made("made_4", "made_4")
    assert tables_of(runner, a_launch(kind="sql", sql="SELECT * FROM made_4")) == [table]
    made("made_5", "made_5")
    assert look_for_condition(spark, WaitCheck(condition("SELECT count(*) = 2 FROM made_5"))) is True
    made("made_6", "made_6")
    script = (
        f"BEGIN INSERT INTO delta.`{folder}/made_1` VALUES (3); INSERT INTO delta.`{folder}/made_1` TABLE made_6; END"
    )
    failed = runner.run(a_launch(run_id="script"), lambda ctx: ctx.spark.sql(script))
    assert isinstance(failed, Failed) and failed.retryable and "made_6" in failed.error
    assert spark.table("made_1").count() == 3, "what has run is not repeated"
    assert found(lambda ctx: ctx.spark.table("made_6").count()) == [read(str(folder / "made_6"), 0, "default.made_6")]
    for name in ("made_1", "elsewhere.made_2", "made_3", "made_4", "made_5", "made_6", "elsewhere.made_7"):
        spark.sql(f"DROP TABLE {name}")
    spark.sql("DROP SCHEMA elsewhere")


@pytest.mark.parametrize(
    "sql, version, rows",
    [
        ("INSERT INTO bronze.made SELECT id FROM bronze.events", 1, 6),
        (
            "MERGE INTO bronze.made t USING (SELECT DISTINCT id FROM bronze.events) s ON t.id = s.id "
            "WHEN NOT MATCHED THEN INSERT *", 1, 3,
        ),
        ("INSERT OVERWRITE bronze.made SELECT DISTINCT id FROM bronze.seen", 1, 3),
        ("CREATE OR REPLACE TABLE bronze.made USING delta AS SELECT id FROM bronze.events", 1, 6),
    ],
)  # fmt: skip
def test_statements_of_sql(runner: TaskRunner, named: str, source: str, sql: str, version: int, rows: int) -> None:
    runner.spark.sql("CREATE TABLE bronze.made (id BIGINT) USING delta")
    tables = tables_of(runner, a_launch(kind="sql", sql=sql))
    (written,) = (one for one in tables if one.access == "write")
    assert read(source, name=named) in tables
    assert (written.name, written.version, written.rows) == ("bronze.made", version, rows)
    assert written.path is not None and written.path.endswith("/bronze.db/made")
    assert {one.name for one in tables if one.access == "read"} <= {named, "bronze.made"}


def test_a_query_of_sql_into_a_table(runner: TaskRunner, named: str, source: str) -> None:
    launch = a_launch(kind="sql", sql="SELECT * FROM bronze.events", into="bronze.copy", mode="append")
    first, second = tables_of(runner, launch)
    assert first == read(source, name=named)
    assert (second.access, second.name, second.version, second.rows) == ("write", "bronze.copy", 1, 6)


def test_a_try_that_fails_has_read_too(runner: TaskRunner, source: str) -> None:
    def fails(ctx: Any) -> None:
        ctx.spark.read.format("delta").load(source)
        raise ValueError("after all")

    launch = a_launch()
    assert isinstance(runner.run(launch, fails), Failed)
    assert reported(runner, launch) == [read(source)]


@pytest.mark.bench
def test_share_of_a_tasks_time(runner: TaskRunner, source: str, tmp_path: Path) -> None:
    """Prints what recording takes of a task that reads a table and appends its rows to another, twenty times."""

    def work(ctx: Any) -> dict[str, float]:
        begun = time.perf_counter()
        for _ in range(20):
            rows = ctx.spark.read.format("delta").load(source)
            ctx.write(rows, str(tmp_path / "target"), mode="append")
        took, accesses = time.perf_counter() - begun, TableAccesses()
        begun = time.perf_counter()
        for _ in range(20):
            accesses.read_by(rows)
        return {"task_s": took, "recording_s": time.perf_counter() - begun}

    outcome = runner.run(a_launch(), work)
    assert isinstance(outcome, Succeeded) and outcome.result_json
    figures = json.loads(outcome.result_json)
    print(f"\n{figures}: {figures['recording_s'] / figures['task_s']:.2%}")


def test_a_query_whose_plan_can_not_be_read_is_logged_and_fails_nobody(caplog: pytest.LogCaptureFixture) -> None:
    class Unreadable:
        @property
        def _jdf(self) -> Any:
            raise IllegalArgumentException("no such version\nat line 1")

    accesses = TableAccesses()
    accesses.read_by(Unreadable())  # type: ignore[arg-type]
    assert accesses.all() == ()
    assert [line for line in caplog.messages if "no such version" in line and "\n" not in line]
