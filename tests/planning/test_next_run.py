"""When the scheduler makes its next run, and over which interval (docs/semantics.md, "The timeline"): without a JVM."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cron_reference import UTC, Case, expected_intervals, random_case

from backfill_manager.dags.definition import DagSpec, TaskSpec
from backfill_manager.dags.schedule.timetable import Timetable
from backfill_manager.errors import InvalidInput
from backfill_manager.model import states as s
from backfill_manager.model.records import DagRun
from backfill_manager.planning.runs.next_run import Upcoming, manual_interval, upcoming
from backfill_manager.planning.runs.timeline import TimelineWindow

FAR = datetime(2200, 1, 1, tzinfo=UTC)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def dag(schedule: object, **settings: object) -> DagSpec:
    return DagSpec(dag_id="d", tasks=(TaskSpec("t"),), schedule=schedule, **settings)  # type: ignore[arg-type]


def run(
    start: datetime,
    end: datetime | None = None,
    run_type: str = s.SCHEDULED_RUN,
    items: int = 1,
    made: str = "2099-01-01",
) -> DagRun:
    """One of the timeline's; without an end it is the moment itself, as of a DAG without a schedule."""
    return DagRun(
        dag_id="d", run_id=f"{run_type}__{start.isoformat()}", run_type=run_type, state=s.SUCCESS, dag_version=1,
        run_seq=1, created_at=at(made), logical_date=start, interval_start=start, interval_end=end or start, items=items,
    )  # fmt: skip


def day(text: str, n: int = 1) -> DagRun:
    return run(at(text), at(text) + timedelta(days=n))


def interval(found: Upcoming | None) -> tuple[datetime, datetime]:
    assert found is not None
    assert found.due_at == found.end, "a scheduled run becomes due at the interval's end"
    return found.start, found.end


def chain(spec: DagSpec, now: datetime) -> list[tuple[datetime, datetime]]:
    """Every interval that is due by now, each made before the next is looked for."""
    made: list[tuple[datetime, datetime]] = []
    latest: DagRun | None = None
    while (found := upcoming(spec, latest, now)) is not None and found.due_at <= now:
        made.append((found.start, found.end))
        latest = run(found.start, found.end)
    return made


# -- catchup ----------------------------------------------------------------------------------------------------------


def test_an_interval_that_ends_beyond_the_calendar_is_no_interval() -> None:
    last = datetime.max.replace(tzinfo=UTC)
    with pytest.raises(InvalidInput, match="The interval of 9999-12-31 ends beyond the calendar"):
        manual_interval(DagSpec("d", (TaskSpec("a"),), schedule="@daily"), last, last)


def test_with_catchup_every_interval_since_start_date_is_made() -> None:
    spec = dag("@daily", start_date=at("2024-01-01"), catchup=True)
    assert [start.day for start, _ in chain(spec, at("2024-01-05T12:00"))] == [1, 2, 3, 4]


def test_without_catchup_only_the_latest_complete_interval_is_made() -> None:
    spec = dag("@daily", start_date=at("2024-01-01"))
    assert chain(spec, at("2024-01-05T12:00")) == [(at("2024-01-04"), at("2024-01-05"))]


@pytest.mark.parametrize("catchup", [False, True])
def test_a_dag_without_a_start_date_begins_with_the_latest_complete_interval(catchup: bool) -> None:
    assert chain(dag("@hourly", catchup=catchup), at("2024-01-05T12:30")) == [
        (at("2024-01-05T11:00"), at("2024-01-05T12:00"))
    ]


@pytest.mark.parametrize("catchup", [False, True])
def test_before_start_date_nothing_is_due_and_the_first_one_is_known(catchup: bool) -> None:
    spec = dag("@daily", start_date=at("2024-02-01"), catchup=catchup)
    assert interval(upcoming(spec, None, at("2024-01-05"))) == (at("2024-02-01"), at("2024-02-02"))


@pytest.mark.parametrize("catchup", [False, True])
def test_the_interval_that_is_under_way_becomes_due_at_its_end(catchup: bool) -> None:
    spec = dag("@daily", start_date=at("2024-01-01"), catchup=catchup)
    found = upcoming(spec, day("2024-01-04"), at("2024-01-05T12:00"))
    assert interval(found) == (at("2024-01-05"), at("2024-01-06"))


@pytest.mark.parametrize(("catchup", "days"), [(True, [5, 6, 7, 8]), (False, [8])])
def test_missed_time_after_downtime(catchup: bool, days: list[int]) -> None:
    spec = dag("@daily", start_date=at("2024-01-01"), catchup=catchup)
    latest, made, now = day("2024-01-04"), [], at("2024-01-09T03:00")
    while (found := upcoming(spec, latest, now)) is not None and found.due_at <= now:
        made.append(found.start.day)
        latest = run(found.start, found.end)
    assert made == days


def test_older_gaps_are_never_filled_by_the_schedule() -> None:
    spec = dag("@daily", start_date=at("2024-01-01"), catchup=True)
    assert interval(upcoming(spec, day("2024-01-06"), at("2024-01-09")))[0] == at("2024-01-07")


# -- the ends ---------------------------------------------------------------------------------------------------------


def test_a_start_date_off_the_grid_begins_with_the_first_interval_that_starts_after_it() -> None:
    spec = dag("@daily", start_date=at("2024-01-01T00:01"), catchup=True)
    assert interval(upcoming(spec, None, at("2024-01-10")))[0] == at("2024-01-02")


def test_end_date_is_inclusive_the_last_interval_is_the_last_that_starts_at_or_before_it() -> None:
    on_it = dag("@daily", start_date=at("2024-01-01"), end_date=at("2024-01-03"), catchup=True)
    assert [start.day for start, _ in chain(on_it, FAR)] == [1, 2, 3]
    off_grid = dag("@daily", start_date=at("2024-01-01"), end_date=at("2024-01-02T23:59:59"), catchup=True)
    assert [start.day for start, _ in chain(off_grid, FAR)] == [1, 2]
    assert upcoming(on_it, day("2024-01-03"), at("2024-01-04")) is None


def test_an_end_date_before_the_first_start_leaves_nothing() -> None:
    spec = dag("@monthly", start_date=at("2024-01-02"), end_date=at("2024-01-31"), catchup=True)
    assert upcoming(spec, None, at("2024-01-15")) is None


# -- kinds of schedule ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("preset", "first"),
    [
        ("@hourly", ("2024-02-14T11:00", "2024-02-14T12:00")),
        ("@daily", ("2024-02-15", "2024-02-16")),
        ("@weekly", ("2024-02-18", "2024-02-25")),
        ("@monthly", ("2024-03-01", "2024-04-01")),
        ("@quarterly", ("2024-04-01", "2024-07-01")),
        ("@yearly", ("2025-01-01", "2026-01-01")),
    ],
)
def test_a_preset_is_its_cron_expression(preset: str, first: tuple[str, str]) -> None:
    spec = dag(preset, start_date=at("2024-02-14T10:30"), catchup=True)
    assert interval(upcoming(spec, None, at("2024-02-14T10:30"))) == (at(first[0]), at(first[1]))


def test_a_duration_counts_from_start_date() -> None:
    spec = dag({"seconds": 5400.0}, start_date=at("2024-01-01T00:10"), catchup=True)
    assert chain(spec, at("2024-01-01T04:00")) == [
        (at("2024-01-01T00:10"), at("2024-01-01T01:40")),
        (at("2024-01-01T01:40"), at("2024-01-01T03:10")),
    ]


def test_a_duration_without_start_date_goes_by_whole_multiples_of_itself_whenever_it_is_asked() -> None:
    spec = dag({"seconds": 3600.0})
    for minute in (1, 17, 59):
        assert interval(upcoming(spec, None, at(f"2024-01-01T05:{minute:02}"))) == (
            at("2024-01-01T04:00"), at("2024-01-01T05:00"),
        )  # fmt: skip


def test_a_duration_without_start_date_goes_on_from_where_the_timeline_ends() -> None:
    backfilled = run(at("2024-01-01T02:07"), at("2024-01-01T03:07"), s.BACKFILL_RUN)
    for catchup, first in ((True, "2024-01-01T03:07"), (False, "2024-01-01T05:07")):
        found = interval(upcoming(dag({"seconds": 3600.0}, catchup=catchup), backfilled, at("2024-01-01T06:30")))
        assert found == (at(first), at(first) + timedelta(hours=1))


def test_a_run_by_hand_of_a_duration_without_start_date_is_of_a_whole_interval() -> None:
    spec, now = dag({"seconds": 21_600.0}), at("2024-01-01T14:17:03")
    whole = (at("2024-01-01T06:00"), at("2024-01-01T12:00"))
    assert manual_interval(spec, None, now) == whole == interval(upcoming(spec, None, now))
    given = at("2024-01-01T03:07")
    assert manual_interval(spec, given, now) == (given, given + timedelta(hours=6))


def test_once_is_made_once_at_start_date_or_at_once() -> None:
    later = dag("@once", start_date=at("2024-03-01"))
    assert upcoming(later, None, at("2024-01-01")) == Upcoming(at("2024-03-01"), at("2024-03-01"), at("2024-03-01"))
    now = at("2024-01-01T10:00")
    assert upcoming(dag("@once"), None, now) == Upcoming(now, now, now)
    assert upcoming(later, run(at("2024-03-01")), FAR) is None


def test_a_dag_without_a_schedule_is_never_due() -> None:
    assert upcoming(dag(None, start_date=at("2024-01-01"), catchup=True), None, FAR) is None
    assert Timetable(None).last_complete(FAR) is None


# -- what the timeline's latest run says ------------------------------------------------------------------------------


def test_from_daily_to_hourly_it_goes_on_from_the_end_of_the_last_day() -> None:
    spec = dag("@hourly", start_date=at("2024-01-01"), catchup=True)
    found = upcoming(spec, day("2024-01-04"), at("2024-01-05T02:30"))
    assert interval(found) == (at("2024-01-05T00:00"), at("2024-01-05T01:00"))


def test_from_hourly_to_daily_the_rest_of_the_broken_day_is_left_to_a_backfill() -> None:
    spec = dag("@daily", start_date=at("2024-01-01"), catchup=True)
    last_hour = run(at("2024-01-05T02:00"), at("2024-01-05T03:00"))
    assert interval(upcoming(spec, last_hour, at("2024-01-09")))[0] == at("2024-01-06")
    midnight = run(at("2024-01-05T23:00"), at("2024-01-06T00:00"))
    assert interval(upcoming(spec, midnight, at("2024-01-09")))[0] == at("2024-01-06")


@pytest.mark.parametrize("catchup", [False, True])
def test_after_a_backfill_has_reached_past_what_the_schedule_made_it_goes_on_from_there(catchup: bool) -> None:
    spec = dag("@daily", start_date=at("2024-01-01"), catchup=catchup)
    timeline = TimelineWindow.of(
        [day("2024-01-05"), run(at("2024-01-20"), at("2024-01-21"), s.BACKFILL_RUN, made="2024-01-23")]
    )
    assert interval(upcoming(spec, timeline.last_scheduled, at("2024-01-21")))[0] == at("2024-01-21")


@pytest.mark.parametrize(
    ("run_type", "made"),
    [(s.MANUAL_RUN, "2024-01-09"), (s.MANUAL_RUN, "2024-03-09"), (s.BACKFILL_RUN, "2024-01-09"), (s.EXTERNAL_RUN, "2024-03-09")],
)  # fmt: skip
def test_runs_by_hand_and_runs_made_before_their_interval_had_ended_carry_the_schedule_nowhere(
    run_type: str, made: str
) -> None:
    timeline = TimelineWindow.of([day("2024-01-05"), run(at("2024-02-05"), at("2024-02-06"), run_type, made=made)])
    assert timeline.last_scheduled == day("2024-01-05")
    spec = dag("@daily", start_date=at("2024-01-01"), catchup=True)
    assert interval(upcoming(spec, timeline.last_scheduled, at("2024-01-09")))[0] == at("2024-01-06")


def test_a_partial_run_carries_the_schedule_nowhere_and_its_date_is_not_passed_over() -> None:
    partial = run(at("2024-01-06"), at("2024-01-07"), s.BACKFILL_RUN, made="2024-01-09").evolve(is_partial=True)
    timeline = TimelineWindow.of([day("2024-01-05"), partial])
    assert timeline.last_scheduled == day("2024-01-05")
    assert not timeline.stands_for_schedule(at("2024-01-06"))


@pytest.mark.parametrize(
    ("made", "passed_over"), [("2024-01-06T18:00", False), ("2024-01-07", True), ("2024-01-09", True)]
)
def test_the_schedule_passes_over_a_date_that_was_run_by_hand_once_its_interval_had_ended(
    made: str, passed_over: bool
) -> None:
    by_hand = run(at("2024-01-06"), at("2024-01-07"), s.MANUAL_RUN, made=made)
    timeline = TimelineWindow.of([day("2024-01-05"), by_hand])
    for catchup, now in ((True, "2024-01-20"), (False, "2024-01-07")):
        spec = dag("@daily", start_date=at("2024-01-01"), catchup=catchup)
        found = upcoming(spec, timeline.last_scheduled, at(now), timeline.stands_for_schedule)
        assert interval(found)[0] == at("2024-01-07" if passed_over else "2024-01-06")


def test_a_date_of_the_schedule_that_was_done_over_by_hand_is_where_it_goes_on_from_all_the_same() -> None:
    """Else a DAG with catchup of which the only run was done over would begin again at its start_date."""
    over = day("2024-01-05").evolve(state=s.OVERRIDDEN, overridden_by="manual__2")
    timeline = TimelineWindow.of([over, run(at("2024-01-05"), at("2024-01-06"), s.MANUAL_RUN, made="2024-01-09")])
    spec = dag("@daily", start_date=at("2023-01-01"), catchup=True)
    assert interval(upcoming(spec, timeline.last_scheduled, at("2024-01-09")))[0] == at("2024-01-06")


@pytest.mark.parametrize("catchup", [False, True])
def test_it_goes_on_from_the_end_of_a_batch_not_from_its_first_date(catchup: bool) -> None:
    spec = dag("@daily", start_date=at("2024-01-01"), catchup=catchup)
    batch = run(at("2024-01-10"), at("2024-01-20"), s.BACKFILL_RUN, items=10)
    assert interval(upcoming(spec, batch, at("2024-01-20T01:00")))[0] == at("2024-01-20")


@pytest.mark.parametrize("catchup", [False, True])
def test_a_run_of_a_moment_is_not_made_again(catchup: bool) -> None:
    spec = dag("@daily", start_date=at("2024-01-01"), catchup=catchup)
    assert interval(upcoming(spec, run(at("2024-01-08")), at("2024-01-09T01:00")))[0] == at("2024-01-09")


def test_runs_from_before_start_date_do_not_bring_the_schedule_before_it() -> None:
    spec = dag("@daily", start_date=at("2024-01-10"), catchup=True)
    assert interval(upcoming(spec, day("2024-01-02"), at("2024-01-15")))[0] == at("2024-01-10")


# -- change of clocks -------------------------------------------------------------------------------------------------


def test_a_reading_that_is_skipped_moves_forward_and_one_that_repeats_fires_the_second_time() -> None:
    spring = dag("30 2 * * *", start_date=at("2024-03-30"), timezone="Europe/Amsterdam", catchup=True)
    assert [start for start, _ in islice(chain(spring, at("2024-04-02T12:00")), 3)] == [
        at("2024-03-30T01:30"), at("2024-03-31T01:30"), at("2024-04-01T00:30"),
    ]  # fmt: skip
    autumn = dag("30 2 * * *", start_date=at("2024-10-26T12:00"), timezone="Europe/Amsterdam", catchup=True)
    assert interval(upcoming(autumn, None, FAR))[0] == at("2024-10-27T01:30")


def test_every_hour_fires_twice_in_a_repeated_hour_and_never_in_a_skipped_one() -> None:
    spec = dag("0 * * * *", start_date=at("2024-11-03T04:00"), timezone="America/New_York", catchup=True)
    local_hours = [start.hour for start, _ in chain(spec, at("2024-11-03T08:00"))]
    assert local_hours == [4, 5, 6, 7], "an hour of UTC each: 00, 01, 01 again, 02 in New York"


def test_a_day_in_lord_howe_is_half_an_hour_longer_once_a_year() -> None:
    spec = dag("@daily", start_date=at("2024-04-05"), timezone="Australia/Lord_Howe", catchup=True)
    lengths = {(end - start) / timedelta(hours=1) for start, end in chain(spec, at("2024-04-10"))}
    assert lengths == {24.0, 24.5}


# -- the scheduler and the planner ------------------------------------------------------------------------------------


def _chain_is_what_the_planner_plans(spec: DagSpec, case: Case) -> list[tuple[datetime, datetime]]:
    """With `end_date` as the range's end both have the same intervals; returns them."""
    assert spec.start_date is not None
    timetable = Timetable(spec.schedule, spec.timezone, spec.start_date)
    planned = list(islice(timetable.intervals(case.start, case.end), 300))
    made: list[tuple[datetime, datetime]] = []
    latest: DagRun | None = None
    while len(made) < 300 and (found := upcoming(spec, latest, FAR)) is not None:
        made.append((found.start, found.end))
        latest = run(found.start, found.end)
    assert made == planned, case
    return made


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_for_any_cron_expression_zone_and_start_the_scheduler_makes_what_the_planner_plans(seed: int) -> None:
    case = random_case(random.Random(seed))
    spec = dag(case.schedule, timezone=case.timezone, start_date=case.start, end_date=case.end, catchup=True)
    made = _chain_is_what_the_planner_plans(spec, case)
    assert made == expected_intervals(case)[:300]


@settings(max_examples=100, deadline=None)
@given(
    seconds=st.integers(1, 10**6),
    start=st.datetimes(datetime(2000, 1, 1), datetime(2040, 1, 1)),
    length=st.timedeltas(timedelta(0), timedelta(days=30)),
)
def test_for_any_duration_and_start_the_scheduler_makes_what_the_planner_plans(
    seconds: int, start: datetime, length: timedelta
) -> None:
    begin = start.replace(tzinfo=UTC)
    case = Case("", "Pacific/Apia", begin, begin + length)
    spec = dag({"seconds": float(seconds)}, timezone=case.timezone, start_date=begin, end_date=case.end, catchup=True)
    _chain_is_what_the_planner_plans(spec, case)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32), st.floats(0, 1))
def test_without_catchup_what_is_made_is_the_last_of_what_catchup_would_have_made(seed: int, share: float) -> None:
    case = random_case(random.Random(seed))
    now = case.start + (case.end - case.start) * share
    parse_settings = {"timezone": case.timezone, "start_date": case.start}
    every = [pair for pair in expected_intervals(case) if pair[1] <= now]
    assert chain(dag(case.schedule, catchup=False, **parse_settings), now) == every[-1:], case
