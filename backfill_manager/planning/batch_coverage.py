"""Turns batches (runs of several intervals) into the ranges of time that they cover, none overlapping another.

A batch covers every date in its interval. Where one lies in another (a part of a month has been reprocessed), the date is the
later one's, which starts last: what it reprocessed on its own dates is overridden. A live one is live on all of its dates,
whatever was done within it since.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from backfill_manager.model import states

if TYPE_CHECKING:
    import pyarrow as pa


def covered_ranges(runs: pa.Table, dag_version: int) -> pa.Table:
    """From runs as `backfill_plan.existing_runs` reads them, those with `items > 1`: `covers_from`, `covers_until`
    (epoch micros, half-open), `cover_is_live`, `cover_has_success`, `cover_is_fresh` (a success of `dag_version` or a
    later one), in the order of time."""
    import pyarrow as pa
    import pyarrow.compute as pc

    batches = runs.filter(pc.and_(pc.greater(runs["items"], 1), pc.is_valid(runs["interval_start"])))
    state = batches["state"].cast(pa.string())  # each store has its own kind of strings
    has_success = pc.equal(state, states.SUCCESS)
    found = pa.table({
        "covers_from": _micros(batches["interval_start"]), "covers_until": _micros(batches["interval_end"]),
        "cover_is_live": pc.is_in(state, pa.array(sorted(states.RUN_LIVE))), "cover_has_success": has_success,
        "cover_is_fresh": pc.and_(has_success, pc.greater_equal(batches["dag_version"], dag_version)),
    }).sort_by([("covers_from", "ascending"), ("covers_until", "descending")])  # fmt: skip
    overlaps = pc.less(found["covers_from"][1:], found["covers_until"][:-1])
    if not pc.any(overlaps).as_py():
        return found
    return pa.Table.from_pylist(list(_split(found.to_pylist())), schema=found.schema)


def _micros(instants: pa.ChunkedArray) -> pa.ChunkedArray:
    import pyarrow as pa

    return instants.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())


def _split(batches: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Cut wherever one starts or ends; the piece is the one's that started last. `batches` are in the order of their
    starts."""
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
        if begun:
            is_live = live_until > start
            yield {**begun[0][1], "covers_from": start, "covers_until": until, "cover_is_live": is_live}
