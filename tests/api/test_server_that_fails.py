"""A server never stays half alive: when the task that accepts connections fails, or the one that watches them, it ends."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from backfill_manager.api.app import create_app
from backfill_manager.api.connections import Connections
from backfill_manager.api.server import listen, serve, served_beside
from backfill_manager.clock import SystemClock
from backfill_manager.errors import ServiceFailed
from backfill_manager.settings import Settings
from backfill_manager.store.memory import MemoryStore

TIMEOUT_S = 60.0


async def fails(*_: Any) -> None:
    raise ZeroDivisionError("a bug of ours")


@pytest.mark.parametrize("part", ["accept", "watch"])
def test_a_server_of_which_a_part_fails_ends_with_one_line(
    part: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Connections, part, fails)
    store = MemoryStore()
    store.init()
    listener = listen("127.0.0.1", 0)
    with ThreadPoolExecutor(1) as threads:
        served = threads.submit(serve, create_app(Settings(), store, clock=SystemClock()), listener)
        with pytest.raises(
            ServiceFailed, match=r"^The server has failed: ZeroDivisionError: a bug of ours\. .*Start it again"
        ):
            served.result(TIMEOUT_S)
    assert 'component=server event="the server has failed, and ends"' in capfd.readouterr().err


def test_pages_beside_a_manager_that_fail_are_logged(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Connections, "accept", fails)
    store = MemoryStore()
    store.init()
    listener = listen("127.0.0.1", 0)
    with served_beside(create_app(Settings(), store, clock=SystemClock()), listener):
        (thread,) = [one for one in threading.enumerate() if one.name == "serve"]
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()
    assert "ZeroDivisionError: a bug of ours" in capfd.readouterr().err
