"""What a scheduled run feels of a backfill: `bfm bench isolation`, with its figures printed (`--bench`)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from backfill_manager.manager.bench_isolation import isolation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.bench
def test_scheduled_runs_keep_their_speed_beside_a_backfill(spark: SparkSession) -> None:
    measured = isolation(runs=20, width=16, spark=spark)
    print(f"\nisolation: {json.dumps(measured, indent=1)}")
    assert measured["backfill_tasks_meanwhile"] > 0
