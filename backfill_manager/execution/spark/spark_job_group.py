"""Spark job properties: every Spark job of a try is in the try's pool, under its tag and group, with its name."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from backfill_manager.execution.spark.spark_health import ignore_stopped_context

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

SESSION_OF: Final = "spark.backfill_manager.job_group"  # in the configuration of a try's session: the group of its jobs
# What Spark shows as the details of a stage. Without it, Spark takes a stack trace of the JVM for each RDD of a query, to show
# calls of Py4J: a twentieth of the CPU of a small query.
CALL_SITE: Final = "callSite.long"
_numbers: Final = itertools.count(1)


@dataclass(frozen=True)
class SparkJobGroup:
    """What every Spark job of one try, or of a service of the manager, carries. `tag` names it for people. `group` is for
    cancelling, which Spark remembers for ever so as to refuse later jobs: no other may have the same, so it is numbered."""

    pool: str
    tag: str  # without commas: Spark's separator of tags
    description: str
    number: int = field(default_factory=_numbers.__next__)

    @property
    def group(self) -> str:
        return f"{self.tag}#{self.number}"

    def enter(self, session: SparkSession) -> None:
        """The current thread works for it with this session, until it ends."""
        context = session.sparkContext
        context.setJobGroup(self.group, self.description)
        context.addJobTag(self.tag)
        context.setLocalProperty("spark.scheduler.pool", self.pool)
        context.setLocalProperty(CALL_SITE, self.description)
        session.conf.set("spark.scheduler.pool", self.pool)
        session.conf.set(SESSION_OF, self.group)

    def cancel_jobs(self, context: SparkContext) -> None:
        """Stop its running jobs, and refuse those that it may still try to start."""
        with ignore_stopped_context():
            context._jsc.sc().cancelJobGroupAndFutureJobs(self.group)
            context._jsc.cancelJobsWithTag(self.tag)  # of code that has set a job group of its own
