"""One small `ctx.write` after another: figures to print, no timed assertion.

    ./tests/run tests/bench/test_small_writes.py --bench -s

With BFM_BENCH_AGAINST, the folder of another revision's checkout, both take turns, each in a Spark of its own.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads the CPU of processes in /proc")
REPOSITORY = Path(__file__).parents[2]
AGAINST = os.environ.get("BFM_BENCH_AGAINST")
REVISIONS = [REPOSITORY, *([Path(AGAINST)] if AGAINST else [])]
ROUNDS = int(os.environ.get("BFM_BENCH_ROUNDS", "3"))


class Worker:
    """Measures one revision."""

    def __init__(self, package: Path, *args: int) -> None:
        path = os.pathsep.join([str(package), str(REPOSITORY / "tests")])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.bench_small_writes", *map(str, args)], env={**os.environ, "PYTHONPATH": path},
            cwd=package, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def measure(self) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        figures: dict[str, Any] = json.loads(self._process.stdout.readline())
        return figures

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


@pytest.mark.bench
@pytest.mark.parametrize("table_days", [10, 200])
def test_small_writes_one_after_another(table_days: int) -> None:
    with ExitStack() as stack:
        workers = [stack.enter_context(Worker(package, table_days, 15)) for package in REVISIONS]
        for worker in workers:
            worker.measure()  # the JVM compiles the code
        rounds = [[worker.measure() for worker in workers] for _ in range(ROUNDS)]
    for package, figures in zip(REVISIONS, zip(*rounds, strict=True), strict=True):
        print(f"\n{package.name}: {json.dumps(figures[-1], indent=1)}")
        medians = {name: statistics.median(one[name] for one in figures) for name in ("write_s", "try_s", "jobs")}
        print(f"{package.name}, medians: {medians}")
    if len(REVISIONS) > 1:
        for name in ("write_s", "try_s", "jobs", "py4j_calls"):
            print(f"ratio of {name}: {statistics.median(now[name] / before[name] for now, before in rounds):.2f}")
