"""What it costs at the end of a try to ask Spark for its stages: `./tests/run tests/bench/test_spark_stages.py --bench -s`."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

import pytest

from backfill_manager.execution.spark.spark_job_group import SparkJobGroup
from backfill_manager.execution.spark.spark_status import SparkStatus

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS = 40


@pytest.mark.bench
@pytest.mark.parametrize(("jobs", "parts"), [(1, 1), (1, 4), (10, 4), (100, 4)])
def test_ms_for_the_stages_of_a_try(spark: SparkSession, jobs: int, parts: int) -> None:
    """With one part a job has a stage, with several it has two."""
    sc = spark.sparkContext
    group = SparkJobGroup("backfill", "bfm/bench", "bench")
    group.enter(spark)
    for _ in range(jobs):
        sc.parallelize(range(8), parts).map(lambda n: (n % 2, n)).groupByKey(1 if parts == 1 else 2).count()
    sc._jsc.sc().listenerBus().waitUntilEmpty(10_000)
    status = SparkStatus(sc)
    ids = status.jobs_of(group.group)
    took = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        found = status.stages_of(ids, str)
        took.append(1000 * (time.perf_counter() - begun))
    assert found is not None and found.jobs == jobs
    print(
        f"\n{jobs} jobs, {found.stages} stages: first {took[0]:.1f} ms, median {statistics.median(took[5:]):.1f} ms, "
        f"{len(found.model_dump_json()):,} characters"
    )
