"""Backfills by docs/semantics.md, decided without Spark, Delta or a JVM."""

from __future__ import annotations

import json
import re
from datetime import timedelta

import pyarrow as pa
import pytest
from support.planned_items import TWO_DAYS
from support.scenarios import JANUARY, PIPELINE, accepted, dies_after, never, nothing_hangs

from backfill_manager.dags.definition import DagSpec
from backfill_manager.execution.messages import (
    AccessedTable,
    CheckedWrite,
    Failed,
    Lost,
    Skipped,
    Succeeded,
)
from backfill_manager.manager.services.planner import PlanResult
from backfill_manager.manager.tick_context import PlanRequest
from backfill_manager.model import states as s
from backfill_manager.model.records import Backfill, CheckResult, DagRun, Response, TableAccess, TaskTry
from backfill_manager.planning.backfills.backfill_plan import BackfillPlan
from backfill_manager.planning.backfills.downstream_plan import Dags
from backfill_manager.testing import InMemoryManager, dag_spec, days


def test_a_backfill_runs_every_item_once_and_succeeds() -> None:
    manager = InMemoryManager(PIPELINE)
    backfill = manager.backfill("d", JANUARY)
    manager.drain()
    assert manager.row(backfill).state == s.SUCCESS
    assert manager.states(backfill) == {s.SUCCESS: 5}
    assert [run.run_id for run in manager.runs("d")][:2] == [
        "backfill__2013-01-01T00:00:00Z",
        "backfill__2013-01-02T00:00:00Z",
    ]
    assert [(ti.task_id, ti.state, ti.try_number) for ti in manager.tasks("d")] == [
        ("a", "success", 1),
        ("b", "success", 1),
    ] * 5
    assert not manager.state.runs and not manager.state.backfills, "memory holds what is alive"


def with_planner(manager: InMemoryManager, items: pa.Table) -> None:
    """These items stand for the plans that Spark makes."""

    def plan(request: PlanRequest, spec: DagSpec, version: int, _: Dags) -> None:
        manager.events.put(PlanResult(request, BackfillPlan(request.command, spec, version, items)))

    manager._loop._plan = plan


@pytest.mark.parametrize("tables", range(8))
@pytest.mark.parametrize("state", [s.PENDING, s.SKIPPED])
def test_a_request_to_create_a_backfill_makes_one_wherever_the_manager_is_killed(state: str, tables: int) -> None:
    manager, at = InMemoryManager(PIPELINE), TWO_DAYS.schema.get_field_index("state")
    items = TWO_DAYS.set_column(at, "state", pa.array([state] * 2))
    with_planner(manager, items)
    for _ in range(2):  # by a client that did not learn whether it had arrived
        manager.ask("backfill.create", backfill_id="january", ask={"dag_id": "d", "start_date": "2013-01-01"})
    dies_after(manager, tables)
    made = manager.store.read(Backfill)
    manager.clock.advance(hours=1)
    with_planner(manager, items)
    nothing_hangs(manager)
    (row,) = manager.store.read(Backfill)
    assert (row.backfill_id, row.state) == ("january", s.SUCCESS)
    assert not made or row.created_at == made[0].created_at, "it is not made anew"
    ended, runs = (s.SUCCESS, 2) if state == s.PENDING else (s.SKIPPED, 0)
    assert (manager.states("january"), len(manager.runs("d"))) == ({ended: 2}, runs)
    assert [(answer.outcome, answer.object_id) for answer in manager.store.read(Response)] == [
        ("accepted", "january")
    ] * 2


def test_no_more_runs_are_active_than_the_backfill_allows() -> None:
    manager = InMemoryManager(PIPELINE, script=never)
    backfill = manager.backfill("d", JANUARY, max_active_runs=2)
    manager.drain()
    assert manager.states(backfill) == {s.RUNNING: 2, s.PENDING: 3}


def test_a_failed_run_does_not_stop_the_others() -> None:
    manager = InMemoryManager(PIPELINE, script=lambda it: Failed("boom") if "01-02" in it.run.run_id else Succeeded())
    backfill = manager.backfill("d", JANUARY)
    manager.drain()
    assert manager.row(backfill).state == s.FAILED
    assert manager.states(backfill) == {s.SUCCESS: 4, s.FAILED: 1}
    assert [ti.state for ti in manager.tasks("d", "b")] == [
        "success",
        "upstream_failed",
        "success",
        "success",
        "success",
    ]
    assert manager.items(backfill)[1].reason == "failed: a"


def test_stop_on_failure_pauses_with_its_reason_and_a_person_resumes() -> None:
    manager = InMemoryManager(PIPELINE, script=lambda _: Failed("boom"))
    backfill = manager.backfill("d", JANUARY, max_active_runs=1, stop_on_failure=2)
    manager.drain()
    row = manager.row(backfill)
    assert (row.state, row.is_paused) == (s.PAUSED, True)
    assert "stop_on_failure=2" in (row.reason or "")
    manager.script = lambda _: Succeeded()
    manager.ask("backfill.unpause", backfill_id=backfill)
    manager.drain()
    assert manager.states(backfill) == {s.FAILED: 2, s.SUCCESS: 3}
    assert manager.row(backfill).state == s.FAILED


def test_retries_wait_longer_each_time_and_then_it_fails() -> None:
    retrying = {"a": {"retries": 2, "retry_delay": 10.0, "retry_backoff": 3.0}}
    manager = InMemoryManager(dag_spec("d", "a", each=retrying), script=lambda _: Failed("boom"))
    began = manager.clock.now()
    manager.backfill("d", JANUARY[:1])
    manager.drain()
    (ti,) = manager.tasks("d")
    assert (ti.state, ti.try_number, ti.failures, ti.error) == (s.FAILED, 3, 3, "boom")
    assert (manager.clock.now() - began).total_seconds() == 10 + 30
    assert [t.state for t in manager.store.read(TaskTry)] == ["failed"] * 3


def test_each_try_keeps_the_spark_jobs_that_it_ran() -> None:
    manager = InMemoryManager(dag_spec("d", "a", each={"a": {"retries": 2, "retry_delay": 1.0}}), script=never)
    manager.backfill("d", JANUARY[:1])
    for outcome, jobs in ((Failed("boom"), (3, 4)), (Lost("gone"), (7,)), (Succeeded(), ())):
        manager.drain()
        (key,) = manager.running
        manager.finish(key, outcome, jobs)
    manager.drain()
    tries = [(t.launch, t.state, t.spark_jobs_json) for t in manager.store.read(TaskTry)]
    assert tries == [(1, "failed", "[3, 4]"), (2, "lost", "[7]"), (3, "success", None)]


def test_each_try_records_the_tables_that_it_has_read_and_written() -> None:
    manager = InMemoryManager(dag_spec("d", "a", each={"a": {"retries": 1, "retry_delay": 1.0}}), script=never)
    manager.backfill("d", JANUARY[:1])
    read, written = AccessedTable("read", "bronze", "file:/b", 7), AccessedTable("write", None, "file:/s", 3, 842, 9000)
    for outcome, tables in ((Failed("boom"), [read]), (Succeeded(), [read, written])):
        manager.drain()
        (key,) = manager.running
        manager.finish(key, outcome, tables=tables)
    manager.drain()
    rows = manager.store.read(TableAccess, order_by=("launch", "number"))
    assert [(row.launch, row.number, row.access, row.succeeded) for row in rows] == [
        (1, 1, "read", False), (2, 1, "read", True), (2, 2, "write", True),
    ]  # fmt: skip
    last, run = rows[-1], manager.store.read(DagRun)[0]
    assert (last.table_name, last.table_path, last.version, last.rows_written, last.bytes_written) == (
        None, "file:/s", 3, 842, 9000,
    )  # fmt: skip
    assert (last.run_id, last.interval_start, last.interval_end) == (run.run_id, run.interval_start, run.interval_end)
    assert last.at == manager.clock.now() and last.dag_version == run.dag_version


def test_each_try_records_what_its_checks_have_found() -> None:
    manager = InMemoryManager(dag_spec("d", "a", each={"a": {"retries": 1, "retry_delay": 1.0}}), script=never)
    manager.backfill("d", JANUARY[:1])
    passed = CheckedWrite("silver", "rows > 0", None, "passed", 842, None, 842.0, "842 rows")
    failed = CheckedWrite("silver", "no nulls in id", "ids", "failed", 842, 3, None, "3 of 842 rows")
    for outcome, checks in ((Failed("boom"), [passed, failed]), (Succeeded(), [passed])):
        manager.drain()
        (key,) = manager.running
        manager.finish(key, outcome, checks=checks)
    manager.drain()
    rows, run = manager.store.read(CheckResult, order_by=("launch", "number")), manager.store.read(DagRun)[0]
    assert [(row.launch, row.try_number, row.number, row.outcome) for row in rows] == [
        (1, 1, 1, "passed"), (1, 1, 2, "failed"), (2, 2, 1, "passed"),
    ]  # fmt: skip
    assert rows[1] == CheckResult(
        "d", run.run_id, "a", 1, 2, 1, "silver", "no nulls in id", "failed", run.run_seq, rows[0].at, run.dag_version, "ids",
        842, 3, None, "3 of 842 rows", run.interval_start, run.interval_end,
    )  # fmt: skip
    assert rows[2].at == manager.clock.now()


def test_a_failure_that_can_not_be_mended_is_not_retried() -> None:
    manager = InMemoryManager(
        dag_spec("d", "a", each={"a": {"retries": 2}}), script=lambda _: Failed("no such pool", retryable=False)
    )
    manager.backfill("d", JANUARY[:1])
    manager.drain()
    assert (manager.tasks("d")[0].state, manager.tasks("d")[0].try_number) == (s.FAILED, 1)


def test_depends_on_past_waits_for_the_same_task_in_the_run_before() -> None:
    manager = InMemoryManager(dag_spec("d", "a", each={"a": {"depends_on_past": True}}), script=never)
    manager.backfill("d", JANUARY)
    order = []
    for _ in JANUARY:
        manager.drain()
        (key,) = manager.running
        order.append(key[1])
        manager.finish(key, Succeeded())
    assert order == sorted(order)
    manager.drain()
    runs = manager.runs("d")
    assert [run.previous_run_id for run in runs] == [None, *(run.run_id for run in runs[:-1])]


def test_depends_on_past_is_content_with_a_skipped_task() -> None:
    manager = InMemoryManager(
        dag_spec("d", "a", each={"a": {"depends_on_past": True}}), script=lambda _: Skipped("no data")
    )
    backfill = manager.backfill("d", JANUARY)
    manager.drain()
    assert manager.row(backfill).state == s.SUCCESS


def test_what_depends_on_a_failed_past_is_a_deadlock_that_names_run_and_task() -> None:
    fails = {"2013-01-02"}
    spec = dag_spec("d", "a", each={"a": {"depends_on_past": True}})
    manager = InMemoryManager(spec, script=lambda it: Failed("boom") if it.run.run_id[10:20] in fails else Succeeded())
    backfill = manager.backfill("d", JANUARY, max_active_runs=2)
    manager.drain()
    row = manager.row(backfill)
    assert row.state == s.FAILED
    assert row.reason is not None and "deadlock: task 'a'" in row.reason and "2013-01-02" in row.reason
    assert manager.states(backfill) == {s.SUCCESS: 1, s.FAILED: 4}
    assert len(manager.runs("d")) < 5, "runs that could do nothing are not even made"
    assert not manager.running and not manager.state.backfills


@pytest.mark.parametrize("max_active_runs", [1, 4])
def test_a_deadlock_in_one_gap_leaves_the_next_gap_alone(max_active_runs: int) -> None:
    spec = dag_spec("d", "a", each={"a": {"depends_on_past": True}})
    manager = InMemoryManager(spec, script=lambda it: Failed("boom") if "01-04" in it.run.run_id else Succeeded())
    twelve = days("2013-01-01", 12)
    manager.backfill("d", [*twelve[:2], *twelve[6:8], *twelve[10:]])
    manager.drain()
    backfill = manager.backfill("d", [*twelve[2:6], *twelve[8:10]], max_active_runs=max_active_runs)
    nothing_hangs(manager)
    assert [item.state for item in manager.items(backfill)] == [s.SUCCESS, *[s.FAILED] * 3, *[s.SUCCESS] * 2]
    assert "deadlock" in (manager.row(backfill).reason or "")


def test_a_deadlock_lets_the_rest_of_the_run_do_its_work() -> None:
    spec = dag_spec("d", "load", "roll", upstream={"roll": ["load"]}, each={"roll": {"depends_on_past": True}})
    manager = InMemoryManager(
        spec, script=lambda it: Failed("x") if it.task.task_id == "roll" and "01-01" in it.run.run_id else Succeeded()
    )
    backfill = manager.backfill("d", JANUARY)
    manager.drain()
    assert [ti.state for ti in manager.tasks("d", "load")] == [s.SUCCESS] * 5
    assert manager.states(backfill) == {s.FAILED: 5}


RUNS = ["backfill__2013-01-01T00:00:00Z", "backfill__2013-01-02T00:00:00Z"]


@pytest.mark.parametrize("others", [(), ("load",)], ids=["alone", "beside another"])
@pytest.mark.parametrize("length", [2, 5])
def test_the_backfills_own_reason_names_the_run_and_the_task_that_all_wait_for(
    others: tuple[str, ...], length: int
) -> None:
    """Also where the others of a run go on, so that each item ends by itself, and where no item was pending any more."""
    spec = dag_spec("d", *others, "roll", each={"roll": {"depends_on_past": True}})
    fails = (RUNS[0], "roll")
    manager = InMemoryManager(
        spec, script=lambda it: Failed("x") if (it.run.run_id, it.task.task_id) == fails else Succeeded()
    )
    backfill = manager.backfill("d", JANUARY[:length])
    manager.drain()
    expected = f"deadlock: task 'roll' of run {RUNS[1]} depends on the past, and is failed in the run before, {RUNS[0]}"
    assert (manager.row(backfill).state, manager.row(backfill).reason) == (s.FAILED, expected)
    assert [item.reason for item in manager.items(backfill)[1:]] == [expected] * (length - 1)


def test_a_backfill_that_has_paused_itself_still_names_it_when_it_goes_on() -> None:
    spec = dag_spec("d", "load", "roll", each={"roll": {"depends_on_past": True}})
    manager = InMemoryManager(
        spec, script=lambda it: Failed("x") if (it.run.run_id, it.task.task_id) == (RUNS[0], "roll") else Succeeded()
    )
    backfill = manager.backfill("d", JANUARY, stop_on_failure=3, max_active_runs=1)
    manager.drain()
    assert manager.row(backfill).reason == "3 failed items: paused by stop_on_failure=3"
    accepted(manager, "backfill.unpause", backfill_id=backfill)
    assert (manager.row(backfill).reason or "").endswith(f"is failed in the run before, {RUNS[0]}")


def test_wait_for_downstream_waits_for_what_comes_after_the_task_in_the_run_before() -> None:
    spec = dag_spec(
        "d", "a", "b", "c", "aside", upstream={"b": ["a"], "c": ["b"]}, each={"a": {"wait_for_downstream": True}}
    )
    manager = InMemoryManager(spec, script=never)
    manager.backfill("d", JANUARY[:2])
    manager.drain()

    def running() -> set[tuple[str, str]]:
        return {(run_id[10:20], task_id) for _, run_id, task_id, *_ in manager.running}

    first, second = "2013-01-01", "2013-01-02"
    manager.finish(next(key for key in manager.running if key[1:3] == (RUNS[0], "a")), Succeeded())
    manager.drain()
    assert running() == {(first, "b"), (first, "aside"), (second, "aside")}, "not yet: b comes directly after a"
    manager.finish(next(key for key in manager.running if key[2] == "b"), Succeeded())
    manager.drain()
    assert running() == {(first, "c"), (first, "aside"), (second, "a"), (second, "aside")}, (
        "c does not come directly after it"
    )


def test_a_failure_downstream_of_it_is_a_deadlock_that_names_both_tasks() -> None:
    spec = dag_spec("d", "a", "b", upstream={"b": ["a"]}, each={"a": {"wait_for_downstream": True}})
    manager = InMemoryManager(spec, script=lambda it: Failed("x") if it.task.task_id == "b" else Succeeded())
    backfill = manager.backfill("d", JANUARY[:3])
    manager.drain()
    assert manager.row(backfill).reason == (
        f"deadlock: task 'a' of run {RUNS[1]} waits for its downstream 'b', which is failed in the run before, {RUNS[0]}"
    )
    assert manager.states(backfill) == {s.FAILED: 3}


def test_pause_lets_what_runs_go_on_and_starts_no_new_run() -> None:
    manager = InMemoryManager(PIPELINE, script=never)
    backfill = manager.backfill("d", JANUARY, max_active_runs=1)
    manager.drain()
    manager.ask("backfill.pause", backfill_id=backfill)
    manager.drain()
    assert manager.row(backfill).state == s.PAUSED
    manager.script = lambda _: Succeeded()
    manager.finish(next(iter(manager.running)), Succeeded())
    manager.drain()
    assert manager.states(backfill) == {s.SUCCESS: 1, s.PENDING: 4}
    manager.ask("backfill.unpause", backfill_id=backfill)
    manager.drain()
    assert manager.row(backfill).state == s.SUCCESS


@pytest.mark.parametrize("finish", [False, True])
def test_cancel_closes_what_is_pending_and_stops_or_lets_finish_what_runs(finish: bool) -> None:
    manager = InMemoryManager(PIPELINE, script=never)
    backfill = manager.backfill("d", JANUARY, max_active_runs=2)
    manager.drain()
    manager.ask("backfill.cancel", backfill_id=backfill, let_running_finish=finish)
    manager.script = lambda _: Succeeded()
    manager.drain()
    if finish:
        assert manager.states(backfill) == {s.RUNNING: 2, s.CANCELLED: 3}
        for key in list(manager.running):
            manager.finish(key, Succeeded())
        manager.drain()
    assert (manager.row(backfill).state, manager.row(backfill).is_cancelling) == (s.CANCELLED, False)
    assert manager.states(backfill) == ({s.SUCCESS: 2, s.CANCELLED: 3} if finish else {s.CANCELLED: 5})
    assert {ti.state for ti in manager.tasks("d")} == ({s.SUCCESS} if finish else {s.CANCELLED})
    manager.ask("backfill.cancel", backfill_id=backfill, let_running_finish=False)
    manager.drain()
    result = manager.store.read(Response)[-1]
    assert result.outcome == "refused" and "cancelled already" in result.message


@pytest.mark.parametrize("finish", [False, True])
def test_one_that_was_paused_and_is_cancelled_is_running_until_its_last_run_has_ended(finish: bool) -> None:
    manager = InMemoryManager(PIPELINE, script=never)
    backfill = manager.backfill("d", JANUARY, max_active_runs=1)
    manager.drain()
    manager.ask("backfill.pause", backfill_id=backfill)
    manager.drain()
    manager.ask("backfill.cancel", backfill_id=backfill, let_running_finish=finish)
    manager.ask("backfill.unpause", backfill_id=backfill)
    manager.tick()
    row = manager.row(backfill)
    assert (row.state, row.is_paused, row.is_cancelling) == (s.RUNNING, False, not finish)
    assert (row.reason or "").startswith("cancelled by ")
    result = manager.store.read(Response)[-1]
    assert result.outcome == "refused" and result.message.endswith("there is nothing left of it to unpause.")
    manager.script = lambda _: Succeeded()
    for key in list(manager.running):
        manager.finish(key, Succeeded())
    manager.drain()
    assert manager.row(backfill).state == s.CANCELLED


def test_one_that_was_paused_before_any_run_is_cancelled_at_once() -> None:
    manager = InMemoryManager(PIPELINE, script=never)
    backfill = manager.backfill("d", JANUARY, is_paused=True)
    manager.drain()
    manager.ask("backfill.cancel", backfill_id=backfill, let_running_finish=False)
    manager.drain()
    assert (manager.row(backfill).state, manager.row(backfill).is_paused) == (s.CANCELLED, False)


def test_messages_about_one_thing_have_it_in_the_singular() -> None:
    manager = InMemoryManager(PIPELINE, script=lambda _: Failed("broken", retryable=False))
    one = manager.backfill("d", JANUARY[:1])
    manager.drain()
    manager.ask("backfill.retry", backfill_id=one)
    manager.drain()
    stopped = manager.backfill("d", JANUARY[1:3], stop_on_failure=1, max_active_runs=1)
    manager.drain()
    assert manager.row(stopped).reason == "1 failed item: paused by stop_on_failure=1"
    manager.script = never
    running = manager.backfill("d", JANUARY[3:4])
    manager.drain()
    manager.ask("backfill.cancel", backfill_id=running, let_running_finish=False)
    manager.drain()
    manager.ask("pool.set", name="backfill", slots=1)
    manager.drain()
    said = [str(row.message) for row in manager.store.read(Response)]
    assert [text.partition("; ")[2] for text in said if "is cancelled" in text] == ["1 running run is being stopped"]
    said += [str(manager.row(backfill).reason) for backfill in (one, stopped, running)]
    assert [text for text in said if re.search(r"\b1( [a-z]+)? (runs|items|tasks|slots)\b", text)] == []
    assert manager.row(one).reason == "1 failed of 1 item"


def test_a_second_backfill_leaves_out_dates_that_have_a_run() -> None:
    manager = InMemoryManager(PIPELINE)
    manager.backfill("d", JANUARY[:2])
    manager.drain()
    again = manager.backfill("d", JANUARY)
    manager.drain()
    assert manager.states(again) == {s.SKIPPED: 2, s.SUCCESS: 3}
    assert [item.reason for item in manager.items(again)[:2]] == ["already exists"] * 2


def test_a_single_run_is_made_though_its_first_date_has_a_run() -> None:
    manager, january = InMemoryManager(PIPELINE), (JANUARY[0][0], JANUARY[-1][1])
    manager.backfill("d", JANUARY[:1])
    manager.drain()
    for end, state in ((JANUARY[2][1], s.SUCCESS), (january[1], s.SUCCESS), (JANUARY[1][1], s.SKIPPED)):
        single = manager.backfill(
            "d", [(january[0], end)], config_json='{"type": "single", "start_date": "2013-01-01"}'
        )
        manager.drain()
        assert manager.states(single) == {state: 1}
    whole = [run for run in manager.runs("d") if run.state == s.SUCCESS]
    assert [(run.interval_start, run.interval_end) for run in whole] == [january]
    assert [run.state for run in manager.runs("d")].count(s.OVERRIDDEN) == 2


def test_a_date_whose_run_was_of_a_shorter_interval_already_exists() -> None:
    """As of a schedule before: what a `single` run does, the others leave to `reprocess`."""
    manager, (start, end) = InMemoryManager(PIPELINE), JANUARY[0]
    manager.backfill("d", [(start, start + timedelta(hours=1))])
    manager.drain()
    daily = manager.backfill("d", [(start, end)])
    nothing_hangs(manager)
    assert [(item.state, item.reason) for item in manager.items(daily)] == [(s.SKIPPED, "already exists")]
    assert len(manager.runs("d")) == 1


def test_two_backfills_over_the_same_dates_meet_and_one_gives_way() -> None:
    manager = InMemoryManager(PIPELINE, script=never)
    manager.backfill("d", JANUARY[:3])
    other = manager.backfill("d", JANUARY[1:4], reprocess="completed")
    manager.drain()
    assert [(item.state, item.reason) for item in manager.items(other)] == [
        (s.SKIPPED, "in flight"), (s.SKIPPED, "in flight"), (s.RUNNING, None),
    ]  # fmt: skip


def test_a_date_done_again_gets_a_new_run_and_the_old_one_is_kept() -> None:
    manager = InMemoryManager(PIPELINE)
    manager.backfill("d", JANUARY[:3])
    manager.drain()
    again = manager.backfill("d", JANUARY[1:2], reprocess="completed")
    manager.drain()
    first, old, new, last = manager.runs("d")
    assert (old.state, old.overridden_by, new.run_id) == (s.OVERRIDDEN, new.run_id, f"{old.run_id}__2")
    assert (new.previous_run_id, last.previous_run_id) == (first.run_id, new.run_id)
    assert {ti.state for ti in manager.tasks("d") if ti.run_id == old.run_id} == {s.SUCCESS}, "its tasks stay readable"
    assert manager.row(again).state == s.SUCCESS


def test_a_run_inserted_between_others_takes_its_place_in_the_timeline() -> None:
    manager = InMemoryManager(PIPELINE)
    manager.backfill("d", [JANUARY[0], JANUARY[4]])
    manager.drain()
    manager.backfill("d", [JANUARY[2]])
    manager.drain()
    runs = manager.runs("d")
    assert [run.previous_run_id for run in runs] == [None, runs[0].run_id, runs[1].run_id]


def test_only_chosen_tasks_run_and_without_upstream_what_is_before_them_counts_as_done() -> None:
    manager = InMemoryManager(PIPELINE)
    backfill = manager.backfill("d", JANUARY[:2], tasks="^b$", with_upstream=False)
    manager.drain()
    assert manager.row(backfill).state == s.SUCCESS
    assert {launch.task.task_id for launch in manager.launched} == {"b"}
    assert {ti.state for ti in manager.tasks("d", "a")} == {s.SKIPPED}


def test_mark_success_runs_nothing() -> None:
    manager = InMemoryManager(PIPELINE)
    backfill = manager.backfill("d", JANUARY, mark_success=True)
    manager.drain()
    assert manager.row(backfill).state == s.SUCCESS and not manager.launched
    assert {run.state for run in manager.runs("d")} == {s.SUCCESS}


def test_partitions_run_by_key_and_each_key_once() -> None:
    manager = InMemoryManager(PIPELINE)
    backfill = manager.backfill("d", keys=["eu", "us"])
    manager.drain()
    assert manager.states(backfill) == {s.SUCCESS: 2}
    assert sorted(run.run_id for run in manager.runs("d")) == ["backfill__eu", "backfill__us"]
    again = manager.backfill("d", keys=["us", "asia"])
    manager.drain()
    assert manager.states(again) == {s.SKIPPED: 1, s.SUCCESS: 1}


def test_two_backfills_over_the_same_partition_keys_meet_and_one_gives_way() -> None:
    manager = InMemoryManager(PIPELINE, script=never)
    first = manager.backfill("d", keys=["eu", "us"])
    second = manager.backfill("d", keys=["us", "asia"], reprocess="completed")
    manager.drain()
    assert [(item.partition_key, item.state, item.reason) for item in manager.items(second)] == [
        ("us", s.SKIPPED, "in flight"), ("asia", s.RUNNING, None),
    ]  # fmt: skip
    manager.script = lambda _: Succeeded()
    for key in list(manager.running):
        manager.finish(key, Succeeded())
    manager.drain()
    assert sorted(run.run_id for run in manager.runs("d")) == ["backfill__asia", "backfill__eu", "backfill__us"]
    assert {run.previous_run_id for run in manager.runs("d")} == {None}, "without a date there is no run before"
    assert [manager.row(backfill).state for backfill in (first, second)] == [s.SUCCESS] * 2


def test_a_backfill_of_which_all_is_left_out_is_a_success() -> None:
    manager = InMemoryManager(PIPELINE)
    manager.backfill("d", JANUARY)
    manager.drain()
    manager.launched.clear()
    again = manager.backfill("d", JANUARY)
    manager.drain()
    assert (manager.row(again).state, manager.states(again)) == (s.SUCCESS, {s.SKIPPED: 5})
    assert not manager.launched


def test_what_a_backfill_sets_holds_for_its_own_runs_and_for_no_others() -> None:
    manager = InMemoryManager(dag_spec("d", "a"), script=lambda _: Failed("boom"))
    own = {"overrides_json": json.dumps({"retries": 2}), "conf_json": json.dumps({"full": True})}
    manager.backfill("d", JANUARY[:1], **own)
    manager.backfill("d", JANUARY[1:2])
    manager.drain()
    manager.ask("dag.trigger", dag_id="d", logical_date="2013-01-03T00:00:00Z", conf={})
    manager.drain()
    assert [ti.try_number for ti in manager.tasks("d")] == [3, 1, 1]
    assert [launch.params for launch in manager.launched if "01-01" not in launch.run.run_id] == [{}, {}]
    assert [launch.params for launch in manager.launched if "01-01" in launch.run.run_id] == [{"full": True}] * 3


def test_a_run_inserted_before_a_live_one_is_waited_for_by_what_has_not_begun() -> None:
    spec = dag_spec("d", "load", "roll", upstream={"roll": ["load"]}, each={"roll": {"depends_on_past": True}})
    manager = InMemoryManager(spec, script=lambda it: None if it.task.task_id == "load" else Succeeded())
    manager.backfill("d", JANUARY[1:2], ignore_first_depends_on_past=False)
    manager.drain()
    manager.backfill("d", JANUARY[:1])
    manager.drain()
    for day in ("01-02", "01-01"):
        (key,) = [key for key in manager.running if day in key[1]]
        manager.finish(key, Succeeded())
        manager.drain()
    assert [(launch.run.run_id[15:20], launch.task.task_id) for launch in manager.launched] == [
        ("01-02", "load"), ("01-01", "load"), ("01-01", "roll"), ("01-02", "roll"),
    ]  # fmt: skip


def test_a_hidden_backfill_is_cancelled_and_keeps_its_rows() -> None:
    manager = InMemoryManager(dag_spec("flights", "clean"), script=lambda _: None)
    backfill = manager.backfill("flights", days("2013-01-01", 3), max_active_runs=1)
    manager.drain()

    manager.ask("backfill.hide", backfill_id=backfill)
    manager.drain()

    row = manager.row(backfill)
    assert (row.state, row.hidden_at) == ("cancelled", manager.clock.now())
    assert manager.states(backfill) == {"cancelled": 3}
    manager.ask("backfill.hide", backfill_id="nothing")
    manager.drain()
    assert "There is no backfill 'nothing'" in manager.store.rows("response")[-1].message  # type: ignore[attr-defined]


def test_failures_that_were_cleared_do_not_let_more_pass_before_a_pause() -> None:
    manager = InMemoryManager(dag_spec("d", "a"), script=lambda _: Failed("x"))
    backfill = manager.backfill("d", days("2013-01-01", 20), max_active_runs=1, stop_on_failure=2)
    manager.drain()
    assert manager.states(backfill)[s.FAILED] == 2
    manager.script = lambda _: None
    accepted(manager, "backfill.unpause", backfill_id=backfill)
    accepted(manager, "tasks.clear", ask={"dag": "d", "only_failed": True})
    while manager.row(backfill).state == s.RUNNING:
        manager.finish(next(iter(manager.running)), Failed("x"))
        manager.drain()
    assert (manager.row(backfill).state, manager.states(backfill)[s.FAILED]) == (s.PAUSED, 2)
