"""Which run stands for a date when runs took several at once."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill_manager.clock import EPOCH
from backfill_manager.planning.batches.batch_coverage import covered_ranges

DAY = 86_400_000_000
Batch = tuple[int, int, str | None, int]  # first day, the day after the last, state, DAG version


def table(batches: list[Batch], items: int = 2) -> pa.Table:
    instant = pa.timestamp("us", tz="UTC")
    starts = pa.array([EPOCH + timedelta(days=b[0]) for b in batches], instant)
    return pa.table(
        {
            "interval_start": starts,
            "interval_end": pa.array([EPOCH + timedelta(days=b[1]) for b in batches], instant),
            "state": pa.array([b[2] for b in batches], pa.string()),
            "dag_version": pa.array([b[3] for b in batches], pa.int64()),
            "items": pa.array([items] * len(batches), pa.int64()),
        }
    )


def covered(batches: list[Batch]) -> list[tuple[int, int, bool, bool, bool]]:
    rows: list[dict[str, Any]] = covered_ranges(table(batches), 2).to_pylist()
    return [
        (r["covers_from"] // DAY, r["covers_until"] // DAY, r["cover_is_live"], r["cover_has_success"],
         r["cover_is_fresh"]) for r in rows
    ]  # fmt: skip


def test_runs_of_one_item_stand_for_their_own_date_only() -> None:
    assert covered_ranges(table([(1, 5, "success", 1)], items=1), 1).num_rows == 0


def test_each_batch_is_a_stretch_in_the_order_of_time() -> None:
    assert covered([(5, 7, "failed", 2), (7, 9, "queued", 2), (1, 3, "success", 1), (3, 5, "success", 2)]) == [
        (1, 3, False, True, False),
        (3, 5, False, True, True),
        (5, 7, False, False, False),
        (7, 9, True, False, False),
    ]


def test_what_was_done_again_within_a_batch_stands_for_its_own_dates() -> None:
    assert covered([(1, 10, "success", 1), (4, 6, "failed", 2)]) == [
        (1, 4, False, True, False),
        (4, 6, False, False, False),
        (6, 10, False, True, False),
    ]


def test_a_batch_that_runs_again_is_live_on_all_of_its_dates() -> None:
    assert covered([(1, 10, "running", 1), (4, 6, "success", 2)]) == [
        (1, 4, True, False, False),
        (4, 6, True, True, True),
        (6, 10, True, False, False),
    ]


def test_what_counts_as_none_leaves_its_dates_to_nobody_unless_the_batch_around_it_is_live() -> None:
    around = table([(1, 10, "success", 2)])
    one = table([(3, 5, None, 2)], items=1)  # of one item: it has its first date alone
    batch = table([(6, 8, None, 2)])
    pieces = covered_ranges(pa.concat_tables([around, one, batch]), 2)
    second = 3 * DAY + 1
    assert list(zip(pieces["covers_from"].to_pylist(), pieces["covers_until"].to_pylist(), strict=True)) == [
        (DAY, 3 * DAY), (second, 6 * DAY), (8 * DAY, 10 * DAY),
    ]  # fmt: skip
    assert covered([(6, 8, None, 2)]) == []
    assert [piece[:4] for piece in covered([(1, 10, "running", 2), (6, 8, None, 2)])] == [
        (1, 6, True, False), (6, 8, True, None), (8, 10, True, False),
    ]  # fmt: skip


BATCH = st.tuples(st.integers(0, 20), st.integers(1, 8), st.sampled_from(("success", "failed", "running", None)))


@settings(deadline=None)  # the first example pays for loading Arrow
@given(st.lists(BATCH, max_size=6, unique_by=lambda b: b[0]))
def test_every_date_is_the_one_that_started_last(drawn: list[tuple[int, int, str | None]]) -> None:
    batches = [(start, start + length, state, 2) for start, length, state in drawn]
    pieces = covered(batches)
    for a, b in pairwise(pieces):
        assert a[1] <= b[0]
    for day in range(30):
        over = [b for b in batches if b[0] <= day < b[1]]
        found = [p for p in pieces if p[0] <= day < p[1]]
        is_live = any(b[2] == "running" for b in over)
        last = max(over, key=lambda b: b[0], default=None)
        assert len(found) == (last is not None and (is_live or last[2] is not None))
        if last is not None and found:
            assert found[0][2] == is_live
            assert bool(found[0][3]) == (last[2] == "success")
