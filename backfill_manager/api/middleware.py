"""ASGI middleware: security headers, limits of size and time for requests, HEAD, and a log of changes.

As plain ASGI, so that streams stay streams.
"""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote, unquote

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backfill_manager.api.errors import page_or_problem, problem_response
from backfill_manager.clock import Clock
from backfill_manager.logging import get_logger
from backfill_manager.store.refresh_once import refresh_once

# Scripts, styles and fonts are this server's files; nothing inline, no framing.
CONTENT_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; manifest-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}  # fmt: skip
CLOSE: Final = {"Connection": "close"}
BODY_HEADERS: Final = (b"content-length", b"content-type", b"transfer-encoding")
EVENTS_PATH: Final = "/api/v1/events"
LOGIN_PATH: Final = "/login"
MAX_LOGIN_BODY_BYTES: Final = 10_000  # anybody may send one, as often as they like
MAX_TOTAL_BODY_BYTES: Final = 50_000_000  # of all requests together
MAX_HEAD_BYTES: Final = 65_536  # of a request: address and headers
MAX_LOGGED_LENGTH: Final = 500  # characters of a path


class Middleware(ABC):
    """Base of the middleware here: everything but HTTP passes through."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self.handle(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    @abstractmethod
    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one HTTP request."""


def on_start(send: Send, observe: Callable[[Message], None]) -> Send:
    """`send`, with `observe` called for the message that starts the response (status and headers)."""

    async def send_observed(message: Message) -> None:
        if message["type"] == "http.response.start":
            observe(message)
        await send(message)

    return send_observed


class PublicPath(Middleware):
    """Takes the path of `api.public_url` off each request, so that all that follows knows paths without it, and adds it to
    `Location`. Pages add it to their own links. A request without it is served as well: by the server's own address."""

    def __init__(self, app: ASGIApp, *, path: str) -> None:
        super().__init__(app)
        self._quoted, self._path = path, unquote(path)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        def add_path(message: Message) -> None:
            headers = MutableHeaders(scope=message)
            if re.match(r"/(?!/)", headers.get("location", "")):
                headers["location"] = self._quoted + headers["location"]

        if self._path:
            path, raw = scope["path"], scope.get("raw_path") or b""
            if path == self._path or path.startswith(f"{self._path}/"):
                rest, quoted = path[len(self._path) :] or "/", self._quoted.encode()
                raw = raw[len(quoted) :] or b"/" if raw.startswith(quoted) else quote(rest).encode()
                scope = {**scope, "path": rest, "raw_path": raw}
            send = on_start(send, add_path)
        await self._app(scope, receive, send)


class SecurityHeaders(Middleware):
    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        def add_headers(message: Message) -> None:
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("Cache-Control", "no-store")
            if scope.get("scheme") == "https":
                headers.setdefault("Strict-Transport-Security", "max-age=31536000")

        await self._app(scope, receive, on_start(send, add_headers))


class BodyLimit(Middleware):
    """`413` for a body that is larger than this server accepts; `408` for one that does not arrive in time; `400` for one of
    two lengths; `431` for a head that is too large; `503` when the bodies of all requests are too large together. Each
    closes the connection: the rest of the body is not read."""

    def __init__(self, app: ASGIApp, *, max_bytes: int, timeout_s: float) -> None:
        super().__init__(app)
        self._max_bytes, self._timeout_s = max_bytes, timeout_s
        self._held = 0  # bytes of the bodies of all current requests
        self._max_held = max(max_bytes, MAX_TOTAL_BODY_BYTES)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        head = len(scope["query_string"]) + len(scope["path"])
        if head + sum(len(name) + len(value) for name, value in scope["headers"]) > MAX_HEAD_BYTES:
            detail = f"Address and headers are larger than {MAX_HEAD_BYTES:,} bytes."
            return await self._refuse(431, detail, scope, receive, send)
        headers = Headers(scope=scope)
        if "transfer-encoding" in headers and ("content-length" in headers or scope.get("http_version") == "1.0"):
            # A proxy may go by the other header, and take the rest of the body for another request (RFC 9112, 6.1).
            detail = "A request has Content-Length or, in HTTP/1.1, Transfer-Encoding: not both."
            return await self._refuse(400, detail, scope, receive, send)
        max_bytes = min(self._max_bytes, MAX_LOGIN_BODY_BYTES) if scope["path"] == LOGIN_PATH else self._max_bytes
        too_large = f"The body is larger than this server accepts ({max_bytes:,} bytes)."
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length[:20]) > max_bytes:
            return await self._refuse(413, too_large, scope, receive, send)
        received, complete, responding = 0, False, False
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._timeout_s

        async def receive_limited() -> Message:
            nonlocal received, complete
            if complete:  # the only message left is the disconnect, at any time
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), max(deadline - clock(), 0.001))
            except asyncio.TimeoutError:
                # The body is not needed; `connections` closes the connection, or it ends with the response.
                if responding:
                    complete = True
                    return await receive()
                detail = f"The request's body did not arrive within {self._timeout_s:g} s (api.body_timeout)."
                raise HTTPException(408, detail, CLOSE) from None
            complete = not message.get("more_body", False)
            size = len(message.get("body", b""))
            received, self._held = received + size, self._held + size
            if received > max_bytes:
                raise HTTPException(413, too_large, CLOSE)
            if self._held > self._max_held:
                detail = f"The bodies of all requests together are more than {self._max_held:,} bytes; try again in a moment."
                raise HTTPException(503, detail, {**CLOSE, "Retry-After": "5"})
            return message

        def started(_: Message) -> None:
            nonlocal responding
            responding = True

        try:
            await self._app(scope, receive_limited, on_start(send, started))
        finally:
            self._held -= received

    @staticmethod
    async def _refuse(status: int, detail: str, scope: Scope, receive: Receive, send: Send) -> None:
        problem = problem_response(scope["path"], status, detail, headers=CLOSE)
        await (await page_or_problem(Request(scope), problem, detail))(scope, receive, send)


class HeadAsGet(Middleware):
    """Answers `HEAD` as `GET`, without the body. Not for events, whose stream has no end."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "HEAD" or scope["path"] == EVENTS_PATH:
            return await self._app(scope, receive, send)

        async def send_without_body(message: Message) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        await self._app({**scope, "method": "GET"}, receive, send_without_body)


class OneLook(Middleware):
    """Has each table of the state looked at once for a response."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        with refresh_once():
            await self._app(scope, receive, send)


class ChangeLog(Middleware):
    """Logs every change and every failure; no query, header or body, as these may hold secrets."""

    def __init__(self, app: ASGIApp, *, clock: Clock) -> None:
        super().__init__(app)
        self._clock = clock
        self._log = get_logger("api")

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        started, response = self._clock.monotonic(), dict[str, Any](status=500)
        try:
            await self._app(scope, receive, on_start(send, response.update))
        finally:
            if scope["method"] not in ("GET", "HEAD", "OPTIONS") or response["status"] >= 500:
                user = scope.get("state", {}).get("user")
                self._log.info(
                    "http request", method=scope["method"], path=scope["path"][:MAX_LOGGED_LENGTH],
                    status=response["status"], by=user.name if user else None,
                    address=(scope.get("client") or ("",))[0], ms=round((self._clock.monotonic() - started) * 1000),
                )  # fmt: skip
