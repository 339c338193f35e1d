"""What processes of their own cost Python tasks, and what burning ones cost others; figures to print.

./tests/run tests/bench/test_task_processes.py --bench -s
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from support.bench_task_processes import measure_task_processes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.bench
def test_task_processes(spark: SparkSession) -> None:
    print("\n" + json.dumps(measure_task_processes(200, 8, spark=spark), indent=2))
