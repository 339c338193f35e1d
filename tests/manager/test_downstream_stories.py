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
    ground: InMemoryManager, dag_id: str, intervals: list[tuple[datetime, datetime]], *parents: str, **fields: object
) -> str:
    return ground.backfill(dag_id, intervals, parents_json=json.dumps(list(parents)), **fields)


def dags(*names: str, **settings: object) -> list[object]:
    return [dag_spec(name, "a", **settings) for name in names]


def ground_of(*names: str, **settings: object) -> InMemoryManager:
    return InMemoryManager(*dags(*names), **settings)  # type: ignore[arg-type]


def made(ground: InMemoryManager, dag_id: str) -> list[str]:
    return [f"{run.logical_date:%d}" if run.logical_date else "" for run in ground.runs(dag_id)]


def only(dag_id: str, fails: str = "") -> object:
    """A script: tasks of this DAG go on until they are finished by hand, others end at once; `fails`: a day on which they
    fail."""

    def script(launch: TaskLaunch) -> Outcome | None:
        if launch.ti.dag_id == dag_id:
            return None
        return Failed("boom") if fails and fails in launch.run.run_id else Succeeded()

    return script


def test_an_item_starts_as_soon_as_the_items_it_reads_are_done_and_not_when_the_whole_parent_is() -> None:
    ground = ground_of("raw", "clean", script=only("raw"))
    parent = ground.backfill("raw", days("2024-01-01", 3), max_active_runs=3)
    reader = child(ground, "clean", days("2024-01-01", 3), parent)
    ground.drain()
    assert made(ground, "clean") == []
    ground.finish(key_of(ground, "01-02"), Succeeded())
    ground.drain()
    assert made(ground, "clean") == ["02"]
    assert ground.row(parent).state == s.RUNNING
    for day in ("01-01", "01-03"):
        ground.finish(key_of(ground, day), Succeeded())
    nothing_hangs(ground)
    assert ground.states(reader) == {s.SUCCESS: 3}


def test_a_daily_reader_of_an_hourly_table_waits_for_the_hours_of_its_day() -> None:
    raw = dag_spec("raw", "a", schedule="@hourly", max_active_tasks=100)
    ground = InMemoryManager(raw, dag_spec("clean", "a"), script=never, slots=100)
    parent = ground.backfill("raw", hours("2024-01-01", 48), max_active_runs=48)
    child(ground, "clean", days("2024-01-01", 2), parent)
    ground.drain()
    for hour in range(24):
        assert made(ground, "clean") == []
        ground.finish(key_of(ground, f"01-02T{hour:02}"), Succeeded())
        ground.drain()
    assert made(ground, "clean") == ["02"]


def test_an_hourly_reader_of_a_daily_table_starts_all_its_hours_when_the_day_is_done() -> None:
    ground = ground_of("raw", "clean", script=only("raw"))
    parent = ground.backfill("raw", days("2024-01-01", 2))
    reader = child(ground, "clean", hours("2024-01-01", 48), parent)
    ground.drain()
    ground.finish(key_of(ground, "01-01"), Succeeded())
    ground.drain()
    assert made(ground, "clean") == ["01"] * 24
    ground.finish(key_of(ground, "01-02"), Succeeded())
    nothing_hangs(ground)
    assert ground.states(reader) == {s.SUCCESS: 48}


def test_what_meets_nothing_of_the_parent_waits_for_nothing() -> None:
    ground = ground_of("raw", "clean", script=only("raw"))
    parent = ground.backfill("raw", days("2024-01-01", 2))
    child(ground, "clean", days("2024-01-02", 2), parent)
    ground.drain()
    assert made(ground, "clean") == ["03"], "half-open: the third begins where the second ends"


def test_a_skipped_item_of_the_parent_is_done() -> None:
    ground = ground_of("raw", "clean")
    ground.backfill("raw", days("2024-01-01", 2))
    ground.drain()
    parent = ground.backfill("raw", days("2024-01-01", 2))
    reader = child(ground, "clean", days("2024-01-01", 2), parent)
    nothing_hangs(ground)
    assert (ground.states(parent), ground.states(reader)) == ({s.SKIPPED: 2}, {s.SUCCESS: 2})


def test_a_failed_item_fails_what_reads_it_with_the_reason_and_nothing_else() -> None:
    ground = InMemoryManager(*dags("raw", "clean"), script=only("", fails="01-02"))  # type: ignore[arg-type]
    parent = ground.backfill("raw", days("2024-01-01", 3))
    reader = child(ground, "clean", days("2024-01-01", 3), parent)
    nothing_hangs(ground)
    assert [item.state for item in ground.items(reader)] == [s.SUCCESS, s.FAILED, s.SUCCESS]
    assert ground.items(reader)[1].reason == f"it reads item 2 of backfill {parent}, which is failed"
    assert ground.row(reader).state == s.FAILED
    assert made(ground, "clean") == ["01", "03"]


def test_a_failure_goes_all_the_way_down() -> None:
    ground = InMemoryManager(
        *dags("raw", "clean", "report"),  # type: ignore[arg-type]
        script=lambda it: Failed("boom") if it.ti.dag_id == "raw" and "01-02" in it.run.run_id else Succeeded(),
    )
    parent = ground.backfill("raw", days("2024-01-01", 3))
    middle = child(ground, "clean", days("2024-01-01", 3), parent)
    last = child(ground, "report", days("2024-01-01", 3), middle)
    nothing_hangs(ground)
    for backfill in (parent, middle, last):
        assert ground.states(backfill) == {s.SUCCESS: 2, s.FAILED: 1}


def test_cancelling_the_parent_fails_what_reads_what_will_not_come() -> None:
    ground = ground_of("raw", "clean", script=only("raw"))
    parent = ground.backfill("raw", days("2024-01-01", 4), max_active_runs=1)
    reader = child(ground, "clean", days("2024-01-01", 4), parent)
    ground.drain()
    ground.finish(key_of(ground, "01-01"), Succeeded())
    ground.drain()
    accepted(ground, "backfill.cancel", backfill_id=parent, let_running_finish=False)
    nothing_hangs(ground)
    assert [item.state for item in ground.items(reader)] == [s.SUCCESS, s.FAILED, s.FAILED, s.FAILED]
    assert "which is cancelled" in (ground.items(reader)[3].reason or "")


def test_a_parent_that_ends_in_a_deadlock_fails_what_reads_it() -> None:
    ground = InMemoryManager(dag_spec("raw", "a", each=PAST), dag_spec("clean", "a"), script=only("", fails="01-02"))  # type: ignore[arg-type]
    parent = ground.backfill("raw", days("2024-01-01", 20), max_active_runs=2)
    reader = child(ground, "clean", days("2024-01-01", 20), parent)
    nothing_hangs(ground)
    assert ground.states(reader) == {s.SUCCESS: 1, s.FAILED: 19}


def test_retry_of_the_parent_and_then_of_the_reader_mends_both() -> None:
    ground = InMemoryManager(*dags("raw", "clean"), script=only("", fails="01-02"))  # type: ignore[arg-type]
    parent = ground.backfill("raw", days("2024-01-01", 3))
    reader = child(ground, "clean", days("2024-01-01", 3), parent)
    nothing_hangs(ground)
    ground.script = only("raw")  # type: ignore[assignment]
    accepted(ground, "backfill.retry", backfill_id=parent)
    accepted(ground, "backfill.retry", backfill_id=reader)
    assert ground.states(reader) == {s.SUCCESS: 2, s.PENDING: 1}, "it waits for what is tried again"
    ground.finish(key_of(ground, "01-02"), Succeeded())
    nothing_hangs(ground)
    assert (ground.states(parent), ground.states(reader)) == ({s.SUCCESS: 3}, {s.SUCCESS: 3})


def test_a_reader_retried_while_its_parent_still_lacks_the_item_fails_again_with_the_reason() -> None:
    ground = InMemoryManager(*dags("raw", "clean"), script=only("", fails="01-02"))  # type: ignore[arg-type]
    parent = ground.backfill("raw", days("2024-01-01", 3))
    reader = child(ground, "clean", days("2024-01-01", 3), parent)
    nothing_hangs(ground)
    accepted(ground, "backfill.retry", backfill_id=reader)
    nothing_hangs(ground)
    assert ground.states(reader) == {s.SUCCESS: 2, s.FAILED: 1}


def test_a_pending_reader_waits_for_a_parents_run_that_is_cleared() -> None:
    ground = ground_of("raw", "clean")
    parent = ground.backfill("raw", days("2024-01-01", 2))
    reader = child(ground, "clean", days("2024-01-01", 2), parent, is_paused=True, state=s.PAUSED)
    ground.drain()
    ground.script = only("raw")  # type: ignore[assignment]
    accepted(ground, "tasks.clear", **clear("raw", start="2024-01-02"))
    accepted(ground, "backfill.unpause", backfill_id=reader)
    assert made(ground, "clean") == ["01"]
    ground.finish(key_of(ground, "01-02"), Succeeded())
    nothing_hangs(ground)
    assert ground.states(reader) == {s.SUCCESS: 2}


def test_a_reader_that_depends_on_its_past_keeps_to_the_order_of_its_dates() -> None:
    ground = InMemoryManager(dag_spec("raw", "a"), dag_spec("clean", "a", each=PAST), script=only("raw"))  # type: ignore[arg-type]
    parent = ground.backfill("raw", days("2024-01-01", 3))
    reader = child(ground, "clean", days("2024-01-01", 3), parent)
    ground.drain()
    for day in ("01-03", "01-02"):
        ground.finish(key_of(ground, day), Succeeded())
        ground.drain()
        assert made(ground, "clean") == [], "an older item's run exists before a newer one's"
    ground.finish(key_of(ground, "01-01"), Succeeded())
    nothing_hangs(ground)
    assert next(run.previous_run_id for run in ground.runs("clean")) is None
    assert [launch.run.run_id[10:20] for launch in ground.launched if launch.ti.dag_id == "clean"] == [
        "2024-01-01", "2024-01-02", "2024-01-03",
    ]  # fmt: skip
    assert ground.states(reader) == {s.SUCCESS: 3}


def test_a_diamond_waits_for_both_of_its_sides() -> None:
    ground = ground_of(
        "raw", "left", "right", "report", script=lambda it: None if it.ti.dag_id == "left" else Succeeded()
    )
    top = ground.backfill("raw", days("2024-01-01", 2))
    left = child(ground, "left", days("2024-01-01", 2), top)
    right = child(ground, "right", days("2024-01-01", 2), top)
    bottom = child(ground, "report", days("2024-01-01", 2), left, right)
    ground.drain()
    assert (made(ground, "right"), made(ground, "report")) == (["01", "02"], [])
    ground.finish(key_of(ground, "01-02"), Succeeded())
    ground.drain()
    assert made(ground, "report") == ["02"]
    ground.finish(key_of(ground, "01-01"), Failed("boom"))
    nothing_hangs(ground)
    assert [item.state for item in ground.items(bottom)] == [s.FAILED, s.SUCCESS]
    assert ground.items(bottom)[0].reason == f"it reads item 1 of backfill {left}, which is failed"


def test_a_batched_reader_starts_when_all_that_it_joins_can_be_read() -> None:
    ground = InMemoryManager(dag_spec("raw", "a"), dag_spec("clean", "a", batchable=True), script=only("raw"))  # type: ignore[arg-type]
    parent = ground.backfill("raw", days("2024-01-01", 4))
    reader = child(ground, "clean", days("2024-01-01", 4), parent, batch=2)
    ground.drain()
    for day in ("01-01", "01-03"):
        ground.finish(key_of(ground, day), Succeeded())
        ground.drain()
    assert made(ground, "clean") == []
    ground.finish(key_of(ground, "01-04"), Succeeded())
    ground.drain()
    assert made(ground, "clean") == ["03"]
    ground.finish(key_of(ground, "01-02"), Failed("boom"))
    nothing_hangs(ground)
    assert [item.state for item in ground.items(reader)] == [s.FAILED, s.FAILED, s.SUCCESS, s.SUCCESS]


def test_a_reader_waits_for_the_halves_of_a_failed_batch() -> None:
    ground = InMemoryManager(
        dag_spec("raw", "a", batchable=True), dag_spec("clean", "a"),
        script=lambda it: Failed("x") if it.ti.dag_id == "raw" and it.run.items > 1 else Succeeded(),
    )  # fmt: skip
    parent = ground.backfill("raw", days("2024-01-01", 8), batch=8)
    reader = child(ground, "clean", days("2024-01-01", 8), parent)
    nothing_hangs(ground)
    assert (ground.states(parent), ground.states(reader)) == ({s.SUCCESS: 8}, {s.SUCCESS: 8})


def test_a_paused_parent_holds_its_readers_and_is_no_deadlock() -> None:
    ground = ground_of("raw", "clean")
    parent = ground.backfill("raw", days("2024-01-01", 2), is_paused=True, state=s.PAUSED)
    reader = child(ground, "clean", days("2024-01-01", 2), parent)
    ground.drain()
    assert ground.states(reader) == {s.PENDING: 2}
    accepted(ground, "backfill.unpause", backfill_id=parent)
    nothing_hangs(ground)
    assert ground.states(reader) == {s.SUCCESS: 2}


def test_a_reader_whose_items_go_on_past_what_is_held_at_once() -> None:
    n = 2 * WINDOW + 10
    ground = InMemoryManager(*dags("raw", "clean"), script=only("", fails="2024-06-01"))  # type: ignore[arg-type]
    parent = ground.backfill("raw", days("2022-01-01", n), max_active_runs=8)
    reader = child(ground, "clean", days("2022-01-01", n), parent)
    nothing_hangs(ground)
    assert ground.states(parent) == ground.states(reader) == {s.SUCCESS: n - 1, s.FAILED: 1}


def test_a_reader_that_runs_forwards_of_a_parent_that_runs_backwards_past_what_is_held_at_once() -> None:
    n = WINDOW + 10
    backwards = json.dumps({"type": "schedule", "run_backwards": True})
    ground = ground_of("raw", "clean")
    parent = ground.backfill("raw", days("2022-01-01", n)[::-1], config_json=backwards)
    reader = child(ground, "clean", days("2022-01-01", n), parent)
    nothing_hangs(ground)
    assert ground.states(reader) == {s.SUCCESS: n}


def test_partitions_are_not_held_up_by_a_parent_of_dates() -> None:
    ground = ground_of("raw", "clean", script=only("raw"))
    parent = ground.backfill("raw", days("2024-01-01", 2))
    reader = ground.backfill("clean", keys=["eu", "us"], parents_json=json.dumps([parent]))
    ground.drain()
    assert ground.states(reader) == {s.SUCCESS: 2}


@pytest.mark.parametrize("tables", range(0, 40, 2))
def test_a_crash_anywhere_in_a_cascade_changes_nothing_in_what_comes_out(tables: int) -> None:
    ground = InMemoryManager(
        *dags("raw", "clean", "report"),  # type: ignore[arg-type]
        script=lambda it: Failed("boom") if it.ti.dag_id == "raw" and "01-02" in it.run.run_id else Succeeded(),
    )
    top = ground.backfill("raw", days("2024-01-01", 4), max_active_runs=2)
    middle = child(ground, "clean", days("2024-01-01", 4), top)
    last = child(ground, "report", days("2024-01-01", 4), middle, top)
    dies_after(ground, tables)
    nothing_hangs(ground)
    for backfill in (top, middle, last):
        assert [item.state for item in ground.items(backfill)] == [s.SUCCESS, s.FAILED, s.SUCCESS, s.SUCCESS]
    launches = [launch.key for launch in ground.launched if launch.ti.dag_id == "clean"]
    assert not [key for key in launches if "01-02" in key[1]]
