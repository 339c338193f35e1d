"""The manager's own log: one line per happening on standard error, `key=value`, instants in UTC, no secrets.

    timestamp=2013-01-02T05:00:00.123456Z level=info room=dags event="new version" dag_id=flights version=3

The loggers are ours alone: structlog's global configuration is left to the DAGs, which share the process. Standard
output is never written to; it belongs to the command's answer. Tasks have a log of their own (`task_log`). Nothing
that a light command imports may import this (structlog costs more than the command).
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
from collections.abc import MutableMapping
from typing import Any, Final

import structlog
from structlog.typing import FilteringBoundLogger

_SECRET_KEY: Final = re.compile(r"passw|secret|token|api_?key|credential|authorization|private", re.IGNORECASE)
_SECRET_IN_URL: Final = re.compile(r"(?<=://)[^/\s:@]*:[^/\s@]+(?=@)")
_SECRET_IN_TEXT: Final = re.compile(
    # Bounded, so that a long text of somebody else's choice (an address) is read once and not again from each word.
    r"(?i)((?:passw(?:or)?d|secret|token|api_?key|credential)[\w.-]{0,100}\s{0,9}[=:]\s{0,9}|\bbearer\s{1,9})[^\s,;&'\"]+"
)
_SECRET_VARIABLE: Final = re.compile(r"PASSW|PASSPHRASE|_(PASS|PWD)$|SECRET|TOKEN|KEY|CREDENTIAL", re.IGNORECASE)
_UNSEEN: Final = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_SHORTEST_SECRET: Final = 6  # a shorter value would be found all over a text that has nothing to do with it
HIDDEN: Final = "***"


class _StandardError:
    """Written to as it is now, not as it was at import: the process may have been given another one since. A line that nobody
    can read any more is dropped: under spark-submit the JVM reads it, and a manager whose JVM was killed must still end well."""

    def msg(self, line: str) -> None:
        with contextlib.suppress(OSError):
            sys.stderr.write(line + "\n")
            sys.stderr.flush()

    debug = info = warning = error = critical = exception = msg


def get_logger(room: str, **about: Any) -> FilteringBoundLogger:
    """The logger of a room; `about` goes on every line of it."""
    logger: FilteringBoundLogger = structlog.wrap_logger(
        _StandardError(),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _hide_secrets_of_line,
            _show_what_is_unseen,
            structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "room", "event"]),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        room=room,
        **about,
    )
    return logger


def _hide_secrets_of_line(_logger: Any, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Values whose key, or whose own text, says that they are secret."""
    for key, value in line.items():
        if _SECRET_KEY.search(key):
            line[key] = HIDDEN
        elif not isinstance(value, bool | int | float | None):
            line[key] = without_secrets(str(value))
    return line


def _show_what_is_unseen(_logger: Any, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Characters that would make a line look like another on a terminal (escapes, ends of lines, right-to-left) as they are
    written in Python; the end of a line itself is written so by structlog."""
    for key, value in line.items():
        if isinstance(value, str):
            line[key] = _UNSEEN.sub(lambda found: ascii(found[0])[1:-1], value)
    return line


def without_secrets(text: str) -> str:
    """`s3://key:secret@host` -> `s3://***@host`, `password=x` -> `password=***`."""
    return _SECRET_IN_TEXT.sub(rf"\1{HIDDEN}", _SECRET_IN_URL.sub(HIDDEN, text))


def hide_secrets(text: str) -> str:
    """Without the values of environment variables whose names say that they are secret, and without passwords in URLs:
    for what other people's code says of itself (messages, tracebacks)."""
    values = {value for name, value in os.environ.items() if _SECRET_VARIABLE.search(name)}
    spelled = {form for value in values for form in (value, repr(value)[1:-1]) if len(value) >= _SHORTEST_SECRET}
    for secret in sorted(spelled, key=len, reverse=True):  # the longest first: one may be a part of another
        text = text.replace(secret, HIDDEN)
    return _SECRET_IN_URL.sub(HIDDEN, text)
