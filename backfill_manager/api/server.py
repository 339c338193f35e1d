"""Serves an app on a socket with uvicorn: in the foreground (`bfm serve`), or in a thread of the manager."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import anyio.to_thread
import uvicorn
from fastapi import FastAPI

from backfill_manager.api.client_addresses import is_loopback
from backfill_manager.api.connections import KEEP_ALIVE_S, Connection, Connections
from backfill_manager.api.context import AppContext
from backfill_manager.api.middleware import MAX_HEAD_BYTES
from backfill_manager.errors import InvalidConfig, InvalidInput, ServiceFailed
from backfill_manager.logging import get_logger
from backfill_manager.settings import Settings

READER_THREADS: Final = max(8, 2 * (os.cpu_count() or 1))
SHUTDOWN_TIMEOUT_S: Final = 3  # for the requests in progress
BACKLOG: Final = 2048

log = get_logger("server")


def check_host(settings: Settings, host: str) -> None:
    """Raises `InvalidConfig` for a host that other machines reach, when no token is configured."""
    if not settings.api.tokens and not is_loopback(host):
        raise InvalidConfig(
            f"--host {host} is reachable from other machines, and no token is configured, so this server listens on "
            "127.0.0.1 only. Make a token with `bfm config token NAME`, and put what it prints into the configuration file "
            "under api.tokens."
        )


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any free one. Raises `InvalidInput` when there is none."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)  # asyncio sets TCP_NODELAY only with an explicit protocol
    except OSError as error:
        raise InvalidInput(f"--host {host} can't be listened on: {error.strerror or error}.") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)  # from here on clients wait, and are not refused
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(f"Port {port} of {host} is taken; choose another with --port.") from None
        raise InvalidInput(f"{host}:{port} can't be listened on: {error.strerror or error}.") from None
    return listener


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class PortTaken(InvalidInput):
    """Another process listens on this port."""


class _Server(uvicorn.Server):
    """uvicorn with `Connections` in place of its listener. Streams end when it shuts down."""

    def __init__(self, app: FastAPI) -> None:
        config = uvicorn.Config(
            app, http=Connection, ws="none", log_config=None, access_log=False, server_header=False, proxy_headers=False,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES, timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=SHUTDOWN_TIMEOUT_S, lifespan="on",
        )  # fmt: skip
        super().__init__(config)
        # These warn about every malformed form and request; the client gets a 400, and the log of changes has it.
        for name in ("python_multipart", "uvicorn.error"):
            logging.getLogger(name).setLevel(logging.ERROR)
        self._context: AppContext = app.state.context
        self._tasks: list[asyncio.Task[None]] = []
        self.failure: BaseException | None = None  # which has ended it

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        # The limit is of this event loop alone. More threads would not be faster on the same cores, and each takes memory.
        anyio.to_thread.current_default_thread_limiter().total_tokens = READER_THREADS
        await super().startup([])
        connections = Connections(self.config, self.server_state, self.lifespan.state, self._context.settings.api)
        self._tasks = [asyncio.create_task(connections.accept(listener)) for listener in sockets or ()]
        self._tasks.append(asyncio.create_task(connections.watch()))
        for task in self._tasks:
            task.add_done_callback(self._has_ended)

    def _has_ended(self, task: asyncio.Task[None]) -> None:
        """A server that accepts no connections any more, or does not watch those that it has, would look alive."""
        if not task.cancelled() and (failure := task.exception()) is not None:
            log.error("the server has failed, and ends", exc_info=failure)
            self.failure, self.should_exit = failure, True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for task in self._tasks:
            task.cancel()
        self._context.tables.close()
        await super().shutdown(sockets)
        if self.force_exit:  # uvicorn leaves it out after a second signal, and asyncio cancels it then with a traceback
            await self.lifespan.shutdown()


def serve(app: FastAPI, listener: socket.socket) -> None:
    """Serves until SIGINT or SIGTERM, which shut down gracefully; a second one ends it at once. `ServiceFailed` when a part of it
    has failed."""
    server = _Server(app)
    with listener, _ignore_repeated_signals():
        server.run(sockets=[listener])
    if (failure := server.failure) is not None:
        failed = (
            f"The server has failed: {type(failure).__name__}: {failure}. A bug in backfill_manager. Start it again"
        )
        raise ServiceFailed(f"{failed}, or let its supervisor do so.") from failure


@contextmanager
def _ignore_repeated_signals() -> Iterator[None]:
    """uvicorn handles SIGINT and SIGTERM, and raises them again for the handlers that were set before: these do nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def served_beside(app: FastAPI, listener: socket.socket) -> Iterator[str]:
    """Serves in a thread for as long as the block lasts; yields the URL."""
    server = _Server(app)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="serve", daemon=True)
    with listener:
        thread.start()
        try:
            yield url_of(listener)
        finally:
            server.should_exit = True
            thread.join(SHUTDOWN_TIMEOUT_S + 5)
