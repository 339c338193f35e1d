"""`ClientLimits`: how many requests a second, and how many at once, each client may send; `429` above that.

A client is a user at an address for the rate, and a user wherever they are for requests at once. Without a valid token it is the
address (of IPv6: its network), and requests with a wrong token are counted apart: they take nothing from those without one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from backfill_manager.api.auth import User, fail_login, identify, sent_token, sha256_of
from backfill_manager.api.client_addresses import client_address, network_of
from backfill_manager.api.connections import max_connections
from backfill_manager.api.context import AppContext
from backfill_manager.api.errors import error_response, page_or_problem
from backfill_manager.api.middleware import LOGIN_PATH, Middleware
from backfill_manager.api.token_buckets import TokenBuckets
from backfill_manager.errors import Forbidden, RateLimited, Unauthenticated

BURST_S: Final = 3.0  # the requests of so many seconds may come at once


class ClientLimits(Middleware):
    def __init__(self, app: ASGIApp, *, context: AppContext) -> None:
        super().__init__(app)
        api = context.settings.api
        self._context, self._per_second = context, api.requests_per_second
        self._rate = TokenBuckets(context.clock, per_second=self._per_second, at_once=self._per_second * BURST_S)
        self._max_at_once = max(1, min(api.max_concurrent_requests, max_connections(api) // 2))
        self._at_once: Counter[str] = Counter()  # by client

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        address = client_address(request)
        user, wrong_token = self._user(request)
        client = f"user {user.name}" if user else network_of(address)
        try:
            if wrong_token is not None:
                self._context.failed_logins.check(address, sha256_of(wrong_token))
                # Whatever the response is: of an address that needs no token, it may tell whether this is one.
                fail_login(self._context, request, wrong_token)
            # The token of a login is in its body; `open_session` checks and counts it.
            if user or (scope["method"], scope["path"]) != ("POST", LOGIN_PATH):
                self._take((client, network_of(address), wrong_token is not None), address)
            if self._at_once[client] >= self._max_at_once:
                raise RateLimited(
                    f"{self._max_at_once} requests of {client} are in progress (api.max_concurrent_requests); try again when "
                    "one of them has ended."
                )
        except RateLimited as error:
            response = await page_or_problem(request, error_response(scope["path"], error), str(error))
            return await response(scope, receive, send)

        self._at_once[client] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._at_once[client] -= 1
            if not self._at_once[client]:
                del self._at_once[client]

    def _user(self, request: Request) -> tuple[User | None, str | None]:
        """The user, or the wrong token that was sent."""
        try:
            return identify(self._context, request), None
        except Unauthenticated:
            return None, sent_token(request)
        except Forbidden:  # no token is configured
            return None, None

    def _take(self, key: Hashable, address: str) -> None:
        if not self._rate.take(key):
            raise RateLimited(
                f"More than {self._per_second:g} requests a second from {address}; try again in a second."
            )
