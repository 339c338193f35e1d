"""The ends of a range: what a date alone means, what a range without an end comes to, and what is refused for it."""

from __future__ import annotations

import dataclasses
from datetime import date, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from backfill_manager.clock import format_instant, parse_instant
from backfill_manager.dags.definition import DagSpec, TaskSpec
from backfill_manager.dags.schedule.timetable import Timetable, parse_end, parse_last, parse_start, timetable_of
from backfill_manager.dags.schedule.timezones import start_of_day
from backfill_manager.errors import InvalidInput
from backfill_manager.planning.backfills.backfill_range import read_range, with_defaults, with_settled_ends
from backfill_manager.requests.backfill_checks import check_backfill
from backfill_manager.schemas.backfill_options import CreateBackfill

DAILY = DagSpec("flights", (TaskSpec("clean"),), schedule="@daily", timezone="America/New_York")
HOURLY = dataclasses.replace(DAILY, schedule="@hourly")
WEEKLY = dataclasses.replace(DAILY, schedule="@weekly")
SIX_HOURS = dataclasses.replace(DAILY, schedule={"seconds": 6 * 3600})
BY_HAND = dataclasses.replace(DAILY, schedule=None)
HAVANA = dataclasses.replace(BY_HAND, timezone="America/Havana")
NOW = parse_instant("2013-06-15T16:20:00Z")  # Saturday 12:20 in New York


def at(text: str) -> datetime:
    return parse_instant(text)


def starts(dag: DagSpec, first: str, last: str) -> list[datetime]:
    ends = read_range(dag, "schedule", first, last)
    begin, end = ends["start_date"], ends["end_date"]
    assert begin is not None and end is not None
    return [start for start, _ in timetable_of(dag, begin).intervals(begin, end)]


# -- a date alone ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "last", "runs"),
    [
        ("2013-02-01", "2013-02-28", 672),
        ("2013-01-01", "2013-01-07", 168),
        ("2013-01-05", "2013-01-05", 24),
        ("2013-03-10", "2013-03-10", 23),  # the clocks go forward
        ("2013-11-03", "2013-11-03", 25),  # and back
        ("2013-01-05", "2013-01-05T00:00", 1),  # with a time it is that instant
        ("2013-01-05T06:00", "2013-01-05T08:30", 3),
        ("2013-01-05T00:00-05:00", "2013-01-05T05:00Z", 1),
    ],
)
def test_a_date_alone_as_the_end_of_a_range_is_its_whole_day(first: str, last: str, runs: int) -> None:
    assert len(starts(HOURLY, first, last)) == runs


@pytest.mark.parametrize("zone", ["America/Havana", "Africa/Cairo", "America/Sao_Paulo", "Asia/Amman", "Europe/Lisbon"])
@pytest.mark.parametrize("schedule", ["@hourly", {"seconds": 900}])
def test_the_days_of_a_year_share_out_its_intervals_wherever_midnight_is_skipped_or_repeated(
    zone: str, schedule: Any
) -> None:
    dag = dataclasses.replace(HOURLY, timezone=zone, schedule=schedule, start_date=at("2000-01-01T00:00:00Z"))
    days = [date.fromordinal(date(2013, 1, 1).toordinal() + n) for n in range(365)]
    by_day = [one for day in days for one in starts(dag, str(day), str(day))]
    assert by_day == starts(dag, "2013-01-01", "2013-12-31")
    assert {one.astimezone(ZoneInfo(zone)).date() for one in by_day} == set(days)


def test_a_day_begins_at_its_first_instant_also_where_midnight_is_skipped_or_repeated() -> None:
    # 00:00 comes twice.
    assert start_of_day(date(2013, 11, 3), ZoneInfo("America/Havana")) == at("2013-11-03T04:00:00Z")
    # There is no 00:00.
    assert start_of_day(date(2013, 3, 10), ZoneInfo("America/Havana")) == at("2013-03-10T05:00:00Z")
    apia = ZoneInfo("Pacific/Apia")  # had no 30 December
    assert (
        start_of_day(date(2011, 12, 30), apia) == start_of_day(date(2011, 12, 31), apia) == at("2011-12-30T10:00:00Z")
    )


def test_the_end_that_is_kept_is_an_instant_of_the_day_that_was_typed() -> None:
    def last(dag: DagSpec, text: str) -> str | None:
        return format_instant(parse_last(text, timetable_of(dag, at("2013-01-01T05:00:00Z"))))

    assert last(DAILY, "2013-02-28") == "2013-02-28T05:00:00Z"
    assert last(HOURLY, "2013-02-28") == "2013-03-01T04:00:00Z"
    assert last(WEEKLY, "2013-02-28") == "2013-02-28T05:00:00Z"  # a Thursday: no interval starts on it
    assert last(SIX_HOURS, "2013-02-28") == "2013-02-28T23:00:00Z"
    assert last(dataclasses.replace(DAILY, schedule="30 6 * * *"), "2013-02-28") == "2013-02-28T11:30:00Z"
    assert last(HOURLY, "2013-02-28T12:00") == "2013-02-28T17:00:00Z"
    assert parse_last(date(2013, 2, 28), Timetable("@hourly")) == at("2013-02-28T23:00:00Z")
    assert parse_last(datetime(2013, 2, 28), Timetable("@hourly")) == at("2013-02-28T00:00:00Z")


def test_the_ends_of_a_range_of_instants_are_the_first_and_the_last_of_their_days() -> None:
    assert parse_start("2013-11-03", "America/Havana", name="start_date") == at("2013-11-03T04:00:00Z")
    assert parse_end("2013-01-05", "America/New_York", name="end_date") == at("2013-01-06T04:59:59.999999Z")
    assert parse_end("2013-01-05T06:00", "America/New_York", name="end_date") == at("2013-01-05T11:00:00Z")
    with pytest.raises(InvalidInput, match="end_date: '2013-02-30' is not a date"):
        parse_end("2013-02-30", "UTC", name="end_date")


def test_a_single_run_over_days_ends_with_the_last_of_them() -> None:
    def ends(first: str, last: str) -> list[str | None]:
        return [format_instant(one) for one in read_range(BY_HAND, "single", first, last).values()]

    assert ends("2013-01-01", "2013-01-31") == ["2013-01-01T05:00:00Z", "2013-02-01T05:00:00Z"]
    assert ends("2013-01-05", "2013-01-05") == ["2013-01-05T05:00:00Z", "2013-01-06T05:00:00Z"]
    assert ends("2013-03-10", "2013-03-10") == ["2013-03-10T05:00:00Z", "2013-03-11T04:00:00Z"]
    assert ends("2013-01-01", "2013-01-31T00:00") == ["2013-01-01T05:00:00Z", "2013-01-31T05:00:00Z"]


def test_a_range_that_begins_after_the_last_interval_of_its_last_day_is_empty_and_not_the_wrong_way_round() -> None:
    ask = CreateBackfill(dag_id="flights", **read_range(DAILY, "schedule", "2013-01-05T06:00", "2013-01-05"))
    with pytest.raises(InvalidInput, match=r"no interval of '@daily' .* starts between 2013-01-05T11:00:00Z and"):
        check_backfill(ask, DAILY, NOW)
    wrong = CreateBackfill(dag_id="flights", **read_range(DAILY, "schedule", "2013-01-06T06:00", "2013-01-05"))
    with pytest.raises(InvalidInput, match="start_date 2013-01-06T11:00:00Z is after end_date"):
        check_backfill(wrong, DAILY, NOW)


# -- an end that was left out ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dag", "end"),
    [
        (DAILY, "2013-06-14T04:00:00Z"),
        (HOURLY, "2013-06-15T15:00:00Z"),
        (WEEKLY, "2013-06-02T04:00:00Z"),  # this week has not ended
        (SIX_HOURS, "2013-06-15T05:00:00Z"),  # counted from the start of the range: 01:00 to 07:00 in New York
        (dataclasses.replace(DAILY, end_date=at("2013-12-31T05:00:00Z")), "2013-06-14T04:00:00Z"),
        (dataclasses.replace(DAILY, end_date=at("2013-03-31T04:00:00Z")), "2013-03-31T04:00:00Z"),
    ],
)  # fmt: skip
def test_an_end_that_is_left_out_is_the_last_interval_that_is_complete_and_none_after_the_dags_end(
    dag: DagSpec, end: str
) -> None:
    ask = with_defaults(CreateBackfill(dag_id="flights", start_date=at("2013-01-01T05:00:00Z")), dag, NOW)
    assert format_instant(ask.end_date) == end
    for kind in ("missing", "stale"):
        assert with_defaults(ask.evolve(kind=kind, end_date=None), dag, NOW).end_date == ask.end_date
    check_backfill(CreateBackfill(dag_id="flights", start_date=at("2013-01-01T05:00:00Z")), dag, NOW)


@pytest.mark.parametrize(
    ("dag", "end"),
    [
        (DAILY, "2013-06-15T04:00:00Z"),
        (WEEKLY, "2013-06-09T04:00:00Z"),
        (dataclasses.replace(DAILY, end_date=at("2013-12-31T05:00:00Z")), "2013-06-15T04:00:00Z"),
        (dataclasses.replace(DAILY, end_date=at("2013-03-31T04:00:00Z")), "2013-04-01T04:00:00Z"),
        (dataclasses.replace(BY_HAND, end_date=at("2013-03-31T04:00:00Z")), "2013-04-01T04:00:00Z"),
        (dataclasses.replace(BY_HAND, end_date=at("2013-03-31T16:00:00Z")), "2013-03-31T16:00:00Z"),  # with a time
        (dataclasses.replace(HAVANA, end_date=at("2013-03-31T04:00:00Z")), "2013-04-01T04:00:00Z"),
        (
            dataclasses.replace(HAVANA, end_date=at("2012-11-04T04:00:00Z")),
            "2012-11-05T05:00:00Z",
        ),  # with two midnights
    ],
)
def test_a_single_run_without_an_end_ends_with_the_last_complete_interval(dag: DagSpec, end: str) -> None:
    ask = CreateBackfill(dag_id="flights", kind="single", start_date=at("2012-01-01T05:00:00Z"))
    assert format_instant(with_defaults(ask, dag, NOW).end_date) == end
    check_backfill(ask, dag, NOW)


def test_to_allow_the_future_does_not_move_an_end_that_is_left_out() -> None:
    open_end = dataclasses.replace(DAILY, end_date=at("2013-12-31T05:00:00Z"))
    ask = CreateBackfill(dag_id="flights", start_date=at("2013-01-01T05:00:00Z"), allow_future=True)
    assert format_instant(with_defaults(ask, open_end, NOW).end_date) == "2013-06-14T04:00:00Z"


def test_what_is_asked_for_keeps_no_end_that_goes_with_the_clock() -> None:
    ask = CreateBackfill(dag_id="flights", start_date=at("2013-01-01T05:00:00Z"))
    ends_later = dataclasses.replace(DAILY, end_date=at("2013-12-31T05:00:00Z"))
    for dag in (DAILY, ends_later):
        assert with_settled_ends(ask, dag, NOW).end_date is None
        assert (
            with_settled_ends(ask, dag, NOW).to_payload()
            == with_settled_ends(ask, dag, at("2013-07-01T00:00:00Z")).to_payload()
        )
    ended = dataclasses.replace(DAILY, end_date=at("2013-03-31T04:00:00Z"))
    assert with_settled_ends(ask, ended, NOW).end_date == ended.end_date
    ends_with_the_last = dataclasses.replace(DAILY, end_date=at("2013-06-14T04:00:00Z"))
    assert with_settled_ends(ask, ends_with_the_last, NOW).end_date == ends_with_the_last.end_date
    has_one_more = dataclasses.replace(DAILY, end_date=at("2013-06-15T04:00:00Z"))
    assert with_settled_ends(ask, has_one_more, NOW).end_date is None, "today's interval is complete tomorrow"
    by_hand = dataclasses.replace(BY_HAND, end_date=at("2013-03-31T04:00:00Z"))
    assert with_settled_ends(ask.evolve(kind="single"), by_hand, NOW).end_date == at("2013-04-01T04:00:00Z")
    given = ask.evolve(end_date=at("2013-12-01T05:00:00Z"))
    assert with_settled_ends(given, ends_later, NOW) == given


def test_batches_size_themselves_where_a_dag_is_batchable_and_nothing_else_is_said() -> None:
    ask = CreateBackfill(dag_id="flights", start_date=at("2013-01-01T05:00:00Z"))
    batchable = dataclasses.replace(DAILY, batchable=True)
    assert (with_defaults(ask, DAILY, NOW).batch, with_defaults(ask, batchable, NOW).batch) == (1, "auto")
    assert with_settled_ends(ask, batchable, NOW).batch is None
    assert with_defaults(ask.evolve(batch=7), batchable, NOW).batch == 7
    one_each: list[dict[str, Any]] = [
        {"kind": "single"}, {"kind": "partitions", "partitions": ("a",)}, {"reprocess": "failed_tasks"},
    ]  # fmt: skip
    for options in one_each:
        assert with_defaults(ask.evolve(**options), batchable, NOW).batch == 1
    for options in one_each[:2]:
        with pytest.raises(InvalidInput, match="has none to combine"):
            check_backfill(CreateBackfill(dag_id="flights", batch="auto", **options), batchable, NOW)


@pytest.mark.parametrize(
    ("dag", "start", "message"),
    [
        (DAILY, "2013-06-15T04:00:00Z", "is complete yet: the first one ends at 2013-06-16T04:00:00Z"),
        (DAILY, "2013-09-01T04:00:00Z", "the first one ends at 2013-09-02T04:00:00Z"),
        (WEEKLY, "2013-06-09T04:00:00Z", "the first one ends at 2013-06-16T04:00:00Z"),
        (dataclasses.replace(DAILY, end_date=at("2013-03-31T04:00:00Z")), "2013-05-01T04:00:00Z",
         "start_date 2013-05-01T04:00:00Z is after the end_date of DAG 'flights', 2013-03-31T04:00:00Z: give end_date as well"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["schedule", "single"])
def test_a_range_without_an_end_that_holds_nothing_complete_is_refused_with_when_it_will_be(
    dag: DagSpec, start: str, message: str, kind: Any
) -> None:
    with pytest.raises(InvalidInput) as refusal:
        check_backfill(CreateBackfill(dag_id="flights", kind=kind, start_date=at(start)), dag, NOW)
    assert message in str(refusal.value) and "\n" not in str(refusal.value)
