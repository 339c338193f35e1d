"""Looks again and again whether Spark is still there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, Final

from backfill_manager.clock import Clock
from backfill_manager.service import Service

SPARK_INTERVAL_S: Final = 0.5
TOUCH_INTERVAL_S: Final = 3600.0  # cleaners of /tmp delete what is days old


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

    def run_once(self) -> float | None:
        reason = self._spark_gone_reason() or next(
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
