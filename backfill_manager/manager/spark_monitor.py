"""Notices that Spark is gone while no task runs that would fail of it.

A check asks the JVM's process, where PySpark started it, and whether the SparkContext was stopped: some milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from backfill_manager.service import FailureHandler, Service

POLL_INTERVAL_S: Final = 0.5


class SparkMonitor(Service):
    JOINED: ClassVar = False  # a check of a JVM that hangs would hang too

    def __init__(
        self,
        spark_gone_reason: Callable[[], str | None],
        on_spark_gone: Callable[[str], None],
        on_failure: FailureHandler | None = None,
    ) -> None:
        super().__init__("Spark monitor", on_failure)
        self._spark_gone_reason, self._on_spark_gone = spark_gone_reason, on_spark_gone

    def run_once(self) -> float | None:
        reason = self._spark_gone_reason()
        if reason is None:
            return POLL_INTERVAL_S
        if not self._stopping.is_set():
            self._on_spark_gone(reason)
        return None
