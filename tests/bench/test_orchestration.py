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
from support.large_state import write_big_state

REPOSITORY = Path(__file__).parents[2]
AGAINST = os.environ.get("BFM_BENCH_AGAINST")
REVISIONS = [REPOSITORY, *([Path(AGAINST)] if AGAINST else [])]
ROUNDS = int(os.environ.get("BFM_BENCH_ROUNDS", "5"))


def run(*args: str, package: Path = REPOSITORY) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(package), str(REPOSITORY / "tests")])
    environ = {
        name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
    }  # as it is installed
    return subprocess.run(
        [sys.executable, *args], env={**environ, "PYTHONPATH": path}, cwd=package, capture_output=True, text=True, check=True
    )  # fmt: skip


def measured(package: Path, *args: str) -> dict[str, Any]:
    figures: dict[str, Any] = json.loads(
        run("-m", "support.bench_orchestration", *args, package=package).stdout.splitlines()[-1]
    )
    return figures


def shown(title: str, by_revision: list[list[dict[str, Any]]]) -> None:
    """Medians of each revision's rounds, and of the ratios of the rounds."""
    for figures, package in zip(by_revision, REVISIONS, strict=True):
        medians = {name: statistics.median(one[name] for one in figures) for name in figures[0]}
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
    for stored in (1_000, 100_000, 1_000_000):
        items = max(100, stored // 10)
        write_big_state(
            tmp_path / str(stored), task_instances=stored, items=items, backfills=max(4, min(100, items // 50))
        )
    figures: dict[int, list[list[dict[str, Any]]]] = {}
    for _ in range(ROUNDS):
        for stored in (1_000, 100_000, 1_000_000):
            for number, package in enumerate(REVISIONS):
                copy = tmp_path / "copy"
                shutil.copytree(tmp_path / str(stored), copy)
                lists = figures.setdefault(stored, [[] for _ in REVISIONS])
                lists[number].append(measured(package, "ticks", str(copy)))
                shutil.rmtree(copy)
    for stored, lists in figures.items():
        shown(f"ticks beside {stored:,} stored task instances", lists)


@pytest.mark.bench
def test_light_commands_on_a_million_task_instances(tmp_path: Path) -> None:
    states = {
        stored: write_big_state(
            tmp_path / str(stored), task_instances=stored, items=max(100, stored // 10), backfills=100
        )
        for stored in (1_000, 1_000_000)
    }
    for stored, state in states.items():
        for command in (["--version"], ["backfill", "list"], ["backfill", "show", state.largest]):
            walls, cpus = [], []
            for _ in range(2 * ROUNDS):
                before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
                where = [] if command == ["--version"] else ["--state", str(state.root)]
                run("-m", "backfill_manager", *where, *command)
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                walls.append(time.perf_counter() - began)
                cpus.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
            wall, cpu = statistics.median(walls), statistics.median(cpus)
            print(
                f"\n{stored:,} stored, bfm {' '.join(command[:2])}: {wall:.2f} s, {cpu:.2f} s of CPU, least {min(cpus):.2f}"
            )
