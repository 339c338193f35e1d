"""A stretch of one DAG's timeline: which run stands where, and who comes before whom.

The timeline is every run with a logical date that is not overridden or external, in logical-date order (SEMANTICS, "The
timeline"). Whoever makes runs holds the stretch they will stand in (read once for many runs), asks `previous` and
`successor`, and puts each new run in its place. Runs by partition key have no date: they are kept by their key only.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Final

from backfill_manager.clock import format_instant
from backfill_manager.model import states as s
from backfill_manager.model.records import DagRun
from backfill_manager.store.base import Condition

# The rule of what stands in the timeline: of the runs of a date the one that was not overridden, and no external run.
CURRENT_RUNS: Final = (Condition("state", "!=", s.OVERRIDDEN), Condition("run_type", "!=", s.EXTERNAL_RUN))


def is_current(run: DagRun) -> bool:
    """`CURRENT_RUNS` for a row that has been read."""
    return run.state != s.OVERRIDDEN and run.run_type != s.EXTERNAL_RUN


def timeline_of(dag_id: str) -> list[Condition]:
    """Filters the runs in a DAG's timeline: the current ones with a logical date."""
    return [Condition("dag_id", "=", dag_id), Condition("logical_date", "not_null"), *CURRENT_RUNS]


TimelineKey = tuple[datetime | None, str | None]  # logical date, partition key


def timeline_key(logical_date: datetime | None, partition_key: str | None) -> TimelineKey:
    return (logical_date, partition_key)


def run_id_for(run_type: str, place: TimelineKey, before: int = 0) -> str:
    """`backfill__2013-01-01T05:00:00Z`; the second run of a place appends `__2`, and so on: `before` is the highest
    number that a run of the place, of any type, has had (`number_of`)."""
    date, key = place
    if key is not None:  # its own underscores must not be taken for our separator
        key = key.replace("%", "%25").replace("__", "%5F%5F")
    base = "__".join(part for part in (run_type, format_instant(date), key) if part)
    return f"{base}__{before + 1}" if before else base


def number_of(run: DagRun) -> int:
    """1 for the first run of its place, 2 for the one that re-did it, ..."""
    again = run.run_id.removeprefix(run_id_for(run.run_type, timeline_key(run.logical_date, run.partition_key)))
    return int(again[2:]) if again[2:].isdecimal() else 1


def _until(run: DagRun) -> datetime:
    assert run.logical_date is not None, "it has a place in time"
    return max(run.interval_end or run.logical_date, run.logical_date)


def made_in_time(run: DagRun) -> bool:
    """True unless the run was made before its interval had ended, by hand or by a backfill with `allow_future`: such a
    run can't have seen all of its data."""
    return run.run_type == s.SCHEDULED_RUN or run.created_at >= _until(run)


def _carries(run: DagRun) -> bool:
    """The schedule goes on from whole scheduled and backfill runs that were made when their interval had ended."""
    return run.run_type in (s.SCHEDULED_RUN, s.BACKFILL_RUN) and not run.is_partial and made_in_time(run)


@dataclass
class TimelineWindow:
    """Complete between the first and last of the dates it was read for, with one neighbour beyond either end. With a
    `floor`, nothing earlier is taken in: what lies there is not known."""

    floor: datetime | None = None
    _dates: list[datetime] = field(default_factory=list)
    _runs: dict[TimelineKey, DagRun] = field(default_factory=dict)
    _numbers: dict[TimelineKey, int] = field(default_factory=dict)  # of the last run that each place has had
    _batches: dict[TimelineKey, DagRun] = field(
        default_factory=dict
    )  # that stand; here they may begin before the floor
    _carried: set[TimelineKey] = field(
        default_factory=set
    )  # on which a run was overridden that the schedule went on from
    edges: tuple[datetime, ...] = ()  # the first and last date that it was read with
    _torn: set[datetime] = field(
        default_factory=set
    )  # edges on which nothing stands any more: who is next is not known

    @classmethod
    def of(cls, runs: Iterable[DagRun]) -> TimelineWindow:
        stretch = cls()
        for run in runs:
            stretch.put(run)
        stretch.edges = (stretch._dates[0], stretch._dates[-1]) if stretch._dates else ()
        return stretch

    @property
    def has_gap(self) -> bool:
        """It must be read again before it is asked for neighbours: a batch has taken away the run beyond one end."""
        return self.floor is None and bool(self._torn)

    @property
    def newest(self) -> DagRun | None:
        return self._runs[(self._dates[-1], None)] if self._dates else None

    @property
    def farthest_end(self) -> DagRun | None:
        """The run that the schedule goes on from: the newest that carries it, or a batch that reaches beyond its end."""
        newest = self.carrier(1)
        reaching = [run for run in (newest, *self._batches.values()) if run is not None and self._carries(run)]
        return max(reaching, key=lambda run: (_until(run), run is newest), default=None)

    def carrier(self, n: int) -> DagRun | None:
        """The `n`-th newest run of those that carry the schedule; None where fewer are held."""
        runs = (self._runs[(date, None)] for date in reversed(self._dates))
        return next(islice((run for run in runs if self._carries(run)), n - 1, None), None)

    def _carries(self, run: DagRun) -> bool:
        """A date that the schedule had come to and that was re-done by hand, or in part, still carries it."""
        return _carries(run) or timeline_key(run.logical_date, run.partition_key) in self._carried

    def stands_for_schedule(self, date: datetime) -> bool:
        """True when the schedule passes this date over: it has a whole run that was made when its interval had ended,
        or one that did the date over after that."""
        run = self.current_at(timeline_key(date, None)) or self.covering(date)
        return run is not None and (self._carries(run) or (not run.is_partial and made_in_time(run)))

    def trim(self, most: int) -> None:
        """Keep the newest runs, from the `most`-th on that carry the schedule, and know that older ones are not known."""
        oldest = self.carrier(most)
        if oldest is None or oldest.logical_date is None:
            return
        first = bisect_left(self._dates, oldest.logical_date)
        for date in self._dates[:first]:
            del self._runs[(date, None)]
            self._numbers.pop((date, None), None)
            self._carried.discard((date, None))
        if first:
            del self._dates[:first]
            self.floor = floor = self._dates[0]
            self._batches = {place: run for place, run in self._batches.items() if _until(run) > floor}

    def __len__(self) -> int:
        return len(self._dates)

    def covering(self, date: datetime | None) -> DagRun | None:
        """The batch of an earlier date that stands for this one too: the one that starts last, but a live one first."""
        if date is None:
            return None
        over = [run for (start, _), run in self._batches.items() if start is not None and start < date < _until(run)]
        return max(over, key=lambda run: (run.state in s.RUN_LIVE, run.logical_date), default=None)

    def next_run_id(self, run_type: str, place: TimelineKey) -> str:
        """The id of the run that is to take this place."""
        return run_id_for(run_type, place, self._numbers.get(place, 0))

    def current_at(self, place: TimelineKey) -> DagRun | None:
        """The run that holds this place now."""
        return self._runs.get(place)

    def put(self, run: DagRun) -> None:
        """A run takes its place (one that stood there was overridden), or its row has changed. Of an overridden one
        only the number is kept."""
        if run.run_type == s.EXTERNAL_RUN:
            return
        place = timeline_key(run.logical_date, run.partition_key)
        if run.items > 1 and run.state != s.OVERRIDDEN and (self.floor is None or _until(run) > self.floor):
            self._batches[place] = run
        elif run.state != s.OVERRIDDEN:
            self._batches.pop(place, None)
        if self.floor is not None and (run.logical_date is None or run.logical_date < self.floor):
            return
        self._numbers[place] = max(number_of(run), self._numbers.get(place, 0))
        if run.state == s.OVERRIDDEN:
            self._note_carried(run)
            return
        if run.logical_date is not None and place not in self._runs:
            insort(self._dates, run.logical_date)
            self._torn.discard(run.logical_date)
        self._runs[place] = run

    def remember(self, run: DagRun) -> None:
        """Bring a run that stands here up to date, or take it out when it has been overridden; one that stands
        elsewhere is none of this stretch's business."""
        place = timeline_key(run.logical_date, run.partition_key)
        batch, standing = self._batches.get(place), self._runs.get(place)
        if batch is not None and batch.run_id == run.run_id:
            if run.state == s.OVERRIDDEN:
                del self._batches[place]
            else:
                self._batches[place] = run
        if standing is None or standing.run_id != run.run_id:
            return
        if run.state != s.OVERRIDDEN:
            self._runs[place] = run
            return
        self._note_carried(run)
        del self._runs[place]
        if run.logical_date is not None:
            del self._dates[bisect_left(self._dates, run.logical_date)]
            if run.logical_date in self.edges:
                self._torn.add(run.logical_date)

    def _note_carried(self, overridden: DagRun) -> None:
        if overridden.logical_date is not None and _carries(overridden):
            self._carried.add(timeline_key(overridden.logical_date, overridden.partition_key))

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
