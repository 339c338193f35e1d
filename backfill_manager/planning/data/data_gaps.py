"""What lies in an output table against what the state says, interval by interval. Pure: arrays in, findings out.

- `empty`: a run has succeeded, and no row lies in the interval.
- `no_run`: rows lie in the interval, no run of the DAG has succeeded in it, and none of any DAG has written it.
- `rewritten`: a commit of somebody else, after ours, has added or removed files with rows of the interval, or the table was
  replaced, be it by an older copy of its folder.
- `outdated`: a table that was read to make it has changed within the interval since the version that was read.
- `fewer_rows`: fewer than half of what is usual: the median of the same weekday and hour in the weeks around it, else of the
  intervals around it. Reported, never judged.
- `unknown`: one of these is not known, with the reason.

An interval with a live run is left out. Files tell their rows by bounds: a file within an interval has all its rows there; one
that lies across the end of an interval may have rows in each that it touches, or none, and the count of these is a lower bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from backfill_manager.schemas.findings import FINDINGS, WROTE_NO_ROW, Finding
from backfill_manager.store.data_tables.places import Changes, Files, Flags, Numbers
from backfill_manager.store.data_tables.table_log import TableLog

Reason = tuple[Finding, Flags, Callable[[int], str]]  # where, and why in words, by the number of the interval
NEIGHBOURS: Final = 7  # on either side, that say what is usual: intervals, or weeks
MIN_NEIGHBOURS: Final = 5  # altogether
MIN_WEEKS: Final = 3  # altogether, with rows of the same weekday and hour
DAY_US: Final = 24 * 3600 * 1_000_000
WEEK_US: Final = 7 * DAY_US
SHARE_OF_USUAL: Final = 0.5
NONE: Final = -1  # a version or a number of rows that is not known


@dataclass(frozen=True)
class Axis:
    """The intervals along a table's column, `starts <= value < ends`, in micros: in order, and none overlaps another."""

    starts: Numbers
    ends: Numbers


@dataclass(frozen=True)
class Rows:
    n: Numbers
    is_exact: Flags  # False: these at least


@dataclass(frozen=True)
class Runs:
    """Of the DAG, for each interval."""

    is_done: Flags  # the current run has succeeded
    is_live: Flags


@dataclass(frozen=True)
class Access:
    """What the last successful try did with a table, for each interval."""

    version: Numbers  # of the table; NONE: there is none that is known
    is_replaced: Flags  # the table had another id then than now
    rows: Numbers  # written; NONE: not known


@dataclass(frozen=True)
class Input:
    name: str
    log: TableLog
    axis: Axis
    access: Access


@dataclass(frozen=True)
class Output:
    name: str
    log: TableLog
    axis: Axis
    access: Access
    is_written: Flags  # a task has written the interval, of whatever DAG, and whatever became of its run since
    inputs: Sequence[Input] = ()
    counted: Numbers | None = None  # rows in each interval, counted by Spark where the log does not say


@dataclass(frozen=True)
class Gap:
    """One finding of one interval."""

    interval: int  # its number
    finding: Finding
    because: str
    rows: int | None
    usual_rows: int | None


@dataclass(frozen=True)
class Judged:
    """What was found of one output table; flags for each interval."""

    rows: Rows
    usual: Numbers  # NONE where too few are known
    flags: Mapping[Finding, Flags]
    is_missing: Flags  # its data is: what `--kind missing --by data` plans
    _reasons: Sequence[Reason] = ()

    def gaps(self) -> Iterator[Gap]:
        """In the order of intervals."""
        found: dict[tuple[int, int], list[str]] = {}
        for finding, flags, text in self._reasons:
            for number in np.flatnonzero(flags & self.flags[finding]).tolist():
                found.setdefault((number, FINDINGS.index(finding)), []).append(text(number))
        for (number, at), texts in sorted(found.items()):
            rows, usual = int(self.rows.n[number]), int(self.usual[number])
            known = rows if self.rows.is_exact[number] else None
            yield Gap(number, FINDINGS[at], "; ".join(dict.fromkeys(texts)), known, usual if usual != NONE else None)


def judge(runs: Runs, output: Output) -> Judged:
    rows = rows_in(output.axis, output.log.files) if output.counted is None else _exactly(output.counted)
    if output.counted is None and output.log.why_unknown is not None:
        rows = Rows(rows.n, np.zeros(len(rows.n), np.bool_))
    considered = ~runs.is_live & (output.axis.starts < output.axis.ends)  # hours of a column of dates hold no value
    is_done, none = runs.is_done & considered, (rows.n == 0) & rows.is_exact
    usual = usual_rows(output.axis, rows, is_done)
    reasons: list[Reason] = []

    def found(finding: Finding, where: Flags, text: Callable[[int], str]) -> None:
        reasons.append((finding, where & considered, text))

    wrote_none = output.access.rows == 0
    found("empty", is_done & none & ~wrote_none, lambda _: "a run has succeeded, and no row lies there")
    found("empty", is_done & none & wrote_none, lambda _: WROTE_NO_ROW)
    found(
        "no_run",
        ~runs.is_done & (rows.n > 0) & ~output.is_written,
        lambda _: "rows lie there, and no run has written them",
    )
    fewer = (usual != NONE) & (rows.n < SHARE_OF_USUAL * usual)
    found("fewer_rows", fewer, lambda n: f"{rows.n[n]:,} rows; {usual[n]:,} are usual for it")
    why = output.log.why_unknown or "files lie across the ends of intervals, or have no statistics"
    found("unknown", ~rows.is_exact & (rows.n == 0), lambda _: f"its rows could not be counted: {why}")

    theirs = output.log.changes.where(~output.log.changes.is_ours)
    for reason in _changes("rewritten", output.name, output.log, theirs, output.axis, output.access):
        found(*reason)
    for one in output.inputs:
        for reason in _changes("outdated", one.name, one.log, one.log.changes, one.axis, one.access):
            found(*reason)

    flags = {finding: np.zeros(len(rows.n), np.bool_) for finding in FINDINGS}
    for finding, where, _ in reasons:
        flags[finding] |= where
    is_known = rows.is_exact | (rows.n > 0)
    is_missing = np.where(is_known, (rows.n == 0) & ~(is_done & wrote_none), ~runs.is_done) & considered
    return Judged(rows, usual, flags, is_missing, reasons)


def rows_in(axis: Axis, files: Files) -> Rows:
    """Rows in each interval, by the bounds of files."""
    n = len(axis.starts)
    low, high = _touched(axis, files.first, files.past)
    across = lie_across(axis, files)
    is_inside = (low <= high) & ~across & (files.rows != 0)
    counted = np.bincount(low[is_inside], weights=files.rows[is_inside], minlength=n)[:n].astype(np.int64)
    begun = np.bincount(low[across], minlength=n + 1)[: n + 1]
    over = np.bincount(high[across] + 1, minlength=n + 1)[: n + 1]
    return Rows(counted, np.cumsum(begun - over)[:n] == 0)


def lie_across(axis: Axis, files: Files) -> Flags:
    """The files that may have rows in these intervals, but whose bounds do not tell how many in which."""
    low, high = _touched(axis, files.first, files.past)
    at = np.minimum(low, max(len(axis.starts) - 1, 0))
    is_inside = (low == high) & (files.rows > 0)
    if len(axis.starts):
        is_inside &= (axis.starts[at] <= files.first) & (files.past <= axis.ends[at])
    across: Flags = (low <= high) & (files.rows != 0) & ~is_inside
    return across


def last_change(axis: Axis, changes: Changes, read: Numbers) -> Numbers:
    """For each interval the version of the last change that touches it, NONE if there is none; `changes` are in the order of
    versions. `read`: the version that is known of each interval; a revert of later ones has brought that one back."""
    found = np.full(len(axis.starts), NONE, np.int64)
    low, high = _touched(axis, changes.first, changes.past)
    is_one = low == high
    is_one[is_one] = changes.undoes_from[is_one] <= read[low[is_one]]
    np.maximum.at(found, low[is_one], changes.version[is_one])
    spans = np.column_stack([low, high, changes.version, changes.undoes_from])[low < high]
    for begin, end, version, undoes_from in spans.tolist():
        part = slice(begin, end + 1)
        found[part] = np.where(undoes_from <= read[part], np.maximum(found[part], version), found[part])
    return found


def usual_rows(axis: Axis, rows: Rows, is_done: Flags) -> Numbers:
    """For each done interval with rows the median of others: of the same time of the week where enough weeks have it, else of
    those around it."""
    usual = np.full(len(rows.n), NONE, np.int64)
    known = np.flatnonzero(is_done & rows.is_exact & (rows.n > 0))
    if len(known) <= MIN_NEIGHBOURS:
        return usual
    numbers = rows.n[known].astype(np.float64)
    usual[known] = np.nanmedian(_around(numbers[:, np.newaxis])[:, 0], axis=1).astype(np.int64)
    place = _places_in_week(Axis(axis.starts[known], axis.ends[known]))
    if place is not None:
        week, time = place
        weeks = np.full((week.max() + 1, time.max() + 1), np.nan)
        weeks[week, time] = numbers
        same_time = _around(weeks)[week, time]
        is_enough = (~np.isnan(same_time)).sum(axis=1) >= MIN_WEEKS
        usual[known[is_enough]] = np.nanmedian(same_time[is_enough], axis=1).astype(np.int64)
    return usual


def _around(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """For each number those in the rows before and after it, without itself; NaN beyond the ends."""
    padded = np.pad(numbers, ((NEIGHBOURS, NEIGHBOURS), (0, 0)), constant_values=np.nan)
    around = np.lib.stride_tricks.sliding_window_view(padded, 2 * NEIGHBOURS + 1, axis=0)
    return np.delete(around, NEIGHBOURS, axis=2)


def _places_in_week(axis: Axis) -> tuple[Numbers, Numbers] | None:
    """The week of each interval and its place there, both numbered: the day, or the coarsest part of a day down to an hour that
    tells intervals apart. None where not even hours do, and for intervals of more than a day. The days on which the clocks
    change are 23 and 25 hours long."""
    if np.median(axis.ends - axis.starts) > DAY_US:
        return None
    for in_week in range(7, 7 * 24 + 1, 7):
        number = np.floor((axis.starts - axis.starts[0]) / (WEEK_US / in_week) + 0.5).astype(np.int64)
        if len(np.unique(number)) == len(number):
            return np.unique(number // in_week, return_inverse=True)[1], number % in_week
    return None


def _touched(axis: Axis, first: Numbers, past: Numbers) -> tuple[Numbers, Numbers]:
    """The first and the last interval that each file touches; the last is before the first where it touches none."""
    low: Numbers = np.searchsorted(axis.ends, first, "right")
    high: Numbers = np.searchsorted(axis.starts, past, "left") - 1
    return low, np.where(first < past, high, low - 1)


def _changes(
    finding: Finding, name: str, log: TableLog, changes: Changes, axis: Axis, access: Access
) -> Iterator[Reason]:
    """Intervals in which a table has changed since the recorded version; where that can't be said, why."""
    has_version = access.version != NONE
    if log.problem is not None:
        if finding == "outdated":  # of an output it is said once, for the whole table
            yield "unknown", has_version, lambda _: f"whether {name} has changed is not known: {log.problem}"
        return
    yield finding, access.is_replaced & has_version, lambda _: f"{name} is another table now: it was replaced"
    is_same = has_version & ~access.is_replaced
    yield (
        finding,
        is_same & (access.version > log.version),
        lambda n: f"{name} was replaced by an older copy: its version is {log.version} (then: {access.version[n]})",
    )
    placed = last_change(axis, changes.where(changes.is_placed), access.version)
    is_changed = is_same & (placed > access.version)
    yield finding, is_changed, lambda n: f"{name} has changed in its version {placed[n]} (then: {access.version[n]})"
    is_open = is_same & ~is_changed & (access.version < log.version)
    if log.why_unknown is not None:
        yield "unknown", is_open, lambda _: f"whether {name} has changed is not known: {log.why_unknown}"
        return
    is_lost = is_open & (access.version + 1 < log.changes_from)
    yield "unknown", is_lost, lambda n: f"{name}: its log of versions after {access.version[n]} has been cleaned up"
    unplaced = int(changes.version[~changes.is_placed].max(initial=NONE))
    is_vague = is_open & ~is_lost & (access.version < unplaced)
    yield "unknown", is_vague, lambda _: f"{name} has changed in its version {unplaced}, in files without statistics"


def _exactly(counted: Numbers) -> Rows:
    return Rows(counted, np.ones(len(counted), np.bool_))
