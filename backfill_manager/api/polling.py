"""What one poll of the state does for all who wait: `ResponseWaiter` for the manager's responses, `VersionWatcher` for changed
tables. Who waits holds no thread; a poll takes one for some milliseconds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Final

from starlette.concurrency import run_in_threadpool

from backfill_manager.errors import BackfillManagerError
from backfill_manager.model.records import Response
from backfill_manager.store.base import Condition, Store

RESPONSE_INTERVAL_S: Final = 0.1
VERSION_INTERVAL_S: Final = 1.0
KEEP_ALIVE_INTERVAL_S: Final = 15.0  # proxies close silent connections
MAX_LISTENERS: Final = 500


def _polling(task: asyncio.Task[None] | None, poll: Callable[[], Coroutine[None, None, None]]) -> asyncio.Task[None]:
    """`task` if it still runs in this event loop, or else a new one."""
    loop = asyncio.get_running_loop()
    return task if task and not task.done() and task.get_loop() is loop else loop.create_task(poll())


class ResponseWaiter:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._task: asyncio.Task[None] | None = None
        self._waiting: dict[str, list[asyncio.Future[Response]]] = {}

    async def wait(self, request_id: str, timeout_s: float) -> Response | None:
        """The response, or None when there is none after `timeout_s` seconds."""
        present = await run_in_threadpool(self._read, (request_id,))
        if present or timeout_s <= 0:
            return present[0] if present else None
        future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(request_id, []).append(future)
        self._task = _polling(self._task, self._poll)
        try:
            return await asyncio.wait_for(future, timeout_s)
        except asyncio.TimeoutError:
            return None
        finally:
            self._waiting[request_id].remove(future)
            if not self._waiting[request_id]:
                del self._waiting[request_id]

    def _read(self, request_ids: tuple[str, ...]) -> list[Response]:
        return self._store.read(Response, [Condition("request_id", "in", request_ids)])

    async def _poll(self) -> None:
        """Runs until nobody waits any more."""
        last: tuple[int, frozenset[str]] | None = None
        while self._waiting:
            waiting = frozenset(self._waiting)
            try:
                current = (await run_in_threadpool(self._store.version, Response.TABLE), waiting)
                responses = await run_in_threadpool(self._read, tuple(waiting)) if current != last else []
            except BackfillManagerError as error:  # the state can't be read: all who wait get the error
                for future in self._pending(*self._waiting):
                    future.set_exception(error)
                return
            last = current
            for response in responses:
                for future in self._pending(response.request_id):
                    future.set_result(response)
            await asyncio.sleep(RESPONSE_INTERVAL_S)

    def _pending(self, *request_ids: str) -> list[asyncio.Future[Response]]:
        return [future for id in request_ids for future in self._waiting.get(id, ()) if not future.done()]


class VersionWatcher:
    """The versions of the tables, kept up to date while there are listeners."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._task: asyncio.Task[None] | None = None
        self._listeners: dict[object, frozenset[str]] = {}
        self._versions: dict[str, int] = {}
        self._changed = asyncio.Event()
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
            self._task = _polling(self._task, self._poll)
            while not self._closing:
                has_changed = self._changed  # of now: what changes while an event is sent is not missed
                now = {name: self._versions[name] for name in sorted(tables) if name in self._versions}
                changed = {name: version for name, version in now.items() if seen.get(name) != version}
                seen = now
                if changed:
                    yield changed
                try:
                    await asyncio.wait_for(has_changed.wait(), KEEP_ALIVE_INTERVAL_S)
                except asyncio.TimeoutError:
                    yield {}
        finally:
            del self._listeners[key]

    async def _poll(self) -> None:
        while self._listeners and not self._closing:
            await asyncio.sleep(VERSION_INTERVAL_S)
            await self._read_versions()

    async def _read_versions(self) -> None:
        tables = frozenset[str]().union(*self._listeners.values())
        try:
            versions = await run_in_threadpool(lambda: {name: self._store.version(name) for name in tables})
        except BackfillManagerError:  # storage is unavailable for a moment; a reader gets the error
            return
        if versions != {name: self._versions.get(name) for name in versions}:
            self._versions.update(versions)
            before, self._changed = self._changed, asyncio.Event()
            before.set()
