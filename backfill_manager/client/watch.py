"""Watches a backfill: by server-sent events, and by polling where they don't come through."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

from backfill_manager.client.connection import Connection
from backfill_manager.errors import BackfillManagerError
from backfill_manager.schemas.resources import BackfillDetails

TABLES: Final = "backfill,backfill_item,request,response"  # what a backfill is read from
POLL_INTERVAL_S: Final = 1.0  # without events
RECONNECT_INTERVAL_S: Final = 30.0  # after events have failed


def watch(connection: Connection, path: str, sleep: Callable[[float], None]) -> Iterator[BackfillDetails]:
    """The backfill at `path`, and again whenever it has changed, until it has ended."""
    etag: str | None = None
    last: BackfillDetails | None = None
    for _ in _ticks(connection, sleep):
        changed = connection.read_if_changed(path, etag)
        if changed is None:
            continue
        document, etag = changed
        backfill = BackfillDetails.model_validate(document)
        if backfill != last:
            yield backfill
            last = backfill
        if backfill.has_ended:
            return


def _ticks(connection: Connection, sleep: Callable[[float], None]) -> Iterator[None]:
    """When to read: at once, at each event, or every second while there are no events."""
    yield
    while True:
        try:
            with connection.events({"topics": TABLES}) as events:
                for event in events:
                    if event.event == "changed":
                        yield
        except BackfillManagerError:
            pass  # the next read meets the same error, or none
        until = time.monotonic() + RECONNECT_INTERVAL_S
        while time.monotonic() < until:
            sleep(POLL_INTERVAL_S)
            yield
