"""Backfills that work at night, and polite ones (issue 4, "windows"): the hours themselves, and what the manager makes of
them. The clock of an in-memory manager begins at 2024-01-01T00:00Z."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.scenarios import accepted, at, clear, key_of, never, next_due, nothing_hangs, play

from backfill_manager.clock import UTC
from backfill_manager.errors import InvalidInput
from backfill_manager.execution.messages import Outcome, Succeeded, TaskLaunch
from backfill_manager.model import states as s
from backfill_manager.planning.backfills.time_window import TimeWindow
from backfill_manager.queries.backfills import find_backfill
from backfill_manager.queries.eta import with_time_left
from backfill_manager.testing import InMemoryManager, dag_spec, days

NIGHT = TimeWindow.parse("20:00-06:00")


# -- the hours --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "when", "is_open"),
    [
        ("09:00-17:00", "2024-01-01T08:59:59", False),
        ("09:00-17:00", "2024-01-01T09:00", True),
        ("09:00-17:00", "2024-01-01T16:59:59", True),
        ("09:00-17:00", "2024-01-01T17:00", False),
        ("20:00-06:00", "2024-01-01T23:59", True),
        ("20:00-06:00", "2024-01-01T00:00", True),
        ("20:00-06:00", "2024-01-01T05:59", True),
        ("20:00-06:00", "2024-01-01T06:00", False),
        ("20:00-06:00", "2024-01-01T19:59", False),
        ("20:00-24:00", "2024-01-01T23:59", True),
        ("20:00-24:00", "2024-01-01T00:00", False),
        ("20:00-00:00", "2024-01-01T23:59", True),
        ("20:00-00:00", "2024-01-01T00:00", False),
        ("00:00-24:00", "2024-01-01T12:00", True),
        (" 00:00-00:30 ", "2024-01-01T00:29", True),
    ],
)
def test_the_end_is_not_part_of_it_and_may_lie_on_the_next_day(text: str, when: str, is_open: bool) -> None:
    assert TimeWindow.parse(text).is_open(at(when), "UTC") is is_open


def test_hours_are_read_on_the_wall_clock_of_the_dags_zone() -> None:
    assert NIGHT.is_open(at("2024-07-01T18:00"), "Europe/Amsterdam")
    assert not NIGHT.is_open(at("2024-01-01T18:00"), "Europe/Amsterdam")
    assert NIGHT.is_open(at("2024-01-01T12:00"), "Asia/Tokyo")
    assert not NIGHT.is_open(at("2024-01-01T12:00"), "UTC")


@pytest.mark.parametrize(
    ("text", "zone", "when", "opens"),
    [
        ("20:00-06:00", "UTC", "2024-01-01T12:34:56", "2024-01-01T20:00"),
        ("20:00-06:00", "UTC", "2024-01-01T21:34:56", "2024-01-01T21:34:56"),
        ("09:00-10:00", "UTC", "2024-01-01T10:00", "2024-01-02T09:00"),
        ("20:00-06:00", "Asia/Kathmandu", "2024-01-01T06:00", "2024-01-01T14:15"),
        # the night on which clocks go forward, the hours' beginning is skipped: they open with the next reading there is
        ("02:30-05:00", "Europe/Amsterdam", "2024-03-31T00:30", "2024-03-31T01:00"),
        ("04:00-05:00", "Europe/Amsterdam", "2024-03-30T23:30", "2024-03-31T02:00"),
        # the night on which they go back
        ("04:00-05:00", "Europe/Amsterdam", "2024-10-26T22:30", "2024-10-27T03:00"),
        ("02:30-02:45", "Europe/Amsterdam", "2024-10-27T00:10", "2024-10-27T00:30"),
        ("02:30-02:45", "Europe/Amsterdam", "2024-10-27T00:50", "2024-10-27T01:30"),
        # and hours that are skipped as a whole: the next day
        ("02:10-02:20", "Australia/Lord_Howe", "2024-10-05T10:00", "2024-10-06T15:10"),
    ],
)
def test_when_it_opens_next(text: str, zone: str, when: str, opens: str) -> None:
    assert TimeWindow.parse(text).opens_at(at(when), zone) == at(opens)


@settings(max_examples=150, deadline=None)
@given(
    start=st.integers(0, 1439),
    length=st.integers(1, 1440),
    zone=st.sampled_from(["UTC", "Europe/Amsterdam", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"]),
    when=st.datetimes(datetime(2024, 1, 1), datetime(2025, 1, 1)),
)
def test_it_opens_at_the_first_open_minute(start: int, length: int, zone: str, when: datetime) -> None:
    """Against looking at every minute; the hours are open as a wall clock in that zone says."""
    until = (start + length) % 1440 or 1440
    if length == 1440 and start:
        return  # begins where it ends: not a span
    hours = TimeWindow.parse(f"{start // 60:02}:{start % 60:02}-{until // 60:02}:{until % 60:02}")
    submitted = when.replace(tzinfo=UTC)

    def is_open(moment: datetime) -> bool:
        local = moment.astimezone(ZoneInfo(zone))
        minute = local.hour * 60 + local.minute
        return start <= minute < start + length or minute + 1440 < start + length

    assert hours.is_open(submitted, zone) == is_open(submitted)
    moment = submitted if is_open(submitted) else submitted.replace(second=0, microsecond=0)
    while not (is_open(moment) and moment >= submitted):
        moment += timedelta(minutes=1)
    assert hours.opens_at(submitted, zone) == moment


@pytest.mark.parametrize(
    "text", ["", "20-06", "8:00-9:00", "25:00-06:00", "20:00-24:01", "20:60-21:00", "a-b", "２0:00-06:00"]
)
def test_what_is_no_span_of_hours_is_refused_with_what_would_be_right(text: str) -> None:
    with pytest.raises(InvalidInput, match="20:00-06:00 is one"):
        TimeWindow.parse(text)


@pytest.mark.parametrize("text", ["06:00-06:00", "00:00-00:00"])
def test_hours_that_begin_where_they_end_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="begins where it ends"):
        TimeWindow.parse(text)


# -- backfills with hours ---------------------------------------------------------------------------------------------


def test_a_backfill_with_hours_waits_for_them_and_wakes_the_manager_then() -> None:
    manager = InMemoryManager(dag_spec("d", "a"))
    manager.clock.advance(hours=12)
    backfill = manager.backfill("d", days("2013-01-01", 2), window="20:00-06:00")
    manager.drain()
    assert (manager.row(backfill).state, manager.states(backfill)) == (s.QUEUED, {s.PENDING: 2})
    assert next_due(manager) == at("2024-01-01T20:00")
    play(manager, "2024-01-01T20:00")
    assert manager.states(backfill) == {s.SUCCESS: 2}


def test_it_says_what_it_waits_for_and_until_when_and_claims_no_time_left() -> None:
    manager = InMemoryManager(dag_spec("d", "a"), script=never)
    backfill = manager.backfill("d", days("2013-01-01", 3), window="20:00-06:00", max_active_runs=1)
    manager.clock.advance(hours=5)
    manager.drain()

    def shown() -> dict[str, Any]:
        return with_time_left(manager.store, find_backfill(manager.store, backfill), manager.clock.now())

    assert (shown()["waits_for"], shown()["waits_until"]) == (None, None)
    manager.clock.advance(hours=1)
    manager.finish(key_of(manager, "01-01"), Succeeded())
    manager.drain()
    assert (shown()["waits_for"], shown()["waits_until"]) == (
        "its time window, 20:00-06:00 UTC", "2024-01-01T20:00:00Z",
    )  # fmt: skip
    assert shown()["timezone"] == "UTC"
    assert (shown()["state"], shown()["time_left_s"], shown()["finishes_at"]) == (s.RUNNING, None, None)
    manager.clock.advance(hours=14)
    manager.drain()
    assert shown()["waits_until"] is None and shown()["time_left_s"] > 0


@pytest.mark.parametrize("change", ["set", "pause", "cancel"])
def test_it_waits_no_longer_when_the_window_is_taken_away_or_it_is_stopped(change: str) -> None:
    manager = InMemoryManager(dag_spec("d", "a"))
    manager.clock.advance(hours=12)
    backfill = manager.backfill("d", days("2013-01-01", 2), window="20:00-06:00")
    manager.drain()
    assert manager.row(backfill).waits_until == at("2024-01-01T20:00")
    how = {"set": {"changes": {"window": None}}, "pause": {}, "cancel": {"let_running_finish": False}}[change]
    accepted(manager, f"backfill.{change}", backfill_id=backfill, **how)
    assert (manager.row(backfill).waits_until, next_due(manager)) == (None, None)
    assert manager.row(backfill).state == {"set": s.SUCCESS, "pause": s.PAUSED, "cancel": s.CANCELLED}[change]


def test_hours_are_those_of_the_dags_zone() -> None:
    manager = InMemoryManager(dag_spec("d", "a", timezone="America/New_York"))
    manager.clock.advance(hours=12)
    manager.backfill("d", days("2013-01-01", 2), window="20:00-06:00")
    manager.drain()
    assert next_due(manager) == at("2024-01-02T01:00")


def test_at_the_end_of_its_hours_no_new_run_starts_and_what_runs_goes_on() -> None:
    manager = InMemoryManager(dag_spec("d", "a", "b", upstream={"b": ["a"]}), script=never)
    backfill = manager.backfill("d", days("2013-01-01", 3), window="20:00-06:00", max_active_runs=1)
    play(manager, "2024-01-01T06:00")
    manager.script = lambda _: Succeeded()
    manager.finish(key_of(manager, "01-01"), Succeeded())
    manager.drain()
    assert manager.states(backfill) == {s.SUCCESS: 1, s.PENDING: 2}
    assert next_due(manager) == at("2024-01-01T20:00")
    play(manager, "2024-01-01T20:00")
    assert manager.states(backfill) == {s.SUCCESS: 3}


def test_a_paused_backfill_does_not_wake_the_manager_at_its_hours() -> None:
    manager = InMemoryManager(dag_spec("d", "a"))
    manager.clock.advance(hours=12)
    backfill = manager.backfill("d", days("2013-01-01", 2), window="20:00-06:00")
    manager.drain()
    accepted(manager, "backfill.pause", backfill_id=backfill)
    assert next_due(manager) is None
    play(manager, "2024-01-01T22:00")
    accepted(manager, "backfill.unpause", backfill_id=backfill)
    nothing_hangs(manager)
    assert manager.states(backfill) == {s.SUCCESS: 2}


def test_a_backfill_that_waits_for_its_hours_can_be_cancelled() -> None:
    manager = InMemoryManager(dag_spec("d", "a"))
    manager.clock.advance(hours=12)
    backfill = manager.backfill("d", days("2013-01-01", 2), window="20:00-06:00")
    accepted(manager, "backfill.cancel", backfill_id=backfill, let_running_finish=False)
    nothing_hangs(manager)
    assert manager.row(backfill).state == s.CANCELLED


def test_hours_of_one_backfill_hold_no_other_back_nor_the_schedule() -> None:
    manager = InMemoryManager(dag_spec("d", "a", start_date=at("2024-01-01")), scheduled=True)
    manager.clock.advance(hours=12)
    at_night = manager.backfill("d", days("2013-01-01", 1), window="20:00-22:00")
    always = manager.backfill("d", days("2014-01-01", 1))
    manager.drain()
    assert (manager.states(at_night), manager.states(always)) == ({s.PENDING: 1}, {s.SUCCESS: 1})
    play(manager, "2024-01-02")
    assert [run.run_type for run in manager.runs("d")] == ["backfill", "backfill", "scheduled"]


def test_hours_hold_after_a_crash() -> None:
    manager = InMemoryManager(dag_spec("d", "a"))
    manager.clock.advance(hours=12)
    backfill = manager.backfill("d", days("2013-01-01", 2), window="20:00-06:00")
    manager.crash()
    manager.drain()
    assert manager.states(backfill) == {s.PENDING: 2} and next_due(manager) == at("2024-01-01T20:00")


# -- polite backfills -------------------------------------------------------------------------------------------------


def _scheduled_waits(polite: bool) -> InMemoryManager:
    """One slot's worth of scheduled work runs, more waits, and a backfill is asked for."""

    def script(launch: TaskLaunch) -> Outcome | None:
        return None

    manager = InMemoryManager(
        dag_spec("nightly", "a", start_date=at("2023-12-20"), catchup=True, max_active_tasks=1), dag_spec("d", "a"),
        scheduled=True, script=script,
    )  # fmt: skip
    accepted(manager, "dag.pause", dag_id="d")
    manager.backfill("d", days("2013-01-01", 2), is_polite=polite)
    manager.drain()
    return manager


def test_a_polite_backfill_starts_nothing_while_a_scheduled_task_waits() -> None:
    manager = _scheduled_waits(polite=True)
    assert {key[0] for key in manager.running} == {"nightly"}
    while any(key[0] == "nightly" for key in manager.running):
        assert {key[0] for key in manager.running} == {"nightly"} or len(manager.runs("nightly")) == 12
        manager.finish(key_of(manager, "scheduled"), Succeeded())
        manager.drain()
    assert {key[0] for key in manager.running} == {"d"}


def test_one_that_is_not_polite_takes_its_own_slots_meanwhile() -> None:
    manager = _scheduled_waits(polite=False)
    assert sorted({key[0] for key in manager.running}) == ["d", "nightly"]


def test_a_polite_backfill_goes_on_next_to_scheduled_tasks_that_run() -> None:
    manager = InMemoryManager(
        dag_spec("nightly", "a", start_date=at("2023-12-31"), catchup=True), dag_spec("d", "a"),
        scheduled=True, script=never,
    )  # fmt: skip
    accepted(manager, "dag.pause", dag_id="d")
    manager.backfill("d", days("2013-01-01", 2), is_polite=True)
    manager.drain()
    assert sorted(key[0] for key in manager.running) == ["d", "d", "nightly"]


def test_a_polite_backfill_does_not_wait_for_a_task_that_waits_for_it() -> None:
    """An older run that was cleared takes the place of a scheduled one, and waits through the past for the backfill."""
    each = {"a": {"max_active_tis": 2}, "b": {"depends_on_past": True}}
    spec = dag_spec(
        "d", "a", "b", upstream={"b": ["a"]}, each=each, start_date=at("2024-01-01"), catchup=True, max_active_runs=2
    )
    manager = InMemoryManager(spec, scheduled=True)
    manager.clock.advance(days=2)
    manager.drain()
    manager.script = never
    backfill = manager.backfill("d", days("2024-01-01", 1), reprocess="completed", is_polite=True)
    manager.drain()
    manager.clock.advance(days=2)
    manager.drain()
    accepted(manager, "tasks.clear", **clear("d", run_ids=["scheduled__2024-01-02T00:00:00Z"]))
    for _ in range(20):
        for key in list(manager.running):
            manager.finish(key, Succeeded())
        manager.drain()
    assert manager.row(backfill).state == s.SUCCESS
