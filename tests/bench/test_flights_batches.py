"""The example DAG as runs of one day and with batches that size themselves; figures to print.

./tests/run tests/bench/test_flights_batches.py --bench -s
BENCH_LAST_DAY=2013-12-31 ./tests/run tests/bench/test_flights_batches.py --bench -s   # the whole year
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
from support.bench_flights import measure_flights

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.bench
def test_batches_that_size_themselves_against_runs_of_one_day(spark: SparkSession) -> None:
    measured = measure_flights(spark, os.environ.get("BENCH_LAST_DAY", "2013-01-31"))
    print(f"\nflights: {json.dumps(measured)}")
    assert measured["same_tables"]
    assert measured["auto_runs"] < 31
