"""Sends OpenLineage events, by the OpenLineage client's own transports.

Events wait in memory, in their order; a tick only puts them there. While they can't be sent they stay, and sending is tried
again; beyond `MAX_WAITING` the oldest are left out. They are telemetry: a manager that is killed loses what waited, and what has
been read and written stays in the state.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from backfill_manager.errors import InvalidConfig
from backfill_manager.execution.error_format import one_line
from backfill_manager.logging import get_logger
from backfill_manager.model.records import DagRun, RunKey
from backfill_manager.model.transitions import Changes
from backfill_manager.service import Service
from backfill_manager.settings.model import OpenLineageSettings

if TYPE_CHECKING:
    from openlineage.client.event_v2 import RunEvent

    from backfill_manager.manager.openlineage_events import LineageEvents

MAX_WAITING: Final = 10_000
RETRY_S: Final = (1.0, 60.0)  # after the first failure, doubled by each further one up to the last
FLUSH_S: Final = 5.0  # at the manager's end

log = get_logger("openlineage")


class Client(Protocol):
    def emit(self, event: RunEvent) -> None: ...


def make_client(settings: OpenLineageSettings) -> Client:
    """`InvalidConfig` when the library is missing or does not take the transport."""
    try:
        from openlineage.client import OpenLineageClient
    except ImportError:
        raise InvalidConfig(
            "openlineage: needs the package openlineage-python; pip install 'backfill-manager[openlineage]'"
        ) from None
    try:
        client: Client = OpenLineageClient(config={"transport": dict(settings.transport)})
    except (
        ValueError,
        RuntimeError,
        TypeError,
        KeyError,
        ImportError,
    ) as error:  # each transport checks in its own way
        raise InvalidConfig(f"openlineage.transport: {one_line(error)}") from None
    return client


class OpenLineageSender(Service):
    JOINED: ClassVar = False  # an attempt may wait for a server

    def __init__(self, client: Client, events: LineageEvents, *, max_waiting: int = MAX_WAITING) -> None:
        super().__init__("OpenLineage sender")
        self._client, self._events = client, events
        self._waiting: deque[RunEvent] = deque()
        self._max_waiting, self._left_out, self._failures = max_waiting, 0, 0
        self._lock, self._is_empty = threading.Lock(), threading.Event()
        self._is_empty.set()

    def put(self, changes: Changes, run_of: Callable[[RunKey], DagRun | None]) -> None:
        """What has been committed; see `LineageEvents.of`."""
        events = list(self._events.of(changes, run_of))
        with self._lock:
            self._waiting.extend(events)
            while len(self._waiting) > self._max_waiting:
                self._waiting.popleft()
                self._left_out += 1
            if self._waiting:
                self._is_empty.clear()
            is_away = self._failures > 0
        if not is_away:  # else the next attempt is due after its delay, however many commits there are meanwhile
            self.wake()

    def run_once(self) -> float | None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._is_empty.set()
                    return None
                event = self._waiting[0]
            try:
                self._client.emit(event)
            except Exception as error:  # noqa: BLE001 - each transport has errors of its own; no task depends on it
                self._failures += 1
                if self._failures == 1:
                    log.warning("events can't be sent; they wait", reason=one_line(error))
                first, longest = RETRY_S
                return min(first * 2.0 ** min(self._failures - 1, 10), longest)
            with self._lock:
                if self._waiting and self._waiting[0] is event:
                    self._waiting.popleft()
                left_out, self._left_out = self._left_out, 0
            if self._failures:
                log.info("events are sent again", left_out=left_out, failures=self._failures)
            self._failures = 0

    def stop(self) -> None:
        """Sends what waits, for a few seconds at most."""
        self.wake()
        if not self._is_empty.wait(FLUSH_S):
            log.warning("events are lost", events=len(self._waiting))
        super().stop()
