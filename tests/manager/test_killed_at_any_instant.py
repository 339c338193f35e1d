"""The manager is killed between any two tables of any commit, again and again; what comes out is what would have come.

Random backfills, random task outcomes, crashes after a random number of table commits. Whatever happens: every item ends,
each date has one run that counts, every finished task has exactly one try of its last start, and what had finished before
a crash never ran again. Up to six kills, and never the third in a row under one task: that one fails it (`test_crash_loops.py`).
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable
from datetime import datetime

import pytest
from support.scenarios import Killed, Mortal, a_third_kill_would_fail_a_task, accepted, clear, dies_after

from backfill_manager.clock import UTC
from backfill_manager.execution.messages import Failed, Outcome, Succeeded, TaskLaunch
from backfill_manager.model import states as s
from backfill_manager.model.records import BackfillItem, DagRun, Response, TaskInstance, TaskTry
from backfill_manager.testing import FakeClock, InMemoryManager, dag_spec, days

SEEDS = 150
SPEC = dag_spec(
    "d", "load", "check", "roll",
    upstream={"check": ["load"], "roll": ["load"]},
    each={"load": {"retries": 1, "retry_delay": 5.0}},
)  # fmt: skip


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_item_ends_as_it_would_have_and_nothing_finished_runs_again(seed: int) -> None:
    chance = random.Random(seed)
    fails_always = {n for n in range(8) if chance.random() < 0.2}
    flaky = {n for n in range(8) if chance.random() < 0.3}
    finished: set[tuple[str, str]] = set()

    def script(launch: TaskLaunch) -> Outcome | None:
        day, task = launch.run.logical_date.day, launch.task.task_id  # type: ignore[union-attr]
        assert (launch.run.run_id, task) not in finished, "what had finished runs again"
        if task == "load" and (day in fails_always or (day in flaky and launch.ti.failures == 0)):
            return Failed("boom")
        return Succeeded()

    manager = InMemoryManager(SPEC, script=script)
    first = manager.backfill("d", days("2024-01-01", 5), max_active_runs=chance.randint(1, 4))
    second = manager.backfill("d", days("2024-01-03", 5), reprocess="failed", max_active_runs=chance.randint(1, 4))
    for _ in range(chance.randint(1, 6)):
        for _ in range(50):
            if a_third_kill_would_fail_a_task(manager):
                manager.tick()
                manager.clock.advance(seconds=1)
        manager.leader = Mortal(manager.leader, chance.randint(0, 25))  # type: ignore[assignment]
        with contextlib.suppress(Killed):
            manager.drain()
        finished |= {(ti.run_id, ti.task_id) for ti in manager.tasks("d") if ti.state in s.TASK_FINISHED}
        manager.crash()
    manager.drain()

    for backfill in (first, second):
        states = manager.states(backfill)
        assert set(states) <= {s.SUCCESS, s.FAILED, s.SKIPPED}, states
        assert manager.row(backfill).state == (s.FAILED if states.get(s.FAILED) else s.SUCCESS)
    standing = [run for run in manager.runs("d") if run.state != s.OVERRIDDEN]
    assert Counter(run.logical_date for run in standing).most_common(1)[0][1] == 1
    assert {run.logical_date.day for run in standing if run.logical_date} == set(range(1, 8))
    for run in standing:
        assert run.state == (s.FAILED if run.logical_date and run.logical_date.day in fails_always else s.SUCCESS)
    dates = [run.run_id for run in standing]
    assert [run.previous_run_id for run in standing] == [None, *dates[:-1]]
    tries = Counter((t.run_id, t.task_id, t.launch) for t in manager.store.read(TaskTry))
    assert not [key for key, n in tries.items() if n > 1], "a try is reported once"
    for ti in manager.tasks("d"):
        assert ti.state in s.TASK_FINISHED
        assert ti.launch == 0 or tries[ti.run_id, ti.task_id, ti.launch] == 1
    made = {run.run_id for run in manager.runs("d")}
    assert {ti.run_id for ti in manager.tasks("d")} == made, "no task without its run"
    assert {item.run_id for item in manager.store.read(BackfillItem) if item.run_id} == made, "no run without its item"


# -- one operation, killed after every single table that it commits ---------------------------------------------------


class Poisoned:
    """January 2024 with one day that fails until it is mended."""

    def __init__(self, *, batchable: bool = False, scheduled: bool = False) -> None:
        self.poison = {3}
        spec = dag_spec(
            "d", "load", "roll", upstream={"roll": ["load"]}, batchable=batchable, catchup=True, lookback=1 if scheduled else 0,
            start_date=datetime(2024, 1, 1, tzinfo=UTC),
        )  # fmt: skip
        clock = FakeClock(datetime(2024, 1, 6, tzinfo=UTC))
        self.manager = InMemoryManager(spec, script=self.script, clock=clock, scheduled=scheduled)

    def script(self, launch: TaskLaunch) -> Outcome | None:
        start, end = launch.run.interval_start, launch.run.interval_end
        assert start is not None and end is not None
        poisoned = any(start <= datetime(2024, 1, day, tzinfo=UTC) < end for day in self.poison)
        return Failed("boom") if poisoned and launch.task.task_id == "load" else Succeeded()

    @property
    def outcome(self) -> tuple[object, ...]:
        """All that must come out the same; launches and instants may not."""
        store = self.manager.store
        runs = {
            (run.run_id, run.state, run.previous_run_id, run.overridden_by, run.items, run.backfill_id, run.ordinal)
            for run in store.read(DagRun)
        }
        tasks = {(ti.run_id, ti.task_id, ti.state, ti.generation) for ti in store.read(TaskInstance)}
        items = {(item.ordinal, item.state, item.run_id) for item in store.read(BackfillItem)}
        answers = sorted((row.kind, row.outcome) for row in store.read(Response))
        backfills = [row.state for row in store.rows("backfill")]  # type: ignore[attr-defined]
        return runs, tasks, items, answers, backfills


def scheduled_runs_that_look_back() -> Poisoned:
    """Five days are due at once; each does the day before again."""
    return Poisoned(scheduled=True)


def a_batch_that_is_halved() -> Poisoned:
    world = Poisoned(batchable=True)
    world.manager.backfill("d", days("2024-01-01", 5), batch=5, max_active_runs=1)
    return world


def a_batch_that_is_halved_newest_first() -> Poisoned:
    world = Poisoned(batchable=True)
    world.manager.backfill("d", days("2024-01-01", 5)[::-1], batch=4, max_active_runs=1)
    return world


def _done_and_mended() -> Poisoned:
    world = Poisoned()
    world.manager.backfill("d", days("2024-01-01", 5))
    world.manager.drain()
    world.poison = {5}
    return world


def a_retry() -> Poisoned:
    world = _done_and_mended()
    (row,) = world.manager.store.rows("backfill")
    world.manager.ask("backfill.retry", backfill_id=row.backfill_id)  # type: ignore[attr-defined]
    return world


def a_clear_of_everything() -> Poisoned:
    world = _done_and_mended()
    world.manager.ask("tasks.clear", **clear("d"))
    return world


def a_clear_of_what_comes_after_a_failure() -> Poisoned:
    """What is cleared ends at once, without ever being launched."""
    world = Poisoned()
    world.manager.backfill("d", days("2024-01-03", 1))
    world.manager.drain()
    accepted(
        world.manager, "task.mark", dag_id="d", run_id="backfill__2024-01-03T00:00:00Z", task_id="roll", state="success"
    )
    world.manager.ask("tasks.clear", **clear("d", tasks="roll"))
    return world


def a_cancel_of_what_is_paused() -> Poisoned:
    world = Poisoned()
    backfill = world.manager.backfill("d", days("2024-01-01", 5), is_paused=True, state=s.PAUSED)
    world.manager.ask("backfill.cancel", backfill_id=backfill, let_running_finish=False)
    return world


def a_trigger_over_a_run() -> Poisoned:
    world = _done_and_mended()
    world.manager.ask("dag.trigger", dag_id="d", logical_date="2024-01-03T00:00:00Z", conf={})
    return world


def two_tasks_by_hand_at_one_instant() -> Poisoned:
    world = Poisoned()
    for task_id in ("load", "roll"):
        world.manager.ask("task.run", dag_id="d", task_id=task_id, logical_date="2024-01-02T00:00:00Z")
    return world


def failed_tasks_that_run_again_for_another_backfill() -> Poisoned:
    """Of the range one day failed, one has no run, and the others are left alone; one fails again."""
    world = Poisoned()
    world.poison = {2, 3}
    world.manager.backfill("d", days("2024-01-01", 4))
    world.manager.drain()
    world.poison = {3}
    world.manager.backfill("d", days("2024-01-01", 5), reprocess="failed_tasks", request_id="asked")
    return world


def failed_tasks_of_a_batch_that_run_again() -> Poisoned:
    """The batch is one run, and the items of the other backfill for its dates go with it."""
    world = Poisoned(batchable=True)
    world.poison = {2}
    world.manager.backfill("d", days("2024-01-01", 3), batch=3)
    world.manager.tick()
    world.manager.ask("run.cancel", dag_id="d", run_id="backfill__2024-01-01T00:00:00Z")
    world.manager.drain()
    world.poison = set()
    world.manager.backfill("d", days("2024-01-02", 4), reprocess="failed_tasks", request_id="asked")
    return world


def a_retry_of_failed_tasks_that_failed_again() -> Poisoned:
    world = failed_tasks_that_run_again_for_another_backfill()
    world.manager.drain()
    world.poison = set()
    (_, row) = world.manager.store.rows("backfill")
    world.manager.ask("backfill.retry", backfill_id=row.backfill_id)  # type: ignore[attr-defined]
    return world


OPERATIONS: list[Callable[[], Poisoned]] = [
    scheduled_runs_that_look_back, a_batch_that_is_halved, a_batch_that_is_halved_newest_first, a_retry, a_clear_of_everything,
    a_clear_of_what_comes_after_a_failure, a_cancel_of_what_is_paused, a_trigger_over_a_run, two_tasks_by_hand_at_one_instant,
    failed_tasks_that_run_again_for_another_backfill, failed_tasks_of_a_batch_that_run_again,
    a_retry_of_failed_tasks_that_failed_again,
]  # fmt: skip


def test_a_backfill_whose_deadlock_was_killed_after_any_table_ends_by_the_same_reason() -> None:
    """All its runs are there already: a run and its items may be committed before the backfill is."""

    def started() -> tuple[InMemoryManager, str]:
        def script(launch: TaskLaunch) -> Outcome:
            return Failed("boom") if launch.run.run_id == "backfill__2024-01-02T00:00:00Z" else Succeeded()

        manager = InMemoryManager(dag_spec("d", "a", each={"a": {"depends_on_past": True}}), script=script)
        return manager, manager.backfill("d", days("2024-01-01", 6), max_active_runs=6)

    whole, backfill = started()
    whole.drain()
    reason, items = whole.row(backfill).reason, whole.items(backfill)
    assert reason is not None and reason.startswith("deadlock: task 'a' of run backfill__2024-01-03T00:00:00Z")
    for tables in range(50):
        manager, backfill = started()
        was_killed = dies_after(manager, tables)
        manager.drain()
        assert manager.row(backfill).reason == reason, f"killed after {tables} tables"
        assert [item.reason for item in manager.items(backfill)] == [item.reason for item in items]
        if not was_killed:
            return
    raise AssertionError("it commits more tables than are tried here")


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
def test_killed_after_any_table_an_operation_comes_out_the_same(operation: Callable[[], Poisoned]) -> None:
    whole = operation()
    whole.manager.drain()
    for tables in range(200):
        world = operation()
        was_killed = dies_after(world.manager, tables)
        world.manager.drain()
        assert not world.manager.state.runs and not world.manager.store.unanswered(), f"killed after {tables} tables"
        assert world.outcome == whole.outcome, f"killed after {tables} tables"
        tries = Counter((row.run_id, row.task_id, row.launch) for row in world.manager.store.read(TaskTry))
        launches = {
            (ti.run_id, ti.task_id, n) for ti in world.manager.store.read(TaskInstance) for n in range(1, ti.launch + 1)
        }
        assert set(tries) == launches and max(tries.values(), default=1) == 1, "each start has its try"
        if not was_killed:
            return
    raise AssertionError("it commits more tables than are tried here")
