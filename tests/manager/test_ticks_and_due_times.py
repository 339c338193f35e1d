"""A scheduled run starts when it is due, however long the commits of other work take."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from backfill_manager.manager.event_queue import EventQueue
from backfill_manager.manager.tick_decisions import Decisions
from backfill_manager.model.transitions import Changes
from backfill_manager.testing import FakeClock, InMemoryManager, dag_spec, days

PERIOD_S = 4
COMMIT_S = 0.11  # with its pauses no divisor of the period, so that commits meet due times at every part of theirs


class TimedEvents(EventQueue):
    """Waits take time of the test's clock, and nothing happens meanwhile."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._clock = clock

    def sleep(self, seconds: float | None) -> None:
        if not self.is_woken:
            assert seconds is not None, "nothing is due, and nothing runs: the manager would sleep for ever"
            self._clock.advance(seconds=seconds)

    def pause(self, at_least: float, at_most: float, until: Callable[[], bool], tries: int) -> None:
        self._clock.advance(seconds=at_least if until() else at_most)


def test_work_in_progress_makes_no_scheduled_run_late() -> None:
    clock = FakeClock()

    def take_time(changes: Changes) -> None:
        if len(changes):
            clock.advance(seconds=COMMIT_S)

    manager = InMemoryManager(
        dag_spec("load", "a"), dag_spec("steady", "a", schedule={"seconds": PERIOD_S}, max_active_runs=4),
        clock=clock, scheduled=True, slots=2, on_commit=take_time,
    )  # fmt: skip
    manager.events = manager._loop._events = TimedEvents(clock)
    manager._loop.has_parsed_all = True
    backfill = manager.backfill("load", days("1990-01-01", 1500), max_active_runs=8)
    manager._loop.run_until(lambda: backfill not in manager.state.backfills)
    late = [
        launch.ti.queued_at - launch.run.interval_end for launch in manager.launched if launch.run.dag_id == "steady"
    ]
    assert len(late) > 10
    assert max(late[1:]) == timedelta(0), "the first one came due before there was a commit to tell how long one takes"


def test_what_is_due_next_is_computed_once_in_a_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    computed = list[int]()
    next_due = Decisions.next_due

    def counted(self: Decisions, now: datetime) -> datetime | None:
        computed.append(ticks())
        return next_due(self, now)

    def ticks() -> int:
        return int(manager._loop._metrics.columns()["ticks"])

    monkeypatch.setattr(Decisions, "next_due", counted)
    clock = FakeClock()
    manager = InMemoryManager(
        dag_spec("load", "a"), dag_spec("hourly", "a", schedule={"seconds": 600}), clock=clock, scheduled=True
    )
    manager.events = manager._loop._events = TimedEvents(clock)
    manager._loop.has_parsed_all = True
    manager.backfill("load", days("1990-01-01", 20), max_active_runs=2)
    manager._loop.run_until(lambda: ticks() == 50)
    assert len(computed) == len(set(computed)) > 20
