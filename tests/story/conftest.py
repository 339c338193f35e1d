"""A real manager in this process, on the state that the test's `settings` name."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from real_manager import PATIENCE_S

from backfill_manager.manager.main import run_manager
from backfill_manager.settings import Settings
from backfill_manager.store import open_store
from backfill_manager.store.contract import Store

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
        assert ready.wait(PATIENCE_S), "the manager answers requests"
        return open_store(settings.state)

    def stop() -> None:
        for _, wanted in started:
            wanted.set()
        for thread, _ in started:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        started.clear()

    yield start, stop
    stop()


@pytest.fixture
def manager(start_and_stop: tuple[Callable[[], Store], Callable[[], None]]) -> Callable[[], Store]:
    """Starts managers on the state; each is stopped at the end."""
    return start_and_stop[0]
