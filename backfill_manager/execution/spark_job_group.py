"""Spark job properties of a try: every Spark job that it runs is in its pool, under its tag and group, with its name."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from backfill_manager.execution.spark_health import ignore_stopped_context

if TYPE_CHECKING:
    from pyspark import SparkContext

SESSION_OF: Final = "spark.backfill_manager.job_group"  # in the configuration of a try's session: the group of its jobs
# What Spark shows as the details of a stage. Without it, Spark takes a stack trace of the JVM for each RDD of a query, to show
# calls of Py4J: a twentieth of the CPU of a small query.
CALL_SITE: Final = "callSite.long"
# Before each look whether Spark's status store still is behind with what has just begun or ended.
BEHIND_S: Final = (0.01, 0.02, 0.04, 0.08, 0.16)
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
    """Which Spark jobs a try ran, by Spark's status store: the ids as a Java array, and that as one text.

    The store hears of jobs from a queue, which is long while Spark is busy, and keeps the newest `spark.ui.retainedJobs` only. So
    the newest job there is, of whichever try, is waited for first; and the oldest jobs of a try that ran more than are kept are
    missing.
    """

    def __init__(self, sc: SparkContext) -> None:
        from py4j.protocol import Py4JError

        self._tracker = sc._jsc.statusTracker()
        self._as_text = sc._jvm.java.util.Arrays.toString  # each name on the way is a call
        self._number_of_jobs: Callable[[], int] | None = None  # so far, of all tries
        self._wait: Callable[[float], object] = threading.Event().wait
        with contextlib.suppress(Py4JError):  # another build of Spark
            scheduler = sc._jsc.sc().dagScheduler()
            scheduler.numTotalJobs()
            self._number_of_jobs = scheduler.numTotalJobs

    def of_group(self, group: str) -> tuple[int, ...]:
        """Ids in order of start, without those of code that sets a job group of its own; none when Spark is gone."""
        with ignore_stopped_context():
            self._catch_up()
            return tuple(sorted(json.loads(self._as_text(self._tracker.getJobIdsForGroup(group)))))
        return ()

    def _catch_up(self) -> None:
        newest = self._number_of_jobs() - 1 if self._number_of_jobs is not None else -1
        for seconds in BEHIND_S if newest >= 0 else ():
            if self._tracker.getJobInfo(newest) is not None:
                break
            self._wait(seconds)
