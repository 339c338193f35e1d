"""Lookback: with each scheduled run, the last intervals are done again."""

from __future__ import annotations

import pytest
from support.scenarios import (
    FROM_2024,
    PAST,
    accepted,
    at,
    clear,
    dates,
    never,
    nothing_hangs,
    play,
    timeline,
)  # fmt: skip

from backfill_manager.execution.messages import Failed, Succeeded
from backfill_manager.model import states as s
from backfill_manager.model.records import TaskInstance
from backfill_manager.testing import FakeClock, InMemoryManager, dag_spec, days


def test_lookback_does_the_last_intervals_again_older_first_and_keeps_the_old_runs_readable() -> None:
    manager = InMemoryManager(dag_spec("d", "a", lookback=2, **FROM_2024), scheduled=True)
    play(manager, "2024-01-05")
    assert [launch.run.run_id[11:21] + launch.run.run_id[31:] for launch in manager.launched] == [
        "2024-01-01",
        "2024-01-01__2", "2024-01-02",
        "2024-01-01__3", "2024-01-02__2", "2024-01-03",
        "2024-01-02__3", "2024-01-03__2", "2024-01-04",
    ]  # fmt: skip
    assert dates(timeline(manager, "d")) == ["01-01", "01-02", "01-03", "01-04"]
    first = [run for run in manager.runs("d") if "01-01" in run.run_id]
    assert [(run.state, run.overridden_by and run.overridden_by[-3:]) for run in first] == [
        (s.OVERRIDDEN, "__2"), (s.OVERRIDDEN, "__3"), (s.SUCCESS, None),
    ]  # fmt: skip
    kept = [ti.state for ti in manager.store.read(TaskInstance) if ti.run_id == first[0].run_id]
    assert kept == [s.SUCCESS]


def test_lookback_does_the_last_intervals_of_a_duration_without_start_date_again() -> None:
    spec = dag_spec("d", "a", schedule={"seconds": 6 * 3600}, lookback=1)
    manager = InMemoryManager(spec, scheduled=True, clock=FakeClock(at("2024-01-01")))
    play(manager, "2024-01-01T12:00")
    assert [run.run_id for run in manager.runs("d")] == [
        "scheduled__2023-12-31T18:00:00Z", "scheduled__2023-12-31T18:00:00Z__2", "scheduled__2024-01-01T00:00:00Z",
        "scheduled__2024-01-01T00:00:00Z__2", "scheduled__2024-01-01T06:00:00Z",
    ]  # fmt: skip


def test_lookback_fills_no_gap() -> None:
    manager = InMemoryManager(dag_spec("d", "a", lookback=3, start_date=at("2024-01-01")), scheduled=True)
    manager.backfill("d", days("2024-01-01", 1))
    manager.drain()
    manager.clock.advance(days=4)
    nothing_hangs(manager)
    assert dates(timeline(manager, "d")) == ["01-01", "01-04"]
    assert len([run for run in manager.runs("d") if "01-01" in run.run_id]) == 2


def test_lookback_leaves_alone_what_is_running() -> None:
    manager = InMemoryManager(dag_spec("d", "a", lookback=1, **FROM_2024), scheduled=True, script=never)
    play(manager, "2024-01-04")
    assert [run.run_id for run in manager.runs("d")] == [f"scheduled__2024-01-0{n}T00:00:00Z" for n in (1, 2, 3)]


def test_lookback_leaves_alone_a_day_of_a_batch_that_runs_again() -> None:
    spec = dag_spec("d", "a", lookback=1, batchable=True, **FROM_2024)
    manager = InMemoryManager(spec, scheduled=True, clock=FakeClock(at("2024-01-04")))
    accepted(manager, "dag.pause", dag_id="d")
    manager.backfill("d", days("2024-01-01", 3), batch=3)
    manager.drain()
    manager.backfill("d", days("2024-01-03", 1), reprocess="completed")
    manager.drain()
    manager.script = never
    accepted(manager, "tasks.clear", **clear("d", run_ids=["backfill__2024-01-01T00:00:00Z"]))
    accepted(manager, "dag.unpause", dag_id="d")
    play(manager, "2024-01-05")
    found = [(run.logical_date, run.state) for run in manager.runs("d") if run.state in s.RUN_LIVE]
    assert found == [(at("2024-01-01"), s.RUNNING), (at("2024-01-04"), s.RUNNING)]


def test_lookback_does_again_what_failed_too_and_what_a_backfill_made() -> None:
    manager = InMemoryManager(
        dag_spec("d", "a", lookback=2, **FROM_2024),
        script=lambda it: Failed("boom") if it.run.run_type == "backfill" and "01-02" in it.run.run_id else Succeeded(),
        clock=FakeClock(at("2024-01-03")),
    )
    manager.backfill("d", days("2024-01-01", 2))
    manager.drain()
    accepted(manager, "dag.unpause", dag_id="d")
    play(manager, "2024-01-04")
    assert [(run.run_type, run.state) for run in timeline(manager, "d")] == [("scheduled", s.SUCCESS)] * 3
    assert len([run for run in manager.runs("d") if run.state == s.OVERRIDDEN]) == 2


@pytest.mark.parametrize("each", [None, PAST])
@pytest.mark.parametrize("most", [1, 2])
def test_lookback_with_one_run_at_a_time_and_depends_on_past_is_no_deadlock(
    most: int, each: dict[str, dict[str, bool]] | None
) -> None:
    spec = dag_spec("d", "a", each=each, lookback=3, max_active_runs=most, **FROM_2024)
    manager = InMemoryManager(spec, scheduled=True)
    play(manager, "2024-01-08")
    assert [run.state for run in timeline(manager, "d")] == [s.SUCCESS] * 7
    assert len(manager.runs("d")) == 7 + 0 + 1 + 2 + 3 * 4


def test_lookback_finds_its_intervals_though_manual_runs_lie_between_them() -> None:
    manager = InMemoryManager(dag_spec("d", "a", lookback=1, **FROM_2024), scheduled=True)
    play(manager, "2024-01-03")
    for hour in ("08", "12", "16"):
        accepted(manager, "dag.trigger", dag_id="d", logical_date=f"2024-01-02T{hour}:00:00Z", conf={})
    play(manager, "2024-01-04")
    assert dates(timeline(manager, "d")) == ["01-01", "01-02", "01-02T08", "01-02T12", "01-02T16", "01-03"]
    assert [run.run_id[-3:] for run in timeline(manager, "d") if "01-02T00" in run.run_id] == ["__2"]


def test_lookback_after_a_crash_does_each_date_again_once() -> None:
    manager = InMemoryManager(dag_spec("d", "a", lookback=2, **FROM_2024), scheduled=True)
    play(manager, "2024-01-03")
    manager.script = never
    play(manager, "2024-01-04")
    manager.crash()
    manager.script = lambda _: Succeeded()
    nothing_hangs(manager)
    assert len(manager.runs("d")) == 1 + 2 + 3
    assert [run.state for run in timeline(manager, "d")] == [s.SUCCESS] * 3


@pytest.mark.parametrize("schedule", ["0 */2 * * *", "0 */4 * * *", "@daily"])
def test_lookback_of_a_longer_schedule_than_before_leaves_the_timeline_right(schedule: str) -> None:
    """Of the runs before its first one only the newest are held: as many as `lookback` needs, and those are of an hour."""
    hourly = {**FROM_2024, "lookback": 2}
    manager = InMemoryManager(dag_spec("d", "a", schedule="@hourly", **hourly), scheduled=True)
    play(manager, "2024-01-03T00:00:00")
    manager.add_dag(dag_spec("d", "a", schedule=schedule, **hourly))
    play(manager, "2024-01-07T00:00:00")
    assert {run.state for run in timeline(manager, "d")} == {s.SUCCESS}


def test_lookback_of_a_batch_does_the_batch_again_as_one_run() -> None:
    manager = InMemoryManager(
        dag_spec("d", "a", lookback=3, batchable=True, **FROM_2024), clock=FakeClock(at("2024-01-04"))
    )
    manager.backfill("d", days("2024-01-01", 3), batch=3)
    manager.drain()
    accepted(manager, "dag.unpause", dag_id="d")
    play(manager, "2024-01-05")
    again, new = timeline(manager, "d")
    assert (again.items, again.interval_end, again.run_type) == (3, at("2024-01-04"), "scheduled")
    assert (new.logical_date, new.items) == (at("2024-01-04"), 1)


def test_lookback_does_the_last_days_of_a_longer_batch_again_one_by_one() -> None:
    manager = InMemoryManager(
        dag_spec("d", "a", lookback=2, batchable=True, **FROM_2024), clock=FakeClock(at("2024-01-07"))
    )
    manager.backfill("d", days("2024-01-01", 6), batch=6)
    manager.drain()
    accepted(manager, "dag.unpause", dag_id="d")
    play(manager, "2024-01-08")
    assert [(run.run_id[-20:-10], run.items) for run in timeline(manager, "d")] == [
        ("2024-01-01", 6), ("2024-01-05", 1), ("2024-01-06", 1), ("2024-01-07", 1)
    ]  # fmt: skip
    play(manager, "2024-01-09")
    assert sorted(run.run_id for run in manager.runs("d") if run.created_at == at("2024-01-09")) == [
        "scheduled__2024-01-06T00:00:00Z__2", "scheduled__2024-01-07T00:00:00Z__2", "scheduled__2024-01-08T00:00:00Z"
    ]  # fmt: skip
