"""Pages of a list are parts of it: joined they are the list, whatever orders it; and one of a list by what a person types."""

from __future__ import annotations

import math

import pytest
from support.scenarios import at

from backfill_manager.errors import Ambiguous, NotFound
from backfill_manager.model.records import DagRun
from backfill_manager.queries.paging import Order, Slice, choose
from backfill_manager.store.base import matching
from backfill_manager.testing import MemoryStore

STARTED = [None, "2024-01-01", "2024-01-02", "2024-01-01", None, "2024-01-03", "2024-01-01", "2024-01-02"]


def eight_runs() -> MemoryStore:
    """Some have started at the same time, and some not at all."""
    store = MemoryStore()
    store.init()
    store.write([
        DagRun(
            "d", f"r{n}", "manual", "success" if n < 3 else "failed", 1, n, created_at=at("2024-01-01"),
            started_at=None if started is None else at(started),
        )
        for n, started in enumerate(STARTED)
    ])  # fmt: skip
    return store


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 7, 8, 9])
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("column", ["started_at", "run_seq"])
def test_the_pages_of_a_list_joined_are_the_list(column: str, descending: bool, limit: int) -> None:
    store, order = eight_runs(), Order(column, "run_seq", descending)
    value = [one if column == "started_at" else "" for one in STARTED]  # by which it is ordered, before the number
    has_none = [n for n in range(8) if value[n] is None]
    expected = sorted(set(range(8)) - set(has_none), key=lambda n: (value[n], n), reverse=descending)
    expected += sorted(has_none, reverse=descending)
    either = [matching(state="success"), matching(state="failed")]
    for of_parts in (False, True):
        pages, after = [], None
        while not pages or after is not None:
            part = Slice(order, limit, after)
            rows, after = part.read_any(store, DagRun, either) if of_parts else part.read(store, DagRun, [])
            pages.append([row.run_seq for row in rows])
            assert len(pages) <= 8, "it comes to an end"
        assert [seq for page in pages for seq in page] == expected
        assert [len(page) for page in pages[:-1]] == [limit] * (math.ceil(8 / limit) - 1), "none is empty at the end"


def test_a_whole_id_is_chosen_though_others_begin_so_and_nothing_means_none() -> None:
    newest_first = ["abcd", "abc", "xyz"]
    assert [choose("backfill", typed, newest_first) for typed in ("abc", "abcd", "x", "latest")] == [
        "abc", "abcd", "xyz", "abcd",
    ]  # fmt: skip
    with pytest.raises(Ambiguous):
        choose("backfill", "ab", newest_first)
    for typed, ids in (("", ["abc"]), ("nope", newest_first), ("latest", [])):
        with pytest.raises(NotFound):
            choose("backfill", typed, ids)
