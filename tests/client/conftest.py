"""A real server over a manager in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from backfill_manager.api.app import create_app
from backfill_manager.api.server import listen, served_beside
from backfill_manager.client import Client
from backfill_manager.execution.messages import Succeeded
from backfill_manager.settings import Settings
from backfill_manager.testing import InMemoryManager, dag_spec


@pytest.fixture
def manager() -> InMemoryManager:
    """Two DAGs, whose tasks run until `all_succeed`."""
    return InMemoryManager(
        dag_spec("flights", "clean", "delays", upstream={"delays": ["clean"]}),
        dag_spec("weather", "fetch"),
        script=lambda _: None,
    )


@pytest.fixture
def all_succeed(manager: InMemoryManager) -> Callable[[], None]:
    """What runs succeeds, and so does all that follows."""

    def succeed() -> None:
        manager.script = lambda _: Succeeded()
        for key in list(manager.running):
            manager.finish(key, Succeeded())
        manager.drain()

    return succeed


@pytest.fixture
def settings() -> Settings:
    return Settings.model_validate({"api": {"requests_per_second": 10_000}})


@pytest.fixture
def url(manager: InMemoryManager, settings: Settings) -> Iterator[str]:
    app = create_app(settings, manager.store, clock=manager.clock)
    with served_beside(app, listen("127.0.0.1", 0)) as address:
        yield address


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as made:
        yield made


@pytest.fixture
def manager_at_work(manager: InMemoryManager) -> Callable[[], AbstractContextManager[None]]:
    """A thread that ticks for as long as the block lasts."""

    @contextmanager
    def ticking() -> Iterator[None]:
        over = threading.Event()

        def tick() -> None:
            while not over.wait(0.01):
                manager.tick()

        thread = threading.Thread(target=tick, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(10)

    return ticking
