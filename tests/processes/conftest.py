"""Processes that are started for a test, and ended with it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from support.waiting_process import Start


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts `code` in a process that waits for a line first: `release` sends it."""
    processes: list[subprocess.Popen[str]] = []

    def run(code: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-u", "-c", f"input()\n{code}"], text=True, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        processes.append(process)
        return process

    yield run
    for process in processes:
        process.kill()
        process.communicate()
