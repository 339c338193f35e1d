"""A stretch of one DAG's timeline: which run stands where, and who comes before whom.

The timeline is every run with a logical date that is not overridden or external, in logical-date order (SEMANTICS, "The
timeline"). Whoever makes runs holds the stretch they will stand in (read once for many runs), asks `previous` and
`successor`, and puts each new run in its place. Runs by partition key have no date: they are kept by their key only.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from backfill_manager.clock import format_instant
from backfill_manager.model import states as s
from backfill_manager.model.records import DagRun

Place = tuple[datetime | None, str | None]  # logical date, partition key

_AGAIN = re.compile(r"__(\d+)$")


def place_of(logical_date: datetime | None, partition_key: str | None) -> Place:
    return (logical_date, partition_key)


def run_id_for(run_type: str, place: Place, standing: DagRun | None) -> str:
    """`backfill__2013-01-01T05:00:00Z`; a run that re-does a place appends `__2`, `__3`, ..."""
    date, key = place
    base = "__".join(part for part in (run_type, format_instant(date), key) if part)
    if standing is None:
        return base
    again = _AGAIN.search(standing.run_id)
    return f"{base}__{int(again[1]) + 1 if again else 2}"


@dataclass
class Stretch:
    """Complete between the first and last of the dates it was read for, with one neighbour beyond either end."""

    _dates: list[datetime] = field(default_factory=list)
    _runs: dict[Place, DagRun] = field(default_factory=dict)

    @classmethod
    def of(cls, runs: Iterable[DagRun]) -> Stretch:
        stretch = cls()
        for run in runs:
            stretch.put(run)
        return stretch

    def standing(self, place: Place) -> DagRun | None:
        """The run that holds this place now."""
        return self._runs.get(place)

    def put(self, run: DagRun) -> None:
        """A run takes its place (one that stood there was overridden), or its row has changed."""
        if run.run_type == s.EXTERNAL_RUN or run.state == s.OVERRIDDEN:
            return
        place = place_of(run.logical_date, run.partition_key)
        if run.logical_date is not None and place not in self._runs:
            insort(self._dates, run.logical_date)
        self._runs[place] = run

    def know(self, run: DagRun) -> None:
        """Bring a run that stands here up to date; one that stands elsewhere is none of this stretch's business."""
        place = place_of(run.logical_date, run.partition_key)
        standing = self._runs.get(place)
        if standing is not None and standing.run_id == run.run_id:
            self._runs[place] = run

    def previous(self, date: datetime | None) -> DagRun | None:
        if date is None:
            return None
        at = bisect_left(self._dates, date)
        return self._runs[(self._dates[at - 1], None)] if at else None

    def successor(self, date: datetime | None) -> DagRun | None:
        if date is None:
            return None
        at = bisect_left(self._dates, date)
        if at < len(self._dates) and self._dates[at] == date:
            at += 1
        return self._runs[(self._dates[at], None)] if at < len(self._dates) else None
