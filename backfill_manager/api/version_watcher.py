"""Which tables of the state have changed: looked at once a second, for all who listen together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final

from starlette.concurrency import run_in_threadpool

from backfill_manager.errors import BackfillManagerError
from backfill_manager.store.base import Store

LOOK_EVERY_S: Final = 1.0
SIGN_OF_LIFE_S: Final = 15.0  # proxies close what is silent
MOST_LISTENERS: Final = 500


class VersionWatcher:
    """What is known of the tables' versions, kept up to date while somebody listens."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._listeners: dict[object, frozenset[str]] = {}
        self._versions: dict[str, int] = {}
        self._looked = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self._closing = False

    @property
    def is_full(self) -> bool:
        return len(self._listeners) >= MOST_LISTENERS

    def close(self) -> None:
        """Every stream ends."""
        self._closing = True
        self._looked.set()

    async def listen(self, topics: frozenset[str]) -> AsyncIterator[dict[str, int]]:
        """The versions of what has changed since the last time, at first of all `topics`; `{}` as a sign of life."""
        me, seen = object(), dict[str, int]()
        self._listeners[me] = topics
        try:
            await self._look_once()
            self._keep_looking()
            while not self._closing:
                now = {name: self._versions[name] for name in sorted(topics) if name in self._versions}
                changed = {name: version for name, version in now.items() if seen.get(name) != version}
                seen = now
                if changed:
                    yield changed
                try:
                    await asyncio.wait_for(self._looked.wait(), SIGN_OF_LIFE_S)
                except asyncio.TimeoutError:
                    yield {}
        finally:
            del self._listeners[me]

    def _keep_looking(self) -> None:
        loop = asyncio.get_running_loop()
        if self._looking is None or self._looking.done() or self._looking.get_loop() is not loop:
            self._looking = loop.create_task(self._look())

    async def _look(self) -> None:
        while self._listeners and not self._closing:
            await asyncio.sleep(LOOK_EVERY_S)
            await self._look_once()

    async def _look_once(self) -> None:
        wanted = frozenset[str]().union(*self._listeners.values())
        try:
            found = await run_in_threadpool(self._read, wanted)
        except BackfillManagerError:  # storage is away for a moment; whoever reads is told
            return
        if found != {name: self._versions.get(name) for name in found}:
            self._versions.update(found)
            was, self._looked = self._looked, asyncio.Event()
            was.set()

    def _read(self, names: Iterable[str]) -> dict[str, int]:
        return {name: self._store.version(name) for name in names}
