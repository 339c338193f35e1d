"""The threads that all queries of a driver share, and whether the queries wait for each other for ever.

A query keeps a thread of such a pool while it waits for its subqueries or its last stages, which need one, too. Once all of a
pool are kept by queries that wait, none comes free: Spark neither notices nor ends it, and each further query waits as well. No
number of threads rules that out (docs/design-decisions.md, "Spark settings").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from backfill_manager.store.delta_spark.java_classes import java_class
from backfill_manager.store.delta_spark.transaction import set_active

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# How many threads it has -> the object of Spark that has them.
_POOLS: Final = {
    "spark.sql.subquery.maxThreadThreshold": "SubqueryExec$",
    "spark.sql.shuffleExchange.maxThreadThreshold": "exchange.ShuffleExchangeExec$",
    "spark.sql.resultQueryStage.maxThreadThreshold": "adaptive.ResultQueryStageExec$",
    "spark.sql.broadcastExchange.maxThreadThreshold": "exchange.BroadcastExchangeExec$",
}


@dataclass(frozen=True)
class FullPool:
    """A pool whose threads are all taken, and for which something waits."""

    setting: str
    threads: int
    completed: int  # calls, so far
    jobs: int  # Spark jobs of the driver that have begun so far


class QueryThreads:
    """Those of a session. None where Spark is another build."""

    def __init__(self, spark: SparkSession) -> None:
        from py4j.protocol import Py4JError

        self._pools: dict[str, Any] = {}
        try:
            # Whoever is the first to ask for a pool makes it, with the settings of the session that is active in its thread.
            set_active(spark)
            scheduler = spark.sparkContext._jsc.sc().dagScheduler()  # the status store may have missed the end of a job
            self._jobs, self._running = scheduler.numTotalJobs, scheduler.activeJobs
            self._jobs(), self._running().size()
            classes = java_class(spark, "java.lang.Class")
            for setting, name in _POOLS.items():
                of_spark = classes.forName(f"org.apache.spark.sql.execution.{name}").getField("MODULE$").get(None)
                pool = of_spark.executionContext().executor()
                pool.getCompletedTaskCount()
                self._pools[setting] = pool
        except (Py4JError, TypeError):
            self._pools = {}

    def full(self) -> list[FullPool]:
        """None of them while a Spark job runs, which will come to an end."""
        found = [
            FullPool(setting, int(pool.getMaximumPoolSize()), int(pool.getCompletedTaskCount()), int(self._jobs()))
            for setting, pool in self._pools.items()
            if pool.getQueue().size()
        ]
        return found if found and not self._running().size() else []
