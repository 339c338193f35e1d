"""The dates or partitions of selected items or runs: a range where their intervals are adjoining ones of the schedule, one
interval that is none of it, else a list; and which items are in some states, as ranges of their numbers. Read as Arrow's
columns: there may be a hundred thousand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa

from backfill_manager.clock import format_instant, from_micros, micros
from backfill_manager.dags.definition import DagSpec
from backfill_manager.dags.schedule.timetable import Timetable, timetable_of
from backfill_manager.errors import InvalidInput
from backfill_manager.model.records import BackfillItem, DagRun
from backfill_manager.number_ranges import Ranges, merged
from backfill_manager.store.base import Condition, Store, matching

_Interval = tuple[int, int]  # microseconds


@dataclass(frozen=True)
class SelectedDates:
    """One of the four: `range` from the first logical date to the last, `single` interval, `dates`, or `partitions`."""

    range: tuple[datetime, datetime] | None = None
    single: tuple[datetime, datetime] | None = None
    dates: tuple[datetime, ...] = ()
    partitions: tuple[str, ...] = ()

    def options(self) -> dict[str, Any]:
        """As options of a backfill."""
        if (ends := self.range or self.single) is not None:
            start, end = map(format_instant, ends)
            return {"kind": "single" if self.range is None else "schedule", "start_date": start, "end_date": end}
        if self.partitions:
            return {"kind": "partitions", "partitions": list(self.partitions)}
        return {"kind": "dates", "dates": [format_instant(at) for at in self.dates]}


def dates_of_items(store: Store, backfill_id: str, ordinals: Ranges, dag: DagSpec) -> SelectedDates:
    where = [*matching(backfill_id=backfill_id), Condition("ordinal", "in_ranges", ordinals)]
    names = ["logical_date", "interval_start", "interval_end", "partition_key"]
    read = store.read_arrow(BackfillItem.TABLE, names, where)
    keys = [key for key in read["partition_key"].to_pylist() if key is not None]
    at, start, end = (read[name].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist() for name in names[:3])
    dates = sorted({date for date in at if date is not None})
    timetable = timetable_of(dag, from_micros(dates[0]) if dates else None)
    return _selected(dates, list(zip(start, end, strict=True)), keys, timetable)


def dates_of_runs(runs: Sequence[DagRun], timetable: Timetable) -> SelectedDates:
    """`timetable` says which dates a batch stands for."""
    dates, intervals = set[int](), list[_Interval]()
    for run in runs:
        of_run = (
            [] if run.interval_start is None or run.interval_end is None else [(run.interval_start, run.interval_end)]
        )
        if of_run and run.items > 1:
            start, end = of_run[0]
            of_run = list(timetable.intervals(start, end - timedelta(microseconds=1))) or of_run
            dates |= {micros(begin) for begin, _ in of_run}
        elif run.logical_date is not None:
            dates.add(micros(run.logical_date))
        intervals += [(micros(start), micros(end)) for start, end in of_run]
    return _selected(
        sorted(dates), intervals, [run.partition_key for run in runs if run.partition_key is not None], timetable
    )


def _selected(dates: list[int], intervals: Sequence[Any], keys: list[str], timetable: Timetable) -> SelectedDates:
    if dates and keys:
        raise InvalidInput(
            "Dates and partitions are selected; a backfill is of the one or the other, so select one kind."
        )
    if keys:
        return SelectedDates(partitions=tuple(dict.fromkeys(keys)))
    if not dates:
        raise InvalidInput("What is selected has no date and no partition.")
    known: set[_Interval] = {(start, end) for start, end in intervals if start is not None and end is not None}
    in_order = sorted(known)
    adjoin = all(one[1] == after[0] for one, after in pairwise(in_order))
    if in_order and adjoin and all(start < end for start, end in in_order):
        start, end = map(from_micros, in_order[0])
        if len(in_order) == 1 and timetable.next_after(start) != end:
            return SelectedDates(single=(start, end))
        last = timetable.last_before(from_micros(in_order[-1][1]))  # of a schedule that has shorter intervals since
        if last is not None and timetable.first_at_or_after(start) == start:  # else it is a part of an interval
            return SelectedDates(range=(start, max(last, from_micros(dates[-1]))))
    return SelectedDates(dates=tuple(map(from_micros, dates)))


def ranges_in_states(store: Store, backfill_id: str, in_states: Sequence[str], first: int, last: int) -> Ranges:
    """The numbers of the items in these states (none: all) from `first` to `last`."""
    if not in_states:
        return ((first, last),) if first <= last else ()
    where = [
        *matching(backfill_id=backfill_id, state=tuple(in_states)),
        Condition("ordinal", ">=", first), Condition("ordinal", "<=", last),
    ]  # fmt: skip
    there = store.read_arrow(BackfillItem.TABLE, ["ordinal"], where)["ordinal"].to_pylist()
    return merged((n, n) for n in there)
