"""Writes of whole tables and by keys: `mode="overwrite"`, `schema="merge"`, `ctx.merge`. They land once, as the writes of
tests/execution/test_exactly_once_writer.py do, and say in one line what is wrong with a call."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.executor_fixture import PATIENCE, TaskRunner, a_launch, again, day, outlive_the_stop, rows_of, version_of

from backfill_manager.execution.messages import Cancelled, Failed, Succeeded
from backfill_manager.execution.output.output_table import OutputTable
from backfill_manager.execution.output.table_turns import PROCESS_TURNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def frame(ctx: Any, *rows: tuple[int, str], columns: str = "id INT, name STRING") -> DataFrame:
    result: DataFrame = ctx.spark.createDataFrame(list(rows), columns)
    return result


def overwrites(table: str, *rows: tuple[int, str], **how: Any) -> Callable[[Any], Any]:
    return lambda ctx: ctx.write(frame(ctx, *rows), table, mode="overwrite", **how)


def merges(table: str, *rows: tuple[int, str], **how: Any) -> Callable[[Any], Any]:
    return lambda ctx: ctx.merge(frame(ctx, *rows), table, **({"on": ["id"]} | how))


def operations(spark: SparkSession, table: str) -> list[str]:
    """Of the commits that a task made, newest first."""
    history = (
        spark.sql(f"DESCRIBE HISTORY {table}").where("userMetadata IS NOT NULL").orderBy("version", ascending=False)
    )
    return [row["operation"] for row in history.collect()]


EVERY_KIND: list[dict[str, Any]] = [
    {}, {"interval": (day(1), day(1))}, {"interval": (day(1), day(31))}, {"interval": None, "partition": "north"}
]  # fmt: skip


@pytest.mark.parametrize("run", EVERY_KIND, ids=["scheduled", "by hand", "single", "partition"])
def test_overwrite_replaces_the_whole_table_whatever_run_it_is(
    runner: TaskRunner, table: str, run: dict[str, Any]
) -> None:
    assert runner.run(a_launch(interval=(day(5), day(6))), overwrites(table, (1, "a"), (2, "b"))) == Succeeded("2")
    launch = a_launch(run_id="this one", **run)
    assert runner.run(launch, overwrites(table, (3, "c"))) == Succeeded("1")
    assert rows_of(runner.spark, table) == [(3, "c")]
    assert runner.recorder.rows_of(launch) == 1
    assert f"1 row into {table}" in runner.log_of(launch)

    landed = version_of(runner.spark, table)  # the manager died before it heard of that
    assert runner.run(again(launch), overwrites(table, (4, "d"))) == Succeeded(None)
    assert version_of(runner.spark, table) == landed
    assert runner.run(again(again(launch), generation=1), overwrites(table, (5, "e"))) == Succeeded("1")
    assert rows_of(runner.spark, table) == [(5, "e")]


def test_overwrite_keeps_what_else_the_table_is(runner: TaskRunner, table: str) -> None:
    runner.spark.sql(
        f"CREATE TABLE {table} (part INT, id INT, name STRING) USING delta PARTITIONED BY (part) "
        "TBLPROPERTIES ('of.mine' = 'yes')"
    )
    write = lambda ctx: ctx.write(frame(ctx, (1, "a"), columns="part INT, name STRING"), table, mode="overwrite")  # noqa: E731
    assert runner.run(a_launch(), write) == Succeeded("1")
    assert rows_of(runner.spark, table) == [(1, None, "a")]
    detail = runner.spark.sql(f"DESCRIBE DETAIL {table}").collect()[0]
    assert detail["partitionColumns"] == ["part"] and detail["properties"]["of.mine"] == "yes"


@pytest.mark.parametrize("by", ["name", "path"])
@pytest.mark.parametrize(
    "how", [{"mode": "overwrite"}, {"schema": "merge"}], ids=["overwrite", "replace all, new column"]
)
def test_a_table_that_is_written_whole_stays_clustered(
    runner: TaskRunner, table: str, by: str, how: dict[str, Any], tmp_path: Path
) -> None:
    spark, columns = runner.spark, ["s.`a b`", "id"]
    spark.sql(
        f"CREATE TABLE {table} (id INT, s STRUCT<`a b`: INT>) USING delta CLUSTER BY ({', '.join(columns)}) "
        f"LOCATION '{tmp_path}/clustered' TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    target, row = f"{tmp_path}/clustered" if by == "path" else table, "SELECT 1 AS id, named_struct('a b', 2) AS s"
    row += ", 'x' AS new" if "schema" in how else ""
    write = lambda ctx: ctx.write(ctx.spark.sql(row), target, **how)  # noqa: E731
    for run_id in ("first", "second"):
        assert runner.run(a_launch(run_id=run_id, interval=None), write) == Succeeded("1")
    state = OutputTable(spark, target).read()
    assert state.clustering == columns and spark.table(table).count() == 1
    like = OutputTable(spark, f"{tmp_path}/like")
    like.create(state.schema, state)
    assert like.read().clustering == columns


def test_a_merge_updates_the_keys_that_are_there_and_inserts_the_others(runner: TaskRunner, table: str) -> None:
    first, second = a_launch(run_id="first"), a_launch(run_id="second")
    assert runner.run(first, merges(table, (1, "a"), (2, "b"))) == Succeeded("2")
    assert runner.run(second, merges(table, (2, "B"), (3, "C"), (4, "D"))) == Succeeded("3")
    assert rows_of(runner.spark, table) == [(1, "a"), (2, "B"), (3, "C"), (4, "D")]
    assert f"3 rows merged into {table} (2 inserted, 1 updated)" in runner.log_of(second)
    assert runner.recorder.rows_of(second) == 3

    third = a_launch(run_id="third")
    assert runner.run(third, merges(table)) == Succeeded("0")
    assert runner.run(again(third), merges(table, (9, "late"))) == Succeeded(None), (
        "that it has merged nothing, too, lands"
    )


def test_a_merge_that_had_landed_is_not_done_again(runner: TaskRunner, table: str) -> None:
    first, between = a_launch(run_id="first"), a_launch(run_id="between")
    assert runner.run(first, merges(table, (1, "old"))) == Succeeded("1")
    assert runner.run(between, merges(table, (1, "new"))) == Succeeded("1")
    second = again(first, try_number=2)  # done again it would bring back what has been replaced since
    assert runner.run(second, merges(table, (1, "old"), (2, "old"))) == Succeeded(None)
    assert "nothing is written again" in runner.log_of(second) and runner.recorder.rows_of(second) is None
    assert rows_of(runner.spark, table) == [(1, "new")]
    assert operations(runner.spark, table) == ["MERGE", "MERGE"]
    assert runner.run(again(second, generation=1), merges(table, (1, "cleared"))) == Succeeded("1")
    assert rows_of(runner.spark, table) == [(1, "cleared")]


@pytest.mark.parametrize("does", [overwrites, merges])
def test_an_older_generation_that_comes_last_is_refused(runner: TaskRunner, table: str, does: Any) -> None:
    old = a_launch()
    assert runner.run(again(old, generation=1), does(table, (1, "new"))) == Succeeded("1")
    outcome = runner.run(old, does(table, (1, "old")))
    assert isinstance(outcome, Failed) and "was cleared and has written anew" in outcome.error
    assert rows_of(runner.spark, table) == [(1, "new")]


@pytest.mark.parametrize("does", [overwrites, merges])
def test_a_late_one_of_an_abandoned_try_is_refused(
    runner_of: Callable[..., TaskRunner], table: str, does: Callable[..., Any]
) -> None:
    runner = runner_of(grace_s=PATIENCE)  # it is not killed
    begun = runner.signal()

    def too_late(ctx: Any) -> Any:
        outlive_the_stop(begun)
        return does(table, (1, "late"))(ctx)

    late = runner.start(a_launch(), too_late)
    assert begun.wait(PATIENCE)
    assert runner.executor.cancel(late.key, "cancelled by hand")
    assert runner.recorder.outcome(late) == Cancelled("cancelled by hand")
    assert not runner.spark.catalog.tableExists(table)
    assert runner.run(again(late), does(table, (2, "next"))) == Succeeded("1")
    assert rows_of(runner.spark, table) == [(2, "next")]


def test_parallel_merges_of_one_table_take_turns_and_all_land(runner: TaskRunner, table: str) -> None:
    launches = [a_launch(run_id=f"run {n}") for n in range(6)]
    together = runner.barrier(6)

    def all_at_once(ctx: Any) -> None:
        assert together.wait(PATIENCE)
        own = int(ctx.run_id.split()[1])
        ctx.merge(frame(ctx, (own, ctx.run_id), (100, "shared")), table, on="id")

    for launch in launches:
        runner.start(launch, all_at_once)
    assert [runner.recorder.outcome(launch) for launch in launches] == [Succeeded(None)] * 6
    assert rows_of(runner.spark, table) == [*((n, f"run {n}") for n in range(6)), (100, "shared")]
    assert not any("another writer was first" in runner.log_of(launch) for launch in launches)
    assert PROCESS_TURNS._queues == {}


def test_a_merge_that_conflicts_with_a_writer_outside_is_tried_again(
    runner: TaskRunner, table: str, tmp_path: Path
) -> None:
    assert runner.run(a_launch(run_id="before"), merges(table, (1, "before"))) == Succeeded("1")
    reached, go_on = tmp_path / "reached", tmp_path / "go on"
    for pipe in (reached, go_on):
        os.mkfifo(pipe)

    def stops_in_the_middle(ctx: Any) -> Any:
        from pyspark.sql import functions as F

        @F.udf("string")
        def halting(value):  # type: ignore[no-untyped-def]
            if os.path.exists(reached):
                with open(reached, "w"), open(go_on) as message:
                    message.read()
                os.unlink(reached)
            return value

        rows = frame(ctx, (1, "mine")).select("id", halting("name").alias("name"))
        return ctx.merge(rows, table, on=["id"])

    def meddle() -> None:
        with open(reached), open(go_on, "w"):
            runner.spark.sql(f"UPDATE {table} SET name = 'theirs'")

    threading.Thread(target=meddle, daemon=True).start()
    launch = runner.start(a_launch(), stops_in_the_middle)
    assert runner.recorder.outcome(launch) == Succeeded("1")
    assert rows_of(runner.spark, table) == [(1, "mine")]


def test_null_is_a_key_and_several_columns_make_one(runner: TaskRunner, table: str) -> None:
    def merge(value: int) -> Callable[[Any], Any]:
        def task(ctx: Any) -> Any:
            rows = [(None, "x", value), (1, "x", value), (1, "`y`", value)]
            return ctx.merge(ctx.spark.createDataFrame(rows, "a INT, `b.c` STRING, v INT"), table, on=["A", "b.c"])

        return task

    assert runner.run(a_launch(run_id="1"), merge(1)) == Succeeded("3")
    assert runner.run(a_launch(run_id="2"), merge(2)) == Succeeded("3")
    assert {row["v"] for row in runner.spark.table(table).collect()} == {2}
    assert runner.spark.table(table).count() == 3


def test_columns_that_the_rows_lack_keep_their_values_and_keys_alone_are_inserted_once(
    runner: TaskRunner, table: str
) -> None:
    assert runner.run(a_launch(run_id="1"), merges(table, (1, "a"))) == Succeeded("1")
    only_keys = lambda ctx: ctx.merge(ctx.spark.range(1, 3).selectExpr("int(id) AS id"), table, on="id")  # noqa: E731
    assert runner.run(a_launch(run_id="2"), only_keys) == Succeeded("1")
    assert rows_of(runner.spark, table) == [(1, "a"), (2, None)]


def test_what_a_merge_sets_in_spark_does_not_reach_the_tasks_other_statements(runner: TaskRunner, table: str) -> None:
    def both(ctx: Any) -> None:
        ctx.merge(frame(ctx, (1, "a")), table, on="id")
        ctx.spark.sql(f"INSERT INTO {table} VALUES (2, 'b')")
        ctx.spark.sql(f"INSERT INTO {table} VALUES (3, 'c')")

    assert runner.run(a_launch(), both) == Succeeded(None)
    assert rows_of(runner.spark, table) == [(1, "a"), (2, "b"), (3, "c")]


ADDING: list[Callable[[Any, str, Any], Any]] = [
    lambda ctx, table, more: ctx.write(more, table, mode="overwrite", schema="merge"),
    lambda ctx, table, more: ctx.write(more, table, mode="append", schema="merge"),
    lambda ctx, table, more: ctx.write(more.where("id = 2"), table, partition_column="id", schema="merge"),
    lambda ctx, table, more: ctx.merge(more, table, on="id", schema="merge"),
]


@pytest.mark.parametrize("adds", ADDING, ids=["overwrite", "append", "replace", "merge"])
def test_new_columns_are_added_by_schema_merge_only(runner: TaskRunner, table: str, adds: Any) -> None:
    assert runner.run(a_launch(run_id="before"), overwrites(table, (1, "a"))) == Succeeded("1")
    landed = version_of(runner.spark, table)

    def without(ctx: Any) -> Any:
        more = frame(ctx, (2, "b")).selectExpr("*", "true AS is_new", "1.5 AS nam")
        return ctx.write(more, table, mode="overwrite") if ctx.run_id != "merge" else ctx.merge(more, table, on="id")

    for run_id in ("write", "merge"):
        outcome = runner.run(a_launch(run_id=run_id), without)
        assert isinstance(outcome, Failed) and not outcome.retryable
        assert "the table has no column 'is_new', 'nam'; schema='merge' adds them" in outcome.error
    assert version_of(runner.spark, table) == landed

    launch = a_launch(interval=None, partition="2")
    added = lambda ctx: adds(ctx, table, frame(ctx, (2, "b")).selectExpr("*", "true AS is_new"))  # noqa: E731
    assert runner.run(launch, added) == Succeeded("1")
    assert runner.run(again(launch), added) == Succeeded(None)
    assert runner.spark.table(table).columns == ["id", "name", "is_new"]
    assert (2, "b", True) in rows_of(runner.spark, table)


@pytest.fixture
def new_schema(spark: SparkSession) -> Iterator[str]:
    yield "made_by_a_write"
    spark.sql("DROP SCHEMA IF EXISTS made_by_a_write CASCADE")


@pytest.mark.parametrize("name", ["{}.events", "spark_catalog.{}.events"])
@pytest.mark.parametrize("does", [overwrites, merges])
def test_a_schema_that_is_missing_is_made(runner: TaskRunner, new_schema: str, does: Any, name: str) -> None:
    launch, name = a_launch(run_id="first"), name.format(new_schema)
    assert runner.run(launch, does(name, (1, "a"))) == Succeeded("1")
    assert f"made the schema {new_schema}" in runner.log_of(launch)
    assert rows_of(runner.spark, name) == [(1, "a")]
    assert runner.run(again(launch), does(name, (2, "b"))) == Succeeded(None)


WRONG: list[tuple[Callable[[Any, str, Any], Any], str]] = [
    (lambda ctx, t, df: ctx.write(df, t), "needs time_column=..., the column by which rows belong to the run's interval (or "
     "mode='append'; mode='overwrite' replaces the whole table)"),
    (lambda ctx, t, df: ctx.write(df, t, mode="overwrite", time_column="id"),
     "mode='overwrite' replaces the whole table, so it takes no time_column"),
    (lambda ctx, t, df: ctx.write(df, t, mode="overwrite", schema="overwrite"),
     "schema is 'merge', which adds new columns, or left out, not 'overwrite'"),
    (lambda ctx, t, df: ctx.write(df.selectExpr("string(id) AS id"), t, mode="overwrite"),
     "column 'id' is string here and int in the table; cast it; nothing was written"),
    (lambda ctx, t, df: ctx.write(df.selectExpr("id + 0.7D AS id"), t, mode="append"),
     "column 'id' is double here and int in the table; cast it; nothing was written"),
    (lambda ctx, t, df: ctx.write(df.selectExpr("bigint(id) AS id"), t, mode="append", schema="merge"),
     "column 'id' is bigint here and int in the table; cast it; nothing was written"),
    (lambda ctx, t, df: ctx.merge(df.selectExpr("id", "1.7 AS name"), t, on="id"),
     "column 'name' is decimal(2,1) here and string in the table; cast it; nothing was written"),
    (lambda ctx, t, df: ctx.merge(df.selectExpr("id + 0.7D AS id", "name"), t, on="id", schema="merge"),
     "column 'id' is double here and int in the table; cast it; nothing was written"),
    (lambda ctx, t, df: ctx.merge(df, t, on=[]), "on=[...] names the columns of the key, such as on=['id']; it is []"),
    (lambda ctx, t, df: ctx.merge(df, t, on=["id", "ID"]), "on=[...] has 'id' twice"),
    (lambda ctx, t, df: ctx.merge(df, t, on=["nam"]),
     "on=[...] has 'nam', and the DataFrame has no such column; did you mean 'name'?"),
    (lambda ctx, t, df: ctx.merge(df.selectExpr("id AS idd", "name"), t, on=["idd"]),
     "on=[...] has 'idd', and the table has no such column; did you mean 'id'?"),
    (lambda ctx, t, df: ctx.merge(df.union(df), t, on=["id"]), "2 rows have the key id=7"),
    (lambda ctx, t, df: ctx.merge([1], t, on=["id"]), "takes a Spark DataFrame, not a list"),
]  # fmt: skip


@pytest.fixture(scope="module")
def filled_table(spark: SparkSession) -> Iterator[str]:
    """One for all wrong calls, none of which may change it."""
    spark.sql("CREATE TABLE filled_table USING delta AS SELECT 1 AS id, 'a' AS name")
    yield "filled_table"
    spark.sql("DROP TABLE filled_table")


@pytest.mark.parametrize(("call", "complaint"), WRONG, ids=range(len(WRONG)))
def test_a_wrong_call_is_reported_in_one_line_and_nothing_is_written(
    runner: TaskRunner, filled_table: str, call: Callable[[Any, str, Any], Any], complaint: str
) -> None:
    outcome = runner.run(a_launch(), lambda ctx: call(ctx, filled_table, frame(ctx, (7, "b"))))
    assert isinstance(outcome, Failed) and not outcome.retryable
    assert complaint in outcome.error and "\n" not in outcome.error
    assert version_of(runner.spark, filled_table) == 0


def test_a_column_that_the_table_has_by_another_name_is_named(runner: TaskRunner, table: str) -> None:
    assert runner.run(a_launch(run_id="1"), overwrites(table, (1, "a"))) == Succeeded("1")
    renamed = lambda ctx: ctx.write(frame(ctx, (2, "b")).selectExpr("id", "name AS label"), table, mode="append")  # noqa: E731
    outcome = runner.run(a_launch(run_id="2"), renamed)
    assert isinstance(outcome, Failed) and "the table has no column 'label'; schema='merge'" in outcome.error
    assert outcome.error.endswith(". The rows lack 'name', which the table has")


def test_null_and_fields_that_one_struct_lacks_are_of_no_other_type(runner: TaskRunner, table: str) -> None:
    runner.spark.sql(
        f"CREATE TABLE {table} (id INT, name STRING, at STRUCT<a: INT, b: INT>, tags ARRAY<STRUCT<n: INT>>) USING delta"
    )

    def more(*columns: str) -> Callable[[Any], Any]:
        return lambda ctx: ctx.write(frame(ctx, (1, "a")).selectExpr(*columns), table, mode="append", schema="merge")

    nulls = more(
        "id", "NULL AS name", "named_struct('a', 1, 'b', 2) AS at", "array(named_struct('n', 1, 'm', 2)) AS tags"
    )
    assert runner.run(a_launch(run_id="1"), nulls) == Succeeded("1")
    lacks = lambda ctx: ctx.write(frame(ctx, (1, "a")).selectExpr("named_struct('c', 1) AS at"), table, mode="append")  # noqa: E731
    outcome = runner.run(a_launch(run_id="3"), lacks)
    assert isinstance(outcome, Failed) and "the table has no column 'at.c'; schema='merge' adds it" in outcome.error
    other = runner.run(a_launch(run_id="2"), more("id", "array(named_struct('n', '1')) AS tags"))
    assert (
        isinstance(other, Failed) and "column 'tags' is array<struct<n:string>> here and array<struct<" in other.error
    )


@pytest.mark.parametrize("how", [{}, {"time_column": "id"}])
def test_a_run_by_hand_of_a_dag_without_a_schedule_gets_a_hint_at_overwrite(
    runner: TaskRunner, table: str, how: dict[str, Any]
) -> None:
    by_hand = a_launch(interval=(day(1), day(1)))
    outcome = runner.run(by_hand, lambda ctx: ctx.write(frame(ctx, (1, "a")), table, **how))
    assert isinstance(outcome, Failed) and "mode='overwrite' replaces the whole table" in outcome.error
    assert runner.run(again(by_hand), overwrites(table, (1, "a"))) == Succeeded("1")


def test_a_wrong_column_makes_no_table(runner: TaskRunner, table: str) -> None:
    outcome = runner.run(a_launch(), lambda ctx: ctx.write(frame(ctx, (1, "a")), table, time_column="idd"))
    assert isinstance(outcome, Failed) and "the DataFrame has no column 'idd'; did you mean 'id'?" in outcome.error
    assert not runner.spark.catalog.tableExists(table)


@pytest.mark.parametrize(
    ("run", "how", "message"),
    [
        ({}, {"time_column": "name"}, "time_column 'name' is string; it must be TIMESTAMP, TIMESTAMP_NTZ or DATE"),
        (
            {"interval": None, "partition": "emea"},
            {"partition_column": "id"},
            "partition key 'emea' does not fit partition_column 'id'",
        ),
    ],
)
def test_a_column_of_a_wrong_type_makes_no_table_that_would_keep_it(
    runner: TaskRunner, table: str, run: Any, how: dict[str, str], message: str
) -> None:
    outcome = runner.run(a_launch(**run), lambda ctx: ctx.write(frame(ctx, (1, "a")), table, **how))
    assert isinstance(outcome, Failed) and message in outcome.error
    assert not runner.spark.catalog.tableExists(table)


@pytest.mark.parametrize("again_at_each_count", [False, True])
def test_a_merge_of_two_rows_of_a_key_makes_no_table(runner: TaskRunner, table: str, again_at_each_count: bool) -> None:
    def merge(ctx: Any) -> Any:
        rows = frame(ctx, (1, "a"), (1, "b"))
        return ctx.merge(rows.selectExpr("id", "uuid() AS name") if again_at_each_count else rows, table, on=["id"])

    outcome = runner.run(a_launch(), merge)
    assert isinstance(outcome, Failed) and "2 rows have the key id=1" in outcome.error
    assert not runner.spark.catalog.tableExists(table)
    new_schema = f"schema_of_{table.replace('.', '_')}"
    outcome = runner.run(a_launch(run_id="2"), merges(f"{new_schema}.t", (1, "a"), (1, "b")))
    assert isinstance(outcome, Failed) and not runner.spark.catalog.databaseExists(new_schema)
    assert runner.run(a_launch(run_id="3"), merges(table, (1, "a"))) == Succeeded("1")


def test_what_a_merge_has_checked_is_what_it_writes(runner: TaskRunner, table: str) -> None:
    """Rows that are others each time that they are computed."""

    def merge(ctx: Any) -> Any:
        rows = ctx.spark.range(200).selectExpr("cast(floor(rand() * 20000) AS INT) AS id").distinct()
        return ctx.merge(rows.selectExpr("id", "'a' AS name"), table, on="id")

    assert isinstance(runner.run(a_launch(), merge), Succeeded)
    assert runner.spark.sql(f"SELECT id FROM {table} GROUP BY id HAVING count(*) > 1").collect() == []


@pytest.mark.parametrize("mode", ["overwrite", "replace"])
def test_a_whole_table_is_replaced_whatever_the_session_says_of_partitions(
    runner: TaskRunner, table: str, mode: str
) -> None:
    runner.spark.sql(f"CREATE TABLE {table} (id INT, name STRING) USING delta PARTITIONED BY (name)")
    runner.spark.sql(f"INSERT INTO {table} VALUES (0, 'stale')")

    def writes(ctx: Any) -> None:
        ctx.spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
        ctx.write(frame(ctx, (1, "a")), table, mode=mode)

    launch = a_launch(interval=None) if mode == "replace" else a_launch()
    assert isinstance(runner.run(launch, writes), Succeeded)
    assert rows_of(runner.spark, table) == [(1, "a")]


def test_a_column_of_null_alone_is_refused_before_a_table_is_made_or_changed(runner: TaskRunner, table: str) -> None:
    def writes(ctx: Any) -> None:
        ctx.write(ctx.spark.sql("SELECT 1 AS id, named_struct('x', NULL) AS n"), table, mode="append", schema="merge")

    for run_id in ("makes", "changes"):
        outcome = runner.run(a_launch(run_id=run_id), writes)
        assert isinstance(outcome, Failed) and not outcome.retryable
        assert "column 'n' has no type, as it is nothing but NULL; cast it" in outcome.error
        if not runner.spark.catalog.tableExists(table):
            runner.spark.sql(f"CREATE TABLE {table} (id INT) USING delta")
    assert rows_of(runner.spark, table) == []


def test_what_no_retry_mends_is_not_retried(runner: TaskRunner, table: str) -> None:
    runner.spark.sql(f"CREATE TABLE {table} (id INT NOT NULL, name STRING) USING delta")
    lacks = runner.run(a_launch(), lambda ctx: ctx.write(ctx.spark.sql("SELECT 'a' AS name"), table, mode="append"))
    streams = runner.run(
        a_launch(run_id="streams"), lambda ctx: ctx.write(ctx.spark.readStream.table(table), table, mode="append")
    )
    for outcome, text in ((lacks, "the rows lack 'id', which is NOT NULL in the table"), (streams, "not a stream")):
        assert isinstance(outcome, Failed) and not outcome.retryable and text in outcome.error
    assert rows_of(runner.spark, table) == []


def test_in_a_session_that_tells_cases_apart_the_columns_of_a_table_are_found(runner: TaskRunner, table: str) -> None:
    def merges_in_capitals(ctx: Any) -> int | None:
        ctx.spark.conf.set("spark.sql.caseSensitive", "true")
        rows: int | None = ctx.merge(frame(ctx, (1, "b"), (2, "c"), columns="ID INT, NAME STRING"), table, on=["Id"])
        return rows

    assert runner.run(a_launch(), merges(table, (1, "a"))) == Succeeded("1")
    assert runner.run(a_launch(run_id="in capitals"), merges_in_capitals) == Succeeded("2")
    assert sorted(rows_of(runner.spark, table)) == [(1, "b"), (2, "c")]


def test_in_a_session_that_tells_cases_apart_names_that_differ_by_it_are_two_tables(
    runner: TaskRunner, table: str
) -> None:
    def writes_both(ctx: Any) -> list[int]:
        ctx.spark.conf.set("spark.sql.caseSensitive", "true")
        names = (table, table.upper())
        for number, name in enumerate(names):
            ctx.write(frame(ctx, *[(number, "a")] * (number + 1)), name, mode="append")
        counts = [ctx.spark.table(name).count() for name in names]
        ctx.spark.sql(f"DROP TABLE {table.upper()}")
        return counts

    assert runner.run(a_launch(), writes_both) == Succeeded("[1, 2]")
    assert rows_of(runner.spark, table) == [(0, "a")]
