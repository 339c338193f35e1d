"""Connections: how many there may be, and how long each may keep the server waiting.

    accept ─► over a cap: 503 and closed ─► head within `header_timeout` ─► body within `body_timeout` (408, by `limits`)
           ─► an answer is taken within `send_timeout` ─► idle for KEEP_ALIVE_S: closed

Each connection takes a file descriptor of this process, which may be a manager's. So all connections together get half of
the descriptors at most, whatever is configured. Without a free descriptor nothing is accepted for a while: callers wait.

An answer that takes its time, or has no end (`/events`), has no deadline, as long as the client takes what is sent.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import socket
from collections import Counter
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final, cast

import h11
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from backfill_manager import descriptors
from backfill_manager.api.errors import PROBLEM_JSON, TITLES, problem_type
from backfill_manager.api.middleware import LARGEST_HEAD
from backfill_manager.logging import get_logger
from backfill_manager.settings import ApiSettings

LOOK_EVERY_S: Final = 1.0
WITHOUT_DESCRIPTORS_S: Final = 1.0  # nothing is accepted for so long
KEEP_ALIVE_S: Final = 5  # without a request
GRACE_S: Final = 5.0  # for the 408 that the application gives when a body is late
LEAST_TAKEN: Final = 16_384  # bytes of an answer, within `send_timeout`: less is a client that does not read
TOLD_EVERY_S: Final = 60.0  # in the log

log = get_logger("api")


def most_connections(api: ApiSettings) -> int:
    """What is configured, and no more than half of this process's descriptors: the rest is for the state and for tasks."""
    return max(1, min(api.max_connections, descriptors.limit() // 2))


def network_of(address: str) -> str:
    """What counts as one address: of IPv6 the network of 64 bits, as whoever has one address there has them all."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address) or found.is_loopback:
        return str(found)
    return str(found.ipv4_mapped or ipaddress.ip_network((found, 64), strict=False))


def plain_problem(status: int, detail: str, *, retry_after_s: int | None = None) -> bytes:
    """A whole answer, for a connection that no request has been read from."""
    title = TITLES[status]
    document = {
        "type": problem_type(title),
        "title": title,
        "status": status,
        "detail": detail,
        "instance": "",
        "errors": [],
    }
    body = json.dumps(document).encode()
    head = [
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", f"Content-Type: {PROBLEM_JSON}",
        f"Content-Length: {len(body)}", "Connection: close", "Cache-Control: no-store",
    ]  # fmt: skip
    if retry_after_s is not None:
        head.append(f"Retry-After: {retry_after_s}")
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


class Connection(H11Protocol):
    """uvicorn's connection with deadlines. `look` is called once a second."""

    def __init__(self, config: Config, server_state: ServerState, app_state: dict[str, Any], api: ApiSettings) -> None:
        super().__init__(config, server_state, app_state)
        self._api = api
        self.came_from = ""
        self._phase: tuple[str, object] | None = None
        self._phase_since = 0.0
        self._unsent, self._unsent_since = 0, 0.0
        self._taken = False  # much was taken since the last look

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.came_from = network_of(self.client[0] if self.client else "")
        self._enter(self._phase_now(), self.loop.time())

    def resume_writing(self) -> None:
        self._taken = True
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP, or has a head that is too large."""
        self.transport.write(
            plain_problem(400, f"This is no HTTP/1.1 request, or its head is larger than {LARGEST_HEAD:,} bytes.")
        )
        self.transport.close()

    def look(self, now: float) -> None:
        """Cut the connection when it has kept the server waiting for too long."""
        if self._takes_nothing(now):
            self.transport.abort()
            return
        phase = self._phase_now()
        if phase != self._phase:
            self._enter(phase, now)
        if phase is None or self.transport.is_closing():
            return
        waited = now - self._phase_since
        if phase[0] == "head" and waited > self._api.header_timeout:
            if self.conn.trailing_data[0]:
                told = f"The request's head did not arrive within {self._api.header_timeout:g} s (api.header_timeout)."
                self.transport.write(plain_problem(408, told))
            self.transport.close()
        elif phase[0] == "body" and waited > self._api.body_timeout + GRACE_S:
            self.transport.abort()

    def _enter(self, phase: tuple[str, object] | None, now: float) -> None:
        self._phase, self._phase_since = phase, now

    def _phase_now(self) -> tuple[str, object] | None:
        """What is waited for, and of which request. None: nothing that the client owes, or what uvicorn waits for itself."""
        if self.timeout_keep_alive_task is not None:
            return None
        if self.conn.their_state is h11.IDLE:
            return "head", self.cycle
        if self.conn.their_state is h11.SEND_BODY:
            return "body", self.cycle
        return None

    def _takes_nothing(self, now: float) -> bool:
        """True when what was sent lies here for too long."""
        unsent = self.transport.get_write_buffer_size()
        if not unsent or self._taken or not self._unsent or unsent <= self._unsent - LEAST_TAKEN:
            self._unsent, self._unsent_since, self._taken = unsent, now, False
            return False
        return now - self._unsent_since > self._api.send_timeout


class Connections:
    """All of one server: accepted here, up to the caps, and looked at here."""

    def __init__(self, config: Config, server_state: ServerState, app_state: dict[str, Any], api: ApiSettings) -> None:
        self._config, self._server_state, self._app_state, self._api = config, server_state, app_state, api
        self._most = most_connections(api)
        self._refused: Counter[str] = Counter()
        self._told_at: dict[str, float] = {}
        if self._most < api.max_connections:
            log.warning(
                "fewer connections than configured", max_connections=api.max_connections, now=self._most,
                descriptors=descriptors.limit(),
            )  # fmt: skip

    async def accept(self, bound: socket.socket) -> None:
        """Until it is cancelled."""
        loop = asyncio.get_running_loop()
        bound.setblocking(False)
        while True:
            try:
                peer, address = await loop.sock_accept(bound)
            except OSError as error:
                if error.errno in descriptors.NONE_LEFT:
                    self._tell("no file descriptor is left for a connection: nobody is let in for a moment")
                    await asyncio.sleep(WITHOUT_DESCRIPTORS_S)
                else:  # whoever called has gone again
                    await asyncio.sleep(0)
                continue
            if why := self._why_not(address[0]):
                self._tell("connections refused", why=why)
                refuse(peer, why)
                await asyncio.sleep(0)
                continue
            with suppress(OSError):  # gone meanwhile
                await loop.connect_accepted_socket(self._connection, peer)

    async def watch(self) -> None:
        """Until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            for one in self._open():
                one.look(loop.time())

    def _connection(self) -> Connection:
        return Connection(self._config, self._server_state, self._app_state, self._api)

    def _open(self) -> list[Connection]:
        return cast("list[Connection]", list(self._server_state.connections))

    def _why_not(self, address: str) -> str:
        connections = self._open()
        if len(connections) >= self._most:
            return f"{self._most} connections are open (api.max_connections); come back in a moment."
        most, network = self._api.max_connections_per_address, network_of(address)
        if most is not None and sum(one.came_from == network for one in connections) >= most:
            return f"{most} connections are open from {network} (api.max_connections_per_address)."
        return ""

    def _tell(self, event: str, **more: str) -> None:
        """Now and then: whoever floods the server must not flood its log."""
        now = asyncio.get_running_loop().time()
        self._refused[event] += 1
        if now - self._told_at.get(event, -TOLD_EVERY_S) >= TOLD_EVERY_S:
            log.warning(event, times=self._refused.pop(event), **more)
            self._told_at[event] = now


def refuse(peer: socket.socket, why: str) -> None:
    """Say so and close, without waiting for anything."""
    with suppress(OSError), peer:
        peer.setblocking(False)
        peer.send(plain_problem(503, why, retry_after_s=5))
        peer.shutdown(socket.SHUT_WR)
        peer.recv(65_536)  # what is closed unread is reset, and the answer may be lost
