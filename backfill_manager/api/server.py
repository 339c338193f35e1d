"""An app behind a socket, with uvicorn: in the foreground (`bfm serve`), or in a thread of the manager."""

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

from backfill_manager.api.auth import is_loopback
from backfill_manager.api.connections import KEEP_ALIVE_S, Connection, Connections
from backfill_manager.api.context import AppContext
from backfill_manager.api.middleware import LARGEST_HEAD
from backfill_manager.errors import InvalidConfig, InvalidInput
from backfill_manager.logging import get_logger
from backfill_manager.settings import Settings

READERS: Final = max(8, 2 * (os.cpu_count() or 1))  # threads that read the state
GRACE_S: Final = 3  # what is being answered may finish for so long
BACKLOG: Final = 2048

log = get_logger("api")


def check_host(settings: Settings, host: str) -> None:
    """`InvalidConfig` for a host that others reach, with nobody told apart."""
    if not settings.api.tokens and not is_loopback(host):
        raise InvalidConfig(
            f"--host {host} lets others in, and no token is configured, so this server listens on 127.0.0.1 only. "
            "Make one with `bfm config token NAME`, and put what it prints into conf/manager.yaml under api.tokens."
        )


def listen(host: str, port: int) -> socket.socket:
    """The socket; port 0 takes any free one. `InvalidInput` when it can't be had."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        made = socket.socket(family, kind, protocol)  # asyncio sends at once (no delay) only what is said to be TCP
    except OSError as error:
        raise InvalidInput(f"--host {host} can't be listened on: {error.strerror or error}.") from None
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(BACKLOG)  # from here on whoever calls waits, and is not refused
    except OSError as error:
        made.close()
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(f"Port {port} of {host} is taken; choose another with --port.") from None
        raise InvalidInput(f"{host}:{port} can't be listened on: {error.strerror or error}.") from None
    return made


def url_of(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class PortTaken(InvalidInput):
    """Somebody listens there already."""


class _Server(uvicorn.Server):
    """Connections are accepted and watched by `Connections`. Streams have no end of their own: they are told when the
    server is to stop."""

    def __init__(self, app: FastAPI) -> None:
        config = uvicorn.Config(
            app, http=Connection, ws="none", log_config=None, access_log=False, server_header=False, proxy_headers=False,
            h11_max_incomplete_event_size=LARGEST_HEAD, timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=GRACE_S, lifespan="on",
        )  # fmt: skip
        super().__init__(config)
        # It warns of every form that is no form, beside our own log; whoever sent it is told by 400.
        logging.getLogger("python_multipart").setLevel(logging.ERROR)
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # of every connection that does not speak HTTP
        self._house: AppContext = app.state.house
        self._tasks: list[asyncio.Task[None]] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        # Of this loop alone. More at once would not be faster, as the cores are the same, and each takes its memory.
        anyio.to_thread.current_default_thread_limiter().total_tokens = READERS
        await super().startup([])
        made = Connections(self.config, self.server_state, self.lifespan.state, self._house.settings.api)
        self._tasks = [asyncio.create_task(made.accept(bound)) for bound in sockets or ()]
        self._tasks.append(asyncio.create_task(made.watch()))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for task in self._tasks:
            task.cancel()
        self._house.tables.close()
        await super().shutdown(sockets)


def serve(app: FastAPI, bound: socket.socket) -> None:
    """Until SIGINT or SIGTERM, which end it in good order; a second one ends it at once."""
    with bound, _signals_are_the_servers():
        _Server(app).run(sockets=[bound])


@contextmanager
def _signals_are_the_servers() -> Iterator[None]:
    """uvicorn hears them, and sends them once more to whoever had them before: nobody."""
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
def served_beside(app: FastAPI, bound: socket.socket) -> Iterator[str]:
    """In a thread of its own for as long as the block lasts; gives the address."""
    server = _Server(app)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, name="serve", daemon=True)
    with bound:
        thread.start()
        try:
            yield url_of(bound)
        finally:
            server.should_exit = True
            thread.join(GRACE_S + 5)
