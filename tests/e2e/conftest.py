"""A real manager in this process, on the state that the test's `settings` name; and managers that are processes, with the
configuration that lies in the test's `root`."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.manager_process import TIMEOUT_S, kill

from backfill_manager.manager.manager import run_manager
from backfill_manager.settings import Settings
from backfill_manager.store import open_store
from backfill_manager.store.base import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def start_and_stop(settings: Settings, spark: SparkSession) -> Iterator[tuple[Callable[[], Store], Callable[[], None]]]:
    """`start` a manager on the state, `stop` all that were started; they are stopped at the end anyway."""
    started: list[tuple[threading.Thread, threading.Event]] = []

    def start() -> Store:
        ready, stop = threading.Event(), threading.Event()
        thread = threading.Thread(
            target=run_manager, args=(settings,), kwargs={"state": settings.state, "ready": ready, "stop": stop, "spark": spark}
        )  # fmt: skip
        thread.start()
        started.append((thread, stop))
        assert ready.wait(TIMEOUT_S), "the manager answers requests"
        return open_store(settings.state)

    def stop() -> None:
        for _, expected in started:
            expected.set()
        for thread, _ in started:
            thread.join(TIMEOUT_S)
            assert not thread.is_alive()
        started.clear()

    yield start, stop
    stop()


@pytest.fixture
def managers(root: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts processes by `bfm manager start`; the n-th one says what it says into `manager<n>.log`. Those left are killed."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*options: str, environ: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "backfill_manager", "--conf", str(root / "manager.yaml")]
        with (root / f"manager{len(started)}.log").open("wb") as log:
            process = subprocess.Popen(
                [*command, "manager", "start", *options],
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True, env={**os.environ, **(environ or {})}, cwd=root,
            )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        kill(process)


@pytest.fixture
def manager(start_and_stop: tuple[Callable[[], Store], Callable[[], None]]) -> Callable[[], Store]:
    """Starts managers on the state; each is stopped at the end."""
    return start_and_stop[0]
