"""Why a manager ends before anybody has told it to: Spark is gone, or a part of it has failed.

Such a manager could only look alive: it would lead, and run nothing. So whatever part notices says so here, once; the manager
then starts nothing more, commits what has ended, gives its lease back and ends with one line and an exit code that is not 0.
What was asked for stays unanswered for the next leader, which may be a standby, or this one started again by its supervisor.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from backfill_manager.errors import BackfillManagerError, ServiceFailed, SparkGone
from backfill_manager.execution.error_format import one_line

WHAT_NOW: Final = (
    "This manager has ended and leads no more; start it again, or let its supervisor do so. What was asked for waits, and "
    "tasks that ran go on with the next leader."
)


class Shutdown:
    """`problem` is the first one that was reported; `wake` is called with each."""

    def __init__(self, wake: Callable[[], None], spark_gone_reason: Callable[[], str | None]) -> None:
        self._wake, self._why_spark_is_gone = wake, spark_gone_reason
        self._lock = threading.Lock()
        self.problem: BackfillManagerError | None = None

    def spark_gone(self, why: str) -> None:
        self._because(SparkGone(f"Spark is gone: {why}. {WHAT_NOW}"))

    def service_failed(self, part: str, error: BaseException) -> None:
        """The thread of a part has ended by this exception: by a bug, or because it works through Spark."""
        self._because(self.spark_gone_beneath() or self._part_failed(part, error))

    def spark_gone_beneath(self) -> SparkGone | None:
        """What is to be said when something broke because Spark is gone; None when Spark is there."""
        why = self._why_spark_is_gone()
        return SparkGone(f"Spark is gone: {why}. {WHAT_NOW}") if why else None

    def _part_failed(self, part: str, error: BaseException) -> ServiceFailed:
        failed = ServiceFailed(
            f"A part of the manager has failed ({part}): {one_line(error)}. A bug in backfill_manager. {WHAT_NOW}"
        )
        failed.__cause__ = error  # `--debug` shows where
        return failed

    def _because(self, problem: BackfillManagerError) -> None:
        with self._lock:
            self.problem = self.problem or problem
        self._wake()
