"""Rows of a preview are compared with those of the table, and swapped in: once, and not over what others have written since."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from support.executor_fixture import TaskRunner, day
from support.previews import in_preview, result_of, values

from backfill_manager.errors import InvalidInput, LostLease, Refused
from backfill_manager.execution.output.clones import Clones
from backfill_manager.execution.output.output_table import OutputTable
from backfill_manager.execution.output.table_turns import TableTurns, TurnHolder
from backfill_manager.execution.promote_revert import table_swap
from backfill_manager.execution.promote_revert.promote import Promoted, Promotion
from backfill_manager.execution.promote_revert.revert import Reversion, WrittenTable
from backfill_manager.execution.promote_revert.table_diff import TableDiff, diff
from backfill_manager.manager.services.table_jobs import _diff_of
from backfill_manager.store.delta_spark.transaction import DeltaTransaction

STATE = "0123456789ab"


class Previewed:
    """A table of which a preview has written anew the second day, with `v + 100`, and without one of its two rows."""

    def __init__(self, runner: TaskRunner, clones: Clones, table: str) -> None:
        self._begin(runner, clones, table)
        self.run(lambda rows: rows.where("id != 21").selectExpr("at", "id", "v + 100 AS v"), 2)

    @classmethod
    def of(cls, runner: TaskRunner, clones: Clones, table: str) -> Previewed:
        """Of a table that the preview has not written yet."""
        one = cls.__new__(cls)
        one._begin(runner, clones, table)
        return one

    def _begin(self, runner: TaskRunner, clones: Clones, table: str) -> None:
        self.runner, self.clones, self.table, self.spark = runner, clones, table, runner.spark
        self.runs: set[tuple[str, str]] = set()

    def run(self, change: Callable[[Any], Any], n: int, **how: Any) -> None:
        table = self.table

        def write(ctx: Any) -> None:
            ctx.write(change(ctx.spark.table(table).where(ctx.in_interval("at"))), table, time_column="at", **how)

        launch = in_preview(self.clones, n)
        result_of(self.runner, launch, write)
        self.runs.add((launch.ti.dag_id, launch.ti.run_id))

    def promote(self, *, rebase: bool = False, is_leader: bool = True) -> list[Promoted]:
        turns, leads = TurnHolder(TableTurns()), lambda: is_leader
        promotion = Promotion(
            self.spark, self.clones.preview_id, STATE, self.runs, turns, rebase=rebase, is_leader=leads
        )
        return promotion.run(Clones(self.spark, self.clones.preview_id).all())

    def refusal(self, *, rebase: bool = False) -> str:
        with pytest.raises(Refused) as refused:
            self.promote(rebase=rebase)
        return str(refused.value)

    def diff(self, *key: str) -> dict[str, Any]:
        (clone,) = self.clones.all()
        return _diff_of(self.spark, clone, self.runs, key, ()) or {}

    def versions(self) -> int:
        return OutputTable(self.spark, self.table).read().version


@pytest.fixture
def previewed(runner: TaskRunner, clones: Clones, events: str) -> Iterator[Previewed]:
    return Previewed(runner, clones, events)


FEATURES = "'delta.enableDeletionVectors' = 'true', 'delta.columnMapping.mode' = 'name'"
KINDS = {
    "plain": "",
    "partitioned, with deletion vectors and column mapping": f"PARTITIONED BY (id) TBLPROPERTIES ({FEATURES})",
}


def test_who_no_longer_leads_swaps_nothing_in(previewed: Previewed) -> None:
    previewed.run(lambda rows: rows.selectExpr("at", "id", "-v AS v"), 1)
    before = previewed.versions()
    with pytest.raises(LostLease):
        previewed.promote(is_leader=False)
    assert previewed.versions() == before


def test_the_log_of_a_table_is_read_commit_by_commit(previewed: Previewed, commits_in_memory: list[int]) -> None:
    for n in range(6):
        previewed.spark.sql(f"INSERT INTO {previewed.table} VALUES (TIMESTAMP'2013-01-2{n} 05:00:00', {n}, {n})")
    previewed.promote()
    assert len(commits_in_memory) > 6 and max(commits_in_memory) <= 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_preview_is_compared_and_swapped_in_once(kind: str, runner: TaskRunner, clones: Clones, schema: str) -> None:
    spark, table = runner.spark, f"{schema}.kinds"
    spark.sql(f"CREATE TABLE {table} (at TIMESTAMP, id BIGINT, v DOUBLE, old INT) USING delta {KINDS[kind]}")
    rows = (
        "make_timestamp(2013, 1, d, 12, 0, 0), d * 10 + id, id, 0 FROM range(2) JOIN (SELECT explode(array(1, 2, 3)) d)"
    )
    spark.sql(f"INSERT INTO {table} SELECT {rows}")
    if kind != "plain":
        spark.sql(f"DELETE FROM {table} WHERE v = 1 AND id > 30")
        spark.sql(f"ALTER TABLE {table} RENAME COLUMN v TO x")
        spark.sql(f"ALTER TABLE {table} RENAME COLUMN x TO v")
    one = Previewed(runner, clones, table)
    one.run(lambda rows: rows.selectExpr("at", "id + 1 AS id", "v", "old"), 1)
    before = values(spark, table)
    found = one.diff("id")
    assert [found[name] for name in ("added", "removed", "changed", "same", "key")] == [1, 2, 2, 0, ["id"]]
    assert [(column["name"], column["rows"]) for column in found["columns"]] == [("v", 2), ("old", 1)]
    first, again = one.promote(), one.promote()
    assert [(done.table, done.parts) for done in first] == [(table, 1)] and again == first
    assert sorted(spark.table(table).where("at < TIMESTAMP'2013-01-03'").select("id", "v").collect()) == [
        (11, 0.0), (12, 1.0), (20, 100.0)
    ]  # fmt: skip
    assert len(values(spark, table)) == len(before) - 1
    assert one.diff()["added"] == one.diff()["removed"] == 0
    written = WrittenTable(table, None, first[0].version, day(1))
    Reversion(spark, STATE, one.runs, TurnHolder(TableTurns())).run([written], dry_run=False)
    assert values(spark, table) == before, "a promotion names the runs, so they can be reverted"


def test_tables_that_have_moved_on(previewed: Previewed) -> None:
    spark, table = previewed.spark, previewed.table
    spark.sql(f"INSERT INTO {table} VALUES (TIMESTAMP'2013-01-03 10:00:00', 99, 9)")
    spark.sql(f"UPDATE {table} SET v = v WHERE id = 20")  # it touches the day, and changes nothing
    (done,) = previewed.promote()
    assert done.version == previewed.versions() and len(values(spark, table)) == 6
    previewed.run(lambda rows: rows.selectExpr("at", "id", "v + 1 AS v"), 1)
    spark.sql(f"UPDATE {table} SET v = 7 WHERE id = 11")
    message = previewed.refusal()
    assert message.startswith("nothing was promoted: ") and "in the same intervals; --rebase swaps" in message
    assert values(spark, table)[-1] == 100 and 7 in values(spark, table)
    previewed.promote(rebase=True)
    assert 7 not in values(spark, table) and 2 in values(spark, table)


@pytest.mark.parametrize("day", [2, 3])
def test_what_others_commit_after_the_last_look_is_not_overwritten(
    previewed: Previewed, day: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark, table, original = previewed.spark, previewed.table, DeltaTransaction.overwrite
    foreign = [f"INSERT INTO {table} VALUES (TIMESTAMP'2013-01-0{day} 10:00:00', 99, 9)"]

    def is_late(transaction: DeltaTransaction, *how: Any) -> int:
        if foreign:
            spark.sql(foreign.pop())
        return original(transaction, *how)

    monkeypatch.setattr(DeltaTransaction, "overwrite", is_late)
    if day == 2:
        with pytest.raises(Refused, match=r"1 commit since version 1 .* in the same intervals"):
            previewed.promote()
        assert values(spark, table) == [0, 0, 0, 1, 1, 1, 9]
    else:
        (done,) = previewed.promote()
        assert values(spark, table) == [0, 0, 1, 1, 9, 100] and done.version == previewed.versions()


def test_where_delta_has_no_such_transaction_sparks_own_writer_swaps_them_in(
    previewed: Previewed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_swap, "can_overwrite", lambda _: False)
    (done,) = previewed.promote()
    assert values(previewed.spark, previewed.table) == [0, 0, 1, 1, 100] and done.version == previewed.versions()


def test_so_it_does_with_a_whole_table_that_stays_clustered(
    runner: TaskRunner, clones: Clones, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark, table = runner.spark, f"{schema}.clustered"
    spark.sql(f"CREATE TABLE {table} USING delta CLUSTER BY (v) AS SELECT 1 AS v")
    one = altered(runner, clones, table, f"UPDATE {table} SET v = 2")
    monkeypatch.setattr(table_swap, "can_overwrite", lambda _: False)
    one.promote()
    assert (values(spark, table), clustering(spark, table)) == ([2], ["v"])


def test_tables_that_are_not_what_they_were(previewed: Previewed) -> None:
    spark, table = previewed.spark, previewed.table
    spark.sql(f"ALTER TABLE {table} ADD COLUMNS (w INT)")
    assert "has other columns than when the preview began" in previewed.refusal()
    assert previewed.diff()["schema_changes"] == [{"column": "w", "old": "int", "new": None}]
    previewed.promote(rebase=True)
    previewed.run(lambda rows: rows.selectExpr("at", "id", "v"), 3)
    spark.sql(f"DROP TABLE {table}")
    assert f"{table} was dropped since the preview began" in previewed.refusal(rebase=True)
    spark.sql(f"CREATE TABLE {table} (at TIMESTAMP, id BIGINT, v DOUBLE) USING delta")
    assert "was replaced by another table" in previewed.refusal(rebase=True)


def test_a_column_that_was_renamed_since_does_not_come_back_beside_the_new_one(
    runner: TaskRunner, clones: Clones, schema: str
) -> None:
    spark, table = runner.spark, f"{schema}.renamed"
    spark.sql(f"CREATE TABLE {table} (at TIMESTAMP, id BIGINT, v DOUBLE) USING delta TBLPROPERTIES ({FEATURES})")
    spark.sql(f"INSERT INTO {table} VALUES (TIMESTAMP'2013-01-02 10:00:00', 1, 9)")
    one = Previewed.of(runner, clones, table)
    one.run(lambda rows: rows.selectExpr("at", "id", "v + 1 AS v"), 2)
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN v TO w")
    for how in ({}, {"rebase": True}):
        assert one.refusal(**how).endswith("v was renamed or dropped since the preview began: create another preview")
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN w TO v")
    one.promote()
    assert values(spark, table) == [10]


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE {table} DROP COLUMN v; UPDATE {table} SET id = 2",
        "ALTER TABLE {table} RENAME COLUMN v TO w; UPDATE {table} SET id = 2",
        "CREATE OR REPLACE TABLE {table} USING delta AS SELECT at, id FROM {table}",
    ],
)
def test_a_column_that_the_preview_has_renamed_or_dropped_is_not_emptied(
    runner: TaskRunner, clones: Clones, schema: str, statement: str
) -> None:
    spark, table = runner.spark, f"{schema}.changed"
    spark.sql(f"CREATE TABLE {table} (at TIMESTAMP, id BIGINT, v DOUBLE) USING delta TBLPROPERTIES ({FEATURES})")
    spark.sql(f"INSERT INTO {table} VALUES (TIMESTAMP'2013-01-02 10:00:00', 1, 9)")
    one = Previewed.of(runner, clones, table)
    launch = in_preview(clones, 2, kind="sql", sql=statement.format(table=table))
    result_of(runner, launch)
    one.runs.add((launch.ti.dag_id, launch.ti.run_id))
    for how in ({}, {"rebase": True}):
        assert f"{table}: the preview has renamed or dropped v, which" in one.refusal(**how)
    assert values(spark, table) == [9]


def altered(runner: TaskRunner, clones: Clones, table: str, statement: str) -> Previewed:
    one = Previewed.of(runner, clones, table)
    launch = in_preview(clones, 2, kind="sql", sql=statement)
    result_of(runner, launch)
    one.runs.add((launch.ti.dag_id, launch.ti.run_id))
    return one


def test_what_the_preview_has_set_by_alter_table_is_not_lost_in_silence(
    runner: TaskRunner, clones: Clones, events: str
) -> None:
    statements = (
        f"ALTER TABLE {events} SET TBLPROPERTIES ('my.key' = 'x')", f"ALTER TABLE {events} ALTER COLUMN v COMMENT 'euros'",
        f"ALTER TABLE {events} ADD COLUMNS (w INT COMMENT 'new')",
    )  # fmt: skip
    one = altered(runner, clones, events, ";".join(statements))
    assert "the preview has added w and written no rows" in one.refusal()
    result_of(runner, launch := in_preview(clones, 2, kind="sql", sql=f"UPDATE {events} SET w = 7 WHERE id = 20"))
    one.runs.add((launch.ti.dag_id, launch.ti.run_id))
    assert "the preview has changed the property my.key, comment of v, which promoting can't do" in one.refusal(
        rebase=True
    )
    for statement in statements[:2]:
        one.spark.sql(statement)
    one.promote()
    shown = {row["col_name"]: row["comment"] for row in one.spark.sql(f"DESCRIBE {events}").collect()}
    assert (shown["v"], shown["w"]) == ("euros", "new")


@pytest.mark.parametrize(
    ("statements", "removed", "cures"),
    [
        (
            (
                "ALTER TABLE {0} UNSET TBLPROPERTIES ('my.key')", "ALTER TABLE {0} ALTER COLUMN id DROP NOT NULL",
                "UPDATE {0} SET v = 5",
            ),
            "the property my.key, NOT NULL of id",
            2,
        ),
        (("ALTER TABLE {0} ALTER COLUMN id DROP NOT NULL",), "NOT NULL of id", 1),
        (
            ("CREATE OR REPLACE TABLE {0} USING delta TBLPROPERTIES ('my.key' = 'x') AS SELECT * FROM {0}",),
            "NOT NULL of id, its clustering",
            0,
        ),
    ],
    ids=["with rows", "without rows", "replaced"],
)  # fmt: skip
def test_what_the_preview_has_unset_is_not_lost_in_silence(
    runner: TaskRunner, clones: Clones, schema: str, statements: tuple[str, ...], removed: str, cures: int
) -> None:
    spark, table = runner.spark, f"{schema}.unset"
    columns, how = "at TIMESTAMP, id BIGINT NOT NULL, v DOUBLE", "CLUSTER BY (v) TBLPROPERTIES ('my.key' = 'x')"
    spark.sql(f"CREATE TABLE {table} ({columns}) USING delta {how}")
    spark.sql(f"INSERT INTO {table} VALUES (TIMESTAMP'2013-01-02 10:00:00', 1, 9)")
    one = altered(runner, clones, table, ";".join(statements).format(table))
    assert f"{table}: the preview has removed {removed}, which promoting can't do: change" in one.refusal(rebase=True)
    if cures:
        for statement in statements[:cures]:
            spark.sql(statement.format(table))
        one.promote()
        assert clustering(spark, table) == ["v"], "it is not the promotion that removes it"


def clustering(spark: SparkSession, table: str) -> list[str]:
    detail = spark.sql(f"DESCRIBE DETAIL {table}").first()
    assert detail is not None
    return list(detail["clusteringColumns"])


def test_a_table_that_the_preview_has_made_is_made_like_its_clone(
    runner: TaskRunner, clones: Clones, schema: str
) -> None:
    table = f"{schema}.made"
    how = f"USING delta PARTITIONED BY (region) TBLPROPERTIES ('my.key' = 'x', {FEATURES})"
    one = altered(runner, clones, table, f"CREATE TABLE {table} {how} AS SELECT 1 AS v, 'eu' AS region")
    runner.spark.sql(f"CREATE TABLE {table} USING delta AS SELECT 2 AS v, 'us' AS region")
    assert "has 1 commit since the preview began, when it did not exist (version 0), and" in one.refusal()
    runner.spark.sql(f"DROP TABLE {table}")
    one.promote()
    detail = runner.spark.sql(f"DESCRIBE DETAIL {table}").first()
    assert detail is not None and detail["partitionColumns"] == ["region"] and values(runner.spark, table) == [1]
    assert (detail["properties"]["my.key"], detail["properties"]["delta.columnMapping.mode"]) == ("x", "name")


def test_a_table_that_the_preview_has_made_without_rows_is_made(
    runner: TaskRunner, clones: Clones, schema: str
) -> None:
    spark, by_sql, by_task = runner.spark, f"{schema}.by_sql", f"{schema}.by_task"
    how = "USING delta CLUSTER BY (v) COMMENT 'prices'"
    one = altered(runner, clones, by_sql, f"CREATE TABLE {by_sql} (at TIMESTAMP, v DOUBLE NOT NULL) {how}")
    assert (one.diff()["version"], one.diff()["added"]) == (None, 0), "it is shown that it will be made"
    launch = in_preview(clones, 2)

    def write(ctx: Any) -> None:
        ctx.write(ctx.spark.sql("SELECT TIMESTAMP'2013-01-02' AS at, 1D AS v").limit(0), by_task, time_column="at")

    result_of(runner, launch, write)
    one.runs.add((launch.ti.dag_id, launch.ti.run_id))
    spark.sql(f"CREATE VIEW {by_sql} AS SELECT 1 AS v")
    with pytest.raises(InvalidInput, match="is not a Delta table"):
        one.promote()
    assert not spark.catalog.tableExists(by_task), "it is refused before anything is changed"
    spark.sql(f"DROP VIEW {by_sql}")
    for _ in range(2):
        promoted = {done.table: [write.run for write in done.writes] for done in one.promote()}
    assert [len(promoted[table]) for table in (by_sql, by_task)] == [0, 1], "the run has written its interval"
    assert values(spark, by_sql) == values(spark, by_task) == []
    detail = spark.sql(f"DESCRIBE DETAIL {by_sql}").first()
    assert detail is not None
    assert (detail["clusteringColumns"], detail["description"]) == (["v"], "prices")
    assert [field.nullable for field in spark.table(by_sql).schema] == [True, False]


def test_a_table_that_has_lost_its_history(previewed: Previewed) -> None:
    spark, table = previewed.spark, previewed.table
    place = Path(urlparse(OutputTable(spark, table).read().path).path)
    spark.sql(f"UPDATE {table} SET v = v WHERE id = 20")
    current = {uri.rpartition("/")[2] for uri in DeltaTable(place).file_uris()}
    for file in place.glob("*.parquet"):
        if file.name not in current:
            file.unlink()  # as VACUUM does
    assert "in the same intervals; --rebase swaps" in previewed.refusal(), "whether rows have changed is not known"
    spark.sql(f"INSERT INTO {table} VALUES (TIMESTAMP'2013-01-03 10:00:00', 99, 9)")
    OutputTable(spark, table).log(spark).checkpoint()
    for version in range(3):
        (place / "_delta_log" / f"{version:020}.json").unlink()  # as its cleanup does
    assert "its log does not reach back to version 1 any more" in previewed.refusal(rebase=True)


@pytest.mark.parametrize(
    ("kind", "columns", "message"),
    [
        ("ALWAYS", "at, v + 100 AS v", "Delta numbers id itself"),
        ("BY DEFAULT", "at, v + 100 AS v", "Delta has numbered id in the rows of the preview"),
        ("BY DEFAULT", "at, id, v + 100 AS v", None),
    ],
    ids=["by Delta alone", "by Delta", "by the task"],
)
def test_a_table_whose_rows_are_numbered(
    runner: TaskRunner, clones: Clones, schema: str, kind: str, columns: str, message: str | None
) -> None:
    """Delta numbers rows of a clone as it goes on to number those of the table, so both would have the same numbers."""
    spark, table = runner.spark, f"{schema}.numbered"
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT GENERATED {kind} AS IDENTITY, at TIMESTAMP, v DOUBLE, n BIGINT "
        "GENERATED ALWAYS AS (CAST(v AS BIGINT))) USING delta"
    )
    spark.sql(
        f"INSERT INTO {table} (at, v) SELECT make_timestamp(2013, 1, d, 12, 0, 0), d FROM VALUES (1), (2) AS of(d)"
    )
    one = Previewed.of(runner, clones, table)
    one.run(lambda rows: rows.selectExpr(*columns.split(", ")), 2)
    before = sorted(map(tuple, spark.table(table).collect()))
    for _ in range(2):
        if message is None:
            one.promote()
            assert [v for *_, v, _ in sorted(spark.table(table).collect())] == [1, 102]
        else:
            assert message in one.refusal()
            assert sorted(map(tuple, spark.table(table).collect())) == before
    spark.sql(f"INSERT INTO {table} (at, v) VALUES (TIMESTAMP'2013-01-03 12:00:00', 3)")
    numbers = [row["id"] for row in spark.table(table).collect()]
    assert len({*numbers}) == len(numbers) == 3
    assert {row["n"] for row in spark.table(table).collect()} == {1, 3, 102 if message is None else 2}


def test_an_append_only_table_is_refused_before_another_is_promoted(previewed: Previewed, schema: str) -> None:
    spark, events, only = previewed.spark, previewed.table, f"{schema}.only"
    properties = "USING delta TBLPROPERTIES ('delta.appendOnly' = 'true')"
    spark.sql(f"CREATE TABLE {only} (at TIMESTAMP, id BIGINT, v DOUBLE) {properties}")
    previewed.table = only
    new = "SELECT TIMESTAMP'2013-01-02 12:00:00' AS at, 2L AS id, 2D AS v"
    previewed.run(lambda rows: rows.sparkSession.sql(new), 2, mode="append")
    assert "only is append-only" in previewed.refusal(rebase=True)
    assert values(spark, only) == [] and 100 not in values(spark, events)


def test_what_is_not_of_intervals_is_replaced_as_a_whole(runner: TaskRunner, clones: Clones, events: str) -> None:
    one = Previewed(runner, clones, events)

    def merge(ctx: Any) -> None:
        ctx.merge(ctx.spark.sql(f"SELECT at, id, -5D AS v FROM {events} WHERE id = 30"), events, on="id")

    launch = in_preview(clones, 3)
    result_of(runner, launch, merge)
    assert "runs that did not succeed have written it" in one.refusal()
    one.runs.add((launch.ti.dag_id, launch.ti.run_id))
    one.spark.sql(f"INSERT INTO {events} VALUES (TIMESTAMP'2013-01-09', 90, 9)")
    assert "can only replace it as a whole" in one.refusal(rebase=True)
    one.spark.sql(f"DELETE FROM {events} WHERE id = 90")
    (done,) = one.promote()
    assert done.parts == 0 and values(one.spark, events) == [-5, 0, 1, 1, 100]


def test_a_table_that_the_preview_has_made(runner: TaskRunner, clones: Clones, schema: str) -> None:
    table, launch = f"{schema}.made", in_preview(clones)

    def write(ctx: Any) -> None:
        ctx.write(ctx.spark.sql("SELECT TIMESTAMP'2013-01-01 05:00:00' AS at, 1D AS v"), table, time_column="at")

    result_of(runner, launch, write)
    assert not runner.spark.catalog.tableExists(table)
    promotion = Promotion(
        runner.spark, clones.preview_id, STATE, {launch.key[:2]}, TurnHolder(TableTurns()), rebase=False
    )
    promotion.run(clones.all())
    assert values(runner.spark, table) == [1]
    assert clones.discard() == 1 and clones.all() == []


def test_rows_are_compared(spark: SparkSession) -> None:
    columns = "k INT, f DOUBLE, m MAP<STRING, INT>, n STRUCT<x: MAP<INT, INT>>, s STRING"
    old = [(1, float("nan"), {"a": 1, "b": 2}, ({1: 2},), None), (2, 0.0, {}, None, "x"), (3, 1.0, None, None, "y")]
    new = [(1, float("nan"), {"b": 2, "a": 1}, ({1: 2},), None), (2, -0.0, {}, None, "z"), (4, 1.0, None, None, "y")]
    before, after = (spark.createDataFrame(rows, columns) for rows in (old, new))
    found = diff(before, after, ["K"], [])
    assert (found.added, found.removed, found.changed, found.same) == (1, 1, 1, 1)
    assert found.columns == [{"name": "s", "rows": 1, "examples": [{"key": {"k": 2}, "old": "x", "new": "z"}]}]
    assert found.examples == {"added": [{"k": 4}], "removed": [{"k": 3}]}
    whole = diff(before.union(before), after, [], [])
    assert (whole.added, whole.removed, whole.changed, whole.same) == (2, 5, 0, 1)
    with pytest.raises(InvalidInput, match=r"the key k is not unique: 3 of its values .* such as \{\"k\":\d\}"):
        diff(before.union(before), after, ["k"], [])
    with pytest.raises(InvalidInput, match="the key 'kk' is no column of both sides"):
        diff(before, after, ["kk"], [])
    assert json.dumps(found.examples)


def test_values_that_are_secret_are_masked_in_examples() -> None:
    example = {"key": {"id": 1, "token": "x"}, "old": "hunter2", "new": None}
    columns = [{"name": name, "rows": 1, "examples": [example]} for name in ("db_password", "note")]
    found = TableDiff(
        ["id"], columns=columns, examples={"added": [{"api_key": "x", "note": "my hunter2"}], "removed": []}
    )
    shown = found.without_secrets(("hunter2",))
    masked = {"key": {"id": 1, "token": "***"}, "old": "***", "new": None}
    assert [one["examples"] for one in shown.columns] == [[masked], [masked]]
    assert shown.examples == {"added": [{"api_key": "***", "note": "my ***"}], "removed": []}
    (first, _) = found.without_secrets(()).columns
    assert first["examples"] == [masked], "by the name of the column"


def test_broken_off_between_two_tables_it_goes_on(
    previewed: Previewed, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark, second = previewed.spark, f"{schema}.second"
    spark.sql(f"CREATE TABLE {second} (at TIMESTAMP, id BIGINT, v DOUBLE) USING delta")
    first, previewed.table = previewed.table, second
    previewed.run(lambda rows: rows.sparkSession.sql("SELECT TIMESTAMP'2013-01-02' AS at, 1L AS id, 5D AS v"), 2)
    commits = [0]

    def dies_before_the_second(transaction: DeltaTransaction, *how: Any) -> int:
        if commits:
            commits.pop()
            return original(transaction, *how)
        raise KeyboardInterrupt

    original = DeltaTransaction.overwrite
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(DeltaTransaction, "overwrite", dies_before_the_second)
        previewed.promote()
    done = {name: OutputTable(spark, name).read().version for name in (first, second)}
    assert (len(values(spark, first)), values(spark, second)) == (5, []), "one has the new rows, the other the old"
    again = {one.table: one.version for one in previewed.promote()}
    assert again == {first: done[first], second: done[second] + 1}
    assert (len(values(spark, first)), values(spark, second)) == (5, [5])
    previewed.table = first
    previewed.run(lambda rows: rows.selectExpr("at", "id", "v + 1 AS v"), 2)
    assert {one.table: one.version for one in previewed.promote()} == {first: done[first] + 1, second: done[second] + 1}
    assert 101 in values(spark, first), "what the preview has written since goes in, too"
