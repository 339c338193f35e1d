"""A loop of the manager that waits for ever is named in the log, with the place where it waits, and in the lease row; and when it
goes on. One without which nothing works ends the manager."""

from __future__ import annotations

import os
import threading
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from backfill_manager.clock import SystemClock
from backfill_manager.manager.services.long_passes import INTERVAL_S, LongPasses
from backfill_manager.service import LONG_S, Pass, Service, ServicePool

TIMEOUT_S = 60.0


class LaterClock(SystemClock):
    """`later` seconds later than it is."""

    later = 0.0

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.later)

    def monotonic(self) -> float:
        return super().monotonic() + self.later


def nothing_hangs(loop: str, since: str) -> None:
    raise AssertionError(f"{loop} {since}")


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
    reader, clock = ReadsAPipe(tmp_path / "pipe"), LaterClock()
    passes = LongPasses(clock, nothing_hangs)
    passes.watch(reader.current_pass)
    reader.start()
    assert reader.has_begun.wait(TIMEOUT_S)

    def lines() -> list[str]:
        passes.run_once()
        return capfd.readouterr().err.splitlines()

    began_at = clock.now()
    assert lines() == [] and passes.columns() == {"slow_loop": None, "slow_loop_since": None}
    clock.later = LONG_S
    (line,) = lines()
    assert 'event="has been at work for long, or hangs" loop="reader of a pipe" since="10 min' in line
    assert "test_long_passes.py:" in line and "run_once" in line
    assert lines() == [], "once"
    shown = passes.columns()
    assert shown["slow_loop"] == "reader of a pipe"
    assert abs(shown["slow_loop_since"] - began_at) < timedelta(seconds=TIMEOUT_S)
    clock.later = 2 * LONG_S + TIMEOUT_S
    assert len(lines()) == 1
    (tmp_path / "pipe").write_text("at last")
    assert reader.has_read.wait(TIMEOUT_S)
    reader.stop()
    clock.later = 0.0
    (line,) = lines()
    assert 'event="goes on" loop="reader of a pipe"' in line
    assert lines() == [] and passes.columns()["slow_loop"] is None


def test_the_longest_of_several_is_shown() -> None:
    clock, loops = LaterClock(), [Pass(name, 10.0) for name in ("planner", "tick", "bundle")]
    passes = LongPasses(clock, nothing_hangs)
    passes.watch(*loops)
    for loop, seconds in zip(loops, (20.0, 30.0, 5.0), strict=True):
        loop.since = clock.monotonic() - seconds
    passes.run_once()
    assert passes.columns()["slow_loop"] == "tick"


def test_a_loop_without_which_nothing_works_ends_the_manager_once() -> None:
    clock, hangs = LaterClock(), list[tuple[str, str]]()
    tick, other = Pass("tick", 10.0, 5.5 * INTERVAL_S), Pass("planner", 10.0)
    passes = LongPasses(clock, lambda *found: hangs.append(found))
    passes.watch(tick, other)

    def look(times: int) -> None:
        for _ in range(times):
            passes.run_once()
            clock.later += INTERVAL_S

    tick.since = other.since = clock.monotonic()
    look(6)
    tick.since = clock.monotonic()  # another one
    look(6)
    assert hangs == []
    look(10)
    assert hangs == [("tick", "55 s")]


def test_time_for_which_the_whole_process_was_stopped_is_no_hang() -> None:
    clock = LaterClock()
    tick = Pass("tick", 10.0, 6 * INTERVAL_S)
    passes = LongPasses(clock, nothing_hangs)
    passes.watch(tick)
    tick.since = clock.monotonic()
    passes.run_once()
    clock.later = 3600.0
    passes.run_once()


def test_a_call_in_a_pool_of_threads_that_hangs_is_logged_too(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    pool, has_begun, others = ServicePool("ends", 2), threading.Event(), threading.Event()
    clock = LaterClock()
    clock.later = LONG_S
    passes = LongPasses(clock, nothing_hangs)
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
