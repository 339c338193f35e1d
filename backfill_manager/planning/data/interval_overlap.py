"""Counts which of many spans of time meet each of many intervals: two searches in sorted ends, never pair by pair.

A span misses an interval by beginning too late or by ending too early, never both: those that meet `[start, end)` are those
that begin before `end` without those that end before `start`.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from backfill_manager.store.data_tables.places import Numbers


class Spans:
    """Spans with both ends included, in epoch micros; each has a weight (rows, bytes, ...), 1 if none is given."""

    def __init__(self, first: Numbers, last: Numbers, weight: Numbers | None = None) -> None:
        weight = np.ones(len(first), np.int64) if weight is None else weight
        by_first, by_last = np.argsort(first), np.argsort(last)
        self._first, self._last = first[by_first], last[by_last]
        self._begun, self._over = _running(weight[by_first]), _running(weight[by_last])

    def meeting(self, starts: Numbers, ends: Numbers) -> Numbers:
        """For each interval `[start, end)` the sum of the weights of the spans that meet it."""
        begun: Numbers = self._begun[np.searchsorted(self._first, ends, "left")]
        over: Numbers = self._over[np.searchsorted(self._last, starts, "left")]
        return begun - over


def micros_of(instants: pa.ChunkedArray) -> Numbers:
    """A column of instants without nulls, as epoch micros."""
    numbers: Numbers = instants.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_numpy()
    return numbers


def _running(weight: Numbers) -> Numbers:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(weight, dtype=np.int64)])
