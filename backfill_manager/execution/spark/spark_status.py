"""What Spark's status store says of a try: its jobs, and its stages as the figures of `schemas.resources.SparkStages`.

The store hears of jobs and stages from a queue, which is long while Spark is busy, and keeps the newest `spark.ui.retainedJobs`
only. The stages are read at the end of a try, without a Spark job: two calls to the JVM for each job, three for each stage, and
two more for the skew of each that is shown and was long enough. Each comes as one text, by the writer of Spark's own REST API, so
its fields are those of that API.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

from backfill_manager.clock import UTC
from backfill_manager.errors import shorten
from backfill_manager.execution.error_format import one_line
from backfill_manager.execution.spark.spark_health import ignore_stopped_context
from backfill_manager.schemas.resources import SparkStage, SparkStages

if TYPE_CHECKING:
    from pyspark import SparkContext

log = logging.getLogger(__name__)
T = TypeVar("T")

# Before each look whether the store still is behind with what has just begun or ended.
BEHIND_S: Final = (0.01, 0.02, 0.04, 0.08, 0.16)
MAX_JOBS: Final = 100  # the newest of a try
MAX_READ: Final = 1000  # of their stages, the newest: Spark keeps no more, unless it is configured to
MAX_STAGES: Final = 20  # the longest, which are shown one by one
MAX_NAME_CHARS: Final = 200
MIN_SKEWED_S: Final = 0.1  # the time of all tasks of a stage below which its skew says nothing
_SUMS: Final = {  # our figure -> that of Spark's REST API
    "tasks": "numTasks", "failed_tasks": "numFailedTasks", "input_rows": "inputRecords", "input_bytes": "inputBytes",
    "output_rows": "outputRecords", "output_bytes": "outputBytes", "shuffle_read_bytes": "shuffleReadBytes",
    "shuffle_write_bytes": "shuffleWriteBytes", "spilled_bytes": "diskBytesSpilled",
}  # fmt: skip


class SparkStatus:
    """Spark's status store. Of stages it says nothing (once with a warning) where Spark is another build; no try fails of it."""

    def __init__(self, sc: SparkContext) -> None:
        from py4j.protocol import Py4JError

        self._as_json: Callable[[Any], str] | None = None
        self._wait: Callable[[float], object] = threading.Event().wait
        self._number_of_jobs: Callable[[], int] | None = None  # so far, of all tries
        self._context, self._application, self._tracker = sc._jsc.sc(), sc.applicationId, sc._jsc.statusTracker()
        assert sc._jvm is not None and sc._gateway is not None, "it is there"
        self._as_text = sc._jvm.java.util.Arrays.toString  # each name on the way is a call
        with contextlib.suppress(Py4JError):  # another build of Spark
            scheduler = self._context.dagScheduler()
            scheduler.numTotalJobs()
            self._number_of_jobs = scheduler.numTotalJobs
        try:
            self._store = self._context.statusStore()
            self._quantiles = sc._gateway.new_array(sc._jvm.double, 2)
            self._quantiles[0], self._quantiles[1] = 0.5, 1.0
            self._as_json = sc._jvm.org.apache.spark.status.api.v1.JacksonMessageWriter().mapper().writeValueAsString
        except (Py4JError, TypeError) as error:
            log.warning("This Spark does not say what the stages of tasks were (%s).", one_line(error))

    def jobs_of(self, group: str) -> tuple[int, ...]:
        """Ids in order of start, without those of code that sets a job group of its own; none when Spark is gone. The newest job
        there is, of whichever try, is waited for first; of a try that ran more than are kept the oldest are missing."""
        with ignore_stopped_context():
            newest = self._number_of_jobs() - 1 if self._number_of_jobs is not None else -1
            for seconds in BEHIND_S if newest >= 0 else ():
                if self._tracker.getJobInfo(newest) is not None:
                    break
                self._wait(seconds)
            return tuple(sorted(json.loads(self._as_text(self._tracker.getJobIdsForGroup(group)))))
        return ()

    def stages_of(self, jobs: Sequence[int], masked: Callable[[str], str]) -> SparkStages | None:
        """Those of these jobs that have begun, by what Spark still knows. None: nothing. `masked` hides secrets in names."""
        return self._if_available(lambda: self._read(jobs[-MAX_JOBS:], masked)) if jobs else None

    def job(self, number: int) -> dict[str, Any] | None:
        """Of one job, for its span. None: Spark keeps it no more, or is gone."""
        return self._if_available(lambda: next(map(self._of_job, self._document(self._store.job, number)), None))

    def _if_available(self, read: Callable[[], T]) -> T | None:
        if self._as_json is None:
            return None
        with ignore_stopped_context():
            try:
                return read()
            except (KeyError, ValueError) as error:  # another layout
                log.warning("What Spark says of its jobs and stages can't be read: %s", one_line(error))
        return None

    def _of_job(self, found: dict[str, Any]) -> dict[str, Any]:
        return {
            "name": found["name"], "began": _at(found.get("submissionTime")), "ended": _at(found.get("completionTime")),
            "status": found["status"], "application": self._application, "stages": len(found["stageIds"]),
            "tasks": found["numTasks"], "failed_tasks": found["numFailedTasks"],
        }  # fmt: skip

    def _read(self, jobs: Sequence[int], masked: Callable[[str], str]) -> SparkStages | None:
        of_jobs = self._ended(jobs)
        ids = sorted({stage_id for job in of_jobs for stage_id in job["stageIds"]})[-MAX_READ:]
        stages = [stage for stage_id in ids for stage in self._begun(stage_id)]
        if not stages:
            return None
        sums = {name: sum(stage[of_spark] for stage in stages) for name, of_spark in _SUMS.items()}
        longest = sorted(stages, key=lambda stage: (-(_seconds(stage) or 0.0), stage["stageId"]))[:MAX_STAGES]
        shown = tuple(self._shown(stage, masked) for stage in longest)
        return SparkStages(jobs=len(of_jobs), stages=len(stages), task_s=_task_s(stages), longest=shown, **sums)

    def _ended(self, jobs: Sequence[int]) -> list[dict[str, Any]]:
        """The jobs, once the store has heard of their ends, and so of those of their stages; a job that nobody could stop has no
        end."""
        found = [job for number in jobs for job in self._document(self._store.job, number)]
        for seconds in BEHIND_S:
            if not any(job["status"] == "RUNNING" for job in found):
                break
            self._wait(seconds)
            looks = (
                (job,) if job["status"] != "RUNNING" else self._document(self._store.job, job["jobId"]) for job in found
            )
            found = [job for look in looks for job in look]
        return found

    def _begun(self, stage_id: int) -> Iterator[dict[str, Any]]:
        """Its last attempt, if it has begun and Spark still knows it. (It forgets skipped stages first. An exception of the JVM
        takes sixteen milliseconds of CPU, as PySpark looks up some twenty names to convert it.)"""
        if self._tracker.getStageInfo(stage_id) is None:
            return
        for stage in self._document(self._store.lastStageAttempt, stage_id):
            if stage["status"] not in ("SKIPPED", "PENDING"):
                yield stage

    def _shown(self, stage: dict[str, Any], masked: Callable[[str], str]) -> SparkStage:
        number, attempt = stage["stageId"], stage["attemptId"]
        figures = {name: stage[of_spark] for name, of_spark in _SUMS.items()}
        return SparkStage(
            stage_id=number, attempt=attempt, name=shorten(masked(stage["name"]), MAX_NAME_CHARS), status=stage["status"].lower(),
            duration_s=_seconds(stage), task_s=_task_s([stage]), skew=self._skew(stage),
            **figures,
        )  # fmt: skip

    def _skew(self, stage: dict[str, Any]) -> float | None:
        if stage["numTasks"] < 2 or _task_s([stage]) < MIN_SKEWED_S:
            return None
        read = self._store.taskSummary
        for summary in self._document(read, stage["stageId"], stage["attemptId"], self._quantiles):
            if summary is not None:
                median, longest = summary["duration"]
                return round(float(longest) / max(float(median), 1.0), 1)
        return None

    def _document(self, read: Callable[..., Any], *of: Any) -> Iterator[Any]:
        """What the store says; nothing where it has forgotten it."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        assert self._as_json is not None, "it was asked before"
        try:
            found = read(*of)
        except (Py4JJavaError, PySparkException):  # NoSuchElementException: beyond `spark.ui.retainedStages`
            return
        yield json.loads(self._as_json(found))


def _task_s(stages: Sequence[dict[str, Any]]) -> float:
    return round(float(sum(stage["executorRunTime"] for stage in stages)) / 1000, 3)


def _seconds(stage: dict[str, Any]) -> float | None:
    """Between its first task's submission and its end; None while it has not ended."""
    begun, ended = _at(stage.get("submissionTime")), _at(stage.get("completionTime"))
    return None if begun is None or ended is None else round((ended - begun).total_seconds(), 3)


def _at(text: str | None) -> datetime | None:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fGMT").replace(tzinfo=UTC) if text else None
