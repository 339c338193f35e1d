"""What is let in, and what every answer carries: rates, security headers, and a log of changes without secrets.

As plain ASGI, so that streams stay streams.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any, Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backfill_manager.api.errors import RateLimited, in_its_form, of_error, problem_response
from backfill_manager.clock import Clock
from backfill_manager.logging import get_logger

# Scripts, styles and fonts are our own files; nothing inline, nobody may frame us.
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
BURST_S: Final = 3.0  # so many seconds' worth of requests may come at once
WRONG_TOKEN_COSTS: Final = 50  # requests: whoever guesses is slowed down
MOST_ADDRESSES: Final = 10_000  # that are remembered; the one that was heard of longest ago goes first
ENDS_THE_CONNECTION: Final = {"Connection": "close"}
MOST_HELD: Final = 50_000_000  # bytes of the bodies of all requests together
LARGEST_HEAD: Final = 65_536  # bytes of a request before its body
LONGEST_LOGGED: Final = 500  # characters of a path

log = get_logger("api")


class SecurityHeaders:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
                if scope.get("scheme") == "https":
                    headers.setdefault("Strict-Transport-Security", "max-age=31536000")
            await send(message)

        await self._app(scope, receive, send_with_headers)


class RateLimit:
    """So many requests a second from one address, with some at once; `429` beyond."""

    def __init__(self, app: ASGIApp, *, clock: Clock, per_second: float) -> None:
        self._app, self._clock = app, clock
        self._per_second, self._most = per_second, per_second * BURST_S
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # address -> (requests left, at)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        client = scope.get("client")
        address = client[0] if client else ""
        if not self.take(address):
            error = RateLimited(
                f"More than {self._per_second:g} requests a second from {address}; come back in a second."
            )
            told = await in_its_form(Request(scope), of_error(scope["path"], error), str(error))
            await told(scope, receive, send)
            return

        async def send_and_see(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 401:
                self.take(address, WRONG_TOKEN_COSTS)
            await send(message)

        await self._app(scope, receive, send_and_see)

    def take(self, address: str, n: float = 1) -> bool:
        """True when there was still something left to take from."""
        now = self._clock.monotonic()
        left, at = self._left.pop(address, (self._most, now))
        left = min(self._most, left + (now - at) * self._per_second)
        self._left[address] = (left - n if left >= 1 else left, now)
        while len(self._left) > MOST_ADDRESSES:
            self._left.popitem(last=False)
        return left >= 1


class BodyLimit:
    """`413` for a body that is, or turns out to be, larger than this server takes; `408` for one that does not arrive in
    time; `431` for too much before the body; `503` when many come with large ones at once. Each ends the connection: what is
    left of the body is not read."""

    def __init__(self, app: ASGIApp, *, most: int, within_s: float) -> None:
        self._app, self._most, self._within_s = app, most, within_s
        self._held = 0  # bytes of the bodies of all requests that are being answered
        self._most_held = max(most, MOST_HELD)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        head = len(scope["query_string"]) + len(scope["path"])
        if head + sum(len(name) + len(value) for name, value in scope["headers"]) > LARGEST_HEAD:
            await self._refuse(
                431, f"Address and headers are larger than {LARGEST_HEAD:,} bytes.", scope, receive, send
            )
            return
        said = Headers(scope=scope).get("content-length", "0")
        if said.isdecimal() and int(said[:20]) > self._most:
            await self._refuse(413, self._told, scope, receive, send)
            return
        come, whole, answering = 0, False, False
        until = asyncio.get_running_loop().time() + self._within_s

        async def receive_and_count() -> Message:
            nonlocal come, whole
            if whole:  # nothing but the end of the connection can come, at any time
                return await receive()
            left = until - asyncio.get_running_loop().time()
            try:
                message = await asyncio.wait_for(receive(), max(left, 0.001))
            except asyncio.TimeoutError:
                if answering:  # it does not read on; the connection is cut (`connections`), or ends with the answer
                    whole = True
                    return await receive()
                told = f"The request's body did not arrive within {self._within_s:g} s (api.body_timeout)."
                raise HTTPException(408, told, ENDS_THE_CONNECTION) from None
            whole = not message.get("more_body", False)
            more = len(message.get("body", b""))
            come, self._held = come + more, self._held + more
            if come > self._most:
                raise HTTPException(413, self._told, ENDS_THE_CONNECTION)
            if self._held > self._most_held:
                told = f"The bodies of all requests together are more than {self._most_held:,} bytes; come back in a moment."
                raise HTTPException(503, told, {**ENDS_THE_CONNECTION, "Retry-After": "5"})
            return message

        async def send_and_see(message: Message) -> None:
            nonlocal answering
            answering = True
            await send(message)

        try:
            await self._app(scope, receive_and_count, send_and_see)
        finally:
            self._held -= come

    @property
    def _told(self) -> str:
        return f"The body is larger than this server takes ({self._most:,} bytes)."

    @staticmethod
    async def _refuse(status: int, detail: str, scope: Scope, receive: Receive, send: Send) -> None:
        document = problem_response(scope["path"], status, detail, headers=ENDS_THE_CONNECTION)
        told = await in_its_form(Request(scope), document, detail)
        await told(scope, receive, send)


class HeadAsGet:
    """`HEAD` is what `GET` would answer, without the body. Not for events, whose answer has no end."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD" or scope["path"].endswith("/events"):
            await self._app(scope, receive, send)
            return

        async def send_without_body(message: Message) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        await self._app({**scope, "method": "GET"}, receive, send_without_body)


class ChangeLog:
    """A line for every change that was asked for and every failure; no query, no header, no body: there secrets are."""

    def __init__(self, app: ASGIApp, *, clock: Clock) -> None:
        self._app, self._clock = app, clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, seen = self._clock.monotonic(), dict[str, Any](status=500)

        async def send_and_see(message: Message) -> None:
            if message["type"] == "http.response.start":
                seen["status"] = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_and_see)
        finally:
            if scope["method"] not in ("GET", "HEAD", "OPTIONS") or seen["status"] >= 500:
                person = scope.get("state", {}).get("person")
                log.info(
                    "asked", method=scope["method"], path=scope["path"][:LONGEST_LOGGED], status=seen["status"],
                    by=person.name if person else None, address=(scope.get("client") or ("",))[0],
                    ms=round((self._clock.monotonic() - begun) * 1000),
                )  # fmt: skip
