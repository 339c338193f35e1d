"""Notices that queries of the driver wait for each other for ever."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from backfill_manager.execution.spark.query_threads import FullPool
from backfill_manager.execution.spark.spark_health import ignore_stopped_context
from backfill_manager.humanise import duration
from backfill_manager.service import Service

QUERIES_INTERVAL_S: Final = 15.0
MAX_STANDSTILL_S: Final = 300.0


class QueryMonitor(Service):
    """Only a new driver helps, so Spark counts as gone: each further query would wait as well. `full_pools` is that of
    `QueryThreads`."""

    JOINED: ClassVar = False  # it calls the JVM

    def __init__(self, full_pools: Callable[[], list[FullPool]], on_spark_gone: Callable[[str], None]) -> None:
        super().__init__("query monitor")
        self._full_pools, self._on_spark_gone = full_pools, on_spark_gone
        # Looks at which it was the same are counted: this process may have been stopped with the JVM.
        self._looks: dict[FullPool, int] = {}

    def run_once(self) -> float | None:
        full: list[FullPool] = []
        with ignore_stopped_context():  # the Spark monitor reports it
            full = self._full_pools()
        self._looks = {pool: self._looks.get(pool, -1) + 1 for pool in full}
        for pool, looks in self._looks.items():
            if (seconds := looks * QUERIES_INTERVAL_S) >= MAX_STANDSTILL_S:
                self._on_spark_gone(
                    f"its queries wait for each other: all {pool.threads} threads of {pool.setting} have been taken for "
                    f"{duration(seconds)}, and no Spark job has run; give the pool of such tasks fewer slots, or raise that "
                    "setting in `spark.conf`"
                )
                return None
        return QUERIES_INTERVAL_S
