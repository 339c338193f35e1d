"""Notices that Spark is gone while nothing runs that would fail of it: a look twice a second.

A look asks the JVM's process, where PySpark started it, and the SparkContext whether it was stopped: some milliseconds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from backfill_manager.execution.error_format import spark_gone_reason
from backfill_manager.service import ServiceFailed, ServiceThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_EVERY_S: Final = 0.5


class SparkMonitor:
    def __init__(
        self, spark: SparkSession, on_spark_gone: Callable[[str], None], on_failure: ServiceFailed | None = None
    ) -> None:
        self._spark, self._on_spark_gone = spark, on_spark_gone
        self._stop = threading.Event()
        self._thread = ServiceThread("spark watch", self._loop, on_failure=on_failure)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Not waited for: a look at a JVM that hangs would hang too."""
        self._stop.set()

    def _loop(self) -> None:
        while not self._stop.wait(LOOK_EVERY_S):
            why = spark_gone_reason(self._spark)
            if why is not None and not self._stop.is_set():
                self._on_spark_gone(why)
                return
