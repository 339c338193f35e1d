"""The planner's Spark SQL against the worked cases, against croniter and the rule, and against the scheduler's walk."""

from __future__ import annotations

import json
import random
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.cron_reference import Case, excluding, expected_intervals, random_case

from backfill_manager.clock import format_instant, from_micros, parse_instant
from backfill_manager.dags.schedule.timetable import Timetable
from backfill_manager.planning.backfills.backfill_intervals import intervals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASES = json.loads((Path(__file__).parents[1] / "data" / "intervals.json").read_text(encoding="utf-8"))
CASES_TO_TRY = 60  # a Spark job each; the timetable, which shares the tables, is tried on thousands


def planned(spark: SparkSession, query: str) -> list[tuple[datetime, datetime]]:
    table = spark.sql(query).toArrow()
    assert table["logical_date"] == table["interval_start"]
    pairs = zip(table["interval_start"].to_pylist(), table["interval_end"].to_pylist(), strict=True)
    return [(from_micros(start), from_micros(end)) for start, end in pairs]


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c['schedule']} {c['timezone']} {c['start'][:10]}")
def test_a_worked_case_comes_out_of_sql_as_it_stands(spark: SparkSession, case: dict[str, Any]) -> None:
    start, end = parse_instant(case["start"]), parse_instant(case["end"])
    found = planned(spark, intervals(Timetable(case["schedule"], case["timezone"], start), start, end))
    assert [[format_instant(a), format_instant(b)] for a, b in found] == case["intervals"]


def test_sql_agrees_with_croniter_and_the_rule_on_random_cases(spark: SparkSession) -> None:
    source = random.Random(20241103)
    for _ in range(CASES_TO_TRY):
        case = random_case(source)
        timetable = Timetable(case.schedule, case.timezone, case.start)
        assert planned(spark, intervals(timetable, case.start, case.end)) == expected_intervals(case), case


def test_sql_leaves_out_excluded_dates_as_the_scheduler_does(spark: SparkSession) -> None:
    source = random.Random(20251224)
    for _ in range(CASES_TO_TRY // 3):
        case = excluding(random_case(source), source)
        timetable = Timetable(case.schedule, case.timezone, case.start, case.exclude_dates)
        assert planned(spark, intervals(timetable, case.start, case.end)) == expected_intervals(case), case


def test_the_scheduler_and_the_planner_agree_on_durations_off_their_grid(spark: SparkSession) -> None:
    source = random.Random(3)
    for _ in range(5):
        anchor = datetime(2024, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=source.randrange(10**13))
        start = anchor + timedelta(seconds=source.randrange(-(10**6), 10**6))
        timetable = Timetable({"seconds": source.randrange(1, 10**5)}, "Pacific/Apia", anchor)
        end = start + timedelta(seconds=source.randrange(10**6))
        assert planned(spark, intervals(timetable, start, end)) == list(timetable.intervals(start, end))


@pytest.mark.parametrize(
    "expression",
    [
        "0 0 1 * MON#1",
        "0 0 15W * MON",
        "0 0 25-31 * L5",
        "0 0 8W * MON#2",
        "0 0 L * MON",
        "0 0 1-31 * MON",
        "0 0 31W * *",
    ],
)
def test_days_named_in_both_fields_are_joined_in_sql_as_croniter_does(spark: SparkSession, expression: str) -> None:
    start, end = parse_instant("2020-01-01T00:00:00Z"), parse_instant("2026-01-01T00:00:00Z")
    found = planned(spark, intervals(Timetable(expression, "Europe/Amsterdam"), start, end))
    assert found == expected_intervals(Case(expression, "Europe/Amsterdam", start, end)) != []


def test_a_century_of_leap_days_is_planned(spark: SparkSession) -> None:
    timetable = Timetable("0 0 29 2 *", "Australia/Lord_Howe")
    start, end = parse_instant("1904-03-01T00:00:00Z"), parse_instant("2004-03-01T00:00:00Z")
    found = planned(spark, intervals(timetable, start, end))
    assert found == list(timetable.intervals(start, end))
    assert len(found) == 25 and found[-1][1].year == 2008


def test_a_range_without_a_start_gives_no_interval(spark: SparkSession) -> None:
    start = parse_instant("2024-03-05T00:00:00Z")
    nowhere = [
        (Timetable("@monthly"), start, start + timedelta(days=3)),
        (Timetable("@daily"), start, start - timedelta(days=1)),
        (Timetable({"seconds": 86_400}, "UTC", start - timedelta(hours=1)), start, start + timedelta(hours=2)),
        (Timetable(None), start, start + timedelta(days=3)),
        (Timetable("@once", "UTC", start), start, start + timedelta(days=3)),
    ]
    for timetable, first, last in nowhere:
        assert planned(spark, intervals(timetable, first, last)) == []


def test_the_zones_of_the_session_and_of_the_machine_change_nothing(spark: SparkSession) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    start, end = parse_instant("2024-03-08T00:00:00Z"), parse_instant("2024-03-12T00:00:00Z")
    timetable = Timetable("30 2 * * *", "America/New_York")
    assert planned(session, intervals(timetable, start, end)) == list(timetable.intervals(start, end))


def test_nothing_is_shuffled(spark: SparkSession) -> None:
    """One partition from end to end: a plan waits for one Spark slot and no more."""
    start, end = parse_instant("2024-03-08T00:00:00Z"), parse_instant("2024-03-12T00:00:00Z")
    frame = spark.sql(intervals(Timetable("30 2 * * *", "America/New_York"), start, end))
    assert "Exchange" not in frame._jdf.queryExecution().executedPlan().toString()
