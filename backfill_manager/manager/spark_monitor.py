"""Looks again and again whether Spark is still there."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from backfill_manager.service import Service

SPARK_INTERVAL_S: Final = 0.5


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
