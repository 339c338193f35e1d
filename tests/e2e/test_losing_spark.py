"""Real managers that lose their Spark, and real tasks that end their process or the JVM: what is left goes on, once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
from support.manager_process import TIMEOUT_S, ended, rows_of, wait_for
from support.spark_losses import (
    DAYS,
    FIRST,
    Start,
    ask_for,
    backfill,
    folder_of_manager,
    jvm_of,
    last_line,
    lease,
    ready,
)

from backfill_manager.clock import SystemClock
from backfill_manager.model import states as s
from backfill_manager.model.records import Backfill, Manager, Request, Response, TaskInstance, TaskTry
from backfill_manager.process_info import is_process_alive
from backfill_manager.requests import submit
from backfill_manager.schemas import request_kinds
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.store.base import Condition, Store

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the JVM of a manager is found in /proc")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return folder_of_manager(tmp_path)


def kill_jvm_of(manager: subprocess.Popen[bytes]) -> int:
    pid = jvm_of(manager)
    os.kill(pid, signal.SIGKILL)
    return pid


def status(root: Path) -> int:
    command = [sys.executable, "-m", "backfill_manager", "--conf", str(root / "manager.yaml"), "manager", "status"]
    return subprocess.run(command, capture_output=True, check=False).returncode


def test_a_manager_whose_jvm_is_killed_hands_over_at_once_and_what_was_asked_is_answered_by_the_next(
    root: Path, managers: Start
) -> None:
    leader = managers()
    store = ready(root)
    backfill(store, "held", DAYS)
    wait_for(lambda: len(list(root.glob("*.has_written"))) == 3)
    standby = managers("--until-idle")
    wait_for(lambda: b"standing by" in (root / "manager1.log").read_bytes())

    # It wakes without Spark, and finds a request that needs Spark for its answer.
    os.kill(leader.pid, signal.SIGSTOP)
    jvm = kill_jvm_of(leader)
    submitted = [ask_for(store, "steady", 2), backfill_dry_run(store)]
    os.kill(leader.pid, signal.SIGCONT)
    assert leader.wait(TIMEOUT_S) == 1
    result = last_line(root / "manager0.log")
    assert result.startswith(f"Spark is gone: its JVM (pid {jvm}) has ended with SIGKILL. This manager has ended"), (
        result
    )
    assert "start again under the next leader" in result and "Traceback" not in (root / "manager0.log").read_text()

    (root / "go on").touch()
    assert standby.wait(TIMEOUT_S) == 0, (root / "manager1.log").read_text()
    terms = store.read(Manager, order_by=["term"])
    assert [(row.term, row.pid, row.state) for row in terms] == [
        (1, leader.pid, s.STOPPED),
        (2, standby.pid, s.STOPPED),
    ]
    answers = store.read(Response, [Condition("request_id", "in", submitted)])
    assert [(row.outcome, row.term) for row in answers] == [("accepted", 2)] * 2, (
        "neither refused nor answered by the first"
    )
    assert {row.backfill_id: row.state for row in store.read(Backfill)} == {"held": s.SUCCESS, "steady": s.SUCCESS}
    for dag_id, days in (("held", DAYS), ("steady", 2)):
        written = Counter(at for at, _ in rows_of(root / dag_id))
        assert written == {FIRST + timedelta(days=n): 1 for n in range(days)}, "each interval once"
    tries = store.read(TaskTry, [Condition("dag_id", "=", "held")])
    assert Counter((it.state, it.term) for it in tries) == {("lost", 1): 3, (s.SUCCESS, 2): DAYS}
    lost = {it.error for it in tries if it.state == "lost"}
    assert lost == {f"Spark went away while it ran: its JVM (pid {jvm}) has ended with SIGKILL"}, "each is counted"
    assert {ti.try_number for ti in store.read(TaskInstance)} == {1}, "it costs no try"
    assert not any(ti.losses for ti in store.read(TaskInstance)), "who succeeds has lost nothing"


def backfill_dry_run(store: Store) -> str:
    ask = CreateBackfill(dag_id="steady", start_date=FIRST, end_date=FIRST)
    payload = {"backfill_id": "dry", "ask": ask.to_payload()}
    return submit.submit(store, SystemClock(), request_kinds.BACKFILL_DRY_RUN, payload).request_id


def supervised(
    start: Start, manager: subprocess.Popen[bytes], store: Store, dag_ids: list[str]
) -> tuple[list[int], subprocess.Popen[bytes]]:
    """Start a manager when one has ended, as a supervisor would, until these backfills have ended: the exit codes, and the
    manager that lives."""
    where = [Condition("backfill_id", "in", dag_ids), Condition("state", "in", sorted(s.BACKFILL_FINISHED))]
    started = [manager]

    def is_settled() -> bool:
        return started[-1].poll() is not None or store.count("backfill", [], where)[()] == len(dag_ids)

    while wait_for(is_settled) and started[-1].poll() is not None:
        started.append(start())
    *gone, living = started
    return [one.returncode for one in gone], living


def test_a_task_that_ends_its_process_fails_and_the_manager_and_all_others_go_on(root: Path, managers: Start) -> None:
    """And then, with nothing running: the JVM is killed."""
    manager = managers()
    store = ready(root)
    days = {"ends_the_process": 1, "stops_spark": 1, "steady": DAYS}
    for dag_id, n in days.items():
        backfill(store, dag_id, n)
    assert {dag_id: ended(store, dag_id).state for dag_id in days} == {
        "ends_the_process": s.FAILED, "stops_spark": s.FAILED, "steady": s.SUCCESS,
    }  # fmt: skip
    (culprit,) = store.read(TaskInstance, [Condition("dag_id", "=", "ends_the_process")])
    assert culprit.error == "its process ended with exit code 7 before the task had"
    assert (culprit.launch, culprit.failures, culprit.losses) == (2, 2, None), "it costs tries as any failure does"
    (refused,) = store.read(TaskInstance, [Condition("dag_id", "=", "stops_spark")])
    assert refused.error is not None and "A task must not stop Spark" in refused.error
    assert refused.failures == 1, "it is not tried again"
    assert {it.state for it in store.read(TaskTry, [Condition("dag_id", "=", "steady")])} == {s.SUCCESS}
    assert Counter(at for at, _ in rows_of(root / "steady")).most_common(1)[0][1] == 1, "each interval once"

    assert manager.poll() is None and status(root) == 0
    kill_jvm_of(manager)
    assert manager.wait(TIMEOUT_S) == 1, "nothing ran that could have failed of it"
    assert last_line(root / "manager0.log").startswith("Spark is gone: its JVM")
    assert lease(store) == (1, s.STOPPED) and status(root) == 1


@pytest.mark.parametrize("culprit", ["halts_the_jvm", pytest.param("collects_more_than_fits", marks=pytest.mark.slow)])
def test_the_task_under_which_the_jvm_ends_three_times_fails_and_all_others_succeed(
    culprit: str, root: Path, managers: Start
) -> None:
    """Each time with others beside it, until it runs alone; a supervisor starts the manager again."""
    conf = json.loads((root / "manager.yaml").read_text())
    conf["spark"]["conf"] |= {
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": "-XX:+ExitOnOutOfMemoryError",  # else each thread of the JVM has a chance to go on
    }
    (root / "manager.yaml").write_text(json.dumps(conf))
    (root / "beside").touch()

    def restart() -> subprocess.Popen[bytes]:
        if (root / "start.2").exists():
            (root / "go on").touch()  # `held` is not held up once it is a suspect, too
        return managers()

    first = managers()
    store = ready(root)
    dag_ids = [backfill(store, "held", DAYS), backfill(store, culprit, 1), backfill(store, "steady", DAYS)]
    codes, manager = supervised(restart, first, store, dag_ids)
    assert codes == [1, 1, 1], "it hands over each time"
    assert {row.backfill_id: row.state for row in store.read(Backfill)} == {
        culprit: s.FAILED, "held": s.SUCCESS, "steady": s.SUCCESS,
    }  # fmt: skip
    (ti,) = store.read(TaskInstance, [Condition("dag_id", "=", culprit)])
    assert (ti.state, ti.launch, ti.losses, ti.failures) == (s.FAILED, 3, 3, 1)
    assert ti.error is not None and "ended 3 times in a row while this task ran" in ti.error, ti.error
    tries = store.read(TaskTry, [Condition("dag_id", "=", culprit)], order_by=["launch"])
    assert [it.state for it in tries] == ["lost", "lost", s.FAILED]
    assert tries[0].error is not None and "has ended with exit code 3" in tries[0].error
    beside = store.read(TaskTry, [Condition("dag_id", "=", "held"), Condition("state", "=", "lost")])
    assert Counter(it.term for it in beside) == {1: 3, 2: 3}, "in its third try it is alone"
    for dag_id in ("held", "steady"):
        written = Counter(at for at, _ in rows_of(root / dag_id))
        assert written == {FIRST + timedelta(days=n): 1 for n in range(DAYS)}, "each interval once"
    manager.send_signal(signal.SIGTERM)
    assert manager.wait(TIMEOUT_S) == 0


def test_a_dags_test_whose_spark_goes_away_ends_and_says_so(root: Path) -> None:
    command = [sys.executable, "-m", "backfill_manager", "--conf", str(root / "manager.yaml"), "dags", "test"]
    command += ["halts_the_jvm", "--logical-date", "2024-01-01T00:00:00Z"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    assert done.returncode == 1, done.stderr
    assert "Spark is gone: its JVM" in done.stderr and "Traceback" not in done.stderr


def test_a_stop_of_the_whole_process_group_is_a_stop_and_no_loss(root: Path, managers: Start) -> None:
    """As systemd does it: the JVM is stopped in the same moment."""
    manager = managers()
    store = ready(root)
    backfill(store, "held", 1)
    wait_for(lambda: list(root.glob("*.has_written")))
    jvm = jvm_of(manager)
    os.killpg(manager.pid, signal.SIGTERM)
    assert manager.wait(TIMEOUT_S) == 0, (root / "manager0.log").read_text()
    assert not is_process_alive(jvm) and lease(store) == (1, s.STOPPED)
    (ti,) = store.read(TaskInstance)
    assert ti.state in (s.UP_FOR_RETRY, s.SCHEDULED) and ti.losses is None, "put back, to start again at once"
    assert not store.read(Request, [Condition("kind", "=", request_kinds.MANAGER_STOP)])
