"""Exactly-once output on the kinds of Delta tables that teams have: each way to write does what it says, or fails in one line."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.executor_fixture import THIS_STATE, TaskRunner, a_launch, day

from backfill_manager.errors import Refused
from backfill_manager.execution.messages import Failed, Outcome, Succeeded, TaskLaunch
from backfill_manager.execution.output.clones import Clones
from backfill_manager.execution.output.output_table import OutputTable
from backfill_manager.execution.output.table_turns import TableTurns, TurnHolder
from backfill_manager.execution.promote_revert.promote import Promotion
from backfill_manager.execution.promote_revert.revert import Reversion, WrittenTable

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Kind:
    """A table, and a row for it: `{at}` is a time, `{v}` the value."""

    columns: str = "at TIMESTAMP, v INT"
    properties: str = ""
    after: tuple[str, ...] = ()  # statements; {} is the table
    row: str = "{at} AS at, {v} AS v"
    time_column: str = "at"
    statements: str = "INSERT INTO {t} BY NAME SELECT {row}; UPDATE {t} SET v = v + 1 WHERE v = 50"

    @classmethod
    def with_properties(cls, clauses: str = "", /, **delta: str) -> Kind:
        listed = ", ".join(f"'delta.{key}' = '{value}'" for key, value in delta.items())
        return cls(properties=f"{clauses} TBLPROPERTIES ({listed})")

    def make(self, runner: TaskRunner, table: str) -> None:
        runner.spark.sql(f"CREATE TABLE {table} ({self.columns}) USING delta {self.properties}")
        for statement in self.after:
            runner.spark.sql(statement.format(table))

    def select(self, at: str, v: int) -> str:
        return f"SELECT {self.row.format(at=at, v=v)}"

    def write(self, table: str, v: int, **how: Any) -> Callable[[Any], Any]:
        by = {"time_column": self.time_column}

        def write(ctx: Any) -> None:
            ctx.write(ctx.spark.sql(self.select(_five(ctx.interval.start), v)), table, **(by | how))

        return write


def _five(start: Any) -> str:
    return f"(TIMESTAMP'{start:%Y-%m-%d %H:%M:%S}' + INTERVAL 5 HOURS)"


def launch_of(n: int, run_id: str = "", **how: Any) -> TaskLaunch:
    return a_launch(run_id=run_id or f"run {n}", interval=(day(n), day(n + 1)), launch=next(_numbers), **how)


def succeeds(runner: TaskRunner, launch: TaskLaunch, function: Callable[[Any], Any] | None = None) -> None:
    outcome = runner.run(launch, function)
    assert isinstance(outcome, Succeeded), (outcome, runner.log_of(launch))


def revert(runner: TaskRunner, table: str, run_id: str, since: int = 1) -> None:
    reversion = Reversion(runner.spark, THIS_STATE.state_id, {("work_dag", run_id)}, TurnHolder(TableTurns()))
    reversion.run([WrittenTable(table, None, since, day(1))], dry_run=False)


def preview(runner: TaskRunner, clones: Clones, kind: Kind, table: str) -> None:
    """A preview has written 100 on the first day."""
    launch = dataclasses.replace(launch_of(1, "previewed", run_type="preview"), preview_id=clones.preview_id)
    succeeds(runner, launch, kind.write(table, 100))


def promote(runner: TaskRunner, clones: Clones) -> None:
    runs, turns, state_id = {("work_dag", "previewed")}, TurnHolder(TableTurns()), THIS_STATE.state_id
    Promotion(runner.spark, clones.preview_id, state_id, runs, turns, rebase=False).run(clones.all())


MAPPED = {"columnMapping.mode": "name"}
WORKING = {
    "clustered, with all features": Kind.with_properties(
        "CLUSTER BY (at)", enableDeletionVectors="true", enableRowTracking="true", enableChangeDataFeed="true",
        enableInCommitTimestamps="true", checkpointPolicy="v2", checkpointInterval="2", **MAPPED,
    ),
    "partitioned by a generated date, with defaults": Kind(
        columns="at TIMESTAMP, v INT, d DATE GENERATED ALWAYS AS (CAST(at AS DATE)), w INT NOT NULL DEFAULT 7",
        properties="PARTITIONED BY (d) TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')",
        statements="INSERT INTO {t} (at, v) SELECT {row}; UPDATE {t} SET v = v + 1 WHERE v = 50",
    ),
    "renamed columns": dataclasses.replace(
        Kind.with_properties(**MAPPED),
        columns="at TIMESTAMP, v INT, w INT",
        after=(
            "INSERT INTO {} VALUES (TIMESTAMP'2013-01-01 03:00:00', 99, 0)", "ALTER TABLE {} DROP COLUMN w",
            "ALTER TABLE {} RENAME COLUMN at TO at_old", "ALTER TABLE {} ADD COLUMNS (at TIMESTAMP)",
        ),
    ),
    "odd names": dataclasses.replace(
        Kind.with_properties(**MAPPED),
        columns="`a.t x``y` TIMESTAMP, v INT", row="{at} AS `a.t x``y`, {v} AS v", time_column="A.T x`y",
    ),
    "without statistics": Kind.with_properties(dataSkippingNumIndexedCols="0"),
    "widened": dataclasses.replace(
        Kind.with_properties(enableTypeWidening="true"),
        after=("ALTER TABLE {} ALTER COLUMN v TYPE BIGINT",), row="{at} AS at, {v}L AS v",
    ),
    "identity": Kind(columns="id BIGINT GENERATED BY DEFAULT AS IDENTITY, at TIMESTAMP_NTZ, v INT",
        row="CAST({at} AS TIMESTAMP_NTZ) AS at, {v} AS v"),
}  # fmt: skip


@pytest.mark.parametrize("kind", WORKING)
def test_intervals_are_replaced_and_nothing_else(kind: str, runner: TaskRunner, schema: str, clones: Clones) -> None:
    one, table, spark = WORKING[kind], f"{schema}.kinds", runner.spark
    one.make(runner, table)

    def values() -> list[tuple[int, int]]:
        column = one.time_column.lower()
        rows = (row.asDict() for row in spark.table(table).collect())
        found = ({name.lower(): value for name, value in row.items()} for row in rows)
        return sorted((row[column].day, row["v"]) for row in found if row[column] is not None)

    first = [runner.start(launch_of(n), one.write(table, n)) for n in (1, 2)]
    for launch in first:
        assert isinstance(runner.recorder.outcome(launch), Succeeded), runner.log_of(launch)
    insert = one.statements.partition(";")[0]
    for at, v in (("TIMESTAMP'2013-01-01 23:59:59.999999'", 31), ("TIMESTAMP'2013-01-03 01:00:00'", 33)):
        spark.sql(insert.format(t=table, row=one.row.format(at=at, v=v)))  # a writer outside
    spark.sql(f"OPTIMIZE {table}")
    assert values() == [(1, 1), (1, 31), (2, 2), (3, 33)]
    for _ in range(2):  # the second finds what the first has written
        succeeds(runner, launch_of(1, "again"), one.write(table, 11))
    assert values() == [(1, 11), (2, 2), (3, 33)]
    text = one.row.format(at="(:interval_start + INTERVAL 5 HOURS)", v=50)
    for run_id, how in (
        ("into", {"sql": f"SELECT {text}", "into": table, "time_column": one.time_column}),
        ("statements", {"sql": one.statements.format(t=table, row=text)}),
    ):
        succeeds(runner, launch_of(4, run_id, kind="sql", **how))
    assert values() == [(1, 11), (2, 2), (3, 33), (4, 51), (4, 51)]
    if kind != "identity":  # test_promote.py has what becomes of numbers
        preview(runner, clones, one, table)
        promote(runner, clones)
        assert values() == [(1, 100), (2, 2), (3, 33), (4, 51), (4, 51)]
        revert(runner, table, "previewed")
    revert(runner, table, "again")
    assert values() == [(1, 1), (1, 31), (2, 2), (3, 33), (4, 51), (4, 51)]


APPEND_ONLY = Kind.with_properties(appendOnly="true")
GENERATED = Kind(
    columns="at TIMESTAMP, v INT, d DATE GENERATED ALWAYS AS (CAST(at AS DATE))",
    row="{at} AS at, {v} AS v, DATE'2000-01-01' AS d",
)
NUMBERED = Kind(
    columns="id BIGINT GENERATED ALWAYS AS IDENTITY, at TIMESTAMP, v INT", row="5L AS id, {at} AS at, {v} AS v"
)
NOT_NULL = Kind(row="{at} AS at, CAST(NULL AS INT) AS v", columns="at TIMESTAMP, v INT NOT NULL")
CHECKED = Kind(after=("ALTER TABLE {} ADD CONSTRAINT small CHECK (v < 1)",))
CHECKED_ALONE = dataclasses.replace(Kind.with_properties(enableDeletionVectors="true"), after=CHECKED.after)
SMALL = "there are rows that violate the table's CHECK constraint small, v < 1 (for example v = 1); nothing was written"
OF_ROWS, OF_TABLE = True, False  # a retry may have other rows


@pytest.mark.parametrize(
    ("kind", "how", "message", "is_retried"),
    [
        (APPEND_ONLY, {}, "is append-only (delta.appendOnly), so no rows of it can be replaced; mode='append'", OF_TABLE),
        (APPEND_ONLY, {"mode": "overwrite", "time_column": None}, "is append-only (delta.appendOnly)", OF_TABLE),
        (APPEND_ONLY, {"sql": "UPDATE {t} SET v = 2 WHERE v = 0"}, "statement 1, {t}: the table is append-only", OF_TABLE),
        (NUMBERED, {}, "Delta numbers id itself (an identity column); leave it out of the rows", OF_TABLE),
        (GENERATED, {}, "another value than Delta computes for a generated column, d <=> CAST(at AS DATE)", OF_ROWS),
        (GENERATED, {"mode": "append"}, "another value than Delta computes for a generated column, d <=>", OF_ROWS),
        (NOT_NULL, {}, "there are rows without a value in v, which is NOT NULL in the table", OF_ROWS),
        (CHECKED, {}, SMALL, OF_ROWS),
        (CHECKED_ALONE, {}, SMALL, OF_ROWS),
        (CHECKED, {"sql": "INSERT INTO {t} SELECT current_timestamp(), 1"}, f"statement 1, {{t}}: {SMALL}", OF_ROWS),
        (
            Kind(columns="at TIMESTAMP, v VARCHAR(3)", row="{at} AS at, 'long text' AS v"), {},
            "there are rows with a text that is too long for its column", OF_ROWS,
        ),
    ],
    ids=[
        "append-only", "append-only, overwrite", "append-only, SQL", "identity", "generated", "generated, append", "not null",
        "check", "check, by a commit of its own", "check, SQL", "varchar",
    ],
)  # fmt: skip
def test_what_delta_refuses_is_one_line_that_says_what_to_do(
    kind: Kind, how: dict[str, Any], message: str, is_retried: bool, runner: TaskRunner, table: str
) -> None:
    kind.make(runner, table)
    if "UPDATE" in how.get("sql", ""):
        runner.spark.sql(f"INSERT INTO {table} VALUES (TIMESTAMP'2013-01-01', 0)")
    before = runner.spark.table(table).collect()
    if "sql" in how:
        outcome: Outcome = runner.run(launch_of(1, kind="sql", sql=how["sql"].format(t=table)))
    else:
        outcome = runner.run(launch_of(1), kind.write(table, 1, **how))
    assert isinstance(outcome, Failed) and message.format(t=table) in outcome.error, outcome
    assert outcome.retryable is is_retried and "\n" not in outcome.error and "DELTA_" not in outcome.error
    assert runner.spark.table(table).collect() == before
    if kind is GENERATED:
        assert re.search(r"\(for example at = \d{4}-\d\d-\d\dT[\d:]+Z, d = 2000-01-01\)", outcome.error), outcome.error


OF_KEY: dict[str, Any] = {"interval": None, "partition_column": "key"}
WRONG_ROWS: dict[str, tuple[str, dict[str, Any], str]] = {
    "two columns of a name": ("SELECT 1 AS v, 'a' AS key, 2 AS V", {"mode": "append"}, "two columns 'v'"),
    "without the key": ("SELECT 1 AS v", {"mode": "overwrite"}, "the rows lack `key`, by which the table is partitioned"),
    "empty key": ("SELECT 1 AS v, '' AS key", {**OF_KEY, "partition": ""}, "Delta has '' as NULL there; use another key"),
    "null of Hive": (
        "SELECT 1 AS v, :partition_key AS key", {**OF_KEY, "partition": "__HIVE_DEFAULT_PARTITION__"},
        "Delta has '__HIVE_DEFAULT_PARTITION__' as NULL there",
    ),
    "another key": (
        "SELECT 1 AS v, 'b' AS key", {**OF_KEY, "partition": "a"},
        "outside of this run's partition 'a' (for example key = b); nothing was written. Leave them out first, as with "
        "WHERE key = :partition_key.",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "how", "message"), WRONG_ROWS.values(), ids=WRONG_ROWS)
def test_rows_that_do_not_fit_a_partitioned_table_are_one_line(
    text: str, how: dict[str, Any], message: str, runner: TaskRunner, table: str
) -> None:
    runner.spark.sql(f"CREATE TABLE {table} (v INT, key STRING) USING delta PARTITIONED BY (key)")
    runner.spark.sql(f"INSERT INTO {table} VALUES (0, NULL)")
    outcome = runner.run(a_launch(kind="sql", sql=text, into=table, **how))
    assert isinstance(outcome, Failed) and not outcome.retryable and message in outcome.error, outcome
    assert f"into='{table}': " in outcome.error and "\n" not in outcome.error
    assert [tuple(row) for row in runner.spark.table(table).collect()] == [(0, None)]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("`a.b c`", "the catalog takes no such name of a table or schema"),
        ("nobody.a.t", "the name has too many parts: the catalog spark_catalog takes schema.table"),
        ("global_temp.t", "global_temp is Spark's own schema"),
        ("lake/t", "'lake/t' is a relative path"),
    ],
)
def test_a_name_by_which_no_table_can_be_made(name: str, message: str, runner: TaskRunner) -> None:
    outcome = runner.run(a_launch(kind="sql", sql="SELECT 1 AS v", into=name, mode="append"))
    assert isinstance(outcome, Failed) and not outcome.retryable and message in outcome.error, outcome
    assert "\n" not in outcome.error and not Path("lake").exists()


def test_a_merge_does_not_take_a_field_that_may_be_null_where_the_table_does_not(
    runner: TaskRunner, table: str
) -> None:
    """Also where no value is NULL: Spark goes by types. Other ways to write go by the values."""
    spark = runner.spark
    spark.sql(f"CREATE TABLE {table} (id INT, s STRUCT<t: STRUCT<a: INT NOT NULL, b: INT>>) USING delta")
    rows = "SELECT {} AS id, named_struct('t', named_struct('a', {}, 'b', 1)) AS s"
    nullable = rows.format(1, "if(rand() < 2, 1, NULL)")
    (into, task) = (
        {"into": table, "merge_on": ("id",)},
        lambda text: lambda ctx: ctx.merge(ctx.spark.sql(text), table, on="id"),
    )
    lacking = "SELECT 1 AS id, named_struct('t', named_struct('b', 1)) AS s"
    for outcome in (
        runner.run(launch_of(1, "a"), task(nullable)),
        runner.run(launch_of(1, "b"), task(lacking)),
        runner.run(launch_of(1, "c", kind="sql", sql=nullable, **into)),
    ):
        assert isinstance(outcome, Failed) and not outcome.retryable and "\n" not in outcome.error
        assert "s.t.a is NOT NULL in the table and may be NULL by the type of the rows" in outcome.error, outcome
    untyped = runner.run(launch_of(1, "g"), task("SELECT 1 AS id, NULL AS s"))
    assert (
        isinstance(untyped, Failed) and "there are rows without a value in s.t.a, which is NOT NULL" in untyped.error
    ), untyped
    succeeds(runner, launch_of(1, "d"), lambda ctx: ctx.write(ctx.spark.sql(nullable), table, mode="append"))
    succeeds(runner, launch_of(1, "e"), task(rows.format(2, "coalesce(if(rand() < 2, 1, NULL), 0)")))
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN s.t.a DROP NOT NULL")
    succeeds(runner, launch_of(1, "f"), task(rows.format(3, "CAST(NULL AS INT)")))
    assert sorted(spark.sql(f"SELECT id, s.t.a FROM {table}").collect()) == [(1, 1), (2, 1), (3, None)]


def test_a_name_that_delta_takes_with_a_column_mapping_only(runner: TaskRunner, table: str) -> None:
    outcome = runner.run(launch_of(1), lambda ctx: ctx.write(ctx.spark.sql("SELECT 1 AS `a b`"), table, mode="append"))
    assert isinstance(outcome, Failed) and not outcome.retryable
    assert "columns of this table can't be named a b; rename them in the rows" in outcome.error
    assert not runner.spark.catalog.tableExists(table)


def test_statistics_of_a_renamed_column_are_not_taken_for_those_of_a_new_one(
    runner: TaskRunner, schema: str, clones: Clones
) -> None:
    """In files and their statistics the old column still has the name that the new one has now."""
    spark, table, kind = runner.spark, f"{schema}.renamed", Kind()
    kind.make(runner, table)
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN at TO at_old")
    spark.sql(f"ALTER TABLE {table} ADD COLUMNS (at TIMESTAMP)")
    for v in (1, 2):
        succeeds(runner, launch_of(1, f"run {v}"), kind.write(table, v))
    preview(runner, clones, kind, table)
    spark.sql(f"INSERT INTO {table} VALUES (TIMESTAMP'2000-01-01', 9, TIMESTAMP'2013-01-01 07:00:00')")
    with pytest.raises(Refused, match=r"has been written since in the same intervals .*WRITE by another writer"):
        revert(runner, table, "run 2", since=OutputTable(spark, table).read().version - 1)
    with pytest.raises(Refused, match=r"1 commit since version .* in the same intervals"):
        promote(runner, clones)


def test_rows_of_a_time_column_that_was_made_anew_since_stay(runner: TaskRunner, schema: str, clones: Clones) -> None:
    spark, table, kind = runner.spark, f"{schema}.renamed", Kind.with_properties(**MAPPED)
    kind.make(runner, table)
    for v in (1, 2):
        succeeds(runner, launch_of(1, f"run {v}"), kind.write(table, v))
    preview(runner, clones, kind, table)
    spark.sql(f"ALTER TABLE {table} DROP COLUMN at")
    spark.sql(f"ALTER TABLE {table} ADD COLUMNS (at TIMESTAMP)")
    with pytest.raises(Refused, match=r"at, by which the runs have replaced rows, has been renamed or dropped since"):
        revert(runner, table, "run 2")
    with pytest.raises(Refused, match=r"at was renamed or dropped since the preview began"):
        promote(runner, clones)
    assert [row["v"] for row in spark.table(table).collect()] == [2]
