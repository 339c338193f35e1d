"""`ResponseWaiter`: waits for the manager's responses, with one poll of the `response` table for all who wait.

A waiting request holds no thread; a poll takes one for some milliseconds.
"""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.concurrency import run_in_threadpool

from backfill_manager.errors import BackfillManagerError
from backfill_manager.model.records import Response
from backfill_manager.store.base import Condition, Store

POLL_INTERVAL_S: Final = 0.1


class ResponseWaiter:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[str, list[asyncio.Future[Response]]] = {}
        self._polling: asyncio.Task[None] | None = None

    async def wait(self, request_id: str, timeout_s: float) -> Response | None:
        """The response, or None when there is none after `timeout_s` seconds."""
        present = await run_in_threadpool(self._read, (request_id,))
        if present or timeout_s <= 0:
            return present[0] if present else None
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Response] = loop.create_future()
        self._waiting.setdefault(request_id, []).append(future)
        if self._polling is None or self._polling.done() or self._polling.get_loop() is not loop:
            self._polling = loop.create_task(self._poll())
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
            await asyncio.sleep(POLL_INTERVAL_S)

    def _pending(self, *request_ids: str) -> list[asyncio.Future[Response]]:
        return [future for id in request_ids for future in self._waiting.get(id, ()) if not future.done()]
