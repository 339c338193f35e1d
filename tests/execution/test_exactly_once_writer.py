"""Exactly-once output: what is in the table after crashes, repetitions, clears and late writes."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError
from support.executor_fixture import (
    PATIENCE,
    THIS_STATE,
    TaskRunner,
    a_launch,
    again,
    day,
    outlive_the_stop,
    rows_of,
    version_of,
)
from support.hourly_rows import hours, values, writes
from support.manager_process import wait_for
from support.waiting_turns import turns_waiting

from backfill_manager.execution.interval import Interval
from backfill_manager.execution.messages import Cancelled, Failed, Postponed, Succeeded, TaskLaunch
from backfill_manager.execution.output.output_table import OutputTable
from backfill_manager.execution.output.table_turns import PROCESS_TURNS, TurnHolder
from backfill_manager.execution.output.write_context import StateIdentity, WriteContext

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession


@dataclasses.dataclass
class TaskContextOfOld:
    """What `hours` needs of the `ctx` of a task that an older release ran."""

    spark: SparkSession
    interval: Interval


@pytest.mark.parametrize("mode", ["replace", "append"])
def test_a_retry_after_a_crash_between_output_and_state_changes_nothing(
    runner: TaskRunner, table: str, mode: str
) -> None:
    first = a_launch()
    assert runner.run(first, writes(table, 1, mode=mode)) == Succeeded("3")
    assert runner.recorder.rows_of(first) == 3
    landed = version_of(runner.spark, table)

    # the manager died before it could commit that outcome: the same task instance is started anew
    second = again(first, try_number=2)
    assert runner.run(second, writes(table, 2, mode=mode)) == Succeeded(None)
    assert runner.recorder.rows_of(second) is None
    assert values(runner.spark, table) == [1, 1, 1]
    assert version_of(runner.spark, table) == landed
    assert "nothing is written again" in runner.log_of(second)


def test_a_value_that_can_not_be_computed_while_rows_are_written_is_in_the_error(
    runner: TaskRunner, table: str
) -> None:
    rows = "CAST(concat('x', value) AS INT) AS value"
    outcome = runner.run(
        a_launch(), lambda ctx: ctx.write(hours(ctx, 1).selectExpr("at", rows), table, time_column="at")
    )
    assert isinstance(outcome, Failed) and "[CAST_INVALID_INPUT] The value 'x1'" in outcome.error


def test_an_entry_of_the_log_that_cannot_be_read_is_not_taken_for_one_that_was_deleted(
    runner: TaskRunner, table: str
) -> None:
    runner.run(a_launch(interval=(day(4), day(5))), writes(table, 1))
    state = OutputTable(runner.spark, table).read()
    entry = Path(state.path.removeprefix("file:")) / "_delta_log" / f"{0:020}.json"
    entry.write_text(entry.read_text() + " ")  # its checksum, beside it, does not fit
    with pytest.raises(Py4JJavaError, match="ChecksumException"):
        state.version_before(day(1))
    entry.unlink()
    assert state.version_before(day(1)) == -1


@pytest.mark.parametrize("mode", ["replace", "append"])
def test_a_retry_whose_rows_a_restore_has_removed_says_so_and_a_clear_writes_them_again(
    runner: TaskRunner, table: str, mode: str
) -> None:
    runner.run(a_launch(interval=(day(4), day(5))), writes(table, 1))
    before = version_of(runner.spark, table)
    launch = a_launch(interval=(day(5), day(6)))
    runner.run(launch, writes(table, 5, mode=mode))
    landed = version_of(runner.spark, table)
    runner.spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF {before}")

    retry = again(launch)
    outcome = runner.run(retry, writes(table, 5, mode=mode))

    assert isinstance(outcome, Failed) and not outcome.retryable
    assert outcome.error.endswith(
        f"an earlier try of this run had written it, and version {landed + 1} of the table has restored an older one since. "
        "Clear this task: it then writes again"
    )
    runner.spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF {landed}")
    retry = again(retry)
    assert isinstance(runner.run(retry, writes(table, 5, mode=mode)), Succeeded)
    assert values(runner.spark, table) == [1, 1, 1, 5, 5, 5]
    runner.spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF {before}")
    cleared = again(retry, generation=launch.ti.generation + 1)
    assert isinstance(runner.run(cleared, writes(table, 5, mode=mode)), Succeeded)
    assert values(runner.spark, table) == [1, 1, 1, 5, 5, 5]


def test_a_cleared_run_replaces_its_rows_and_no_others(runner: TaskRunner, table: str) -> None:
    first, other = a_launch(), a_launch(interval=(day(2), day(3)))
    assert runner.run(first, writes(table, 1)) == Succeeded("3")
    assert runner.run(other, writes(table, 5)) == Succeeded("3")
    assert runner.run(again(first, generation=1), writes(table, 2)) == Succeeded("3")
    assert values(runner.spark, table) == [2, 2, 2, 5, 5, 5]


def test_a_cleared_run_appends_once_more_in_append_mode(runner: TaskRunner, table: str) -> None:
    first = a_launch()
    assert runner.run(first, writes(table, 1, mode="append")) == Succeeded("3")
    cleared = again(first, generation=1)
    assert runner.run(cleared, writes(table, 2, mode="append")) == Succeeded("3")
    assert runner.run(again(cleared), writes(table, 3, mode="append")) == Succeeded(None)
    assert values(runner.spark, table) == [1, 1, 1, 2, 2, 2]


def test_a_run_that_redoes_a_date_replaces_what_the_old_run_wrote(runner: TaskRunner, table: str) -> None:
    assert runner.run(a_launch(run_id="backfill__2013-01-01"), writes(table, 1)) == Succeeded("3")
    assert runner.run(a_launch(run_id="backfill__2013-01-01__2"), writes(table, 2)) == Succeeded("3")
    assert values(runner.spark, table) == [2, 2, 2]


def test_each_write_of_a_task_has_a_transaction_of_its_own(runner: TaskRunner, table: str) -> None:
    def twice(ctx: Any) -> list[Any]:
        return [ctx.write(hours(ctx, value), table, mode="append") for value in (1, 2)]

    first = a_launch()
    assert runner.run(first, twice) == Succeeded("[3, 3]")
    assert runner.run(again(first), twice) == Succeeded("[null, null]")
    assert values(runner.spark, table) == [1, 1, 1, 2, 2, 2]


def test_a_table_that_a_task_names_in_several_ways_gets_all_that_it_writes(runner: TaskRunner, table: str) -> None:
    runner.run(a_launch(run_id="before"), writes(table, 0, mode="append"))
    path = OutputTable(runner.spark, table).read().path

    def by_several_names(ctx: Any) -> list[Any]:
        names = (table, path, f"default.{table}", path.removeprefix("file:"))
        return [ctx.write(hours(ctx, n), name, mode="append") for n, name in enumerate(names, start=1)]

    first = a_launch()
    assert runner.run(first, by_several_names) == Succeeded("[3, 3, 3, 3]")
    assert runner.run(again(first), by_several_names) == Succeeded("[null, null, null, null]")
    assert values(runner.spark, table) == [n for n in range(5) for _ in range(3)]


def test_two_threads_do_not_write_one_table_at_once(runner: TaskRunner, table: str, tmp_path: Path) -> None:
    """Which of the two is the first is left to chance, and a retry goes by that."""
    begun, goes_on = str(tmp_path / "begun"), str(tmp_path / "goes on")
    for path in (begun, goes_on):
        os.mkfifo(path)

    def threads(ctx: Any) -> list[Any]:
        def wait(batches: Any) -> Any:
            open(begun, "w").close()
            open(goes_on).close()
            yield from batches

        def write(frame: DataFrame, name: str = table) -> int | None:
            rows: int | None = ctx.write(frame, name, mode="append")
            return rows

        with ThreadPoolExecutor() as pool:
            slow = pool.submit(write, ctx.spark.range(3, numPartitions=1).mapInArrow(wait, "id BIGINT"))
            open(begun).close()
            refused = pool.submit(write, ctx.spark.range(5)).exception()
            other = pool.submit(write, ctx.spark.range(7), f"{table}_other").result()
            open(goes_on, "w").close()
            return [slow.result(), str(refused), other, write(ctx.spark.range(5))]

    outcome = runner.run(a_launch(), threads)
    assert isinstance(outcome, Succeeded), outcome
    slow, refused, other, after = json.loads(outcome.result_json or "")
    assert (slow, other, after) == (3, 7, 5)
    assert f"ctx.write(..., '{table}'): another thread of this task is writing this table, and a retry" in refused
    assert runner.spark.table(table).count() == 8
    runner.spark.sql(f"DROP TABLE {table}_other")


def stream_into(
    table: str, source: str, checkpoint: str, *, breaks_off: str = "", names: tuple[str, ...] = ("",)
) -> Any:
    """A task that writes each batch of the source, three files in all; the second one breaks off before or after its write."""

    def streams(ctx: Any) -> None:
        def write(frame: DataFrame, number: int) -> None:
            if (breaks_off, number) == ("before", 1):
                raise RuntimeError("the power went")
            ctx.write(frame, table, mode="append")
            if (breaks_off, number) == ("after", 1):
                raise RuntimeError("the power went")

        for n, name in enumerate(names):
            stream = ctx.spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(source).writeStream
            stream = stream.queryName(name) if name else stream
            query = stream.foreachBatch(write).option("checkpointLocation", f"{checkpoint}/{n}")
            query.trigger(availableNow=True).start().awaitTermination()

    return streams


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> str:
    path = str(tmp_path / "source")
    for n in range(3):
        spark.range(n, n + 1).write.format("delta").mode("append").save(path)
    return path


@pytest.mark.parametrize("breaks_off", ["before", "after"])
def test_a_stream_that_broke_off_goes_on_with_the_batch_that_is_next(
    runner: TaskRunner, table: str, source: str, tmp_path: Path, breaks_off: str
) -> None:
    """Its checkpoint tells it; the batch is the first one in that try, and not the first one of the stream."""
    first, checkpoint = a_launch(), str(tmp_path / "checkpoint")
    failed = runner.run(first, stream_into(table, source, checkpoint, breaks_off=breaks_off))
    assert isinstance(failed, Failed) and "the power went" in runner.log_of(first)
    assert runner.run(again(first), stream_into(table, source, checkpoint)) == Succeeded(None)
    assert rows_of(runner.spark, table) == [(0,), (1,), (2,)]


def test_streams_into_one_table_are_distinguished_by_their_names(
    runner: TaskRunner, table: str, source: str, tmp_path: Path
) -> None:
    def run(launch: TaskLaunch, *names: str) -> Any:
        return runner.run(launch, stream_into(table, source, str(tmp_path / names[0]), names=names))

    first, unnamed = a_launch(run_id="named"), a_launch(run_id="unnamed")
    for launch in (first, again(first)):
        assert run(launch, "one", "two") == Succeeded(None)
        assert rows_of(runner.spark, table) == [(0,), (0,), (1,), (1,), (2,), (2,)]
    assert isinstance(run(unnamed, "", ""), Failed)
    assert "two streams of this task write this table" in runner.log_of(unnamed)


def test_a_try_that_broke_off_between_two_writes_is_completed_by_the_next(runner: TaskRunner, table: str) -> None:
    def breaks_off(ctx: Any) -> None:
        ctx.write(hours(ctx, 1), table, mode="append")
        raise RuntimeError("the power went")

    def goes_through(ctx: Any) -> None:
        ctx.write(hours(ctx, 1), table, mode="append")
        ctx.write(hours(ctx, 2), table, mode="append")

    first = a_launch()
    assert runner.run(first, breaks_off) == Failed("RuntimeError: the power went")
    assert runner.run(again(first, try_number=2), goes_through) == Succeeded(None)
    assert values(runner.spark, table) == [1, 1, 1, 2, 2, 2]


def test_a_late_write_of_an_abandoned_try_is_refused(runner_of: Callable[..., TaskRunner], table: str) -> None:
    runner = runner_of(grace_s=PATIENCE)  # it is not killed
    begun, refused = runner.signal(), runner.signal()

    def writes_too_late(ctx: Any) -> None:
        outlive_the_stop(begun)
        try:
            ctx.write(hours(ctx, 1), table, time_column="at")
        except Exception as error:
            refused.set(f"{type(error).__name__}: {error}")
            raise

    late = runner.start(a_launch(), writes_too_late)
    assert begun.wait(PATIENCE)
    assert runner.executor.cancel(late.key, "cancelled by hand")
    assert refused.wait(PATIENCE)
    assert refused.text() == "AbandonedTry: this try is over (cancelled by hand); it writes no more"
    assert runner.recorder.outcome(late) == Cancelled("cancelled by hand")
    assert runner.run(again(late), writes(table, 2)) == Succeeded("3")
    assert values(runner.spark, table) == [2, 2, 2]


def test_a_try_that_is_cancelled_while_it_waits_for_its_turn_writes_nothing(runner: TaskRunner, table: str) -> None:
    assert runner.run(a_launch(run_id="before"), writes(table, 1)) == Succeeded("3")
    with TurnHolder(PROCESS_TURNS).acquire(OutputTable(runner.spark, table).identity) as turn:
        waiting = runner.start(a_launch(interval=(day(2), day(3))), writes(table, 2))
        wait_for(lambda: turns_waiting(PROCESS_TURNS, turn.identity))
        assert runner.executor.cancel(waiting.key, "cancelled by hand")
        assert runner.recorder.outcome(waiting) == Cancelled("cancelled by hand")
    assert values(runner.spark, table) == [1, 1, 1]


def test_a_manager_that_does_not_lead_any_more_writes_nothing(runner: TaskRunner, table: str) -> None:
    launch = a_launch()
    runner.leading[0] = False
    outcome = runner.run(launch, writes(table))
    assert outcome == Postponed("this manager is not sure that it still leads; its tasks write no more"), (
        "it costs no try"
    )
    assert not runner.spark.catalog.tableExists(table)


def test_an_older_generation_that_comes_last_is_refused(runner: TaskRunner, table: str) -> None:
    old = a_launch()
    assert runner.run(again(old, generation=1), writes(table, 2)) == Succeeded("3")
    outcome = runner.run(old, writes(table, 1))
    assert isinstance(outcome, Failed) and not outcome.retryable
    assert "was cleared and has written anew" in outcome.error
    assert values(runner.spark, table) == [2, 2, 2]


def test_eight_parallel_intervals_of_one_unpartitioned_table_all_land(runner: TaskRunner, table: str) -> None:
    launches = [a_launch(interval=(day(n), day(n + 1))) for n in range(1, 9)]
    together = runner.barrier(8)

    def all_at_once(ctx: Any) -> None:
        assert together.wait(PATIENCE)
        ctx.write(hours(ctx, ctx.interval.start.day), table, time_column="at")

    for launch in launches:
        runner.start(launch, all_at_once)
    assert [runner.recorder.outcome(launch) for launch in launches] == [Succeeded(None)] * 8
    assert values(runner.spark, table) == [n for n in range(1, 9) for _ in range(3)]


def test_a_conflict_with_a_writer_outside_is_tried_again(runner: TaskRunner, table: str, tmp_path: Path) -> None:
    assert runner.run(a_launch(run_id="before"), writes(table, 1)) == Succeeded("3")
    # A commit of its own.
    runner.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES (delta.enableChangeDataFeed = true)")
    reached, go_on = tmp_path / "reached", tmp_path / "go on"
    for pipe in (reached, go_on):
        os.mkfifo(pipe)

    def stops_in_the_middle(ctx: Any) -> Any:
        from pyspark.sql import functions as F

        @F.udf("int")
        def halting(value):  # type: ignore[no-untyped-def] # on an executor, while Delta's transaction is open
            if os.path.exists(reached):
                with open(reached, "w"), open(go_on) as message:
                    message.read()
                os.unlink(reached)
            return value

        return ctx.write(hours(ctx, 2, n=1).select("at", halting("value").alias("value")), table, time_column="at")

    def meddle() -> None:
        with open(reached), open(go_on, "w"):  # both ends are open: the writer is in the middle of it
            runner.spark.sql(f"INSERT INTO {table} VALUES (TIMESTAMP '2013-01-01T20:00:00Z', 7)")

    threading.Thread(target=meddle, daemon=True).start()
    launch = runner.start(a_launch(), stops_in_the_middle)
    assert runner.recorder.outcome(launch) == Succeeded("1")
    assert values(runner.spark, table) == [2]
    assert "another writer was first" in runner.log_of(launch)


def test_rows_outside_the_interval_are_one_clear_error_and_nothing_is_written(runner: TaskRunner, table: str) -> None:
    assert runner.run(a_launch(run_id="before"), writes(table, 1)) == Succeeded("3")
    landed = version_of(runner.spark, table)
    outcome = runner.run(a_launch(), lambda ctx: ctx.write(hours(ctx, 2, shift=-1), table, time_column="at"))
    assert isinstance(outcome, Failed)
    assert "there are rows outside of this run's interval [2013-01-01T00:00:00Z, 2013-01-02T00:00:00Z)" in outcome.error
    assert "nothing was written" in outcome.error and "at = 2012-12-31T23:00:00Z" in outcome.error
    assert version_of(runner.spark, table) == landed and values(runner.spark, table) == [1, 1, 1]


def test_a_first_write_of_days_in_utc_says_what_to_do_and_that_works(runner: TaskRunner, table: str) -> None:
    def writes_day(made: str) -> Callable[[Any], Any]:
        return lambda ctx: ctx.write(ctx.spark.sql(f"SELECT {made} AS day"), table, time_column="day")

    at = "TIMESTAMP '2013-01-01T12:00:00Z'"
    berlin = (day(1) - timedelta(hours=1), day(2) - timedelta(hours=1))

    def attempt(run_id: str, made: str) -> Any:
        return runner.run(a_launch(run_id=run_id, interval=berlin, timezone="Europe/Berlin"), writes_day(made))

    hint = "Days of this DAG begin in Europe/Berlin, those of Spark's functions in UTC: CAST(from_utc_timestamp(at, "
    wrong = attempt("first", f"date_trunc('day', {at}) + INTERVAL 1 DAY")
    assert isinstance(wrong, Failed) and hint in wrong.error
    assert hint not in attempt("second", f"{at} + INTERVAL 1 DAY").error
    right = f"CAST(from_utc_timestamp({at}, 'Europe/Berlin') AS DATE)"
    assert attempt("third", right) == Succeeded("1")
    assert runner.spark.table(table).schema["day"].dataType.simpleString() == "date"


def test_a_partition_run_replaces_the_rows_of_its_key_only(runner: TaskRunner, table: str) -> None:
    def regional(value: int) -> Callable[[Any], Any]:
        def write(ctx: Any) -> Any:
            from pyspark.sql import functions as F

            frame = ctx.spark.range(2).select(F.lit(ctx.partition_key).alias("region"), F.lit(value).alias("value"))
            return ctx.write(frame, table, partition_column="region")

        return write

    awkward = "O'Brien \\ `x` -- ü😀"
    north, odd = (a_launch(interval=None, partition=key) for key in ("north", awkward))
    assert runner.run(north, regional(1)) == Succeeded("2")
    assert runner.run(odd, regional(2)) == Succeeded("2")
    assert runner.run(again(odd, generation=1), regional(3)) == Succeeded("2")
    assert rows_of(runner.spark, table) == [(awkward, 3)] * 2 + [("north", 1)] * 2


def test_a_run_without_interval_or_partition_replaces_the_whole_table(runner: TaskRunner, table: str) -> None:
    def whole(value: int) -> Callable[[Any], Any]:
        return lambda ctx: ctx.write(ctx.spark.sql(f"SELECT {value} AS value"), table)

    assert runner.run(a_launch(interval=None), whole(1)) == Succeeded("1")
    assert runner.run(a_launch(interval=None), whole(2)) == Succeeded("1")
    assert values(runner.spark, table) == [2]


@pytest.mark.parametrize("kind", ["date", "timestamp_ntz"])
def test_dates_and_wall_clock_readings_are_those_of_the_dags_zone(runner: TaskRunner, table: str, kind: str) -> None:
    local_day = (day(1) + timedelta(hours=5), day(2) + timedelta(hours=5))  # 1 January in New York

    def write(ctx: Any) -> Any:
        frame = ctx.spark.sql(f"SELECT CAST(TIMESTAMP_NTZ'2013-01-01T00:00:00' AS {kind}) AS at, 1 AS value")
        return ctx.write(frame, table, time_column="at")

    launch = a_launch(interval=local_day, timezone="America/New_York")
    assert runner.run(launch, write) == Succeeded("1")
    assert runner.run(again(launch, generation=1), write) == Succeeded("1")
    assert values(runner.spark, table) == [1]


def test_a_path_is_written_like_a_table(runner: TaskRunner, tmp_path: Path) -> None:
    path = str(tmp_path / "out put")
    first = a_launch()
    assert runner.run(first, writes(path, 1)) == Succeeded("3")
    assert runner.run(again(first), writes(path, 2)) == Succeeded(None)
    assert [row["value"] for row in runner.spark.read.format("delta").load(path).collect()] == [1, 1, 1]


def test_the_commit_says_who_wrote_it(runner: TaskRunner, table: str) -> None:
    launch = a_launch(run_id="backfill__2013-01-01")
    runner.run(launch, writes(table))
    result = runner.spark.sql(f"DESCRIBE HISTORY {table} LIMIT 1").collect()[0]["userMetadata"]
    about = json.loads(result)
    replaced = about.pop("replaced")
    assert (replaced["lower"][:10], replaced["upper"][:10]) == ("2013-01-01", "2013-01-02"), "what a revert needs"
    assert about == {
        "state": "0123456789ab", "dag": "work_dag", "run": "backfill__2013-01-01", "task": "work", "version": 1, "try": 1,
        "launch": 1, "generation": 0,
        "interval": ["2013-01-01T00:00:00Z", "2013-01-02T00:00:00Z"],
    }  # fmt: skip
    properties = {row["key"]: row["value"] for row in runner.spark.sql(f"SHOW TBLPROPERTIES {table}").collect()}
    assert properties["delta.setTransactionRetentionDuration"] == "interval 30 days"
    assert (properties["delta.minReaderVersion"], properties["delta.minWriterVersion"]) == ("1", "2")
    this = WriteContext(
        launch, lambda: runner.spark, logging.getLogger("test"), lambda: None, THIS_STATE, TurnHolder(PROCESS_TURNS)
    )
    assert this.transaction_id(1) == "bfm/0123456789ab/work_dag/work/backfill__2013-01-01/1"


@pytest.mark.parametrize("mode", ["replace", "append"])
def test_the_same_run_of_another_state_writes_its_own_rows(
    runner: TaskRunner, runner_of: Callable[[StateIdentity], TaskRunner], table: str, mode: str
) -> None:
    launch = a_launch(run_id="backfill__2013-01-01")
    assert runner.run(launch, writes(table, 1, mode=mode)) == Succeeded("3")
    other = runner_of(StateIdentity("ba9876543210"))
    assert other.run(launch, writes(table, 2, mode=mode)) == Succeeded("3")
    assert values(runner.spark, table) == ([2, 2, 2] if mode == "replace" else [1, 1, 1, 2, 2, 2])
    assert other.run(again(launch), writes(table, 3, mode=mode)) == Succeeded(None)


@pytest.mark.parametrize("mode", ["replace", "append"])
def test_what_a_run_had_written_before_its_state_was_upgraded_is_not_written_again(
    runner: TaskRunner, runner_of: Callable[[StateIdentity], TaskRunner], table: str, mode: str
) -> None:
    """The manager of an older release committed the rows and was stopped before the state heard of it."""
    launch = a_launch(run_id="backfill__2013-01-01")  # made on day(1)
    old = hours(TaskContextOfOld(runner.spark, Interval(day(1), day(2))), 1).write.format("delta")
    old.option("txnAppId", "bfm/work_dag/work/backfill__2013-01-01/1").option("txnVersion", "0").saveAsTable(table)

    upgraded = runner_of(StateIdentity("ba9876543210", upgraded_at=day(2)))
    assert upgraded.run(again(launch), writes(table, 2, mode=mode)) == Succeeded(None)
    assert values(runner.spark, table) == [1, 1, 1]
    cleared = again(again(launch), generation=1)
    assert upgraded.run(cleared, writes(table, 3, mode=mode)) == Succeeded("3")
    assert upgraded.run(again(cleared), writes(table, 4, mode=mode)) == Succeeded(None)

    made_since = dataclasses.replace(again(again(cleared)), run=launch.run.evolve(created_at=day(3)))
    assert upgraded.run(made_since, writes(table, 5, mode=mode)) == Succeeded("3"), "as the old id is not its own"


@pytest.mark.parametrize(
    ("how", "complaint"),
    [
        ({"time_column": None}, "needs time_column="),
        ({"time_column": "att"}, "has no column 'att'; did you mean 'at'?"),
        ({"time_column": "value"}, "time_column 'value' is int; it must be TIMESTAMP, TIMESTAMP_NTZ or DATE"),
        ({"mode": "upsert"}, "mode is 'replace', 'append' or 'overwrite', not 'upsert'"),
    ],
)
def test_a_wrong_call_is_reported_in_one_line(
    runner: TaskRunner, table: str, how: dict[str, Any], complaint: str
) -> None:
    outcome = runner.run(a_launch(), writes(table, **how))
    assert isinstance(outcome, Failed) and not outcome.retryable
    assert complaint in outcome.error and "\n" not in outcome.error


def test_a_path_may_be_written_as_in_sql(runner: TaskRunner, tmp_path: Path) -> None:
    assert isinstance(runner.run(a_launch(), writes(f"delta.`{tmp_path}/t`")), Succeeded)
    assert runner.spark.read.format("delta").load(f"{tmp_path}/t").count() == 3  # of the interval


def test_a_name_that_is_no_name_and_a_frame_that_is_no_frame_are_refused(runner: TaskRunner) -> None:
    outcome = runner.run(a_launch(), writes("two words"))
    assert isinstance(outcome, Failed) and "'two words' is neither a table's name" in outcome.error
    outcome = runner.run(a_launch(run_id="list"), lambda ctx: ctx.write([1, 2], "numbers", time_column="at"))
    assert isinstance(outcome, Failed) and "takes a Spark DataFrame, not a list" in outcome.error
