"""Being told of changes as they happen: server-sent events, and looking now and then where they don't come through."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from backfill_manager.client.connection import Connection
from backfill_manager.client.models import Backfill
from backfill_manager.errors import BackfillManagerError

TABLES: Final = "backfill,backfill_item,request,response"  # what a backfill's view is made of
LOOK_EVERY_S: Final = 1.0  # without events
LISTEN_AGAIN_S: Final = 30.0  # after events have failed


def events(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The JSON of each event of a `text/event-stream`; comments and what is no JSON object are passed over."""
    data: list[str] = []
    for line in lines:
        if line.startswith("data:"):
            data.append(line.removeprefix("data:").removeprefix(" "))
        elif not line and data:
            told = _json("\n".join(data))
            data = []
            if told is not None:
                yield told


def _json(text: str) -> dict[str, Any] | None:
    try:
        told = json.loads(text)
    except ValueError:
        return None
    return told if isinstance(told, dict) else None


def watch(connection: Connection, path: str, pause: Callable[[float], None]) -> Iterator[Backfill]:
    """The backfill at `path` as it is now, and again whenever it has changed, until it has ended."""
    look = _Look(connection, path)
    for _ in _moments(connection, pause):
        backfill = look()
        if backfill is None:
            continue
        yield backfill
        if backfill.has_ended:
            return


class _Look:
    """The thing when it has changed since the last look, else None."""

    def __init__(self, connection: Connection, path: str) -> None:
        self._connection, self._path = connection, path
        self._etag: str | None = None
        self._last: Backfill | None = None

    def __call__(self) -> Backfill | None:
        found = self._connection.read_if_changed(self._path, self._etag)
        if found is None:
            return None
        document, self._etag = found
        now = Backfill.model_validate(document)
        before, self._last = self._last, now
        return None if now == before else now


def _moments(connection: Connection, pause: Callable[[float], None]) -> Iterator[None]:
    """When to look: at once, at each event, or every second while there are no events."""
    yield
    while True:
        try:
            with connection.lines("/events", {"topics": TABLES}) as lines:
                for _ in events(lines):
                    yield
        except BackfillManagerError:
            pass  # whatever it is, whoever looks meets it too
        until = time.monotonic() + LISTEN_AGAIN_S
        while time.monotonic() < until:
            pause(LOOK_EVERY_S)
            yield
