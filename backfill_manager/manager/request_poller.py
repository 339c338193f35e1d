"""Wakes the manager when someone has asked for something: a look at the request table's version, ten times a second.

Clients are other processes, perhaps on other machines; the table is all that they share with the manager.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from backfill_manager.errors import StateError
from backfill_manager.logging import get_logger
from backfill_manager.service import ServiceFailed, ServiceThread
from backfill_manager.store.base import Store

LOOK_EVERY_S = 0.1
PATIENCE_S = 5.0

log = get_logger("doorbell")


class RequestPoller:
    def __init__(self, store: Store, ring: Callable[[], None], on_failure: ServiceFailed | None = None) -> None:
        self._store, self._ring = store, ring
        self._seen: int | None = None
        self._stop = threading.Event()
        self._thread = ServiceThread("doorbell", self._loop, on_failure=on_failure)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def run_once(self) -> None:
        try:
            version = self._store.requests_version()
        except (OSError, StateError) as error:  # storage is away for a moment: the next look may find it again
            log.warning("requests can't be looked at", reason=str(error))
            self._stop.wait(PATIENCE_S)
            return
        if version != self._seen:
            self._seen = version
            self._ring()

    def _loop(self) -> None:
        while not self._stop.wait(LOOK_EVERY_S):
            self.run_once()
