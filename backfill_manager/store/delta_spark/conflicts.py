"""What marks a commit through Spark, Delta's conflicts between concurrent commits, and repeating one that lost to another.

Modules that run tasks import this at their top, and with it `delta`: that package imports itself in a circle, and tasks that were
the first to import it, concurrently, found half of it ("cannot import name 'DeltaTable' from partially initialized module").
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from delta import exceptions  # without it Delta's conflicts arrive as bare Py4J errors
from py4j.protocol import Py4JJavaError

if TYPE_CHECKING:
    import tenacity
    from pyspark.sql import SparkSession

MAX_CAUSES: Final = 10  # of a Java exception that are looked at
MAX_ATTEMPTS: Final = 8  # against writers in other processes; with the waits below about 20 s
# In PySpark they have no base class of their own, whatever the name of the first one says.
CONFLICTS: Final[tuple[type[Exception], ...]] = (
    exceptions.DeltaConcurrentModificationException,
    exceptions.ConcurrentWriteException,
    exceptions.MetadataChangedException,
    exceptions.ProtocolChangedException,
    exceptions.ConcurrentAppendException,
    exceptions.ConcurrentDeleteReadException,
    exceptions.ConcurrentDeleteDeleteException,
    exceptions.ConcurrentTransactionException,
)


@contextmanager
def marked_commits(spark: SparkSession, app_id: str, version: int, metadata: str) -> Iterator[None]:
    """SQL, MERGE, UPDATE and DELETE take the application transaction and the user metadata of their commits from the session."""
    conf = {
        "spark.databricks.delta.write.txnAppId": app_id, "spark.databricks.delta.write.txnVersion": str(version),
        "spark.databricks.delta.commitInfo.userMetadata": metadata,
    }  # fmt: skip
    for key, value in conf.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key in conf:
            spark.conf.unset(key)


def was_interrupted(error: BaseException) -> bool:
    """Whether a thread of the JVM was interrupted. Delta shares what it reads of a table's log between threads: one that fails in
    the middle, as its process was killed, hands its failure to all that wait for the same."""
    if not isinstance(error, Py4JJavaError):
        return False
    cause = error.java_exception
    for _ in range(MAX_CAUSES):
        if cause is None or cause.getClass().getName() == "java.lang.InterruptedException":
            return cause is not None
        cause = cause.getCause()
    return False


def retry_on_conflict(log: logging.Logger, what: str) -> tenacity.Retrying:
    """Calls the function that makes one commit. A conflict means that Delta has refused the commit: nothing of it is there, and
    it may be done again from the table as it is now. So it may after the interrupt of another: if it had landed, its transaction
    is there."""
    import tenacity

    def say(state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        why = (
            "another writer was first at"
            if isinstance(error, CONFLICTS)
            else "another writer was stopped while it read"
        )
        log.info("%s %s; trying again (%d)", why, what, state.attempt_number)

    return tenacity.Retrying(
        retry=tenacity.retry_if_exception(lambda error: isinstance(error, CONFLICTS) or was_interrupted(error)),
        wait=tenacity.wait_random_exponential(multiplier=0.2, max=5),
        stop=tenacity.stop_after_attempt(MAX_ATTEMPTS),
        before_sleep=say,
        reraise=True,
    )
