"""Decides which pending items of a backfill make one run together: pure, each time when runs are created. How many at most is the
option `batch`, or `batch_size`.

Items join while they follow each other without a gap: in the plan (a skipped item between them is a run to be kept) and in time
(the end of one is the start of the next; newest first it is the other way round), so partitions never join. Those with a number
in `batch` are half of a batch that failed, and stay by themselves. The dry run counts whole columns by the same rule.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backfill_manager.model import states
from backfill_manager.model.records import BackfillItem


def next_batch(items: Sequence[BackfillItem], most: int) -> int:
    """How many of the first of these pending items, which are in the order of making, make the next run: 0 only for
    none at all. At most `most`, but for a half of a failed batch, which stays whole."""
    if not items:
        return 0
    first = items[0]
    allowed = len(items) if first.batch is not None else min(most, len(items))
    backwards = len(items) > 1 and _touch(items[1], first)
    n = 1
    while n < allowed and _joins(items[n - 1], items[n], backwards):
        n += 1
    return n


def _joins(item: BackfillItem, following: BackfillItem, backwards: bool) -> bool:
    earlier, later = (following, item) if backwards else (item, following)
    return following.ordinal == item.ordinal + 1 and following.batch == item.batch and _touch(earlier, later)


def _touch(earlier: BackfillItem, later: BackfillItem) -> bool:
    has_length = earlier.interval_start != earlier.interval_end  # a partition has neither
    return has_length and earlier.interval_end == later.interval_start


def batches(items: pa.Table, most: int, *, run_backwards: bool) -> pa.ChunkedArray:
    """For each item of a plan the ordinal of the first item of its run; null for the skipped. What `next_batch` gives
    when it is asked again and again, for a million items at once."""
    pending, ordinals = pc.equal(items["state"], states.PENDING), items["ordinal"]
    if most == 1 or items.num_rows < 2:
        return pc.if_else(pending, ordinals, None)
    island = _islands(items, run_backwards)
    place = pc.subtract(ordinals, island)
    first = pc.add(island, pc.multiply(pc.divide(place, most), most))
    return pc.if_else(pending, first, None)


def stretches(items: pa.Table, *, run_backwards: bool) -> list[int]:
    """How many pending items there are without a gap between them, for each such stretch in the order of making."""
    pending = pc.equal(items["state"], states.PENDING)
    islands = _islands(items, run_backwards) if items.num_rows > 1 else items["ordinal"]
    counted = pc.value_counts(islands.filter(pending)).to_pylist()  # in the order in which they appear
    return [one["counts"] for one in counted]


def batches_of(items: pa.Table, sizes: Sequence[int]) -> pa.ChunkedArray:
    """The same as `batches` for runs of these sizes, which cut up the stretches."""
    pending = pc.equal(items["state"], states.PENDING).to_numpy()
    firsts = items["ordinal"].to_numpy().copy()
    lengths = np.array(sizes, np.int64)
    firsts[pending] = np.repeat(firsts[pending][np.cumsum(lengths) - lengths], lengths)
    return pa.chunked_array([pa.array(firsts, pa.int64(), mask=~pending)])


def _islands(items: pa.Table, run_backwards: bool) -> pa.ChunkedArray:
    """For each of two or more items the ordinal of the first of those without a gap between them."""
    pending = pc.equal(items["state"], states.PENDING)
    starts, ends = items["interval_start"], items["interval_end"]
    touch = pc.equal(ends[1:], starts[:-1]) if run_backwards else pc.equal(ends[:-1], starts[1:])
    earlier = slice(1, None) if run_backwards else slice(None, -1)
    touch = pc.and_(touch, pc.not_equal(starts[earlier], ends[earlier]))
    joins = pc.and_(pc.fill_null(touch, False), pc.and_(pending[1:], pending[:-1]))
    joins = pa.chunked_array([pa.array([False]), *joins.chunks])
    return pc.cumulative_max(pc.if_else(joins, 0, items["ordinal"]))
