"""`batch=N` by docs/semantics.md ("Backfill"): adjacent items joined in one run, a failed batch tried again in
halves. Without Spark, Delta or a JVM."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from support.scenarios import accepted, at, clear, dates, dies_after, key_of, never, nothing_hangs, play, timeline

from backfill_manager.execution.messages import Failed, Outcome, Succeeded, TaskLaunch
from backfill_manager.manager.prefetch import WINDOW
from backfill_manager.model import states as s
from backfill_manager.testing import FakeClock, InMemoryManager, dag_spec, days

SPEC = dag_spec("d", "a", batchable=True)
BACKWARDS = json.dumps({"type": "schedule", "run_backwards": True})


def poisoned(*poison: str) -> object:
    """A script: a run fails when one of these days lies in its interval."""

    def script(launch: TaskLaunch) -> Outcome | None:
        run = launch.run
        assert run.interval_start is not None and run.interval_end is not None
        return (
            Failed("poison") if any(run.interval_start <= at(day) < run.interval_end for day in poison) else Succeeded()
        )

    return script


def ground_with(*poison: str) -> InMemoryManager:
    return InMemoryManager(SPEC, script=poisoned(*poison))  # type: ignore[arg-type]


def spans(manager: InMemoryManager) -> list[tuple[str, int]]:
    return [(f"{run.logical_date:%m-%d}", run.items) for run in manager.runs("d") if run.state != s.OVERRIDDEN]


def test_a_batch_joins_adjacent_items_in_one_run_over_the_joined_interval_and_the_last_may_be_partial() -> None:
    manager = ground_with()
    backfill = manager.backfill("d", days("2013-01-01", 10), batch=4)
    nothing_hangs(manager)
    assert spans(manager) == [("01-01", 4), ("01-05", 4), ("01-09", 2)]
    assert [(run.interval_start, run.interval_end) for run in manager.runs("d")] == [
        (at("2013-01-01"), at("2013-01-05")), (at("2013-01-05"), at("2013-01-09")), (at("2013-01-09"), at("2013-01-11")),
    ]  # fmt: skip
    assert manager.states(backfill) == {s.SUCCESS: 10}
    assert len(manager.launched) == 3, "the data is read once"
    assert [run.previous_run_id for run in timeline(manager, "d")][1:] == [run.run_id for run in manager.runs("d")][:-1]


def test_the_items_of_a_batch_run_and_end_together() -> None:
    manager = InMemoryManager(SPEC, script=never)
    backfill = manager.backfill("d", days("2013-01-01", 6), batch=3, max_active_runs=1)
    manager.drain()
    assert manager.states(backfill) == {s.RUNNING: 3, s.PENDING: 3}
    manager.finish(key_of(manager, "01-01"), Succeeded())
    manager.drain()
    assert manager.states(backfill) == {s.SUCCESS: 3, s.RUNNING: 3}


def test_batches_never_join_across_a_gap() -> None:
    manager = ground_with()
    manager.backfill("d", [*days("2013-01-01", 3), *days("2013-01-06", 3)], batch=10)
    nothing_hangs(manager)
    assert spans(manager) == [("01-01", 3), ("01-06", 3)]


def test_batches_never_pass_a_run_that_is_to_be_kept() -> None:
    manager = ground_with()
    manager.backfill("d", days("2013-01-04", 1))
    manager.drain()
    backfill = manager.backfill("d", days("2013-01-01", 7), batch=10)
    nothing_hangs(manager)
    assert spans(manager) == [("01-01", 3), ("01-04", 1), ("01-05", 3)]
    assert manager.states(backfill) == {s.SUCCESS: 6, s.SKIPPED: 1}


def test_a_batch_may_run_over_dates_that_are_done_again_and_overrides_each() -> None:
    manager = ground_with()
    manager.backfill("d", days("2013-01-01", 4))
    manager.drain()
    manager.backfill("d", days("2013-01-01", 4), batch=4, reprocess="completed")
    nothing_hangs(manager)
    assert spans(manager) == [("01-01", 4)]
    old = [run for run in manager.runs("d") if run.state == s.OVERRIDDEN]
    assert {run.overridden_by for run in old} == {"backfill__2013-01-01T00:00:00Z__2"} and len(old) == 4
    timeline(manager, "d")


def test_days_of_a_batch_can_be_done_again_one_by_one() -> None:
    manager = ground_with()
    manager.backfill("d", days("2013-01-01", 4), batch=4)
    manager.drain()
    again = manager.backfill("d", days("2013-01-02", 2), reprocess="completed")
    nothing_hangs(manager)
    assert spans(manager) == [("01-01", 4), ("01-02", 1), ("01-03", 1)]
    assert manager.states(again) == {s.SUCCESS: 2}


BY_WHOM = pytest.mark.parametrize("by", ["backfill", "manual"])
THEN = pytest.mark.parametrize("is_new", [False, True], ids=["the same manager", "another manager"])


def run_again(manager: InMemoryManager, by: str, *dates: str) -> list[str | None]:
    """What the answers say."""
    said = []
    for date in dates:
        if by == "backfill":
            manager.backfill("d", days(date, 1), reprocess="completed")
            manager.drain()
        else:
            said.append(accepted(manager, "dag.trigger", dag_id="d", logical_date=date, conf={}).message)
            manager.drain()
    return said


@BY_WHOM
@THEN
@pytest.mark.parametrize("catchup", [True, False])
def test_the_schedule_does_not_go_back_when_the_first_day_of_a_batch_is_done_again(
    by: str, is_new: bool, catchup: bool
) -> None:
    spec = dag_spec("d", "a", batchable=True, start_date=at("2024-01-01"), catchup=catchup)
    manager = InMemoryManager(spec, clock=FakeClock(at("2024-01-07")))
    manager.backfill("d", days("2024-01-01", 6), batch=6)
    manager.drain()
    run_again(manager, by, "2024-01-01")
    accepted(manager, "dag.unpause", dag_id="d")
    if is_new:
        manager.crash()
    play(manager, "2024-01-09")
    assert [run.run_id for run in manager.runs("d")] == [
        f"{by}__2024-01-01T00:00:00Z__2", "backfill__2024-01-01T00:00:00Z",
        "scheduled__2024-01-07T00:00:00Z", "scheduled__2024-01-08T00:00:00Z",
    ]  # fmt: skip


@BY_WHOM
@THEN
def test_a_batch_whose_first_days_are_run_again_stays_the_run_of_the_others(by: str, is_new: bool) -> None:
    manager = InMemoryManager(dag_spec("d", "a", batchable=True), clock=FakeClock(at("2024-01-07")))
    manager.backfill("d", days("2024-01-01", 5), batch=5)
    manager.drain()
    batch = "backfill__2024-01-01T00:00:00Z"
    run_again(manager, by, "2024-01-02")
    if is_new:
        manager.crash()
    run_again(manager, by, "2024-01-01")
    runs = {run.run_id: run for run in manager.runs("d")}
    rest = runs[batch]
    assert (rest.state, rest.logical_date, rest.interval_start, rest.items) == (
        s.SUCCESS, at("2024-01-03"), at("2024-01-03"), 3,
    )  # fmt: skip
    again = [f"{by}__2024-01-01T00:00:00Z__2", f"{by}__2024-01-02T00:00:00Z"]
    assert [runs[run_id].previous_run_id for run_id in (*again, batch)] == [None, *again]
    if is_new:
        manager.crash()
    backfill = manager.backfill("d", days("2024-01-01", 6))
    manager.drain()
    assert [item.reason for item in manager.items(backfill)] == ["already exists"] * 5 + [None]
    run_again(manager, by, "2024-01-03", "2024-01-04", "2024-01-05")
    runs = {run.run_id: run for run in manager.runs("d")}
    assert (runs[batch].state, runs[batch].items) == (s.OVERRIDDEN, 1)
    assert runs[batch].overridden_by == f"{by}__2024-01-05T00:00:00Z"


@BY_WHOM
def test_what_is_left_of_a_batch_is_cleared_and_split_without_the_days_that_were_run_again(by: str) -> None:
    manager = InMemoryManager(dag_spec("d", "a", batchable=True), clock=FakeClock(at("2024-01-07")))
    backfill = manager.backfill("d", days("2024-01-01", 5), batch=5)
    manager.drain()
    run_again(manager, by, "2024-01-01", "2024-01-02")
    manager.script = poisoned("2024-01-04")
    accepted(manager, "tasks.clear", **clear("d", run_ids=["backfill__2024-01-01T00:00:00Z"]))
    nothing_hangs(manager)
    assert [(item.ordinal, item.state) for item in manager.items(backfill)] == [
        (1, s.SUCCESS), (2, s.SUCCESS), (3, s.SUCCESS), (4, s.FAILED), (5, s.SUCCESS),
    ]  # fmt: skip
    days_done = [run.logical_date.day for run in timeline(manager, "d") if run.logical_date]
    assert days_done == [1, 2, 3, 4, 5] and timeline(manager, "d")[0].run_id == f"{by}__2024-01-01T00:00:00Z__2"


def test_an_answer_says_that_a_batch_is_overridden_on_one_date() -> None:
    manager = InMemoryManager(dag_spec("d", "a", batchable=True), clock=FakeClock(at("2024-01-07")))
    manager.backfill("d", days("2024-01-01", 2), batch=2)
    manager.drain()
    said = run_again(manager, "manual", "2024-01-01", "2024-01-02")
    batch = "backfill__2024-01-01T00:00:00Z"
    assert f"; it overrides {batch} on this date" in (said[0] or "")
    assert (said[1] or "").endswith(f"; it overrides {batch}")


def test_run_backwards_joins_newest_first_and_each_run_goes_forward() -> None:
    manager = ground_with()
    backfill = manager.backfill("d", days("2013-01-01", 5)[::-1], batch=2, max_active_runs=1, config_json=BACKWARDS)
    nothing_hangs(manager)
    made = [(f"{it.run.interval_start:%m-%d}", f"{it.run.interval_end:%m-%d}") for it in manager.launched]
    assert made == [("01-04", "01-06"), ("01-02", "01-04"), ("01-01", "01-02")]
    assert manager.states(backfill) == {s.SUCCESS: 5}
    timeline(manager, "d")


@pytest.mark.parametrize("order", [1, -1])
def test_a_failed_batch_is_tried_again_in_halves_down_to_the_poisoned_day(order: int) -> None:
    """So one poisoned day doesn't hold up the month."""
    manager = ground_with("2013-01-19")
    config = {"config_json": BACKWARDS} if order < 0 else {}
    backfill = manager.backfill("d", days("2013-01-01", 32)[::order], batch=32, **config)
    nothing_hangs(manager)
    assert manager.states(backfill) == {s.SUCCESS: 31, s.FAILED: 1}
    (bad,) = [item for item in manager.items(backfill) if item.state == s.FAILED]
    assert (bad.logical_date, bad.reason) == (at("2013-01-19"), "failed: a")
    assert manager.row(backfill).state == s.FAILED
    assert len(manager.launched) == 1 + 2 * 5, "two runs for each halving, not one for each day"
    covered = [
        day
        for run in timeline(manager, "d")
        if run.interval_start and run.interval_end and run.state == s.SUCCESS
        for day in range(run.interval_start.toordinal(), run.interval_end.toordinal())
    ]
    assert len(covered) == len(set(covered)) == 31


def test_a_batch_of_which_a_task_has_failed_is_tried_again_in_halves_though_its_leaf_has_succeeded() -> None:
    """By themselves, all days but one would have succeeded."""
    spec = dag_spec("d", "a", "b", upstream={"b": ["a"]}, each={"b": {"trigger_rule": "all_done"}}, batchable=True)

    def script(launch: TaskLaunch) -> Outcome:
        start, end = launch.run.interval_start, launch.run.interval_end
        assert start is not None and end is not None
        return Failed("poison") if launch.task.task_id == "a" and start <= at("2013-01-03") < end else Succeeded()

    manager = InMemoryManager(spec, script=script)
    backfill = manager.backfill("d", days("2013-01-01", 8), batch=8)
    nothing_hangs(manager)
    assert (manager.row(backfill).state, manager.states(backfill)) == (s.SUCCESS, {s.SUCCESS: 8})
    stand = {run.run_id: run for run in timeline(manager, "d")}
    of_a = [ti for ti in manager.tasks("d", "a") if ti.run_id in stand]
    assert [stand[ti.run_id].run_id[10:20] for ti in of_a if ti.state == s.FAILED] == ["2013-01-03"]
    assert sum(stand[ti.run_id].items for ti in of_a if ti.state == s.SUCCESS) == 7


def test_two_poisoned_days_are_both_found() -> None:
    manager = ground_with("2013-01-03", "2013-01-14")
    backfill = manager.backfill("d", days("2013-01-01", 16), batch=16)
    nothing_hangs(manager)
    assert [f"{item.logical_date:%d}" for item in manager.items(backfill) if item.state == s.FAILED] == [
        "03",
        "14",
    ]
    assert len(manager.launched) == 1 + 2 + 4 + 4 + 4


def test_everything_poisoned_fails_each_day_by_itself() -> None:
    manager = InMemoryManager(SPEC, script=lambda _: Failed("always"))
    backfill = manager.backfill("d", days("2013-01-01", 8), batch=8)
    nothing_hangs(manager)
    assert manager.states(backfill) == {s.FAILED: 8}
    assert len(manager.launched) == 15


def test_retry_after_halving_runs_what_failed_and_nothing_else() -> None:
    manager = ground_with("2013-01-03", "2013-01-04")
    backfill = manager.backfill("d", days("2013-01-01", 8), batch=8)
    nothing_hangs(manager)
    before, manager.script = len(manager.launched), lambda _: Succeeded()
    accepted(manager, "backfill.retry", backfill_id=backfill)
    nothing_hangs(manager)
    assert manager.states(backfill) == {s.SUCCESS: 8}
    assert {f"{it.run.interval_start:%d}" for it in manager.launched[before:]} == {"03", "04"}
    assert manager.row(backfill).state == s.SUCCESS
    timeline(manager, "d")


def test_stop_on_failure_counts_days_not_batches() -> None:
    manager = ground_with("2013-01-02")
    backfill = manager.backfill("d", days("2013-01-01", 16), batch=4, stop_on_failure=1, max_active_runs=1)
    manager.drain()
    assert (manager.row(backfill).state, manager.states(backfill)[s.FAILED]) == (s.PAUSED, 1)
    accepted(manager, "backfill.unpause", backfill_id=backfill)
    nothing_hangs(manager)
    assert manager.states(backfill) == {s.SUCCESS: 15, s.FAILED: 1}


def test_halves_keep_to_depends_on_past() -> None:
    spec = dag_spec("d", "a", batchable=True, each={"a": {"depends_on_past": True}})
    manager = InMemoryManager(spec, script=poisoned("2013-01-05"))  # type: ignore[arg-type]
    backfill = manager.backfill("d", days("2013-01-01", 8), batch=4)
    nothing_hangs(manager)
    assert manager.row(backfill).state == s.FAILED
    assert manager.states(backfill) == {s.SUCCESS: 4, s.FAILED: 4}
    manager.script = lambda _: Succeeded()
    accepted(manager, "backfill.retry", backfill_id=backfill)
    nothing_hangs(manager)
    assert manager.states(backfill) == {s.SUCCESS: 8}
    timeline(manager, "d")


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("tables", range(22))
def test_a_crash_anywhere_in_a_batched_backfill_changes_nothing_in_what_comes_out(tables: int, order: int) -> None:
    """Between a run and its items too: the run is adopted."""
    manager = ground_with("2013-01-06")
    config = {"config_json": BACKWARDS} if order < 0 else {}
    backfill = manager.backfill("d", days("2013-01-01", 11)[::order], batch=4, max_active_runs=2, **config)
    dies_after(manager, tables)
    nothing_hangs(manager)
    assert manager.states(backfill) == {s.SUCCESS: 10, s.FAILED: 1}
    assert [item.logical_date for item in manager.items(backfill) if item.state == s.FAILED] == [at("2013-01-06")]
    assert manager.row(backfill).started_at is not None
    timeline(manager, "d")


@pytest.mark.parametrize("tables", range(4))
def test_a_run_made_with_a_larger_batch_is_adopted_whole_though_the_batch_is_smaller_now(tables: int) -> None:
    manager = InMemoryManager(SPEC, script=never)
    backfill = manager.backfill("d", days("2013-01-01", 8), batch=4, max_active_runs=1)
    dies_after(manager, tables)
    manager.state.backfills[backfill].row  # noqa: B018  it is alive
    manager.ask("backfill.set", backfill_id=backfill, changes={"batch": 2})
    manager.script = lambda _: Succeeded()
    nothing_hangs(manager)
    for key in list(manager.running):
        manager.finish(key, Succeeded())
    nothing_hangs(manager)
    assert manager.states(backfill) == {s.SUCCESS: 8}
    assert sum(run.items for run in timeline(manager, "d")) == 8


def test_a_batch_that_failed_and_is_cleared_while_its_halves_wait_takes_its_items_back() -> None:
    manager = ground_with("2013-01-03")
    backfill = manager.backfill("d", days("2013-01-01", 8), batch=8, max_active_runs=1)
    manager.script = never
    manager.drain()
    accepted(manager, "backfill.pause", backfill_id=backfill)
    manager.finish(key_of(manager, "01-01"), Failed("boom"))
    manager.drain()
    assert manager.states(backfill) == {s.PENDING: 8}
    accepted(manager, "tasks.clear", **clear("d"))
    accepted(manager, "backfill.unpause", backfill_id=backfill)
    manager.script = lambda _: Succeeded()
    manager.finish(key_of(manager, "01-01"), Succeeded())
    nothing_hangs(manager)
    assert manager.states(backfill) == {s.SUCCESS: 8}


def test_a_batch_that_is_cleared_while_a_backfill_waits_has_its_dates_also_one_that_was_done_again_since() -> None:
    manager = ground_with("2013-01-09")
    manager.backfill("d", days("2013-01-01", 5), batch=5)
    manager.drain()
    manager.backfill("d", days("2013-01-03", 1), reprocess="completed")
    manager.drain()
    waits = manager.backfill("d", days("2013-01-03", 1), reprocess="completed", is_paused=True, state=s.PAUSED)
    manager.script = never
    accepted(manager, "tasks.clear", **clear("d", run_ids=["backfill__2013-01-01T00:00:00Z"]))
    accepted(manager, "backfill.unpause", backfill_id=waits)
    manager.drain()
    assert [run.state for run in timeline(manager, "d")][:2] == [s.RUNNING, s.SUCCESS], "the day is not run beside it"
    assert [item.reason for item in manager.items(waits)] == ["in flight"]


def test_two_backfills_at_once_the_one_that_comes_second_leaves_out_what_the_others_batch_has_done_meanwhile() -> None:
    manager = InMemoryManager(SPEC, script=never)
    manager.backfill("d", days("2013-01-01", 6), batch=6)
    manager.drain()
    other = manager.backfill("d", days("2013-01-03", 2), is_paused=True, state=s.PAUSED)
    again = manager.backfill("d", days("2013-01-03", 2), is_paused=True, state=s.PAUSED, reprocess="completed")
    live = manager.backfill("d", days("2013-01-05", 1), reprocess="completed")
    manager.drain()
    assert [item.reason for item in manager.items(live)] == ["in flight"]
    manager.script = lambda _: Succeeded()
    manager.finish(key_of(manager, "01-01"), Succeeded())
    manager.drain()
    accepted(manager, "backfill.unpause", backfill_id=other)
    assert [item.reason for item in manager.items(other)] == ["already exists"] * 2
    accepted(manager, "backfill.unpause", backfill_id=again)
    nothing_hangs(manager)
    assert manager.states(again) == {s.SUCCESS: 2}


def test_more_items_than_are_held_at_once_are_batched_without_a_seam() -> None:
    n = 3 * WINDOW + 77
    manager = ground_with()
    backfill = manager.backfill("d", days("2013-01-01", n), batch=7, max_active_runs=3)
    nothing_hangs(manager)
    assert manager.states(backfill) == {s.SUCCESS: n}
    assert [run.items for run in manager.runs("d")] == [7] * (n // 7) + [n % 7]


def test_a_batch_larger_than_what_is_held_at_once_is_one_run() -> None:
    manager = ground_with()
    manager.backfill("d", days("2010-01-01", 4 * WINDOW), batch=2 * WINDOW)
    nothing_hangs(manager)
    assert [run.items for run in manager.runs("d")] == [2 * WINDOW] * 2


def test_the_halves_of_a_huge_batch_do_not_hang_when_the_batch_is_made_small_and_the_manager_dies() -> None:
    n = 4 * WINDOW + 300
    manager = InMemoryManager(SPEC, script=never)
    backfill = manager.backfill("d", days("2010-01-01", n), batch=4 * WINDOW, max_active_runs=1)
    manager.drain()
    manager.finish(key_of(manager, "2010"), Failed("boom"))
    accepted(manager, "backfill.set", backfill_id=backfill, changes={"batch": 2})
    manager.crash()
    manager.script = lambda _: Succeeded()
    nothing_hangs(manager)
    for key in list(manager.running):
        manager.finish(key, Succeeded())
    nothing_hangs(manager)
    assert manager.states(backfill) == {s.SUCCESS: n}
    assert sum(run.items for run in timeline(manager, "d")) == n


def test_hours_of_a_day_that_changes_its_clocks_join_like_any_others() -> None:
    start = datetime(2024, 3, 31, tzinfo=at("2024-03-31").tzinfo)
    hours = [(start + timedelta(hours=n), start + timedelta(hours=n + 1)) for n in range(23)]
    manager = InMemoryManager(dag_spec("d", "a", schedule="@hourly", timezone="Europe/Amsterdam", batchable=True))
    manager.backfill("d", hours, batch=24)
    nothing_hangs(manager)
    assert [run.items for run in manager.runs("d")] == [23]


def test_a_batch_that_is_cancelled_says_how_many_intervals_it_takes() -> None:
    manager = InMemoryManager(SPEC, script=never)
    manager.backfill("d", days("2013-01-01", 3), batch=2)
    manager.drain()
    batch, single = (run.run_id for run in manager.runs("d"))
    for _ in range(2):  # the second time it is cancelled already
        assert (
            accepted(manager, "run.cancel", dag_id="d", run_id=batch).message
            == f"run {batch}, of 2 intervals, is cancelled"
        )
        assert accepted(manager, "run.cancel", dag_id="d", run_id=single).message == f"run {single} is cancelled"


def test_partition_keys_are_never_joined() -> None:
    manager = InMemoryManager(SPEC)
    backfill = manager.backfill("d", keys=["eu", "us", "asia"], batch=3)
    nothing_hangs(manager)
    assert [run.items for run in manager.runs("d")] == [1, 1, 1]
    assert manager.states(backfill) == {s.SUCCESS: 3}
    assert dates(manager.runs("d")) == []


@pytest.mark.parametrize("finish", [False, True])
@pytest.mark.parametrize("ticks", [0, 1])
def test_a_batch_that_fails_while_its_backfill_is_being_cancelled_is_not_tried_in_halves(
    ticks: int, finish: bool
) -> None:
    manager = InMemoryManager(SPEC, script=never)
    backfill = manager.backfill("d", days("2013-01-01", 8), batch=4, max_active_runs=1)
    manager.drain()
    manager.ask("backfill.cancel", backfill_id=backfill, let_running_finish=finish)
    if finish:
        for _ in range(ticks):
            manager.tick()
    manager.finish(key_of(manager, "01-01"), Failed("boom"))
    nothing_hangs(manager)
    assert manager.states(backfill) == {s.FAILED: 4, s.CANCELLED: 4}
    assert manager.row(backfill).state == s.CANCELLED
    assert len(manager.launched) == 1


def test_a_batch_that_takes_away_the_neighbour_of_another_backfills_dates_leaves_the_timeline_right() -> None:
    manager = ground_with()
    manager.backfill("d", days("2013-01-01", 6))
    manager.drain()
    waiting = manager.backfill("d", days("2013-01-02", 2), reprocess="completed", is_paused=True, state=s.PAUSED)
    manager.drain()
    manager.backfill("d", days("2013-01-03", 2), batch=2, reprocess="completed")
    manager.drain()
    accepted(manager, "backfill.unpause", backfill_id=waiting)
    nothing_hangs(manager)
    assert spans(manager) == [(f"01-0{day}", 1) for day in range(1, 7)], "of the batch the 4th is left"
    timeline(manager, "d")


def test_a_run_between_the_days_of_a_batch_follows_what_stands_before_it() -> None:
    """By hand at noon, or of a schedule of before: the batch takes the place of the days around it, and leaves it."""
    manager = ground_with()
    manager.backfill("d", days("2013-01-01", 6))
    for day in range(1, 6):
        accepted(manager, "dag.trigger", dag_id="d", logical_date=f"2013-01-{day:02}T12:00:00Z", conf={})
    manager.drain()
    timeline(manager, "d")
    manager.backfill("d", days("2013-01-02", 3), batch=3, reprocess="completed")
    nothing_hangs(manager)
    standing = timeline(manager, "d")  # none follows a day that was overridden
    assert [f"{run.logical_date:%d %H}" for run in standing] == [
        "01 00", "01 12", "02 00", "02 12", "03 12", "04 12", "05 00", "05 12", "06 00",
    ]  # fmt: skip


def test_days_that_fail_in_an_earlier_window_find_their_place_in_the_timeline() -> None:
    """Halves of a batch come back after what was held of the timeline has moved on."""
    n = 2 * WINDOW
    manager = InMemoryManager(
        SPEC, script=lambda it: None if "2013-01-01" in it.run.run_id and it.run.items > 1 else Succeeded()
    )
    backfill = manager.backfill("d", days("2013-01-01", n), batch=4, max_active_runs=2)
    manager.drain()
    manager.finish(key_of(manager, "2013-01-01"), Failed("boom"))
    for _ in range(5):
        manager.tick()
        for key in list(manager.running):
            manager.finish(key, Failed("boom"))
    nothing_hangs(manager)
    assert manager.row(backfill).state in s.BACKFILL_FINISHED
    timeline(manager, "d")


TOO_LARGE = dag_spec("d", "a", each={"a": {"depends_on_past": True}}, batchable=True)


def fails_above(most: int) -> object:
    return lambda launch: Failed("too large") if launch.run.items > most else Succeeded()


@pytest.mark.parametrize("max_active_runs", [1, 2, 3, 4])
def test_what_depends_on_a_batch_that_failed_waits_for_its_halves_in_order(max_active_runs: int) -> None:
    manager = InMemoryManager(TOO_LARGE, script=fails_above(2))  # type: ignore[arg-type]
    backfill = manager.backfill("d", days("2013-01-01", 16), batch=4, max_active_runs=max_active_runs)
    nothing_hangs(manager)
    assert manager.states(backfill) == {s.SUCCESS: 16}
    done = [launch.run.logical_date for launch in manager.launched if launch.run.items <= 2]
    assert done == sorted(done, key=str) and len(done) == 8


def batch_before_the_schedule(**fields: Any) -> tuple[InMemoryManager, str]:
    """A batch of the six days before those of the schedule runs; tasks depend on the past. Returns the backfill's id, too."""
    spec = dag_spec(
        "d", "a", each={"a": {"depends_on_past": True}}, batchable=True, start_date=at("2024-01-01"), catchup=True
    )
    manager = InMemoryManager(spec, scheduled=True, script=never)
    backfill = manager.backfill("d", days("2023-12-26", 6), batch=6, max_active_runs=1, **fields)
    manager.drain()
    return manager, backfill


def test_a_scheduled_run_waits_for_the_halves_of_the_batch_before_it() -> None:
    manager, backfill = batch_before_the_schedule()
    manager.clock.advance(days=1)
    manager.drain()
    manager.finish(key_of(manager, "backfill__"), Failed("too large"))
    manager.drain()
    for _ in range(2):
        (key,) = manager.running
        assert key[1].startswith("backfill__"), "the halves come first"
        manager.finish(key, Succeeded())
        manager.drain()
    assert key_of(manager, "scheduled__")
    manager.script = lambda _: Succeeded()
    manager.finish(key_of(manager, "scheduled__"), Succeeded())
    nothing_hangs(manager)
    assert manager.states(backfill) == {s.SUCCESS: 6}
    assert [run.state for run in manager.runs("d") if run.run_type == s.SCHEDULED_RUN] == [s.SUCCESS]


@pytest.mark.parametrize("when", ["runs", "waits for its halves", "is cancelled"])
@pytest.mark.parametrize("tables", range(0, 8, 2))
def test_a_batch_that_a_person_marks_failed_is_not_tried_again_in_halves(when: str, tables: int) -> None:
    manager = InMemoryManager(SPEC, script=never)
    backfill = manager.backfill("d", days("2013-01-01", 4), batch=4)
    manager.drain()
    (run,) = manager.runs("d")
    if when == "waits for its halves":
        accepted(manager, "backfill.pause", backfill_id=backfill)
        manager.finish(key_of(manager, "backfill__"), Failed("poison"))
        manager.drain()
    if when == "is cancelled":
        accepted(manager, "run.cancel", dag_id="d", run_id=run.run_id)
    manager.ask("run.mark", dag_id="d", run_id=run.run_id, state="failed")
    dies_after(manager, tables)
    nothing_hangs(manager)
    (run,) = manager.runs("d")
    assert (run.state, run.reason) == (s.FAILED, "marked failed by tests")
    assert (manager.row(backfill).state, manager.states(backfill)) == (s.FAILED, {s.FAILED: 4})
    accepted(manager, "task.mark", dag_id="d", run_id=run.run_id, task_id=manager.tasks("d")[0].task_id, state="failed")
    nothing_hangs(manager)
    assert [(one.state, one.reason) for one in manager.runs("d")] == [(s.FAILED, "marked failed by tests")]


@pytest.mark.parametrize("tables", range(6))
@pytest.mark.parametrize("state", [s.RUNNING, s.SUCCESS, s.FAILED])
def test_a_batch_of_which_a_person_marks_a_task_failed_is_not_tried_again_in_halves(state: str, tables: int) -> None:
    """Its dates would be written again, at once."""
    manager = InMemoryManager(SPEC, script=never)
    backfill = manager.backfill("d", days("2013-01-01", 4), batch=4)
    manager.drain()
    if state == s.FAILED:
        accepted(manager, "backfill.pause", backfill_id=backfill)
    if state != s.RUNNING:
        manager.finish(key_of(manager, "backfill__"), Failed("poison") if state == s.FAILED else Succeeded())
        manager.drain()
    (run,) = manager.runs("d")
    assert run.state == state
    task_id = manager.tasks("d")[0].task_id
    manager.ask("task.mark", dag_id="d", run_id=run.run_id, task_id=task_id, state="failed")
    dies_after(manager, tables)
    nothing_hangs(manager)
    assert [(one.state, one.reason) for one in manager.runs("d")] == [(s.FAILED, f"marked failed by tests: {task_id}")]
    assert (manager.row(backfill).state, manager.states(backfill)) == (s.FAILED, {s.FAILED: 4})


def test_a_batch_whose_leaf_succeeds_after_a_person_has_marked_a_task_failed_is_not_tried_again_in_halves() -> None:
    spec = dag_spec("d", "a", "b", upstream={"b": ["a"]}, each={"b": {"trigger_rule": "all_done"}}, batchable=True)
    manager = InMemoryManager(spec, script=never)
    backfill = manager.backfill("d", days("2013-01-01", 4), batch=4)
    manager.drain()
    (run,) = manager.runs("d")
    accepted(manager, "task.mark", dag_id="d", run_id=run.run_id, task_id="a", state="failed")
    manager.drain()
    manager.finish(next(iter(manager.running)), Succeeded())
    nothing_hangs(manager)
    assert [(one.items, one.state) for one in manager.runs("d")] == [(4, s.SUCCESS)]
    assert manager.states(backfill) == {s.SUCCESS: 4}


def test_a_marked_batch_that_goes_on_and_fails_by_work_is_tried_again_in_halves() -> None:
    spec = dag_spec("d", "a", "b", upstream={"b": ["a"]}, batchable=True)
    manager = InMemoryManager(spec, script=never)
    backfill = manager.backfill("d", days("2013-01-01", 4), batch=4)
    manager.drain()
    accepted(manager, "backfill.pause", backfill_id=backfill)
    manager.finish(key_of(manager, "backfill__"), Failed("poison"))
    manager.drain()
    (run,) = manager.runs("d")
    manager.ask("task.mark", dag_id="d", run_id=run.run_id, task_id="a", state="success")
    manager.drain()
    assert manager.states(backfill) == {s.RUNNING: 4}
    manager.finish(key_of(manager, "backfill__"), Failed("more poison"))
    manager.drain()
    assert manager.states(backfill) == {s.PENDING: 4}
    accepted(manager, "backfill.unpause", backfill_id=backfill)
    assert [(one.items, one.state) for one in timeline(manager, "d")] == [(2, s.RUNNING), (2, s.RUNNING)]


@pytest.mark.parametrize("how", ["mark", "clear"])
def test_a_failed_batch_that_is_made_good_takes_its_items_back_from_the_queue(how: str) -> None:
    manager = InMemoryManager(SPEC, script=never)
    backfill = manager.backfill("d", days("2013-01-01", 4), batch=4)
    manager.drain()
    accepted(manager, "backfill.pause", backfill_id=backfill)
    manager.finish(key_of(manager, "backfill__"), Failed("poison"))
    manager.drain()
    (run,) = manager.runs("d")
    assert manager.states(backfill) == {s.PENDING: 4}
    if how == "mark":
        accepted(manager, "run.mark", dag_id="d", run_id=run.run_id, state="success")
    else:
        accepted(manager, "tasks.clear", **clear("d"))
        manager.finish(key_of(manager, "backfill__"), Succeeded())
    nothing_hangs(manager)
    assert (manager.row(backfill).state, manager.states(backfill)) == (s.SUCCESS, {s.SUCCESS: 4})
    assert len(manager.runs("d")) == 1


@pytest.mark.parametrize("n", [5, 9])
def test_a_run_that_waits_for_halves_does_not_take_their_place(n: int) -> None:
    """Both are of a backfill of one run at a time, as they were cleared; with nine days another comes after them."""
    spec = dag_spec(
        "d", "a", "b", upstream={"b": ["a"]}, each={"b": {"depends_on_past": True}}, batchable=True, schedule="0 0 * * *"
    )  # fmt: skip
    manager = InMemoryManager(spec)
    backfill = manager.backfill("d", days("2013-01-01", n), batch=4, max_active_runs=1)
    nothing_hangs(manager)
    manager.script = never
    accepted(manager, "tasks.clear", **clear("d", start_date="2013-01-01", end_date="2013-01-09"))
    manager.finish(key_of(manager, "backfill__2013-01-01"), Failed("poison"))  # the other runs, and waits for it in b
    manager.drain()
    manager.finish(key_of(manager, "backfill__2013-01-05"), Succeeded())
    manager.script = lambda _: Succeeded()
    nothing_hangs(manager)
    for key in list(manager.running):
        manager.finish(key, Succeeded())
    nothing_hangs(manager)
    assert (manager.row(backfill).state, manager.states(backfill)) == (s.SUCCESS, {s.SUCCESS: n})
    assert [run.state for run in manager.runs("d") if run.logical_date == at("2013-01-05")] == [s.SUCCESS]


def test_a_run_behind_halves_of_a_paused_backfill_says_so_and_a_manager_has_nothing_to_do() -> None:
    manager, backfill = batch_before_the_schedule()
    manager.clock.advance(days=2)
    manager.drain()
    assert not manager.state.is_idle
    accepted(manager, "backfill.pause", backfill_id=backfill)
    manager.finish(key_of(manager, "backfill__"), Failed("too large"))
    manager.drain()
    waiting = [run.reason for run in manager.runs("d") if run.run_type == s.SCHEDULED_RUN]
    assert waiting == [f"waits for backfill {backfill}, which is paused", None], "the second waits for the first"
    assert manager.state.is_idle, "it ends with --until-idle"
    manager.script = lambda _: Succeeded()
    accepted(manager, "backfill.unpause", backfill_id=backfill)
    nothing_hangs(manager)
    assert [(run.state, run.reason) for run in timeline(manager, "d")] == [(s.SUCCESS, None)] * 4


def test_backfills_behind_a_paused_one_leave_a_manager_nothing_to_do() -> None:
    """The run of one waits for what is paused, and a backfill downstream for its items."""
    spec = dag_spec("d", "a", each={"a": {"depends_on_past": True}}, batchable=True)
    manager = InMemoryManager(spec, dag_spec("below", "b"), script=never)
    paused = manager.backfill("d", days("2023-12-20", 4), batch=4, max_active_runs=1)
    manager.drain()
    behind = manager.backfill("d", days("2023-12-24", 2), max_active_runs=1, ignore_first_depends_on_past=False)
    below = manager.backfill("below", days("2023-12-24", 2), parents_json=f'["{behind}"]')
    manager.drain()
    accepted(manager, "backfill.pause", backfill_id=paused)
    manager.finish(key_of(manager, "backfill__"), Failed("too large"))
    manager.drain()
    assert manager.states(behind) == {s.RUNNING: 1, s.PENDING: 1} and manager.states(below) == {s.PENDING: 2}
    gave_way = manager.backfill("d", days("2023-12-24", 1))
    manager.drain()
    reads = manager.backfill("below", days("2023-12-24", 1), parents_json=f'["{gave_way}"]')
    manager.drain()
    assert manager.states(gave_way) == {s.SKIPPED: 1} and manager.states(reads) == {s.PENDING: 1}
    assert manager.state.is_idle, "it ends with --until-idle"
    manager.script = lambda _: Succeeded()
    accepted(manager, "backfill.unpause", backfill_id=paused)
    nothing_hangs(manager)
    assert {manager.row(one).state for one in (paused, behind, below)} == {s.SUCCESS}


def test_a_run_behind_halves_that_wait_for_a_time_window_says_so() -> None:
    manager, backfill = batch_before_the_schedule(window="00:00-01:00")
    manager.clock.advance(days=1, hours=2)
    manager.finish(key_of(manager, "backfill__"), Failed("too large"))
    manager.drain()
    [waiting] = [run for run in manager.runs("d") if run.run_type == s.SCHEDULED_RUN]
    assert waiting.reason == f"waits for backfill {backfill}, which waits for its time window"
    manager.script = lambda _: Succeeded()
    manager.clock.advance(hours=22)
    nothing_hangs(manager)
    assert {run.state for run in timeline(manager, "d")} == {s.SUCCESS}
