"""Turns batches (runs of several intervals) into the ranges of time that they cover, none overlapping another.

A batch covers every date in its interval. Where one lies in another (a part of a month has been reprocessed), the date is the
later one's, which starts last: what it reprocessed on its own dates is overridden. A live one is live on all of its dates,
whatever was done within it since. A run that counts as none has no date covered by the batch that it lies in.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from backfill_manager.model import states


def covered_ranges(runs: pa.Table, dag_version: int) -> pa.Table:
    """From runs as `backfill_plan.existing_runs` reads them (those without a state count as none), those with `items > 1`:
    `covers_from`, `covers_until` (epoch micros, half-open), `cover_is_live`, `cover_has_success`, `cover_is_fresh` (a
    success of `dag_version` or a later one), in the order of time."""
    is_batch = pc.and_(pc.greater(runs["items"], 1), pc.is_valid(runs["interval_start"]))
    counts_as_none = pc.and_(pc.is_null(runs["state"]), pc.is_valid(runs["interval_start"]))
    chosen = runs.filter(pc.or_(is_batch, counts_as_none) if pc.any(is_batch).as_py() else is_batch)
    state = chosen["state"].cast(pa.string())  # each store has its own kind of strings
    starts, ends = _micros(chosen["interval_start"]), _micros(chosen["interval_end"])
    has_success = pc.equal(state, states.SUCCESS)
    found = pa.table({
        "covers_from": starts, "covers_until": pc.if_else(pc.greater(chosen["items"], 1), ends, pc.add(starts, 1)),
        "cover_is_live": pc.is_in(state, pa.array(sorted(states.RUN_LIVE))), "cover_has_success": has_success,
        "cover_is_fresh": pc.and_(has_success, pc.greater_equal(chosen["dag_version"], dag_version)),
    }).sort_by([("covers_from", "ascending"), ("covers_until", "descending")])  # fmt: skip
    overlaps = pc.less(found["covers_from"][1:], found["covers_until"][:-1])
    if not pc.any(overlaps).as_py() and not found["cover_has_success"].null_count:
        return found
    return pa.Table.from_pylist(list(_split(found.to_pylist())), schema=found.schema)


def _micros(instants: pa.ChunkedArray) -> pa.ChunkedArray:
    return instants.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())


def _split(batches: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Cut wherever one starts or ends; the piece is the one's that started last, and nobody's where that one counts as none.
    `batches` are in the order of their starts."""
    cuts = sorted({batch[end] for batch in batches for end in ("covers_from", "covers_until")})
    upcoming = iter(enumerate(batches))
    later = next(upcoming, None)
    begun: list[tuple[int, dict[str, Any]]] = []  # a heap, the one that started last on top
    live_until = cuts[0] if cuts else 0
    for start, until in pairwise(cuts):
        while later is not None and later[1]["covers_from"] <= start:
            heappush(begun, (-later[0], later[1]))
            if later[1]["cover_is_live"]:
                live_until = max(live_until, later[1]["covers_until"])
            later = next(upcoming, None)
        while begun and begun[0][1]["covers_until"] <= start:
            heappop(begun)
        is_live = live_until > start
        if begun and (is_live or begun[0][1]["cover_has_success"] is not None):
            yield {**begun[0][1], "covers_from": start, "covers_until": until, "cover_is_live": is_live}
