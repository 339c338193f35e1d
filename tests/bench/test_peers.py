"""Others' throughput beside ours, in one run; figures to print, no timed assertion.

    BFM_PEERS=/somewhere ./tests/run tests/bench/test_peers.py --bench -s

`BFM_PEERS` is a folder with a virtual environment for each peer that is to run (never one of this project's):

    python3 -m venv airflow && airflow/bin/pip install apache-airflow==3.3.2 psycopg2-binary asyncpg   # and PostgreSQL
    python3 -m venv dagster && dagster/bin/pip install dagster==1.13.27 dagster-graphql==1.13.27
    python3 -m venv sqlmesh && sqlmesh/bin/pip install sqlmesh==0.236.4

`BFM_PEERS_RUNS` is the numbers of runs, "60,200". One process measures them one after another.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import bench_peers as peers

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="reads the CPU of processes in /proc"),
    pytest.mark.bench,
]
RUNS = [int(runs) for runs in os.environ.get("BFM_PEERS_RUNS", "60,200").split(",")]
Figures = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def figures() -> Iterator[Figures]:
    """By what ran; printed at the end with the ratios."""
    found: Figures = {}
    yield found
    print("\n" + "\n".join(f"{name}: {json.dumps(measured)}" for name, measured in found.items()))
    for name, measured in found.items():
        whose, _, what = name.partition(", ")
        for mine, of_ours in found.items():
            if not whose.startswith("ours") and mine.startswith("ours") and mine.endswith(what):
                per_s = "days_per_s" if "days_per_s" in measured else "tasks_per_s"
                print(f"{mine} against {whose}: {of_ours[per_s] / measured[per_s]:.1f} times")


def python_of(peer: str) -> Path:
    folder = os.environ.get("BFM_PEERS")
    if folder is None:
        pytest.skip("BFM_PEERS, the folder of the peers' environments, isn't set")
    python = Path(folder) / peer / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{peer} isn't installed: there is no {python}")
    return python


def test_ours(tmp_path: Path, figures: Figures) -> None:
    with peers.ours(tmp_path / "ours") as manager:
        for runs in RUNS:
            for kind in ("processes", "reused_processes", "statements"):
                figures[f"ours in {kind.replace('_', ' ')}, {runs} chains"] = peers.ours_chain(manager, kind, runs)
        for year, batch in ((2021, "auto"), (2022, "30"), (2023, "365")):
            figures[f"ours in batches of {batch}, a model's year"] = peers.ours_model(manager, year, batch)


def test_airflow(tmp_path: Path, figures: Figures) -> None:
    python = python_of("airflow")
    if shutil.which("postgres") is None:
        pytest.skip("PostgreSQL isn't installed: there is no `postgres`")
    with (
        peers.Postgres().running() as database,
        peers.Airflow(python, tmp_path / "airflow", database).running() as airflow,
    ):
        for runs in RUNS:
            figures[f"Airflow, {runs} chains"] = airflow.chain(runs)


def test_dagster(tmp_path: Path, figures: Figures) -> None:
    with peers.Dagster(python_of("dagster"), tmp_path / "dagster").running() as dagster:
        figures[f"Dagster, {RUNS[0]} chains"] = dagster.chain(RUNS[0])  # a longer one takes a quarter of an hour


def test_sqlmesh(tmp_path: Path, figures: Figures) -> None:
    for batch in (1, 30, None):
        measured = peers.sqlmesh(python_of("sqlmesh"), tmp_path / str(batch), batch)
        figures[f"SQLMesh in batches of {batch or 365}, a model's year"] = measured
