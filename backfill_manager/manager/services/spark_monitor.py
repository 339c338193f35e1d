"""Looks again and again whether Spark is still there, and answers.

A JVM that ends is noticed by whoever calls it. One that is there and says nothing (its process was stopped, it collects garbage
without end, a lock is never freed) is not: no call to it has a time limit, so each thread that calls it waits for as long as that
lasts. The thread that looks waits as well, and another one, which never calls the JVM, watches for how long.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, Final

from backfill_manager.clock import Clock
from backfill_manager.execution.spark.query_threads import QueryThreads
from backfill_manager.execution.spark.session import SparkProvider
from backfill_manager.execution.spark.spark_health import (
    ignore_stopped_context,
    jvm_pid,
    lack_of_executors,
    temporary_folders,
)
from backfill_manager.humanise import duration
from backfill_manager.logging import get_logger
from backfill_manager.manager.services.query_monitor import QueryMonitor
from backfill_manager.service import Service

SPARK_INTERVAL_S: Final = 0.5
TOUCH_INTERVAL_S: Final = 3600.0  # cleaners of /tmp delete what is days old
SILENCE_INTERVAL_S: Final = 1.0
REPORT_SILENCE_S: Final = 30.0
EXECUTORS_INTERVAL_S: Final = 5.0
REPORT_LACK_S: Final = 20.0  # more than an executor takes to start
MAX_SILENCE_S: Final = 300.0  # longer than a collection of garbage takes that ever ends

log = get_logger("spark_monitor")


class SparkMonitor(Service):
    """Notices that Spark is gone while no task runs that would fail of it. A check asks the JVM's process, where PySpark started
    it, and whether the SparkContext was stopped: some milliseconds.

    `folders` are those of Spark's temporary files (`execution.spark_health.temporary_folders`). Without one of them Spark
    answers, but plans and tasks fail, for ever: so it counts as gone. Cleaners of /tmp go by age (systemd-tmpfiles: ten days),
    and what Spark made at its start and uses seldom is as old as it: so it is touched."""

    JOINED: ClassVar = False  # a check of a JVM that hangs would hang too

    def __init__(
        self, spark_gone_reason: Callable[[], str | None], on_spark_gone: Callable[[str], None], folders: Sequence[Path],
        clock: Clock,
    ) -> None:  # fmt: skip
        super().__init__("Spark monitor")
        self._spark_gone_reason, self._on_spark_gone = spark_gone_reason, on_spark_gone
        self._folders, self._clock, self._touched_at = folders, clock, clock.monotonic()
        self.asked_at: float | None = None  # while the JVM has not answered

    def run_once(self) -> float | None:
        self.asked_at = self._clock.monotonic()
        reason = self._spark_gone_reason()
        self.asked_at = None
        reason = reason or next(
            (f"its folder {folder} was deleted" for folder in self._folders if not folder.is_dir()), None
        )
        if reason is None:
            if self._clock.monotonic() - self._touched_at >= TOUCH_INTERVAL_S:
                self._touch()
            return SPARK_INTERVAL_S
        if not self._stopping.is_set():
            self._on_spark_gone(reason)
        return None

    def _touch(self) -> None:
        self._touched_at = self._clock.monotonic()
        for folder in self._folders:
            for place in (folder, *folder.glob("*/")):
                with contextlib.suppress(OSError):  # it has just gone, or is another user's
                    os.utime(place)


class SilenceMonitor(Service):
    """Reports a JVM that has not answered `monitor` for a while; in the end Spark counts as gone. `jvm` is the id of a process
    that serves this manager only: it is killed, which ends every call that waits for it. None: another one's, which is left
    alone."""

    JOINED: ClassVar = False  # what it reports is handled with calls to the JVM

    def __init__(self, monitor: SparkMonitor, jvm: int | None, on_spark_gone: Callable[[str], None]) -> None:
        super().__init__("silence monitor")
        self._monitor, self._jvm, self._on_spark_gone = monitor, jvm, on_spark_gone
        self._is_reported = False
        # Looks at the same question without an answer are counted: this process may have been stopped with the JVM.
        self._asked_at, self._looks = monitor.asked_at, 0

    def run_once(self) -> float | None:
        asked_at, before = self._monitor.asked_at, self._asked_at
        self._asked_at, self._looks = asked_at, 0 if asked_at is None or asked_at != before else self._looks + 1
        silent_s = self._looks * SILENCE_INTERVAL_S
        if self._is_reported and silent_s < REPORT_SILENCE_S:
            log.info("Spark's JVM answers again")
            self._is_reported = False
        elif not self._is_reported and silent_s >= REPORT_SILENCE_S:
            self._is_reported = True
            log.warning(
                "Spark's JVM does not answer; no task that uses Spark can go on", silent_s=silent_s,
                pid=self._jvm, gives_up_after_s=MAX_SILENCE_S,
            )  # fmt: skip
        if silent_s < MAX_SILENCE_S:
            return SILENCE_INTERVAL_S
        reason = f"its JVM has not answered for {duration(silent_s)}"
        if self._jvm is not None:
            reason += f", and was killed (pid {self._jvm})"
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._jvm, signal.SIGKILL)
        self._on_spark_gone(reason)
        return None


class ExecutorMonitor(Service):
    """Reports that Spark jobs wait because there is no executor: the cluster has none to give, or has lost them. Spark's own line
    about that is a warning, and the manager shows its errors only."""

    JOINED: ClassVar = False  # it calls the JVM

    def __init__(self, jobs_lack_executors: Callable[[], bool]) -> None:
        super().__init__("executor monitor")
        self._jobs_lack_executors = jobs_lack_executors
        self._looks, self._is_reported = 0, False

    def run_once(self) -> float | None:
        lacking = False
        with ignore_stopped_context():  # the Spark monitor reports it
            lacking = self._jobs_lack_executors()
        self._looks = self._looks + 1 if lacking else 0
        if self._is_reported and not lacking:
            log.info("Spark jobs wait for no executor any more")
            self._is_reported = False
        elif not self._is_reported and self._looks * EXECUTORS_INTERVAL_S >= REPORT_LACK_S:
            self._is_reported = True
            log.warning(
                "Spark has no executor, so its jobs wait; see whether the cluster has cores and memory left for one"
            )
        return EXECUTORS_INTERVAL_S


def spark_monitors(session: SparkProvider, on_spark_gone: Callable[[str], None], clock: Clock) -> list[Service]:
    """All that watch the Spark of `session`."""
    spark = session.get()
    monitor = SparkMonitor(session.gone_reason, on_spark_gone, temporary_folders(spark), clock)
    silence = SilenceMonitor(monitor, jvm_pid(spark) if session.is_ours else None, on_spark_gone)
    monitors: list[Service] = [monitor, silence, QueryMonitor(QueryThreads(spark).full, on_spark_gone)]
    if (jobs_lack_executors := lack_of_executors(spark)) is not None:
        monitors.append(ExecutorMonitor(jobs_lack_executors))
    return monitors
