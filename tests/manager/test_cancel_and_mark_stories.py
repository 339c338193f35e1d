"""Cancel and mark, as docs/semantics.md ("Clear and re-run") tells them, without Spark, Delta or a JVM."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.run_operations import FIRST, SECOND, THREE, done, fails, states_of
from support.scenarios import (
    Stubborn,
    accepted,
    clear,
    dies_after,
    key_of,
    never,
    nothing_hangs,
    refused,
    response_to,
    task_of,
    timeline,
)  # fmt: skip

from backfill_manager.execution.messages import Failed, Succeeded
from backfill_manager.model import states as s
from backfill_manager.model.records import Response
from backfill_manager.testing import InMemoryManager, dag_spec, days


def test_a_cancelled_run_is_stopped_and_the_others_go_on() -> None:
    manager = Stubborn(THREE, script=never)
    done(manager, 2)
    manager.ask("run.cancel", dag_id="d", run_id=FIRST)
    manager.drain()
    assert not manager.store.read(Response)
    manager.give_in(FIRST)
    manager.drain()
    assert [run.state for run in manager.runs("d")] == [s.CANCELLED, s.RUNNING]
    assert states_of(manager, FIRST) == {"a": s.CANCELLED, "b": s.CANCELLED, "c": s.CANCELLED}
    manager.script = lambda _: Succeeded()
    manager.finish(key_of(manager, SECOND), Succeeded())
    nothing_hangs(manager)
    assert manager.runs("d")[1].state == s.SUCCESS
    assert "success already" in refused(manager, "run.cancel", dag_id="d", run_id=SECOND)
    assert "There is no run" in refused(manager, "run.cancel", dag_id="d", run_id="nope")
    assert response_to(manager, "run.cancel", dag_id="d", run_id=FIRST).outcome == "accepted", "twice is once"


def test_a_run_that_ends_before_it_could_be_stopped_is_not_called_cancelled() -> None:
    manager = Stubborn(dag_spec("d", "a"), script=never)
    done(manager)
    manager.ask("run.cancel", dag_id="d", run_id=FIRST)
    manager.drain()
    manager.finish(key_of(manager, FIRST), Succeeded())
    nothing_hangs(manager)
    (answer,) = manager.store.read(Response)
    assert (answer.outcome, manager.runs("d")[0].state) == ("refused", s.SUCCESS)


def test_a_finished_run_marked_success_or_failed_counts_so_for_its_backfill() -> None:
    manager = InMemoryManager(THREE, script=fails("b "))
    backfill = done(manager)
    accepted(manager, "run.mark", dag_id="d", run_id=FIRST, state="success")
    nothing_hangs(manager)
    assert states_of(manager, FIRST) == {"a": s.SUCCESS, "b": s.SUCCESS, "c": s.SUCCESS}
    assert (manager.runs("d")[0].state, manager.row(backfill).state) == (s.SUCCESS, s.SUCCESS)
    accepted(manager, "run.mark", dag_id="d", run_id=FIRST, state="failed")
    nothing_hangs(manager)
    assert (manager.runs("d")[0].state, manager.row(backfill).state) == (s.FAILED, s.FAILED)
    assert states_of(manager, FIRST) == {"a": s.SUCCESS, "b": s.SUCCESS, "c": s.FAILED}


@pytest.mark.parametrize("state", ["success", "failed"])
def test_a_live_run_is_stopped_before_it_is_marked(state: str) -> None:
    manager = Stubborn(THREE, script=never)
    backfill = done(manager)
    manager.ask("run.mark", dag_id="d", run_id=FIRST, state=state)
    manager.drain()
    assert manager.runs("d")[0].state == s.RUNNING
    manager.give_in(FIRST)
    nothing_hangs(manager)
    assert set(states_of(manager, FIRST).values()) == {state}
    assert (manager.runs("d")[0].state, manager.row(backfill).state) == (state, state)
    assert len(manager.launched) == 1


def test_a_task_marked_success_lets_what_could_not_start_begin() -> None:
    manager = InMemoryManager(THREE, script=fails("a "))
    backfill = done(manager)
    assert states_of(manager, FIRST) == {"a": s.FAILED, "b": s.UPSTREAM_FAILED, "c": s.UPSTREAM_FAILED}
    accepted(manager, "task.mark", dag_id="d", run_id=FIRST, task_id="a", state="success")
    nothing_hangs(manager)
    assert states_of(manager, FIRST) == {"a": s.SUCCESS, "b": s.SUCCESS, "c": s.SUCCESS}
    assert manager.row(backfill).state == s.SUCCESS


@pytest.mark.parametrize("state", ["success", "failed", "skipped"])
def test_a_task_of_an_ended_run_that_is_marked_keeps_its_start_end_and_duration(state: str) -> None:
    manager = InMemoryManager(THREE, script=never)
    done(manager)
    for task_id, outcome in (("a", Succeeded()), ("b", Succeeded()), ("c", Failed("boom"))):
        manager.clock.advance(seconds=40)
        manager.finish(key_of(manager, FIRST, task_id), outcome)
        manager.drain()
    before = task_of(manager, FIRST, "c")
    assert before.duration_s == 40
    manager.clock.advance(hours=1)
    accepted(manager, "task.mark", dag_id="d", run_id=FIRST, task_id="c", state=state)
    nothing_hangs(manager)
    after = task_of(manager, FIRST, "c")
    assert after.state == state
    assert (after.started_at, after.ended_at, after.duration_s) == (before.started_at, before.ended_at, 40)


@pytest.mark.parametrize(("marked", "failing"), [("run", "c "), ("task", "c "), ("run", "b ")])
def test_a_run_that_is_marked_keeps_its_start_and_its_end(marked: str, failing: str) -> None:
    manager = InMemoryManager(THREE, script=fails(failing))
    done(manager)
    (before,) = manager.runs("d")
    assert before.state == s.FAILED and before.started_at is not None
    manager.clock.advance(hours=1)
    which = {} if marked == "run" else {"task_id": "c"}
    accepted(manager, f"{marked}.mark", dag_id="d", run_id=FIRST, **which, state="success")
    nothing_hangs(manager)
    (after,) = manager.runs("d")
    assert after == before.evolve(state=s.SUCCESS, reason=None)


def test_a_cleared_run_of_which_nothing_starts_again_ends_when_it_fails_again() -> None:
    manager = InMemoryManager(THREE, script=fails("a "))
    done(manager)
    manager.clock.advance(hours=1)
    at = manager.clock.now()
    accepted(manager, "tasks.clear", **clear("d", tasks="^b$"))
    nothing_hangs(manager)
    (after,) = manager.runs("d")
    assert after.state == s.FAILED and after.ended_at is not None and after.ended_at >= at


def test_a_run_in_which_a_mark_lets_tasks_begin_starts_and_ends_with_them() -> None:
    manager = InMemoryManager(THREE, script=fails("a "))
    done(manager)
    manager.clock.advance(hours=1)
    at = manager.clock.now()
    accepted(manager, "task.mark", dag_id="d", run_id=FIRST, task_id="a", state="success")
    nothing_hangs(manager)
    (after,) = manager.runs("d")
    assert after.started_at is not None and after.ended_at is not None and at <= after.started_at <= after.ended_at


def test_a_task_that_never_began_and_is_marked_ends_at_its_mark() -> None:
    manager = InMemoryManager(THREE, script=fails("a "))
    done(manager)
    manager.clock.advance(hours=1)
    accepted(manager, "task.mark", dag_id="d", run_id=FIRST, task_id="b", state="failed")
    nothing_hangs(manager)
    marked = task_of(manager, FIRST, "b")
    assert (marked.started_at, marked.duration_s) == (None, None)
    assert marked.ended_at is not None and task_of(manager, FIRST, "a").ended_at is not None
    assert marked.ended_at - task_of(manager, FIRST, "a").ended_at >= timedelta(hours=1)


def test_a_task_marked_skipped_skips_what_follows_it() -> None:
    manager = InMemoryManager(THREE, script=fails("a "))
    done(manager)
    accepted(manager, "task.mark", dag_id="d", run_id=FIRST, task_id="a", state="skipped")
    nothing_hangs(manager)
    assert states_of(manager, FIRST) == {"a": s.SKIPPED, "b": s.SKIPPED, "c": s.SKIPPED}
    assert manager.runs("d")[0].state == s.SUCCESS


def test_a_last_task_marked_failed_fails_its_run() -> None:
    manager = InMemoryManager(THREE)
    done(manager)
    accepted(manager, "task.mark", dag_id="d", run_id=FIRST, task_id="c", state="failed")
    nothing_hangs(manager)
    assert manager.runs("d")[0].state == s.FAILED


@pytest.mark.parametrize("state", ["success", "failed", "skipped"])
def test_a_running_task_is_stopped_before_it_is_marked(state: str) -> None:
    manager = Stubborn(THREE, script=never)
    done(manager)
    manager.ask("task.mark", dag_id="d", run_id=FIRST, task_id="a", state=state)
    manager.drain()
    assert states_of(manager, FIRST)["a"] == s.RUNNING
    manager.script = lambda _: Succeeded()
    manager.give_in(FIRST)
    nothing_hangs(manager)
    then = {"success": s.SUCCESS, "failed": s.UPSTREAM_FAILED, "skipped": s.SKIPPED}[state]
    assert states_of(manager, FIRST) == {"a": state, "b": then, "c": then}


def test_mark_of_what_is_not_there_names_what_is_near() -> None:
    manager = InMemoryManager(THREE)
    done(manager)
    assert "There is no task" in refused(manager, "task.mark", dag_id="d", run_id=FIRST, task_id="x", state="failed")
    done(manager, reprocess="completed")
    assert "overridden" in refused(manager, "run.mark", dag_id="d", run_id=FIRST, state="failed")


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("state", [s.SUCCESS, s.FAILED])
def test_a_task_that_the_backfill_left_out_counts_once_it_is_marked(state: str, restarts: bool) -> None:
    manager = InMemoryManager(THREE, script=never)
    done(manager, tasks="^b$")
    accepted(manager, "task.mark", dag_id="d", run_id=FIRST, task_id="c", state=state)
    if restarts:
        manager.crash()
        manager.drain()
    manager.script = lambda _: Succeeded()
    manager.finish(key_of(manager, FIRST, "a"), Succeeded())
    nothing_hangs(manager)
    assert states_of(manager, FIRST) == {"a": s.SUCCESS, "b": s.SUCCESS, "c": state}
    assert manager.runs("d")[0].state == state


@pytest.mark.parametrize("state", [s.SUCCESS, s.FAILED])
def test_a_task_that_was_left_out_and_is_marked_after_the_end_counts_too(state: str) -> None:
    manager = InMemoryManager(THREE)
    backfill = done(manager, tasks="^b$")
    accepted(manager, "task.mark", dag_id="d", run_id=FIRST, task_id="c", state=state)
    nothing_hangs(manager)
    assert manager.runs("d")[0].state == manager.row(backfill).state == state


def test_marking_a_failed_past_ends_a_deadlock() -> None:
    spec = dag_spec("d", "a", each={"a": {"depends_on_past": True}})
    manager = InMemoryManager(spec, script=fails("2013-01-01"))
    backfill = done(manager, 3, max_active_runs=1)
    assert manager.row(backfill).state == s.FAILED
    accepted(manager, "run.mark", dag_id="d", run_id=FIRST, state="success")
    nothing_hangs(manager)
    accepted(manager, "backfill.retry", backfill_id=backfill)
    nothing_hangs(manager)
    assert (manager.row(backfill).state, manager.states(backfill)) == (s.SUCCESS, {s.SUCCESS: 3})


ROLLING = dag_spec("d", "load", "roll", upstream={"roll": ["load"]}, each={"roll": {"depends_on_past": True}})


@pytest.mark.parametrize(("state", "then"), [("success", s.SUCCESS), ("skipped", s.SUCCESS), ("failed", s.FAILED)])
def test_one_task_of_the_past_that_is_marked_in_time_is_the_past_that_a_live_run_sees(state: str, then: str) -> None:
    manager = InMemoryManager(ROLLING, script=lambda it: None if it.task.task_id == "load" else Failed("boom"))
    backfill = done(manager, 2)
    manager.finish(key_of(manager, FIRST), Succeeded())
    manager.drain()
    assert states_of(manager, FIRST) == {"load": s.SUCCESS, "roll": s.FAILED}
    accepted(manager, "task.mark", dag_id="d", run_id=FIRST, task_id="roll", state=state)
    manager.script = lambda _: Succeeded()
    manager.finish(key_of(manager, SECOND), Succeeded())
    nothing_hangs(manager)
    assert [run.state for run in manager.runs("d")] == [then] * 2
    assert (states_of(manager, FIRST)["roll"], manager.row(backfill).state) == (state, then)
    assert then == s.SUCCESS or "deadlock: task 'roll'" in (manager.runs("d")[1].reason or "")


@pytest.mark.parametrize("state", ["success", "skipped"])
def test_a_past_that_could_not_start_is_a_deadlock_until_one_task_of_it_is_marked(state: str) -> None:
    manager = InMemoryManager(ROLLING, script=fails("load backfill__2013-01-01"))
    backfill = done(manager, 2)
    assert states_of(manager, FIRST) == {"load": s.FAILED, "roll": s.UPSTREAM_FAILED}
    result = manager.runs("d")[1].reason or ""
    assert "deadlock: task 'roll'" in result and f"upstream_failed in the run before, {FIRST}" in result
    accepted(manager, "task.mark", dag_id="d", run_id=FIRST, task_id="load", state=state)
    assert states_of(manager, FIRST) == {"load": state, "roll": state}, "what follows it goes on, or is skipped with it"
    assert manager.runs("d")[1].state == s.FAILED, "a run that has ended stays so until a request"
    accepted(manager, "tasks.clear", **clear("d", only_failed=True))
    nothing_hangs(manager)
    assert states_of(manager, SECOND) == {"load": s.SUCCESS, "roll": s.SUCCESS}
    assert (manager.row(backfill).state, manager.states(backfill)) == (s.SUCCESS, {s.SUCCESS: 2})


@pytest.mark.parametrize("tables", range(10))
@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("run.mark", {"run_id": FIRST, "state": "success"}),
        ("task.mark", {"run_id": FIRST, "task_id": "b", "state": "success"}),
        ("dag.trigger", {"logical_date": "2013-01-01T00:00:00Z", "conf": {"x": 1}}),
        ("task.run", {"task_id": "a", "logical_date": "2013-01-01T00:00:00Z"}),
    ],
)
def test_a_crash_in_the_middle_of_any_repair_leaves_it_done_once(
    kind: str, payload: dict[str, object], tables: int
) -> None:
    manager = InMemoryManager(THREE, script=fails("b backfill"))
    done(manager, 2)
    manager.script = lambda _: Succeeded()
    manager.ask(kind, dag_id="d", **payload)
    dies_after(manager, tables)
    nothing_hangs(manager)
    assert [answer.outcome for answer in manager.store.read(Response)] == ["accepted"]
    standing = timeline(manager, "d")
    assert [run.state for run in standing] == [s.FAILED if kind == "task.run" else s.SUCCESS, s.FAILED]
    extra = {"dag.trigger": 1, "task.run": 1}.get(kind, 0)
    assert len(manager.runs("d")) == 2 + extra


@pytest.mark.parametrize("how", ["partial", "all_done"])
def test_a_run_that_is_marked_failed_is_failed_whatever_its_leaves_are(how: str) -> None:
    each = {"b": {"trigger_rule": "all_done"}} if how == "all_done" else {}
    script = (lambda launch: Failed("x") if launch.task.task_id == "a" else Succeeded()) if each else None
    manager = InMemoryManager(dag_spec("d", "a", "b", upstream={"b": ["a"]}, each=each), script=script)
    manager.backfill("d", days("2013-01-01", 1), **({} if each else {"tasks": "a", "with_upstream": True}))
    nothing_hangs(manager)
    (run,) = manager.runs("d")
    assert run.state == s.SUCCESS
    accepted(manager, "run.mark", dag_id="d", run_id=run.run_id, state="failed")
    nothing_hangs(manager)
    assert [one.state for one in manager.runs("d")] == [s.FAILED]
