"""The manager's own work, without Spark: task instances a second and their CPU, ticks beside stored history, light commands
on a large state. Figures to print, never a timed assertion. docs/performance.md has those of one machine.

    ./tests/run tests/bench/test_orchestration.py --bench -s

With BFM_BENCH_AGAINST, the folder of another revision's checkout, both are measured in turn, and the ratio is printed.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.bench_orchestration import throughput

REPOSITORY = Path(__file__).parents[2]
AGAINST = os.environ.get("BFM_BENCH_AGAINST")
STORED = (1_000, 100_000, 1_000_000)
REVISIONS = [REPOSITORY, *([Path(AGAINST)] if AGAINST else [])]
ROUNDS = int(os.environ.get("BFM_BENCH_ROUNDS", "5"))


def run(*args: str, package: Path = REPOSITORY) -> str:
    """What it prints."""
    path = os.pathsep.join([str(package), str(REPOSITORY / "tests")])
    # with compiled modules, as it is installed
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    ended = subprocess.run(
        [sys.executable, *args], env={**environ, "PYTHONPATH": path}, cwd=package, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def measured(package: Path, *args: str) -> dict[str, Any]:
    figures: dict[str, Any] = json.loads(
        run("-m", "support.bench_orchestration", *args, package=package).splitlines()[-1]
    )
    return figures


def shown(title: str, by_revision: list[list[dict[str, Any]]]) -> None:
    """Medians of each revision's rounds, and of the ratios of the rounds."""
    for figures, package in zip(by_revision, REVISIONS, strict=True):
        medians = {name: round(statistics.median(one[name] for one in figures), 3) for name in figures[0]}
        print(f"\n{title}, {package.name}: {medians}")
    if len(by_revision) > 1:
        now, before = by_revision
        names = [name for name in now[0] if name.endswith(("_s", "_ms"))]
        ratios = {name: [new[name] / old[name] for new, old in zip(now, before, strict=True)] for name in names}
        print(f"{title}, ratios: { {name: round(statistics.median(each), 2) for name, each in ratios.items()} }")


def test_the_bench_runs_every_task_it_counts() -> None:
    figures = throughput(3, 4, 2)
    assert figures["per_s"] > 0 and figures["ticks"] >= 2


@pytest.mark.bench
@pytest.mark.parametrize(("runs", "tasks", "slots"), [(20, 50, 16), (1000, 1, 16), (40, 50, 64), (2000, 1, 64)])
def test_task_instances_a_second(runs: int, tasks: int, slots: int) -> None:
    args = ("throughput", str(runs), str(tasks), str(slots))
    rounds = [[measured(package, *args) for package in REVISIONS] for _ in range(ROUNDS)]
    shown(f"{runs} runs of {tasks} tasks, {slots} slots", [list(each) for each in zip(*rounds, strict=True)])


@pytest.mark.bench
def test_ticks_beside_stored_task_instances(tmp_path: Path) -> None:
    figures = {stored: [list[dict[str, Any]]() for _ in REVISIONS] for stored in STORED}
    for number, package in enumerate(REVISIONS):
        for stored in STORED:
            measured(package, "make", str(tmp_path / f"{stored}-{number}"), str(stored))
    for _ in range(ROUNDS):
        for stored in STORED:
            for number, package in enumerate(REVISIONS):
                copy = tmp_path / "copy"
                shutil.copytree(tmp_path / f"{stored}-{number}", copy)
                figures[stored][number].append(measured(package, "ticks", str(copy)))
                shutil.rmtree(copy)
    for stored, by_revision in figures.items():
        shown(f"ticks beside {stored:,} stored task instances", by_revision)


@pytest.mark.bench
def test_light_commands_on_a_million_task_instances(tmp_path: Path) -> None:
    largest: dict[tuple[int, int], str] = {}
    for number, package in enumerate(REVISIONS):
        for stored in (STORED[0], STORED[-1]):
            largest[stored, number] = measured(package, "make", str(tmp_path / f"{stored}-{number}"), str(stored))[
                "largest"
            ]
    for stored in (STORED[0], STORED[-1]):
        for command in (["--version"], ["backfill", "list"], ["backfill", "show"]):
            figures = [list[dict[str, Any]]() for _ in REVISIONS]
            for _ in range(2 * ROUNDS):
                for number, package in enumerate(REVISIONS):
                    where = [] if command == ["--version"] else ["--state", str(tmp_path / f"{stored}-{number}")]
                    more = [largest[stored, number]] if command[-1] == "show" else []
                    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
                    run("-m", "backfill_manager", *where, *command, *more, package=package)
                    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
                    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
                    figures[number].append({"wall_s": wall, "cpu_s": cpu})
            shown(f"bfm {' '.join(command)}, {stored:,} stored task instances", figures)
