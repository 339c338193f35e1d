"""`VersionWatcher`: which tables of the state have changed, with one poll a second for all listeners together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final

from starlette.concurrency import run_in_threadpool

from backfill_manager.errors import BackfillManagerError
from backfill_manager.store.base import Store

POLL_INTERVAL_S: Final = 1.0
KEEP_ALIVE_INTERVAL_S: Final = 15.0  # proxies close silent connections
MAX_LISTENERS: Final = 500


class VersionWatcher:
    """The versions of the tables, kept up to date while there are listeners."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._listeners: dict[object, frozenset[str]] = {}
        self._versions: dict[str, int] = {}
        self._changed = asyncio.Event()
        self._polling: asyncio.Task[None] | None = None
        self._closing = False

    @property
    def is_full(self) -> bool:
        return len(self._listeners) >= MAX_LISTENERS

    def close(self) -> None:
        """Ends every stream."""
        self._closing = True
        self._changed.set()

    async def listen(self, tables: frozenset[str]) -> AsyncIterator[dict[str, int]]:
        """The versions of `tables`: first of all, then of those that have changed; `{}` as a keep-alive."""
        key, seen = object(), dict[str, int]()
        self._listeners[key] = tables
        try:
            await self._read_versions()
            loop = asyncio.get_running_loop()
            if self._polling is None or self._polling.done() or self._polling.get_loop() is not loop:
                self._polling = loop.create_task(self._poll())
            while not self._closing:
                now = {name: self._versions[name] for name in sorted(tables) if name in self._versions}
                changed = {name: version for name, version in now.items() if seen.get(name) != version}
                seen = now
                if changed:
                    yield changed
                try:
                    await asyncio.wait_for(self._changed.wait(), KEEP_ALIVE_INTERVAL_S)
                except asyncio.TimeoutError:
                    yield {}
        finally:
            del self._listeners[key]

    async def _poll(self) -> None:
        while self._listeners and not self._closing:
            await asyncio.sleep(POLL_INTERVAL_S)
            await self._read_versions()

    async def _read_versions(self) -> None:
        tables = frozenset[str]().union(*self._listeners.values())
        try:
            versions = await run_in_threadpool(self._read, tables)
        except BackfillManagerError:  # storage is unavailable for a moment; a reader gets the error
            return
        if versions != {name: self._versions.get(name) for name in versions}:
            self._versions.update(versions)
            before, self._changed = self._changed, asyncio.Event()
            before.set()

    def _read(self, tables: Iterable[str]) -> dict[str, int]:
        return {name: self._store.version(name) for name in tables}
