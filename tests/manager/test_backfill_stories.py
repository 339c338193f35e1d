"""Backfills by docs/semantics.md, decided without Spark, Delta or a JVM."""

from __future__ import annotations

import json
import re

import pytest
from support.scenarios import accepted

from backfill_manager.execution.messages import (
    AccessedTable,
    CheckedWrite,
    Failed,
    Lost,
    Outcome,
    Skipped,
    Succeeded,
    TaskEnded,
    TaskLaunch,
)
from backfill_manager.model import states as s
from backfill_manager.model.records import CheckResult, DagRun, Response, TableAccess, TaskTry
from backfill_manager.testing import InMemoryManager, dag_spec, days

JANUARY = days("2013-01-01", 5)
PIPELINE = dag_spec("d", "a", "b", upstream={"b": ["a"]})


def never(_: TaskLaunch) -> Outcome | None:
    return None


def test_a_backfill_runs_every_item_once_and_succeeds() -> None:
    ground = InMemoryManager(PIPELINE)
    backfill = ground.backfill("d", JANUARY)
    ground.drain()
    assert ground.row(backfill).state == s.SUCCESS
    assert ground.states(backfill) == {s.SUCCESS: 5}
    assert [run.run_id for run in ground.runs("d")][:2] == [
        "backfill__2013-01-01T00:00:00Z",
        "backfill__2013-01-02T00:00:00Z",
    ]
    assert [(ti.task_id, ti.state, ti.try_number) for ti in ground.tasks("d")] == [
        ("a", "success", 1),
        ("b", "success", 1),
    ] * 5
    assert not ground.state.runs and not ground.state.backfills, "memory holds what is alive"


def test_no_more_runs_are_alive_than_the_backfill_allows() -> None:
    ground = InMemoryManager(PIPELINE, script=never)
    backfill = ground.backfill("d", JANUARY, max_active_runs=2)
    ground.drain()
    assert ground.states(backfill) == {s.RUNNING: 2, s.PENDING: 3}


def test_a_failed_run_does_not_stop_the_others() -> None:
    ground = InMemoryManager(PIPELINE, script=lambda it: Failed("boom") if "01-02" in it.run.run_id else Succeeded())
    backfill = ground.backfill("d", JANUARY)
    ground.drain()
    assert ground.row(backfill).state == s.FAILED
    assert ground.states(backfill) == {s.SUCCESS: 4, s.FAILED: 1}
    assert [ti.state for ti in ground.tasks("d", "b")] == [
        "success",
        "upstream_failed",
        "success",
        "success",
        "success",
    ]
    assert ground.items(backfill)[1].reason == "failed: a"


def test_stop_on_failure_pauses_with_its_reason_and_a_person_resumes() -> None:
    ground = InMemoryManager(PIPELINE, script=lambda _: Failed("boom"))
    backfill = ground.backfill("d", JANUARY, max_active_runs=1, stop_on_failure=2)
    ground.drain()
    row = ground.row(backfill)
    assert (row.state, row.is_paused) == (s.PAUSED, True)
    assert "stop_on_failure=2" in (row.reason or "")
    ground.script = lambda _: Succeeded()
    ground.ask("backfill.unpause", backfill_id=backfill)
    ground.drain()
    assert ground.states(backfill) == {s.FAILED: 2, s.SUCCESS: 3}
    assert ground.row(backfill).state == s.FAILED


def test_retries_wait_longer_each_time_and_then_it_fails() -> None:
    retrying = {"a": {"retries": 2, "retry_delay": 10.0, "retry_backoff": 3.0}}
    ground = InMemoryManager(dag_spec("d", "a", each=retrying), script=lambda _: Failed("boom"))
    began = ground.clock.now()
    ground.backfill("d", JANUARY[:1])
    ground.drain()
    (ti,) = ground.tasks("d")
    assert (ti.state, ti.try_number, ti.failures, ti.error) == (s.FAILED, 3, 3, "boom")
    assert (ground.clock.now() - began).total_seconds() == 10 + 30
    assert [t.state for t in ground.store.read(TaskTry)] == ["failed"] * 3


def test_each_try_keeps_the_spark_jobs_that_it_ran() -> None:
    ground = InMemoryManager(dag_spec("d", "a", each={"a": {"retries": 2, "retry_delay": 1.0}}), script=never)
    ground.backfill("d", JANUARY[:1])
    for outcome, jobs in ((Failed("boom"), (3, 4)), (Lost("gone"), (7,)), (Succeeded(), ())):
        ground.drain()
        (key,) = ground.running
        ground.finish(key, outcome, jobs)
    ground.drain()
    tries = [(t.launch, t.state, t.spark_jobs_json) for t in ground.store.read(TaskTry)]
    assert tries == [(1, "failed", "[3, 4]"), (2, "lost", "[7]"), (3, "success", None)]


def test_each_try_records_the_tables_that_it_has_read_and_written() -> None:
    ground = InMemoryManager(dag_spec("d", "a", each={"a": {"retries": 1, "retry_delay": 1.0}}), script=never)
    ground.backfill("d", JANUARY[:1])
    read, written = AccessedTable("read", "bronze", "file:/b", 7), AccessedTable("write", None, "file:/s", 3, 842, 9000)
    for outcome, tables in ((Failed("boom"), [read]), (Succeeded(), [read, written])):
        ground.drain()
        (key,) = ground.running
        ground.finish(key, outcome, tables=tables)
    ground.drain()
    rows = ground.store.read(TableAccess, order_by=("launch", "number"))
    assert [(row.launch, row.number, row.access, row.succeeded) for row in rows] == [
        (1, 1, "read", False), (2, 1, "read", True), (2, 2, "write", True),
    ]  # fmt: skip
    last, run = rows[-1], ground.store.read(DagRun)[0]
    assert (last.table_name, last.table_path, last.version, last.rows_written, last.bytes_written) == (
        None, "file:/s", 3, 842, 9000,
    )  # fmt: skip
    assert (last.run_id, last.interval_start, last.interval_end) == (run.run_id, run.interval_start, run.interval_end)
    assert last.at == ground.clock.now() and last.dag_version == run.dag_version


def test_each_try_records_what_its_checks_have_found() -> None:
    ground = InMemoryManager(dag_spec("d", "a", each={"a": {"retries": 1, "retry_delay": 1.0}}), script=never)
    ground.backfill("d", JANUARY[:1])
    passed = CheckedWrite("silver", "rows > 0", None, "passed", 842, None, 842.0, "842 rows")
    failed = CheckedWrite("silver", "no nulls in id", "ids", "failed", 842, 3, None, "3 of 842 rows")
    for outcome, checks in ((Failed("boom"), [passed, failed]), (Succeeded(), [passed])):
        ground.drain()
        (key,) = ground.running
        ground.finish(key, outcome, checks=checks)
    ground.drain()
    rows, run = ground.store.read(CheckResult, order_by=("launch", "number")), ground.store.read(DagRun)[0]
    assert [(row.launch, row.try_number, row.number, row.outcome) for row in rows] == [
        (1, 1, 1, "passed"), (1, 1, 2, "failed"), (2, 2, 1, "passed"),
    ]  # fmt: skip
    assert rows[1] == CheckResult(
        "d", run.run_id, "a", 1, 2, 1, "silver", "no nulls in id", "failed", run.run_seq, rows[0].at, run.dag_version, "ids",
        842, 3, None, "3 of 842 rows", run.interval_start, run.interval_end,
    )  # fmt: skip
    assert rows[2].at == ground.clock.now()


def test_a_failure_that_can_not_be_mended_is_not_retried() -> None:
    ground = InMemoryManager(
        dag_spec("d", "a", each={"a": {"retries": 2}}), script=lambda _: Failed("no such pool", retryable=False)
    )
    ground.backfill("d", JANUARY[:1])
    ground.drain()
    assert (ground.tasks("d")[0].state, ground.tasks("d")[0].try_number) == (s.FAILED, 1)


def test_depends_on_past_waits_for_the_same_task_in_the_run_before() -> None:
    ground = InMemoryManager(dag_spec("d", "a", each={"a": {"depends_on_past": True}}), script=never)
    ground.backfill("d", JANUARY)
    order = []
    for _ in JANUARY:
        ground.drain()
        (key,) = ground.running
        order.append(key[1])
        ground.finish(key, Succeeded())
    assert order == sorted(order)
    ground.drain()
    runs = ground.runs("d")
    assert [run.previous_run_id for run in runs] == [None, *(run.run_id for run in runs[:-1])]


def test_depends_on_past_is_content_with_a_skipped_task() -> None:
    ground = InMemoryManager(
        dag_spec("d", "a", each={"a": {"depends_on_past": True}}), script=lambda _: Skipped("no data")
    )
    backfill = ground.backfill("d", JANUARY)
    ground.drain()
    assert ground.row(backfill).state == s.SUCCESS


def test_what_depends_on_a_failed_past_is_a_deadlock_that_names_run_and_task() -> None:
    fails = {"2013-01-02"}
    spec = dag_spec("d", "a", each={"a": {"depends_on_past": True}})
    ground = InMemoryManager(spec, script=lambda it: Failed("boom") if it.run.run_id[10:20] in fails else Succeeded())
    backfill = ground.backfill("d", JANUARY, max_active_runs=2)
    ground.drain()
    row = ground.row(backfill)
    assert row.state == s.FAILED
    assert row.reason is not None and "deadlock: task 'a'" in row.reason and "2013-01-02" in row.reason
    assert ground.states(backfill) == {s.SUCCESS: 1, s.FAILED: 4}
    assert len(ground.runs("d")) < 5, "runs that could do nothing are not even made"
    assert not ground.running and not ground.state.backfills


def test_a_deadlock_lets_the_rest_of_the_run_do_its_work() -> None:
    spec = dag_spec("d", "load", "roll", upstream={"roll": ["load"]}, each={"roll": {"depends_on_past": True}})
    ground = InMemoryManager(
        spec, script=lambda it: Failed("x") if it.task.task_id == "roll" and "01-01" in it.run.run_id else Succeeded()
    )
    backfill = ground.backfill("d", JANUARY)
    ground.drain()
    assert [ti.state for ti in ground.tasks("d", "load")] == [s.SUCCESS] * 5
    assert ground.states(backfill) == {s.FAILED: 5}


RUNS = ["backfill__2013-01-01T00:00:00Z", "backfill__2013-01-02T00:00:00Z"]


@pytest.mark.parametrize("others", [(), ("load",)], ids=["alone", "beside another"])
@pytest.mark.parametrize("length", [2, 5])
def test_the_backfills_own_reason_names_the_run_and_the_task_that_all_wait_for(
    others: tuple[str, ...], length: int
) -> None:
    """Also where the others of a run go on, so that each item ends by itself, and where no item was pending any more."""
    spec = dag_spec("d", *others, "roll", each={"roll": {"depends_on_past": True}})
    fails = (RUNS[0], "roll")
    ground = InMemoryManager(
        spec, script=lambda it: Failed("x") if (it.run.run_id, it.task.task_id) == fails else Succeeded()
    )
    backfill = ground.backfill("d", JANUARY[:length])
    ground.drain()
    expected = f"deadlock: task 'roll' of run {RUNS[1]} depends on the past, and is failed in the run before, {RUNS[0]}"
    assert (ground.row(backfill).state, ground.row(backfill).reason) == (s.FAILED, expected)
    assert [item.reason for item in ground.items(backfill)[1:]] == [expected] * (length - 1)


def test_a_backfill_that_has_paused_itself_still_names_it_when_it_goes_on() -> None:
    spec = dag_spec("d", "load", "roll", each={"roll": {"depends_on_past": True}})
    ground = InMemoryManager(
        spec, script=lambda it: Failed("x") if (it.run.run_id, it.task.task_id) == (RUNS[0], "roll") else Succeeded()
    )
    backfill = ground.backfill("d", JANUARY, stop_on_failure=3, max_active_runs=1)
    ground.drain()
    assert ground.row(backfill).reason == "3 failed items: paused by stop_on_failure=3"
    accepted(ground, "backfill.unpause", backfill_id=backfill)
    assert (ground.row(backfill).reason or "").endswith(f"is failed in the run before, {RUNS[0]}")


def test_wait_for_downstream_waits_for_what_comes_after_the_task_in_the_run_before() -> None:
    spec = dag_spec(
        "d", "a", "b", "c", "aside", upstream={"b": ["a"], "c": ["b"]}, each={"a": {"wait_for_downstream": True}}
    )
    ground = InMemoryManager(spec, script=never)
    ground.backfill("d", JANUARY[:2])
    ground.drain()

    def running() -> set[tuple[str, str]]:
        return {(run_id[10:20], task_id) for _, run_id, task_id, *_ in ground.running}

    first, second = "2013-01-01", "2013-01-02"
    ground.finish(next(key for key in ground.running if key[1:3] == (RUNS[0], "a")), Succeeded())
    ground.drain()
    assert running() == {(first, "b"), (first, "aside"), (second, "aside")}, "not yet: b comes directly after a"
    ground.finish(next(key for key in ground.running if key[2] == "b"), Succeeded())
    ground.drain()
    assert running() == {(first, "c"), (first, "aside"), (second, "a"), (second, "aside")}, (
        "c does not come directly after it"
    )


def test_a_failure_downstream_of_it_is_a_deadlock_that_names_both_tasks() -> None:
    spec = dag_spec("d", "a", "b", upstream={"b": ["a"]}, each={"a": {"wait_for_downstream": True}})
    ground = InMemoryManager(spec, script=lambda it: Failed("x") if it.task.task_id == "b" else Succeeded())
    backfill = ground.backfill("d", JANUARY[:3])
    ground.drain()
    assert ground.row(backfill).reason == (
        f"deadlock: task 'a' of run {RUNS[1]} waits for its downstream 'b', which is failed in the run before, {RUNS[0]}"
    )
    assert ground.states(backfill) == {s.FAILED: 3}


def test_pause_lets_what_runs_go_on_and_starts_no_new_run() -> None:
    ground = InMemoryManager(PIPELINE, script=never)
    backfill = ground.backfill("d", JANUARY, max_active_runs=1)
    ground.drain()
    ground.ask("backfill.pause", backfill_id=backfill)
    ground.drain()
    assert ground.row(backfill).state == s.PAUSED
    ground.script = lambda _: Succeeded()
    ground.finish(next(iter(ground.running)), Succeeded())
    ground.drain()
    assert ground.states(backfill) == {s.SUCCESS: 1, s.PENDING: 4}
    ground.ask("backfill.unpause", backfill_id=backfill)
    ground.drain()
    assert ground.row(backfill).state == s.SUCCESS


@pytest.mark.parametrize("finish", [False, True])
def test_cancel_closes_what_is_pending_and_stops_or_lets_finish_what_runs(finish: bool) -> None:
    ground = InMemoryManager(PIPELINE, script=never)
    backfill = ground.backfill("d", JANUARY, max_active_runs=2)
    ground.drain()
    ground.ask("backfill.cancel", backfill_id=backfill, let_running_finish=finish)
    ground.script = lambda _: Succeeded()
    ground.drain()
    if finish:
        assert ground.states(backfill) == {s.RUNNING: 2, s.CANCELLED: 3}
        for key in list(ground.running):
            ground.finish(key, Succeeded())
        ground.drain()
    assert (ground.row(backfill).state, ground.row(backfill).is_cancelling) == (s.CANCELLED, False)
    assert ground.states(backfill) == ({s.SUCCESS: 2, s.CANCELLED: 3} if finish else {s.CANCELLED: 5})
    assert {ti.state for ti in ground.tasks("d")} == ({s.SUCCESS} if finish else {s.CANCELLED})
    ground.ask("backfill.cancel", backfill_id=backfill, let_running_finish=False)
    ground.drain()
    result = ground.store.read(Response)[-1]
    assert result.outcome == "refused" and "cancelled already" in result.message


def test_messages_about_one_thing_have_it_in_the_singular() -> None:
    ground = InMemoryManager(PIPELINE, script=lambda _: Failed("broken", retryable=False))
    one = ground.backfill("d", JANUARY[:1])
    ground.drain()
    ground.ask("backfill.retry", backfill_id=one)
    ground.drain()
    stopped = ground.backfill("d", JANUARY[1:3], stop_on_failure=1, max_active_runs=1)
    ground.drain()
    assert ground.row(stopped).reason == "1 failed item: paused by stop_on_failure=1"
    ground.script = never
    running = ground.backfill("d", JANUARY[3:4])
    ground.drain()
    ground.ask("backfill.cancel", backfill_id=running, let_running_finish=False)
    ground.drain()
    said = [str(row.message) for row in ground.store.read(Response)]
    assert [text.partition("; ")[2] for text in said if "is cancelled" in text] == ["1 running run is being stopped"]
    said += [str(ground.row(backfill).reason) for backfill in (one, stopped, running)]
    assert [text for text in said if re.search(r"\b1( [a-z]+)? (runs|items|tasks)\b", text)] == []
    assert ground.row(one).reason == "1 failed of 1 item"


def test_a_second_backfill_leaves_out_dates_that_have_a_run() -> None:
    ground = InMemoryManager(PIPELINE)
    ground.backfill("d", JANUARY[:2])
    ground.drain()
    again = ground.backfill("d", JANUARY)
    ground.drain()
    assert ground.states(again) == {s.SKIPPED: 2, s.SUCCESS: 3}
    assert [item.reason for item in ground.items(again)[:2]] == ["already exists"] * 2


def test_two_backfills_over_the_same_dates_meet_and_one_gives_way() -> None:
    ground = InMemoryManager(PIPELINE, script=never)
    ground.backfill("d", JANUARY[:3])
    other = ground.backfill("d", JANUARY[1:4], reprocess="completed")
    ground.drain()
    assert [(item.state, item.reason) for item in ground.items(other)] == [
        (s.SKIPPED, "in flight"), (s.SKIPPED, "in flight"), (s.RUNNING, None),
    ]  # fmt: skip


def test_a_date_done_again_gets_a_new_run_and_the_old_one_is_kept() -> None:
    ground = InMemoryManager(PIPELINE)
    ground.backfill("d", JANUARY[:3])
    ground.drain()
    again = ground.backfill("d", JANUARY[1:2], reprocess="completed")
    ground.drain()
    first, old, new, last = ground.runs("d")
    assert (old.state, old.overridden_by, new.run_id) == (s.OVERRIDDEN, new.run_id, f"{old.run_id}__2")
    assert (new.previous_run_id, last.previous_run_id) == (first.run_id, new.run_id)
    assert {ti.state for ti in ground.tasks("d") if ti.run_id == old.run_id} == {s.SUCCESS}, "its tasks stay readable"
    assert ground.row(again).state == s.SUCCESS


def test_a_run_inserted_between_others_takes_its_place_in_the_timeline() -> None:
    ground = InMemoryManager(PIPELINE)
    ground.backfill("d", [JANUARY[0], JANUARY[4]])
    ground.drain()
    ground.backfill("d", [JANUARY[2]])
    ground.drain()
    runs = ground.runs("d")
    assert [run.previous_run_id for run in runs] == [None, runs[0].run_id, runs[1].run_id]


def test_only_chosen_tasks_run_and_without_upstream_what_is_before_them_counts_as_done() -> None:
    ground = InMemoryManager(PIPELINE)
    backfill = ground.backfill("d", JANUARY[:2], tasks="^b$", with_upstream=False)
    ground.drain()
    assert ground.row(backfill).state == s.SUCCESS
    assert {launch.task.task_id for launch in ground.launched} == {"b"}
    assert {ti.state for ti in ground.tasks("d", "a")} == {s.SKIPPED}


def test_mark_success_runs_nothing() -> None:
    ground = InMemoryManager(PIPELINE)
    backfill = ground.backfill("d", JANUARY, mark_success=True)
    ground.drain()
    assert ground.row(backfill).state == s.SUCCESS and not ground.launched
    assert {run.state for run in ground.runs("d")} == {s.SUCCESS}


def test_partitions_run_by_key_and_each_key_once() -> None:
    ground = InMemoryManager(PIPELINE)
    backfill = ground.backfill("d", keys=["eu", "us"])
    ground.drain()
    assert ground.states(backfill) == {s.SUCCESS: 2}
    assert sorted(run.run_id for run in ground.runs("d")) == ["backfill__eu", "backfill__us"]
    again = ground.backfill("d", keys=["us", "asia"])
    ground.drain()
    assert ground.states(again) == {s.SKIPPED: 1, s.SUCCESS: 1}


def test_two_backfills_over_the_same_partition_keys_meet_and_one_gives_way() -> None:
    ground = InMemoryManager(PIPELINE, script=never)
    first = ground.backfill("d", keys=["eu", "us"])
    second = ground.backfill("d", keys=["us", "asia"], reprocess="completed")
    ground.drain()
    assert [(item.partition_key, item.state, item.reason) for item in ground.items(second)] == [
        ("us", s.SKIPPED, "in flight"), ("asia", s.RUNNING, None),
    ]  # fmt: skip
    ground.script = lambda _: Succeeded()
    for key in list(ground.running):
        ground.finish(key, Succeeded())
    ground.drain()
    assert sorted(run.run_id for run in ground.runs("d")) == ["backfill__asia", "backfill__eu", "backfill__us"]
    assert {run.previous_run_id for run in ground.runs("d")} == {None}, "without a date there is no run before"
    assert [ground.row(backfill).state for backfill in (first, second)] == [s.SUCCESS] * 2


def test_a_backfill_of_which_all_is_left_out_is_a_success() -> None:
    ground = InMemoryManager(PIPELINE)
    ground.backfill("d", JANUARY)
    ground.drain()
    ground.launched.clear()
    again = ground.backfill("d", JANUARY)
    ground.drain()
    assert (ground.row(again).state, ground.states(again)) == (s.SUCCESS, {s.SKIPPED: 5})
    assert not ground.launched


def test_what_a_backfill_sets_holds_for_its_own_runs_and_for_no_others() -> None:
    ground = InMemoryManager(dag_spec("d", "a"), script=lambda _: Failed("boom"))
    own = {"overrides_json": json.dumps({"retries": 2}), "conf_json": json.dumps({"full": True})}
    ground.backfill("d", JANUARY[:1], **own)
    ground.backfill("d", JANUARY[1:2])
    ground.drain()
    ground.ask("dag.trigger", dag_id="d", logical_date="2013-01-03T00:00:00Z", conf={})
    ground.drain()
    assert [ti.try_number for ti in ground.tasks("d")] == [3, 1, 1]
    assert [launch.params for launch in ground.launched if "01-01" not in launch.run.run_id] == [{}, {}]
    assert [launch.params for launch in ground.launched if "01-01" in launch.run.run_id] == [{"full": True}] * 3


def test_a_run_inserted_before_a_live_one_is_waited_for_by_what_has_not_begun() -> None:
    spec = dag_spec("d", "load", "roll", upstream={"roll": ["load"]}, each={"roll": {"depends_on_past": True}})
    ground = InMemoryManager(spec, script=lambda it: None if it.task.task_id == "load" else Succeeded())
    ground.backfill("d", JANUARY[1:2], ignore_first_depends_on_past=False)
    ground.drain()
    ground.backfill("d", JANUARY[:1])
    ground.drain()
    for day in ("01-02", "01-01"):
        (key,) = [key for key in ground.running if day in key[1]]
        ground.finish(key, Succeeded())
        ground.drain()
    assert [(launch.run.run_id[15:20], launch.task.task_id) for launch in ground.launched] == [
        ("01-02", "load"), ("01-01", "load"), ("01-01", "roll"), ("01-02", "roll"),
    ]  # fmt: skip


def test_higher_priority_goes_first_then_older() -> None:
    ground = InMemoryManager(dag_spec("low", "t"), dag_spec("high", "t"), script=never, slots=2)
    ground.backfill("low", JANUARY[:2], priority=0)
    ground.backfill("high", JANUARY[:2], priority=5)
    ground.drain()
    assert [launch.ti.dag_id for launch in ground.launched] == ["high", "high", "low", "low"], "two slots, two ahead"


def test_limits_of_dag_and_task_hold() -> None:
    ground = InMemoryManager(
        dag_spec("d", "t", max_active_tasks=3), dag_spec("e", "t", each={"t": {"max_active_tis": 1}}), script=never
    )
    ground.backfill("d", JANUARY)
    ground.backfill("e", JANUARY)
    ground.drain()
    assert sorted(launch.ti.dag_id for launch in ground.launched) == ["d", "d", "d", "e"]


def test_a_backfill_never_takes_a_scheduled_runs_slots() -> None:
    ground = InMemoryManager(dag_spec("d", "t", each={"t": {"pool": "scheduled"}}), script=never)
    ground.backfill("d", JANUARY[:1])
    ground.drain()
    assert ground.launched[0].pool == "backfill"


def test_a_crash_costs_no_try_and_what_had_finished_stays_finished() -> None:
    ground = InMemoryManager(PIPELINE, script=lambda it: Succeeded() if it.task.task_id == "a" else None)
    backfill = ground.backfill("d", JANUARY)
    ground.drain()
    assert {key[2] for key in ground.running} == {"b"}
    ground.crash()
    ground.script = lambda _: Succeeded()
    ground.drain()
    assert ground.row(backfill).state == s.SUCCESS
    assert [(ti.try_number, ti.launch) for ti in ground.tasks("d", "b")] == [(1, 2)] * 5
    assert [(ti.try_number, ti.launch) for ti in ground.tasks("d", "a")] == [(1, 1)] * 5
    tries = [(t.task_id, t.launch, t.state) for t in ground.store.read(TaskTry) if "01-03" in t.run_id]
    assert tries == [("a", 1, "success"), ("b", 1, "lost"), ("b", 2, "success")]


def test_a_task_that_spark_lost_runs_again_without_costing_a_try() -> None:
    lost = iter([Lost("Spark went away"), Succeeded()])
    ground = InMemoryManager(dag_spec("d", "t"), script=lambda _: next(lost))
    ground.backfill("d", JANUARY[:1])
    ground.drain()
    (ti,) = ground.tasks("d")
    assert (ti.state, ti.try_number, ti.failures, ti.launch) == (s.SUCCESS, 1, 0, 2)


def test_a_manager_told_to_stop_starts_nothing_more_and_the_next_one_goes_on() -> None:
    ground = InMemoryManager(PIPELINE, script=never)
    backfill = ground.backfill("d", JANUARY[:2], max_active_runs=1)
    ground.drain()
    free, now = {"scheduled": 16, "backfill": 16}, ground.clock.now()
    ground.ask("manager.stop", drain=True)
    todo = ground._decisions.decide([], ground.store.unanswered(), free, now)
    ground._decisions.commit(todo)
    assert (todo.stop, todo.drain) == (True, True)
    (answer,) = ground.store.read(Response)
    assert (answer.outcome, answer.message) == ("accepted", "stopping when running tasks have finished")

    (running,) = ground.running
    ground._decisions.draining = True
    last = ground._decisions.decide([TaskEnded(running, Succeeded(), now)], [], free, now)
    ground._decisions.commit(last)
    assert (last.launches, ground.tasks("d", "a")[0].state) == ([], s.SUCCESS), (
        "what ran has finished, and that is kept"
    )

    ground.script = lambda _: Succeeded()
    ground.crash()
    ground.drain()
    assert ground.row(backfill).state == s.SUCCESS
    assert [ti.launch for ti in ground.tasks("d")] == [1] * 4, "nothing ran twice"


def test_a_hidden_backfill_is_cancelled_and_keeps_its_rows() -> None:
    ground = InMemoryManager(dag_spec("flights", "clean"), script=lambda _: None)
    backfill = ground.backfill("flights", days("2013-01-01", 3), max_active_runs=1)
    ground.drain()

    ground.ask("backfill.hide", backfill_id=backfill)
    ground.drain()

    row = ground.row(backfill)
    assert (row.state, row.hidden_at) == ("cancelled", ground.clock.now())
    assert ground.states(backfill) == {"cancelled": 3}
    ground.ask("backfill.hide", backfill_id="nothing")
    ground.drain()
    assert "There is no backfill 'nothing'" in ground.store.rows("response")[-1].message  # type: ignore[attr-defined]


def test_limits_of_a_process_are_those_of_the_task_else_of_its_pool_else_by_what_made_its_run() -> None:
    spec = dag_spec("d", "own", "plain", each={"own": {"memory": 2048, "nice": 1}})
    ground = InMemoryManager(spec)

    def limits() -> dict[str, tuple[int | None, int]]:
        ground.drain()
        launches = [ground.launched.pop() for _ in range(len(ground.launched))]
        return {launch.ti.task_id: (launch.memory_mb, launch.nice) for launch in launches}

    ground.backfill("d", JANUARY[:1])
    assert limits() == {"own": (2048, 1), "plain": (None, 10)}
    ground.ask("dag.trigger", dag_id="d", logical_date=None, conf={})
    assert limits() == {"own": (2048, 1), "plain": (None, 5)}

    ground.ask("pool.set", name="backfill", slots=16, weight=1, min_share=0, memory_mb="1.5 GB", nice="15")
    ground.backfill("d", JANUARY[2:3], overrides_json=json.dumps({"own.memory": "512 MB"}))
    assert limits() == {"own": (512, 1), "plain": (1536, 15)}
    ground.ask("pool.set", name="backfill", slots=8, weight=1, min_share=0)
    assert ground.state.pools["backfill"].memory_mb == 1536, "a release that does not know of limits leaves them"
    ground.ask("pool.set", name="backfill", slots=8, weight=1, min_share=0, memory_mb=None, nice=None)
    ground.backfill("d", JANUARY[3:4])
    assert limits() == {"own": (2048, 1), "plain": (None, 10)}
