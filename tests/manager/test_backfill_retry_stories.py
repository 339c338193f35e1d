"""Retry of a backfill, as docs/semantics.md ("Backfill") tells it, without Spark, Delta or a JVM."""

from __future__ import annotations

import pytest
from support.run_operations import FIRST, THREE, done, fails
from support.scenarios import (
    accepted,
    dates,
    dies_after,
    key_of,
    never,
    nothing_hangs,
    refused,
    timeline,
)  # fmt: skip

from backfill_manager.execution.messages import Failed, Succeeded
from backfill_manager.model import states as s
from backfill_manager.testing import InMemoryManager, dag_spec, days


def test_retry_runs_the_failed_items_of_a_finished_backfill_again_as_part_of_it() -> None:
    manager = InMemoryManager(THREE, script=fails("01-02", "01-04"))
    backfill = done(manager, 5)
    manager.script, answer = fails("01-04"), None  # type: ignore[assignment]
    answer = accepted(manager, "backfill.retry", backfill_id=backfill)
    assert "2 failed items" in answer.message
    nothing_hangs(manager)
    assert (manager.row(backfill).state, manager.states(backfill)) == (s.FAILED, {s.SUCCESS: 4, s.FAILED: 1})
    again = [run for run in manager.runs("d") if run.run_id.endswith("__2")]
    assert dates(again) == ["01-02", "01-04"] and {run.backfill_id for run in again} == {backfill}
    manager.script = lambda _: Succeeded()
    accepted(manager, "backfill.retry", backfill_id=backfill)
    nothing_hangs(manager)
    assert (manager.row(backfill).state, manager.row(backfill).reason) == (s.SUCCESS, None)
    assert [run.state for run in timeline(manager, "d")] == [s.SUCCESS] * 5


def test_a_manager_that_restarts_does_not_give_a_retry_the_reason_for_which_the_backfill_had_failed() -> None:
    spec = dag_spec("d", "a", each={"a": {"depends_on_past": True}})
    manager = InMemoryManager(spec, script=fails("01-02"))
    backfill = done(manager, 5)
    assert (manager.row(backfill).reason or "").startswith("deadlock: ")
    manager.script = lambda _: None
    accepted(manager, "backfill.retry", backfill_id=backfill, items=["2"])
    assert manager.row(backfill).reason is None
    manager.crash()
    assert manager.row(backfill).reason is None


def test_retry_is_refused_for_a_live_backfill_for_one_without_failures_and_for_none() -> None:
    manager = InMemoryManager(THREE, script=never)
    backfill = done(manager)
    assert "when it has ended" in refused(manager, "backfill.retry", backfill_id=backfill)
    manager.script = lambda _: Succeeded()
    manager.finish(key_of(manager, FIRST), Succeeded())
    nothing_hangs(manager)
    assert "no failed item" in refused(manager, "backfill.retry", backfill_id=backfill)
    assert "There is no backfill" in refused(manager, "backfill.retry", backfill_id="nope")


def test_retry_after_a_deadlock_goes_on_once_the_cause_is_mended() -> None:
    spec = dag_spec("d", "a", each={"a": {"depends_on_past": True}})
    manager = InMemoryManager(spec, script=fails("01-02"))
    backfill = done(manager, 5)
    assert manager.states(backfill) == {s.SUCCESS: 1, s.FAILED: 4}
    manager.script = lambda _: Succeeded()
    accepted(manager, "backfill.retry", backfill_id=backfill)
    nothing_hangs(manager)
    assert manager.states(backfill) == {s.SUCCESS: 5}
    assert [run.state for run in timeline(manager, "d")] == [s.SUCCESS] * 5


def days_that_failed_around_one_that_runs(*failed: int, by_hand: int) -> tuple[InMemoryManager, str]:
    """`roll` of a day depends on that of the day before. Of a backfill some days of January failed, and runs again one at a time;
    another day is run by hand, and its `load` is running."""
    spec = dag_spec("d", "load", "roll", upstream={"roll": ["load"]}, each={"roll": {"depends_on_past": True}})
    manager = InMemoryManager(spec, script=lambda _: Failed("boom"))
    chosen = [days("2013-01-01", 31)[day - 1] for day in failed]
    backfill = manager.backfill("d", chosen, max_active_runs=1)
    manager.drain()
    assert manager.states(backfill) == {s.FAILED: len(failed)}
    manager.script = lambda launch: None if launch.run.run_type == s.MANUAL_RUN else Succeeded()
    accepted(manager, "dag.trigger", dag_id="d", logical_date=f"2013-01-{by_hand:02}T00:00:00Z", conf={})
    return manager, backfill


def a_run_between_two_days_of_a_paused_retry() -> tuple[InMemoryManager, str]:
    manager, backfill = days_that_failed_around_one_that_runs(1, 3, by_hand=2)
    manager.ask("backfill.retry", backfill_id=backfill)
    accepted(manager, "backfill.pause", backfill_id=backfill)
    manager.finish(key_of(manager, "manual__", "load"), Succeeded())
    manager.drain()
    (run,) = [run for run in manager.runs("d") if run.run_type == s.MANUAL_RUN]
    assert (run.state, run.reason) == (s.RUNNING, f"waits for backfill {backfill}, which is paused")
    manager.script = lambda _: Succeeded()
    return manager, backfill


def test_a_run_between_two_days_that_are_to_be_retried_waits_for_the_one_before_it() -> None:
    manager, backfill = a_run_between_two_days_of_a_paused_retry()
    accepted(manager, "backfill.unpause", backfill_id=backfill)
    nothing_hangs(manager)
    assert [run.state for run in timeline(manager, "d")] == [s.SUCCESS] * 3


def test_no_run_waits_for_a_paused_retry_of_a_date_that_another_backfill_has_done_since() -> None:
    manager, _ = a_run_between_two_days_of_a_paused_retry()
    manager.backfill("d", days("2013-01-01", 1), reprocess="failed")
    manager.drain()
    assert [run.state for run in timeline(manager, "d")] == [s.SUCCESS, s.SUCCESS, s.FAILED]


def test_only_an_earlier_day_is_retried_beside_a_run_that_waits_for_its_past() -> None:
    manager, backfill = days_that_failed_around_one_that_runs(1, 3, 5, by_hand=2)
    accepted(manager, "backfill.retry", backfill_id=backfill)
    assert [item.state for item in manager.items(backfill)] == [s.SUCCESS, s.RUNNING, s.PENDING]
    manager.script = lambda _: Succeeded()
    manager.finish(key_of(manager, "manual__", "load"), Succeeded())
    nothing_hangs(manager)
    assert [run.state for run in timeline(manager, "d")] == [s.SUCCESS] * 4


def test_retry_counts_stop_on_failure_anew() -> None:
    manager = InMemoryManager(THREE, script=fails("a "))
    backfill = done(manager, 5, max_active_runs=1, stop_on_failure=2)
    assert manager.row(backfill).state == s.PAUSED
    accepted(manager, "backfill.unpause", backfill_id=backfill)
    assert manager.row(backfill).state == s.PAUSED
    accepted(manager, "backfill.unpause", backfill_id=backfill)
    nothing_hangs(manager)
    assert (manager.row(backfill).state, manager.states(backfill)) == (s.FAILED, {s.FAILED: 5})
    accepted(manager, "backfill.retry", backfill_id=backfill)
    assert (manager.row(backfill).state, manager.states(backfill)) == (s.PAUSED, {s.FAILED: 2, s.PENDING: 3})


@pytest.mark.parametrize("tables", range(10))
def test_a_crash_in_the_middle_of_a_retry_leaves_it_done_once(tables: int) -> None:
    manager = InMemoryManager(THREE, script=fails("01-02", "01-04"))
    backfill = done(manager, 5)
    manager.script = lambda _: Succeeded()
    manager.ask("backfill.retry", backfill_id=backfill)
    dies_after(manager, tables)
    nothing_hangs(manager)
    assert (manager.row(backfill).state, manager.states(backfill)) == (s.SUCCESS, {s.SUCCESS: 5})
    assert len(manager.runs("d")) == 7
