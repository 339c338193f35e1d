"""Several runs at once: those of chosen items of a backfill, of chosen dates, or by their ids; marked, or cleared."""

from __future__ import annotations

from typing import Any

import pytest
from support.scenarios import Stubborn, accepted, clear, dies_after, never, nothing_hangs, refused

from backfill_manager.errors import InvalidInput
from backfill_manager.execution.messages import Failed, Succeeded
from backfill_manager.model import states as s
from backfill_manager.model.records import DagRun
from backfill_manager.planning.runs import chosen_runs
from backfill_manager.planning.runs.clear_plan import plan_clear
from backfill_manager.planning.runs.mark_plan import MarkPlan, plan_mark
from backfill_manager.queries.dags import spec_reader
from backfill_manager.schemas.commands import ClearTasks, MarkRuns
from backfill_manager.testing import InMemoryManager, dag_spec, days

TWO = dag_spec("d", "a", "b", upstream={"b": ["a"]})


def ten_failed() -> tuple[InMemoryManager, str]:
    manager = InMemoryManager(TWO, dag_spec("other", "a"), script=lambda _: Failed("boom"))
    backfill = manager.backfill("d", days("2013-01-01", 10))
    nothing_hangs(manager)
    return manager, backfill


def days_in(manager: InMemoryManager, state: str) -> list[int]:
    runs = manager.store.read(DagRun, order_by=["logical_date"])
    return [run.logical_date.day for run in runs if run.state == state and run.logical_date]


def generations(manager: InMemoryManager) -> list[int]:
    """Days whose tasks were cleared."""
    return sorted({int(ti.run_id[len("backfill__2013-01-") :][:2]) for ti in manager.tasks("d") if ti.generation})


def test_chosen_items_are_marked_in_one_tick_and_those_with_the_state_stay() -> None:
    manager, backfill = ten_failed()
    of_items = {"dag_id": "d", "state": "success", "backfill_id": backfill}
    assert accepted(manager, "runs.mark", **of_items, items=["2-4"]).message == "3 runs are marked success"
    nothing_hangs(manager)
    manager.ask("runs.mark", **of_items, items=["4-6", "9"])
    manager.tick()
    assert days_in(manager, s.FAILED) == [1, 7, 8, 10]
    nothing_hangs(manager)
    assert days_in(manager, s.SUCCESS) == [2, 3, 4, 5, 6, 9]
    assert manager.states(backfill) == {s.SUCCESS: 6, s.FAILED: 4}
    answer = accepted(manager, "runs.mark", **of_items, items=["1-4"])
    assert answer.message == "1 run is marked success; 3 runs had that state before"


def test_chosen_runs_that_run_are_stopped_before_they_are_marked() -> None:
    manager = Stubborn(TWO, script=never)
    backfill = manager.backfill("d", days("2013-01-01", 4), max_active_runs=4)
    manager.drain()
    manager.ask("runs.mark", dag_id="d", state="failed", dates=["2013-01-02/2013-01-03"])
    manager.drain()
    assert days_in(manager, s.RUNNING) == [1, 2, 3, 4]
    for day in (2, 3):
        manager.give_in(f"backfill__2013-01-0{day}T00:00:00Z")
    manager.drain()
    assert days_in(manager, s.FAILED) == [2, 3]
    manager.script = lambda _: Succeeded()
    for key in list(manager.running):
        manager.finish(key, Succeeded())
    nothing_hangs(manager)
    assert manager.states(backfill) == {s.SUCCESS: 2, s.FAILED: 2}


@pytest.mark.parametrize("tables", range(7))
def test_a_kill_in_the_middle_leaves_a_backfill_that_has_succeeded(tables: int) -> None:
    manager, backfill = ten_failed()
    manager.ask("runs.mark", dag_id="d", state="success", backfill_id=backfill)
    dies_after(manager, tables)
    nothing_hangs(manager)
    assert manager.states(backfill) == {s.SUCCESS: 10}
    assert manager.row(backfill).state == s.SUCCESS


@pytest.mark.parametrize("tables", range(7))
def test_a_kill_in_the_middle_marks_each_chosen_run_and_no_other(tables: int) -> None:
    manager, backfill = ten_failed()
    manager.ask("runs.mark", dag_id="d", state="success", backfill_id=backfill, items=["3-5"])
    dies_after(manager, tables)
    nothing_hangs(manager)
    assert days_in(manager, s.SUCCESS) == [3, 4, 5]
    assert manager.states(backfill) == {s.SUCCESS: 3, s.FAILED: 7}


def test_chosen_items_are_cleared() -> None:
    manager, backfill = ten_failed()
    manager.script = lambda _: Succeeded()
    answer = accepted(manager, "tasks.clear", **clear("d", backfill_id=backfill, items=["1", "8-9"], downstream=True))
    assert answer.message == "cleared 6 tasks in 3 runs"
    nothing_hangs(manager)
    assert days_in(manager, s.SUCCESS) == [1, 8, 9]
    assert manager.states(backfill) == {s.SUCCESS: 3, s.FAILED: 7}


def test_chosen_dates_are_single_ones_and_ranges() -> None:
    manager, _ = ten_failed()
    manager.script = lambda _: Succeeded()
    accepted(manager, "tasks.clear", **clear("d", dates=["2013-01-08", "2013-01-02/2013-01-03"], downstream=True))
    nothing_hangs(manager)
    assert generations(manager) == [2, 3, 8]
    accepted(manager, "runs.mark", dag_id="d", state="failed", dates=["2013-01-09/2013-01-30", "2013-01-03"])
    nothing_hangs(manager)
    assert days_in(manager, s.SUCCESS) == [2, 8]


def test_a_run_of_a_task_by_hand_is_chosen_by_its_id_alone() -> None:
    manager, _ = ten_failed()
    by_hand = accepted(manager, "task.run", dag_id="d", task_id="a", logical_date="2013-01-03T00:00:00Z").object_id
    manager.drain()
    for chosen in ({"dates": ["2013-01-03"]}, {"run_ids": [by_hand]}):
        answer = accepted(manager, "runs.mark", dag_id="d", state="success", **chosen)
        assert answer.message == "1 run is marked success"
        manager.drain()


def test_an_item_that_was_run_again_by_another_backfill_is_left_alone() -> None:
    manager, backfill = ten_failed()
    manager.backfill("d", days("2013-01-03", 1), reprocess="failed")
    nothing_hangs(manager)
    accepted(manager, "runs.mark", dag_id="d", state="success", backfill_id=backfill, items=["2-4"])
    nothing_hangs(manager)
    assert days_in(manager, s.SUCCESS) == [2, 4]


def test_of_a_whole_backfill_its_own_runs_are_chosen_and_no_other() -> None:
    manager, backfill = ten_failed()
    manager.backfill("d", days("2013-01-03", 1), reprocess="failed")
    manager.backfill("d", days("2013-01-20", 2))
    nothing_hangs(manager)
    manager.script = lambda _: Succeeded()
    answer = accepted(manager, "tasks.clear", **clear("d", backfill_id=backfill, downstream=True))
    assert answer.message == "cleared 18 tasks in 9 runs"
    nothing_hangs(manager)
    assert days_in(manager, s.FAILED) == [3, 20, 21]
    accepted(manager, "runs.mark", dag_id="d", state="failed", backfill_id=backfill)
    nothing_hangs(manager)
    assert days_in(manager, s.FAILED) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 21]


@pytest.mark.parametrize(
    ("chosen", "why"),
    [
        ({"dates": ["2012-05-01"]}, "DAG 'd' has no run on 2012-05-01 to mark"),
        (
            {"dates": [f"2012-05-{day:02}" for day in range(1, 5)]},
            "no run on 2012-05-01, 2012-05-02, 2012-05-03, … to mark",
        ),
        ({"start_date": "2012-05-01", "end_date": "2012-05-01"}, "no run between 2012-05-01 and 2012-05-01 to mark"),
        ({"start_date": "2014-01-01"}, "no run from 2014-01-01 on to mark"),
        ({"end_date": "2012-12-31"}, "no run up to 2012-12-31 to mark"),
        ({"start_date": "2013-01-05", "end_date": "2013-01-03"}, "start_date 2013-01-05 is after end_date 2013-01-03"),
        ({"dates": ["2013-01-05/2013-01-03"]}, "dates 2013-01-05/2013-01-03 is the wrong way round"),
        ({"dates": ["yesterday"]}, "yesterday"),
        ({"dates": ["2013-01-05/"]}, "'' is not a date"),
        ({"run_ids": ["x"]}, "no current run of DAG 'd' with the id 'x'"),
        ({"backfill_id": "nobodys"}, "there is no backfill 'nobodys'"),
    ],
)
def test_what_chooses_no_run_is_refused_in_one_line(chosen: dict[str, Any], why: str) -> None:
    manager, _ = ten_failed()
    assert why in refused(manager, "runs.mark", dag_id="d", state="success", **chosen)


def test_a_backfill_of_another_dag_and_items_without_runs_are_refused() -> None:
    manager, backfill = ten_failed()
    message = refused(manager, "runs.mark", dag_id="other", state="success", backfill_id=backfill, items=["1"])
    assert f"backfill {backfill} belongs to DAG 'd'" in message
    manager.script = lambda _: None
    waiting = manager.backfill("other", days("2013-01-01", 3), max_active_runs=1)
    manager.drain()
    message = refused(manager, "runs.mark", dag_id="other", state="success", backfill_id=waiting, items=["2-3"])
    assert f"none of the items 2-3 of backfill {waiting} has a run yet" in message


@pytest.mark.parametrize(
    ("chosen", "why"),
    [
        ({"items": ["1"]}, "items 1 are items of a backfill; name it with backfill_id"),
        ({"dates": ["2013-01-01"], "start_date": "2013-01-01"}, "don't go together"),
        ({"dates": ["2013-01-01"] * 2001}, "must be at most 2,000 ranges, not 2,001"),
    ],
)
def test_a_choice_that_says_nothing_is_not_submitted(chosen: dict[str, Any], why: str) -> None:
    manager, _ = ten_failed()
    with pytest.raises(InvalidInput, match=why):
        manager.ask("runs.mark", dag_id="d", state="success", **chosen)


def test_dates_that_overlap_choose_each_run_once() -> None:
    manager, _ = ten_failed()
    dates = ["2013-01-01/2013-01-09", "2013-01-02", "2013-01-03", "2013-01-04", "2013-01-09/2013-01-10"]
    assert (
        accepted(manager, "runs.mark", dag_id="d", state="success", dates=dates).message == "10 runs are marked success"
    )


def test_runs_between_chosen_dates_are_not_counted_as_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen_runs, "MAX_RUNS", 3)
    manager, _ = ten_failed()
    chosen = ["2013-01-01", "2013-01-05", "2013-01-10"]
    assert (
        accepted(manager, "runs.mark", dag_id="d", state="success", dates=chosen).message == "3 runs are marked success"
    )
    assert "More than 3 runs" in refused(
        manager, "runs.mark", dag_id="d", state="success", dates=[*chosen, "2013-01-02"]
    )


def test_other_runs_of_a_backfill_are_not_counted_as_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen_runs, "MAX_RUNS", 3)
    manager, backfill = ten_failed()
    of_items = {"dag_id": "d", "state": "success", "backfill_id": backfill}
    assert accepted(manager, "runs.mark", **of_items, items=["8-10"]).message == "3 runs are marked success"
    assert "More than 3 runs" in refused(manager, "runs.mark", **of_items, items=["1-4"])


def test_a_batch_that_took_some_of_the_dates_is_named() -> None:
    """A run of several intervals has the date of the first."""
    manager = InMemoryManager(dag_spec("d", "a", batchable=True))
    manager.backfill("d", days("2013-01-01", 14), batch=7)
    nothing_hangs(manager)
    first, second = "backfill__2013-01-01T00:00:00Z", "backfill__2013-01-08T00:00:00Z"
    dags = manager.state.catalog.dags
    within = {"dag_id": "d", "start_date": "2013-01-05", "end_date": "2013-01-10"}
    for plan in (
        plan_mark(manager.store, MarkRuns.parse({**within, "state": "failed"}), dags),
        plan_clear(manager.store, ClearTasks.parse(within), dags, spec_reader(manager.store)),
    ):
        document = plan.to_json_document()
        assert ([run["run_id"] for run in document["runs"]], document["batches_left_out"]) == ([second], [first])
    whole = {**within, "start_date": "2013-01-01"}
    assert plan_mark(manager.store, MarkRuns.parse({**whole, "state": "success"}), dags).batches_left_out == ()
    from_its_end = {**within, "start_date": "2013-01-08"}
    beginning_within_the_first = {"dag_id": "d", "dates": ["2013-01-01", "2013-01-05"]}
    for chosen in (from_its_end, beginning_within_the_first):
        mark = MarkRuns.parse({**chosen, "state": "success"})
        assert plan_mark(manager.store, mark, dags).batches_left_out == ()
    of_day = "2013-01-05"
    for problem in (
        refused(manager, "runs.mark", dag_id="d", state="failed", dates=[of_day]),
        refused(manager, "tasks.clear", **clear("d", start_date=of_day, end_date=of_day)),
    ):
        assert f"part of run {first}, which processes 7 intervals together from 2013-01-01T00:00:00Z on" in problem


def test_the_run_of_a_day_in_which_the_dates_begin_is_no_batch() -> None:
    manager, _ = ten_failed()
    mark = MarkRuns.parse({"dag_id": "d", "state": "success", "start_date": "2013-01-05T12:00:00"})
    plan = plan_mark(manager.store, mark, manager.state.catalog.dags)
    assert (len(plan.runs), plan.batches_left_out) == (5, ())


def test_a_batch_that_was_overridden_or_reverted_has_taken_no_date() -> None:
    manager = InMemoryManager(dag_spec("d", "a", batchable=True))
    manager.backfill("d", days("2013-01-01", 14), batch=7)
    nothing_hangs(manager)
    manager.backfill("d", days("2013-01-01", 7), reprocess="completed")
    nothing_hangs(manager)
    second = next(run for run in manager.runs("d") if run.run_id == "backfill__2013-01-08T00:00:00Z")
    manager.store.write([second.evolve(reverted_at=manager.clock.now())])

    def plan(start: str, end: str) -> MarkPlan:
        mark = MarkRuns.parse({"dag_id": "d", "state": "failed", "start_date": start, "end_date": end})
        return plan_mark(manager.store, mark, manager.state.catalog.dags)

    of_days = plan("2013-01-05", "2013-01-10")
    assert [run.logical_date.day for run in of_days.runs if run.logical_date] == [5, 6, 7]
    assert of_days.batches_left_out == ()
    with pytest.raises(InvalidInput, match="has no run between 2013-01-09 and 2013-01-10 to mark"):
        plan("2013-01-09", "2013-01-10")
