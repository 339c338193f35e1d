"""The manager's own log: one line per happening on standard error, `key=value`, instants in UTC, no secrets.

    timestamp=2013-01-02T05:00:00.123456Z level=info component=dags event="new version" dag_id=flights version=3

The loggers are ours alone: structlog's global configuration is left to the DAGs, which share the process. Standard
output is never written to; it belongs to the command's answer. Tasks have a log of their own (`task_log`). Nothing
that a light command imports may import this (structlog costs more than the command).
"""

from __future__ import annotations

import contextlib
import logging
import re
import sys
from collections.abc import MutableMapping
from typing import Any, Final

import structlog
from structlog.typing import FilteringBoundLogger

from backfill_manager.masking import MASK, is_secret, mask_text

_UNSEEN: Final = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class _StandardError:
    """Written to as it is now, not as it was at import: the process may have been given another one since. A line that nobody
    can read any more is dropped: under spark-submit the JVM reads it, and a manager whose JVM was killed must still end well."""

    def msg(self, line: str) -> None:
        with contextlib.suppress(OSError):
            sys.stderr.write(line + "\n")
            sys.stderr.flush()

    debug = info = warning = error = critical = exception = msg


def get_logger(component: str, **context: Any) -> FilteringBoundLogger:
    """The logger of a component; `context` goes on each of its lines."""
    logger: FilteringBoundLogger = structlog.wrap_logger(
        _StandardError(),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _cleaned,
            structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "component", "event"]),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        component=component,
        **context,
    )
    return logger


def _cleaned(_logger: Any, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Without values whose key, or whose own text, says that they are secret. Characters that would make a line look like
    another on a terminal (escapes, ends of lines, right-to-left) are written as in Python; the end of a line itself is
    written so by structlog."""
    for key, value in line.items():
        if is_secret(key):
            line[key] = MASK
        elif not isinstance(value, bool | int | float | None):
            line[key] = _UNSEEN.sub(lambda found: ascii(found[0])[1:-1], mask_text(str(value)))
    return line
