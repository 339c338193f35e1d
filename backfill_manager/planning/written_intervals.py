"""Which intervals and partitions of a table tasks have written: what a task with `waits_for` waits for."""

from __future__ import annotations

import bisect
from datetime import datetime


class WrittenIntervals:
    """Of one table. Intervals are half-open; those that touch or overlap are one."""

    def __init__(self) -> None:
        self._starts: list[datetime] = []
        self._ends: list[datetime] = []  # in the same order
        self._keys = set[str]()

    def add(self, start: datetime | None, end: datetime | None, key: str | None) -> None:
        """What one run has written: its interval or its partition, or nothing that is known."""
        if key is not None:
            self._keys.add(key)
        if start is None or end is None or start >= end:
            return
        first, last = bisect.bisect_left(self._ends, start), bisect.bisect_right(self._starts, end)
        if first < last:  # it joins these
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last], self._ends[first:last] = [start], [end]

    def covers(self, start: datetime | None, end: datetime | None, key: str | None) -> bool:
        """Whether all of the interval has been written, or the partition. A run that has neither waits for nothing."""
        if key is not None:
            return key in self._keys
        if start is None or end is None:
            return True
        at = bisect.bisect_right(self._starts, start) - 1
        return at >= 0 and max(start, end) <= self._ends[at]
