"""What commands take over an object store whose requests are on the way for long: figures to print, never a timed assertion.

Before and after in one run: `BFM_BENCH_BEFORE` names a checkout of another commit, whose commands take turns with this one's.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from support.recorded_state import recorded_state
from support.s3_server import BUCKET, s3_in_environ
from support.store_proxy import store_proxy

from backfill_manager.clock import SystemClock

COMMANDS = ("pools list", "backfill list", "dags list", "manager status")
LATENCIES_S = (0.0, 0.03, 0.5)
TURNS = 3


@pytest.mark.bench
@pytest.mark.parametrize("latency", LATENCIES_S)
def test_commands_that_read(latency: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded_state(tmp_path / "filled")
    conf = tmp_path / "manager.yaml"
    conf.write_text(json.dumps({"state": f"s3://{BUCKET}/state", "bundles": []}))
    before, clock = os.environ.get("BFM_BENCH_BEFORE"), SystemClock()
    trees = {"before": before, "after": str(Path(__file__).parents[2])} if before else {"after": ""}
    with s3_in_environ() as address, store_proxy(address) as proxy:
        for file in (tmp_path / "filled").rglob("*"):
            if file.is_file():
                place = f"{address}/{BUCKET}/state/{file.relative_to(tmp_path / 'filled')}"
                httpx.put(place, content=file.read_bytes()).raise_for_status()
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.address)
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
