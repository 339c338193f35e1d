"""Throughput of the manager, and start-up of the light commands: figures to print, no timed assertion.

./tests/run tests/bench --bench -s
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.bench_overhead import measure_overhead

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_benchmark_measures_what_it_says(spark: SparkSession) -> None:
    figures = measure_overhead(4, 2, rounds=1, spark=spark)
    assert figures["tasks"] == 4 and figures["width"] == 2
    assert figures["bare_per_s"] > 0 and figures["managed_per_s"] > 0
    assert figures["ratios"] == [pytest.approx(figures["managed_per_s"] / figures["bare_per_s"], rel=0.1)]


@pytest.mark.bench
def test_overhead_of_the_manager_sixteen_wide(spark: SparkSession) -> None:
    print("\n" + json.dumps(measure_overhead(400, 16, rounds=5, spark=spark), indent=2))


@pytest.mark.bench
def test_light_commands(tmp_path: Path) -> None:
    bfm = [sys.executable, "-m", "backfill_manager", "--state", str(tmp_path / "state")]
    subprocess.run([*bfm, "state", "init"], check=True, capture_output=True)
    for command in (["dags", "list"], ["backfill", "list"], ["--version"]):
        walls = []
        for _ in range(7):
            began = time.perf_counter()
            subprocess.run([*bfm, *command], check=True, capture_output=True)
            walls.append(time.perf_counter() - began)
        print(f"\nbfm {' '.join(command)}: median {statistics.median(walls):.2f} s of {len(walls)}, wall")
