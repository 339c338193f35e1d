"""Rows that Spark keeps in memory: those that we use several times, and those that a try has left there."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from backfill_manager.execution.error_format import one_line
from backfill_manager.execution.spark.spark_health import ignore_stopped_context
from backfill_manager.execution.spark.spark_job_group import SESSION_OF

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)


@contextmanager
def cached(df: DataFrame) -> Iterator[DataFrame]:
    """The same rows, which Spark keeps when they are first computed. It shares cached rows among all whose plans are the same, as
    those of another try may be; so this plan is one that nobody else has."""
    from pyspark.sql import functions as F

    if df.storageLevel.useMemory or df.storageLevel.useDisk:  # by the task itself
        yield df
        return
    mine = df.where(F.lit(secrets.token_hex(16)).isNotNull()).persist()
    try:
        yield mine
    finally:
        mine.unpersist()


class CachedRows:
    """What the sessions of tries have cached (`df.cache()`, `CACHE TABLE`). Spark shares it among all sessions and keeps it until
    somebody drops it, so that it would outlive its try, and another one would wait for ever for rows that a killed one had begun
    to compute."""

    def __init__(self, spark: SparkSession) -> None:
        from py4j.protocol import Py4JError

        self._entries, self._manager = None, spark._jsparkSession.sharedState().cacheManager()
        try:
            self._entries = self._manager.getClass().getDeclaredField("cachedData")
            self._entries.setAccessible(True)
        except Py4JError as error:  # another build of Spark
            log.warning("This Spark does not say what is cached (%s): rows of tasks stay until they drop them.", error)

    def drop_those_of(self, group: str) -> None:
        """A call to the JVM while nothing is cached by anybody. Queries that use the rows compute them again."""
        if self._entries is None:
            return
        with ignore_stopped_context():
            try:
                self._drop(group)
            except PySparkException as error:  # of a plan that depends on them and can't be made anew
                log.warning("Not all rows that a task has cached could be dropped: %s", one_line(error))

    def _drop(self, group: str) -> None:
        assert self._entries is not None
        if self._manager.isEmpty():
            return
        entries = self._entries.get(self._manager).iterator()
        while entries.hasNext():
            entry = entries.next()
            session = entry.cachedRepresentation().cacheBuilder().cachedPlan().session()
            if session.conf().get(SESSION_OF, "") == group:
                self._manager.uncacheQuery(session, entry.plan(), False, False)
