"""The driver ends with its parent: real processes, killed for real, and no Spark."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from backfill_manager.manager.services.parent_watchdog import LOST_EXIT_CODE
from backfill_manager.process_info import is_process_alive

# The child writes into the pipe that it shares with the test; the read ends when the last writer is gone.
CHILD = """
import os, signal, sys, threading
from backfill_manager.manager.services.parent_watchdog import end_with_parent
ended = threading.Event()
def on_signal(signum, frame):
    os.write(1, b"signalled\\n")  # `print` may be at work when the signal comes, and does not enter itself
    if {obeys}:
        os._exit(0)
signal.signal(signal.SIGTERM, on_signal)
end_with_parent(also_with={also_with}, exit_timeout_s={exit_timeout_s})
print(os.getpid(), flush=True)
while True:
    ended.wait(60)
"""
PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]])
child.wait()
"""


def _family(*, also_with: int | None = None, obeys: bool = True, exit_timeout_s: float = 10) -> subprocess.Popen[str]:
    child = CHILD.format(also_with=also_with, obeys=obeys, exit_timeout_s=exit_timeout_s)
    return subprocess.Popen([sys.executable, "-c", PARENT, child], stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_driver_whose_parent_is_killed_gets_a_signal_and_ends(how: signal.Signals) -> None:
    with _family() as parent:
        assert parent.stdout is not None
        driver = int(parent.stdout.readline())
        parent.send_signal(how)
        assert parent.stdout.readlines() == ["signalled\n"]  # the end of the pipe: it is gone
        assert _ends(driver)


def test_a_driver_that_does_not_obey_is_ended_all_the_same() -> None:
    with _family(obeys=False, exit_timeout_s=2) as parent:
        assert parent.stdout is not None
        driver = int(parent.stdout.readline())
        parent.kill()
        assert set(parent.stdout.readlines()) == {"signalled\n"}
        assert _ends(driver)


def test_a_driver_ends_with_the_process_that_submitted_it_while_its_parent_lives() -> None:
    with (
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as submitter,
        _family(also_with=submitter.pid, obeys=False, exit_timeout_s=2) as parent,
    ):
        assert parent.stdout is not None
        driver = int(parent.stdout.readline())
        submitter.kill()
        submitter.wait()
        assert set(parent.stdout.readlines()) == {"signalled\n"}
        assert parent.wait() == 0
        assert _ends(driver)


def test_a_driver_that_ends_for_good_says_so_by_its_exit_code() -> None:
    result = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    code = CHILD.format(also_with=2**22 + 1, obeys=False, exit_timeout_s=0)  # nobody has that pid
    done = subprocess.run([sys.executable, "-c", result + code], stdout=subprocess.PIPE, check=False)
    assert done.returncode == LOST_EXIT_CODE


def test_this_process_lives() -> None:
    assert is_process_alive(os.getpid())


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_process_that_has_ended_but_was_not_fetched_does_not_live() -> None:
    with subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE) as ended:
        assert ended.stdout is not None and ended.stdout.read() == b""
        assert _ends(ended.pid)


def _ends(pid: int) -> bool:
    """Its pipe is closed a moment before it is gone."""
    moment = threading.Event()
    for _ in range(6000):
        if not is_process_alive(pid):
            return True
        moment.wait(0.01)
    return False
