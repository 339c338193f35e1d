"""Looks at the request table again and again, as nothing reports that a client has written into it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ClassVar, Final

from backfill_manager.errors import StateError
from backfill_manager.logging import get_logger
from backfill_manager.service import Service
from backfill_manager.store.base import Store

REQUESTS_INTERVAL_S: Final = 0.1
MAX_REQUESTS_INTERVAL_S: Final = 1.0
PAUSE_PER_LOOK: Final = 4.0  # a look takes a millisecond on a disk, and some dozens over an object store or a metastore
RETRY_INTERVAL_S: Final = 5.0  # while storage is away

log = get_logger("request_poller")


class RequestPoller(Service):
    """Wakes the manager when the request table has a new version. Clients are other processes, perhaps on other machines: the
    table is all that they share with the manager. Where a look takes long, it looks less often."""

    JOINED: ClassVar = False

    def __init__(self, store: Store, on_requests: Callable[[], None]) -> None:
        super().__init__("request poller")
        self._store, self._on_requests = store, on_requests
        self._version: int | None = None

    def run_once(self) -> float:
        began = time.monotonic()
        try:
            version = self._store.requests_version()
        except (OSError, StateError) as error:
            log.warning("request table can't be read", reason=str(error))
            return RETRY_INTERVAL_S
        if version != self._version:
            self._version = version
            self._on_requests()
        pause = PAUSE_PER_LOOK * (time.monotonic() - began)
        return min(max(REQUESTS_INTERVAL_S, pause), MAX_REQUESTS_INTERVAL_S)
