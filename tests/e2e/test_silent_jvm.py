"""Real managers whose JVM is there and says nothing, as in a collection of garbage without an end (it is stopped by SIGSTOP); and
whose queries wait for each other for ever."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.manager_process import TIMEOUT_S, ended, kill, wait_for
from support.spark_losses import DAYS, Start, backfill, folder_of_manager, jvm_of, last_line, lease, ready

from backfill_manager.clock import SystemClock
from backfill_manager.model import states as s
from backfill_manager.model.records import TaskTry
from backfill_manager.process_info import is_process_alive
from backfill_manager.store.base import Condition

if TYPE_CHECKING:
    from backfill_manager.store.base import Store

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the JVM of a manager is found in /proc")

# `bfm manager start` of a manager with other time limits.
IN_A_HURRY = """
import sys
from backfill_manager.cli import main
from backfill_manager.manager.services import exit_watchdog, query_monitor, spark_monitor
spark_monitor.REPORT_SILENCE_S, spark_monitor.MAX_SILENCE_S, exit_watchdog.EXIT_TIMEOUT_S = map(float, sys.argv[1:4])
query_monitor.QUERIES_INTERVAL_S, query_monitor.MAX_STANDSTILL_S = 1.0, 5.0
sys.exit(main(["--conf", "manager.yaml", *(sys.argv[4:] or ["manager", "start"])]))
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return folder_of_manager(tmp_path)


@pytest.fixture
def in_a_hurry(root: Path) -> Iterator[Start]:
    """Starts a manager, or the command that follows, with (seconds of silence that are reported, that are the end, of its own
    end)."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*seconds: str) -> subprocess.Popen[bytes]:
        with (root / f"hurried{len(started)}.log").open("wb") as log:
            command = [sys.executable, "-c", IN_A_HURRY, *seconds]
            started.append(
                subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, cwd=root)
            )
        return started[-1]

    yield start
    for process in started:
        kill(process)


def with_work(root: Path) -> Store:
    """The state, when three tries run that have used Spark."""
    store = ready(root)
    backfill(store, "held", DAYS)
    wait_for(lambda: len(list(root.glob("*.has_written"))) == 3)
    return store


def test_a_jvm_that_stays_silent_is_killed_and_the_next_manager_does_the_work(
    root: Path, in_a_hurry: Start, managers: Start
) -> None:
    leader = in_a_hurry("1", "4", "300")
    store = with_work(root)
    jvm = jvm_of(leader)
    os.kill(jvm, signal.SIGSTOP)
    assert leader.wait(TIMEOUT_S) == 1
    log = (root / "hurried0.log").read_text()
    assert "Spark's JVM does not answer; no task that uses Spark can go on" in log and f"pid={jvm}" in log
    assert last_line(root / "hurried0.log").startswith("Spark is gone: its JVM has not answered for 4"), log
    assert f"and was killed (pid {jvm})" in log and "Traceback" not in log
    assert not is_process_alive(jvm) and lease(store) == (1, s.STOPPED)
    (root / "go on").touch()
    managers()
    assert ended(store, "held").state == s.SUCCESS
    lost = store.read(TaskTry, [Condition("state", "=", "lost")])
    assert len(lost) == 3 and all("has not answered" in (it.error or "") for it in lost), "each counts as a loss"


def test_a_jvm_that_was_silent_for_a_while_costs_neither_the_lease_nor_a_try(root: Path, in_a_hurry: Start) -> None:
    conf = json.loads((root / "manager.yaml").read_text())
    (root / "manager.yaml").write_text(json.dumps(conf | {"lease": {"seconds": 6}}))
    leader = in_a_hurry("1", "300", "300")
    store = with_work(root)
    jvm, log = jvm_of(leader), root / "hurried0.log"
    os.kill(jvm, signal.SIGSTOP)
    silent_since = SystemClock().now()
    wait_for(lambda: "JVM does not answer" in log.read_text())
    wait_for(lambda: (row := store.lease()) and row.heartbeat_at - silent_since > timedelta(seconds=6))
    os.kill(jvm, signal.SIGCONT)
    wait_for(lambda: "JVM answers again" in log.read_text())
    (root / "go on").touch()
    assert ended(store, "held").state == s.SUCCESS
    assert {it.state for it in store.read(TaskTry)} == {s.SUCCESS}


def test_a_manager_that_can_not_end_is_ended(root: Path, in_a_hurry: Start) -> None:
    leader = in_a_hurry("300", "300", "3")
    with_work(root)
    jvm = jvm_of(leader)
    os.kill(jvm, signal.SIGSTOP)
    leader.send_signal(signal.SIGTERM)
    assert leader.wait(TIMEOUT_S) == 1
    log = (root / "hurried0.log").read_text()
    assert 'event="it was to end and has not; this process exits now"' in log and "Thread 0x" in log


NESTED = """
from backfill_manager import dag, sql

INNER = "SELECT avg(id) FROM range(8) WHERE id > (SELECT max(id) / 2 FROM range(4))"


@dag(schedule="@daily", start_date="2024-01-01", end_date="2024-12-31")
def nested():
    sql("query", f"SELECT sum(id) AS total FROM range(10) WHERE id > ({INNER})")
"""


def test_queries_that_wait_for_each_other_end_the_manager_and_one_with_more_threads_does_the_work(
    root: Path, in_a_hurry: Start, managers: Start
) -> None:
    """With one thread for subqueries a subquery waits for the subquery in it, which waits for the thread."""
    (root / "bundle" / "nested.py").write_text(NESTED)
    text = (root / "manager.yaml").read_text()
    conf = json.loads(text)
    # The tests' Spark does not adapt plans; Spark does by itself, and runs subqueries otherwise then.
    conf["spark"]["conf"] |= {"spark.sql.subquery.maxThreadThreshold": "1", "spark.sql.adaptive.enabled": "true"}
    (root / "manager.yaml").write_text(json.dumps(conf))
    leader = in_a_hurry("300", "300", "300")
    store = ready(root, dags=7)
    backfill(store, "nested", 1)
    assert leader.wait(TIMEOUT_S) == 1
    line = last_line(root / "hurried0.log")
    assert line.startswith(
        "Spark is gone: its queries wait for each other: all 1 threads of spark.sql.subquery.maxThread"
    ), line
    (root / "manager.yaml").write_text(text)
    managers()
    assert ended(store, "nested").state == s.SUCCESS
    assert [it.state for it in store.read(TaskTry, order_by=["launch"])] == ["lost", s.SUCCESS]


def test_a_dags_test_whose_jvm_stays_silent_ends_and_says_so(root: Path, in_a_hurry: Start) -> None:
    process = in_a_hurry("1", "4", "300", "dags", "test", "held", "--logical-date", "2024-01-01T00:00:00Z")
    wait_for(lambda: list(root.glob("*.has_written")))
    os.kill(jvm_of(process), signal.SIGSTOP)
    assert process.wait(TIMEOUT_S) == 1
    assert "Spark is gone: its JVM has not answered for 4" in (root / "hurried0.log").read_text()
