"""A loop of the manager that waits for ever is named in the log, with the place where it waits; and when it goes on."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from backfill_manager.manager.services.long_passes import LongPasses
from backfill_manager.service import LONG_S, Service, ServicePool

TIMEOUT_S = 60.0


class ReadsAPipe(Service):
    def __init__(self, pipe: Path) -> None:
        super().__init__("reader of a pipe")
        self._pipe, self.has_begun, self.has_read = pipe, threading.Event(), threading.Event()

    def run_once(self) -> float | None:
        self.has_begun.set()
        self._pipe.read_text()  # until somebody writes
        self.has_read.set()
        return None


def test_a_pass_that_hangs_is_logged_with_its_place_at_growing_intervals(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader, later = ReadsAPipe(tmp_path / "pipe"), 0.0
    passes = LongPasses(lambda: time.monotonic() + later)
    passes.watch(reader.current_pass)
    reader.start()
    assert reader.has_begun.wait(TIMEOUT_S)

    def lines() -> list[str]:
        passes.run_once()
        return capfd.readouterr().err.splitlines()

    assert lines() == []
    later = LONG_S
    (line,) = lines()
    assert 'event="has been at work for long, or hangs" loop="reader of a pipe" since="10 min' in line
    assert "test_long_passes.py:" in line and "run_once" in line
    assert lines() == [], "once"
    later = 2 * LONG_S + TIMEOUT_S
    assert len(lines()) == 1
    (tmp_path / "pipe").write_text("at last")
    assert reader.has_read.wait(TIMEOUT_S)
    reader.stop()
    later = 0.0
    (line,) = lines()
    assert 'event="goes on" loop="reader of a pipe"' in line
    assert lines() == []


def test_a_call_in_a_pool_of_threads_that_hangs_is_logged_too(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    pool, has_begun, others = ServicePool("ends", 2), threading.Event(), threading.Event()
    passes = LongPasses(lambda: time.monotonic() + LONG_S)
    passes.watch(*pool.passes)

    def hangs() -> None:
        has_begun.set()
        (tmp_path / "pipe").read_text()

    pool.call(hangs)
    assert has_begun.wait(TIMEOUT_S)
    pool.call(others.set)
    assert others.wait(TIMEOUT_S)
    passes.run_once()
    (line,) = capfd.readouterr().err.splitlines()
    assert "loop=ends" in line and "hangs" in line
    (tmp_path / "pipe").write_text("at last")
    pool.close()
