"""Every worked case and thousands of random ones, without a JVM: the walk that a scheduler takes."""

from __future__ import annotations

import json
import random
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pendulum
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cron_reference import UTC, Case, excluding, expected_intervals, random_case

from backfill_manager.clock import format_instant, parse_instant
from backfill_manager.dags.definition import DagSpec, TaskSpec
from backfill_manager.dags.schedule.cron_expression import Cron
from backfill_manager.dags.schedule.timetable import Timetable, parse_date, parse_schedule, timetable_of
from backfill_manager.errors import InvalidInput, InvalidSchedule

CASES = json.loads((Path(__file__).parents[1] / "data" / "intervals.json").read_text(encoding="utf-8"))


def at(text: str) -> datetime:
    return parse_instant(text)


def walk(case: Case) -> list[tuple[datetime, datetime]]:
    timetable = Timetable(case.schedule, case.timezone, case.start, case.exclude_dates)
    return list(timetable.intervals(case.start, case.end))


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c['schedule']} {c['timezone']} {c['start'][:10]}")
def test_a_worked_case_is_walked_as_it_stands(case: dict[str, Any]) -> None:
    start, end = at(case["start"]), at(case["end"])
    timetable = Timetable(case["schedule"], case["timezone"], start)
    walked = [[format_instant(a), format_instant(b)] for a, b in timetable.intervals(start, end)]
    assert walked == case["intervals"]


def test_the_walk_agrees_with_croniter_and_the_rule_on_a_thousand_cases() -> None:
    source = random.Random(20240310)
    for _ in range(1000):
        case = random_case(source)
        assert walk(case) == expected_intervals(case), case


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_the_walk_agrees_with_croniter_and_the_rule(seed: int) -> None:
    case = random_case(random.Random(seed))
    assert walk(case) == expected_intervals(case)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_on_excluded_dates_nothing_fires_and_the_interval_before_them_ends_after_them(seed: int) -> None:
    source = random.Random(seed)
    case = excluding(random_case(source), source)
    assert walk(case) == expected_intervals(case)


def test_a_weekday_schedule_without_a_holiday_has_one_long_interval() -> None:
    weekdays = Timetable("0 6 * * MON-FRI", "Europe/Berlin", None, ("2025-12-25", "2025-12-26"))
    walked = [
        at.isoformat()[:10] for at, _ in weekdays.intervals(at("2025-12-23T00:00:00Z"), at("2025-12-31T00:00:00Z"))
    ]
    assert walked == ["2025-12-23", "2025-12-24", "2025-12-29", "2025-12-30"]
    assert weekdays.next_after(at("2025-12-24T05:00:00Z")) == at("2025-12-29T05:00:00Z")
    assert weekdays.last_at_or_before(at("2025-12-28T00:00:00Z")) == at("2025-12-24T05:00:00Z")
    assert weekdays.last_complete(at("2025-12-29T04:59:00Z")) == (
        at("2025-12-23T05:00:00Z"),
        at("2025-12-24T05:00:00Z"),
    )
    assert weekdays.describe() == "on weekdays at 06:00 (Europe/Berlin), except 2 dates"
    assert Timetable("0 6 * * MON-FRI", "Europe/Berlin").next_after(at("2025-12-24T05:00:00Z")) == at(
        "2025-12-25T05:00:00Z"
    )


def test_looking_back_finds_what_looking_forward_found() -> None:
    source = random.Random(7)
    for _ in range(300):
        case = excluding(random_case(source), source) if source.randrange(2) else random_case(source)
        timetable = Timetable(case.schedule, case.timezone, None, case.exclude_dates)
        for start, end in walk(case)[:20]:
            assert timetable.last_before(end) == start, case
            assert timetable.last_at_or_before(start) == start, case
            assert timetable.first_at_or_after(start) == start, case
            assert timetable.first_at_or_after(start + timedelta(microseconds=1)) == end, case
            assert timetable.next_after(end - timedelta(microseconds=1)) == end, case


def test_an_hourly_schedule_fires_twice_in_the_repeated_hour_and_never_in_the_skipped_one() -> None:
    hourly = Timetable("30 * * * *", "America/New_York")
    autumn = [a for a, _ in hourly.intervals(at("2024-11-03T04:00:00Z"), at("2024-11-03T08:00:00Z"))]
    assert [format_instant(a) for a in autumn] == [f"2024-11-03T0{hour}:30:00Z" for hour in (4, 5, 6, 7)]
    spring = [a for a, _ in hourly.intervals(at("2024-03-10T06:00:00Z"), at("2024-03-10T08:00:00Z"))]
    assert [format_instant(a) for a in spring] == ["2024-03-10T06:30:00Z", "2024-03-10T07:30:00Z"]


def test_a_daily_reading_that_is_skipped_moves_forward_and_a_repeated_one_fires_at_its_second_occurrence() -> None:
    assert Timetable("30 2 * * *", "America/New_York").first_at_or_after(at("2024-03-10T05:00:00Z")) == at(
        "2024-03-10T07:30:00Z"
    )
    assert Timetable("30 1 * * *", "America/New_York").first_at_or_after(at("2024-11-03T04:00:00Z")) == at(
        "2024-11-03T06:30:00Z"
    )


def test_two_readings_on_one_instant_are_one_firing() -> None:
    both = Timetable("30 2,3 * * *", "America/New_York")
    firings = [a for a, _ in both.intervals(at("2024-03-10T05:00:00Z"), at("2024-03-11T00:00:00Z"))]
    assert firings == [at("2024-03-10T07:30:00Z")]


@pytest.mark.parametrize(
    "expression",
    ["0 0 1 * MON#1", "0 0 15W * MON", "0 0 25-31 * L5", "0 0 8W * MON#2",
     "0 0 L * MON", "0 0 1-31 * MON", "0 0 1 * 0-6"],
)  # fmt: skip
def test_days_named_in_both_fields_are_joined_as_croniter_does(expression: str) -> None:
    case = Case(expression, "Europe/Amsterdam", at("2020-01-01T00:00:00Z"), at("2026-01-01T00:00:00Z"))
    assert walk(case) == expected_intervals(case) != []


@pytest.mark.usefixtures("must_end")
def test_the_next_firing_is_looked_for_in_the_windows_before_it_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backfill of 86,400 dates asks so often."""
    look, looks = Cron.first_reading, list[int]()

    def counted(cron: Cron, low: int, high: int) -> int | None:
        looks.append(low)
        return look(cron, low, high)

    monkeypatch.setattr(Cron, "first_reading", counted)
    minutely = Timetable("* * * * *", "Europe/Amsterdam")
    assert minutely.next_after(at("2024-01-05T00:00:00Z")) == at("2024-01-05T00:01:00Z")
    assert len(looks) == 1


def test_a_firing_once_in_decades_is_found() -> None:
    leap_mondays = Timetable("0 0 * 2 MON#5", "America/New_York")
    assert leap_mondays.next_after(at("2016-03-01T00:00:00Z")) == at("2044-02-29T05:00:00Z")
    assert leap_mondays.next_after(at("2072-03-01T00:00:00Z")) == at("2112-02-29T05:00:00Z")  # 2100 has no 29 February
    assert leap_mondays.last_before(at("2016-01-01T00:00:00Z")) == at("1988-02-29T05:00:00Z")


def test_a_duration_counts_exact_seconds_from_the_dags_start_date_in_both_directions() -> None:
    dag = DagSpec(
        "d",
        (TaskSpec("t"),),
        schedule={"seconds": 86_400},
        start_date=at("2024-03-10T06:00:00Z"),
        timezone="America/New_York",
    )
    timetable = timetable_of(dag, at("2024-01-01T00:00:00Z"))
    assert timetable.first_at_or_after(at("2024-03-10T06:00:01Z")) == at("2024-03-11T06:00:00Z")  # 24 hours, not a day
    assert timetable.last_before(at("2024-03-10T06:00:00Z")) == at("2024-03-09T06:00:00Z")
    assert timetable.first_at_or_after(at("2020-01-01T00:00:00Z")) == at("2020-01-01T06:00:00Z")


def test_a_duration_without_a_start_date_counts_from_where_the_range_starts() -> None:
    dag = DagSpec("d", (TaskSpec("t"),), schedule={"seconds": 5400})
    start = at("2024-01-01T00:07:00Z")
    walked = list(timetable_of(dag, start).intervals(start, start + timedelta(hours=3)))
    assert [a for a, _ in walked] == [start, start + timedelta(minutes=90), start + timedelta(hours=3)]
    assert list(timetable_of(dag).intervals(start, start)) == [(start, start + timedelta(minutes=90))]


def test_once_fires_at_its_start_date_and_none_never() -> None:
    start = at("2024-01-01T00:00:00Z")
    once, never = Timetable("@once", "UTC", start), Timetable(None)
    assert (once.first_at_or_after(start), once.next_after(start)) == (start, None)
    assert once.last_at_or_before(start + timedelta(days=1)) == start
    assert (never.first_at_or_after(start), never.next_after(start), never.last_before(start)) == (None, None, None)
    assert [*once.intervals(start, start), *never.intervals(start, start)] == []


def test_the_count_before_planning_is_near_the_truth() -> None:
    start, end = at("2024-01-01T00:00:00Z"), at("2024-12-31T00:00:00Z")
    for schedule in ("*/30 * * * *", "0 0 * * *", "0 0 1,15 * *", {"seconds": 3600}):
        timetable = Timetable(schedule, "Europe/Amsterdam", start)
        assert timetable.estimate_count(start, end) == pytest.approx(
            len(list(timetable.intervals(start, end))), rel=0.05
        )


# -- writing schedules ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("@daily", "@daily"), ("@Weekly", "@weekly"), ("@once", "@once"), (None, None),
        ("  0   2 * *\t*  ", "0 2 * * *"), ("0 0 L * *", "0 0 L * *"), ("0 0 * * MON#1", "0 0 * * MON#1"),
        (timedelta(hours=1), {"seconds": 3600}), (pendulum.duration(days=1, hours=1), {"seconds": 90_000}),
        ({"seconds": 90.0}, {"seconds": 90}),
    ],
)  # fmt: skip
def test_a_schedule_is_kept_in_its_json_form(written: Any, kept: Any) -> None:
    assert parse_schedule(written) == kept
    assert parse_schedule(json.loads(json.dumps(kept))) == kept


@pytest.mark.parametrize(
    ("written", "result"),
    [
        ("0 0 31 2 *", "never fires"), ("60 * * * *", "the minute '60'"), ("0 24 * * *", "the hour '24'"),
        ("0 0 0 * *", "the day '0'"), ("0 0 * 13 *", "the month '13'"), ("0 0 * * 5L", "L5 for the last Friday"),
        ("0 0 * * MON#1,TUE", "mixes plain weekdays with n-th ones"), ("0 0 * *", "has 4 fields, but needs five"),
        ("0 0 * * * *", "seconds and years are not supported"), ("H 0 * * *", "random"), ("", "empty"),
        ("@dayly", "did you mean '@daily'"), ("@continuous", "one of @hourly"), ("0\u00a00 * * *", "plain ASCII"),
        ("1," * 600 + "1 * * * *", "at most 1000"), (timedelta(0), "from one second"),
        (timedelta(-1), "from one second"),
        (timedelta(seconds=1.5), "whole number of seconds"), (pendulum.duration(months=1), "@monthly"),
        ({"seconds": True}, "is not a duration"), ({"minutes": 5}, "is not a duration"),
        ({"seconds": 0.5}, "whole number"),
        ({"seconds": float("nan")}, "whole number"), (5, "is not a schedule"),
    ],
)  # fmt: skip
def test_a_schedule_that_can_not_be_is_refused_in_one_line(written: Any, result: str) -> None:
    with pytest.raises(InvalidSchedule) as refusal:
        parse_schedule(written, where="file.py:3: schedule")
    message = str(refusal.value)
    assert message.startswith("file.py:3: schedule: ") and result in message and "\n" not in message


@given(st.one_of(st.text(max_size=30), st.text("0123456789*/,-LW#@ MONhr?", max_size=25)))
def test_whatever_is_written_is_a_schedule_or_a_refusal(text: str) -> None:
    try:
        kept = parse_schedule(text)
    except InvalidSchedule:
        return
    start = datetime(2024, 1, 1, tzinfo=UTC)
    firing = Timetable(kept, "America/New_York", start).first_at_or_after(start)
    assert firing is not None and firing >= start


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        ("@daily", "every day at 00:00 (UTC)"), ("*/15 * * * *", "every 15 minutes (UTC)"),
        ("@hourly", "every hour (UTC)"),
        ("30 2,14 * * 1-5", "on weekdays at 02:30 and 14:30 (UTC)"), ("5 4 * * SUN", "every Sunday at 04:05 (UTC)"),
        ("@monthly", "on day 1 of each month at 00:00 (UTC)"),
        ("0 6 L * *", "on the last day of each month at 06:00 (UTC)"),
        ("0 0 * * MON#1", "cron '0 0 * * MON#1' (UTC)"), ({"seconds": 5400}, "every 1 hour 30 minutes"),
        ({"seconds": 86_400}, "every day"), (None, "only when triggered"), ("@once", "once"),
    ],
)  # fmt: skip
def test_a_schedule_is_described_in_words(schedule: Any, words: str) -> None:
    assert Timetable(schedule).describe() == words


# -- writing dates ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "instant"),
    [
        ("2013-01-01", "2013-01-01T05:00:00Z"), ("2013-07-01T05:00", "2013-07-01T09:00:00Z"),
        ("2013-07-01 05:00:30", "2013-07-01T09:00:30Z"), ("2022-09-01T00:10:00+09:00", "2022-08-31T15:10:00Z"),
        ("2022-09-01T00:10:00Z", "2022-09-01T00:10:00Z"),
        ("2022-09-01T00:10:00.25+0530", "2022-08-31T18:40:00.250000Z"),
        ("2024-03-10T02:30", "2024-03-10T07:30:00Z"), ("2024-11-03T01:30", "2024-11-03T06:30:00Z"),
        (date(2013, 1, 1), "2013-01-01T05:00:00Z"), (datetime(2013, 1, 1, 5), "2013-01-01T10:00:00Z"),
        (datetime(2013, 1, 1, 5, tzinfo=timezone.utc), "2013-01-01T05:00:00Z"),
        (pendulum.datetime(2013, 1, 1, tz="Asia/Tokyo"), "2012-12-31T15:00:00Z"),
    ],
)  # fmt: skip
def test_a_date_without_an_offset_is_in_the_dags_zone(written: Any, instant: str) -> None:
    read = parse_date(written, "America/New_York", name="--from")
    assert type(read) is datetime and format_instant(read) == instant


@pytest.mark.parametrize(
    "text",
    [
        "2013-1-1",
        "2013-02-30",
        "yesterday",
        "",
        "20130101",
        "0001-01-01",
        "9999-12-31",
        "2013-01-01T25:00",
        "1356998400",
    ],
)
def test_what_is_not_a_date_is_refused_with_the_options_name(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"^--from: '") as refusal:
        parse_date(text, "UTC", name="--from")
    assert "; use " in str(refusal.value) and "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", ["Europe/Amsterdm", "../../etc/passwd", "", "America", "+02:00", "x\x00y"])
def test_an_unknown_time_zone_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="there is no time zone"):
        Timetable("@daily", name)
