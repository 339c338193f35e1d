"""The items of a backfill as cells: counted right, read at a glance, and quick with a million of them."""

from __future__ import annotations

import time
from collections import Counter
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from support.sample_state import FilledState

from backfill_manager.clock import UTC
from backfill_manager.model.records import BackfillItem
from backfill_manager.queries.item_map import (
    MAX_CELLS,
    STATES,
    cell_size,
    item_map,
    read_items_seen,
    wider_ranges,
)
from backfill_manager.testing import MemoryStore

FIRST = datetime(2013, 1, 1, tzinfo=UTC)


def table_of(states: list[str], first: int = 1) -> pa.Table:
    n = len(states)
    return pa.table(
        {
            "ordinal": pa.array(range(first, first + n), pa.int64()),
            "state": pa.array(states, pa.string()),
            "logical_date": pa.array([FIRST + timedelta(days=k) for k in range(n)], pa.timestamp("us", tz="UTC")),
        }
    )


def test_few_items_have_a_cell_each_with_its_date() -> None:
    found = item_map(table_of(["success", "failed", "pending"]), 1, 3)
    assert (found.per, len(found.cells)) == (1, 3)
    assert [cell.most for cell in found.cells] == ["success", "failed", "pending"]
    assert [cell.begins for cell in found.cells] == [f"2013-01-0{k}T00:00:00Z" for k in (1, 2, 3)]
    assert found.by_state == {"pending": 1, "running": 0, "success": 1, "failed": 1, "cancelled": 0, "skipped": 0}


@pytest.mark.parametrize(
    ("items", "per"),
    [(1, 1), (10, 1), (MAX_CELLS, 1), (MAX_CELLS + 1, 10), (100_000, 100), (1_000_000, 1000), (10_000_000, 10_000)],
)
def test_there_are_never_more_cells_than_can_be_drawn(items: int, per: int) -> None:
    assert cell_size(items) == per
    assert items <= per * MAX_CELLS


@pytest.mark.parametrize(("items", "per"), [(MAX_CELLS, 1), (MAX_CELLS + 1, 10)])
def test_the_cells_of_a_part_are_as_small_as_its_length_allows(items: int, per: int) -> None:
    assert item_map(table_of(["success"] * items, first=5001), 5001, 5000 + items).per == per


def test_a_single_failure_among_thousands_is_seen() -> None:
    states = ["success"] * 5000
    states[4321] = "failed"
    found = item_map(table_of(states), 1, 5000)
    (cell,) = [cell for cell in found.cells if cell.worst == "failed"]
    assert (cell.first, cell.last, cell.most) == (4321, 4330, "success")
    assert cell.by_state == {**dict.fromkeys(STATES, 0), "success": 9, "failed": 1}
    assert (cell.begins, cell.ends) == ("2024-10-30T00:00:00Z", "2024-11-08T00:00:00Z")


def test_every_item_is_counted_once_whatever_their_order() -> None:
    rng = np.random.default_rng(7)
    states = [STATES[k] for k in rng.integers(0, len(STATES), 3333)]
    shuffled = table_of(states, first=501).take(pa.array(rng.permutation(3333)))
    found = item_map(shuffled, 501, 3833)
    assert found.by_state == {state: Counter(states)[state] for state in STATES}
    for cell in found.cells:
        inside = Counter(states[cell.first - 501 : cell.last - 500])
        assert cell.by_state == {state: inside[state] for state in STATES}
    assert found.cells[-1].last == 3833


def test_the_same_in_few_rows_for_reading() -> None:
    found = item_map(table_of(["success"] * 1990 + ["failed"] * 10), 1, 2000)
    rows = found.coarser(24)
    assert len(rows) <= 24
    assert (rows[0].first, rows[-1].last) == (1, 2000)
    assert sum(row.by_state["failed"] for row in rows) == 10
    assert rows[0].begins == "2013-01-01T00:00:00Z"
    assert found.coarser(5000) == found.cells


@pytest.mark.parametrize(
    ("range_", "planned", "wider"),
    [
        ((1, 31), 31, []),
        ((7, 7), 31, [(1, 31)]),
        ((620_001, 621_000), 1_000_000, [(1, 1_000_000)]),
        ((620_007, 620_007), 1_000_000, [(1, 1_000_000), (620_001, 621_000)]),
        ((123_451, 123_460), 10_000_000, [(1, 10_000_000), (120_001, 130_000)]),
        ((995, 1005), 1_000_000, [(1, 1_000_000)]),  # across two cells: only all of it holds both
        ((10, 11), 20_000, [(1, 20_000)]),
        ((1, 9), 20_000, [(1, 20_000), (1, 10)]),
        ((11, 15), 20_000, [(1, 20_000), (11, 20)]),
        ((19, 20), 20_000, [(1, 20_000), (11, 20)]),
    ],
)
def test_the_way_back_from_a_range_leads_through_the_cells_that_hold_it(
    range_: tuple[int, int], planned: int, wider: list[tuple[int, int]]
) -> None:
    assert wider_ranges(*range_, planned) == wider


@pytest.mark.parametrize("items", [100_000, 1_000_000])
def test_the_map_of_a_million_items_takes_parts_of_a_second(items: int) -> None:
    ordinals = np.arange(1, items + 1)
    table = pa.table(
        {
            "ordinal": ordinals,
            "state": pa.array(np.array(STATES)[ordinals % len(STATES)]),
            "logical_date": pa.array(ordinals * 3_600_000_000, pa.timestamp("us", tz="UTC")),
        }
    )
    begun = time.perf_counter()
    found = item_map(table, 1, items)
    print(f"{items:,} items in {time.perf_counter() - begun:.3f} s")
    assert sum(found.by_state.values()) == items
    assert len(found.cells) <= MAX_CELLS


def test_it_is_read_from_the_state_by_range_and_shown_beside_all_items(state: FilledState) -> None:
    state.backfill("aa", {"success": 20, "failed": 3, "pending": 8})
    state.backfill("bb", {"failed": 5})
    assert read_items_seen(state.store, "aa", 1, 31).map.by_state["failed"] == 3
    part = read_items_seen(state.store, "aa", 20, 22)
    assert [cell.most for cell in part.map.cells] == ["success", "failed", "failed"]
    assert part.map.cells[0].begins == "2013-01-20T05:00:00Z"
    assert part.by_state == {**dict.fromkeys(STATES, 0), "success": 20, "failed": 3, "pending": 8}


def test_partitions_are_labelled_by_their_keys() -> None:
    store = MemoryStore()
    store.init()
    store.write([BackfillItem("p", n + 1, "pending", n, partition_key=key) for n, key in enumerate(["emea", "apac"])])
    found = read_items_seen(store, "p", 1, 2, "partition_key").map
    assert [cell.begins for cell in found.cells] == ["emea", "apac"]


def test_why_items_did_not_succeed_the_most_frequent_first() -> None:
    store = MemoryStore()
    store.init()
    reasons = (
        [("skipped", "already exists")] * 3
        + [("failed", "clean failed")] * 5
        + [("success", None), ("failed", None), ("pending", "half of a failed batch")]
    )
    store.write([BackfillItem("p", n + 1, state, n, reason=why) for n, (state, why) in enumerate(reasons)])
    assert read_items_seen(store, "p", 1, len(reasons)).reasons == [
        {"state": "failed", "reason": "clean failed", "items": 5},
        {"state": "skipped", "reason": "already exists", "items": 3},
    ]
    assert read_items_seen(store, "nobody", 1, 1).reasons == []
