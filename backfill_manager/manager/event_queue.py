"""What other threads report to the manager's loop, and what the loop sleeps on. Made first, and handed to both sides."""

from __future__ import annotations

import threading
from collections.abc import Callable

from backfill_manager.execution.messages import Event, TaskEnded
from backfill_manager.manager.services.bundle_watcher import AllBundlesParsed, ParseResult
from backfill_manager.manager.services.notification_sender import NotificationsSent
from backfill_manager.manager.services.planner import PlanResult
from backfill_manager.manager.services.table_jobs import PreviewsExpired, TableJobResult
from backfill_manager.manager.services.wait_checker import WaitsChecked

OfBundles = ParseResult | AllBundlesParsed
ManagerEvent = Event | PlanResult | OfBundles | TableJobResult | PreviewsExpired | WaitsChecked | NotificationsSent


class EventQueue:
    """Any thread puts and wakes; only the loop takes and sleeps."""

    def __init__(self) -> None:
        self._events: list[ManagerEvent] = []
        self._ended = 0  # tries that have, of these events
        self._changed = threading.Condition()  # its lock may be taken again by who holds it
        self.is_woken = True
        self._is_urgent = False  # a client waits for a response: no pause
        self.has_requests = True  # some may be unanswered
        self._are_bundles_parsed = False

    def put(self, event: ManagerEvent) -> None:
        with self._changed:
            self._events.append(event)
            self._ended += isinstance(event, TaskEnded)
            self._are_bundles_parsed |= isinstance(event, AllBundlesParsed)
            is_parsed_for_client = isinstance(event, ParseResult) and event.request is not None
            self._is_urgent |= is_parsed_for_client or isinstance(event, PlanResult | TableJobResult)
            self.wake()

    def wake_for_requests(self) -> None:
        """The request table has changed."""
        self.has_requests = self._is_urgent = True
        self.wake()

    def wake(self) -> None:
        with self._changed:
            self.is_woken = True
            self._changed.notify_all()

    @property
    def is_empty(self) -> bool:
        return not self._events and not self.has_requests

    def take(self) -> list[ManagerEvent]:
        """Every event so far, in the order in which they came."""
        with self._changed:
            self.is_woken = self._is_urgent = False
            taken, self._events, self._ended = self._events, [], 0
            return taken

    def sleep(self, seconds: float | None) -> None:
        """Until woken, for so long at most."""
        with self._changed:
            self._changed.wait_for(lambda: self.is_woken, timeout=seconds)

    def wait_for_bundles(self, seconds: float, is_over: Callable[[], bool]) -> None:
        """Until every bundle has been parsed once or `is_over`, of which a wake tells; for so long at most."""
        with self._changed:
            self._changed.wait_for(lambda: self._are_bundles_parsed or is_over(), timeout=seconds)

    def wait(self, seconds: float) -> None:
        """For the next event, for so long at most; also when there are some already."""
        with self._changed:
            self._changed.wait(seconds)

    def pause(self, at_least: float, at_most: float, until: Callable[[], bool], tries: int) -> None:
        """Let events gather: `at_least` so many seconds, then `until` something holds, for `at_most` so many in all. A
        client that waits ends it, and the end of all `tries` that run: there is nothing left to gather then."""

        def is_over() -> bool:
            return self._is_urgent or 0 < tries <= self._ended

        with self._changed:
            self._changed.wait_for(is_over, timeout=at_least)
            self._changed.wait_for(lambda: is_over() or until(), timeout=at_most - at_least)
