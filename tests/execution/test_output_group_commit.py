"""Writes of several tries in one commit: what each of them leaves in the table, and what happens to one that can't go along."""

from __future__ import annotations

import dataclasses
import json
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from py4j.clientserver import ClientServerConnection
from support.executor_fixture import PATIENCE, TaskRunner, a_launch, day, rows_of, version_of
from support.manager_process import wait_for
from support.waiting_turns import turns_waiting

from backfill_manager.execution.messages import Cancelled, Failed, Succeeded, TaskLaunch
from backfill_manager.execution.output import output_group_commit
from backfill_manager.execution.output.delta_write import Write
from backfill_manager.execution.output.output_group_commit import GroupCommits
from backfill_manager.execution.output.output_table import OutputTable
from backfill_manager.execution.output.table_turns import PROCESS_TURNS, TurnHolder
from backfill_manager.store.delta_spark.conflicts import CONFLICTS, retry_on_conflict
from backfill_manager.store.delta_spark.transaction import DeltaTransaction, TransactionLookup

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HOURS = "SELECT timestamp_seconds({start} + 3600 * id) AS at, {value} AS value FROM range(3)"
OTHERS = "in one commit with {} other write"


def hours(ctx: Any, value: int, shift: int = 0) -> DataFrame:
    """Three hours of the run's interval."""
    start = int((ctx.interval.start + timedelta(hours=shift)).timestamp())
    rows: DataFrame = ctx.spark.sql(HOURS.format(start=start, value=value))
    return rows


def writes(table: str, factor: int = 1, shift: int = 0, **how: Any) -> Callable[[Any], Any]:
    return lambda ctx: ctx.write(
        hours(ctx, factor * ctx.interval.start.day, shift), table, **({"time_column": "at"} | how)
    )


def days(first: int, last: int, **changes: Any) -> list[TaskLaunch]:
    launches = [a_launch(interval=(day(n), day(n + 1))) for n in range(first, last + 1)]
    return [dataclasses.replace(one, ti=one.ti.evolve(**changes)) for one in launches]


def expected(*values: int) -> list[int]:
    return sorted(value for value in values for _ in range(3))


def values(runner: TaskRunner, table: str) -> list[int]:
    return sorted(value for _, value in rows_of(runner.spark, table))


Start = Callable[[Sequence[TaskLaunch], Callable[[Any], Any]], Sequence[TaskLaunch]]


@contextmanager
def all_staged(runner: TaskRunner, table: str) -> Iterator[Start]:
    """What is started within this block has staged its rows when the block ends, and waits for the table's turn."""
    submit, arrived = runner.executor._commits.submit, threading.Semaphore(0)

    def counted(*submitted: Any) -> None:
        submit(*submitted)
        arrived.release()

    def start(launches: Sequence[TaskLaunch], function: Callable[[Any], Any]) -> Sequence[TaskLaunch]:
        started = [runner.start(launch, function) for launch in launches]
        for _ in started:
            assert arrived.acquire(timeout=PATIENCE)
        return started

    with TurnHolder(PROCESS_TURNS).acquire(OutputTable(runner.spark, table).identity):
        runner.executor._commits.submit = counted  # type: ignore[method-assign]
        try:
            yield start
        finally:
            runner.executor._commits.submit = submit  # type: ignore[method-assign]


def test_commits_of_several_writes_are_possible_with_this_delta(runner: TaskRunner) -> None:
    assert runner.executor._commits.is_available


@pytest.fixture
def filled(runner: TaskRunner, table: str) -> str:
    """A table with the rows of the 20th."""
    assert runner.run(days(20, 20)[0], writes(table)) == Succeeded("3")
    return table


@pytest.mark.parametrize("mode", ["replace", "append"])
def test_all_that_wait_are_in_one_commit_and_each_lands_once(runner: TaskRunner, filled: str, mode: str) -> None:
    before = version_of(runner.spark, filled)
    with all_staged(runner, filled) as start:
        launches = start(days(1, 5), writes(filled, mode=mode))
    assert [runner.recorder.outcome(one) for one in launches] == [Succeeded("3")] * 5
    assert [runner.recorder.rows_of(one) for one in launches] == [3] * 5
    assert version_of(runner.spark, filled) == before + 1
    assert values(runner, filled) == expected(1, 2, 3, 4, 5, 20)
    assert all(f"version {before + 1}, {OTHERS.format(4)}s" in runner.log_of(one) for one in launches)

    commit = runner.spark.sql(f"DESCRIBE HISTORY {filled} LIMIT 1").collect()[0]
    assert commit["operation"] == "WRITE" and commit["operationMetrics"]["numOutputRows"] == "15"
    written = json.loads(commit["userMetadata"])["writes"]
    assert sorted(one["interval"][0] for one in written) == [f"2013-01-0{n}T00:00:00Z" for n in range(1, 6)]

    for one in launches:  # the manager was killed before the state had heard of it
        second = dataclasses.replace(one, ti=one.ti.evolve(launch=2, try_number=2))
        assert runner.run(second, writes(filled, 9, mode=mode)) == Succeeded(None)
        assert "nothing is written again" in runner.log_of(second)
    assert version_of(runner.spark, filled) == before + 1


def test_a_table_that_is_not_there_yet_is_made_by_the_first_and_filled_by_all(runner: TaskRunner, table: str) -> None:
    with all_staged(runner, table) as start:  # the turn is held: nobody can make it
        waiting = [runner.start(one, writes(table)) for one in days(1, 3)]
        wait_for(lambda: turns_waiting(PROCESS_TURNS, OutputTable(runner.spark, table).identity) == 3)
        assert start([], writes(table)) == []
    assert [runner.recorder.outcome(one) for one in waiting] == [Succeeded("3")] * 3
    assert values(runner, table) == expected(1, 2, 3)
    history = runner.spark.sql(f"DESCRIBE HISTORY {table}").where("operation LIKE 'CREATE%'")
    assert history.count() == 1


def test_a_commit_asks_the_jvm_for_no_package(runner: TaskRunner, filled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The JVM looks for a class of that name in all jars."""
    asked, send = list[str](), ClientServerConnection.send_command

    def recorded(connection: ClientServerConnection, command: str) -> str:
        kind, of, name, *_ = command.split("\n")
        if (kind, of) == ("r", "u"):  # of reflection: what is this name?
            asked.append(name)
        return str(send(connection, command))

    monkeypatch.setattr(ClientServerConnection, "send_command", recorded)
    (launch,) = days(1, 1)
    assert isinstance(runner.run(launch, writes(filled)), Succeeded)
    assert [name for name in asked if name.rpartition(".")[2].islower()] == []


def test_intervals_that_are_done_again_are_replaced_in_one_commit(runner: TaskRunner, filled: str) -> None:
    with all_staged(runner, filled) as start:
        start(days(1, 4), writes(filled))
    wait_for(lambda: len(values(runner, filled)) == 15)
    before = version_of(runner.spark, filled)
    with all_staged(runner, filled) as start:
        launches = start(days(2, 5, generation=1, launch=2), writes(filled, 100))
    assert [runner.recorder.outcome(one) for one in launches] == [Succeeded("3")] * 4
    assert version_of(runner.spark, filled) == before + 1
    assert values(runner, filled) == expected(1, 200, 300, 400, 500, 20)


def test_one_that_fails_its_check_takes_nobody_along(runner: TaskRunner, filled: str) -> None:
    wrong = days(6, 6)[0]
    with all_staged(runner, filled) as start:
        launches = start(days(1, 3), writes(filled))
        runner.start(wrong, writes(filled, shift=-1))
        # It takes a turn of its own.
        wait_for(lambda: turns_waiting(PROCESS_TURNS, OutputTable(runner.spark, filled).identity) == 2)
    assert [runner.recorder.outcome(one) for one in launches] == [Succeeded("3")] * 3
    outcome = runner.recorder.outcome(wrong)
    assert isinstance(outcome, Failed) and "there are rows outside of this run's interval" in outcome.error
    assert values(runner, filled) == expected(1, 2, 3, 20)


def test_one_that_is_cancelled_meanwhile_is_left_out(runner: TaskRunner, filled: str) -> None:
    with all_staged(runner, filled) as start:
        cancelled, *others = start(days(1, 3), writes(filled))
        assert runner.executor.cancel(cancelled.key, "cancelled by hand")
    assert runner.recorder.outcome(cancelled) == Cancelled("cancelled by hand")
    assert [runner.recorder.outcome(one) for one in others] == [Succeeded("3")] * 2
    assert values(runner, filled) == expected(2, 3, 20)


def test_a_file_that_lies_across_the_end_of_an_interval_makes_it_a_commit_of_its_own(
    runner: TaskRunner, filled: str
) -> None:
    """As after a batch, whose rows of several days are in one file."""
    batch = a_launch(interval=(day(1), day(4)))
    at = f"timestamp_seconds({int(day(1).timestamp())} + 8 * 3600 * id)"

    def one_file(ctx: Any) -> Any:
        rows = ctx.spark.sql(f"SELECT {at} AS at, day({at}) AS value FROM range(9)")
        return ctx.write(rows.coalesce(1), filled, time_column="at")

    assert runner.run(batch, one_file) == Succeeded("9")
    with all_staged(runner, filled) as start:
        second, fifth = start([*days(2, 2), *days(5, 5)], writes(filled, 100))
    assert runner.recorder.outcome(second) == runner.recorder.outcome(fifth) == Succeeded("3")
    assert values(runner, filled) == expected(1, 200, 3, 500, 20)
    assert "a commit of its own, as a file of the table lies across the end" in runner.log_of(second)
    assert "a commit of its own" not in runner.log_of(fifth)


def test_two_runs_of_one_interval_come_one_after_the_other(runner: TaskRunner, filled: str) -> None:
    before = version_of(runner.spark, filled)
    first, second = (a_launch(run_id=name, interval=(day(1), day(2))) for name in ("one", "other"))
    with all_staged(runner, filled) as start:
        start([first], writes(filled, 7))
        start([second], writes(filled, 8))
    assert runner.recorder.outcome(first) == runner.recorder.outcome(second) == Succeeded("3")
    assert version_of(runner.spark, filled) == before + 2
    assert values(runner, filled) == expected(8, 20)


def test_a_writer_outside_that_comes_first_is_seen(
    runner: TaskRunner, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, meddled = DeltaTransaction.commit, []

    def after_another(self: DeltaTransaction, *args: Any, **how: Any) -> int:
        if not meddled:  # between the look at the table and the commit
            meddled.append(True)
            runner.spark.sql(f"INSERT INTO {filled} VALUES (TIMESTAMP '2013-01-01T20:00:00Z', 7)")
        return commit(self, *args, **how)

    monkeypatch.setattr(DeltaTransaction, "commit", after_another)
    with all_staged(runner, filled) as start:
        launches = start(days(1, 2), writes(filled))
    assert [runner.recorder.outcome(one) for one in launches] == [Succeeded("3")] * 2
    assert values(runner, filled) == expected(1, 2, 20)


def test_a_commit_that_fails_is_made_by_each_alone(
    runner: TaskRunner, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> int:
        raise OSError("No space left on device")

    monkeypatch.setattr(DeltaTransaction, "commit", fails)
    with all_staged(runner, filled) as start:
        launches = start(days(1, 2), writes(filled))
    assert [runner.recorder.outcome(one) for one in launches] == [Succeeded("3")] * 2
    assert values(runner, filled) == expected(1, 2, 20)
    assert all("a commit of its own, as OSError: No space left on device" in runner.log_of(one) for one in launches)


def test_a_bug_beside_a_commit_ends_the_manager_and_nobody_waits_for_ever(
    runner: TaskRunner, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[tuple[str, BaseException]] = []
    commits = GroupCommits(runner.spark, "backfill", on_failure=lambda name, error: failures.append((name, error)))
    bug = AssertionError("a bug")

    def fails(ready: object) -> None:
        raise bug

    monkeypatch.setattr(output_group_commit, "_group", fails)
    identity = OutputTable(runner.spark, filled).identity
    commits.submit(SimpleNamespace(identity=identity), lambda: None, pytest.fail)  # type: ignore[arg-type]
    commits.close()
    assert failures == [("commits", bug)]
    assert turns_waiting(PROCESS_TURNS, identity) == 0
    with TurnHolder(PROCESS_TURNS).acquire(identity):
        pass  # its turn is over


def test_columns_that_change_after_the_rows_were_staged_are_seen(runner: TaskRunner, filled: str) -> None:
    with all_staged(runner, filled) as start:
        (launch,) = start(days(1, 1), writes(filled))
        runner.spark.sql(f"ALTER TABLE {filled} ADD COLUMNS (note STRING)")
    assert runner.recorder.outcome(launch) == Succeeded("3")
    assert "as the table's columns or settings have changed" in runner.log_of(launch)
    assert sorted(row["value"] for row in runner.spark.table(filled).collect()) == expected(1, 20)


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE {} SET TBLPROPERTIES (delta.enableChangeDataFeed = true)",
        "ALTER TABLE {} SET TBLPROPERTIES (delta.enableDeletionVectors = true)",
        "ALTER TABLE {} SET TBLPROPERTIES (delta.columnMapping.mode = 'name')",
        "ALTER TABLE {} ADD COLUMNS (note STRING)",
    ],
)
def test_what_needs_more_than_whole_files_is_a_commit_of_its_own(runner: TaskRunner, filled: str, change: str) -> None:
    runner.spark.sql(change.format(filled))
    before = version_of(runner.spark, filled)
    launches = [runner.start(one, writes(filled)) for one in days(1, 2)]
    assert [runner.recorder.outcome(one) for one in launches] == [Succeeded("3")] * 2
    assert version_of(runner.spark, filled) == before + 2
    assert sorted(row["value"] for row in runner.spark.table(filled).collect()) == expected(1, 2, 20)


def transaction_at(runner: TaskRunner, table: str) -> DeltaTransaction:
    return DeltaTransaction(runner.spark, OutputTable(runner.spark, table).log(runner.spark))


@pytest.mark.parametrize("are_known", [True, False], ids=["by the checksum", "by Spark jobs"])
def test_a_commit_looks_at_files_that_may_hold_rows_of_its_intervals_only(
    runner: TaskRunner, filled: str, are_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for one in days(1, 4):
        assert runner.run(one, writes(filled)) == Succeeded("3")
    if not are_known:
        monkeypatch.setattr(DeltaTransaction, "_known_files", lambda _: None)
    parts = [
        Write.checked("", one, "at", None, "replace", False).replaced(runner.spark.table(filled).schema)
        for one in (days(2, 2)[0], days(4, 4)[0])
    ]
    looked_at: list[Any] = []

    def may_hold(file: dict[str, Any]) -> bool:
        looked_at.append(file)
        return any(part is not None and part.place_of(file) != "outside" for part in parts)

    transaction = transaction_at(runner, filled)
    found = transaction.files_where(" OR ".join(f"({part.where})" for part in parts if part), may_hold)
    assert {json.loads(file["stats"])["minValues"]["at"][:10] for file, _ in found} == {"2013-01-02", "2013-01-04"}
    assert are_known or len(looked_at) == len(found), "Delta has compared the statistics"
    read = transaction._transaction.readFiles()
    assert read.size() == len(found)  # others may remove all other files meanwhile


def test_a_first_launch_does_not_look_for_its_transaction_and_a_later_one_does(runner: TaskRunner, filled: str) -> None:
    first, appending, again = days(1, 1)[0], days(2, 2)[0], days(3, 3, launch=2)[0]
    for launch, mode, looks_up in ((first, "replace", False), (appending, "append", False), (again, "replace", True)):
        assert runner.run(launch, writes(filled, mode=mode)) == Succeeded("3")
        jobs = runner.recorder.spark_jobs_of(launch)  # one for the rows; reading the table's log takes more
        assert (len(jobs) > 1) == looks_up


def record(runner: TaskRunner, table: str, **transactions: int) -> None:
    transaction_at(runner, table).commit([], [], transactions.items(), metadata="", replaces=False, rows=0)


def test_transactions_are_read_of_the_whole_log_once_and_of_the_commits_since(runner: TaskRunner, filled: str) -> None:
    lookup, scheduler = TransactionLookup(), runner.spark.sparkContext._jsc.sc().dagScheduler()
    record(runner, filled, before=3, both=1)
    assert lookup.recorded(transaction_at(runner, filled), "before") == 3
    record(runner, filled, both=2, one=0)
    record(runner, filled, other=7)
    jobs = int(scheduler.nextJobId())
    now = transaction_at(runner, filled)
    found = {name: lookup.recorded(now, name) for name in ("before", "both", "one", "other", "none")}
    assert found == {"before": 3, "both": 2, "one": 0, "other": 7, "none": None}
    assert int(scheduler.nextJobId()) == jobs

    runner.spark.sql(f"DROP TABLE {filled}")
    runner.spark.sql(f"CREATE TABLE {filled} (at TIMESTAMP, value INT) USING delta")
    assert lookup.recorded(transaction_at(runner, filled), "before") is None


def test_commits_that_can_not_be_read_any_more_are_read_of_the_whole_log(
    runner: TaskRunner, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lookup = TransactionLookup()
    assert lookup.recorded(transaction_at(runner, filled), "late") is None
    record(runner, filled, late=1)
    of = DeltaTransaction.transactions_of
    monkeypatch.setattr(DeltaTransaction, "transactions_of", lambda self, version: of(self, version + 1000))
    assert lookup.recorded(transaction_at(runner, filled), "late") == 1


def test_a_transaction_that_another_commit_records_meanwhile_is_refused(runner: TaskRunner, filled: str) -> None:
    late, before = transaction_at(runner, filled), version_of(runner.spark, filled)
    assert TransactionLookup().recorded(late, "t") is None
    record(runner, filled, t=0)
    with pytest.raises(CONFLICTS):
        late.commit([], [], [("t", 0)], metadata="", replaces=False, rows=0)
    assert version_of(runner.spark, filled) == before + 1


WIDE = ", ".join(f"id AS c{n}" for n in range(31))
COLUMNS = {
    "alone": "at", "the 32nd": f"{WIDE}, at", "the 33rd": f"{WIDE}, id AS more, at",
    "after a struct": f"{WIDE}, struct(id AS a, id AS b) AS s, at", "after an array": f"{WIDE}, array(id, id) AS s, at",
}  # fmt: skip


@pytest.mark.parametrize("columns", COLUMNS.values(), ids=COLUMNS)
def test_of_which_columns_delta_has_statistics(runner: TaskRunner, table: str, columns: str) -> None:
    rows = f"SELECT {columns} FROM (SELECT id, timestamp_seconds(id) AS at FROM range(2))"
    for noted_columns in (32, 0, -1):
        properties = (
            f"TBLPROPERTIES ('delta.dataSkippingNumIndexedCols' = '{noted_columns}')" if noted_columns != 32 else ""
        )
        runner.spark.sql(f"CREATE OR REPLACE TABLE {table} USING delta {properties} AS {rows}")
        transaction = transaction_at(runner, table)
        noted = list(transaction._transaction.snapshot().statCollectionLogicalSchema().fieldNames())
        assert transaction.definition().may_have_statistics_of("at") == ("at" in noted)


def test_rows_are_computed_once_where_the_statistics_say_nothing_of_their_time(runner: TaskRunner, table: str) -> None:
    runner.spark.sql(
        f"CREATE TABLE {table} USING delta AS SELECT {WIDE}, id AS more, timestamp_seconds(0) AS at FROM range(1)"
    )

    others = [f"0L AS {name}" for name in runner.spark.table(table).columns if name != "at"]

    def write(ctx: Any) -> Any:
        return ctx.write(hours(ctx, 0).selectExpr(*others, "at").coalesce(1), table, time_column="at")

    folder = Path(runner.spark.sql(f"DESCRIBE DETAIL {table}").collect()[0]["location"].removeprefix("file:"))
    before = set(folder.glob("*.parquet"))
    assert runner.run(days(1, 1)[0], write) == Succeeded("3")
    assert len(set(folder.glob("*.parquet")) - before) == 1


def test_constraints_of_the_table_are_checked_when_rows_are_staged(runner: TaskRunner, filled: str) -> None:
    runner.spark.sql(f"ALTER TABLE {filled} ADD CONSTRAINT small CHECK (value < 100)")
    good, bad = days(1, 1)[0], days(2, 2)[0]
    assert runner.run(good, writes(filled)) == Succeeded("3")
    outcome = runner.run(bad, writes(filled, 100))
    assert isinstance(outcome, Failed) and "small" in outcome.error
    assert values(runner, filled) == expected(1, 20)


def test_partitions_of_a_table_are_replaced_in_one_commit(runner: TaskRunner, table: str) -> None:
    runner.spark.sql(f"CREATE TABLE {table} (region STRING, value INT) USING delta PARTITIONED BY (region)")
    regions = [a_launch(interval=None, partition=key) for key in ("north", "O'Brien \\ ü", "south")]

    def regional(factor: int) -> Callable[[Any], Any]:
        def write(ctx: Any) -> Any:
            rows = ctx.spark.createDataFrame([(ctx.partition_key, factor)], "region STRING, value INT")
            return ctx.write(rows, table, partition_column="region")

        return write

    for generation in (0, 1):
        before = version_of(runner.spark, table)
        again = [
            dataclasses.replace(one, ti=one.ti.evolve(generation=generation, launch=generation + 1)) for one in regions
        ]
        with all_staged(runner, table) as start:
            launches = start(again, regional(generation))
        assert [runner.recorder.outcome(one) for one in launches] == [Succeeded("1")] * 3
        assert version_of(runner.spark, table) == before + 1
        assert rows_of(runner.spark, table) == [
            ("O'Brien \\ ü", generation),
            ("north", generation),
            ("south", generation),
        ]


def test_what_another_ones_end_interrupts_in_the_jvm_is_done_again(
    runner: TaskRunner, caplog: pytest.LogCaptureFixture
) -> None:
    thread, tries = runner.spark._jvm.java.lang.Thread, []  # type: ignore[union-attr]

    def read() -> str:
        tries.append(True)
        if len(tries) == 1:
            thread.currentThread().interrupt()
            thread.sleep(1)
        return "read"

    with caplog.at_level(logging.INFO):
        assert retry_on_conflict(logging.getLogger("test"), "events")(read) == "read"
    assert caplog.messages == ["another writer was stopped while it read events; trying again (1)"]
