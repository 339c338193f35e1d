"""Spark job properties of a try: every Spark job that it runs is in its pool, under its tag and group, with its name."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from backfill_manager.execution.spark_health import ignore_stopped_context

if TYPE_CHECKING:
    from pyspark import SparkContext

SESSION_OF: Final = "spark.backfill_manager.job_group"  # in the configuration of a try's session: the group of its jobs
# What Spark shows as the details of a stage. Without it, Spark takes a stack trace of the JVM for each RDD of a query, to show
# calls of Py4J: a twentieth of the CPU of a small query.
CALL_SITE: Final = "callSite.long"
_numbers: Final = itertools.count(1)


@dataclass(frozen=True, eq=False)
class SparkJobGroup:
    """What every Spark job of one try carries. `tag` names the try for people. `group` is for cancelling, which Spark
    remembers for ever so as to refuse later jobs: no other try may have the same, so it is numbered."""

    sc: SparkContext
    pool: str
    tag: str  # without commas: Spark's separator of tags
    description: str
    number: int = field(default_factory=_numbers.__next__)

    @property
    def group(self) -> str:
        return f"{self.tag}#{self.number}"

    def enter(self) -> None:
        """The current thread works for this try, until it ends. (A task process does the same in `task_spark`.)"""
        self.sc.setJobGroup(self.group, self.description)
        self.sc.addJobTag(self.tag)
        self.sc.setLocalProperty("spark.scheduler.pool", self.pool)
        self.sc.setLocalProperty(CALL_SITE, self.description)

    def cancel_jobs(self) -> None:
        """Stop its running jobs, and refuse those that it may still try to start."""
        with ignore_stopped_context():
            self.sc._jsc.sc().cancelJobGroupAndFutureJobs(self.group)
            self.sc._jsc.cancelJobsWithTag(self.tag)  # of code that has set a job group of its own


class SparkJobs:
    """Which Spark jobs a try ran, by Spark's status store: two calls to the JVM, the ids as a Java array, and that as one text.

    The store learns of a job a moment after it has begun, and keeps the newest `spark.ui.retainedJobs` only. So jobs that began
    in the last milliseconds may be missing (waiting for the listeners would mean waiting for everybody's jobs: none was missed in
    2,400 tries, sixteen at once on two busy cores), and the oldest jobs of a try that ran more than are kept.
    """

    def __init__(self, sc: SparkContext) -> None:
        self._tracker = sc._jsc.statusTracker()
        self._as_text = sc._jvm.java.util.Arrays.toString  # each name on the way is a call

    def of_group(self, group: str) -> tuple[int, ...]:
        """Ids in order of start, without those of code that sets a job group of its own; none when Spark is gone."""
        with ignore_stopped_context():
            return tuple(sorted(json.loads(self._as_text(self._tracker.getJobIdsForGroup(group)))))
        return ()
