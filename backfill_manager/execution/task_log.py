"""The log of a try: lines of `ctx.log` and of the task's own `logging`, as rows of `task_log`.

Lines are collected and handed over in batches (the executor flushes about once a second, and before it reports the end of a
try). `ctx.log` takes everything from INFO up. Beside it, whatever other loggers of a task's process let through (a bundle's own
modules, a library's warnings) and what it prints land in the same log. Secrets are masked, those of the task's params too.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from backfill_manager.clock import Clock
from backfill_manager.execution.messages import Failed, Outcome, Postponed, Skipped, TaskLaunch
from backfill_manager.masking import mask_text, secrets_in
from backfill_manager.model.records import TaskLog

MAX_LINES: Final = 10_000  # of one try; a loop that logs must not fill the state
MAX_CHARS: Final = 20_000  # of one line: a long traceback fits


class LogLines:
    """Collects the lines of one try; thread-safe."""

    def __init__(self, launch: TaskLaunch, clock: Clock, on_first: Callable[[], None]) -> None:
        self._ti, self._clock, self._on_first = launch.ti, clock, on_first
        self._secrets = secrets_in(launch.params)
        self._lock = threading.Lock()
        self._waiting: list[TaskLog] = []
        self._count = 0
        self._closed = False

    def add(self, level: str, message: str) -> None:
        with self._lock:
            if self._closed or self._count > MAX_LINES:
                return
            self._count += 1
            if self._count > MAX_LINES:
                level, message = "WARNING", f"this try has logged more than {MAX_LINES} lines; the rest is left out"
            message = self.masked(message)
            if len(message) > MAX_CHARS:
                message = f"{message[:MAX_CHARS]} ... ({len(message)} characters)"
            ti = self._ti
            row = TaskLog(
                dag_id=ti.dag_id, run_id=ti.run_id, task_id=ti.task_id, launch=ti.launch, try_number=ti.try_number,
                line=self._count, at=self._clock.now(), level=level, message=message, run_seq=ti.run_seq,
            )  # fmt: skip
            self._waiting.append(row)
            first = len(self._waiting) == 1
        if first:
            self._on_first()

    def masked(self, text: str) -> str:
        """Without secrets: with the environment of the manager, as the task may have taken one out of that of its process."""
        return mask_text(text, self._secrets)

    def without_secrets(self, outcome: Outcome) -> Outcome:
        """An outcome whose words are masked; what the task returned is stored as it is, for those that come after it."""
        match outcome:
            case Failed(error=error):
                return replace(outcome, error=self.masked(error))
            case Skipped(reason=reason) | Postponed(reason=reason):
                return replace(outcome, reason=self.masked(reason))
            case _:
                return outcome

    def take(self) -> tuple[TaskLog, ...]:
        """The lines since the last time."""
        with self._lock:
            taken, self._waiting = tuple(self._waiting), []
            return taken

    def close(self) -> None:
        """The try is over: what comes from threads that it left behind is dropped."""
        with self._lock:
            self._closed = True


class TaskLogger(logging.Logger):
    """`ctx.log`: belongs to one try and to no hierarchy, so nothing of it stays behind when the try is over."""

    def __init__(self, name: str, add: Callable[[str, str], None]) -> None:
        super().__init__(name, logging.INFO)
        self._add = add
        handler = logging.Handler()
        handler.emit = lambda record: add(record.levelname, handler.format(record))  # type: ignore[method-assign]
        self.addHandler(handler)
        self.propagate = False

    def getChild(self, suffix: str) -> TaskLogger:
        return TaskLogger(f"{self.name}.{suffix}", self._add)
