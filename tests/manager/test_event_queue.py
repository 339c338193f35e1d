"""What ends a pause of the manager's loop. No test waits: a pause that goes on would last an hour."""

from __future__ import annotations

import threading
from datetime import datetime, timezone

from backfill_manager.execution.messages import Succeeded, TaskEnded, TaskLogged, TaskStarted
from backfill_manager.manager.event_queue import EventQueue

AT = datetime(2024, 1, 1, tzinfo=timezone.utc)
HOUR_S = 3600.0


def ended(task_id: str) -> TaskEnded:
    return TaskEnded(("d", "r", task_id, 1), Succeeded(), AT)


def never() -> bool:
    return False


def test_the_pause_is_over_when_the_last_of_the_tries_has_ended() -> None:
    events = EventQueue()
    paused = threading.Thread(target=events.pause, args=(HOUR_S, HOUR_S, never, 2), daemon=True)
    events.put(ended("a"))
    paused.start()
    for event in (TaskStarted(("d", "r", "b", 1), AT), TaskLogged(()), TaskLogged(())):
        events.put(event)
    assert paused.is_alive()
    events.put(ended("b"))
    paused.join(60)
    assert not paused.is_alive()
    assert len(events.take()) == 5


def test_tries_that_ended_before_the_last_tick_do_not_count() -> None:
    events = EventQueue()
    for task_id in "ab":
        events.put(ended(task_id))
    assert len(events.take()) == 2
    paused = threading.Thread(target=events.pause, args=(HOUR_S, HOUR_S, never, 1), daemon=True)
    paused.start()
    events.wake()
    assert paused.is_alive()
    events.put(ended("c"))
    paused.join(60)
    assert not paused.is_alive()


def test_where_nothing_runs_the_pause_is_as_long_as_it_was() -> None:
    events = EventQueue()
    asked = threading.Event()

    def until() -> bool:
        asked.set()
        return True

    events.pause(0.01, HOUR_S, until, 0)
    assert asked.is_set()
