"""Which intervals and partitions of a table tasks have written: what a task with `waits_for` waits for."""

from __future__ import annotations

import bisect
from collections.abc import Collection
from datetime import datetime
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from backfill_manager.clock import from_micros
from backfill_manager.model.records import TableAccess
from backfill_manager.store.base import Condition, Store
from backfill_manager.value_rules import table_key, table_keys

REVERT: Final = "revert"  # of `TableAccess.access`


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

    def may_meet(self, start: datetime | None, end: datetime | None, key: str | None) -> bool:
        """Whether a part of the interval has been written, or the partition; also if it is not known what was, or what is asked
        for."""
        if key is not None and self._keys:
            return key in self._keys
        if start is None or end is None or not self._starts:
            return True
        at = bisect.bisect_right(self._ends, start)
        return at < len(self._starts) and self._starts[at] < end

    def covers(self, start: datetime | None, end: datetime | None, key: str | None) -> bool:
        """Whether all of the interval has been written, or the partition. A run that has neither waits for nothing."""
        if key is not None:
            return key in self._keys
        if start is None or end is None:
            return True
        at = bisect.bisect_right(self._starts, start) - 1
        return at >= 0 and max(start, end) <= self._ends[at]


def read_written(store: Store, names: Collection[str]) -> dict[str, WrittenIntervals]:
    """What the state's successful tries have written of these tables and nobody has reverted, by their names as given."""
    found = {name: WrittenIntervals() for name in names}
    if not found:
        return found
    columns = ("table_name", "table_path", "interval_start", "interval_end", "partition_key")
    where = [Condition("access", "in", ("write", REVERT)), Condition("succeeded", "=", True)]
    rows = without_reverted(store.read_arrow(TableAccess.TABLE, (*columns, "dag_id", "run_id", "access"), where))
    keys = {name: table_keys(name) for name in names}
    both = (pc.fill_null(rows[name].cast(pa.string()), "") for name in ("table_name", "table_path"))
    tables = pc.binary_join_element_wise(*both, "\x1f")
    for table in tables.unique().to_pylist():
        of = {table_key(name) for name in table.split("\x1f") if name}
        asked = [written for name, written in found.items() if not of.isdisjoint(keys[name])]
        parts = _joined(rows.filter(pc.equal(tables, table))) if asked else ()
        for written in asked:
            for part in parts:
                written.add(*part)
    return found


def _joined(rows: pa.Table) -> list[tuple[datetime | None, datetime | None, str | None]]:
    """The intervals and partitions of these rows, of which there may be many: those that touch or overlap are one."""
    micros = (
        rows[name].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
        for name in ("interval_start", "interval_end")
    )
    joined: list[list[int]] = []
    for start, end in sorted(
        (start, end) for start, end in zip(*micros, strict=True) if start is not None and end is not None
    ):
        if joined and start <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], end)
        else:
            joined.append([start, end])
    keys = rows["partition_key"].drop_null().unique().to_pylist()
    return [
        *((from_micros(start), from_micros(end), None) for start, end in joined),
        *((None, None, key) for key in keys),
    ]


def without_reverted(accesses: pa.Table) -> pa.Table:
    """Without those of runs that were reverted, nor the rows that say so: as if these runs had never been. Needs the columns
    `dag_id`, `run_id` and `access`."""
    is_revert = pc.equal(accesses["access"].cast(pa.string()), REVERT)
    if not pc.any(is_revert).as_py():
        return accesses
    run = pc.binary_join_element_wise(
        accesses["dag_id"].cast(pa.string()), accesses["run_id"].cast(pa.string()), "\x1f"
    )
    return accesses.filter(pc.invert(pc.is_in(run, run.filter(is_revert).combine_chunks())))
