"""Runs a real server for browser tests on a port of its own, over a state in memory or on disk.

`living` is a manager of `backfill_manager.testing` whose ticks go on in a thread: real decisions, real inbox, real
requests, no Spark. Tasks end as the test says. Its time passes as ours does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from backfill_manager.api.app import create_app
from backfill_manager.api.auth import sha256_of
from backfill_manager.api.server import listen, served_beside
from backfill_manager.clock import Clock, SystemClock
from backfill_manager.execution.messages import Outcome, Succeeded
from backfill_manager.settings import Settings
from backfill_manager.store.base import Store
from backfill_manager.testing import FakeClock, InMemoryManager
from backfill_manager.web import page, router
from support.busy_state import busy_ground, empty_store, import_problem, put

__all__ = [
    "Living",
    "PassingClock",
    "busy_ground",
    "empty_store",
    "import_problem",
    "living",
    "put",
    "served",
    "with_tokens",
]

TICK_S = 0.02
OFTEN = 10_000  # requests a second: all people of a story come from one address, each with an empty cache


class PassingClock:
    """A clock of the tests that goes on as ours does. `advance` still jumps."""

    def __init__(self, stands: FakeClock) -> None:
        self._stands, self._ours = stands, SystemClock()
        self._begun = self._ours.monotonic()

    def now(self) -> datetime:
        return self._stands.now() + timedelta(seconds=self._ours.monotonic() - self._begun)

    def monotonic(self) -> float:
        return self._ours.monotonic()

    def boottime(self) -> float:
        return self._ours.boottime()

    def new_id(self) -> str:
        return self._stands.new_id()

    def advance(self, **duration: float) -> None:
        self._stands.advance(**duration)


def with_tokens(**roles: str) -> Settings:
    """`with_tokens(ada="operator")`: ada's token is `token of ada`."""
    tokens = [{"name": name, "role": role, "sha256": sha256_of(f"token of {name}")} for name, role in roles.items()]
    return Settings.model_validate({"api": {"tokens": tokens, "requests_per_second": OFTEN}})


@contextmanager
def served(store: Store, clock: Clock, settings: Settings | None = None) -> Iterator[str]:
    """The address of the site: API and pages."""
    app = create_app(
        settings or with_tokens(), store, clock=clock, secret=b"k" * 32, extra_routers=[router.router],
        error_page=page.error_page,
    )  # fmt: skip
    with served_beside(app, listen("127.0.0.1", 0)) as url:
        yield url


@dataclass
class Living:
    """`with living(in_memory)`: its manager goes on by itself; who touches that manager meanwhile takes the lock."""

    in_memory: InMemoryManager
    lock: threading.RLock

    def do(self, what: Callable[[InMemoryManager], Any]) -> Any:
        with self.lock:
            return what(self.in_memory)

    def finish(self, dag_id: str, n: int | None = None, outcome: Outcome | None = None) -> int:
        """So many (None: all) of the tasks of this DAG that run now end; returns how many."""
        with self.lock:
            keys = [key for key in self.in_memory.running if key[0] == dag_id][:n]
            for key in keys:
                self.in_memory.finish(key, outcome or Succeeded())
            return len(keys)

    def let_all_succeed(self) -> None:
        """What runs, and whatever starts from now on."""
        with self.lock:
            self.in_memory.script = lambda _: Succeeded()
            for key in list(self.in_memory.running):
                self.in_memory.finish(key, Succeeded())


@contextmanager
def living(in_memory: InMemoryManager) -> Iterator[Living]:
    lives, over, died = Living(in_memory, threading.RLock()), threading.Event(), list[BaseException]()

    def go_on() -> None:
        try:
            while not over.wait(TICK_S):
                with lives.lock:
                    in_memory.tick()
        except BaseException as error:  # noqa: BLE001 - reported by the test's own thread
            died.append(error)

    thread = threading.Thread(target=go_on, name="living", daemon=True)
    thread.start()
    try:
        yield lives
    finally:
        over.set()
        thread.join()
    if died:
        raise died[0]
