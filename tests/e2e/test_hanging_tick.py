"""A real manager whose tick waits for something that never comes: a pipe that nobody writes to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.manager_process import TIMEOUT_S, ended, kill, wait_for
from support.spark_losses import DAYS, Start, backfill, folder_of_manager, ready

from backfill_manager.model import states as s

# `bfm manager start` of a manager with other time limits, whose ticks read the pipe if it is there.
HANGS = """
import os, sys
from backfill_manager.cli import main
from backfill_manager.manager import tick
from backfill_manager.manager.services import exit_watchdog, long_passes

at_once = tick.TickLoop.tick


def reads_a_pipe(loop):
    if os.path.exists("pipe"):
        open("pipe").read()
    return at_once(loop)


tick.TickLoop.tick = reads_a_pipe
tick.LONG_TICK_S, tick.MAX_TICK_S, long_passes.INTERVAL_S, exit_watchdog.EXIT_TIMEOUT_S = 1.0, 8.0, 1.0, 2.0
sys.exit(main(["--conf", "manager.yaml", "manager", "start"]))
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = folder_of_manager(tmp_path)
    conf = json.loads((root / "manager.yaml").read_text())
    (root / "manager.yaml").write_text(json.dumps(conf | {"lease": {"seconds": 6}}))
    return root


def test_a_manager_whose_tick_hangs_exits_and_the_next_one_goes_on(root: Path, managers: Start) -> None:
    log = root / "hangs.log"
    with log.open("wb") as output:
        command = [sys.executable, "-c", HANGS]
        hanging = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True, cwd=root)
    try:
        store = ready(root)
        os.mkfifo(root / "pipe")
        backfill(store, "steady", DAYS)
        wait_for(lambda: (row := store.lease()) and row.slow_loop == "tick")
        assert hanging.wait(TIMEOUT_S) == 1
    finally:
        kill(hanging)
    text = log.read_text()
    assert 'event="has been at work for long, or hangs" loop=tick' in text and "reads_a_pipe" in text
    assert 'event="it was to end and has not; this process exits now"' in text

    (root / "pipe").unlink()
    managers()
    assert ended(store, "steady").state == s.SUCCESS
