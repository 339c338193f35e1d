"""Spark job properties of tasks: every job runs in its task's pool, under its tag and name, whichever thread starts it.

Spark keeps pool, job group, tags and description as properties of a thread. SQL jobs find the pool in their session;
RDD jobs, and tag and group for all, only in the thread that starts them, and a plain Python thread starts with none.
So while an executor is open, a thread that a task's thread starts (and a work item that it gives to a
`ThreadPoolExecutor`, of the task or not) takes the properties of the starter along, as threads in the JVM do. Threads
that belong to no task are left as they are, and after the last executor has closed the patches are removed.

All tasks share the manager's SparkContext, so `stop()` is refused in the threads of a task, whichever session it is called on.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from backfill_manager.errors import InvalidInput
from backfill_manager.execution.spark_health import ignore_stopped_context

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_thread = threading.local()
_numbers = itertools.count(1)


@dataclass(frozen=True, eq=False)
class SparkJobGroup:
    """What every Spark job of one try carries. `tag` names the try for people. `group` is for cancelling, which Spark
    remembers for ever so as to refuse later jobs: no other try may have the same, so it is numbered."""

    sc: SparkContext
    pool: str
    tag: str  # without commas: Spark's separator of tags
    description: str
    log: Callable[[str, str], None]  # (level, message): a line into the try's log
    number: int = field(default_factory=_numbers.__next__)

    @property
    def group(self) -> str:
        return f"{self.tag}#{self.number}"

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """The current thread works for this try."""
        before = _properties(self.sc)
        self.sc.setJobGroup(self.group, self.description)
        self.sc.addJobTag(self.tag)
        self.sc.setLocalProperty("spark.scheduler.pool", self.pool)
        _thread.scope = self
        try:
            yield
        finally:
            _thread.scope = None
            with ignore_stopped_context():
                _set_properties(self.sc, before)

    def cancel_jobs(self) -> None:
        """Stop its running jobs, and refuse those that its threads may still try to start."""
        with ignore_stopped_context():
            self.sc._jsc.sc().cancelJobGroupAndFutureJobs(self.group)
            self.sc._jsc.cancelJobsWithTag(self.tag)  # of code that has set a job group of its own


def current_job_group() -> SparkJobGroup | None:
    """The try that the current thread works for."""
    return getattr(_thread, "scope", None)


def _properties(sc: SparkContext) -> Any:
    """A copy of what the current thread has set, the task's own settings among it."""
    return sc._jsc.sc().getLocalProperties().clone()


def _set_properties(sc: SparkContext, properties: Any) -> None:
    """All of them at once; None for none."""
    sc._jsc.sc().setLocalProperties(properties if properties is not None else sc._jvm.java.util.Properties())


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


def _carrying(scope: SparkJobGroup | None) -> Callable[[Callable[[], Any]], Any]:
    """Runs work in another thread for this scope, with the Spark properties of the thread that calls this."""
    properties: Any = None
    if scope is not None:
        with ignore_stopped_context():
            properties = _properties(scope.sc)

    def run(work: Callable[[], Any]) -> Any:
        before = current_job_group()
        if before is scope:
            return work()
        sc = (scope or before).sc  # type: ignore[union-attr]  # one of the two is a scope: they differ
        kept: Any = None
        with ignore_stopped_context():
            kept = _properties(sc)
            _set_properties(sc, properties)
        _thread.scope = scope
        try:
            return work()
        finally:
            _thread.scope = before
            if kept is not None:
                with ignore_stopped_context():
                    _set_properties(sc, kept)

    return run


_lock = threading.Lock()
_open = 0
_patched: list[tuple[Any, str, Any]] = []  # whose function, its name, ours
_original: dict[str, Any] = {}


def _start(thread: threading.Thread) -> None:
    scope = current_job_group()
    if scope is not None:
        carried, run = _carrying(scope), thread.run

        def run_within() -> None:
            del thread.run  # the instance's; it would keep the thread alive through this closure
            carried(run)

        thread.run = run_within  # type: ignore[method-assign]
    _original["start"](thread)


def _submit(pool: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
    carried = _carrying(current_job_group())  # even of none: the pool's thread may have been made by a task
    future: Future[Any] = _original["submit"](pool, carried, functools.partial(fn, *args, **kwargs))
    return future


def _stop(sc: SparkContext) -> None:
    """Of every session and of `SparkContext.getOrCreate()` alike: they share the manager's SparkContext."""
    if current_job_group() is not None:
        raise InvalidInput(
            "A task must not stop Spark: the session and the SparkContext belong to the manager, and all other tasks work "
            "with them. Take the stop() out of the task; its own session goes away with it."
        )
    _original["stop"](sc)


def _keep_rdd_binding(session: Any) -> None:
    """PySpark binds `RDD.toDF` of all RDDs to whichever session was made last: another task's, in another pool."""


def install(spark: SparkSession) -> None:
    """Has threads inherit, and refuses a task that stops Spark, until `remove` was called as often. `RDD.toDF` is bound
    to `spark`, which names no pool: its jobs go to the pool of the thread."""
    global _open
    from pyspark import SparkContext
    from pyspark.sql import session

    with _lock:
        _open += 1
        if _open > 1:
            return
        session._monkey_patch_RDD(spark)
        for owner, name, ours in (
            (threading.Thread, "start", _start),
            (ThreadPoolExecutor, "submit", _submit),
            (SparkContext, "stop", _stop),
            (session, "_monkey_patch_RDD", _keep_rdd_binding),
        ):
            _original[name] = getattr(owner, name)
            setattr(owner, name, ours)
            _patched.append((owner, name, ours))


def remove() -> None:
    global _open
    with _lock:
        _open -= 1
        while _patched and not _open:
            owner, name, ours = _patched.pop()
            if getattr(owner, name) is ours:  # else another library has wrapped ours since: it stays, and does nothing
                setattr(owner, name, _original[name])
