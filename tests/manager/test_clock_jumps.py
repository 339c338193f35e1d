"""The machine's clock is set by a day while a manager works: nothing is lost, nothing is done twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from support.scenarios import at, never, nothing_hangs

from backfill_manager.execution.messages import Failed, Outcome, Succeeded, TaskLaunch
from backfill_manager.manager.maintenance.pruner import Pruner
from backfill_manager.manager.steady_clock import Doubt, SteadyClock, doubt_of
from backfill_manager.manager.tick import MAX_SLEEP_S
from backfill_manager.model import states as s
from backfill_manager.model.records import DagRun, Manager
from backfill_manager.settings import RetentionSettings
from backfill_manager.store.memory import MemoryStore
from backfill_manager.testing import FakeClock, InMemoryManager, dag_spec, days

DAY = timedelta(days=1)
FORWARD_AND_BACK = pytest.mark.parametrize("jump", [DAY, -DAY], ids=["forward", "back"])


class SetClock(FakeClock):
    """Its wall clock is set; the time that passes is another matter."""

    jumped = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.jumped


def hourly(clock: FakeClock) -> InMemoryManager:
    spec = dag_spec("hourly", "a", schedule="@hourly", start_date=at("2024-01-01"), catchup=True)
    return InMemoryManager(spec, clock=clock, scheduled=True)


def play_hours(manager: InMemoryManager, hours: int) -> None:
    for _ in range(hours):
        manager.clock.advance(hours=1)
        manager.drain()


@FORWARD_AND_BACK
@pytest.mark.parametrize("crashes", [False, True])
def test_each_interval_gets_one_run_in_order(jump: timedelta, crashes: bool) -> None:
    clock = SetClock()
    manager = hourly(clock)
    play_hours(manager, 30)
    clock.jumped = jump
    if crashes:
        manager.crash()
    play_hours(manager, 30)
    clock.jumped = timedelta(0)  # it is set right
    play_hours(manager, 30)
    nothing_hangs(manager)
    runs = manager.runs("hourly")
    assert [run.logical_date for run in runs] == [at("2024-01-01") + timedelta(hours=n) for n in range(90)]
    assert {run.state for run in runs} == {s.SUCCESS}
    assert len(manager.launched) == 90


@FORWARD_AND_BACK
@pytest.mark.parametrize("crashes", [False, True])
def test_a_backfill_in_progress_goes_on(jump: timedelta, crashes: bool) -> None:
    clock, tried = SetClock(), Counter[str]()

    def fails_once(launch: TaskLaunch) -> Outcome:
        tried[launch.key[1]] += 1
        return Failed("boom") if tried[launch.key[1]] == 1 else Succeeded()

    spec = dag_spec("d", "a", each={"a": {"retries": 1, "retry_delay": 60.0}}, max_active_runs=4)
    manager = InMemoryManager(spec, clock=clock, script=fails_once)
    backfill = manager.backfill("d", days("2013-01-01", 12))
    manager.tick()
    manager.tick()
    assert tried, "retries wait for a time of the clock as it was"
    clock.jumped = jump
    if crashes:
        manager.crash()
    manager.drain()
    assert manager.states(backfill) == {s.SUCCESS: 12}
    assert set(tried.values()) == {2}
    nothing_hangs(manager)


@FORWARD_AND_BACK
def test_a_task_that_runs_meanwhile_is_left_alone(jump: timedelta) -> None:
    clock = SetClock()
    manager = InMemoryManager(dag_spec("d", "a", each={"a": {"timeout": 3600.0}}), clock=clock, script=never)
    backfill = manager.backfill("d", days("2013-01-01", 1))
    manager.drain()
    (key,) = manager.running
    clock.jumped = jump
    manager.drain()
    assert list(manager.running) == [key]
    manager.finish(key, Succeeded())
    manager.drain()
    assert manager.states(backfill) == {s.SUCCESS: 1}
    assert len(manager.launched) == 1


def test_a_manager_that_sleeps_looks_at_the_clock_each_minute() -> None:
    """Else a run that is due after the jump would wait for as long as was left before it."""
    manager = hourly(SetClock())
    manager.drain()
    seconds = manager._loop.run_once()
    while seconds == 0.0:
        seconds = manager._loop.run_once()
    assert seconds is not None and seconds <= MAX_SLEEP_S <= 60


AGES = RetentionSettings(runs=30 * 86_400.0, tries=30 * 86_400.0)


def pruning(clock: FakeClock) -> tuple[InMemoryManager, Callable[[], int]]:
    """A date that was run twice, and what an hourly sweep leaves of both runs."""
    manager = InMemoryManager(dag_spec("d", "a"), clock=clock)
    for _ in range(2):
        manager.backfill("d", days("2013-01-01", 2), reprocess="completed")
        manager.drain()
    pruner = Pruner(manager.store, manager.leader, manager._decisions.requests, AGES, None, clock)

    def sweep() -> int:
        while pruner.is_due(clock.now()):
            pruner.step(clock.now())
        return len(manager.store.read(DagRun))

    return manager, sweep


def test_a_clock_that_jumps_ahead_by_more_than_an_age_deletes_nothing_young() -> None:
    clock = SetClock()
    _, sweep = pruning(clock)
    assert sweep() == 4
    clock.advance(hours=2)
    clock.jumped = 40 * DAY
    assert sweep() == 4
    clock.advance(hours=23)
    assert sweep() == 4
    clock.jumped = timedelta(0)  # it is set right
    clock.advance(hours=2)
    assert sweep() == 4
    clock.advance(days=31)
    assert sweep() < 4, "what is old goes by the time that has passed"


def test_a_jump_ahead_that_lasts_for_a_day_is_believed() -> None:
    clock = SetClock()
    _, sweep = pruning(clock)
    clock.jumped = 40 * DAY
    assert sweep() == 4
    clock.advance(hours=25)
    assert sweep() < 4


def led(store: MemoryStore, *hours: tuple[float, float]) -> None:
    """Leaderships from and until so many hours after the beginning of 2024."""
    for term, (start, end) in enumerate(hours, 1):
        row = Manager(term, "m", "host", 1, s.STOPPED, hour(start), hour(end), 30, "1")
        store.write([row])


def hour(number: float) -> datetime:
    return at("2024-01-01") + timedelta(hours=number)


@pytest.mark.parametrize(
    ("hours", "now", "by", "log"),
    [
        ([], 50, 0, ""),
        ([(0, 10)], 10.5, 0, ""),
        ([(0, 10), (10.5, 20)], 20.1, 0, ""),
        ([(0, 10)], 34, 24, "by=\"1 d\" until_confirmed=\"1 d\" clock=2024-01-02T10:00:00Z newest_in_state=2024-01-01T10:00:00Z"),
        ([(0, 10), (34, 34.1)], 34.2, 24, ""),  # a manager that was started again soon
        ([(0, 10), (34, 57.9)], 57.9, 24, ""),
        ([(0, 10), (34, 58)], 58.1, 0, ""),  # it has shown this time for a day
        ([(0, 1), (24, 25), (48, 49)], 72, 23, "newest_in_state=2024-01-03T01:00:00Z"),  # one that is started each day
        ([(0, 10)], 9, 0, "by=\"1 h\" clock=2024-01-01T09:00:00Z newest_in_state=2024-01-01T10:00:00Z"),
        ([(0, 10), (34, 35)], 11, 24, "the clock is behind the state"),  # it was ahead, and is set right
    ],
)  # fmt: skip
def test_a_clock_that_was_wrong_before_the_start_is_compared_with_when_managers_led(
    hours: list[tuple[float, float]], now: float, by: float, log: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store = MemoryStore()
    store.init()
    led(store, *hours)
    doubt = doubt_of(store, hour(now))
    assert (timedelta(0) if doubt is None else doubt.by) == timedelta(hours=by)
    logged = capsys.readouterr().err
    assert log in logged and logged.count("component=retention") == bool(log)
    assert ("level=warning" in logged) == ("the clock is behind" in logged)


def test_a_manager_that_starts_with_a_clock_far_ahead_deletes_nothing_young_until_it_has_shown_so_for_a_day() -> None:
    clock = SetClock()
    manager, _ = pruning(clock)
    seen = clock.now()
    clock.jumped = 40 * DAY
    pruner = Pruner(
        manager.store,
        manager.leader,
        manager._decisions.requests,
        AGES,
        None,
        clock,
        Doubt(clock.now() - seen, clock.now()),
    )

    def sweep() -> int:
        while pruner.is_due(clock.now()):
            pruner.step(clock.now())
        return len(manager.store.read(DagRun))

    assert sweep() == 4
    clock.advance(hours=23)
    assert sweep() == 4
    clock.advance(hours=2)
    assert sweep() < 4


def test_the_steady_clock_follows_one_that_is_set_back_and_time_that_the_machine_slept() -> None:
    class Sleeping(SetClock):
        slept = 0.0

        def boottime(self) -> float:
            return super().boottime() + self.slept

    clock = Sleeping()
    steady = SteadyClock(clock)
    clock.jumped = -40 * DAY
    assert steady.now() == clock.now()
    clock.jumped, clock.slept = timedelta(0), (40 * DAY).total_seconds()
    assert steady.now() == clock.now()
    clock.jumped = DAY
    assert steady.now() == clock.now() - DAY
    clock.advance(hours=12)
    clock.jumped = 2 * DAY  # another jump: counted from now on
    assert steady.now() == clock.now() - 2 * DAY
    clock.advance(hours=13)
    assert steady.now() == clock.now() - 2 * DAY
    clock.advance(hours=12)
    assert steady.now() == clock.now()
