"""Latency of scheduled runs, alone and beside a backfill; figures to print.

./tests/run tests/bench/test_isolation.py --bench -s

Of `RUNS` runs in each phase, one every four seconds: p95 of 20 would be one task.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from support.bench_isolation import measure_isolation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUNS = 60


@pytest.mark.bench
@pytest.mark.parametrize("auto_batches", [False, True], ids=["one item each", "auto batches"])
def test_scheduled_runs_keep_their_speed_beside_a_backfill(spark: SparkSession, auto_batches: bool) -> None:
    measured = measure_isolation(runs=RUNS, width=16, spark=spark, auto_batches=auto_batches)
    name = "isolation, auto batches" if auto_batches else "isolation"
    print(f"\n{name}: {json.dumps(measured, indent=1)}")
    assert measured["backfill_tasks_meanwhile"] > 0
