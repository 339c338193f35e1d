"""Backfills that wait for each other, item by item (issue 4, "Cascade"): without Spark, Delta or a JVM.

`raw` is written first, `clean` reads it, `report` reads what comes out of that.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import pytest
from support.scenarios import accepted, clear, dies_after, key_of, never, nothing_hangs

from backfill_manager.execution.messages import Failed, Outcome, Succeeded, TaskLaunch
from backfill_manager.manager.prefetch import WINDOW
from backfill_manager.model import states as s
from backfill_manager.testing import InMemoryManager, dag_spec, days

PAST = {"a": {"depends_on_past": True}}


def hours(first: str, n: int) -> list[tuple[datetime, datetime]]:
    (start, _), *_ = days(first, 1)
    return [(start + timedelta(hours=k), start + timedelta(hours=k + 1)) for k in range(n)]


def child(
    manager: InMemoryManager, dag_id: str, intervals: list[tuple[datetime, datetime]], *parents: str, **fields: object
) -> str:
    return manager.backfill(dag_id, intervals, parents_json=json.dumps(list(parents)), **fields)


def dags(*names: str, **settings: object) -> list[object]:
    return [dag_spec(name, "a", **settings) for name in names]


def ground_of(*names: str, **settings: object) -> InMemoryManager:
    return InMemoryManager(*dags(*names), **settings)  # type: ignore[arg-type]


def made(manager: InMemoryManager, dag_id: str) -> list[str]:
    return [f"{run.logical_date:%d}" if run.logical_date else "" for run in manager.runs(dag_id)]


def only(dag_id: str, fails: str = "") -> object:
    """A script: tasks of this DAG go on until they are finished by hand, others end at once; `fails`: a day on which they
    fail."""

    def script(launch: TaskLaunch) -> Outcome | None:
        if launch.ti.dag_id == dag_id:
            return None
        return Failed("boom") if fails and fails in launch.run.run_id else Succeeded()

    return script


def test_an_item_starts_as_soon_as_the_items_it_reads_are_done_and_not_when_the_whole_parent_is() -> None:
    manager = ground_of("raw", "clean", script=only("raw"))
    parent = manager.backfill("raw", days("2024-01-01", 3), max_active_runs=3)
    reader = child(manager, "clean", days("2024-01-01", 3), parent)
    manager.drain()
    assert made(manager, "clean") == []
    manager.finish(key_of(manager, "01-02"), Succeeded())
    manager.drain()
    assert made(manager, "clean") == ["02"]
    assert manager.row(parent).state == s.RUNNING
    for day in ("01-01", "01-03"):
        manager.finish(key_of(manager, day), Succeeded())
    nothing_hangs(manager)
    assert manager.states(reader) == {s.SUCCESS: 3}


def test_a_daily_reader_of_an_hourly_table_waits_for_the_hours_of_its_day() -> None:
    raw = dag_spec("raw", "a", schedule="@hourly", max_active_tasks=100)
    manager = InMemoryManager(raw, dag_spec("clean", "a"), script=never, slots=100)
    parent = manager.backfill("raw", hours("2024-01-01", 48), max_active_runs=48)
    child(manager, "clean", days("2024-01-01", 2), parent)
    manager.drain()
    for hour in range(24):
        assert made(manager, "clean") == []
        manager.finish(key_of(manager, f"01-02T{hour:02}"), Succeeded())
        manager.drain()
    assert made(manager, "clean") == ["02"]


def test_an_hourly_reader_of_a_daily_table_starts_all_its_hours_when_the_day_is_done() -> None:
    manager = ground_of("raw", "clean", script=only("raw"))
    parent = manager.backfill("raw", days("2024-01-01", 2))
    reader = child(manager, "clean", hours("2024-01-01", 48), parent)
    manager.drain()
    manager.finish(key_of(manager, "01-01"), Succeeded())
    manager.drain()
    assert made(manager, "clean") == ["01"] * 24
    manager.finish(key_of(manager, "01-02"), Succeeded())
    nothing_hangs(manager)
    assert manager.states(reader) == {s.SUCCESS: 48}


def test_what_meets_nothing_of_the_parent_waits_for_nothing() -> None:
    manager = ground_of("raw", "clean", script=only("raw"))
    parent = manager.backfill("raw", days("2024-01-01", 2))
    child(manager, "clean", days("2024-01-02", 2), parent)
    manager.drain()
    assert made(manager, "clean") == ["03"], "half-open: the third begins where the second ends"


def test_a_skipped_item_of_the_parent_is_done() -> None:
    manager = ground_of("raw", "clean")
    manager.backfill("raw", days("2024-01-01", 2))
    manager.drain()
    parent = manager.backfill("raw", days("2024-01-01", 2))
    reader = child(manager, "clean", days("2024-01-01", 2), parent)
    nothing_hangs(manager)
    assert (manager.states(parent), manager.states(reader)) == ({s.SKIPPED: 2}, {s.SUCCESS: 2})


def test_a_failed_item_fails_what_reads_it_with_the_reason_and_nothing_else() -> None:
    manager = InMemoryManager(*dags("raw", "clean"), script=only("", fails="01-02"))  # type: ignore[arg-type]
    parent = manager.backfill("raw", days("2024-01-01", 3))
    reader = child(manager, "clean", days("2024-01-01", 3), parent)
    nothing_hangs(manager)
    assert [item.state for item in manager.items(reader)] == [s.SUCCESS, s.FAILED, s.SUCCESS]
    assert manager.items(reader)[1].reason == f"it reads item 2 of backfill {parent}, which is failed"
    assert manager.row(reader).state == s.FAILED
    assert made(manager, "clean") == ["01", "03"]


def test_a_failure_goes_all_the_way_down() -> None:
    manager = InMemoryManager(
        *dags("raw", "clean", "report"),  # type: ignore[arg-type]
        script=lambda it: Failed("boom") if it.ti.dag_id == "raw" and "01-02" in it.run.run_id else Succeeded(),
    )
    parent = manager.backfill("raw", days("2024-01-01", 3))
    middle = child(manager, "clean", days("2024-01-01", 3), parent)
    last = child(manager, "report", days("2024-01-01", 3), middle)
    nothing_hangs(manager)
    for backfill in (parent, middle, last):
        assert manager.states(backfill) == {s.SUCCESS: 2, s.FAILED: 1}


def test_cancelling_the_parent_fails_what_reads_what_will_not_come() -> None:
    manager = ground_of("raw", "clean", script=only("raw"))
    parent = manager.backfill("raw", days("2024-01-01", 4), max_active_runs=1)
    reader = child(manager, "clean", days("2024-01-01", 4), parent)
    manager.drain()
    manager.finish(key_of(manager, "01-01"), Succeeded())
    manager.drain()
    accepted(manager, "backfill.cancel", backfill_id=parent, let_running_finish=False)
    nothing_hangs(manager)
    assert [item.state for item in manager.items(reader)] == [s.SUCCESS, s.FAILED, s.FAILED, s.FAILED]
    assert "which is cancelled" in (manager.items(reader)[3].reason or "")


def test_a_parent_that_ends_in_a_deadlock_fails_what_reads_it() -> None:
    manager = InMemoryManager(dag_spec("raw", "a", each=PAST), dag_spec("clean", "a"), script=only("", fails="01-02"))  # type: ignore[arg-type]
    parent = manager.backfill("raw", days("2024-01-01", 20), max_active_runs=2)
    reader = child(manager, "clean", days("2024-01-01", 20), parent)
    nothing_hangs(manager)
    assert manager.states(reader) == {s.SUCCESS: 1, s.FAILED: 19}


def test_retry_of_the_parent_and_then_of_the_reader_mends_both() -> None:
    manager = InMemoryManager(*dags("raw", "clean"), script=only("", fails="01-02"))  # type: ignore[arg-type]
    parent = manager.backfill("raw", days("2024-01-01", 3))
    reader = child(manager, "clean", days("2024-01-01", 3), parent)
    nothing_hangs(manager)
    manager.script = only("raw")  # type: ignore[assignment]
    accepted(manager, "backfill.retry", backfill_id=parent)
    accepted(manager, "backfill.retry", backfill_id=reader)
    assert manager.states(reader) == {s.SUCCESS: 2, s.PENDING: 1}, "it waits for what is tried again"
    manager.finish(key_of(manager, "01-02"), Succeeded())
    nothing_hangs(manager)
    assert (manager.states(parent), manager.states(reader)) == ({s.SUCCESS: 3}, {s.SUCCESS: 3})


def test_a_reader_retried_while_its_parent_still_lacks_the_item_fails_again_with_the_reason() -> None:
    manager = InMemoryManager(*dags("raw", "clean"), script=only("", fails="01-02"))  # type: ignore[arg-type]
    parent = manager.backfill("raw", days("2024-01-01", 3))
    reader = child(manager, "clean", days("2024-01-01", 3), parent)
    nothing_hangs(manager)
    accepted(manager, "backfill.retry", backfill_id=reader)
    nothing_hangs(manager)
    assert manager.states(reader) == {s.SUCCESS: 2, s.FAILED: 1}


def test_a_pending_reader_waits_for_a_parents_run_that_is_cleared() -> None:
    manager = ground_of("raw", "clean")
    parent = manager.backfill("raw", days("2024-01-01", 2))
    reader = child(manager, "clean", days("2024-01-01", 2), parent, is_paused=True, state=s.PAUSED)
    manager.drain()
    manager.script = only("raw")  # type: ignore[assignment]
    accepted(manager, "tasks.clear", **clear("raw", start="2024-01-02"))
    accepted(manager, "backfill.unpause", backfill_id=reader)
    assert made(manager, "clean") == ["01"]
    manager.finish(key_of(manager, "01-02"), Succeeded())
    nothing_hangs(manager)
    assert manager.states(reader) == {s.SUCCESS: 2}


def test_a_reader_that_depends_on_its_past_keeps_to_the_order_of_its_dates() -> None:
    manager = InMemoryManager(dag_spec("raw", "a"), dag_spec("clean", "a", each=PAST), script=only("raw"))  # type: ignore[arg-type]
    parent = manager.backfill("raw", days("2024-01-01", 3))
    reader = child(manager, "clean", days("2024-01-01", 3), parent)
    manager.drain()
    for day in ("01-03", "01-02"):
        manager.finish(key_of(manager, day), Succeeded())
        manager.drain()
        assert made(manager, "clean") == [], "an older item's run exists before a newer one's"
    manager.finish(key_of(manager, "01-01"), Succeeded())
    nothing_hangs(manager)
    assert next(run.previous_run_id for run in manager.runs("clean")) is None
    assert [launch.run.run_id[10:20] for launch in manager.launched if launch.ti.dag_id == "clean"] == [
        "2024-01-01", "2024-01-02", "2024-01-03",
    ]  # fmt: skip
    assert manager.states(reader) == {s.SUCCESS: 3}


def test_a_diamond_waits_for_both_of_its_sides() -> None:
    manager = ground_of(
        "raw", "left", "right", "report", script=lambda it: None if it.ti.dag_id == "left" else Succeeded()
    )
    top = manager.backfill("raw", days("2024-01-01", 2))
    left = child(manager, "left", days("2024-01-01", 2), top)
    right = child(manager, "right", days("2024-01-01", 2), top)
    bottom = child(manager, "report", days("2024-01-01", 2), left, right)
    manager.drain()
    assert (made(manager, "right"), made(manager, "report")) == (["01", "02"], [])
    manager.finish(key_of(manager, "01-02"), Succeeded())
    manager.drain()
    assert made(manager, "report") == ["02"]
    manager.finish(key_of(manager, "01-01"), Failed("boom"))
    nothing_hangs(manager)
    assert [item.state for item in manager.items(bottom)] == [s.FAILED, s.SUCCESS]
    assert manager.items(bottom)[0].reason == f"it reads item 1 of backfill {left}, which is failed"


def test_a_batched_reader_starts_when_all_that_it_joins_can_be_read() -> None:
    manager = InMemoryManager(dag_spec("raw", "a"), dag_spec("clean", "a", batchable=True), script=only("raw"))  # type: ignore[arg-type]
    parent = manager.backfill("raw", days("2024-01-01", 4))
    reader = child(manager, "clean", days("2024-01-01", 4), parent, batch=2)
    manager.drain()
    for day in ("01-01", "01-03"):
        manager.finish(key_of(manager, day), Succeeded())
        manager.drain()
    assert made(manager, "clean") == []
    manager.finish(key_of(manager, "01-04"), Succeeded())
    manager.drain()
    assert made(manager, "clean") == ["03"]
    manager.finish(key_of(manager, "01-02"), Failed("boom"))
    nothing_hangs(manager)
    assert [item.state for item in manager.items(reader)] == [s.SUCCESS, s.FAILED, s.SUCCESS, s.SUCCESS]
    assert made(manager, "clean") == ["01", "03"]


@pytest.mark.parametrize("batch", [7, 0])
@pytest.mark.parametrize("backwards", [False, True])
def test_an_item_that_fails_without_a_run_takes_no_other_of_its_batch_along(batch: int, backwards: bool) -> None:
    manager = InMemoryManager(
        dag_spec("raw", "a"), dag_spec("clean", "a", batchable=True),
        script=lambda it: Failed("boom") if it.ti.dag_id == "raw" and it.run.run_id[18:20] in ("03", "05", "06") else Succeeded(),
    )  # fmt: skip
    parent = manager.backfill("raw", days("2024-01-01", 7), max_active_runs=1)
    week = days("2024-01-01", 7)[:: -1 if backwards else 1]
    config = json.dumps({"type": "schedule", "run_backwards": backwards})
    reader = child(manager, "clean", week, parent, batch=batch, config_json=config)
    nothing_hangs(manager)
    failed = {
        item.logical_date.day: item.reason
        for item in manager.items(reader)
        if item.state != s.SUCCESS and item.logical_date
    }
    assert failed == {day: f"it reads item {day} of backfill {parent}, which is failed" for day in (3, 5, 6)}
    runs = [(int(day), run.items) for day, run in zip(made(manager, "clean"), manager.runs("clean"), strict=True)]
    assert sorted(day + n for day, items in runs for n in range(items)) == [1, 2, 4, 7]


def test_what_is_joined_with_an_item_that_fails_without_a_run_runs_before_it_where_tasks_depend_on_the_past() -> None:
    raw, clean = dag_spec("raw", "a"), dag_spec("clean", "a", batchable=True, each=PAST)
    manager = InMemoryManager(raw, clean, script=only("", fails="01-03"))  # type: ignore[arg-type]
    parent = manager.backfill("raw", days("2024-01-01", 5))
    reader = child(manager, "clean", days("2024-01-01", 5), parent, batch=5)
    nothing_hangs(manager)
    assert [item.state for item in manager.items(reader)] == [s.SUCCESS] * 2 + [s.FAILED] * 3
    assert [run.items for run in manager.runs("clean")] == [2]
    assert (manager.items(reader)[4].reason or "").startswith(
        "deadlock: its tasks depend on the past, and item 3 failed"
    )


def test_a_reader_waits_for_the_halves_of_a_failed_batch() -> None:
    manager = InMemoryManager(
        dag_spec("raw", "a", batchable=True), dag_spec("clean", "a"),
        script=lambda it: Failed("x") if it.ti.dag_id == "raw" and it.run.items > 1 else Succeeded(),
    )  # fmt: skip
    parent = manager.backfill("raw", days("2024-01-01", 8), batch=8)
    reader = child(manager, "clean", days("2024-01-01", 8), parent)
    nothing_hangs(manager)
    assert (manager.states(parent), manager.states(reader)) == ({s.SUCCESS: 8}, {s.SUCCESS: 8})


def test_a_paused_parent_holds_its_readers_and_is_no_deadlock() -> None:
    manager = ground_of("raw", "clean")
    parent = manager.backfill("raw", days("2024-01-01", 2), is_paused=True, state=s.PAUSED)
    reader = child(manager, "clean", days("2024-01-01", 2), parent)
    manager.drain()
    assert manager.states(reader) == {s.PENDING: 2}
    accepted(manager, "backfill.unpause", backfill_id=parent)
    nothing_hangs(manager)
    assert manager.states(reader) == {s.SUCCESS: 2}


def test_a_reader_whose_items_go_on_past_what_is_held_at_once() -> None:
    n = 2 * WINDOW + 10
    manager = InMemoryManager(*dags("raw", "clean"), script=only("", fails="2024-06-01"))  # type: ignore[arg-type]
    parent = manager.backfill("raw", days("2022-01-01", n), max_active_runs=8)
    reader = child(manager, "clean", days("2022-01-01", n), parent)
    nothing_hangs(manager)
    assert manager.states(parent) == manager.states(reader) == {s.SUCCESS: n - 1, s.FAILED: 1}


def test_a_reader_that_runs_forwards_of_a_parent_that_runs_backwards_past_what_is_held_at_once() -> None:
    n = WINDOW + 10
    backwards = json.dumps({"type": "schedule", "run_backwards": True})
    manager = ground_of("raw", "clean")
    parent = manager.backfill("raw", days("2022-01-01", n)[::-1], config_json=backwards)
    reader = child(manager, "clean", days("2022-01-01", n), parent)
    nothing_hangs(manager)
    assert manager.states(reader) == {s.SUCCESS: n}


def test_partitions_are_not_held_up_by_a_parent_of_dates() -> None:
    manager = ground_of("raw", "clean", script=only("raw"))
    parent = manager.backfill("raw", days("2024-01-01", 2))
    reader = manager.backfill("clean", keys=["eu", "us"], parents_json=json.dumps([parent]))
    manager.drain()
    assert manager.states(reader) == {s.SUCCESS: 2}


@pytest.mark.parametrize("tables", range(0, 40, 2))
def test_a_crash_anywhere_in_a_cascade_changes_nothing_in_what_comes_out(tables: int) -> None:
    manager = InMemoryManager(
        *dags("raw", "clean", "report"),  # type: ignore[arg-type]
        script=lambda it: Failed("boom") if it.ti.dag_id == "raw" and "01-02" in it.run.run_id else Succeeded(),
    )
    top = manager.backfill("raw", days("2024-01-01", 4), max_active_runs=2)
    middle = child(manager, "clean", days("2024-01-01", 4), top)
    last = child(manager, "report", days("2024-01-01", 4), middle, top)
    dies_after(manager, tables)
    nothing_hangs(manager)
    for backfill in (top, middle, last):
        assert [item.state for item in manager.items(backfill)] == [s.SUCCESS, s.FAILED, s.SUCCESS, s.SUCCESS]
    launches = [launch.key for launch in manager.launched if launch.ti.dag_id == "clean"]
    assert not [key for key in launches if "01-02" in key[1]]


@pytest.mark.parametrize("hour", [0, 6])
def test_an_item_without_length_is_waited_for_and_waits(hour: int) -> None:
    day = days("2024-01-01", 1)
    at = day[0][0] + timedelta(hours=hour)
    manager = InMemoryManager(dag_spec("raw", "a", schedule=None), dag_spec("clean", "a"), script=only("raw"))  # type: ignore[arg-type]
    child(manager, "clean", day, manager.backfill("raw", [(at, at)]))
    manager.drain()
    assert made(manager, "clean") == []
    manager = InMemoryManager(dag_spec("raw", "a"), dag_spec("clean", "a", schedule=None), script=only("raw"))  # type: ignore[arg-type]
    child(manager, "clean", [(at, at)], manager.backfill("raw", day))
    manager.drain()
    assert made(manager, "clean") == []


def test_of_listed_dates_that_overlap_all_are_waited_for() -> None:
    """Midnight and noon of a daily DAG: the interval of both ends at the next midnight."""
    ((start, end),) = days("2024-01-01", 1)
    manager = ground_of("raw", "clean", script=only("raw"))
    parent = manager.backfill("raw", [(start, end), (start + timedelta(hours=12), end)], max_active_runs=2)
    child(manager, "clean", hours("2024-01-01", 24), parent)
    manager.drain()
    manager.finish(key_of(manager, "01-01T12"), Succeeded())
    manager.drain()
    assert made(manager, "clean") == []
    manager.finish(key_of(manager, "01-01T00"), Succeeded())
    nothing_hangs(manager)
    assert made(manager, "clean") == ["01"] * 24


def test_a_manager_has_nothing_to_do_while_a_reader_waits_for_a_parent_that_is_paused() -> None:
    manager = InMemoryManager(dag_spec("raw", "a"), dag_spec("clean", "a"))
    parent = manager.backfill("raw", days("2024-01-01", 2), is_paused=True, state="paused")
    child(manager, "clean", days("2024-01-01", 2), parent)
    manager.drain()
    assert manager.state.is_idle
    accepted(manager, "backfill.unpause", backfill_id=parent)
    nothing_hangs(manager)
    assert manager.states(parent) == {s.SUCCESS: 2}


def reader_behind_a_failure() -> tuple[InMemoryManager, str, str]:
    """Four days of `raw`, of which the second fails, and of `clean`, which reads them and depends on its past."""
    manager = InMemoryManager(
        dag_spec("raw", "a"),
        dag_spec("clean", "a", each=PAST),
        script=only("", fails="01-02"),  # type: ignore[arg-type]
    )
    parent = manager.backfill("raw", days("2024-01-01", 4))
    return manager, parent, child(manager, "clean", days("2024-01-01", 4), parent)


def test_an_item_that_depends_on_its_past_does_not_run_behind_one_that_could_not() -> None:
    manager, parent, reader = reader_behind_a_failure()
    nothing_hangs(manager)
    assert made(manager, "clean") == ["01"]
    cause = f"it reads item 2 of backfill {parent}, which is failed"
    behind = f"deadlock: its tasks depend on the past, and item 2 failed: {cause}"
    assert [item.reason for item in manager.items(reader)] == [None, cause, behind, behind]
    assert (manager.row(reader).state, manager.row(reader).reason) == (s.FAILED, behind)

    manager.script = lambda _: Succeeded()
    accepted(manager, "backfill.retry", backfill_id=parent, downstream=True)
    nothing_hangs(manager)
    assert manager.states(reader) == {s.SUCCESS: 4}
    of_reader = [launch.run for launch in manager.launched if launch.ti.dag_id == "clean"]
    assert [f"{run.logical_date:%d}" for run in of_reader] == ["01", "02", "03", "04"]


@pytest.mark.parametrize("tables", range(16))
def test_a_crash_where_an_item_ends_what_is_behind_it_changes_neither_what_is_before_it_nor_the_reason(
    tables: int,
) -> None:
    manager, parent, reader = reader_behind_a_failure()
    dies_after(manager, tables)
    nothing_hangs(manager)
    cause = f"it reads item 2 of backfill {parent}, which is failed"
    behind = f"deadlock: its tasks depend on the past, and item 2 failed: {cause}"
    assert [item.reason for item in manager.items(reader)] == [None, cause, behind, behind]
    assert (manager.row(reader).state, manager.row(reader).reason) == (s.FAILED, behind)


@pytest.mark.parametrize("outcome", [Succeeded(), Failed("boom")])
def test_what_reads_a_date_that_a_run_of_others_writes_just_now_waits_for_that_run(outcome: Outcome) -> None:
    manager = ground_of("raw", "clean", script=only("raw"))
    manager.backfill("raw", days("2024-01-02", 1))
    manager.drain()
    parent = manager.backfill("raw", days("2024-01-01", 3), reprocess="completed")
    reader = child(manager, "clean", days("2024-01-01", 3), parent)
    manager.drain()
    for day in ("01-01", "01-03"):
        manager.finish(key_of(manager, day), Succeeded())
    manager.drain()
    assert manager.states(parent) == {s.SUCCESS: 2, s.SKIPPED: 1}, "the second is in flight"
    assert made(manager, "clean") == ["01", "03"]
    manager.finish(key_of(manager, "01-02"), outcome)
    nothing_hangs(manager)
    assert manager.states(reader) == {s.SUCCESS: 3}


def test_what_reads_a_date_waits_for_no_task_that_is_run_by_hand_outside_the_timeline() -> None:
    manager = ground_of("raw", "clean", script=lambda it: None if it.run.run_type == s.EXTERNAL_RUN else Succeeded())
    accepted(manager, "task.run", dag_id="raw", task_id="a", logical_date="2024-01-02T00:00:00Z")
    parent = manager.backfill("raw", days("2024-01-01", 3))
    reader = child(manager, "clean", days("2024-01-01", 3), parent)
    manager.drain()
    assert manager.states(reader) == {s.SUCCESS: 3}
    assert [key[0] for key in manager.running] == ["raw"]


def test_a_preview_waits_for_no_run_of_others() -> None:
    """It reads the clones that its parent has written."""
    manager = ground_of("raw", "clean", script=lambda it: None if it.run.run_type == s.BACKFILL_RUN else Succeeded())
    manager.backfill("raw", days("2024-01-02", 1))
    manager.drain()
    parent = manager.backfill("raw", days("2024-01-01", 3), preview_id="p")
    reader = child(manager, "clean", days("2024-01-01", 3), parent, preview_id="p")
    manager.drain()
    assert manager.states(parent) == manager.states(reader) == {s.SUCCESS: 3}
    assert [key[0] for key in manager.running] == ["raw"]
