"""The log of a try: lines of `ctx.log` and of the task's own `logging`, as rows of `task_log`.

Lines are collected and handed over in batches (the executor flushes about once a second, and before it reports the end of a
try). `ctx.log` takes everything from INFO up. Beside it, whatever other loggers of a task's process let through (a bundle's own
modules, a library's warnings) and what it prints land in the same log. Secrets are masked, those of the task's params too.

A loop that logs must not fill the state: of a long log the first lines are kept, and at the end of the try the last ones and
errors between. Of a long line its two ends are kept: that of a traceback says what went wrong.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Final, NamedTuple

from backfill_manager.clock import Clock
from backfill_manager.execution import messages as m
from backfill_manager.humanise import without_styles
from backfill_manager.masking import MASK, Known, known_of, mask_text, masked_json, without_known
from backfill_manager.model.records import TaskLog
from backfill_manager.processes.printed_lines import end_of_piece

HEAD_LINES: Final = 8_000  # of one try
TAIL_LINES: Final = 2_000
TAIL_CHARS: Final = 2_000_000  # what the tail may take of the manager's memory, however few lines that are
BETWEEN_ERRORS: Final = 100  # the last ones of the lines left out, in whatever number
MAX_CHARS: Final = 20_000  # of one line: a long traceback fits
_ERRORS: Final = ("ERROR", "CRITICAL")


def shorten_middle(text: str) -> str:
    """Its beginning and its end, when it is longer than a line may be."""
    if len(text) <= MAX_CHARS:
        return text
    gap = f" ... ({len(text):,} characters, the middle is left out) ... "
    first = (MAX_CHARS - len(gap)) // 2
    return f"{text[:first]}{gap}{text[first + len(gap) - MAX_CHARS :]}"


class _Line(NamedTuple):
    number: int
    at: datetime
    level: str
    message: str


class LogLines:
    """Collects the lines of one try; thread-safe."""

    def __init__(self, launch: m.TaskLaunch, clock: Clock, on_first: Callable[[], None]) -> None:
        self._ti, self._clock, self._on_first = launch.ti, clock, on_first
        self._secrets: tuple[Known, ...] = launch.secrets
        self._by_name: tuple[Known, ...] = ()  # of them, what `ctx.secret` has given to this try
        self._lock = threading.Lock()
        self._waiting: list[TaskLog] = []
        self._tail: deque[_Line] = deque()  # not masked yet: most of a flood is thrown away
        self._tail_chars = 0
        self._errors: deque[_Line] = deque(maxlen=BETWEEN_ERRORS)
        self._count = 0
        self._left_out = 0
        self._last_error = ""
        self._closed = False

    def add(self, level: str, message: str) -> None:
        with self._lock:
            if self._closed:
                return
            self._count += 1
            if level in _ERRORS:
                self._last_error = message
            if self._count > HEAD_LINES:
                if not self._tail:
                    keeps = f"its last {TAIL_LINES:,} lines and the last {BETWEEN_ERRORS} errors follow when it ends"
                    self._put(self._line("WARNING", f"this try has logged {HEAD_LINES:,} lines; {keeps}"))
                    self._count += 2  # with the line that tells how many were left out
                self._put_in_tail(self._line(level, message))
            else:
                self._put(self._line(level, message))
            first = len(self._waiting) == 1
        if first:
            self._on_first()

    def cut(self, text: str) -> int:
        """How much of a line without end is taken as one, see `end_of_piece`."""
        return end_of_piece(text, self._secrets)

    def has_error(self, error: str) -> bool:
        """Whether the last error that was logged says this, maybe among other things."""
        with self._lock:
            return error in self.masked(self._last_error)

    def add_secret(self, value: str) -> None:
        """From now on it is masked, in lines that wait to be taken, too."""
        with self._lock:
            self._by_name = tuple(dict.fromkeys((*self._by_name, *known_of(value))))
            self._secrets = tuple(dict.fromkeys((*self._secrets, *self._by_name)))
            self._waiting = [replace(row, message=self.masked(row.message)) for row in self._waiting]

    def masked(self, text: str) -> str:
        """Without secrets (with the environment of the manager, as the task may have taken one out of that of its process), and
        without colours, which could stand within one."""
        return mask_text(without_styles(text), self._secrets)

    def without_secrets(self, outcome: m.Outcome) -> m.Outcome:
        """An outcome whose words are masked. What the task returned is stored as it is, for those that come after it, and
        masked beside it: who shows it may have another environment. But what `ctx.secret` gave is not stored there either."""
        match outcome:
            case m.Succeeded(result_json=result, shown_json=shown):
                if self._by_name and result is not None and (stored := self._without_named(result)) != result:
                    place = f"is stored with {MASK} in its place"
                    self.add("WARNING", f"its result holds the value of a secret, and {place}")
                    result, shown = stored, None if shown is None else self._without_named(shown)
                    outcome = replace(outcome, result_json=result, shown_json=shown)
                return replace(outcome, shown_json=masked_json(shown or result, self._secrets) or shown)
            case m.Failed(error=error):
                return replace(outcome, error=self.masked(error))
            case m.Skipped(reason=reason) | m.Postponed(reason=reason):
                return replace(outcome, reason=self.masked(reason))
            case _:
                return outcome

    def check_without_secrets(self, checked: m.CheckedWrite) -> m.CheckedWrite:
        """What a check found, without secrets of the task's params."""
        return checked.without_secrets(self._secrets)

    def table_without_secrets(self, table: m.AccessedTable) -> m.AccessedTable:
        """A table that it has read or written, whose path may have been made with a secret."""
        if not self._by_name:
            return table
        name, path = (None if text is None else self.masked(text) for text in (table.name, table.path))
        columns = None if table.columns_json is None else self._without_named(table.columns_json)
        return replace(table, name=name, path=path, columns_json=columns)

    def _without_named(self, text: str) -> str:
        """A JSON text without the values that `ctx.secret` gave; everything else is as it was."""
        return json.dumps(without_known(json.loads(text), self._by_name), ensure_ascii=False)

    def take(self) -> tuple[TaskLog, ...]:
        """The lines since the last time."""
        with self._lock:
            taken, self._waiting = tuple(self._waiting), []
            return taken

    def close(self) -> None:
        """The try is over: what comes from threads that it left behind is dropped. The last lines of a long log can be taken."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if self._left_out:
                but = f", but for {len(self._errors)} of the errors among them" if self._errors else ""
                what = f"{self._left_out:,} lines are left out here{but}"
                self._put(_Line(HEAD_LINES + 2, self._clock.now(), "WARNING", what))
            for line in (*self._errors, *self._tail):
                self._put(line)
            self._tail.clear()
            self._errors.clear()

    def _line(self, level: str, message: str) -> _Line:
        return _Line(self._count, self._clock.now(), level, message)

    def _put(self, line: _Line) -> None:
        ti = self._ti
        row = TaskLog(
            dag_id=ti.dag_id, run_id=ti.run_id, task_id=ti.task_id, launch=ti.launch, try_number=ti.try_number,
            line=line.number, at=line.at, level=line.level, message=shorten_middle(self.masked(line.message)),
            run_seq=ti.run_seq,
        )  # fmt: skip
        self._waiting.append(row)

    def _put_in_tail(self, line: _Line) -> None:
        self._tail.append(line)
        self._tail_chars += len(line.message)
        while len(self._tail) > TAIL_LINES or (self._tail_chars > TAIL_CHARS and len(self._tail) > 1):
            dropped = self._tail.popleft()
            self._tail_chars -= len(dropped.message)
            if dropped.level in _ERRORS:
                self._errors.append(dropped)
            self._left_out += 1


class TaskLogger(logging.Logger):
    """`ctx.log`: belongs to one try and to no hierarchy, so nothing of it stays behind when the try is over."""

    def __init__(self, name: str, add: Callable[[str, str], None]) -> None:
        super().__init__(name, logging.INFO)
        self._add = add
        handler = logging.Handler()
        handler.emit = lambda record: add(record.levelname, handler.format(record))  # type: ignore[method-assign]
        self.addHandler(handler)
        self.propagate = False

    @classmethod
    def of(cls, launch: m.TaskLaunch, add: Callable[[str, str], None]) -> TaskLogger:
        return cls(f"{launch.ti.dag_id}.{launch.task.task_id}", add)

    def getChild(self, suffix: str) -> TaskLogger:
        return TaskLogger(f"{self.name}.{suffix}", self._add)
