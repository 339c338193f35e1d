"""Wakes the manager when the request table has a new version.

Clients are other processes, perhaps on other machines: the table is all that they share with the manager.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from backfill_manager.errors import StateError
from backfill_manager.logging import get_logger
from backfill_manager.service import FailureHandler, Service
from backfill_manager.store.base import Store

POLL_INTERVAL_S: Final = 0.1
RETRY_INTERVAL_S: Final = 5.0  # while storage is away

log = get_logger("request_poller")


class RequestPoller(Service):
    JOINED: ClassVar = False

    def __init__(self, store: Store, on_requests: Callable[[], None], on_failure: FailureHandler | None = None) -> None:
        super().__init__("request poller", on_failure)
        self._store, self._on_requests = store, on_requests
        self._version: int | None = None

    def run_once(self) -> float:
        try:
            version = self._store.requests_version()
        except (OSError, StateError) as error:
            log.warning("request table can't be read", reason=str(error))
            return RETRY_INTERVAL_S
        if version != self._version:
            self._version = version
            self._on_requests()
        return POLL_INTERVAL_S
