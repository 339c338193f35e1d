"""Counting which spans of time meet an interval gives what comparing every pair would."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill_manager.planning.data.interval_overlap import Spans

SPAN = st.tuples(st.integers(0, 30), st.integers(0, 6), st.integers(0, 100))  # first, last - first, weight
INTERVAL = st.tuples(st.integers(0, 30), st.integers(1, 6))


@settings(deadline=None)
@given(st.lists(SPAN), st.lists(INTERVAL, min_size=1))
def test_each_interval_is_met_by_the_spans_that_share_an_instant_with_it(
    spans: list[tuple[int, int, int]], intervals: list[tuple[int, int]]
) -> None:
    first = np.array([s[0] for s in spans], np.int64)
    last = np.array([s[0] + s[1] for s in spans], np.int64)
    starts = np.array([i[0] for i in intervals], np.int64)
    ends = np.array([i[0] + i[1] for i in intervals], np.int64)
    weight = np.array([s[2] for s in spans], np.int64)
    meets = [
        [f <= e - 1 and la >= s for f, la in zip(first, last, strict=True)] for s, e in zip(starts, ends, strict=True)
    ]
    assert Spans(first, last).meeting(starts, ends).tolist() == [sum(row) for row in meets]
    weighed = Spans(first, last, weight).meeting(starts, ends).tolist()
    assert weighed == [sum(int(w) for w, met in zip(weight, row, strict=True) if met) for row in meets]
