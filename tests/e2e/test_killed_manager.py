"""A real `kill -9` of a real manager, in the middle of a real backfill, more than once; a standby that takes over; and one that
serves its pages and is stopped."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import httpx
import pytest
from support.manager_process import TIMEOUT_S, kill, rows_of, wait_for

from backfill_manager.client import Client
from backfill_manager.clock import UTC, SystemClock
from backfill_manager.model import states as s
from backfill_manager.model.records import Backfill, DagRun, Manager, TaskInstance, TaskTry
from backfill_manager.requests import submit
from backfill_manager.schemas import kinds
from backfill_manager.schemas.commands import CreateBackfill
from backfill_manager.store import open_store
from backfill_manager.store.base import Condition, Store

DAYS = 9
DAG_FILE = """
from backfill_manager import dag, task


@dag(schedule="@daily", start_date="2024-01-01", end_date="2024-12-31", max_active_runs=4)
def steady():
    @task
    def replace(ctx):
        from pyspark.sql import functions as f
        one = ctx.spark.range(1).select(f.lit(ctx.interval.start).alias("at"), f.lit(ctx.run_id).alias("run"))
        ctx.write(one, "ROOT/replaced", time_column="at")

    @task
    def append(ctx):
        from pyspark.sql import functions as f
        one = ctx.spark.range(1).select(f.lit(ctx.interval.start).alias("at"), f.lit(ctx.run_id).alias("run"))
        ctx.write(one, "ROOT/appended", mode="append")

    replace() >> append()
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "steady.py").write_text(DAG_FILE.replace("ROOT", str(tmp_path)))
    conf = {
        "state": str(tmp_path / "state"),
        "warehouse": str(tmp_path / "warehouse"),
        "bundles": [{"name": "tests", "path": str(tmp_path / "bundle")}],
        "api": {"port": 0},
        "lease": {"seconds": 30},  # nobody waits for it: who is killed here is known to be gone
        "spark": {"master": "local[2]", "conf": {"spark.sql.shuffle.partitions": "1"}},
    }
    (tmp_path / "manager.yaml").write_text(json.dumps(conf))
    return tmp_path


def asked_for(root: Path, days: int = DAYS) -> Store:
    store = open_store(str(root / "state"))
    wait_for(store.exists)
    first = datetime(2024, 1, 1, tzinfo=UTC)
    ask = CreateBackfill(dag_id="steady", start_date=first, end_date=first + timedelta(days=days - 1))
    wait_for(lambda: store.count("dag", [])[()])
    payload = {"backfill_id": "b1", "ask": ask.to_payload()}
    submit.submit(store, SystemClock(), kinds.BACKFILL_CREATE, payload)
    return store


def done(store: Store) -> int:
    return store.count("dag_run", [], [Condition("state", "=", s.SUCCESS)])[()]


def test_killed_in_the_middle_and_started_again_each_interval_is_written_once(
    root: Path, managers: Callable[..., subprocess.Popen[bytes]]
) -> None:
    first = managers()
    store = asked_for(root)
    wait_for(lambda: done(store) >= 2)
    kill(first)
    assert done(store) < DAYS, "it was killed in the middle"
    second = managers()
    wait_for(lambda: done(store) >= 5)
    kill(second)
    last = managers("--until-idle")
    assert last.wait(TIMEOUT_S) == 0, (root / "manager2.log").read_text()

    assert store.read(Backfill)[0].state == s.SUCCESS, [ti.error for ti in store.read(TaskInstance) if ti.error]
    assert store.count("backfill_item", ["state"]) == {(s.SUCCESS,): DAYS}
    assert {ti.state for ti in store.read(TaskInstance)} == {s.SUCCESS}
    assert {ti.try_number for ti in store.read(TaskInstance)} == {1}, "a crash costs no try"
    assert "lost" in {t.state for t in store.read(TaskTry)}, "something was running when it was killed"
    runs = {run.run_id: run.interval_start for run in store.read(DagRun)}
    for table in ("replaced", "appended"):
        written = rows_of(root / table)
        assert Counter(at for at, _ in written) == Counter(runs.values()), table
        assert dict((run, at) for at, run in written) == runs


def test_a_standby_says_so_and_takes_over_from_a_killed_leader(
    root: Path, managers: Callable[..., subprocess.Popen[bytes]]
) -> None:
    leader = managers()
    store = asked_for(root, days=6)
    wait_for(lambda: done(store) >= 1)
    standby = managers("--until-idle")
    wait_for(lambda: b"standing by" in (root / "manager1.log").read_bytes())
    assert [row.pid for row in store.read(Manager)] == [leader.pid]
    kill(leader)
    assert standby.wait(TIMEOUT_S) == 0, (root / "manager1.log").read_text()
    assert [(row.term, row.pid) for row in store.read(Manager, order_by=["term"])] == [
        (1, leader.pid),
        (2, standby.pid),
    ]
    assert done(store) == 6


def test_a_manager_with_pages_is_asked_over_http_and_sigterm_drains_it(
    root: Path, managers: Callable[..., subprocess.Popen[bytes]]
) -> None:
    manager, log = managers("--with-ui"), root / "manager0.log"
    url = wait_for(lambda: re.search(r"The web pages are at (http://127\.0\.0\.1:(\d+))", log.read_text()))
    with (
        httpx.Client(base_url=url[1], timeout=TIMEOUT_S, trust_env=False, follow_redirects=True) as browser,
        Client(url[1]) as client,
    ):
        wait_for(lambda: list(client.dags()))
        assert browser.get("/api/v1/health").json()["manager"] == "leading"
        for page in ("/", "/manager"):
            assert (answer := browser.get(page)).status_code == 200, page
            assert "</html>" in answer.text, page

        submitted = client.create_backfill("steady", start_date="2024-06-01", end_date="2024-06-01", wait=60)
        submitted = wait_for(lambda: (found := client.request(submitted.request_id)).is_answered and found)
        assert (submitted.state, submitted.source) == ("accepted", "api")
        *_, last = client.watch(str(submitted.object_id))
        assert (last.state, last.planned, last.success) == (s.SUCCESS, 1, 1)

        store = asked_for(root, days=150)  # more than can be done before it is stopped
        wait_for(lambda: done(store) >= 2)
        with browser.stream("GET", "/api/v1/events") as listening:
            manager.send_signal(signal.SIGTERM)
            heard = list(listening.iter_lines())  # listeners are disconnected
        assert "event: changed" in heard
    assert manager.wait(TIMEOUT_S) == 0, log.read_text()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(url[2]))).close()
    assert store.lease().state == s.STOPPED  # type: ignore[union-attr]
    assert {ti.state for ti in store.read(TaskInstance)} <= {s.SUCCESS, s.NONE, s.SCHEDULED, s.UP_FOR_RETRY}
    assert done(store) < 1 + 150, "nothing new was begun"
