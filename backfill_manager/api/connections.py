"""Connections: how many there may be, and how long each may keep the server waiting.

    accept ─► above a limit: 503 and closed ─► head within `header_timeout` ─► body within `body_timeout` (408, by
           `middleware`) ─► the client reads the response within `send_timeout` ─► idle for KEEP_ALIVE_S: closed

Each connection takes a file descriptor of this process, which may be a manager's. So all connections together get half of
the descriptors at most, whatever is configured. Without a free descriptor nothing is accepted for a while: clients wait in
the backlog.

A response that takes long, or has no end (`/events`), has no deadline, as long as the client reads what is sent.
"""

from __future__ import annotations

import asyncio
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

from backfill_manager import file_descriptors
from backfill_manager.api.client_addresses import is_in, network_of
from backfill_manager.api.errors import PROBLEM_JSON, problem
from backfill_manager.api.middleware import MAX_HEAD_BYTES
from backfill_manager.logging import get_logger
from backfill_manager.settings import ApiSettings

CHECK_INTERVAL_S: Final = 1.0
NO_DESCRIPTORS_PAUSE_S: Final = 1.0
KEEP_ALIVE_S: Final = 5  # without a request
GRACE_S: Final = 5.0  # for the 408 that the application sends when a body is late
MIN_READ_BYTES: Final = 16_384  # of a response, within `send_timeout`: with less the client does not read
LOG_INTERVAL_S: Final = 60.0  # of the same event

log = get_logger("api")


def max_connections(api: ApiSettings) -> int:
    """The configured number, but at most half of this process's descriptors: the rest is for the state and for tasks."""
    return max(1, min(api.max_connections, file_descriptors.limit() // 2))


def raw_problem(status: int, detail: str, *, retry_after_s: int | None = None) -> bytes:
    """A problem document as a whole HTTP response, for a connection from which no request was read."""
    body = json.dumps(problem("", status, detail)).encode()
    head = [
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", f"Content-Type: {PROBLEM_JSON}",
        f"Content-Length: {len(body)}", "Connection: close", "Cache-Control: no-store",
    ]  # fmt: skip
    if retry_after_s is not None:
        head.append(f"Retry-After: {retry_after_s}")
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


class Connection(H11Protocol):
    """uvicorn's connection with deadlines, which `check` enforces once a second."""

    def __init__(self, config: Config, server_state: ServerState, app_state: dict[str, Any], api: ApiSettings) -> None:
        super().__init__(config, server_state, app_state)
        self._api = api
        self.network = ""
        self._phase: tuple[str, object] | None = None
        self._phase_since = 0.0
        self._unsent, self._unsent_since = 0, 0.0
        self._was_drained = False  # since the last check

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.network = network_of(self.client[0] if self.client else "")
        self._phase, self._phase_since = self._current_phase(), self.loop.time()

    def resume_writing(self) -> None:
        self._was_drained = True
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Called for bytes that are not HTTP, and for a head that is too large."""
        detail = f"This is not an HTTP/1.1 request, or its head is larger than {MAX_HEAD_BYTES:,} bytes."
        self.transport.write(raw_problem(400, detail))
        self.transport.close()

    def check(self, now: float) -> None:
        """Closes the connection when a deadline has passed."""
        if self._is_stalled(now):
            self.transport.abort()
            return
        phase = self._current_phase()
        if phase != self._phase:
            self._phase, self._phase_since = phase, now
        if phase is None or self.transport.is_closing():
            return
        waited = now - self._phase_since
        if phase[0] == "head" and waited > self._api.header_timeout:
            if self.conn.trailing_data[0]:
                late = f"The request's head did not arrive within {self._api.header_timeout:g} s (api.header_timeout)."
                self.transport.write(raw_problem(408, late))
            self.transport.close()
        elif phase[0] == "body" and waited > self._api.body_timeout + GRACE_S:
            self.transport.abort()

    def _current_phase(self) -> tuple[str, object] | None:
        """What the client has to send, and of which request. None: nothing, or uvicorn itself waits for it (keep-alive)."""
        phase = {h11.IDLE: "head", h11.SEND_BODY: "body"}.get(self.conn.their_state)
        return None if phase is None or self.timeout_keep_alive_task is not None else (phase, self.cycle)

    def _is_stalled(self, now: float) -> bool:
        """True when the client has not read what was sent to it for `send_timeout`."""
        unsent = self.transport.get_write_buffer_size()
        if not unsent or self._was_drained or not self._unsent or unsent <= self._unsent - MIN_READ_BYTES:
            self._unsent, self._unsent_since, self._was_drained = unsent, now, False
            return False
        return now - self._unsent_since > self._api.send_timeout


class Connections:
    """All connections of one server: accepts them, up to the limits, and checks their deadlines."""

    def __init__(self, config: Config, server_state: ServerState, app_state: dict[str, Any], api: ApiSettings) -> None:
        self._config, self._server_state, self._app_state, self._api = config, server_state, app_state, api
        self._max = max_connections(api)
        self._unlogged: Counter[str] = Counter()
        self._logged_at: dict[str, float] = {}
        if self._max < api.max_connections:
            log.warning(
                "fewer connections than configured", max_connections=api.max_connections, now=self._max,
                descriptors=file_descriptors.limit(),
            )  # fmt: skip

    async def accept(self, listener: socket.socket) -> None:
        """Runs until it is cancelled."""
        loop = asyncio.get_running_loop()
        listener.setblocking(False)
        while True:
            try:
                peer, address = await loop.sock_accept(listener)
            except OSError as error:
                if error.errno in file_descriptors.NO_DESCRIPTOR_ERRNOS:
                    self._log("no free file descriptor: no connections are accepted for a moment")
                    await asyncio.sleep(NO_DESCRIPTORS_PAUSE_S)
                else:  # the client has gone again
                    await asyncio.sleep(0)
                continue
            if reason := self._refusal(address[0]):
                self._log("connections refused", reason=reason)
                refuse(peer, reason)
                await asyncio.sleep(0)
                continue
            with suppress(OSError):  # the client has gone meanwhile
                await loop.connect_accepted_socket(
                    lambda: Connection(self._config, self._server_state, self._app_state, self._api), peer
                )

    async def watch(self) -> None:
        """Runs until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            for connection in self._open():
                connection.check(loop.time())

    def _open(self) -> list[Connection]:
        return cast("list[Connection]", list(self._server_state.connections))

    def _refusal(self, address: str) -> str:
        """Why a connection from this address is refused; empty when it is not."""
        connections = self._open()
        if len(connections) >= self._max:
            return f"{self._max} connections are open (api.max_connections); try again in a moment."
        limit, network = self._api.max_connections_per_address, network_of(address)
        if is_in(address, self._api.trusted_proxies):  # they connect for many; `ClientLimits` counts these
            return ""
        if limit is not None and sum(one.network == network for one in connections) >= limit:
            return f"{limit} connections are open from {network} (api.max_connections_per_address)."
        return ""

    def _log(self, event: str, **more: str) -> None:
        """Logs an event once in `LOG_INTERVAL_S`, with its count: a flood of connections must not flood the log."""
        now = asyncio.get_running_loop().time()
        self._unlogged[event] += 1
        if now - self._logged_at.get(event, -LOG_INTERVAL_S) >= LOG_INTERVAL_S:
            log.warning(event, times=self._unlogged.pop(event), **more)
            self._logged_at[event] = now


def refuse(peer: socket.socket, reason: str) -> None:
    """Sends `503` and closes the connection, without waiting for anything."""
    with suppress(OSError), peer:
        peer.setblocking(False)
        peer.send(raw_problem(503, reason, retry_after_s=5))
        peer.shutdown(socket.SHUT_WR)
        peer.recv(65_536)  # closing with unread data resets the connection, and the response may be lost
