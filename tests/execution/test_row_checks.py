"""Checks of the rows of a write: nothing is published that fails one, and what is published is what was checked."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.executor_fixture import EventRecorder, TaskRunner, a_launch, an_executor, rows_of, version_of
from support.task_snapshot import of_snapshot

from backfill_manager.errors import ChecksFailed
from backfill_manager.execution.messages import CheckedWrite, Failed, Outcome, Succeeded, TaskEnded, TaskLaunch
from backfill_manager.schemas.checks import Check
from backfill_manager.task_testing import run_task
from backfill_manager.testing import load_file

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "check-before-publishing.md"


def checked(runner: TaskRunner, launch: TaskLaunch) -> list[CheckedWrite]:
    (end,) = (e for e in runner.recorder.events if isinstance(e, TaskEnded) and e.key == launch.key)
    return list(end.checks)


def outcomes(runner: TaskRunner, launch: TaskLaunch) -> list[tuple[str, str, int | None, int | None]]:
    return [(one.condition, one.outcome, one.failing, one.rows) for one in checked(runner, launch)]


def writes(table: str, bad: int, **options: Any) -> Callable[[Any], Any]:
    """A task that writes ten rows, of which the last `bad` ones have no value, into the run's interval."""

    def work(ctx: Any) -> int | None:
        rows = ctx.spark.range(10).selectExpr(
            "id",
            "id % 5 AS half",
            f"IF(id >= 10 - {bad}, NULL, id * 2) AS value",
            "TIMESTAMP'2013-01-01 12:00:00Z' AS at",
        )
        written: int | None = ctx.write(rows, table, **{"time_column": "at", **options})
        return written

    return work


CHECKS = (
    Check("rows > 0"), Check("no nulls in id, value"), Check("unique(id)"), Check("value >= 0"),
    Check("half IN (SELECT id FROM range(4))", name="known halves", on_failure="warn"),
)  # fmt: skip


def test_a_failed_check_publishes_nothing_and_a_retry_with_good_rows_does(runner: TaskRunner, table: str) -> None:
    first, second = a_launch(checks=CHECKS), a_launch(checks=CHECKS, launch=2, try_number=2)
    assert runner.run(first, writes(table, bad=3)) == Failed(
        f"task 'work', default.{table}: check `no nulls in id, value` failed: 3 of 10 rows; nothing was written"
    )
    assert rows_of(runner.spark, table) == [] and version_of(runner.spark, table) == 0
    assert outcomes(runner, first) == [
        ("rows > 0", "passed", None, 10), ("no nulls in id, value", "failed", 3, 10), ("unique(id)", "passed", 0, 10),
        ("value >= 0", "passed", 0, 10), ("half IN (SELECT id FROM range(4))", "warned", 2, 10),
    ]  # fmt: skip
    log = runner.log_of(first)
    assert log.count("row 1 that fails: ") == 2 and '"value":null' in log and "known halves (`half IN" in log

    assert runner.run(second, writes(table, bad=0)) == Succeeded("10")
    assert [one.outcome for one in checked(runner, second)] == ["passed"] * 4 + ["warned"]
    assert len(rows_of(runner.spark, table)) == 10 and version_of(runner.spark, table) == 1
    assert "check known halves (`half IN (SELECT id FROM range(4))`) failed: 2 of 10 rows" in runner.log_of(second)


@pytest.mark.parametrize("dies_after", ["RowChecks.run", "OutputWriter._log_landed"])
def test_killed_between_check_and_commit_or_after_it(runner: TaskRunner, table: str, dies_after: str) -> None:
    work = writes(table, bad=0)

    def dies(ctx: Any) -> int | None:
        from backfill_manager.execution.output import exactly_once_writer, row_checks

        name, _, method = dies_after.partition(".")
        owner = getattr(row_checks if name == "RowChecks" else exactly_once_writer, name)
        does = getattr(owner, method)

        def do_and_die(*args: Any, **options: Any) -> None:
            does(*args, **options)
            os.kill(os.getpid(), signal.SIGKILL)

        setattr(owner, method, do_and_die)
        return work(ctx)

    killed, again = a_launch(checks=CHECKS[:2]), a_launch(checks=CHECKS[:2], launch=2)
    assert runner.run(killed, dies) == Failed("its process ended with signal 9 (SIGKILL)")
    assert checked(runner, killed) == []
    had_landed = dies_after != "RowChecks.run"
    assert len(rows_of(runner.spark, table)) == (10 if had_landed else 0)

    assert runner.run(again, work) == Succeeded(None if had_landed else "10")
    assert len(rows_of(runner.spark, table)) == 10 and version_of(runner.spark, table) == 1
    assert [one.outcome for one in checked(runner, again)] == ["skipped" if had_landed else "passed"] * 2


@pytest.mark.parametrize("mode", ["replace", "overwrite", "merge"])
def test_what_is_published_is_what_was_checked(runner: TaskRunner, table: str, mode: str) -> None:
    """Whether its rows are staged or cached, whatever computing them again would give."""

    def work(ctx: Any) -> None:
        rows = ctx.spark.range(5).selectExpr("id", "uuid() AS word", "TIMESTAMP'2013-01-01 12:00:00Z' AS at")
        checks = [Check("id > 0", on_failure="warn")]
        if mode == "merge":
            ctx.merge(rows, table, on="id", checks=checks)
        else:
            ctx.write(rows, table, "at" if mode == "replace" else None, mode=mode, checks=checks)

    launch = a_launch()
    assert isinstance(runner.run(launch, work), Succeeded), runner.log_of(launch)
    (word,) = (word for number, word, _ in rows_of(runner.spark, table) if number == 0)
    assert outcomes(runner, launch) == [("id > 0", "warned", 1, 5)]
    assert f'row 1 that fails: {{"id":0,"word":"{word}"' in runner.log_of(launch)


def test_a_commit_of_its_own_is_checked_too(runner: TaskRunner, table: str) -> None:
    launch = a_launch(checks=(Check("unique(half)"), Check("rows = 10")))
    error = f"task 'work', default.{table}: check `unique(half)` failed: 5 of 10 rows; nothing was written"
    assert runner.run(launch, writes(table, bad=0, mode="overwrite", time_column=None)) == Failed(error)
    assert version_of(runner.spark, table) == 0
    assert '{"half":0,"rows":2}' in runner.log_of(launch)


def test_a_query_of_sql_is_checked(runner: TaskRunner, table: str) -> None:
    query = "SELECT id, :interval_start AS at FROM range(3)"
    into = {"kind": "sql", "sql": query, "into": table, "time_column": "at"}
    failing = a_launch(checks=(Check("id < 2", name="small ids"),), **into)
    assert runner.run(failing) == Failed(
        f"task 'work', default.{table}: check small ids (`id < 2`) failed: 1 of 3 rows; nothing was written"
    )
    passing = a_launch(checks=(Check("rows = 3"),), launch=2, **into)
    assert isinstance(runner.run(passing), Succeeded)
    assert outcomes(runner, passing) == [("rows = 3", "passed", None, 3)]


def test_a_check_that_can_not_be_run_fails_the_task_in_one_line(runner: TaskRunner, table: str) -> None:
    for number, (condition, why) in enumerate((
        ("valeu > 0", "A column, variable, or function parameter with name `valeu` cannot be resolved. Did you mean"),
        ("no nulls in valeu", "with name `valeu` cannot be resolved"),
        ("unique(id, valeu)", "with name `valeu` cannot be resolved"),
        ("value +", "[PARSE_SYNTAX_ERROR]"),
        ("value", "is not a boolean"),
        ("count(*) > 3", "contains invalid expressions: count(1)"),
        ("id / half > 0", "[DIVIDE_BY_ZERO] Division by zero"),
    ), start=1):  # fmt: skip
        launch = a_launch(checks=(Check("rows > 0"), Check(condition, on_failure="warn")), launch=number)
        outcome = runner.run(launch, writes(table, bad=0))
        assert isinstance(outcome, Failed) and not outcome.retryable
        assert outcome.error.startswith(f"task 'work', default.{table}: check `{condition}` can't be run: ")
        assert why in outcome.error and "\n" not in outcome.error, outcome
        assert [(one.condition, one.outcome) for one in checked(runner, launch)] == [(condition, "error")]
    assert version_of(runner.spark, table) == 0


def test_rows_are_compared_with_what_the_manager_knows_of_those_before(
    spark: SparkSession, table: str, tmp_path: Path
) -> None:
    asked = []

    def rows_before(launch: TaskLaunch, table: str, number: int, unit: str) -> list[int]:
        asked.append((launch.task.task_id, table, number, unit))
        if unit == "days":
            raise OSError("disk gone")
        return [20] * number

    recorder = EventRecorder()
    with an_executor(spark, recorder, rows_before=rows_before) as executor:
        runner = TaskRunner(spark, executor, recorder, [True], tmp_path)
        sql = {"kind": "sql", "sql": "SELECT 1 AS id", "into": table, "mode": "append"}
        near = a_launch(checks=(Check("rows within 50 % of the 7 before"),))
        far = a_launch(checks=(Check("rows within 20 % of the 7 before"),), launch=2, **sql)
        unknown = a_launch(checks=(Check("within 20 % of the 7 days before"),), launch=3)
        assert runner.run(near, writes(table, bad=0)) == Succeeded("10")
        assert isinstance(runner.run(far), Succeeded), "landed before"
        assert runner.run(unknown, writes(table + "_2", bad=0)) == Failed(
            "what this task has written before can't be read from the state: OSError: disk gone"
        )
    assert asked == [
        ("work", f"default.{table}", 7, "intervals"), ("work", f"default.{table}_2", 7, "days"),
    ]  # fmt: skip
    (first,) = checked(runner, near)
    assert (first.outcome, first.value, first.message) == (
        "passed", -50.0, "10 rows, -50.0 % against 20.0, the mean of 7 intervals before",
    )  # fmt: skip


def test_the_example_of_the_guide_does_what_it_says(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code, said, error, *_ = code_of_guide()
    (tmp_path / "cleaning.py").write_text(code)
    (cleaning,) = load_file(tmp_path / "cleaning.py")
    spark.sql("CREATE SCHEMA bronze")
    try:
        flights = spark.range(1, 843).selectExpr(
            "IF(id <= 2, NULL, 'UA') AS carrier", "1544 + id AS flight", "TIMESTAMP'2013-01-05 05:00:00Z' AS time_hour",
            "IF(id <= 2, 2, 5000) AS dep_delay",
        )  # fmt: skip
        flights.write.format("delta").saveAsTable("bronze.flights")
        with pytest.raises(ChecksFailed) as failed:
            run_task(spark, cleaning, "clean", logical_date="2013-01-05")
        assert f"{failed.value}\n" == error
        lines = [f"{record.levelname} {record.message}" for record in caplog.records]
        assert [line for line in said.splitlines() if line not in lines] == []
        assert (
            "WARNING silver.flights: check plausible delays (`dep_delay BETWEEN -120 AND 1440`) failed: 840 of 842 rows"
            in lines
        )

        spark.sql("DELETE FROM bronze.flights WHERE carrier IS NULL")
        assert run_task(spark, cleaning, "clean", logical_date="2013-01-05").rows_written == 840
    finally:
        spark.sql("DROP SCHEMA bronze CASCADE")
        spark.sql("DROP SCHEMA IF EXISTS silver CASCADE")


def code_of_guide() -> list[str]:
    text = GUIDE.read_text(encoding="utf-8")
    return re.findall(r"^```(?:python|text)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_the_guide_checks_by_a_schema_of_pandera(runner: TaskRunner, table: str, tmp_path: Path) -> None:
    *_, schemas, dag_file, said = code_of_guide()
    (tmp_path / "guide").mkdir()
    for name, text in (("flight_schemas.py", schemas), ("typed_flights.py", dag_file)):
        (tmp_path / "guide" / name).write_text(text)
    (flights,) = load_file(tmp_path / "guide" / "typed_flights.py")
    checks, name = flights.spec.task("clean").checks, "pandera flight_schemas:Flights"
    assert [one.condition for one in checks] == ["rows > 0", name]

    def written(number: int, carrier: str, delay: str, on_failure: Any) -> tuple[Outcome, TaskLaunch]:
        """By a task of a bundle that has the schema in a module."""
        columns = (
            "id AS flight",
            "TIMESTAMP'2013-01-01 12:00:00Z' AS at",
            f"{carrier} AS carrier",
            f"{delay} AS dep_delay",
        )
        bundle = tmp_path / f"bundle {number}"
        bundle.mkdir()
        (bundle / "flight_schemas.py").write_text(schemas)
        (bundle / "work_dag.py").write_text(
            f"""
from backfill_manager import dag, task

@dag("work_dag", schedule=None)
def work_dag():
    @task
    def work(ctx):
        return ctx.write(ctx.spark.range(1, 4).selectExpr(*{columns!r}), {table!r}, time_column="at")
    work()
"""
        )
        chosen = tuple(replace(check, on_failure=on_failure) for check in checks)
        launch = of_snapshot(a_launch(checks=chosen, launch=number, try_number=number), bundle, "work_dag.py")
        return runner.run(launch), launch

    def found(launch: TaskLaunch) -> dict[str, tuple[str, str | None]]:
        of_schema = [one for one in checked(runner, launch) if one.condition.startswith(f"{name}: ")]
        assert {(one.rows, one.failing) for one in of_schema} == {(3, None)}
        return {one.condition.removeprefix(f"{name}: "): (one.outcome, one.message) for one in of_schema}

    outcome, launch = written(1, "IF(id = 1, NULL, 'UA')", "CAST(id * 1000 AS INT)", "fail")
    assert isinstance(outcome, Failed) and "carrier: not_nullable` failed: non-nullable column" in outcome.error
    assert rows_of(runner.spark, table) == []
    results = found(launch)
    assert results.pop("carrier: not_nullable") == ("failed", "non-nullable column 'carrier' contains null")
    assert results.pop("dep_delay: less_than(1440)")[0] == "failed"
    assert results == dict.fromkeys(
        (
            "flight: dtype('LongType()')", "flight: not_nullable", "flight: greater_than_or_equal_to(1)",
            "carrier: dtype('StringType()')", "dep_delay: dtype('IntegerType()')", "dep_delay: greater_than_or_equal_to(-120)",
        ),
        ("passed", None),
    )  # fmt: skip
    assert said.removeprefix("ERROR ").strip().replace("silver.flights", f"default.{table}") in runner.log_of(launch)

    outcome, launch = written(2, "'UA'", "CAST(id * 1000 AS INT)", "warn")
    assert (outcome, found(launch)["dep_delay: less_than(1440)"][0]) == (Succeeded("3"), "warned")


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("nowhere:Flights", "there is no module nowhere in the bundle"),
        ("json:Flights", "Flights of json is not there"),
        ("json:loads", "loads of json is no DataFrameSchema or DataFrameModel of pandera.pyspark"),
    ],
)
def test_a_schema_that_can_not_be_asked(runner: TaskRunner, table: str, reference: str, message: str) -> None:
    launch = a_launch(checks=(Check(f"pandera {reference}", on_failure="warn"),))
    outcome = runner.run(launch, writes(table, bad=0))
    assert isinstance(outcome, Failed) and message in outcome.error and not outcome.retryable
    assert [one.outcome for one in checked(runner, launch)] == ["error"]


@pytest.mark.bench
def test_cost_of_checks(runner: TaskRunner, table: str) -> None:
    """Prints how much longer a write of 100,000 rows takes with four checks, in the same commit."""

    def work(ctx: Any) -> dict[str, float]:
        checks = ["rows > 0", "no nulls in id, word", "unique(id)", "id >= 0"]
        times: dict[str, list[float]] = {"without": [], "with": []}
        for n in range(7):
            for name, given in (("without", []), ("with", checks)):
                rows = ctx.spark.range(100_000).selectExpr(
                    "id", "uuid() AS word", "TIMESTAMP'2013-01-01 12:00:00Z' AS at"
                )
                begun = time.perf_counter()
                ctx.write(rows, table, "at", checks=given)
                if n >= 2:
                    times[name].append(time.perf_counter() - begun)
        return {name: sorted(each)[len(each) // 2] for name, each in times.items()}

    launch = a_launch()
    outcome = runner.run(launch, work)
    assert isinstance(outcome, Succeeded), runner.log_of(launch)
    print(f"\nmedian seconds of a write: {outcome.result_json}")
