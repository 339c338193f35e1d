"""What commands take over an object store whose requests are on the way for long: figures to print, never a timed assertion.

Before and after in one run: `BFM_BENCH_BEFORE` names a checkout of another commit, whose commands take turns with this one's.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from support.recorded_state import recorded_state
from support.s3_server import BUCKET, s3_in_environ, upload
from support.store_proxy import StoreProxy, store_proxy

from backfill_manager.clock import SystemClock

PAGES = ("/backfills", "/dags", "/runs")
COMMANDS = ("pools list", "backfill list", "dags list", "manager status")
LATENCIES_S = (0.0, 0.03, 0.5)
TURNS = 3
SECONDS_BEFORE = 2.0  # that a server has before its first page


@pytest.fixture
def trees() -> dict[str, str]:
    """Checkouts that are compared."""
    before, here = os.environ.get("BFM_BENCH_BEFORE"), str(Path(__file__).parents[2])
    return {"before": before, "after": here} if before else {"after": here}


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    file = tmp_path / "manager.yaml"
    file.write_text(json.dumps({"state": f"s3://{BUCKET}/state", "bundles": []}))
    return file


@contextmanager
def state_behind_a_proxy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreProxy]:
    recorded_state(folder)
    with s3_in_environ() as address, store_proxy(address) as proxy:
        upload(folder, address, "state")
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.address)
        yield proxy


@pytest.mark.bench
@pytest.mark.parametrize("latency", LATENCIES_S)
@pytest.mark.parametrize("first", PAGES)
def test_first_pages_of_a_server(
    first: str, latency: float, conf: Path, trees: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one that has been there for some seconds, and the same page once more."""
    clock = SystemClock()
    with state_behind_a_proxy(tmp_path / "filled", monkeypatch) as proxy:
        took: dict[str, list[tuple[float, float]]] = {name: [] for name in trees}
        for _ in range(TURNS):
            for name, tree in trees.items():
                proxy.plan(latency_s=latency)
                command = [sys.executable, "-m", "backfill_manager", "--conf", str(conf), "serve", "--port", "0"]
                with subprocess.Popen(
                    command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": tree}, stderr=subprocess.PIPE, text=True
                ) as server:
                    assert server.stderr is not None
                    try:
                        address = next(
                            word for line in server.stderr for word in line.split() if word.startswith("http")
                        )
                        threading.Event().wait(SECONDS_BEFORE + 40 * latency)
                        times = []
                        for _ in range(2):
                            began = clock.monotonic()
                            httpx.get(f"{address}{first}", timeout=60).raise_for_status()
                            times.append(clock.monotonic() - began)
                        took[name].append((times[0], times[1]))
                    finally:
                        server.terminate()
        medians = {name: [statistics.median(of) for of in zip(*pairs, strict=True)] for name, pairs in took.items()}
        figures = (f"{name} {one:.2f} s, then {two:.2f} s" for name, (one, two) in medians.items())
        print(f"\n{latency * 1000:g} ms a request, {first}: {'; '.join(figures)}", end="")


@pytest.mark.bench
@pytest.mark.parametrize("latency", LATENCIES_S)
def test_commands_that_read(
    latency: float, conf: Path, trees: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SystemClock()
    with state_behind_a_proxy(tmp_path / "filled", monkeypatch) as proxy:
        for words in COMMANDS:
            took: dict[str, list[float]] = {name: [] for name in trees}
            requests: dict[str, int] = {}
            for _ in range(TURNS):
                for name, tree in trees.items():
                    proxy.plan(latency_s=latency)
                    began = clock.monotonic()
                    command = [sys.executable, "-m", "backfill_manager", "--conf", str(conf), *words.split()]
                    done = subprocess.run(
                        command,
                        capture_output=True,
                        check=False,
                        cwd=tmp_path,
                        env={**os.environ, "PYTHONPATH": str(tree)},
                    )
                    took[name].append(clock.monotonic() - began)
                    assert done.returncode in (0, 1), done.stderr  # 1: no manager leads
                    requests[name] = len(proxy.seen())
            figures = (f"{name} {statistics.median(took[name]):.2f} s, {requests[name]} requests" for name in trees)
            print(f"\n{latency * 1000:g} ms a request, bfm {words}: {'; '.join(figures)}", end="")
