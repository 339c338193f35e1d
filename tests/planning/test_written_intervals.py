"""What of a table has been written, against a model that keeps every hour."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from backfill_manager.planning.written_intervals import WrittenIntervals

FIRST = datetime(2024, 1, 1, tzinfo=timezone.utc)
parts = st.tuples(st.integers(0, 40), st.integers(1, 12)).map(lambda part: (part[0], part[0] + part[1]))


def at(hour: int) -> datetime:
    return FIRST + timedelta(hours=hour)


@given(st.lists(parts), parts)
def test_an_interval_is_covered_when_each_of_its_hours_is(
    written: list[tuple[int, int]], asked: tuple[int, int]
) -> None:
    intervals, hours = WrittenIntervals(), set[int]()
    for start, end in written:
        intervals.add(at(start), at(end), None)
        hours |= set(range(start, end))
    assert intervals.covers(at(asked[0]), at(asked[1]), None) == hours.issuperset(range(*asked))


def test_partitions_are_covered_by_their_keys_and_what_has_neither_waits_for_nothing() -> None:
    intervals = WrittenIntervals()
    intervals.add(None, None, "eu")
    assert intervals.covers(None, None, "eu") and not intervals.covers(None, None, "us")
    assert intervals.covers(None, None, None)
    assert not intervals.covers(at(0), at(1), None)
    intervals.add(at(1), at(1), None)  # `@once` has no length
    assert not intervals.covers(at(1), at(1), None)
