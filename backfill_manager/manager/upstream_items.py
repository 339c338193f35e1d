"""Tracks what the items of a downstream backfill wait for: the items of its parents whose intervals they overlap.

Held for a window of items only, and only what is not done yet; kept up to date by `remember`. Pure.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from backfill_manager.clock import earlier
from backfill_manager.model import states as s
from backfill_manager.model.records import BackfillItem, DagRun

DONE: Final = frozenset({s.SUCCESS, s.SKIPPED})
FAILED: Final = frozenset({s.FAILED, s.CANCELLED})


class UpstreamItems:
    """Made of the parents' items that were not done at the time. `dag_ids`: of the parents."""

    def __init__(self, items: Iterable[BackfillItem], dag_ids: frozenset[str] = frozenset()) -> None:
        self.dag_ids = dag_ids
        self._items: dict[tuple[str, int], BackfillItem] = {}
        self._starts: dict[str, list[tuple[datetime, int]]] = {}  # of each parent, in order
        self._longest = timedelta()  # intervals of listed dates may overlap
        for item in items:
            if item.interval_start is not None:
                self._items[item.backfill_id, item.ordinal] = item
                self._starts.setdefault(item.backfill_id, []).append((item.interval_start, item.ordinal))
                self._longest = max(self._longest, (item.interval_end or item.interval_start) - item.interval_start)
        for starts in self._starts.values():
            starts.sort()

    def remember(self, item: BackfillItem) -> None:
        """Takes a changed item of any backfill."""
        if (item.backfill_id, item.ordinal) in self._items:
            self._items[item.backfill_id, item.ordinal] = item

    def evaluate(self, item: BackfillItem) -> tuple[str, BackfillItem | None]:
        """`("start", None)`, `("wait", the one it waits for)`, or `("fail", the one that will not succeed)`."""
        waits_for: BackfillItem | None = None
        for before in self._overlapping(item):
            if before.state in FAILED:
                return "fail", before
            if before.state not in DONE:
                waits_for = waits_for or before
        return ("start", None) if waits_for is None else ("wait", waits_for)

    def _overlapping(self, item: BackfillItem) -> Iterable[BackfillItem]:
        start, end = item.interval_start, item.interval_end
        if start is None or end is None:
            return
        for parent, starts in self._starts.items():
            first = bisect_left(starts, (earlier(start, self._longest), 0))
            beyond = bisect_left(starts, (end, 0)) if start < end else bisect_right(starts, (start, 2**62))
            for _, ordinal in starts[first:beyond]:
                before = self._items[parent, ordinal]
                if meets(item, before):
                    yield before


def meets(item: BackfillItem, before: BackfillItem | DagRun) -> bool:
    """Whether the intervals overlap; one without length meets what begins at that instant, or goes on over it."""
    start, end, began = item.interval_start, item.interval_end, before.interval_start
    if start is None or end is None or began is None:
        return False
    return began == start or (began < end and before.interval_end is not None and before.interval_end > start)
