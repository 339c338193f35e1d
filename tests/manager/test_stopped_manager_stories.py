"""A manager that ends while work is under way, by a crash or because it is told to: what the next one finds and does."""

from __future__ import annotations

from datetime import timedelta

import pytest
from support.scenarios import JANUARY, PIPELINE, never

from backfill_manager.execution.messages import (
    Lost,
    Succeeded,
    TaskEnded,
)
from backfill_manager.model import states as s
from backfill_manager.model.records import Response, TaskTry
from backfill_manager.requests.submit import id_of_stop, submit
from backfill_manager.testing import FakeClock, InMemoryManager, dag_spec


def test_a_crash_costs_no_try_and_what_had_finished_stays_finished() -> None:
    manager = InMemoryManager(PIPELINE, script=lambda it: Succeeded() if it.task.task_id == "a" else None)
    backfill = manager.backfill("d", JANUARY)
    manager.drain()
    assert {key[2] for key in manager.running} == {"b"}
    manager.crash()
    manager.script = lambda _: Succeeded()
    manager.drain()
    assert manager.row(backfill).state == s.SUCCESS
    assert [(ti.try_number, ti.launch) for ti in manager.tasks("d", "b")] == [(1, 2)] * 5
    assert [(ti.try_number, ti.launch) for ti in manager.tasks("d", "a")] == [(1, 1)] * 5
    tries = [(t.task_id, t.launch, t.state) for t in manager.store.read(TaskTry) if "01-03" in t.run_id]
    assert tries == [("a", 1, "success"), ("b", 1, "lost"), ("b", 2, "success")]


def test_a_task_that_spark_lost_runs_again_without_costing_a_try() -> None:
    lost = iter([Lost("Spark went away"), Succeeded()])
    manager = InMemoryManager(dag_spec("d", "t"), script=lambda _: next(lost))
    manager.backfill("d", JANUARY[:1])
    manager.drain()
    (ti,) = manager.tasks("d")
    assert (ti.state, ti.try_number, ti.failures, ti.launch) == (s.SUCCESS, 1, 0, 2)


def test_a_manager_that_is_stopped_starts_nothing_more_and_the_next_one_goes_on() -> None:
    manager = InMemoryManager(PIPELINE, script=never)
    backfill = manager.backfill("d", JANUARY[:2], max_active_runs=1)
    manager.drain()
    free, now = {"scheduled": 16, "backfill": 16}, manager.clock.now()
    manager.ask("manager.stop", drain=True)
    todo = manager._decisions.decide([], manager.store.unanswered(), free, now)
    manager._decisions.commit(todo)
    assert (todo.stop, todo.drain) == (True, True)
    (answer,) = manager.store.read(Response)
    assert (answer.outcome, answer.message) == ("accepted", "stopping when running tasks have finished")

    (running,) = manager.running
    manager._decisions.draining = True
    last = manager._decisions.decide([TaskEnded(running, Succeeded(), now)], [], free, now)
    manager._decisions.commit(last)
    assert (last.launches, manager.tasks("d", "a")[0].state) == ([], s.SUCCESS), (
        "what ran has finished, and that is kept"
    )

    manager.script = lambda _: Succeeded()
    manager.crash()
    manager.drain()
    assert manager.row(backfill).state == s.SUCCESS
    assert [ti.launch for ti in manager.tasks("d")] == [1] * 4, "nothing ran twice"


def test_only_the_manager_that_was_to_stop_does() -> None:
    """It is killed before it answers; the next one, or that of a restored state, finds the request."""
    manager = InMemoryManager(PIPELINE)
    manager.ask("manager.stop", drain=False)
    manager.clock.advance(seconds=1)
    manager.crash()
    free, now = {"scheduled": 16, "backfill": 16}, manager.clock.now()
    late = manager._decisions.decide([], manager.store.unanswered(), free, now)
    manager._decisions.commit(late)
    assert not late.stop
    assert {row.message for row in manager.store.read(Response)} == {
        "It was requested of a manager before; that of term 2 leads since."
    }
    manager.ask("manager.stop", drain=False)
    assert manager._decisions.decide([], manager.store.unanswered(), free, now).stop


@pytest.mark.parametrize("apart", [timedelta(days=1), timedelta(days=-1)], ids=["ahead", "behind"])
def test_a_stop_that_states_the_term_does_not_depend_on_the_clock_of_its_client(apart: timedelta) -> None:
    manager = InMemoryManager(PIPELINE)
    client = FakeClock(manager.clock.now() + apart)
    stop, free = {"drain": False}, {"scheduled": 16, "backfill": 16}

    def ask(term: int) -> bool:
        request_id = id_of_stop(term, manager.clock.new_id().zfill(12))
        submit(manager.store, client, "manager.stop", stop, request_id=request_id, requested_by="tests")
        now = manager.clock.now()
        decided = manager._decisions.decide([], manager.store.unanswered(), free, now)
        manager._decisions.commit(decided)
        return decided.stop

    assert ask(1)
    manager.crash()
    assert not ask(1)
    assert ask(2)
