"""Why a manager ends: it was stopped, it lost its lease, Spark is gone, or one of its services has failed.

A manager without Spark, or without one of its threads, would lead and run nothing. So any thread that notices reports it here;
the manager then starts nothing more, commits what has ended, gives its lease back and exits with one line and an exit code other
than 0. Unanswered requests wait for the next leader: a standby, or this one restarted by its supervisor.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from backfill_manager.errors import BackfillManagerError, ServiceFailed, SparkGone
from backfill_manager.execution.error_format import one_line
from backfill_manager.logging import get_logger
from backfill_manager.manager.services.exit_watchdog import ExitWatchdog
from backfill_manager.manager.services.parent_watchdog import parent_has_ended

log = get_logger("manager")

RESTART_HINT: Final = (
    "This manager has ended and no longer leads; start it again, or let its supervisor do so. Requests wait, and tasks that "
    "were running start again under the next leader."
)


class Shutdown:
    """Written by any thread; `wake` is called with each report. `stop` is set from outside (a signal)."""

    def __init__(
        self, stop: threading.Event, *, wake: Callable[[], None], spark_gone_reason: Callable[[], str | None],
        watchdog: ExitWatchdog,
    ) -> None:  # fmt: skip
        self._stop, self._wake_loop, self._spark_gone_reason, self._watchdog = stop, wake, spark_gone_reason, watchdog
        self._lock = threading.Lock()
        self._drain: bool | None = None
        self.is_lease_lost = False
        self.problem: BackfillManagerError | None = None  # the first one that was reported

    @property
    def is_due(self) -> bool:
        return self._stop.is_set() or self._drain is not None or self.is_lease_lost or self.problem is not None

    @property
    def is_requested(self) -> bool:
        """A person or a supervisor stops this manager. SIGTERM also comes when the parent process ends, which is no request."""
        return self._drain is not None or (self._stop.is_set() and not parent_has_ended())

    @property
    def has_lost_parent(self) -> bool:
        """The JVM that runs this driver has ended, and the kernel reported it before the Spark monitor did."""
        return self._stop.is_set() and not self.is_requested

    @property
    def drains(self) -> bool:
        """Whether running tasks may finish first."""
        return self._drain is not False

    def wait(self) -> None:
        """Wake the loop when `stop` is set; for a thread of its own, as others set it."""
        self._stop.wait()
        self._wake()

    def request(self, drain: bool) -> None:
        """A client has sent `manager.stop`."""
        self._drain = drain
        self._wake()

    def lease_lost(self) -> None:
        self.is_lease_lost = True
        self._wake()

    def spark_gone(self, reason: str) -> None:
        if self.is_requested:  # a signal to the whole process group stops Spark, too
            log.info("Spark is gone while the manager stops", reason=reason)
        else:
            self._report(spark_gone_error(reason))

    def service_failed(self, name: str, error: BaseException) -> None:
        """The thread of a service has ended by this exception: a bug, or because it works through Spark."""
        failed = ServiceFailed(
            f"A service of the manager has failed ({name}): {one_line(error)}. A bug in backfill_manager. {RESTART_HINT}"
        )
        failed.__cause__ = error  # `--debug` shows it
        self._report(self.spark_gone_beneath() or failed)

    def loop_hangs(self, name: str, since: str) -> None:
        """One without which nothing works. It may be the one that would end this manager; then the watchdog does."""
        self._report(
            ServiceFailed(f"A loop of the manager hangs ({name}): at the same work for {since}. {RESTART_HINT}")
        )

    def spark_gone_beneath(self) -> SparkGone | None:
        """The error to raise when something broke because Spark is gone; None while Spark is there."""
        reason = self._spark_gone_reason()
        return spark_gone_error(reason) if reason else None

    def _wake(self) -> None:
        self._watchdog.arm()
        self._wake_loop()

    def _report(self, problem: BackfillManagerError) -> None:
        with self._lock:
            self.problem = self.problem or problem
        self._wake()


def spark_gone_error(reason: str) -> SparkGone:
    return SparkGone(f"Spark is gone: {reason}. {RESTART_HINT}")
