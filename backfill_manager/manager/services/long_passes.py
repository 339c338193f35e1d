"""Notices which loop of the manager has been at one pass for unusually long, and where it is.

A thread that has ended is noticed (`service.py`). One that waits for ever for a file server, a metastore or another process looks
as if it were at work, while nothing of its kind is done any more. It may as well be at work that takes long, so it is left alone:
the log names it, at growing intervals, and the lease row, so that probes and pages show it too. But without some loops (those
whose passes have a `max_s`) the manager does nothing at all, and keeps the lease: such a one ends it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from types import FrameType
from typing import Any, Final

from backfill_manager.clock import Clock
from backfill_manager.humanise import duration
from backfill_manager.logging import get_logger
from backfill_manager.service import Pass, Service

INTERVAL_S: Final = 10.0
SHOWN_FRAMES: Final = 4

log = get_logger("long_passes")


class LongPasses(Service):
    """`on_hang(loop, since)` is called for a loop without which nothing works: its name, and how long it has been at it."""

    def __init__(self, clock: Clock, on_hang: Callable[[str, str], None]) -> None:
        super().__init__("long passes")
        self._clock, self._on_hang = clock, on_hang
        self._watched: list[Pass] = []
        self._reported: dict[Pass, tuple[float, float]] = {}  # since when it is at work; seconds as last reported
        self._slow: tuple[str, datetime] | None = None
        # Since when it is at work; looks at which it was the same: this process may have been stopped meanwhile.
        self._looks: dict[Pass, tuple[float | None, int]] = {}

    def watch(self, *passes: Pass) -> None:
        self._watched += passes

    def run_once(self) -> float | None:
        now = self._clock.monotonic()
        for one in list(self._watched):
            self._look_at(one, now)
        longest = min(self._reported, key=lambda one: self._reported[one], default=None)
        if longest is None:
            self._slow = None
        else:
            since, _ = self._reported[longest]
            self._slow = longest.name, self._clock.now() - timedelta(seconds=now - since)
        return INTERVAL_S

    def columns(self) -> dict[str, Any]:
        """Columns of `Manager`."""
        name, since = self._slow or (None, None)
        return {"slow_loop": name, "slow_loop_since": since}

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
        before, looks = self._looks.get(one, (None, 0))
        looks = looks + 1 if since is not None and since == before else 0
        self._looks[one] = since, looks
        if one.max_s is not None and (looks - 1) * INTERVAL_S < one.max_s <= looks * INTERVAL_S:  # once
            self._on_hang(one.name, duration(one.max_s))


def _where(thread: int | None) -> str:
    """The innermost calls of a thread, the last one first."""
    frame: FrameType | None = sys._current_frames().get(thread or 0)
    calls = list[str]()
    while frame is not None and len(calls) < SHOWN_FRAMES:
        code = frame.f_code
        calls.append(f"{os.path.basename(code.co_filename)}:{frame.f_lineno} {code.co_name}")
        frame = frame.f_back
    return " < ".join(calls)
