"""A manager that is stopped ticks while its tasks end, and not for a moment longer."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from backfill_manager.execution import messages as m
from backfill_manager.manager.event_queue import EventQueue
from backfill_manager.manager.maintenance.pruner import Pruner
from backfill_manager.settings import RetentionSettings
from backfill_manager.testing import InMemoryManager, dag_spec, days

PATIENCE = 30.0


@pytest.fixture
def manager() -> InMemoryManager:
    manager = InMemoryManager(dag_spec("flights", "clean"), script=lambda _: None)
    manager.backfill("flights", days("2024-01-01", 2))
    manager.drain()
    return manager


def ends_within_patience(manager: InMemoryManager, work: Any) -> bool:
    thread = threading.Thread(target=manager._loop.run_while, args=(work, lambda: False), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return not thread.is_alive()


def test_what_ends_meanwhile_is_committed(manager: InMemoryManager) -> None:
    def close() -> None:
        for key in list(manager.running):
            manager.finish(key, m.Succeeded())

    assert ends_within_patience(manager, close)
    assert {ti.state for ti in manager.tasks("flights")} == {"success"}


def test_the_end_of_the_work_is_noticed_although_its_thread_lives_on_for_a_moment(
    manager: InMemoryManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop has ticked, and has looked whether it is to end, before the thread that woke it has ended."""
    has_looked, wake, sleep = threading.Event(), EventQueue.wake, EventQueue.sleep
    run_until = type(manager._loop).run_until

    def wake_and_linger(events: EventQueue) -> None:
        wake(events)
        assert has_looked.wait(PATIENCE)

    def note_sleep(events: EventQueue, seconds: float | None) -> None:
        if may_end.is_set():
            has_looked.set()
        sleep(events, seconds)

    def note_end(*arguments: Any) -> None:
        run_until(*arguments)
        has_looked.set()

    may_end = threading.Event()
    monkeypatch.setattr(EventQueue, "wake", wake_and_linger)
    monkeypatch.setattr(EventQueue, "sleep", note_sleep)
    monkeypatch.setattr(type(manager._loop), "run_until", note_end)
    assert ends_within_patience(manager, may_end.set)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_work_that_fails_ends_it_too(manager: InMemoryManager) -> None:
    def fails() -> None:
        raise SystemExit

    assert ends_within_patience(manager, fails)


def test_a_sweep_that_is_due_does_not_keep_the_loop_busy_while_it_drains(manager: InMemoryManager) -> None:
    loop = manager._loop
    loop._pruner = Pruner(
        manager.store,
        manager.leader,
        manager._decisions.requests,
        RetentionSettings(runs=86_400.0),
        None,
        manager.clock,
    )
    loop.has_parsed_all = True
    manager._decisions.draining = True
    manager.clock.advance(hours=2)
    while manager.tick():
        pass
    assert loop.run_once() != 0.0
