"""Runs `bfm serve` as a process, sends requests to it at a fixed rate, and measures its memory."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

BUSY_LEADER = Path(__file__).with_name("committing_leader.py")


@dataclass(frozen=True)
class Served:
    url: str
    pid: int
    started_at: float  # perf_counter

    def rss_mb(self) -> float:
        """Resident memory of the server, in megabytes (Linux: from /proc; elsewhere from ps)."""
        status = Path(f"/proc/{self.pid}/status")
        if status.exists():
            [kilobytes] = re.findall(r"VmRSS:\s+(\d+) kB", status.read_text())
        else:
            kilobytes = subprocess.check_output(["ps", "-o", "rss=", "-p", str(self.pid)], text=True)
        return int(kilobytes) * 1024 / 1e6

    def cpu_s(self) -> float:
        """Processor time that the server has used so far (Linux; elsewhere 0): what other load on the machine leaves as
        it is."""
        stat = Path(f"/proc/{self.pid}/stat")
        if not stat.exists():
            return 0.0
        user, system = stat.read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@contextmanager
def served(state: Path) -> Iterator[Served]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("BFM_")}
    environ["BFM_API__REQUESTS_PER_SECOND"] = "1000000"
    begun = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "backfill_manager", "--state", str(state), "serve", "--port", "0"],
        stderr=subprocess.PIPE, text=True, cwd=state.parent, env=environ,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        result = process.stderr.readline()
        found = re.search(r"http://\S+", result)
        assert found, result
        yield Served(found.group().rstrip("/"), process.pid, begun)
    finally:
        process.terminate()
        process.communicate(timeout=30)


@contextmanager
def led(state: Path, backfill_id: str) -> Iterator[None]:
    """A leader that commits a tick every second."""
    process = subprocess.Popen(
        [sys.executable, str(BUSY_LEADER), str(state), backfill_id], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "leading\n"
        yield
        assert process.poll() is None, "the leader has ended before the measuring did"
    finally:
        process.communicate(timeout=60)


def at_a_pace(url: str, paths: Sequence[str], per_second: float) -> dict[str, list[float]]:
    """Each path once, so many begun a second whether or not the ones before are answered. Path without its query ->
    milliseconds from the moment at which it was due, so that waiting in a queue counts."""
    return asyncio.run(_at_a_pace(url, paths, per_second))


async def _at_a_pace(url: str, paths: Sequence[str], per_second: float) -> dict[str, list[float]]:
    took: dict[str, list[float]] = {}
    async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as client:
        begin = time.perf_counter() + 0.1

        async def send(n: int, path: str) -> None:
            due = begin + n / per_second
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            answer = await client.get(path)
            assert answer.status_code == 200, (path, answer.status_code, answer.text[:300])
            took.setdefault(kind_of(path), []).append((time.perf_counter() - due) * 1000)

        await asyncio.gather(*(send(n, path) for n, path in enumerate(paths)))
    return took


def as_fast_as_it_goes(url: str, paths: Sequence[str], at_once: int = 4) -> float:
    """Seconds that it took."""
    return asyncio.run(_as_fast_as_it_goes(url, iter(paths), at_once))


async def _as_fast_as_it_goes(url: str, paths: Iterator[str], at_once: int) -> float:
    begun = time.perf_counter()
    async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as client:

        async def work() -> None:
            for path in paths:
                answer = await client.get(path)
                assert answer.status_code == 200, (path, answer.status_code, answer.text[:300])

        await asyncio.gather(*(work() for _ in range(at_once)))
    return time.perf_counter() - begun


def kind_of(path: str) -> str:
    """`/api/v1/backfills/0a1b/items?limit=100` -> `/api/v1/backfills/{id}/items`"""
    return re.sub(r"(?<=/backfills/)[0-9a-f]{12}", "{id}", path.partition("?")[0])


def percentiles(took: Mapping[str, Sequence[float]]) -> dict[str, dict[str, float]]:
    """p50, p95 and the longest, in milliseconds, of each kind and of all."""
    everything = {**took, "all": [one for many in took.values() for one in many]}
    return {
        kind: {
            "n": len(many),
            "p50_ms": round(_percentile(many, 0.50), 1),
            "p95_ms": round(_percentile(many, 0.95), 1),
            "longest_ms": round(max(many), 1),
        }
        for kind, many in sorted(everything.items())
    }


def _percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]
