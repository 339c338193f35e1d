"""Which Spark jobs a try ran: asked of Spark's status store when the try ends."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from backfill_manager.execution.spark_properties import ignore_stopped_context

if TYPE_CHECKING:
    from pyspark import SparkContext


class SparkJobs:
    """Two calls to the JVM for each answer: the ids as a Java array, and that as one text.

    The status store hears of a job a moment after it has begun, and keeps the newest `spark.ui.retainedJobs` only. So
    what may be missing is a job that began in the last milliseconds, where Spark's listeners lag (waiting for them means
    to wait for everybody's jobs: none was missed in 2,400 tries, sixteen at once on two busy cores), and the oldest jobs of
    a try that ran, beside others, more than are kept.
    """

    def __init__(self, sc: SparkContext) -> None:
        self._tracker = sc._jsc.statusTracker()
        self._as_text = sc._jvm.java.util.Arrays.toString  # each name on the way is a call

    def of_group(self, group: str) -> tuple[int, ...]:
        """Ids in the order of their beginning. Without those of code that has set a job group of its own; none when
        Spark is gone."""
        with ignore_stopped_context():
            return tuple(sorted(json.loads(self._as_text(self._tracker.getJobIdsForGroup(group)))))
        return ()
