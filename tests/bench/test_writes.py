"""Many small writes of one table: figures to print, no timed assertion.

./tests/run tests/bench/test_writes.py --bench -s
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from support.bench_writes import measure_writes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_benchmark_measures_what_it_says(spark: SparkSession) -> None:
    figures = measure_writes(4, 2, rounds=1, spark=spark)
    assert figures["days"] == 4 and 0 < figures["commits_per_interval"] <= 1 < figures["spark_jobs_per_interval"]
    assert figures["ratios"] == [pytest.approx(figures["managed_per_s"] / figures["bare_per_s"], rel=0.1)]


@pytest.mark.bench
def test_ninety_days_sixteen_wide(spark: SparkSession) -> None:
    print("\n" + json.dumps(measure_writes(90, 16, spark=spark), indent=2))
