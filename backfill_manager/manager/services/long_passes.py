"""Logs which loop of the manager has been at one pass for unusually long, and where it is.

A thread that has ended is noticed (`service.py`). One that waits for ever for a file server, a metastore or another process looks
as if it were at work, while nothing of its kind is done any more. It may as well be at work that takes long, so it is left alone.
The lines of one pass come at growing intervals.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Final

from backfill_manager.humanise import duration
from backfill_manager.logging import get_logger
from backfill_manager.service import Pass, Service

INTERVAL_S: Final = 10.0
SHOWN_FRAMES: Final = 4

log = get_logger("long_passes")


class LongPasses(Service):
    def __init__(self, monotonic: Callable[[], float]) -> None:
        super().__init__("long passes")
        self._monotonic = monotonic
        self._watched: list[Pass] = []
        self._reported: dict[Pass, tuple[float, float]] = {}  # since when it is at work; seconds as last reported

    def watch(self, *passes: Pass) -> None:
        self._watched += passes

    def run_once(self) -> float | None:
        for one in list(self._watched):
            self._look_at(one, self._monotonic())
        return INTERVAL_S

    def _look_at(self, one: Pass, now: float) -> None:
        since, (reported, last_s) = one.since, self._reported.get(one, (None, 0.0))
        if reported is not None and since != reported:
            log.info("goes on", loop=one.name, after=f"{duration(last_s)} or more")
            del self._reported[one]
            last_s = 0.0
        if since is not None and now - since >= max(one.long_s, 2 * last_s):
            self._reported[one] = since, now - since
            where = _where(one.thread)
            log.warning("has been at work for long, or hangs", loop=one.name, since=duration(now - since), at=where)


def _where(thread: int | None) -> str:
    """The innermost calls of a thread, the last one first."""
    frame: FrameType | None = sys._current_frames().get(thread or 0)
    calls = list[str]()
    while frame is not None and len(calls) < SHOWN_FRAMES:
        code = frame.f_code
        calls.append(f"{os.path.basename(code.co_filename)}:{frame.f_lineno} {code.co_name}")
        frame = frame.f_back
    return " < ".join(calls)
