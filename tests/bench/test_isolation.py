"""Latency of scheduled runs, alone and beside a backfill; figures to print.

./tests/run tests/bench/test_isolation.py --bench -s
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from support.bench_isolation import measure_isolation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.bench
def test_scheduled_runs_keep_their_speed_beside_a_backfill(spark: SparkSession) -> None:
    measured = measure_isolation(runs=20, width=16, spark=spark)
    print(f"\nisolation: {json.dumps(measured, indent=1)}")
    assert measured["backfill_tasks_meanwhile"] > 0
