"""Does the manager answer as fast while it parses a large bundle? Round trips of small requests, beside an idle manager's."""

from __future__ import annotations

import statistics
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from backfill_manager.clock import SystemClock
from backfill_manager.manager.manager import run_manager
from backfill_manager.requests import submit
from backfill_manager.schemas import request_kinds
from backfill_manager.settings import BundleSettings, Settings
from backfill_manager.store import open_store
from backfill_manager.store.base import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES = 2000
DAG = "from backfill_manager import dag, sql\n@dag('d{n}', schedule='@daily')\ndef d():\n    sql('s', 'SELECT {n}')\n"


def round_trips(store: Store, until: threading.Event | None, n: int) -> list[float]:
    """Seconds from asking to the answer, one request after another."""
    clock, found = SystemClock(), list[float]()
    while len(found) < n and not (until and until.is_set()):
        began = clock.monotonic()
        submitted = submit.submit(store, clock, request_kinds.DAG_PAUSE, {"dag_id": "small"})
        assert submit.wait_for_response(store, clock, submitted.request_id, 60.0) is not None
        found.append(clock.monotonic() - began)
    return found


@pytest.mark.bench
def test_parsing_does_not_slow_the_ticks(tmp_path: Path, spark: SparkSession) -> None:
    for name in ("small", "large"):
        (tmp_path / name).mkdir()
    (tmp_path / "small" / "small.py").write_text(DAG.replace("d{n}", "small").replace("{n}", "1"))
    for n in range(FILES):
        (tmp_path / "large" / f"f{n:05}.py").write_text(DAG.format(n=n))
    settings = Settings(
        state=str(tmp_path / "state"),
        bundles=[
            BundleSettings(name="small", path=str(tmp_path / "small")),
            BundleSettings(name="large", path=str(tmp_path / "large"), parser="event"),
        ],
    )
    ready, stop, parsed = threading.Event(), threading.Event(), threading.Event()
    manager = threading.Thread(
        target=run_manager, args=(settings,), kwargs={"state": settings.state, "ready": ready, "stop": stop, "spark": spark}
    )  # fmt: skip
    manager.start()
    clock = SystemClock()
    try:
        assert ready.wait(60)
        store = open_store(settings.state)
        round_trips(store, None, 10)
        idle = round_trips(store, None, 50)
        began = clock.monotonic()
        payload = {"bundle": "large", "subpath": "", "dry_run": False, "deactivate_removed": False}
        submitted = submit.submit(store, clock, request_kinds.BUNDLE_PARSE, payload)

        def wait() -> None:
            assert submit.wait_for_response(open_store(settings.state), clock, submitted.request_id, 300.0) is not None
            parsed.set()

        waiter = threading.Thread(target=wait)
        waiter.start()
        busy = round_trips(store, parsed, 100_000)
        waiter.join()
        took = clock.monotonic() - began
    finally:
        stop.set()
        manager.join()
    for name, found in (("idle", idle), ("parsing", busy)):
        p95 = statistics.quantiles(found, n=20)[-1]
        print(
            f"\n{name}: {len(found)} requests, median {statistics.median(found) * 1000:.0f} ms, p95 {p95 * 1000:.0f} ms,"
            f" longest {max(found) * 1000:.0f} ms"
        )
    print(f"{FILES} files parsed and stored in {took:.1f} s")
    assert parsed.is_set()
