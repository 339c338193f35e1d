"""What a try of a Python task costs in CPU, by process: figures to print, no timed assertion.

./tests/run tests/bench/test_tries.py --bench -s
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest
from support.bench_tries import measure_tries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads the CPU of processes in /proc")


def test_the_benchmark_measures_what_it_says(spark: SparkSession) -> None:
    figures = measure_tries(4, ("nothing", "a Spark job"), rounds=1, spark=spark)
    assert set(figures) == {"nothing", "a Spark job", "bare"}
    for of_kind in figures.values():
        processes = ("this process", "fork server", "task processes", "JVM")
        assert of_kind["per_s"] > 0
        assert of_kind["all"] == pytest.approx(sum(of_kind[process] for process in processes), abs=0.05)
    assert figures["bare"]["task processes"] == 0 < figures["nothing"]["task processes"]


@pytest.mark.bench
def test_tries(spark: SparkSession) -> None:
    print("\n" + json.dumps(measure_tries(200, spark=spark), indent=2))
