"""The manager's end of a fork server."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from support import collected_process, environment_report, leaves_children, of_another_user
from support.manager_process import wait_for
from support.of_another_user import ONLY_AS_ROOT, without_leave_to_kill

from backfill_manager.processes.fork_server_client import ForkServerProcess, ForkServers, NoProcess

ENDS_AT_ONCE = "backfill_manager.processes.fork_server:_threads"  # it takes no job, so its process ends
ENDLESS_IMPORT = "support.endless_import"
TIMEOUT_S = 60.0


def test_who_asks_a_server_that_dies_meanwhile_learns_of_its_end_exactly_once() -> None:
    for _ in range(5):
        server, ends, refused = ForkServerProcess(), Counter[int](), set[int]()
        first = server.fork(ENDS_AT_ONCE, {}, [], name="test")
        assert first.wait(TIMEOUT_S)
        killing = threading.Thread(target=os.kill, args=(server.pid, signal.SIGKILL))
        started = []
        for number in range(400):
            if number == 20:
                killing.start()
            try:
                started.append(server.fork(ENDS_AT_ONCE, {}, [], name="test", on_end=partial(ends.update, [number])))
            except NoProcess:
                refused.add(number)
        killing.join()
        assert all(process.wait(TIMEOUT_S) for process in started)
        server.stop()
        assert not refused & ends.keys()
        assert set(ends.values()) == {1} and len(ends) + len(refused) == 400


def test_what_a_server_imported_when_it_was_killed_is_tried_once_more() -> None:
    servers = ForkServers()
    for unfit in (set(), {ENDLESS_IMPORT}):
        server = servers.get()
        process = server.fork(ENDS_AT_ONCE, {}, [], name="test", preload=(ENDLESS_IMPORT,))
        wait_for(lambda server=server: server.preloading)
        os.kill(server.pid, signal.SIGKILL)
        assert process.wait(TIMEOUT_S)
        wait_for(lambda server=server: not server.is_alive)
        servers.get()
        assert servers._unfit == unfit
    servers.close()


def test_the_collector_of_a_process_leaves_alone_what_the_server_has_made() -> None:
    server = ForkServerProcess()
    for _ in range(2):
        read, write = os.pipe()
        process = server.fork(f"{collected_process.__name__}:run", {}, [write], name="test")
        os.close(write)
        assert process.wait(TIMEOUT_S) and process.code == 0
        assert int(os.read(read, 100)) < len(collected_process.KEPT)
        os.close(read)
    server.stop()


@pytest.mark.parametrize("path", ["", "/of/the/manager"])
def test_its_processes_have_the_environment_of_the_manager(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another Python that a task starts must not find the manager's packages in place of its own."""
    monkeypatch.setenv("PYTHONPATH", path)
    server, (read, write) = ForkServerProcess(), os.pipe()
    process = server.fork(f"{environment_report.__name__}:run", {}, [write], name="test")
    os.close(write)
    with open(read) as printed:
        assert json.load(printed) == dict(os.environ)
    assert process.wait(TIMEOUT_S)
    server.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere what has left its session outlives its server")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGSTOP])
def test_what_its_processes_have_started_ends_with_a_server_that_is_killed(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anybody hears of the end; and with one that does not answer, when it is stopped."""
    monkeypatch.setattr("backfill_manager.processes.fork_server_client.STOP_TIMEOUT_S", 0.5)
    server, (read, write) = ForkServerProcess(), os.pipe()
    process = server.fork(f"{leaves_children.__name__}:run", {}, [write], name="test")
    os.close(write)
    parent, *pids = json.loads(os.read(read, 1000))
    assert parent == server.pid
    os.kill(parent, number)
    if number == signal.SIGSTOP:
        server.stop()
    assert process.wait(TIMEOUT_S) and process.is_lost
    assert [pid for pid in (parent, *pids) if Path(f"/proc/{pid}").exists()] == []
    assert server.exit_code == (-signal.SIGKILL if number == signal.SIGSTOP else -number)
    server.stop()
    os.close(read)


@ONLY_AS_ROOT
def test_a_process_of_another_user_that_is_left_behind_does_not_end_its_server() -> None:
    """Nor the processes of the others."""
    code = f"""
import os
from backfill_manager.processes.fork_server_client import ForkServerProcess
server, (read, _) = ForkServerProcess(), os.pipe()
for _ in range(2):
    process = server.fork("{of_another_user.__name__}:run", {{}}, [read], name="test")
    process.wait({TIMEOUT_S})
    print(process.code, server.is_alive)
server.stop()
"""
    assert without_leave_to_kill(code) == "0 True\n" * 2
