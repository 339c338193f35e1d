"""How the manager does: counted by the tick, told by the heart in the lease row, shown by pages and `/metrics`."""

from __future__ import annotations

import statistics
from collections import deque
from typing import Any, Final

LAST: Final = 100  # ticks and commits that the medians are of


class TickMetrics:
    """Written by the ticking thread, read by the heart's."""

    def __init__(self) -> None:
        self._ticks = self._commits = 0
        self._tick_s: deque[float] = deque(maxlen=LAST)
        self._commit_s: deque[float] = deque(maxlen=LAST)

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
