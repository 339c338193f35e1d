"""Which readings of a wall clock belong to an interval, and that in_interval costs no pruning."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.executor_fixture import THIS_STATE, TaskRunner, a_launch, day

from backfill_manager.execution.interval import Interval, bounds, reading
from backfill_manager.execution.output.table_turns import TableTurns, TurnHolder
from backfill_manager.execution.output.write_context import WriteContext
from backfill_manager.execution.task_processes.task_log import TaskLogger
from backfill_manager.execution.tasks.context import TaskContext

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

UTC = timezone.utc


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("zone", "at", "wall"),
    [
        ("UTC", "2013-01-01T00:00", "2013-01-01T00:00"),
        ("America/New_York", "2013-01-01T05:00", "2013-01-01T00:00"),
        # put back: 01:00 to 02:00 is read twice, and belongs to the second pass
        ("America/New_York", "2013-11-03T05:00", "2013-11-03T01:00"),
        ("America/New_York", "2013-11-03T05:30", "2013-11-03T01:00"),
        ("America/New_York", "2013-11-03T06:00", "2013-11-03T01:00"),
        ("America/New_York", "2013-11-03T06:30", "2013-11-03T01:30"),
        # put forward: 02:00 to 03:00 is not read; it belongs to what begins at 03:00
        ("America/New_York", "2013-03-10T07:00", "2013-03-10T02:00"),
        ("America/New_York", "2013-03-10T07:30", "2013-03-10T03:30"),
        ("America/Sao_Paulo", "2018-11-04T03:00", "2018-11-04T00:00"),  # a day that begins at 01:00
        ("Pacific/Apia", "2011-12-30T10:00", "2011-12-30T00:00"),  # a day that never was
        ("Australia/Lord_Howe", "2013-04-06T14:45", "2013-04-07T01:30"),  # half an hour
    ],
)
def test_the_first_reading_of_an_instant(zone: str, at: str, wall: str) -> None:
    assert reading(utc(at), zone) == datetime.fromisoformat(wall)


def test_a_date_belongs_to_the_interval_in_which_its_midnight_lies() -> None:
    new_year = Interval(utc("2013-01-01T05:00"), utc("2013-01-02T05:00"))
    assert bounds(new_year, "America/New_York")["date"] == ("DATE '2013-01-01'", "DATE '2013-01-02'")
    morning = Interval(utc("2013-01-01T14:00"), utc("2013-01-01T15:00"))
    assert bounds(morning, "America/New_York")["date"] == ("DATE '2013-01-02'", "DATE '2013-01-02'")
    begins_at_one = Interval(utc("2018-11-04T03:00"), utc("2018-11-05T02:00"))
    assert bounds(begins_at_one, "America/Sao_Paulo")["date"] == ("DATE '2018-11-04'", "DATE '2018-11-05'")


ZONES = ["America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "America/Havana", "Pacific/Apia", "UTC"]


@given(
    zone=st.sampled_from(ZONES),
    start=st.datetimes(datetime(2011, 1, 1), datetime(2014, 1, 1)),
    steps=st.lists(st.integers(1, 3 * 24 * 60), min_size=2, max_size=12),
    where=st.floats(0, 1, exclude_max=True),
)
def test_each_reading_of_the_clock_belongs_to_exactly_one_of_neighbouring_intervals(
    zone: str, start: datetime, steps: list[int], where: float
) -> None:
    ends = [start.replace(tzinfo=UTC, second=0, microsecond=0)]
    for step in steps:
        ends.append(ends[-1] + timedelta(minutes=step))
    at = ends[0] + (ends[-1] - ends[0]) * where
    here = at.astimezone(ZoneInfo(zone))
    assume(here.fold == 1 or here.replace(fold=1).utcoffset() == here.utcoffset())  # the first of two does not count
    wall = here.replace(tzinfo=None)
    homes = [(a, b) for a, b in itertools.pairwise(ends) if reading(a, zone) <= wall < reading(b, zone)]
    assert homes == [(a, b) for a, b in itertools.pairwise(ends) if a <= at < b]


# -- in Spark ---------------------------------------------------------------------------------------------------------

COLUMNS = """
    SELECT at, CAST(from_utc_timestamp(at, 'America/New_York') AS timestamp_ntz) AS wall,
           CAST(from_utc_timestamp(at, 'America/New_York') AS date) AS `the day`, CAST(at AS string) AS text
    FROM (SELECT timestamp_seconds(1356998400 + 3600 * id) AS at FROM range(24 * 5))
"""


def a_context(spark: SparkSession, **how: Any) -> TaskContext:
    log = TaskLogger("test", lambda level, message: None)
    return TaskContext(
        WriteContext(a_launch(**how), lambda: spark, log, lambda: None, THIS_STATE, TurnHolder(TableTurns()))
    )


@pytest.fixture(scope="module")
def rows(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("interval") / "rows"
    spark.sql(COLUMNS).coalesce(1).write.parquet(str(path))
    return str(path)


@pytest.mark.parametrize("column", ["at", "wall", "the day"])
def test_in_interval_takes_the_same_rows_whatever_the_columns_type(spark: SparkSession, rows: str, column: str) -> None:
    five = timedelta(hours=5)
    ctx = a_context(spark, interval=(day(2) + five, day(3) + five), timezone="America/New_York")
    frame = spark.read.parquet(rows).where(ctx.in_interval(column))
    found = frame.selectExpr("count(*) n", "min(at) a", "max(at) z").first()
    assert found is not None
    assert (found["n"], found["a"], found["z"]) == (24, datetime(2013, 1, 2, 5), datetime(2013, 1, 3, 4))


@pytest.mark.parametrize("column", ["at", "wall", "the day"])
def test_in_interval_is_pushed_down_to_the_files(spark: SparkSession, rows: str, column: str) -> None:
    ctx = a_context(spark)
    frame = spark.read.parquet(rows).where(ctx.in_interval(column))
    plan = frame._jdf.queryExecution().executedPlan().toString()
    pushed = plan[plan.index("PushedFilters") :].split("]")[0].replace("`", "")
    assert f"GreaterThanOrEqual({column}," in pushed and f"LessThan({column}," in pushed
    assert "CASE" not in plan and "typeof" not in plan


def test_in_interval_keeps_to_instants_in_a_session_of_another_zone(spark: SparkSession, rows: str) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    ctx = a_context(session, interval=(day(2), day(3)))
    assert session.read.parquet(rows).where(ctx.in_interval("at")).count() == 24


def test_in_interval_of_a_text_column_is_an_error_that_says_so(runner: TaskRunner, rows: str) -> None:
    from backfill_manager.execution.messages import Failed

    outcome = runner.run(a_launch(), lambda ctx: ctx.spark.read.parquet(rows).where(ctx.in_interval("text")).count())
    assert isinstance(outcome, Failed)
    assert "in_interval('text'): needs a TIMESTAMP, TIMESTAMP_NTZ or DATE column" in outcome.error
    assert "this one is string" in outcome.error
