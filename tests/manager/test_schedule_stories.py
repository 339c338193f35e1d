"""Scheduled runs by docs/semantics.md ("Interval", "The timeline", "Pools and priority"; scheduler,
lookback), decided without Spark, Delta or a JVM. The clock begins at 2024-01-01T00:00Z."""

from __future__ import annotations

import pytest
from support.scenarios import (
    FROM_2024,
    PAST,
    accepted,
    at,
    clear,
    dates,
    dies_after,
    key_of,
    never,
    next_due,
    nothing_hangs,
    play,
    refused,
    response_to,
    timeline,
)  # fmt: skip

from backfill_manager.execution.messages import Failed, Outcome, Succeeded, TaskLaunch
from backfill_manager.model import states as s
from backfill_manager.model.records import COMMIT_ORDER, Pool
from backfill_manager.testing import FakeClock, InMemoryManager, dag_spec, days


def test_a_scheduled_run_is_made_at_its_intervals_end_and_not_a_moment_before() -> None:
    manager = InMemoryManager(dag_spec("d", "a", start_date=at("2024-01-01")), scheduled=True)
    play(manager, "2024-01-01T23:59:59")
    assert not manager.runs("d")
    assert next_due(manager) == at("2024-01-02")
    play(manager, "2024-01-02")
    (run,) = manager.runs("d")
    assert (run.run_id, run.run_type, run.state) == ("scheduled__2024-01-01T00:00:00Z", "scheduled", s.SUCCESS)
    assert (run.interval_start, run.interval_end, run.created_at) == (
        at("2024-01-01"), at("2024-01-02"), at("2024-01-02"),
    )  # fmt: skip
    assert [launch.pool for launch in manager.launched] == ["scheduled"]


@pytest.mark.parametrize("catchup", [False, True])
def test_no_run_begins_on_an_excluded_date_and_the_one_before_has_its_data(catchup: bool) -> None:
    spec = dag_spec(
        "d",
        "a",
        schedule="0 0 * * MON-FRI",
        start_date=at("2025-12-24"),
        exclude_dates=("2025-12-25", "2025-12-26"),
        catchup=catchup,
    )
    manager = InMemoryManager(spec, scheduled=True, clock=FakeClock(at("2025-12-24")))
    play(manager, "2025-12-28T23:59:59")
    assert not manager.runs("d")
    play(manager, "2025-12-30")
    assert [(run.logical_date, run.interval_end, run.created_at) for run in timeline(manager, "d")] == [
        (at("2025-12-24"), at("2025-12-29"), at("2025-12-29")), (at("2025-12-29"), at("2025-12-30"), at("2025-12-30")),
    ]  # fmt: skip


def test_several_dags_that_are_due_at_once_are_all_made_in_one_turn() -> None:
    daily = [dag_spec(f"d{n}", "a", start_date=at("2024-01-01")) for n in range(20)]
    manager = InMemoryManager(
        *daily, dag_spec("hourly", "a", schedule="@hourly", **FROM_2024), scheduled=True, slots=100
    )
    manager.clock.advance(hours=24)
    manager.tick()
    assert [len(manager.runs(spec.dag_id)) for spec in daily] == [1] * 20
    manager.drain()
    assert len(timeline(manager, "hourly")) == 24
    nothing_hangs(manager)


def test_a_paused_dag_gets_no_scheduled_run_and_may_be_backfilled_all_the_same() -> None:
    manager = InMemoryManager(dag_spec("d", "a", **FROM_2024))
    backfill = manager.backfill("d", days("2024-01-01", 2))
    play(manager, "2024-01-10")
    assert next_due(manager) is None
    assert [run.run_type for run in manager.runs("d")] == ["backfill"] * 2
    assert manager.row(backfill).state == s.SUCCESS


def test_pausing_a_dag_stops_its_scheduled_runs_and_what_runs_goes_on() -> None:
    manager = InMemoryManager(dag_spec("d", "a", "b", upstream={"b": ["a"]}, **FROM_2024), scheduled=True, script=never)
    play(manager, "2024-01-02")
    accepted(manager, "dag.pause", dag_id="d")
    manager.script = lambda _: Succeeded()
    manager.finish(key_of(manager, "01-01"), Succeeded())
    play(manager, "2024-01-06")
    assert [(run.state, run.run_type) for run in manager.runs("d")] == [(s.SUCCESS, "scheduled")]


@pytest.mark.parametrize(
    ("catchup", "made"), [(False, ["01-01", "01-09"]), (True, [f"01-{d:02}" for d in range(1, 10)])]
)
def test_unpausing_makes_the_latest_only_or_with_catchup_all_that_were_missed(catchup: bool, made: list[str]) -> None:
    manager = InMemoryManager(dag_spec("d", "a", start_date=at("2024-01-01"), catchup=catchup), scheduled=True)
    play(manager, "2024-01-02")
    accepted(manager, "dag.pause", dag_id="d")
    play(manager, "2024-01-10T05:00")
    accepted(manager, "dag.unpause", dag_id="d")
    nothing_hangs(manager)
    assert dates(timeline(manager, "d")) == made


@pytest.mark.parametrize(("catchup", "made"), [(False, ["01-01", "01-05"]), (True, [f"01-0{d}" for d in range(1, 6)])])
def test_after_downtime_missed_time_is_made_good_as_catchup_says(catchup: bool, made: list[str]) -> None:
    manager = InMemoryManager(dag_spec("d", "a", start_date=at("2024-01-01"), catchup=catchup), scheduled=True)
    play(manager, "2024-01-02")
    manager.clock.advance(days=4)
    manager.crash()
    nothing_hangs(manager)
    assert dates(timeline(manager, "d")) == made


def test_a_run_that_was_due_when_the_manager_died_is_made_once() -> None:
    manager = InMemoryManager(dag_spec("d", "a", **FROM_2024), scheduled=True, script=never)
    play(manager, "2024-01-02")
    manager.crash()
    manager.crash()
    manager.script = lambda _: Succeeded()
    play(manager, "2024-01-02T12:00")
    (run,) = manager.runs("d")
    assert run.state == s.SUCCESS


def test_a_changed_schedule_goes_on_from_the_end_of_what_was_made() -> None:
    manager = InMemoryManager(dag_spec("d", "a", **FROM_2024), scheduled=True)
    play(manager, "2024-01-03")
    manager.add_dag(dag_spec("d", "a", schedule="0 */6 * * *", **FROM_2024))
    play(manager, "2024-01-04")
    manager.add_dag(dag_spec("d", "a", **FROM_2024))
    play(manager, "2024-01-06")
    assert dates(timeline(manager, "d")) == [
        "01-01", "01-02", "01-03", "01-03T06", "01-03T12", "01-03T18", "01-04", "01-05",
    ]  # fmt: skip


def test_a_schedule_that_is_taken_away_makes_nothing_more() -> None:
    manager = InMemoryManager(dag_spec("d", "a", **FROM_2024), scheduled=True)
    play(manager, "2024-01-03")
    manager.add_dag(dag_spec("d", "a", schedule=None))
    play(manager, "2024-01-10")
    assert len(manager.runs("d")) == 2
    assert next_due(manager) is None


def test_once_runs_once() -> None:
    manager = InMemoryManager(dag_spec("d", "a", schedule="@once"), scheduled=True)
    play(manager, "2024-01-03")
    manager.crash()
    play(manager, "2024-01-05")
    assert [run.state for run in manager.runs("d")] == [s.SUCCESS]


def test_once_is_not_run_again_where_a_run_by_hand_has_its_date() -> None:
    spec = dag_spec("d", "a", schedule="@once", start_date=at("2024-01-01"))
    manager = InMemoryManager(spec, clock=FakeClock(at("2024-01-02")))
    accepted(manager, "dag.trigger", dag_id="d", conf={}, logical_date="2024-01-01T00:00:00Z")
    manager.drain()
    accepted(manager, "dag.unpause", dag_id="d")
    play(manager, "2024-01-03")
    assert [run.run_type for run in manager.runs("d")] == ["manual"]


def test_runs_by_hand_of_a_dag_that_has_run_once_are_not_held_in_memory() -> None:
    manager = InMemoryManager(dag_spec("d", "a", schedule="@once"), scheduled=True)
    manager.drain()

    def by_hand(date: str) -> None:
        accepted(manager, "dag.trigger", dag_id="d", conf={}, logical_date=f"{date}T00:00:00Z")
        manager.drain()

    for day in range(1, 21):
        by_hand(f"2023-12-{day:02}")
    manager.clock.advance(days=40)
    for day in range(2, 31):
        by_hand(f"2024-01-{day:02}")
    assert len(manager.state.recent["d"]) == 1
    manager.crash()
    manager.drain()
    assert len(manager.state.recent["d"]) == 1
    by_hand("2024-01-01")  # takes the place of the run that the schedule has made
    assert len(manager.state.recent["d"]) == 1
    play(manager, "2024-03-01")
    assert [run.run_type for run in manager.runs("d") if run.state == s.SUCCESS] == ["manual"] * 50
    # with another schedule runs by hand are those before and after it again
    manager.add_dag(dag_spec("d", "a", schedule="0 0 * * *", **FROM_2024))
    manager.drain()
    assert timeline(manager, "d")[-1].logical_date == at("2024-02-29")
    follows = {run.run_id: run.previous_run_id for run in timeline(manager, "d")}
    assert list(follows.values()) == [None, *list(follows)[:-1]]


def test_a_new_leader_knows_the_batch_that_reaches_past_newer_runs_though_an_overridden_one_reached_further() -> None:
    spec = dag_spec("d", "a", batchable=True, **FROM_2024)
    manager = InMemoryManager(spec, clock=FakeClock(at("2024-01-10")))
    for first, n, fields in (2, 8, {"batch": 8}), (1, 7, {"batch": 7}), (5, 2, {}):
        manager.backfill("d", days(f"2024-01-0{first}", n), reprocess="completed", **fields)
        manager.drain()
    manager.crash()
    accepted(manager, "dag.unpause", dag_id="d")
    nothing_hangs(manager)
    assert dates(timeline(manager, "d")) == ["01-01", "01-05", "01-06", "01-08", "01-09"]


def test_after_end_date_there_is_nothing_to_wake_for() -> None:
    manager = InMemoryManager(dag_spec("d", "a", end_date=at("2024-01-03"), **FROM_2024), scheduled=True)
    play(manager, "2024-02-01")
    assert dates(manager.runs("d")) == ["01-01", "01-02", "01-03"]
    assert next_due(manager) is None


def test_the_schedule_goes_on_from_what_a_backfill_has_reached() -> None:
    manager = InMemoryManager(dag_spec("d", "a", **FROM_2024), scheduled=True)
    play(manager, "2024-01-03")
    accepted(manager, "dag.pause", dag_id="d")
    play(manager, "2024-01-13")
    manager.backfill("d", days("2024-01-03", 10))
    manager.drain()
    accepted(manager, "dag.unpause", dag_id="d")
    assert [run.run_type for run in manager.runs("d")] == ["scheduled"] * 2 + ["backfill"] * 10
    play(manager, "2024-01-14")
    assert timeline(manager, "d")[-1].run_id == "scheduled__2024-01-13T00:00:00Z"


def test_the_schedule_goes_on_from_the_end_of_a_batch_though_a_day_in_it_was_done_again() -> None:
    """The latest run of the timeline is then the day's; the dates after it are the batch's all the same."""
    spec = dag_spec("d", "a", batchable=True, **FROM_2024)
    manager = InMemoryManager(spec, clock=FakeClock(at("2024-01-11")))
    manager.backfill("d", days("2024-01-01", 10), batch=10)
    manager.drain()
    manager.backfill("d", days("2024-01-04", 1), reprocess="completed")
    manager.drain()
    accepted(manager, "dag.unpause", dag_id="d")
    play(manager, "2024-01-12")
    assert [run.run_id for run in timeline(manager, "d")] == [
        "backfill__2024-01-01T00:00:00Z", "backfill__2024-01-04T00:00:00Z", "scheduled__2024-01-11T00:00:00Z",
    ]  # fmt: skip


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("catchup", [False, True])
def test_the_schedule_does_not_do_what_the_second_half_of_a_batch_will_do(catchup: bool, is_restarted: bool) -> None:
    """Between the halves the dates of the second one have no run, and they are the newest; the schedule had come beyond them."""
    fails = set[str]()
    spec = dag_spec("d", "a", batchable=True, start_date=at("2024-01-01"), catchup=catchup)
    manager = InMemoryManager(
        spec,
        scheduled=True,
        script=lambda launch: Failed("x", retryable=False) if launch.run.backfill_id in fails else Succeeded(),
    )
    for day in range(2, 10):
        play(manager, f"2024-01-{day:02}")
    fails.add(
        manager.backfill(
            "d", days("2024-01-03", 6), reprocess="completed", batch=6, max_active_runs=1, stop_on_failure=1
        )
    )
    for _ in range(60):
        manager.tick()
        if is_restarted and not manager.running:
            manager.crash()
    manager.drain()
    (backfill_id,) = fails
    assert manager.states(backfill_id) == {"failed": 1, "pending": 5}
    assert not [
        run.run_id for run in manager.runs("d") if run.run_id.startswith("scheduled") and run.run_id.endswith("__2")
    ]
    play(manager, "2024-01-10")
    assert timeline(manager, "d")[-1].run_id == "scheduled__2024-01-09T00:00:00Z"


def trigger(manager: InMemoryManager, date: str | None, **more: object) -> str:
    """The id of the run that it makes."""
    at_date = None if date is None else f"{date}:00Z" if "T" in date else f"{date}T00:00:00Z"
    answer = accepted(manager, "dag.trigger", dag_id="d", logical_date=at_date, conf={}, **more)
    assert answer.object_id is not None
    return answer.object_id


def test_a_run_by_hand_of_a_paused_dag_with_catchup_loses_none_of_the_hours_missed() -> None:
    manager = InMemoryManager(dag_spec("d", "a", schedule="@hourly", **FROM_2024), scheduled=True)
    play(manager, "2024-01-01T03:00")
    accepted(manager, "dag.pause", dag_id="d")
    play(manager, "2024-01-01T08:00")
    trigger(manager, None)
    accepted(manager, "dag.unpause", dag_id="d")
    play(manager, "2024-01-01T09:00")
    runs = timeline(manager, "d")
    assert [run.logical_date.hour for run in runs if run.logical_date] == list(range(9))
    assert [run.run_type for run in runs] == ["scheduled"] * 7 + ["manual"] + ["scheduled"]


def test_a_run_by_hand_dated_a_month_ahead_does_not_stop_the_schedule_and_is_done_over_when_its_day_is_complete() -> (
    None
):
    manager = InMemoryManager(dag_spec("d", "a", **FROM_2024), scheduled=True)
    play(manager, "2024-01-03")
    ahead = trigger(manager, "2024-02-03", allow_future=True)
    play(manager, "2024-01-06")
    assert dates(timeline(manager, "d")) == ["01-01", "01-02", "01-03", "01-04", "01-05", "02-03"]
    play(manager, "2024-02-05")
    assert dates(timeline(manager, "d")) == [f"01-{day:02}" for day in range(1, 32)] + [
        f"02-{day:02}" for day in range(1, 5)
    ]
    (was,) = [run for run in manager.runs("d") if run.run_id == ahead]
    assert (was.state, was.overridden_by) == (s.OVERRIDDEN, "scheduled__2024-02-03T00:00:00Z__2")


@pytest.mark.parametrize("restart", [False, True])
def test_a_backfill_that_reaches_a_month_ahead_does_not_stop_the_schedule(restart: bool) -> None:
    manager = InMemoryManager(dag_spec("d", "a", **FROM_2024), scheduled=True)
    play(manager, "2024-01-03")
    manager.backfill("d", days("2024-01-03", 30))
    manager.drain()
    if restart:
        manager.crash()
    play(manager, "2024-01-06")
    of_schedule = [run for run in timeline(manager, "d") if run.run_type == "scheduled"]
    assert dates(of_schedule) == ["01-01", "01-02", "01-03", "01-04", "01-05"]


def test_the_schedule_waits_for_a_live_run_of_the_date_that_it_will_do_over() -> None:
    """It was begun before the day was over; one that is alive is never overridden."""
    manager = InMemoryManager(dag_spec("d", "a", **FROM_2024), scheduled=True)
    play(manager, "2024-01-02T23:50")
    manager.script = never
    trigger(manager, "2024-01-02")
    play(manager, "2024-01-03T00:10")
    assert next_due(manager) is None, "the end of that run is what it waits for"
    manager.script = lambda _: Succeeded()
    manager.finish(key_of(manager, "01-02"), Succeeded())
    play(manager, "2024-01-03T00:20")
    assert timeline(manager, "d")[-1].run_id == "scheduled__2024-01-02T00:00:00Z__2"


def test_the_schedule_waits_for_a_live_batch_over_the_date_that_it_will_do_over() -> None:
    spec = dag_spec("d", "a", batchable=True, **(FROM_2024 | {"catchup": False}))
    manager = InMemoryManager(spec, scheduled=True)
    play(manager, "2024-01-02T23:50")
    manager.script = never
    manager.backfill("d", days("2024-01-02", 5), batch=5)  # most of it lies ahead
    play(manager, "2024-01-04T00:10")
    assert next_due(manager) is None, "the end of that run is what it waits for"
    manager.script = lambda _: Succeeded()
    manager.finish(key_of(manager, "01-02"), Succeeded())
    play(manager, "2024-01-04T00:20")
    assert [run.run_id for run in timeline(manager, "d")[-2:]] == [
        "backfill__2024-01-02T00:00:00Z", "scheduled__2024-01-03T00:00:00Z",
    ]  # fmt: skip


def test_a_date_that_was_run_by_hand_when_its_interval_had_ended_is_not_run_again_by_the_schedule() -> None:
    manager = InMemoryManager(dag_spec("d", "a", **FROM_2024))
    manager.clock.advance(days=4)
    trigger(manager, "2024-01-02")
    accepted(manager, "dag.unpause", dag_id="d")
    play(manager, "2024-01-06")
    assert [(run.run_type, run.logical_date.day) for run in timeline(manager, "d") if run.logical_date] == [
        ("scheduled", 1), ("manual", 2), ("scheduled", 3), ("scheduled", 4), ("scheduled", 5),
    ]  # fmt: skip


@pytest.mark.parametrize("by_hand", [1, 40])
def test_after_a_restart_the_newest_scheduled_run_is_found_behind_any_number_of_runs_by_hand(by_hand: int) -> None:
    manager = InMemoryManager(dag_spec("d", "a", schedule="@hourly", **FROM_2024), scheduled=True)
    play(manager, "2024-01-01T03:00")
    accepted(manager, "dag.pause", dag_id="d")
    play(manager, "2024-01-04T00:00")
    for n in range(by_hand):
        trigger(manager, f"2024-01-03T{n // 2:02}:{10 + 10 * (n % 2)}")
    manager.crash()
    accepted(manager, "dag.unpause", dag_id="d")
    play(manager, "2024-01-04T00:00")
    of_schedule = [run.logical_date for run in timeline(manager, "d") if run.run_type == "scheduled"]
    assert len(of_schedule) == 72


def test_a_date_in_the_future_is_refused_unless_it_is_asked_for() -> None:
    manager = InMemoryManager(dag_spec("d", "a", **FROM_2024), dag_spec("by_hand", "a", schedule=None))
    message = refused(manager, "dag.trigger", dag_id="d", logical_date="2024-01-05T00:00:00Z", conf={})
    assert message == (
        "logical_date 2024-01-05T00:00:00Z lies in the future (it is 2024-01-01T00:00:00Z now); to run it before its "
        "time, add allow_future"
    )
    refused(manager, "dag.trigger", dag_id="by_hand", logical_date="2024-01-01T00:00:01Z", conf={}, allow_future=False)
    answer = accepted(manager, "dag.trigger", dag_id="d", logical_date="2024-01-01T00:00:00Z", conf={})
    assert answer.message == (
        "run manual__2024-01-01T00:00:00Z from 2024-01-01T00:00:00Z to 2024-01-02T00:00:00Z; its interval has not ended: "
        "the schedule does it over when it has"
    )


def test_a_partial_run_does_not_keep_the_schedule_from_its_date() -> None:
    spec = dag_spec("d", "a", "b", upstream={"b": ["a"]}, **FROM_2024)
    manager = InMemoryManager(spec, clock=FakeClock(at("2024-01-05")))
    manager.backfill("d", days("2024-01-02", 2), tasks="^a$")
    manager.drain()
    accepted(manager, "dag.unpause", dag_id="d")
    play(manager, "2024-01-06")
    assert [(run.run_type, run.is_partial) for run in timeline(manager, "d")] == [("scheduled", False)] * 5


def test_a_date_of_the_schedule_that_was_done_over_in_part_or_by_hand_is_not_done_again() -> None:
    manager = InMemoryManager(dag_spec("d", "a", "b", upstream={"b": ["a"]}, **FROM_2024), scheduled=True)
    play(manager, "2024-01-03")
    manager.backfill("d", days("2024-01-01", 1), tasks="^a$", reprocess="completed")
    trigger(manager, "2024-01-02")
    manager.crash()
    play(manager, "2024-01-04")
    assert [run.run_type for run in timeline(manager, "d")] == ["backfill", "manual", "scheduled"]


def test_a_stopping_manager_does_not_wake_for_a_run_that_it_will_not_make() -> None:
    manager = InMemoryManager(dag_spec("d", "a", **FROM_2024), scheduled=True)
    manager.clock.advance(days=3)
    now = manager.clock.now()
    manager._decisions.prefetch(now)
    manager._decisions.draining = True
    manager._decisions.decide([], [], {}, now)
    assert next_due(manager) is None


def test_no_more_scheduled_runs_are_active_than_max_active_runs() -> None:
    manager = InMemoryManager(dag_spec("d", "a", max_active_runs=2, **FROM_2024), scheduled=True, script=never)
    play(manager, "2024-01-08")
    assert dates(manager.runs("d")) == ["01-01", "01-02"]
    assert next_due(manager) is None, "an ending run comes first"
    manager.finish(key_of(manager, "01-01"), Succeeded())
    manager.drain()
    assert [run.state for run in manager.runs("d")] == [s.SUCCESS, s.RUNNING, s.RUNNING]


def test_a_run_that_runs_keeps_its_place_when_an_older_one_comes() -> None:
    manager = InMemoryManager(dag_spec("d", "a", max_active_runs=1, start_date=at("2024-01-01")), script=never)
    for day in ("2023-12-02", "2023-12-01"):
        accepted(manager, "dag.trigger", dag_id="d", logical_date=f"{day}T00:00:00Z", conf={})
    assert [run.state for run in manager.runs("d")] == [s.QUEUED, s.RUNNING]
    manager.finish(key_of(manager, "12-02"), Succeeded())
    manager.drain()
    assert [run.state for run in manager.runs("d")] == [s.RUNNING, s.SUCCESS]


def test_runs_that_run_go_on_to_their_next_task_though_the_limit_is_lower_now() -> None:
    manager = InMemoryManager(dag_spec("d", "a", "b", upstream={"b": ["a"]}), script=never)
    backfill = manager.backfill("d", days("2023-12-01", 3), max_active_runs=2)
    manager.drain()
    accepted(manager, "backfill.set", backfill_id=backfill, changes={"max_active_runs": 1})
    for day in ("12-01", "12-02"):
        manager.finish(key_of(manager, day, "a"), Succeeded())
    manager.drain()
    assert sorted(key[1:3] for key in manager.running) == [
        ("backfill__2023-12-01T00:00:00Z", "b"), ("backfill__2023-12-02T00:00:00Z", "b"),
    ]  # fmt: skip


def test_a_task_that_is_run_by_hand_does_not_count_in_the_dags_max_active_runs() -> None:
    manager = InMemoryManager(dag_spec("d", "a", max_active_runs=1, start_date=at("2024-01-01")), script=never)
    accepted(manager, "task.run", dag_id="d", task_id="a", logical_date="2023-12-01T00:00:00Z")
    accepted(manager, "dag.trigger", dag_id="d", logical_date="2023-12-02T00:00:00Z", conf={})
    assert [run.state for run in manager.runs("d")] == [s.RUNNING, s.RUNNING]


def test_a_backfills_runs_do_not_count_in_the_dags_max_active_runs() -> None:
    manager = InMemoryManager(
        dag_spec("d", "a", max_active_runs=1, start_date=at("2024-01-01")), scheduled=True, script=never
    )
    manager.backfill("d", days("2023-12-01", 5), max_active_runs=3)
    play(manager, "2024-01-02")
    running = [run.run_type for run in manager.runs("d") if run.state == s.RUNNING]
    assert sorted(running) == ["backfill"] * 3 + ["scheduled"]


def test_with_depends_on_past_and_one_run_at_a_time_the_days_follow_each_other() -> None:
    manager = InMemoryManager(dag_spec("d", "a", each=PAST, max_active_runs=1, **FROM_2024), scheduled=True)
    play(manager, "2024-01-10")
    assert [run.state for run in timeline(manager, "d")] == [s.SUCCESS] * 9


def test_a_scheduled_run_behind_a_failed_past_is_a_deadlock_reported_with_run_and_task() -> None:
    manager = InMemoryManager(
        dag_spec("d", "a", each=PAST, **FROM_2024), scheduled=True,
        script=lambda it: Failed("boom") if "01-02" in it.run.run_id else Succeeded(),
    )  # fmt: skip
    play(manager, "2024-01-05")
    runs = timeline(manager, "d")
    assert [run.state for run in runs] == [s.SUCCESS, s.FAILED, s.FAILED, s.FAILED]
    assert runs[2].reason is not None
    assert "deadlock: task 'a'" in runs[2].reason and "scheduled__2024-01-02T00:00:00Z" in runs[2].reason


def test_among_the_ready_scheduled_goes_before_backfill_and_older_first() -> None:
    manager = InMemoryManager(
        dag_spec("d", "a", start_date=at("2024-01-01"), each={"a": {"max_active_tis": 1}}), scheduled=True, script=never
    )
    manager.backfill("d", days("2023-12-01", 3))
    manager.drain()
    play(manager, "2024-01-02")
    order = []
    for _ in range(4):
        (key,) = manager.running
        order.append(key[1][:20])
        manager.finish(key, Succeeded())
        manager.drain()
    assert order == [
        "backfill__2023-12-01", "scheduled__2024-01-0", "backfill__2023-12-02", "backfill__2023-12-03",
    ]  # fmt: skip


def test_what_backfills_were_handed_ahead_holds_no_scheduled_run_back() -> None:
    """The executor's queue takes it next, before those: `test_a_scheduled_run_goes_before_what_backfills_have_handed_over`."""
    spec = dag_spec("d", "a", start_date=at("2024-01-01"), each={"a": {"pool": "shared"}})
    manager = InMemoryManager(spec, scheduled=True, script=never, slots=1)
    manager.state.put(Pool(name="shared", slots=1, weight=1, min_share=0))
    manager.backfill("d", days("2023-12-01", 9), max_active_runs=9)
    play(manager, "2024-01-02")
    assert len(manager.running) == 1 + 2 + 1
    assert key_of(manager, "scheduled__2024-01-01")


def test_a_higher_priority_goes_before_a_scheduled_run() -> None:
    manager = InMemoryManager(
        dag_spec("d", "a", start_date=at("2024-01-01"), each={"a": {"max_active_tis": 1}}), scheduled=True, script=never
    )
    manager.backfill("d", days("2023-12-01", 2), priority=5)
    manager.drain()
    play(manager, "2024-01-02")
    manager.finish(key_of(manager, "2023-12-01"), Succeeded())
    manager.drain()
    assert key_of(manager, "2023-12-02")


def test_a_backfill_that_fills_its_own_pool_leaves_a_scheduled_runs_slots_free() -> None:
    manager = InMemoryManager(
        dag_spec("d", "a", start_date=at("2024-01-01"), max_active_tasks=1000), scheduled=True, script=never, slots=2
    )
    manager.backfill("d", days("2023-01-01", 100), max_active_runs=100)
    play(manager, "2024-01-02")
    assert [launch.pool for launch in manager.launched if launch.run.run_type == "scheduled"] == ["scheduled"]


def test_a_task_heavier_than_its_pool_runs_alone_in_it_and_does_not_hang() -> None:
    manager = InMemoryManager(dag_spec("d", "a", each={"a": {"weight": 50}}, **FROM_2024), scheduled=True, slots=4)
    play(manager, "2024-01-02")
    assert [run.state for run in manager.runs("d")] == [s.SUCCESS]


def test_a_cleared_old_run_does_not_wait_for_newer_ones_that_wait_for_it() -> None:
    spec = dag_spec("d", "a", "b", upstream={"b": ["a"]}, each={"b": {"depends_on_past": True}}, max_active_runs=1,
                    **FROM_2024)  # fmt: skip
    held: list[str] = []

    def script(launch: TaskLaunch) -> Outcome | None:
        return None if launch.task.task_id in held else Succeeded()

    manager = InMemoryManager(spec, scheduled=True, script=script)
    play(manager, "2024-01-03")
    held.append("a")
    play(manager, "2024-01-04")
    response_to(manager, "tasks.clear", **clear("d", run_ids=["scheduled__2024-01-02T00:00:00Z"]))
    held.clear()
    for key in list(manager.running):
        manager.finish(key, Succeeded())
    nothing_hangs(manager)
    assert [run.state for run in timeline(manager, "d")] == [s.SUCCESS] * 3


@pytest.mark.parametrize("tables", range(len(COMMIT_ORDER) + 1))
def test_a_crash_anywhere_while_scheduled_runs_are_made_again_and_anew_changes_nothing(tables: int) -> None:
    """With lookback: every date is made once, and what was done again stays done once."""
    manager = InMemoryManager(dag_spec("d", "a", lookback=1, **FROM_2024), scheduled=True)
    play(manager, "2024-01-03")
    manager.clock.advance(days=1)
    dies_after(manager, tables)
    nothing_hangs(manager)
    assert [run.state for run in timeline(manager, "d")] == [s.SUCCESS] * 3
    assert dates(timeline(manager, "d")) == ["01-01", "01-02", "01-03"]
    assert len(manager.runs("d")) in (1 + 2 + 2, 1 + 2 + 1 + 1)


def test_the_oldest_run_that_is_held_keeps_its_place_when_manual_runs_hide_what_lies_before() -> None:
    manager = InMemoryManager(dag_spec("d", "a", lookback=1, **FROM_2024), scheduled=True)
    play(manager, "2024-01-03")
    for hour in ("08", "12"):
        accepted(manager, "dag.trigger", dag_id="d", logical_date=f"2024-01-02T{hour}:00:00Z", conf={})
    manager.crash()
    play(manager, "2024-01-04")
    assert dates(timeline(manager, "d")) == ["01-01", "01-02", "01-02T08", "01-02T12", "01-03"]


def test_a_backfill_with_all_the_tasks_that_its_dag_allows_holds_no_scheduled_run_back() -> None:
    manager = InMemoryManager(
        dag_spec("d", "a", start_date=at("2024-01-01"), max_active_tasks=2), scheduled=True, script=never
    )
    manager.backfill("d", days("2023-12-01", 9), max_active_runs=9)
    manager.drain()
    assert len(manager.running) == 2, "its own count of the DAG's max_active_tasks"
    play(manager, "2024-01-02")
    assert [key[1][:9] for key in manager.running if key[1].startswith("scheduled")] == ["scheduled"]


def test_a_run_whose_place_an_older_one_took_while_it_waited_for_a_slot_waits_for_it() -> None:
    """Its task was ready, but had no slot; it must not start beside the older run, where one run at once is allowed."""
    manager = InMemoryManager(dag_spec("busy", "work"), dag_spec("d", "work", max_active_runs=1), script=never, slots=1)
    for n in range(1, 4):
        accepted(
            manager, "dag.trigger", dag_id="busy", logical_date=f"2024-01-0{n}T00:00:00Z", conf={}, allow_future=True
        )
    assert len(manager.running) == 3, "the pool has been given all that it takes"
    for date in ("2024-01-05T00:00:00Z", "2024-01-02T00:00:00Z"):
        accepted(manager, "dag.trigger", dag_id="d", logical_date=date, conf={}, allow_future=True)
    for key in list(manager.running):
        manager.finish(key, Succeeded())
    manager.drain()
    assert [key[1] for key in manager.running] == ["manual__2024-01-02T00:00:00Z"]
    manager.finish(next(iter(manager.running)), Succeeded())
    manager.drain()
    assert [key[1] for key in manager.running] == ["manual__2024-01-05T00:00:00Z"]
