"""A cluster's runs, and thousands of tasks at once, as the driver has them; figures to print, no timed assertion.

    ./tests/run tests/bench/test_big_cluster.py --bench -s

BFM_BENCH_ROWS is the number of flights (a year's, each many times), 300 million unless it is set.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.bench_big_cluster import BATCHED_DAYS, SINGLE_DAYS, measure_big_cluster
from support.bench_orchestration import at_once

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads the CPU of processes in /proc")
ROWS = int(os.environ.get("BFM_BENCH_ROWS", "300000000"))


def test_the_simulation_runs_every_task_it_counts() -> None:
    figures = at_once(50, 0.2)
    assert figures["tasks"] >= 200 and 0 < figures["per_s"] <= 1.3 * figures["slots_allow_per_s"]


@pytest.mark.bench
def test_flights_on_a_standalone_cluster(tmp_path: Path) -> None:
    figures = measure_big_cluster(tmp_path, ROWS)
    print("\n" + json.dumps(figures, indent=1))
    assert figures["counted"] > 0.9 * figures["rows"] * (SINGLE_DAYS + BATCHED_DAYS) / 365


@pytest.mark.bench
@pytest.mark.parametrize("seconds", [20, 10, 5])
def test_five_thousand_tasks_at_once(seconds: int) -> None:
    """In a process of its own, for its memory."""
    command = [sys.executable, "-m", "support.bench_orchestration", "at_once", "5000", str(seconds)]
    repository = Path(__file__).parents[2]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(repository), str(repository / "tests")])}
    ended = subprocess.run(command, check=True, capture_output=True, text=True, env=environ)
    print("\n" + ended.stdout.splitlines()[-1])
