"""A manager that serves its pages, with 1,024 file descriptors: half-sent requests do not take them, and without any it waits."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest
from support.manager_process import TIMEOUT_S, wait_for

from backfill_manager import file_descriptors
from backfill_manager.clock import SystemClock
from backfill_manager.model.records import Response
from backfill_manager.requests import submit
from backfill_manager.schemas import request_kinds
from backfill_manager.store import open_store
from backfill_manager.store.base import Store

DESCRIPTORS = 1024
FEW = 100  # more than a manager without connections holds, and far fewer than the connections
HALF_A_HEADER = b"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\nX-Slow: "


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    conf = {
        "state": str(tmp_path / "state"),
        "warehouse": str(tmp_path / "warehouse"),
        "bundles": [],
        "api": {"port": 0, "max_connections_per_address": None, "header_timeout": 10},
        "lease": {"seconds": 600},  # of no matter here
        "spark": {"master": "local[1]"},
    }
    (tmp_path / "manager.yaml").write_text(json.dumps(conf))
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(
            [sys.executable, "-m", "backfill_manager", "--conf", str(tmp_path / "manager.yaml"), "manager", "start", "--with-ui"],
            stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS)),
        ) as process,
    ):  # fmt: skip
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def submitted(store: Store, slots: int) -> str:
    """A request that takes a commit of the manager's, and nothing else."""
    payload = {"name": "backfill", "slots": slots, "weight": 1, "min_share": 0}
    return submit.submit(store, SystemClock(), request_kinds.POOL_SET, payload).request_id


def answered(store: Store, request_id: str) -> Response:
    return wait_for(lambda: submit.response_to(store, request_id))  # type: ignore[no-any-return]


def opened(process: subprocess.Popen[bytes]) -> int:
    """How many it holds, without those by which it tries out how many are free."""
    count = 0
    for link in Path(f"/proc/{process.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            count += os.readlink(link) != os.devnull
    return count


def test_a_manager_outlives_connections_that_hold_half_a_header_and_a_lack_of_descriptors(
    tmp_path: Path, manager: subprocess.Popen[bytes]
) -> None:
    file_descriptors.raise_limit()  # of this process, for its ends of the connections
    log = tmp_path / "log"
    found = wait_for(lambda: re.search(r"The web pages are at (http://127\.0\.0\.1:(\d+))", log.read_text()))
    store = open_store(str(tmp_path / "state"))
    assert answered(store, submitted(store, 3)).outcome == "accepted"

    with ExitStack() as held:
        for _ in range(1100):
            connection = held.enter_context(socket.create_connection(("127.0.0.1", int(found[2])), timeout=TIMEOUT_S))
            with suppress(OSError):  # refused already
                connection.sendall(HALF_A_HEADER)
        assert answered(store, submitted(store, 4)).outcome == "accepted"
        wait_for(lambda: httpx.get(f"{found[1]}/api/v1/health", trust_env=False, timeout=TIMEOUT_S).status_code == 200)

    wait_for(lambda: opened(manager) < FEW)  # the connections are gone
    requests: list[str] = []

    def waits() -> re.Match[str] | None:
        # Somebody in the process (a task, say) takes what is left.
        resource.prlimit(manager.pid, resource.RLIMIT_NOFILE, (opened(manager) + 5, DESCRIPTORS))
        if not requests or submit.response_to(store, requests[-1]):  # the manager had one more a moment ago
            requests.append(submitted(store, 5 + len(requests)))
        # The tick waits; or, with even fewer, the look at the table of requests is made again later.
        return re.search("too few file descriptors are free|request table can't be read", log.read_text())

    wait_for(waits)
    assert submit.response_to(store, requests[-1]) is None
    resource.prlimit(manager.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    assert answered(store, requests[-1]).outcome == "accepted"
    assert manager.poll() is None, log.read_text()
    manager.send_signal(signal.SIGTERM)
    assert manager.wait(TIMEOUT_S) == 0
    assert "Traceback" not in log.read_text()
