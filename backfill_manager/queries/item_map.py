"""The items of a backfill as a map of cells, readable from ten items to ten million.

A cell is a range of ordinals: one item, or ten, a hundred, ... so many that there are never more than `MAX_CELLS`. Its range
is the map of the next level, so two steps lead from a million items to one. Counted in Arrow's columns: no item becomes a
Python object.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from backfill_manager.clock import format_instant, from_micros
from backfill_manager.model import states
from backfill_manager.model.records import BackfillItem
from backfill_manager.store.base import Condition, Store

MAX_CELLS: Final = 2000
STATES: Final = states.ITEM_STATES
# A cell of several items shows the first of these states that it has.
WORST_FIRST: Final = (
    states.FAILED, states.RUNNING, states.CANCELLED, states.PENDING, states.SUCCESS, states.SKIPPED,
)  # fmt: skip
Label = Literal["logical_date", "partition_key"]


@dataclass(frozen=True)
class MapCell:
    """The items `first` to `last`. `begins` and `ends` are the label of its first and last one: an instant as it is
    spelled everywhere, or a partition key."""

    first: int
    last: int
    counts: tuple[int, ...]  # by STATES
    begins: str | None
    ends: str | None

    @property
    def by_state(self) -> dict[str, int]:
        return dict(zip(STATES, self.counts, strict=True))

    @property
    def most(self) -> str:
        """The state that most of its items have."""
        return STATES[max(range(len(STATES)), key=lambda n: self.counts[n])]

    @property
    def worst(self) -> str:
        there = self.by_state
        return next((state for state in WORST_FIRST if there[state]), self.most)


@dataclass(frozen=True)
class ItemMap:
    """`per` items to a cell, over the ordinals `first` to `last`; `label` is what a cell's `begins` and `ends` are."""

    first: int
    last: int
    per: int
    label: Label
    cells: tuple[MapCell, ...]

    @property
    def by_state(self) -> dict[str, int]:
        return dict(zip(STATES, _added(self.cells), strict=True))

    def coarser(self, most: int) -> tuple[MapCell, ...]:
        """The same in up to `most` larger cells, for reading as text."""
        many = -(-len(self.cells) // most)
        parts = (self.cells[at : at + many] for at in range(0, len(self.cells), max(1, many)))
        return tuple(
            MapCell(part[0].first, part[-1].last, _added(part), part[0].begins, part[-1].ends) for part in parts
        )


def _added(cells: Sequence[MapCell]) -> tuple[int, ...]:
    return tuple(sum(column) for column in zip(*(cell.counts for cell in cells), strict=True))


def cell_size(items: int) -> int:
    """Items to a cell: the smallest power of ten with which no more than `MAX_CELLS` cells hold them all."""
    size = 1
    while size * MAX_CELLS < items:
        size *= 10
    return size


def wider_ranges(first: int, last: int, planned: int) -> list[tuple[int, int]]:
    """The ranges that lead to this one, the widest first: all items, then the cell of each level that holds it."""
    if (first, last) == (1, planned):
        return []
    found, width = [(1, planned)], planned
    while (size := cell_size(width)) > last - first + 1 and (first - 1) // size == (last - 1) // size:
        begins = (first - 1) // size * size + 1
        found.append((begins, min(begins + size - 1, planned)))
        width = size
    return found


@dataclass(frozen=True)
class ItemsSeen:
    """What a page tells of a backfill's items: how many of them are in each state, why some were left out, failed or were
    cancelled (`state`, `reason`, `items`; the most frequent first), and the map of a range."""

    by_state: dict[str, int]
    reasons: list[dict[str, Any]]
    map: ItemMap


def read_items_seen(store: Store, backfill_id: str, first: int, last: int, label: Label = "logical_date") -> ItemsSeen:
    """All items as they stand, in one reading; the map is of the ordinals `first` to `last`."""
    of_it = [Condition("backfill_id", "=", backfill_id)]
    items = store.read_arrow(BackfillItem.TABLE, ["ordinal", "state", "reason", label], of_it)
    by_state = dict.fromkeys(STATES, 0) | dict(_counted(items["state"]))
    low, high = pa.scalar(first, pa.int64()), pa.scalar(last, pa.int64())
    in_range = pc.and_(pc.greater_equal(items["ordinal"], low), pc.less_equal(items["ordinal"], high))
    return ItemsSeen(by_state, reasons(items), item_map(items.filter(in_range), first, last, label))


def item_map(items: pa.Table, first: int, last: int, label: Label = "logical_date") -> ItemMap:
    """`items` has `ordinal`, `state` and the column `label`, in any order, with ordinals of `[first, last]`."""
    # By Arrow's own functions alone: on the way to numpy, or from a list, pyarrow imports pandas (50 MB, half a second).
    per = cell_size(last - first + 1)
    width, begin, end = pa.scalar(per), pa.scalar(0), pa.scalar(per - 1)
    places = pc.subtract(items["ordinal"], pa.scalar(first))
    slots = pc.divide(places, width)
    within = pc.subtract(places, pc.multiply(slots, width))
    states_there = items["state"].combine_chunks().dictionary_encode()
    names = states_there.dictionary.to_pylist()
    # cell and state as one number: counting numbers is three times as fast as grouping by two columns
    coded = pc.add(pc.multiply(slots, pa.scalar(len(names))), states_there.indices.cast(pa.int64()))
    counts = [[0] * len(STATES) for _ in range(-(-(last - first + 1) // per))]
    for code, number in _counted(coded):
        slot, state = divmod(code, len(names))
        if names[state] in STATES:
            counts[slot][STATES.index(names[state])] = number
    at_edge = (pc.equal(within, begin), pc.equal(within, end), pc.equal(items["ordinal"], pa.scalar(last)))
    edges = items.filter(reduce(pc.or_, at_edge))
    labels = dict(zip(edges["ordinal"].to_pylist(), _spelled(edges[label]), strict=True))
    ranges = ((begins, min(begins + per - 1, last)) for begins in range(first, last + 1, per))
    cells = (
        MapCell(begins, ends, tuple(of_cell), labels.get(begins), labels.get(ends))
        for of_cell, (begins, ends) in zip(counts, ranges, strict=True)
    )
    return ItemMap(first, last, per, label, tuple(cells))


def _counted(values: pa.ChunkedArray) -> Iterator[tuple[Any, int]]:
    """Each value with how often it is there."""
    found = pc.value_counts(values)
    return zip(found.field("values").to_pylist(), found.field("counts").to_pylist(), strict=True)


def _spelled(labels: pa.ChunkedArray) -> list[str | None]:
    """As texts: instants by way of whole numbers, which is many times as fast as by Arrow's own datetimes."""
    if not pa.types.is_timestamp(labels.type):
        return list(labels.to_pylist())
    at = labels.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
    return [None if one is None else format_instant(from_micros(one)) for one in at]


def reasons(items: pa.Table, most: int = 8) -> list[dict[str, Any]]:
    """Why items were left out, failed or were cancelled: `state`, `reason`, `items`; the most frequent first. `items` has
    `state` and `reason`, which may be another one for each item: only `most` of them become Python objects."""
    with_states = (states.FAILED, states.SKIPPED, states.CANCELLED)
    has_reason = [pc.equal(items["state"], pa.scalar(state)) for state in with_states]
    with_reason = items.filter(pc.and_(pc.is_valid(items["reason"]), reduce(pc.or_, has_reason)))
    if not with_reason.num_rows:
        return []
    counted = with_reason.group_by(["state", "reason"]).aggregate([("reason", "count")])
    top = counted.sort_by([("reason_count", "descending"), ("reason", "ascending")]).slice(0, most).to_pylist()
    return [{"state": row["state"], "reason": row["reason"], "items": row["reason_count"]} for row in top]
