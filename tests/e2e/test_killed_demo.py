"""`kill -9` of the demo's manager in the middle of its month, and of the demo itself; begun again, it ends with the same
tables as if nothing had happened, each interval once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
from support import flights_in_pandas as by_pandas

from backfill_manager.model import states as s
from backfill_manager.model.records import DagRun
from backfill_manager.store import Store, open_store
from backfill_manager.store.base import Condition

REPOSITORY = Path(__file__).parents[2]
TIMEOUT_S = 1200.0
DAYS = by_pandas.days_of(date(2013, 1, 1), date(2013, 1, 31))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="a killed demo takes its manager along by a means of Linux"),
]


def _demo(environ: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(REPOSITORY / "jobs" / "submit.py"), "demo"],
        env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip


def _when_done(store: Store, runs: int, kill: Callable[[], None], demo: subprocess.Popen[str]) -> str:
    """Kill as soon as so many runs have succeeded; what the demo said, once it is over."""
    moment = threading.Event()
    for _ in range(int(TIMEOUT_S / 0.1)):
        if store.exists() and len(store.read(DagRun, [Condition("state", "=", s.SUCCESS)])) >= runs:
            break
        assert demo.poll() is None, demo.communicate()[0]
        moment.wait(0.1)
    kill()
    result, _ = demo.communicate(timeout=TIMEOUT_S)
    return result


def test_a_demo_that_was_killed_twice_ends_with_the_same_tables_each_interval_once(tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("BFM_")}
    environ |= {"BFM_STATE": str(tmp_path / "state"), "BFM_WAREHOUSE": str(tmp_path / "warehouse")}
    store = open_store(environ["BFM_STATE"])

    def kill_manager() -> None:
        lease = store.lease()
        assert lease is not None
        os.kill(lease.pid, signal.SIGKILL)

    first = _demo(environ)
    result = _when_done(store, 3, kill_manager, first)
    assert first.returncode != 0 and "goes on with the rest" in result, result

    second = _demo(environ)
    _when_done(store, 9, second.kill, second)
    assert second.returncode == -signal.SIGKILL

    third = _demo(environ)
    result, _ = third.communicate(timeout=TIMEOUT_S)
    assert third.returncode == 0, result

    runs = store.read(DagRun, [Condition("state", "=", s.SUCCESS)], order_by=("logical_date",))
    assert sum(run.items for run in runs) == len(DAYS)
    assert [run.interval_end for run in runs[:-1]] == [run.interval_start for run in runs[1:]]
    for table in by_pandas.EXPECTED:
        by_pandas.check_table(tmp_path / "warehouse", table, DAYS)
