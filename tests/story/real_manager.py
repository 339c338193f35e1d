"""What a client of a real manager does: ask, and look at the tables until something has come about."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

from backfill_manager.clock import SystemClock
from backfill_manager.model import states as s
from backfill_manager.model.records import Backfill
from backfill_manager.requests import asking, kinds
from backfill_manager.requests.backfills import BackfillAsk
from backfill_manager.store.contract import Condition, Store


def wait_for(look: Callable[[], Any], seconds: float = 90.0) -> Any:
    """What `look` gives as soon as it is true: the tables are another process's as far as a client knows."""
    clock, never = SystemClock(), threading.Event()
    end = clock.monotonic() + seconds
    while not (found := look()):
        assert clock.monotonic() < end, "it did not come about"
        never.wait(0.1)
    return found


def request(store: Store, ask: BackfillAsk, backfill_id: str) -> str:
    payload = {"backfill_id": backfill_id, "ask": json.loads(ask.to_payload())}
    return asking.ask(store, SystemClock(), kinds.BACKFILL_CREATE, payload).request_id


def ended(store: Store, backfill_id: str) -> Backfill:
    def look() -> list[Backfill]:
        where = [Condition("backfill_id", "=", backfill_id), Condition("state", "in", sorted(s.BACKFILL_FINISHED))]
        return store.read(Backfill, where)

    return wait_for(look)[0]  # type: ignore[no-any-return]
