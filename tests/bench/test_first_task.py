"""From a request to the start of its first task; figures to print, no timed assertion.

./tests/run tests/bench/test_first_task.py --bench -s
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from support.bench_first_task import measure_first_task

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads the CPU of processes in /proc")


@pytest.mark.bench
def test_from_the_request_to_the_first_task(tmp_path: Path) -> None:
    print("\n" + json.dumps(measure_first_task(tmp_path, 12), indent=2))
