"""Which items make one run together: they cover all, join nothing across a gap, and are never more than asked for."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill_manager.clock import EPOCH
from backfill_manager.model.records import BackfillItem
from backfill_manager.planning.batches.joined_items import batches, next_batch

INSTANT = pa.timestamp("us", tz="UTC")


def at(day: int) -> datetime:
    return EPOCH + timedelta(days=day)


def item(ordinal: int, day: int | None, *, batch: int | None = None, key: str | None = None) -> BackfillItem:
    start, end = (None, None) if day is None else (at(day), at(day + 1))
    return BackfillItem("b", ordinal, "pending", ordinal, start, start, end, key, batch=batch)


def days(*numbers: int, batch: int | None = None) -> list[BackfillItem]:
    return [item(n, day, batch=batch) for n, day in enumerate(numbers, 1)]


@pytest.mark.parametrize(
    ("items", "most", "taken"),
    [
        ([], 5, 0),
        (days(1), 5, 1),
        (days(1, 2, 3), 1, 1),
        (days(1, 2, 3), 2, 2),
        (days(1, 2, 3), 5, 3),
        (days(3, 2, 1), 5, 3),  # newest first
        (days(1, 2, 4, 5), 5, 2),  # a gap in time
        (days(5, 4, 2, 1), 5, 2),
        ([item(1, 1), item(3, 2)], 5, 1),  # a skipped item between them
        ([item(1, 1), item(2, 2), item(3, 1)], 5, 2),  # and back again
        ([item(1, None, key="a"), item(2, None, key="b")], 5, 1),  # partitions have no interval
        (days(1, 2, 3, 4, batch=1), 2, 4),  # half of a failed batch stays whole
        ([*days(1, 2, batch=1), item(3, 3, batch=3)], 5, 2),
        ([*days(1, 2), item(3, 3, batch=3)], 5, 2),
        ([*days(1, batch=1), item(2, 2)], 5, 1),
    ],
)
def test_as_many_items_make_a_run_as_join_without_a_gap(items: list[BackfillItem], most: int, taken: int) -> None:
    assert next_batch(items, most) == taken


def test_dates_without_a_length_never_join() -> None:
    same = [BackfillItem("b", n, "pending", n, at(n), at(n), at(n)) for n in (1, 2, 3)]
    assert next_batch(same, 5) == 1


def test_partitions_never_join() -> None:
    partitions = [item(n, None, key=key) for n, key in enumerate("abc", 1)]
    assert batches(as_table(partitions), 5, run_backwards=False).to_pylist() == [1, 2, 3]


Plan = list[tuple[int, int, bool]]  # start and length in days; is it pending


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Intervals in the order of time, with gaps and with skipped ones."""
    made, start = [], 0
    for gap, length, pending in draw(
        st.lists(st.tuples(st.sampled_from((0, 0, 0, 1)), st.integers(0, 3), st.integers(0, 4)))
    ):
        made.append((start + gap, length, pending > 0))
        start += gap + length
    return made


def as_items(plan: Plan, backwards: bool) -> list[BackfillItem]:
    ordered = plan[::-1] if backwards else plan
    return [
        BackfillItem("b", n, "pending" if pending else "skipped", n, at(start), at(start), at(start + length))
        for n, (start, length, pending) in enumerate(ordered, 1)
    ]


def as_table(items: list[BackfillItem]) -> pa.Table:
    return pa.table(
        {
            "ordinal": pa.array([i.ordinal for i in items], pa.int64()),
            "interval_start": pa.array([i.interval_start for i in items], INSTANT),
            "interval_end": pa.array([i.interval_end for i in items], INSTANT),
            "partition_key": pa.array([i.partition_key for i in items], pa.string()),
            "state": pa.array([i.state for i in items], pa.string()),
        }
    )


def one_after_another(pending: list[BackfillItem], most: int) -> list[list[BackfillItem]]:
    runs = []
    while taken := next_batch(pending, most):
        runs.append(pending[:taken])
        pending = pending[taken:]
    return runs


@given(plans(), st.integers(1, 5), st.booleans())
def test_batches_cover_all_and_join_nothing_across_a_gap_or_a_skipped_item(
    plan: Plan, most: int, backwards: bool
) -> None:
    items = as_items(plan, backwards)
    pending = [i for i in items if i.state == "pending"]
    runs = one_after_another(pending, most)
    assert [i for run in runs for i in run] == pending
    for run in runs:
        assert len(run) <= most
        assert [i.ordinal for i in run] == list(range(run[0].ordinal, run[0].ordinal + len(run)))
        for a, b in pairwise(sorted(run, key=lambda i: (i.interval_start, i.interval_end))):
            assert a.interval_end == b.interval_start


@settings(deadline=None)  # the first example pays for loading Arrow
@given(plans(), st.integers(1, 5), st.booleans())
def test_the_dry_run_counts_the_runs_that_are_made(plan: Plan, most: int, backwards: bool) -> None:
    items = as_items(plan, backwards)
    runs = one_after_another([i for i in items if i.state == "pending"], most)
    first = {i.ordinal: run[0].ordinal for run in runs for i in run}
    firsts = batches(as_table(items), most, run_backwards=backwards).to_pylist()
    assert firsts == [first.get(i.ordinal) for i in items]
