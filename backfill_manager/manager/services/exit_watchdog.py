"""Ends the process of a manager that is to end and does not.

What a manager does at its end may wait for others without a time limit of its own: a JVM that does not answer, a folder of a file
server that is gone. A process that neither leads nor ends is restarted by no supervisor. To be ended at any instant is safe: the
next manager goes on from the tables.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
from contextlib import suppress
from typing import Final

from backfill_manager.humanise import duration
from backfill_manager.logging import get_logger

EXIT_TIMEOUT_S: Final = 300.0  # ten times as long as running tasks get
EXIT_CODE: Final = 1

log = get_logger("manager")


class ExitWatchdog:
    """`arm` from any thread, as often as anybody likes; the time counts from the first. `is_on`: whether this process is the
    manager's, to be ended."""

    def __init__(self, *, is_on: bool = True) -> None:
        self._is_on, self._lock = is_on, threading.RLock()  # a signal may come while its thread is in here
        self._timer: threading.Timer | None = None

    def arm(self) -> None:
        with self._lock:
            if self._is_on and self._timer is None:
                self._timer = threading.Timer(EXIT_TIMEOUT_S, _exit)
                self._timer.name, self._timer.daemon = "exit watchdog", True
                self._timer.start()

    def disarm(self) -> None:
        """The manager has ended."""
        with self._lock:
            self._is_on = False
            if self._timer is not None:
                self._timer.cancel()


def _exit() -> None:
    log.error("it was to end and has not; this process exits now", after=duration(EXIT_TIMEOUT_S))
    with suppress(OSError, ValueError):  # standard error may be no file
        faulthandler.dump_traceback(sys.stderr)  # what it waits for
    os._exit(EXIT_CODE)
