"""A leader stands still for longer than its lease (SIGSTOP, as a machine that sleeps), a standby leads meanwhile, and the former
leader wakes up."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.manager_process import TIMEOUT_S, wait_for
from support.process_tree import signal_all
from support.steady import Steady

from backfill_manager.model import states as s
from backfill_manager.model.records import Manager
from backfill_manager.store.base import Condition


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path


@pytest.mark.parametrize(
    ("days", "of_all"),
    [(5, True), pytest.param(24, True, marks=pytest.mark.slow), pytest.param(24, False, marks=pytest.mark.slow)],
    ids=["short", "all its processes", "the driver alone"],
)
def test_a_leader_that_wakes_up_too_late_ends_and_has_done_nothing_twice(
    days: int, of_all: bool, root: Path, managers: Callable[..., subprocess.Popen[bytes]]
) -> None:
    story = Steady(root, lease={"seconds": 8})
    leader = managers()
    story.begin(days)
    story.when_done(1)
    standby = managers()
    wait_for(lambda: "standing by" in story.log(1))
    if of_all:
        signal_all(leader, signal.SIGSTOP)
    else:
        leader.send_signal(signal.SIGSTOP)
    story.when_led_by(standby.pid)
    assert "lease ran out" in story.log(1), "its process is there, so the lease has to run out"
    works = [Condition("term", "=", 2), Condition("state", "in", (s.RUNNING, s.SUCCESS))]
    wait_for(lambda: story.store.count("task_try", [], works)[()])
    if of_all:
        signal_all(leader, signal.SIGCONT)
    else:
        leader.send_signal(signal.SIGCONT)
    assert leader.wait(TIMEOUT_S) == 1
    assert "stopping: the lease is lost" in story.log(0)
    story.end()
    assert [row.pid for row in story.store.read(Manager, order_by=["term"])] == [leader.pid, standby.pid]
    assert standby.poll() is None
