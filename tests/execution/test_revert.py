"""Reverted runs: the rows of before come back from Delta's history, once, and not over what others have written since."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.executor_fixture import THIS_STATE, TaskRunner, a_launch, day

from backfill_manager.errors import Refused
from backfill_manager.execution.messages import Succeeded
from backfill_manager.execution.output.output_table import OutputTable
from backfill_manager.execution.output.table_turns import TableTurns, TurnHolder
from backfill_manager.execution.promote_revert.revert import Reversion, Reverted, WrittenTable
from backfill_manager.store.data_tables.table_log import read_table_log
from backfill_manager.store.delta_spark.transaction import DeltaTransaction

_numbers = itertools.count(1)


class Runs:
    """Runs that write tables, and can be reverted."""

    def __init__(self, runner: TaskRunner) -> None:
        self.runner, self.spark = runner, runner.spark

    def run(self, function: Callable[[Any], Any], *launches: Any) -> None:
        for launch in launches:
            self.runner.start(launch, function)
        for launch in launches:
            outcome = self.runner.recorder.outcome(launch)
            assert isinstance(outcome, Succeeded), (outcome, self.runner.log_of(launch))

    def write(self, table: str, value: float, *days: int, run_id: str | None = None, **how: Any) -> list[str]:
        """One run for each day (or all that `how` says), which writes a row with this value; returns their ids."""

        def write(ctx: Any) -> None:
            at = f"TIMESTAMP'{ctx.interval.start:%Y-%m-%d %H:%M:%S}' + INTERVAL 5 HOURS"
            rows = ctx.spark.sql(f"SELECT {at} AS at, {value}D AS v")
            ctx.write(rows, table, **({"time_column": "at"} | how))

        ids = [run_id or f"backfill__{next(_numbers)}" for _ in days]
        intervals = [(day(n), day(n + 1)) for n in days]
        launches = [
            a_launch(run_id=id, interval=of, launch=next(_numbers)) for id, of in zip(ids, intervals, strict=True)
        ]
        self.run(write, *launches)
        return ids

    def revert(self, tables: str | tuple[str, ...], *run_ids: str, dry_run: bool = False, **how: Any) -> list[Reverted]:
        names = (tables,) if isinstance(tables, str) else tables
        written = [WrittenTable(name, None, how.get("version"), day(1)) for name in names]
        runs = {("work_dag", run_id) for run_id in run_ids}
        reversion = Reversion(self.spark, THIS_STATE.state_id, runs, TurnHolder(TableTurns()))
        return reversion.run([dataclasses.replace(one, **how) for one in written], dry_run=dry_run)

    def refusal(self, table: str, *run_ids: str, **how: Any) -> str:
        before = self.version(table)
        with pytest.raises(Refused, match=r"^nothing was reverted: ") as refused:
            self.revert(table, *run_ids, **how)
        assert self.version(table) == before
        return str(refused.value)

    def rows(self, table: str) -> list[tuple[int, float]]:
        return sorted((row["at"].day, row["v"]) for row in self.spark.table(table).collect())

    def version(self, table: str) -> int:
        return OutputTable(self.spark, table).read().version


@pytest.fixture
def runs(runner: TaskRunner) -> Runs:
    return Runs(runner)


FEATURES = "'delta.enableDeletionVectors' = 'true', 'delta.columnMapping.mode' = 'name'"
KINDS = {
    "plain": "",
    "partitioned, with deletion vectors and column mapping": f"PARTITIONED BY (v) TBLPROPERTIES ({FEATURES})",
}


def test_a_log_is_read_commit_by_commit(runs: Runs, table: str, commits_in_memory: list[int]) -> None:
    (first, *_) = runs.write(table, 1, 1, 2, 3)
    for n in range(4):
        runs.spark.sql(f"INSERT INTO {table} VALUES (TIMESTAMP'2013-01-2{n} 05:00:00', {n})")
    runs.revert(table, first, version=1)
    assert len(commits_in_memory) > 5 and max(commits_in_memory) <= 1


@pytest.mark.parametrize("kind", KINDS)
def test_runs_go_back_to_what_was_before_them(kind: str, runs: Runs, schema: str) -> None:
    spark, table = runs.spark, f"{schema}.kinds"
    spark.sql(f"CREATE TABLE {table} (at TIMESTAMP, v DOUBLE, x INT) USING delta {KINDS[kind]}")
    if kind != "plain":
        spark.sql(f"ALTER TABLE {table} RENAME COLUMN x TO y")
    spark.sql(f"INSERT INTO {table} VALUES (TIMESTAMP'2013-01-01', 1, 0), (TIMESTAMP'2013-01-01 07:00:00', 2, 0)")
    spark.sql(f"DELETE FROM {table} WHERE v = 2")
    spark.sql(f"ALTER TABLE {table} ADD COLUMNS (z INT)")
    (first,), (second, other) = runs.write(table, 10, 1), runs.write(table, 20, 1, 2)
    assert f": run {second} of work_dag)" in runs.refusal(table, first)
    (plan,) = runs.revert(table, second, dry_run=True)
    assert (plan.version, plan.rows_now, plan.rows_then) == (None, 1, 1) and plan.intervals == (
        "2013-01-01 – 2013-01-02",
    )
    assert runs.rows(table) == [(1, 20), (2, 20)]
    (done,) = runs.revert(table, second)
    assert done.version == runs.version(table) and runs.rows(table) == [(1, 10), (2, 20)]
    (again,) = runs.revert(table, second)
    assert again.version == done.version == runs.version(table), "it is done once"
    runs.revert(table, first)
    assert runs.rows(table) == [(1, 1), (2, 20)]
    (empty,) = runs.revert(table, other)
    assert (empty.rows_now, empty.rows_then) == (1, 0) and runs.rows(table) == [(1, 1)]


def test_its_commit_says_from_which_version_on_rows_are_others(runs: Runs, table: str) -> None:
    runs.write(table, 1, 1)
    then = OutputTable(runs.spark, table).read()
    (second,) = runs.write(table, 2, 1)
    (done,) = runs.revert(table, second)
    changes = read_table_log(then.path, "at", then.version, THIS_STATE.state_id).changes
    assert set(changes.version.tolist()) == {done.version}, "what was undone is no change"
    assert set(changes.undoes_from.tolist()) == {then.version + 1}


def test_a_backfill_goes_back_of_which_commits_hold_others_runs_too(runs: Runs, schema: str) -> None:
    table = f"{schema}.grouped"
    runs.write(table, 0, 1)
    own = runs.write(table, 1, 1, 2, 3, 4)  # side by side: in fewer commits
    others = runs.write(table, 5, 5)
    runs.spark.sql(f"UPDATE {table} SET v = v WHERE v = 5")  # touches no interval of it, and changes nothing
    (done,) = runs.revert(table, *own)
    assert len(done.intervals) == 4 and runs.rows(table) == [(1, 0), (5, 5)]
    assert runs.revert(table, *others)[0].writes[0].run_id == others[0]


def test_others_have_written_since(runs: Runs, schema: str) -> None:
    spark, table = runs.spark, f"{schema}.later"
    (one,) = runs.write(table, 1, 1)
    spark.sql(f"UPDATE {table} SET v = v")
    spark.sql(f"INSERT INTO {table} VALUES (TIMESTAMP'2013-01-01 09:00:00', 9)")
    message = runs.refusal(table, one)
    assert (
        f"{table} has been written since in the same intervals (version {runs.version(table)}: WRITE by another"
        in message
    )
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    spark.sql(f"DELETE FROM {table} WHERE v = 9")
    runs.revert(table, one)
    assert runs.rows(table) == [], "the row came and went"


def test_tables_that_are_not_what_they_were(runs: Runs, schema: str) -> None:
    spark, table = runs.spark, f"{schema}.changed"
    runs.write(table, 1, 1)
    (one,) = runs.write(table, 2, 1)
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN v TO w")
    assert "do not fit any more, as v has changed or gone since" in runs.refusal(table, one)
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN w TO v")
    table_id = OutputTable(spark, table).read().table_id
    spark.sql(f"CREATE OR REPLACE TABLE {table} (at TIMESTAMP, v DOUBLE) USING delta")
    assert "was replaced by another table" in runs.refusal(table, one, table_id=table_id)
    spark.sql(f"DROP TABLE {table}")
    with pytest.raises(Refused, match=f"{table} was dropped since"):
        runs.revert(table, one)


def test_the_history_is_gone(runs: Runs, schema: str) -> None:
    spark, table = runs.spark, f"{schema}.vacuumed"
    runs.write(table, 1, 1)
    (one,) = runs.write(table, 2, 1)
    state = OutputTable(spark, table).read()
    reader = spark.read.format("delta").option("versionAsOf", state.version - 1)
    for gone in set(reader.load(state.path).inputFiles()) - set(spark.table(table).inputFiles()):  # as VACUUM does
        Path(gone.removeprefix("file:")).unlink()
    message = runs.refusal(table, one)
    assert f"{table}: files of version {state.version - 1} are gone, as after VACUUM" in message
    assert state.version_before(day(1)) == -1
    state._log.checkpoint()
    (Path(state.path.removeprefix("file:")) / "_delta_log" / f"{1:020d}.json").unlink()
    assert "its log does not reach back to version 1 any more" in runs.refusal(table, one, version=1)


def test_what_is_not_of_intervals_goes_back_as_a_whole(runs: Runs, schema: str) -> None:
    table = f"{schema}.appended"
    runs.write(table, 0, 1)
    (one,) = runs.write(table, 1, 2, mode="append")
    (plan,) = runs.revert(table, one, dry_run=True)
    assert plan.intervals == () and (plan.rows_now, plan.rows_then) == (2, 1)
    (later,) = runs.write(table, 2, 3)
    assert f"can only go back as a whole, and has been written since (version 3: run {later}" in runs.refusal(
        table, one
    )
    runs.revert(table, later)
    runs.revert(table, one)
    assert runs.rows(table) == [(1, 0)]


def test_broken_off_between_two_tables_it_goes_on(runs: Runs, schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = (f"{schema}.first", f"{schema}.second")
    for table in tables:
        runs.write(table, 0, 1)
        runs.write(table, 1, 1, run_id="backfill__killed")
    commits = [0]

    def dies_before_the_second(delta: DeltaTransaction, *given: Any) -> int:
        if commits:
            commits.pop()
            return original(delta, *given)
        raise KeyboardInterrupt

    original = DeltaTransaction.overwrite
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(DeltaTransaction, "overwrite", dies_before_the_second)
        runs.revert(tables, "backfill__killed")
    assert [runs.rows(table) for table in tables] == [[(1, 0)], [(1, 1)]]
    versions = [runs.version(table) for table in tables]
    again = [one.version for one in runs.revert(tables, "backfill__killed")]
    assert again == [versions[0], versions[1] + 1]
    assert [runs.rows(table) for table in tables] == [[(1, 0)], [(1, 0)]]


def test_a_table_whose_name_needs_quotation_marks_goes_back(runs: Runs, schema: str) -> None:
    table = f"{schema}.`2024`"
    runs.write(table, 1, 1)
    (new,) = runs.write(table, 2, 1)
    written = OutputTable(runs.spark, table).written("", "")
    assert written.name is not None
    (done,) = runs.revert(written.name, new)
    assert done.version == runs.version(table) and runs.rows(table) == [(1, 1)]


def test_a_table_that_delta_numbers_itself_is_refused_before_another_goes_back(runs: Runs, schema: str) -> None:
    plain, numbered = f"{schema}.plain", f"{schema}.numbered"
    runs.spark.sql(f"CREATE TABLE {plain} (at TIMESTAMP, v DOUBLE) USING delta")
    runs.spark.sql(
        f"CREATE TABLE {numbered} (id BIGINT GENERATED ALWAYS AS IDENTITY, at TIMESTAMP, v DOUBLE) USING delta"
    )
    for run_id, value in (("old", 10), ("new", 20)):
        for table in (plain, numbered):
            runs.write(table, value, 1, run_id=run_id)
    for dry_run in (True, False):
        with pytest.raises(Refused, match=r"nothing was reverted: .*numbered: Delta numbers id itself"):
            runs.revert((plain, numbered), "new", dry_run=dry_run)
    assert runs.rows(plain) == runs.rows(numbered) == [(1, 20)]


def test_an_append_only_table_is_refused_before_another_goes_back(runs: Runs, schema: str) -> None:
    plain, only = f"{schema}.plain", f"{schema}.only"
    properties = "USING delta TBLPROPERTIES ('delta.appendOnly' = 'true')"
    runs.spark.sql(f"CREATE TABLE {only} (at TIMESTAMP, v DOUBLE) {properties}")
    runs.write(only, 1, 1, run_id="old", mode="append")
    for table, mode in ((plain, "replace"), (only, "append")):
        runs.write(table, 2, 2, run_id="new", mode=mode)
    for dry_run in (True, False):
        with pytest.raises(Refused, match=r"nothing was reverted: .*only is append-only"):
            runs.revert((plain, only), "new", dry_run=dry_run)
    assert (runs.rows(plain), runs.rows(only)) == ([(2, 2)], [(1, 1), (2, 2)])
