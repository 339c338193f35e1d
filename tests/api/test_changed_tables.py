"""Who listens to the versions of tables hears of each change, also of one that comes while another is being sent."""

from __future__ import annotations

import asyncio

import pytest

from backfill_manager.api import polling
from backfill_manager.api.polling import VersionWatcher
from backfill_manager.model.records import Pool
from backfill_manager.testing import MemoryStore

TIMEOUT_S = 30.0


def test_a_change_while_an_event_is_sent_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "KEEP_ALIVE_INTERVAL_S", 10 * TIMEOUT_S)
    monkeypatch.setattr(polling, "VERSION_INTERVAL_S", 0.01)
    store = MemoryStore()
    store.init()

    async def listens() -> tuple[dict[str, int], dict[str, int]]:
        watcher = VersionWatcher(store)
        events = watcher.listen(frozenset({"pool"}))
        first = await anext(events)
        store.write([Pool(name="more", slots=1, weight=1, min_share=0)])
        while watcher._versions["pool"] == first["pool"]:  # it is seen before the listener asks for the next
            await asyncio.sleep(0.01)
        second = await asyncio.wait_for(anext(events), TIMEOUT_S)
        watcher.close()
        return first, second

    first, second = asyncio.run(asyncio.wait_for(listens(), 2 * TIMEOUT_S))
    assert second["pool"] > first["pool"]
