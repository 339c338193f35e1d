"""A manager that lives long holds no more than one that has just begun; see `support/long_life.py` and `support/real_life.py`."""

from __future__ import annotations

import faulthandler
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def lived(program: str, length: int, dags: int) -> list[dict[str, Any]]:
    faulthandler.cancel_dump_traceback_later()  # pytest's limit for a test is shorter than the long ones take
    command = [sys.executable, "-m", f"support.{program}", str(length), str(dags)]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False, env={**os.environ}
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.mark.parametrize(("days", "dags", "files"), [(2, 5, 2.0), pytest.param(7, 200, 1.25, marks=pytest.mark.slow)])
def test_what_a_manager_holds_does_not_grow_with_its_days(days: int, dags: int, files: float) -> None:
    """`files` may grow in the second half; the compactions of two days have not come to rest yet."""
    reports = lived("long_life", days, dags)
    print(*map(json.dumps, reports), sep="\n")
    assert reports[-1]["runs"] == {"success": dags * (days * 24 - 1)}, "each DAG every hour, from the first whole one"
    half = len(reports) // 2
    for name, growth in {"rss_mb": 1.25, "objects": 1.1, "descriptors": 1.25, "files": files}.items():
        earlier, later = (max(report[name] for report in part) for part in (reports[1:half], reports[half:]))
        assert later <= earlier * growth, (name, reports)
    assert {report["threads"] for report in reports} == {1}
    assert max(report["native_threads"] for report in reports) < 600, "delta-rs has up to 512, and ends those that idle"


@pytest.mark.slow
def test_what_a_manager_with_spark_holds_does_not_grow_in_two_hours() -> None:
    """What has ended is kept for one hour, so its second half hour is compared with the last one."""
    reports = lived("real_life", 120, 5)
    print(*map(json.dumps, reports), sep="\n")
    assert set(reports[-1]["runs"]) <= {"success", "running", "queued", "overridden"}
    assert set(reports[-1]["pages"]) == {"200"}
    quarter = len(reports) // 4
    earlier, later = reports[quarter : 2 * quarter], reports[-quarter:]

    def most(part: list[dict[str, Any]], *names: str) -> float:
        values: list[Any] = part
        for name in names:
            values = [value[name] for value in values]
        return float(max(values))

    for names, growth in {
        ("manager", "rss_mb"): 1.25, ("manager", "threads"): 1.25, ("manager", "descriptors"): 1.25,
        ("jvm", "rss_mb"): 1.25, ("jvm", "threads"): 1.25, ("jvm", "descriptors"): 1.25, ("heap_mb",): 1.5,
        ("processes",): 1.5, ("files", "state"): 1.5, ("files", "snapshots"): 2.5,
    }.items():  # fmt: skip
        assert most(later, *names) <= most(earlier, *names) * growth, (names, reports)
