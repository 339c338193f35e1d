"""Waiting for the manager's answers: one look at the `response` table for all who wait, ten times a second at most.

Nobody who waits holds a thread; the look itself takes one for some milliseconds.
"""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.concurrency import run_in_threadpool

from backfill_manager.errors import BackfillManagerError
from backfill_manager.model.records import Response
from backfill_manager.store.base import Condition, Store

LOOK_EVERY_S: Final = 0.1


class ResponseWaiter:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[str, list[asyncio.Future[Response]]] = {}
        self._looking: asyncio.Task[None] | None = None

    async def wait(self, request_id: str, timeout_s: float) -> Response | None:
        """The answer, or None when it has not come within `timeout_s` seconds."""
        found = await run_in_threadpool(self._read, (request_id,))
        if found or timeout_s <= 0:
            return found[0] if found else None
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Response] = loop.create_future()
        self._waiting.setdefault(request_id, []).append(future)
        if self._looking is None or self._looking.done() or self._looking.get_loop() is not loop:
            self._looking = loop.create_task(self._look())
        try:
            return await asyncio.wait_for(future, timeout_s)
        except asyncio.TimeoutError:
            return None
        finally:
            self._forget(request_id, future)

    def _read(self, request_ids: tuple[str, ...]) -> list[Response]:
        return self._store.read(Response, [Condition("request_id", "in", request_ids)])

    def _forget(self, request_id: str, future: asyncio.Future[Response]) -> None:
        left = [one for one in self._waiting.pop(request_id, ()) if one is not future]
        if left:
            self._waiting[request_id] = left

    async def _look(self) -> None:
        """Until nobody waits any more."""
        seen: tuple[int, frozenset[str]] | None = None
        while self._waiting:
            waiting = frozenset(self._waiting)
            try:
                now = (await run_in_threadpool(self._store.version, Response.TABLE), waiting)
                found = await run_in_threadpool(self._read, tuple(waiting)) if now != seen else []
            except BackfillManagerError as error:  # the state can't be read: each who waits is told so
                self._tell_all(error)
                return
            seen = now
            for answer in found:
                for future in self._waiting.get(answer.request_id, ()):
                    if not future.done():
                        future.set_result(answer)
            await asyncio.sleep(LOOK_EVERY_S)

    def _tell_all(self, error: Exception) -> None:
        for futures in self._waiting.values():
            for future in futures:
                if not future.done():
                    future.set_exception(error)
