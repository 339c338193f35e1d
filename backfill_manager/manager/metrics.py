"""Counters of the manager: written by the tick, sent with the heartbeat to the lease row, shown by pages and `/metrics`."""

from __future__ import annotations

import statistics
from collections import deque
from typing import Any, Final

WINDOW: Final = 100  # ticks and commits that medians are computed of


class TickMetrics:
    """Written by the loop's thread, read by the heartbeat's."""

    def __init__(self) -> None:
        self._ticks = self._commits = 0
        self._tick_s: deque[float] = deque(maxlen=WINDOW)
        self._commit_s: deque[float] = deque(maxlen=WINDOW)

    def record_tick(self, seconds: float, commit_seconds: float | None) -> None:
        """One tick; `commit_seconds` is None when there was nothing to commit."""
        self._ticks += 1
        self._tick_s.append(seconds)
        if commit_seconds is not None:
            self._commits += 1
            self._commit_s.append(commit_seconds)

    def columns(self) -> dict[str, Any]:
        """Columns of `Manager`."""
        return {
            "ticks": self._ticks,
            "commits": self._commits,
            "tick_ms": _median_ms(self._tick_s),
            "commit_ms": _median_ms(self._commit_s),
        }


def _median_ms(seconds: deque[float]) -> float | None:
    return round(statistics.median(list(seconds)) * 1000, 1) if seconds else None
