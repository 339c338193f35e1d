"""A window of one DAG's timeline: which run is current at each date, and which run comes before and after it.

The timeline is every run with a logical date that is neither overridden, external nor a preview's, in logical-date order
(docs/semantics.md, "Timeline"). Whoever creates runs holds the window they will be in (read once for many runs), asks for
`previous` and `successor`, and puts each new run in. Runs by partition key have no date: they are kept by their key only.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from urllib.parse import unquote

from backfill_manager.clock import format_instant, parse_instant
from backfill_manager.model import states as s
from backfill_manager.model.records import DagRun
from backfill_manager.store.base import Condition

# The rule of what is in the timeline: of the runs of a date the one that was not overridden, none of a preview, none external.
OF_TIMELINE: Final = Condition("run_type", "in", s.TIMELINE_RUN_TYPES)
CURRENT_RUNS: Final = (Condition("state", "!=", s.OVERRIDDEN), OF_TIMELINE)

_INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")  # as `format_instant` writes it


def is_current(run: DagRun) -> bool:
    """`CURRENT_RUNS` for a row that has been read."""
    return run.state != s.OVERRIDDEN and run.run_type in s.TIMELINE_RUN_TYPES


def runs_meet(run: DagRun, other: DagRun) -> bool:
    """Whether two runs of a DAG process something in common: the same partition, or time; also where an interval is not known."""
    if run.partition_key is not None or other.partition_key is not None:
        return run.partition_key == other.partition_key
    start, end, other_start, other_end = run.interval_start, run.interval_end, other.interval_start, other.interval_end
    if start is None or end is None or other_start is None or other_end is None:
        return True
    return run.logical_date == other.logical_date or (start < other_end and other_start < end)


def includes(batch: DagRun, run: DagRun) -> bool:
    """Whether the date of a run is one of those that a batch processes."""
    start, end, date = batch.logical_date, batch.interval_end, run.logical_date
    return batch.items > 1 and start is not None and end is not None and date is not None and start <= date < end


def timeline_of(dag_id: str) -> list[Condition]:
    """Filters the runs in a DAG's timeline: the current ones with a logical date."""
    return [Condition("dag_id", "=", dag_id), Condition("logical_date", "not_null"), *CURRENT_RUNS]


TimelineKey = tuple[datetime | None, str | None]  # logical date, partition key


def timeline_key(logical_date: datetime | None, partition_key: str | None) -> TimelineKey:
    return (logical_date, partition_key)


def run_id_for(run_type: str, key: TimelineKey, before: int = 0) -> str:
    """`backfill__2013-01-01T05:00:00Z`; the second run of a key appends `__2`, and so on: `before` is the highest number that
    a run of the key, of any type, has had (`number_of`)."""
    date, partition = key
    if partition is not None:  # its own underscores must not be taken for our separator, nor the whole of it for a date
        partition = partition.replace("%", "%25").replace("__", "%5F%5F")
        if _INSTANT.fullmatch(partition):
            partition = partition.replace(":", "%3A")
    base = "__".join(part for part in (run_type, format_instant(date), partition) if part)
    return f"{base}__{before + 1}" if before else base


def key_of_run_id(run_id: str) -> tuple[str, str | None, TimelineKey] | None:
    """The run type, for a preview its backfill, and the key of which `run_id_for` has made this id; None for another one."""
    run_type, *parts = run_id.split("__")
    preview = parts.pop(0) if run_type == s.PREVIEW_RUN and parts else None
    if run_type not in s.RUN_TYPES or not parts:
        return None
    if _INSTANT.fullmatch(parts[0]):
        try:
            return run_type, preview, (parse_instant(parts[0]), None)
        except ValueError:  # no such day: it is not ours
            return None
    return run_type, preview, (None, unquote(parts[0]))


def preview_run_type(backfill_id: str) -> str:
    """How ids of its runs begin: two previews of one date must not meet."""
    return f"{s.PREVIEW_RUN}__{backfill_id}"


def first_date(run: DagRun) -> datetime | None:
    """The date that the run was made for, which its id names: earlier than its logical date where it is a batch whose first dates
    were run again since (`TimelineWindow.rest_of`)."""
    date = run.logical_date
    if date is None or run.run_type == s.EXTERNAL_RUN or f"__{format_instant(date)}" in run.run_id:
        return date
    known = key_of_run_id(run.run_id)
    return (known and known[2][0]) or date


def number_of(run: DagRun) -> int:
    """1 for the first run of its key (with its `first_date`), 2 for the one that overrode it, ..."""
    # Also of a preview that was promoted.
    of_preview = run.run_id.startswith(f"{s.PREVIEW_RUN}__") and run.backfill_id is not None
    kind = preview_run_type(run.backfill_id or "") if of_preview else run.run_type
    again = run.run_id.removeprefix(run_id_for(kind, timeline_key(first_date(run), run.partition_key)))
    return int(again[2:]) if again[2:].isdecimal() else 1


def _end_of(run: DagRun) -> datetime:
    assert run.logical_date is not None, "it has a date"
    return max(run.interval_end or run.logical_date, run.logical_date)


def made_in_time(run: DagRun) -> bool:
    """True unless the run was created before its interval had ended, by hand or by a backfill with `allow_future`: such a run
    can't have had all of its data."""
    return run.run_type == s.SCHEDULED_RUN or run.created_at >= _end_of(run)


def advances_schedule(run: DagRun) -> bool:
    """The schedule goes on from whole scheduled and backfill runs that were created when their interval had ended."""
    return run.run_type in (s.SCHEDULED_RUN, s.BACKFILL_RUN) and not run.is_partial and made_in_time(run)


def _was_taken_by_batch(overridden: DagRun) -> bool:
    """Only a batch overrides runs of other dates than its first one, which its id names."""
    first = _INSTANT.search(overridden.overridden_by or "")
    return first is not None and first[0] < (format_instant(overridden.logical_date) or "")


@dataclass
class TimelineWindow:
    """Complete between the first and last of the dates it was read for, with one neighbour beyond either end. With a
    `floor`, nothing earlier is held: what lies there is not known."""

    floor: datetime | None = None
    _dates: list[datetime] = field(default_factory=list)
    _runs: dict[TimelineKey, DagRun] = field(default_factory=dict)
    _steps: list[datetime] = field(default_factory=list)  # of the dates those whose run advances the schedule
    _numbers: dict[TimelineKey, int] = field(default_factory=dict)  # `number_of` the last run of each key
    _batches: dict[TimelineKey, DagRun] = field(default_factory=dict)  # current ones, which may begin before the floor
    _advanced: set[TimelineKey] = field(default_factory=set)  # whose overridden run advanced the schedule
    _split: dict[TimelineKey, DagRun] = field(default_factory=dict)  # of dates that a batch took and left
    edges: tuple[datetime, ...] = ()  # the first and last date that it was read with
    _gaps: set[datetime] = field(default_factory=set)  # edges without a current run: the neighbour is not known
    is_over: bool = False  # the schedule makes no other run: dates that are not held are not taken
    preview: str | None = None  # a backfill: this is a timeline of its own, with nothing but its runs in it

    @classmethod
    def of(cls, runs: Iterable[DagRun], preview: str | None = None) -> TimelineWindow:
        window = cls(preview=preview)
        for run in runs:
            window.put(run)
        window.edges = (window._dates[0], window._dates[-1]) if window._dates else ()
        return window

    @property
    def has_gap(self) -> bool:
        """It must be read again before its neighbours are used: a batch has overridden the run beyond one end."""
        return self.floor is None and bool(self._gaps)

    @property
    def last_scheduled(self) -> DagRun | None:
        """The run that the schedule goes on from: the newest that advances it, or a batch that reaches beyond its end. A date
        whose run was overridden by a batch that has been split since counts, too: its half does it again, not the schedule."""
        newest = self.nth_advancing(1)
        reaching = [run for run in (newest, *self._batches.values()) if run is not None and self._advances(run)]
        reaching += self._split.values()
        return max(reaching, key=lambda run: (_end_of(run), run is newest), default=None)

    def nth_advancing(self, n: int) -> DagRun | None:
        """The `n`-th newest run of those that advance the schedule; None where fewer are held."""
        return self._runs[(self._steps[-n], None)] if n <= len(self._steps) else None

    def _advances(self, run: DagRun) -> bool:
        """A date that the schedule had reached and that was redone by hand, or in part, still advances it."""
        return advances_schedule(run) or timeline_key(run.logical_date, run.partition_key) in self._advanced

    def stands_for_schedule(self, date: datetime) -> bool:
        """True when the schedule passes this date over: it has a whole run that was created when its interval had ended,
        or one that redid the date after that."""
        run = self.current_at(timeline_key(date, None)) or self.covering(date)
        return run is not None and (self._advances(run) or (not run.is_partial and made_in_time(run)))

    def trim(self, most: int) -> None:
        """Keeps the newest runs, from the `most`-th on that advance the schedule, and sets the floor there."""
        oldest = self.nth_advancing(most)
        if oldest is None or oldest.logical_date is None:
            return
        del self._steps[: bisect_left(self._steps, oldest.logical_date)]
        first = bisect_left(self._dates, oldest.logical_date)
        for date in self._dates[:first]:
            del self._runs[(date, None)]
            self._numbers.pop((date, None), None)
            self._advanced.discard((date, None))
        if first:
            del self._dates[:first]
            self.floor = floor = self._dates[0]
            self._batches = {key: run for key, run in self._batches.items() if _end_of(run) > floor}
            self._split = {key: run for key, run in self._split.items() if _end_of(run) > floor}

    def end(self) -> None:
        """For a schedule that has made its only run: none is kept but those that advance it."""
        self._runs = {(date, None): self._runs[(date, None)] for date in self._steps}
        self._numbers = {key: number for key, number in self._numbers.items() if key in self._runs}
        self._dates, self.is_over = list(self._steps), True

    def __len__(self) -> int:
        return len(self._dates)

    def covering(self, date: datetime | None) -> DagRun | None:
        """The batch of an earlier date that stands for this one too: the one that starts last, but a live one first."""
        if date is None:
            return None
        over = [run for (start, _), run in self._batches.items() if start is not None and start < date < _end_of(run)]
        return max(over, key=lambda run: (run.state in s.RUN_LIVE, run.logical_date), default=None)

    def standing_at(self, key: TimelineKey) -> DagRun | None:
        """The run that stands for this key: its own, or the batch that covers it, where it has none or only the batch is live."""
        own, batch = self.current_at(key), self.covering(key[0])
        is_of_batch = own is None or (batch is not None and batch.state in s.RUN_LIVE and own.state not in s.RUN_LIVE)
        return batch if is_of_batch else own

    def next_run_id(self, run_type: str, key: TimelineKey) -> str:
        """The id of the next run of this key."""
        return run_id_for(run_type, key, self._numbers.get(key, 0))

    def current_at(self, key: TimelineKey) -> DagRun | None:
        """The current run of this key."""
        return self._runs.get(key)

    def put(self, run: DagRun) -> None:
        """Takes a new run (the one it overrode is replaced), or a changed row. Of an overridden run only the number is kept."""
        if not self._takes(run):
            return
        key = timeline_key(run.logical_date, run.partition_key)
        if run.items > 1 and run.state != s.OVERRIDDEN and (self.floor is None or _end_of(run) > self.floor):
            self._batches[key] = run
        elif run.state != s.OVERRIDDEN:
            self._batches.pop(key, None)
        if self.floor is not None and (run.logical_date is None or run.logical_date < self.floor):
            return
        if self.is_over and key not in self._runs and key not in self._advanced:
            return
        made_for = timeline_key(first_date(run), run.partition_key)
        if self.floor is None or made_for[0] is None or made_for[0] >= self.floor:
            self._numbers[made_for] = max(number_of(run), self._numbers.get(made_for, 0))
        if run.state == s.OVERRIDDEN:
            self._note_overridden(run)
            return
        if run.logical_date is not None and key not in self._runs:
            insort(self._dates, run.logical_date)
            self._gaps.discard(run.logical_date)
        self._runs[key] = run
        self._split.pop(key, None)
        self._note_step(key)

    def rest_of(self, batch: DagRun, run: DagRun) -> DagRun | None:
        """The finished batch as the run of the dates that are left to it when `run`, a new one, takes its first date; None: it is
        overridden. It begins after `run`, at the next date that has no run of its own. Its halves override it, and so does a
        batch that begins earlier."""
        start, end, items = run.interval_end, batch.interval_end, batch.items - run.items
        is_half = batch.backfill_id is not None and batch.backfill_id == run.backfill_id
        if (
            is_half
            or batch.logical_date != run.logical_date
            or start is None
            or end is None
            or start == run.logical_date
        ):
            return None
        while (own := self.current_at(timeline_key(start, None))) is not None and own.interval_end is not None:
            if start >= end or own.interval_end <= start:
                break
            start, items = own.interval_end, items - own.items
        return (
            batch.evolve(logical_date=start, interval_start=start, items=items) if items >= 1 and start < end else None
        )

    def move(self, batch: DagRun, rest: DagRun) -> None:
        """Holds the batch in its new place (`rest_of`)."""
        key = timeline_key(batch.logical_date, None)
        if (held := self._batches.get(key)) is not None and held.run_id == batch.run_id:
            del self._batches[key]
        if (current := self._runs.get(key)) is not None and current.run_id == batch.run_id:
            self._remove(current)
            self._note_step(key)
        self.put(rest)

    def within(self, run: DagRun) -> list[DagRun]:
        """The current runs of the date or partition of a new run; of a batch: of each date in its interval."""
        key = timeline_key(run.logical_date, run.partition_key)
        own = self.current_at(key)
        found = [] if own is None else [own]
        if run.items > 1 and run.logical_date is not None:
            at, end = bisect_right(self._dates, run.logical_date), bisect_left(self._dates, _end_of(run))
            found += [self._runs[(date, None)] for date in self._dates[at:end]]
        return found

    def remember(self, run: DagRun) -> None:
        """Updates a run that is held, or drops it when it has been overridden; ignores others."""
        key = timeline_key(run.logical_date, run.partition_key)
        batch, current = self._batches.get(key), self._runs.get(key)
        if batch is not None and batch.run_id == run.run_id:
            if run.state == s.OVERRIDDEN:
                del self._batches[key]
            else:
                self._batches[key] = run
        if current is None or current.run_id != run.run_id:
            return
        if run.state != s.OVERRIDDEN:
            self._runs[key] = run
            return
        self._remove(run)
        self._note_overridden(run)

    def _remove(self, run: DagRun) -> None:
        del self._runs[timeline_key(run.logical_date, run.partition_key)]
        if run.logical_date is not None:
            del self._dates[bisect_left(self._dates, run.logical_date)]
            if run.logical_date in self.edges:
                self._gaps.add(run.logical_date)

    def _takes(self, run: DagRun) -> bool:
        if run.logical_date is not None and run.partition_key is not None:
            return False  # somebody else wrote it: it has no place
        if self.preview is None:
            return run.run_type in s.TIMELINE_RUN_TYPES
        return run.run_type == s.PREVIEW_RUN and run.backfill_id == self.preview

    def _note_overridden(self, run: DagRun) -> None:
        key = timeline_key(run.logical_date, run.partition_key)
        if key[0] is None:
            return
        if advances_schedule(run):
            self._advanced.add(key)
        if key in self._advanced and key not in self._runs and run.items == 1 and _was_taken_by_batch(run):
            self._split[key] = run
        self._note_step(key)

    def _note_step(self, key: TimelineKey) -> None:
        date, run = key[0], self._runs.get(key)
        if date is None:
            return
        at = bisect_left(self._steps, date)
        is_step = at < len(self._steps) and self._steps[at] == date
        if is_step != (run is not None and self._advances(run)):
            self._steps[at : at + is_step] = [] if is_step else [date]

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
