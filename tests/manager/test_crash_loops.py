"""A task that ends the manager's process fails after three losses in a row, and takes no other task with it. In memory: a
`script` that raises is the process that ends in the middle of its work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from support.scenarios import Killed, accepted, clear, never, task_of

from backfill_manager.clock import UTC, SystemClock
from backfill_manager.execution.messages import (
    Cancelled,
    Failed,
    Lost,
    Outcome,
    Postponed,
    PutBack,
    Skipped,
    Succeeded,
    TaskLaunch,
)
from backfill_manager.manager.decisions.crash_loops import ALONE_FOR_S, BACK_OFF_S
from backfill_manager.manager.maintenance.short_leadership import compact_state
from backfill_manager.model import states as s
from backfill_manager.model.records import TaskInstance, TaskTry
from backfill_manager.settings import Settings
from backfill_manager.testing import InMemoryManager, dag_spec, days

AT = datetime(2024, 1, 1, tzinfo=UTC)


class Machine:
    """A manager in memory whose tasks run for `takes` seconds of its clock and may end the process: at once, or when they end.

    The process is started again whenever it ends, as by a supervisor, until nothing is left to do."""

    def __init__(
        self, *specs: object, kills: Callable[[TaskLaunch], bool], takes: Callable[[TaskLaunch], float]
    ) -> None:
        self.kills, self.takes = kills, takes
        self.ends_at: dict[tuple[str, str, str, int], datetime] = {}
        self.crashes = 0
        self.beside: list[tuple[str, int]] = []  # (task, others running) when the process ended
        self.manager = InMemoryManager(*specs, script=self.begin)  # type: ignore[arg-type]

    def begin(self, launch: TaskLaunch) -> Outcome | None:
        self.ends_at[launch.key] = self.manager.clock.now() + timedelta(seconds=self.takes(launch))
        return None

    def run(self, most: int = 20_000) -> None:
        manager = self.manager
        for _ in range(most):
            while manager.tick():
                pass
            now, running = manager.clock.now(), manager.running
            if over := [key for key in running if self.ends_at[key] <= now]:
                key = min(over, key=lambda key: self.ends_at[key])
                if self.kills(running[key]):
                    self.crashes += 1
                    self.beside.append((key[0], len(running) - 1))
                    manager.crash()
                else:
                    manager.finish(key, Succeeded())
                continue
            due = [self.ends_at[key] for key in running]
            if (wakes := manager._decisions.next_due(now)) is not None:
                due.append(wakes)
            if not due:
                return
            assert min(due) > now, "no time passes: a hot loop"
            manager.clock.advance(seconds=(min(due) - now).total_seconds())
        raise AssertionError("it never comes to rest")


def test_a_task_that_ends_the_process_fails_after_three_starts_and_says_why() -> None:
    machine = Machine(dag_spec("bad", "work", "after", upstream={"after": ["work"]}), kills=lambda it: it.task.task_id == "work",
                      takes=lambda it: 0.0)  # fmt: skip
    backfill = machine.manager.backfill("bad", days("2024-01-01", 1))
    machine.run()
    (work,) = machine.manager.tasks("bad", "work")
    assert (machine.crashes, work.state, work.launch, work.try_number, work.losses) == (3, s.FAILED, 3, 1, 3)
    assert work.error is not None
    assert "ended 3 times in a row while this task ran" in work.error and "clear it to try again" in work.error
    assert machine.manager.tasks("bad", "after")[0].state == s.UPSTREAM_FAILED, "the run goes on by its trigger rules"
    assert machine.manager.row(backfill).state == s.FAILED
    tries = machine.manager.store.read(TaskTry, order_by=["launch"])
    assert [(it.launch, it.try_number, it.state) for it in tries] == [(1, 1, "lost"), (2, 1, "lost"), (3, 1, s.FAILED)]


def test_each_loss_waits_longer_before_the_next_start() -> None:
    manager = InMemoryManager(dag_spec("d", "work"), script=never)
    manager.backfill("d", days("2024-01-01", 1))
    for seconds in BACK_OFF_S[:2]:
        manager.drain()
        manager.crash()
        (work,) = manager.tasks("d", "work")
        assert work.retry_at == manager.clock.now() + timedelta(seconds=seconds)
        assert work.state == s.UP_FOR_RETRY


@pytest.mark.parametrize("kill_after", [0.0, 5.0, 3 * ALONE_FOR_S])
def test_other_tasks_succeed_however_many_runs_of_a_crashing_dag_come(kill_after: float) -> None:
    """Thirty runs of a DAG that always ends the process, beside short tasks, long ones, and one that takes an hour."""
    takes = {"bad": kill_after, "short": 5.0, "long": 400.0, "hour": 3600.0}
    machine = Machine(
        *(dag_spec(name, "work", max_active_runs=4) for name in takes),
        kills=lambda it: it.ti.dag_id == "bad", takes=lambda it: takes[it.ti.dag_id],
    )  # fmt: skip
    machine.manager.backfill("bad", days("2024-01-01", 30), max_active_runs=4)
    others = [
        machine.manager.backfill(dag, days("2024-01-01", n)) for dag, n in (("short", 40), ("long", 6), ("hour", 1))
    ]
    machine.run()
    assert {ti.state for ti in machine.manager.tasks("bad")} == {s.FAILED}
    assert [machine.manager.states(backfill) for backfill in others] == [
        {s.SUCCESS: 40},
        {s.SUCCESS: 6},
        {s.SUCCESS: 1},
    ]
    starts = max(ti.launch for ti in machine.manager.tasks("bad"))
    assert starts == 3 if kill_after < ALONE_FOR_S else starts <= 6, (
        "a task that takes longer is alone for longer each time"
    )
    assert machine.crashes <= 3 * 30


def test_a_suspect_goes_first_and_has_the_manager_to_itself_for_a_while() -> None:
    manager = InMemoryManager(dag_spec("a", "work"), dag_spec("b", "work"), script=never)
    for dag in ("a", "b"):
        manager.backfill(dag, days("2024-01-01", 1))
    manager.drain()
    for _ in range(2):
        manager.crash()
        manager.tick()
        assert not manager.running, "nothing is started while a lost task waits"
        manager.drain()
    assert {ti.losses for ti in manager.tasks("a") + manager.tasks("b")} == {2}
    manager.backfill("a", days("2024-02-01", 1), priority=100)
    manager.drain()
    assert [key[:2] for key in manager.running] == [("a", "backfill__2024-01-01T00:00:00Z")], (
        "not beside the other suspect"
    )
    due = manager._decisions.next_due(manager.clock.now())
    assert due is not None, "the manager wakes when that time is over"
    manager.clock.advance(seconds=(due - manager.clock.now()).total_seconds())
    manager.drain()
    assert len(manager.running) == 2 and ("b", "backfill__2024-01-01T00:00:00Z") in {key[:2] for key in manager.running}
    (first, *_) = manager.running
    manager.finish(first, Succeeded())
    manager.clock.advance(seconds=ALONE_FOR_S)
    manager.drain()
    assert len(manager.running) == 2, "then what else is ready"


def test_a_third_loss_beside_other_tasks_proves_nothing() -> None:
    manager = InMemoryManager(dag_spec("a", "work"), dag_spec("b", "work"), script=never)
    manager.backfill("a", days("2024-01-01", 1))
    for _ in range(2):
        manager.drain()
        manager.crash()
    manager.drain()
    manager.clock.advance(seconds=ALONE_FOR_S)
    manager.backfill("b", days("2024-01-01", 1))
    manager.drain()
    assert len(manager.running) == 2
    manager.crash()
    (a,), (b,) = manager.tasks("a"), manager.tasks("b")
    assert (a.state, a.losses, b.losses) == (s.UP_FOR_RETRY, 3, 1)
    manager.drain()
    assert [key[0] for key in manager.running] == ["a"], "once more, and alone"
    manager.crash()
    assert manager.tasks("a")[0].state == s.FAILED


ENDS: list[Outcome] = [Succeeded(), Failed("boom"), Skipped("no data"), Cancelled("by a person")]


@pytest.mark.parametrize("outcome", ENDS, ids=lambda outcome: type(outcome).__name__)
def test_any_other_end_ends_the_row(outcome: Outcome) -> None:
    manager = InMemoryManager(dag_spec("d", "work", each={"work": {"retries": 1}}), script=never)
    manager.backfill("d", days("2024-01-01", 1))
    manager.drain()
    manager.crash()
    manager.drain()
    (work,) = manager.tasks("d")
    assert work.losses == 1
    (key,) = manager.running
    manager.finish(key, outcome)
    manager.tick()
    assert not manager.tasks("d")[0].losses


def test_a_clear_gives_a_task_that_ended_the_process_three_new_starts() -> None:
    machine = Machine(dag_spec("bad", "work"), kills=lambda it: True, takes=lambda it: 0.0)
    machine.manager.backfill("bad", days("2024-01-01", 1))
    machine.run()
    accepted(machine.manager, "tasks.clear", **clear("bad"))
    assert not machine.manager.tasks("bad")[0].losses
    machine.kills = lambda it: it.ti.launch < 6
    machine.run()
    (work,) = machine.manager.tasks("bad")
    assert (work.state, work.launch, work.losses) == (s.SUCCESS, 6, None)


def lost_once(outcome: Outcome) -> TaskInstance:
    manager = InMemoryManager(dag_spec("d", "work"), script=never)
    manager.backfill("d", days("2024-01-01", 1))
    manager.drain()
    (key,) = manager.running
    manager.finish(key, outcome)
    manager.tick()
    manager.tick()
    (row,) = manager.store.read(TaskTry)
    assert row.state == "lost", "the try is reported, and cost nothing"
    work = task_of(manager, key[1], "work")
    assert work.try_number <= 1 and work.failures == 0
    return work


def test_what_is_put_back_by_a_stop_starts_again_at_once_and_is_not_counted() -> None:
    work = lost_once(PutBack("the manager stopped while it ran"))
    assert work.losses is None and work.state != s.UP_FOR_RETRY


def test_what_can_not_run_here_for_a_moment_waits_and_is_not_counted() -> None:
    work = lost_once(Postponed("this manager is not sure that it still leads"))
    assert (work.losses, work.state) == (None, s.UP_FOR_RETRY) and work.retry_at is not None and work.retry_at > AT


def test_spark_gone_beneath_a_task_is_counted_as_the_end_of_the_process_is() -> None:
    work = lost_once(Lost("Spark went away while it ran: its JVM has ended", alone=True))
    assert (work.losses, work.state) == (1, s.UP_FOR_RETRY)
    manager = InMemoryManager(dag_spec("d", "work"), script=lambda it: Lost("Spark went away", alone=True))
    manager.backfill("d", days("2024-01-01", 1))
    manager.drain()
    assert Counter(it.state for it in manager.store.read(TaskTry)) == {"lost": 2, s.FAILED: 1}


def test_what_a_leader_left_that_gave_its_lease_back_is_put_back_and_not_counted() -> None:
    manager = InMemoryManager(dag_spec("d", "work"), script=never)
    manager.backfill("d", days("2024-01-01", 1))
    manager.drain()
    manager.leader.resign(manager.clock.now())  # it could commit nothing more, but this
    manager.crash()
    (work,) = manager.tasks("d")
    assert (work.state, work.losses, work.retry_at) == (s.UP_FOR_RETRY, None, manager.clock.now())


def test_a_state_that_is_compacted_before_each_start_counts_the_losses_all_the_same() -> None:
    manager = InMemoryManager(dag_spec("d", "work"), script=never)
    manager.backfill("d", days("2024-01-01", 1))
    for _ in range(3):
        manager.drain()
        assert manager.running
        compact_state(manager.store, Settings(), SystemClock())
        manager.crash()
    (work,) = manager.tasks("d")
    assert (work.state, work.losses) == (s.FAILED, 3)


def test_until_lost_tasks_run_again_a_pool_is_given_no_more_than_it_has_slots() -> None:
    """When the process ends, waiting tasks cannot be distinguished from those that have just begun, and would count too."""
    manager = InMemoryManager(dag_spec("d", "work"), script=never, slots=4)
    manager.backfill("d", days("2024-01-01", 12), max_active_runs=12)
    manager.drain()
    assert len(manager.running) == 12, "a free slot has its next task at hand"
    manager.crash()
    manager.drain()
    assert len(manager.running) == 4
    manager.crash()
    assert Counter(ti.losses for ti in manager.tasks("d")) == {1: 8, 2: 4}
    for _ in range(8):
        manager.drain()
        manager.finish(next(iter(manager.running)), Succeeded())
    manager.drain()
    assert len(manager.running) == 4
    manager.backfill("d", days("2024-03-01", 12), max_active_runs=12)
    manager.clock.advance(seconds=ALONE_FOR_S)
    manager.drain()
    assert len(manager.running) == 12, "the lost ones have been running for a while"


def test_a_killed_playground_is_the_process_that_ends() -> None:
    def dies(_: TaskLaunch) -> Outcome | None:
        raise Killed

    manager = InMemoryManager(dag_spec("d", "work"), script=dies)
    manager.backfill("d", days("2024-01-01", 1))
    for _ in range(3):
        with pytest.raises(Killed):
            manager.drain()
        manager.crash()
    assert manager.tasks("d")[0].state == s.FAILED


def test_a_clock_that_is_set_back_holds_nobody_up_for_a_suspect() -> None:
    manager = InMemoryManager(dag_spec("d", "a"), dag_spec("e", "a"), script=lambda _: None)
    manager.backfill("d", days("2023-01-01", 1))
    for _ in range(2):
        manager.drain()
        assert manager.running
        manager.crash()
    manager.clock.advance(hours=-6)
    manager.backfill("e", days("2023-02-01", 1))
    launched, waited_s = len(manager.launched), 0
    while len(manager.launched) == launched:
        for _ in range(20):
            if not manager.tick():
                break
        manager.clock.advance(seconds=30)
        waited_s += 30
        assert waited_s < 600
