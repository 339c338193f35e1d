"""Services that look again and again at what reports nothing by itself: the request table, and Spark."""

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
SPARK_INTERVAL_S: Final = 0.5

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


class SparkMonitor(Service):
    """Notices that Spark is gone while no task runs that would fail of it. A check asks the JVM's process, where PySpark started
    it, and whether the SparkContext was stopped: some milliseconds."""

    JOINED: ClassVar = False  # a check of a JVM that hangs would hang too

    def __init__(self, spark_gone_reason: Callable[[], str | None], on_spark_gone: Callable[[str], None]) -> None:
        super().__init__("Spark monitor")
        self._spark_gone_reason, self._on_spark_gone = spark_gone_reason, on_spark_gone

    def run_once(self) -> float | None:
        reason = self._spark_gone_reason()
        if reason is None:
            return SPARK_INTERVAL_S
        if not self._stopping.is_set():
            self._on_spark_gone(reason)
        return None
