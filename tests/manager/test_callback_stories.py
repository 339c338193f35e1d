"""Callbacks: which run, when, with what, and that nothing else depends on them. Without Spark, Delta or a JVM."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime

import pytest
from support.scenarios import (
    Stubborn,
    accepted,
    clear,
    dies_after,
    key_of,
    never,
    nothing_hangs,
    play,
    refused,
    task_of,
)

from backfill_manager.clock import UTC
from backfill_manager.dags.definition import DagSpec
from backfill_manager.execution.messages import Ended, Failed, Outcome, Skipped, Succeeded, TaskLaunch
from backfill_manager.manager.decisions.callbacks import BY_HALVES, NOTHING_TO_REPORT
from backfill_manager.model import states as s
from backfill_manager.model.records import DagVersion, TaskInstance, TaskTry
from backfill_manager.testing import FakeClock, InMemoryManager, dag_spec, days

ALL_OF_A = ("a.on_success", "a.on_failure")
OF_THE_RUN = ("on_success", "on_failure")
JANUARY = days("2013-01-01", 5)
FIRST = "backfill__2013-01-01T00:00:00Z"
SECOND = "backfill__2013-01-02T00:00:00Z"


def chain(*callbacks: str, **settings: object) -> DagSpec:
    """a >> b"""
    return dag_spec("d", "a", "b", upstream={"b": ["a"]}, callbacks=callbacks, **settings)


def fails(*task_ids: str) -> Callable[[TaskLaunch], Outcome | None]:
    return lambda launch: Failed("boom") if launch.task.task_id in task_ids else Succeeded()


def goes_on(*task_ids: str, failing: tuple[str, ...] = ()) -> Callable[[TaskLaunch], Outcome | None]:
    """These run until they are told to end."""
    return lambda launch: None if launch.task.task_id in task_ids else fails(*failing)(launch)


def done(manager: InMemoryManager, n: int = 1, **fields: object) -> str:
    backfill = manager.backfill("d", JANUARY[:n], **fields)
    manager.drain()
    return backfill


def states_of(manager: InMemoryManager, run_id: str = FIRST) -> dict[str, str]:
    return {ti.task_id: ti.state for ti in manager.store.read(TaskInstance) if ti.run_id == run_id}


def order(manager: InMemoryManager) -> list[str]:
    return [launch.task.task_id for launch in manager.launched]


def reported(manager: InMemoryManager) -> list[Ended]:
    """What the callbacks were given, in the order in which they started."""
    return [launch.ended for launch in manager.launched if launch.ended is not None]


# -- who is called ----------------------------------------------------------------------------------------------------


def test_a_task_that_succeeds_calls_on_success_and_has_nothing_to_tell_on_failure() -> None:
    manager = InMemoryManager(chain(*ALL_OF_A))
    backfill = done(manager)
    assert states_of(manager) == {
        "a": s.SUCCESS, "b": s.SUCCESS, "a.on_success": s.SUCCESS, "a.on_failure": s.SKIPPED
    }  # fmt: skip
    assert task_of(manager, FIRST, "a.on_failure").error == "nothing to report"
    assert reported(manager) == [Ended("a", s.SUCCESS)]
    assert manager.states(backfill) == {s.SUCCESS: 1}


def test_a_task_calls_on_failure_after_its_last_try_and_at_once() -> None:
    """While other tasks of the run go on."""
    spec = dag_spec("d", "a", "slow", callbacks=ALL_OF_A, each={"a": {"retries": 2}})
    manager = InMemoryManager(spec, script=goes_on("slow", failing=("a",)))
    done(manager)
    assert order(manager) == ["a", "slow", "a", "a", "a.on_failure"]
    assert reported(manager) == [Ended("a", s.FAILED, "boom")]
    manager.finish(key_of(manager, FIRST, "slow"), Succeeded())
    nothing_hangs(manager)
    assert states_of(manager)["a.on_success"] == s.SKIPPED


@pytest.mark.parametrize(("outcome", "b"), [(Failed("boom"), s.UPSTREAM_FAILED), (Skipped("no data"), s.SKIPPED)])
def test_what_was_skipped_or_could_not_start_calls_nobody(outcome: Outcome, b: str) -> None:
    manager = InMemoryManager(chain("b.on_success", "b.on_failure"), script=lambda _: outcome)
    done(manager)
    assert states_of(manager) == {
        "a": outcome_state(outcome),
        "b": b,
        "b.on_success": s.SKIPPED,
        "b.on_failure": s.SKIPPED,
    }
    assert order(manager) == ["a"]


def outcome_state(outcome: Outcome) -> str:
    return s.FAILED if isinstance(outcome, Failed) else s.SKIPPED


@pytest.mark.parametrize(
    ("failing", "called", "ended"),
    [
        ((), "on_success", Ended(None, s.SUCCESS)),
        (("a",), "on_failure", Ended(None, s.FAILED, "failed: a")),
    ],
)
def test_the_run_calls_when_all_its_tasks_and_their_callbacks_have_finished(
    failing: tuple[str, ...], called: str, ended: Ended
) -> None:
    manager = InMemoryManager(chain(*ALL_OF_A, *OF_THE_RUN), script=goes_on(*ALL_OF_A, failing=failing))
    done(manager)
    assert called not in order(manager), "a callback of a task goes on"
    manager.finish(key_of(manager, FIRST, f"a.{called}"), Succeeded())
    nothing_hangs(manager)
    assert order(manager)[-1] == called
    assert reported(manager)[-1] == ended


def test_a_run_ends_after_its_callbacks() -> None:
    manager = InMemoryManager(chain(*OF_THE_RUN), script=goes_on("on_success"))
    backfill = done(manager)
    assert [run.state for run in manager.runs("d")] == [s.RUNNING]
    assert manager.states(backfill) == {s.RUNNING: 1}
    manager.finish(key_of(manager, FIRST), Succeeded())
    nothing_hangs(manager)
    assert [run.state for run in manager.runs("d")] == [s.SUCCESS]
    assert manager.row(backfill).state == s.SUCCESS


# -- they decide nothing ----------------------------------------------------------------------------------------------


def test_a_callback_that_fails_changes_nothing_of_the_run_and_the_log_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    manager = InMemoryManager(chain(*ALL_OF_A, *OF_THE_RUN), script=fails(*ALL_OF_A, *OF_THE_RUN))
    backfill = done(manager)
    assert [(run.state, run.reason) for run in manager.runs("d")] == [(s.SUCCESS, None)]
    assert manager.row(backfill).state == s.SUCCESS
    assert reported(manager)[-1] == Ended(None, s.SUCCESS), "the run is not message of it"
    assert (task_of(manager, FIRST, "a.on_success").state, task_of(manager, FIRST, "a.on_success").error) == (
        s.FAILED,
        "boom",
    )
    warning = capsys.readouterr().err.splitlines()[0]
    assert "level=warning" in warning and "a.on_success" in warning and "boom" in warning


def test_a_callback_that_fails_is_not_the_reason_of_a_run_that_failed() -> None:
    manager = InMemoryManager(chain("a.on_failure"), script=fails("a", "a.on_failure"))
    done(manager)
    assert [(run.state, run.reason) for run in manager.runs("d")] == [(s.FAILED, "failed: a")]


def test_a_callback_has_tries_and_a_state_like_any_task() -> None:
    spec = chain("a.on_success", each={"a.on_success": {"retries": 1}})
    manager = InMemoryManager(
        spec, script=lambda launch: Failed("boom") if launch.ended and not launch.ti.failures else Succeeded()
    )
    done(manager)
    assert (task_of(manager, FIRST, "a.on_success").state, task_of(manager, FIRST, "a.on_success").try_number) == (
        s.SUCCESS,
        2,
    )
    tries = [(row.try_number, row.state) for row in manager.store.read(TaskTry) if row.task_id == "a.on_success"]
    assert sorted(tries) == [(1, s.FAILED), (2, s.SUCCESS)]


def test_a_task_that_depends_on_the_past_does_not_wait_for_callbacks() -> None:
    spec = chain(*ALL_OF_A, each={"a": {"depends_on_past": True}})
    manager = InMemoryManager(spec, script=goes_on("a.on_success"))
    done(manager, 2, max_active_runs=2)
    assert states_of(manager, SECOND)["a"] == s.SUCCESS


def test_callbacks_run_in_the_pool_of_the_run_with_its_version_and_settings() -> None:
    manager = InMemoryManager(
        chain("a.on_success", "on_success"), scheduled=True, clock=FakeClock(JANUARY[0][0].replace(tzinfo=UTC))
    )
    backfill = manager.backfill("d", JANUARY[:1], overrides_json=json.dumps({"on_success.timeout": 7, "timeout": 5}))
    manager.add_dag(chain("a.on_success", "on_success", tags=("another version",)))
    play(manager, "2013-01-02 00:00")
    assert manager.row(backfill).state == s.SUCCESS
    calls = [launch for launch in manager.launched if launch.ended]
    of_backfill = [launch for launch in calls if launch.run.run_type == s.BACKFILL_RUN]
    assert {(launch.pool, launch.version.version) for launch in of_backfill} == {("backfill", 1)}
    assert [launch.task.timeout for launch in of_backfill] == [None, 7], "only by its own id"
    others = {(launch.pool, launch.version.version) for launch in calls if launch not in of_backfill}
    assert others == {("scheduled", 2)}


def test_a_run_with_callbacks_takes_no_more_slots_than_its_pool_has() -> None:
    manager = InMemoryManager(chain("on_success", max_active_tasks=1), script=goes_on("on_success"))
    done(manager, 2, max_active_runs=2)
    assert len(manager.running) == 1


# -- which of them go with a run --------------------------------------------------------------------------------------


def test_a_callback_goes_with_its_task_whatever_the_expression_says() -> None:
    manager = InMemoryManager(chain(*ALL_OF_A, "b.on_success", "on_success"))
    done(manager, tasks="^b$", with_upstream=False)
    assert order(manager) == ["b", "b.on_success", "on_success"]
    assert {states_of(manager)[task_id] for task_id in ("a", *ALL_OF_A)} == {s.SKIPPED}


def test_an_expression_that_is_found_in_a_callbacks_id_only_chooses_nothing() -> None:
    from backfill_manager.dags.task_selection import selected_tasks

    assert selected_tasks("on_", chain(*ALL_OF_A, *OF_THE_RUN)) == ()


def test_a_backfill_that_only_marks_success_calls_nobody() -> None:
    manager = InMemoryManager(chain(*ALL_OF_A, *OF_THE_RUN))
    backfill = done(manager, mark_success=True)
    assert manager.row(backfill).state == s.SUCCESS
    assert not manager.launched
    assert {states_of(manager)[task_id] for task_id in (*ALL_OF_A, *OF_THE_RUN)} == {s.SKIPPED}


def test_a_task_run_by_hand_calls_nobody_and_a_callback_can_not_be_run_by_hand() -> None:
    manager = InMemoryManager(chain(*ALL_OF_A, *OF_THE_RUN))
    accepted(manager, "task.run", dag_id="d", task_id="a", logical_date="2013-01-01T00:00:00Z")
    assert order(manager) == ["a"]
    assert [ti.task_id for ti in manager.tasks("d")] == ["a"]
    why = refused(manager, "task.run", dag_id="d", task_id="a.on_failure", logical_date="2013-01-01T00:00:00Z")
    assert "a.on_failure is a callback" in why and "clear this task" in why


# -- deadlocks --------------------------------------------------------------------------------------------------------


def deadlocked() -> tuple[InMemoryManager, str]:
    """The first day fails, so the second can never start: it waits for its past."""
    spec = chain("b.on_failure", *OF_THE_RUN, each={"a": {"depends_on_past": True}}, batchable=True)
    manager = InMemoryManager(spec, script=lambda launch: Failed("boom") if launch.run.run_id == FIRST else Succeeded())
    return manager, done(manager, 5, max_active_runs=1)


def test_a_deadlocked_run_calls_on_failure_and_says_what_blocks() -> None:
    manager, backfill = deadlocked()
    nothing_hangs(manager)
    _, second = manager.runs("d")
    assert (second.state, second.started_at) == (s.FAILED, None)
    assert second.reason is not None and second.reason.startswith("deadlock: task 'a' of run")
    assert reported(manager)[-1] == Ended(None, s.FAILED, second.reason)
    assert manager.row(backfill).reason == second.reason
    assert manager.states(backfill) == {s.FAILED: 5}, "the others would meet the same"


def of_poison(*task_ids: str) -> Callable[[TaskLaunch], Outcome | None]:
    """Of these tasks those fail that have January 3 in their interval."""

    def script(launch: TaskLaunch) -> Outcome:
        start, end = launch.run.interval_start, launch.run.interval_end
        assert start is not None and end is not None
        is_poisoned = start <= datetime(2013, 1, 3, tzinfo=UTC) < end
        return Failed("boom") if is_poisoned and launch.task.task_id in task_ids else Succeeded()

    return script


@pytest.mark.parametrize("failing", ["a", "b"])
def test_of_a_batch_and_its_halves_only_what_is_not_split_calls_on_failure(failing: str) -> None:
    manager = InMemoryManager(chain("a.on_failure", *OF_THE_RUN, batchable=True), script=of_poison(failing))
    backfill = done(manager, 4, batch=4)
    nothing_hangs(manager)
    assert manager.states(backfill) == {s.SUCCESS: 3, s.FAILED: 1}
    called = [(it.run.run_id, it.task.task_id) for it in manager.launched if "on_failure" in it.task.task_id]
    of_task = [("backfill__2013-01-03T00:00:00Z__2", "a.on_failure")] if failing == "a" else []
    assert called == [*of_task, ("backfill__2013-01-03T00:00:00Z__2", "on_failure")]
    batch = {ti.task_id: ti.error for ti in manager.tasks("d") if ti.run_id == FIRST}
    assert batch["on_failure"] == BY_HALVES and batch["on_success"] == NOTHING_TO_REPORT


def test_a_batch_that_fails_while_its_managers_die_calls_on_failure_by_its_halves_alone() -> None:
    for commits in range(1, 12):
        manager = InMemoryManager(chain("a.on_failure", "on_failure", batchable=True), script=of_poison("a"))
        manager.backfill("d", JANUARY[2:4], batch=2)
        dies_after(manager, commits)
        nothing_hangs(manager)
        called = {(it.run.run_id, it.task.task_id) for it in manager.launched if "on_failure" in it.task.task_id}
        half = "backfill__2013-01-03T00:00:00Z__2"
        assert called == {(half, "a.on_failure"), (half, "on_failure")}, commits


def test_a_batch_of_a_lookback_is_not_split_and_calls_on_failure() -> None:
    settings = {"batchable": True, "lookback": 2, "start_date": datetime(2013, 1, 1, tzinfo=UTC), "catchup": True}
    manager = InMemoryManager(chain("on_failure", **settings), clock=FakeClock(datetime(2013, 1, 3, tzinfo=UTC)))
    manager.backfill("d", JANUARY[:2], batch=2)
    manager.drain()
    manager.script = fails("a")
    accepted(manager, "dag.unpause", dag_id="d")
    play(manager, "2013-01-04")
    again = "scheduled__2013-01-01T00:00:00Z__2"
    assert (again, "on_failure") in [(it.run.run_id, it.task.task_id) for it in manager.launched]


def test_a_batch_that_never_began_is_not_halved_because_of_its_notification() -> None:
    manager = InMemoryManager(
        chain("on_failure", each={"a": {"depends_on_past": True}}, batchable=True), script=fails("a")
    )
    done(manager, 1)
    backfill = manager.backfill("d", JANUARY[1:3], batch=2, ignore_first_depends_on_past=False)
    manager.drain()
    nothing_hangs(manager)
    assert manager.states(backfill) == {s.FAILED: 2}
    batch = manager.runs("d")[1]
    assert (batch.items, batch.state, batch.started_at) == (2, s.FAILED, None)
    assert order(manager) == ["a", "on_failure", "on_failure"]
    accepted(manager, "tasks.clear", **clear("d", run_ids=[batch.run_id], tasks="on_failure"))
    nothing_hangs(manager)
    assert order(manager) == ["a", "on_failure", "on_failure", "on_failure"]
    assert manager.states(backfill) == {s.FAILED: 2}, "nor because it was called again"


# -- cancel and mark --------------------------------------------------------------------------------------------------


def test_a_cancelled_run_calls_nobody() -> None:
    manager = InMemoryManager(chain(*ALL_OF_A, *OF_THE_RUN), script=never)
    backfill = done(manager)
    accepted(manager, "run.cancel", dag_id="d", run_id=FIRST)
    nothing_hangs(manager)
    assert set(states_of(manager).values()) == {s.CANCELLED}
    assert manager.row(backfill).state == s.FAILED


def test_a_cancelled_backfill_stops_its_callbacks_and_a_run_that_had_done_its_work_keeps_its_state() -> None:
    manager = InMemoryManager(chain("on_success"), script=goes_on("on_success"))
    backfill = done(manager)
    accepted(manager, "backfill.cancel", backfill_id=backfill, let_running_finish=False)
    nothing_hangs(manager)
    assert states_of(manager) == {"a": s.SUCCESS, "b": s.SUCCESS, "on_success": s.CANCELLED}
    assert manager.states(backfill) == {s.SUCCESS: 1}


def test_a_cancelled_run_of_which_only_a_callback_is_left_is_reported_as_what_it_is() -> None:
    manager = InMemoryManager(chain("on_success"), script=goes_on("on_success"))
    done(manager)
    answer = accepted(manager, "run.cancel", dag_id="d", run_id=FIRST)
    assert answer.message == f"the tasks of run {FIRST} had finished; its callbacks are cancelled"
    assert [run.state for run in manager.runs("d")] == [s.SUCCESS]


@pytest.mark.parametrize("state", [s.SUCCESS, s.FAILED])
def test_a_run_that_a_person_marks_calls_nobody(state: str) -> None:
    manager = InMemoryManager(chain(*ALL_OF_A, *OF_THE_RUN), script=never)
    done(manager)
    accepted(manager, "run.mark", dag_id="d", run_id=FIRST, state=state)
    nothing_hangs(manager)
    assert order(manager) == ["a"]
    states = states_of(manager)
    assert {states[task_id] for task_id in (*ALL_OF_A, *OF_THE_RUN)} == {s.SKIPPED}
    assert [run.state for run in manager.runs("d")] == [state]


def test_marking_a_run_stops_the_callback_that_is_under_way_and_a_failed_one_marks_nothing() -> None:
    manager = InMemoryManager(
        chain("a.on_success", "on_success"), script=goes_on("on_success", failing=("a.on_success",))
    )
    done(manager)
    accepted(manager, "run.mark", dag_id="d", run_id=FIRST, state=s.FAILED)
    nothing_hangs(manager)
    assert states_of(manager) == {
        "a": s.SUCCESS, "b": s.FAILED, "a.on_success": s.FAILED, "on_success": s.CANCELLED
    }  # fmt: skip
    assert [run.state for run in manager.runs("d")] == [s.FAILED]


@pytest.mark.parametrize("state", [s.SUCCESS, s.FAILED])
def test_a_task_that_a_person_marks_calls_nobody_but_the_run_tells_how_it_ended(state: str) -> None:
    spec = dag_spec("d", "a", "b", callbacks=(*ALL_OF_A, *OF_THE_RUN))
    manager = InMemoryManager(spec, script=goes_on("a", "b"))
    done(manager)
    accepted(manager, "task.mark", dag_id="d", run_id=FIRST, task_id="a", state=state)
    assert {states_of(manager)[task_id] for task_id in ALL_OF_A} == {s.SKIPPED}
    manager.finish(key_of(manager, FIRST, "b"), Succeeded())
    nothing_hangs(manager)
    assert [ended.state for ended in reported(manager)] == [state]


def test_a_marked_task_that_lets_others_run_has_the_run_tell_anew() -> None:
    manager = InMemoryManager(chain("a.on_failure", "b.on_success", *OF_THE_RUN), script=fails("a"))
    done(manager)
    assert order(manager) == ["a", "a.on_failure", "on_failure"]
    manager.launched.clear()
    accepted(manager, "task.mark", dag_id="d", run_id=FIRST, task_id="a", state=s.SUCCESS)
    nothing_hangs(manager)
    assert order(manager) == ["b", "b.on_success", "on_success"]
    assert [run.state for run in manager.runs("d")] == [s.SUCCESS]
    assert states_of(manager)["a.on_failure"] == s.SUCCESS, "its outcome was real"


def test_a_marked_task_of_a_run_with_callbacks_waits_for_it_to_stop_and_has_them_called_anew() -> None:
    manager = InMemoryManager(chain(*OF_THE_RUN), script=goes_on("on_failure", failing=("a",)))
    done(manager)
    manager.script = fails()
    accepted(manager, "task.mark", dag_id="d", run_id=FIRST, task_id="a", state=s.SUCCESS)
    nothing_hangs(manager)
    assert order(manager) == ["a", "on_failure", "b", "on_success"]
    assert states_of(manager)["on_failure"] == s.SKIPPED


def test_a_callback_that_waits_for_its_next_try_is_not_called_after_a_mark() -> None:
    spec = dag_spec("d", "a", callbacks=OF_THE_RUN, each={"on_failure": {"retries": 1}})
    manager = InMemoryManager(spec, script=fails("a", "on_failure"))
    manager.backfill("d", JANUARY[:1])
    while states_of(manager).get("on_failure") != s.UP_FOR_RETRY:
        manager.tick()
    accepted(manager, "task.mark", dag_id="d", run_id=FIRST, task_id="a", state=s.SUCCESS)
    nothing_hangs(manager)
    assert order(manager) == ["a", "on_failure"]
    assert states_of(manager)["on_failure"] == s.SKIPPED
    assert [run.state for run in manager.runs("d")] == [s.SUCCESS]


# -- clear, retry, new versions ---------------------------------------------------------------------------------------


def test_what_is_cleared_calls_back_again_with_the_new_outcome() -> None:
    manager = InMemoryManager(chain(*ALL_OF_A, *OF_THE_RUN), script=fails("a"))
    done(manager)
    manager.launched.clear()
    manager.script = fails()
    answer = accepted(manager, "tasks.clear", **clear("d", only_failed=True))
    nothing_hangs(manager)
    assert "6 tasks in 1 run" in answer.message
    assert order(manager) == ["a", "b", "a.on_success", "on_success"]
    assert reported(manager) == [Ended("a", s.SUCCESS), Ended(None, s.SUCCESS)]
    assert [states_of(manager)[task_id] for task_id in ("a.on_failure", "on_failure")] == [s.SKIPPED] * 2
    assert [run.state for run in manager.runs("d")] == [s.SUCCESS]


def test_a_cleared_task_has_its_own_callbacks_and_those_of_the_run_called_and_no_others() -> None:
    manager = InMemoryManager(chain("a.on_success", "b.on_success", "on_success"))
    done(manager)
    manager.launched.clear()
    accepted(manager, "tasks.clear", **clear("d", tasks="^b"))
    nothing_hangs(manager)
    assert order(manager) == ["b", "b.on_success", "on_success"]


@pytest.mark.parametrize("named", ["a.on_failure", r"^a\.on_failure$"])
def test_a_callback_by_its_whole_id_tells_again_and_nothing_else_runs(named: str) -> None:
    manager = InMemoryManager(chain(*ALL_OF_A, "on_failure"), script=fails("a", "a.on_failure"))
    backfill = done(manager)
    manager.launched.clear()
    manager.script = fails()
    accepted(manager, "tasks.clear", **clear("d", tasks=named))
    nothing_hangs(manager)
    assert order(manager) == ["a.on_failure"]
    assert reported(manager) == [Ended("a", s.FAILED, "boom")]
    assert [(run.state, run.reason) for run in manager.runs("d")] == [(s.FAILED, "failed: a")]
    assert manager.row(backfill).state == s.FAILED


def test_a_callback_of_the_run_that_waits_for_a_slot_gets_the_same_when_one_of_a_task_is_cleared() -> None:
    spec = dag_spec("d", "a", callbacks=("a.on_failure", "on_failure"), each={"on_failure": {"max_active_tis": 1}})
    manager = InMemoryManager(spec, script=goes_on("on_failure", failing=("a",)))
    done(manager, 2, max_active_runs=2)
    (waiting,) = [ti for ti in manager.tasks("d", "on_failure") if ti.state == s.SCHEDULED]
    accepted(manager, "tasks.clear", **clear("d", run_ids=[waiting.run_id], tasks="a.on_failure"))
    manager.script = fails()
    manager.finish(next(iter(manager.running)), Succeeded())
    nothing_hangs(manager)
    of_run = [launch.ended for launch in manager.launched if launch.task.task_id == "on_failure"]
    assert of_run == [Ended(None, s.FAILED, "failed: a")] * 2


def test_a_callback_under_way_is_stopped_before_its_task_is_cleared() -> None:
    manager = Stubborn(chain(*OF_THE_RUN), script=goes_on("on_failure", failing=("a",)))
    done(manager)
    manager.ask("tasks.clear", **clear("d", tasks="a", downstream=True))
    manager.drain()
    assert order(manager) == ["a", "on_failure"], "it has not stopped yet"
    manager.script = fails()
    manager.give_in(FIRST)
    nothing_hangs(manager)
    assert order(manager) == ["a", "on_failure", "a", "b", "on_success"]
    assert [run.state for run in manager.runs("d")] == [s.SUCCESS]


def test_a_task_stopped_to_be_cleared_calls_back_when_it_has_run() -> None:
    """While the other one is being stopped, too, its callbacks have nothing to tell; then they do."""
    spec = dag_spec("d", "a", "b", callbacks=(*ALL_OF_A, "b.on_success", "on_success"))
    manager = Stubborn(spec, script=never)
    done(manager)
    manager.ask("tasks.clear", **clear("d"))
    manager.drain()
    manager.script = fails()
    for task_id in ("a", "b"):
        super(Stubborn, manager).finish(key_of(manager, FIRST, task_id), Failed("asked to stop"))
        manager.drain()
    nothing_hangs(manager)
    assert sorted(order(manager)[-5:]) == ["a", "a.on_success", "b", "b.on_success", "on_success"]
    assert [run.state for run in manager.runs("d")] == [s.SUCCESS]


def test_a_retry_of_a_backfill_calls_back_for_what_failed() -> None:
    manager = InMemoryManager(chain(*OF_THE_RUN), script=fails("a"))
    backfill = done(manager)
    manager.script = fails()
    accepted(manager, "backfill.retry", backfill_id=backfill)
    nothing_hangs(manager)
    assert [ended.state for ended in reported(manager)] == [s.FAILED, s.SUCCESS]


def test_a_run_moved_to_a_version_without_its_callbacks_loses_them_and_one_with_more_gains_them() -> None:
    manager = InMemoryManager(chain(*ALL_OF_A))
    done(manager)
    manager.add_dag(chain("a.on_success", "on_success"))
    manager.launched.clear()
    accepted(manager, "tasks.clear", **clear("d", latest_version=True))
    nothing_hangs(manager)
    assert order(manager) == ["a", "b", "a.on_success", "on_success"]
    assert states_of(manager)["a.on_failure"] == s.REMOVED


def test_a_version_stored_before_there_were_callbacks_can_be_read() -> None:
    manager = InMemoryManager(chain())
    (version,) = manager.store.read(DagVersion)
    assert "calls_back" not in version.definition_json and "watches" not in version.definition_json
    assert DagSpec.from_json(version.definition_json) == chain()
    assert DagSpec.from_json(chain(*ALL_OF_A, *OF_THE_RUN).to_json()) == chain(*ALL_OF_A, *OF_THE_RUN)


# -- crashes ----------------------------------------------------------------------------------------------------------


def test_a_callback_that_the_managers_end_broke_off_tells_again_and_costs_no_try() -> None:
    manager = InMemoryManager(chain("on_failure"), script=goes_on("on_failure", failing=("a",)))
    backfill = done(manager)
    manager.script = fails()
    manager.crash()
    nothing_hangs(manager)
    assert order(manager) == ["a", "on_failure", "on_failure"], "at least once; its task is not run again"
    assert reported(manager) == [Ended(None, s.FAILED, "failed: a")] * 2
    ti = task_of(manager, FIRST, "on_failure")
    assert (ti.state, ti.try_number, ti.launch) == (s.SUCCESS, 1, 2)
    assert manager.row(backfill).state == s.FAILED


def a_failure() -> InMemoryManager:
    manager = InMemoryManager(chain(*ALL_OF_A, *OF_THE_RUN), script=fails("a"))
    manager.backfill("d", JANUARY[:2], max_active_runs=2)
    return manager


def a_deadlock() -> InMemoryManager:
    spec = chain("on_failure", each={"a": {"depends_on_past": True}})
    manager = InMemoryManager(spec, script=lambda launch: Failed("boom") if launch.run.run_id == FIRST else Succeeded())
    manager.backfill("d", JANUARY[:3])
    return manager


def a_clear() -> InMemoryManager:
    manager = InMemoryManager(chain(*ALL_OF_A, *OF_THE_RUN), script=fails("a"))
    done(manager)
    manager.script = fails()
    manager.ask("tasks.clear", **clear("d", only_failed=True))
    return manager


def a_mark() -> InMemoryManager:
    manager = InMemoryManager(chain(*ALL_OF_A, *OF_THE_RUN), script=fails("a"))
    done(manager)
    manager.script = fails()
    manager.ask("task.mark", dag_id="d", run_id=FIRST, task_id="a", state=s.SUCCESS)
    return manager


@pytest.mark.parametrize("history", [a_failure, a_deadlock, a_clear, a_mark], ids=lambda history: history.__name__)
def test_killed_after_any_table_the_same_is_reported(history: Callable[[], InMemoryManager]) -> None:
    def outcome(manager: InMemoryManager) -> object:
        tasks = {(ti.run_id, ti.task_id, ti.state, ti.error) for ti in manager.store.read(TaskInstance)}
        runs = {(run.run_id, run.state, run.reason) for run in manager.runs("d")}
        calls = {(launch.run.run_id, launch.task.task_id, launch.ended) for launch in manager.launched if launch.ended}
        return tasks, runs, calls

    whole = history()
    whole.drain()
    for tables in range(100):
        manager = history()
        was_killed = dies_after(manager, tables)
        nothing_hangs(manager)
        assert outcome(manager) == outcome(whole), f"killed after {tables} tables"
        if not was_killed:
            return
    raise AssertionError("it commits more tables than are tried here")
