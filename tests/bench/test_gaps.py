"""Gaps by data over a large table: figures to print, no timed assertion.

./tests/run tests/bench/test_gaps.py --bench -s
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.bench_gaps import measure_gaps


def test_the_benchmark_measures_what_it_says(tmp_path: Path) -> None:
    figures = measure_gaps(tmp_path / "t", 2000, 4000)
    assert figures["found"] == {"empty": 2, "rewritten": 4}


@pytest.mark.bench
def test_ten_thousand_intervals_over_a_hundred_thousand_files(tmp_path: Path) -> None:
    print("\n" + json.dumps(measure_gaps(tmp_path / "t", 10_000, 100_000)))
