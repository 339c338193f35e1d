"""Authentication (tokens, browser sessions) and authorization (roles).

Without configured tokens the server listens on loopback only, every client there is `operator`, and the `Host` must be a
loopback name, or any web page could reach it by a name of its own (DNS rebinding). With tokens, programs send
`Authorization: Bearer`, and browsers log in with a token and get a session in a signed cookie that no script can read.
Tokens are stored as SHA-256 and compared in constant time.

A browser sends its cookie, and reaches loopback, on behalf of any page. So a change must come from a page of this server
(`Sec-Fetch-Site`, `Origin`), and one in a session must carry the session's CSRF token as well.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass
from operator import xor
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from fastapi import Depends, Request
from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backfill_manager.api.client_addresses import client_address, is_loopback
from backfill_manager.api.context import AppContext, Context
from backfill_manager.api.errors import error_response
from backfill_manager.api.middleware import BODY_HEADERS, CLOSE, LOGIN_PATH, Middleware, on_start
from backfill_manager.api.sessions import end_session, find_session, start_session
from backfill_manager.clock import format_instant
from backfill_manager.errors import Forbidden, Unauthenticated
from backfill_manager.logging import get_logger
from backfill_manager.settings import TokenSettings

Role = Literal["viewer", "operator"]
CSRF_HEADER: Final = "X-CSRF-Token"
CSRF_FIELD: Final = "csrf_token"
SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
MAX_TOKEN_LENGTH: Final = 1000
log = get_logger("api")


@dataclass(frozen=True)
class User:
    name: str
    role: Role
    via: Literal["token", "session", "loopback"]
    csrf: str = ""  # of a session

    @property
    def may_change(self) -> bool:
        return self.role == "operator"


LOCAL: Final = User("local", "operator", "loopback")


def sha256_of(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def token_owner(context: AppContext, token: str) -> TokenSettings | None:
    """The configured token that this is, expired or not. Compares all of them, so that the time taken tells nothing."""
    digest, owner = sha256_of(token[: MAX_TOKEN_LENGTH + 1]), None
    for configured in context.settings.api.tokens:
        if hmac.compare_digest(digest, configured.sha256):
            owner = configured
    return owner


def valid_token(context: AppContext, token: str) -> TokenSettings:
    """The same; raises `Unauthenticated` for one that is unknown or has expired."""
    owner = token_owner(context, token)
    if owner is None:
        raise Unauthenticated("Invalid token; `bfm config token NAME` makes one.")
    if owner.is_expired(context.clock.now()):
        raise Unauthenticated(
            f"The token of {owner.name} has expired ({format_instant(owner.expires)}); `bfm config token NAME` makes one."
        )
    return owner


def fail_login(context: AppContext, request: Request, token: str) -> None:
    """Counts and logs a token that was refused."""
    owner = token_owner(context, token)
    context.failed_logins.add(
        client_address(request),
        sha256_of(token),
        by=owner.name if owner else None,
        reason="expired" if owner else "unknown",
    )


def open_session(context: AppContext, request: Request, response: Response, token: str) -> User:
    """Logs a browser in: sets its cookie on `response`. Raises `Unauthenticated` for a wrong token, `RateLimited` after
    too many of them."""
    try:
        owner = valid_token(context, token)
    except Unauthenticated:
        context.failed_logins.check(client_address(request), sha256_of(token))
        fail_login(context, request, token)
        raise
    session = start_session(context, request, response, owner)
    log.info("login", by=owner.name, role=owner.role, address=client_address(request))
    return User(owner.name, owner.role, "session", session.csrf)


def close_session(context: AppContext, request: Request, response: Response) -> None:
    """Logs a browser out: its session ends on the server, too."""
    session = end_session(context, request, response)
    if session is not None:
        log.info("logout", by=session.owner.name, address=client_address(request))


def csrf_token(request: Request) -> str:
    """The CSRF token for a page's forms and headers; empty without a session. It is masked differently each time: in
    compressed pages, a constant secret can be guessed from their sizes (BREACH)."""
    user: User | None = getattr(request.state, "user", None)
    plain = user.csrf.encode() if user else b""
    pad = secrets.token_bytes(len(plain))
    return base64.urlsafe_b64encode(pad + bytes(map(xor, pad, plain))).decode()


def _unmasked(masked: str) -> bytes:
    """The secret; empty for text that is not a masked secret."""
    try:
        both = base64.b64decode(masked, altchars=b"-_", validate=True)
    except ValueError:
        return b""
    half = len(both) // 2
    return bytes(map(xor, both[:half], both[half:]))


async def current_user(request: Request, context: Context) -> User:
    """The user of a request. Raises `Unauthenticated` (401) or `Forbidden` (403)."""
    user = identify(context, request)
    if request.method not in SAFE:
        if user.via != "token":  # no browser adds an `Authorization` by itself
            check_origin(request)
        if user.via == "session":
            await _check_csrf(request, user)
    request.state.user = user
    return user


def user_or_none(context: AppContext, request: Request) -> User | None:
    """The user of a request, or None: for pages that redirect to the login."""
    try:
        user = identify(context, request)
    except Unauthenticated:
        return None
    request.state.user = user
    return user


def identify(context: AppContext, request: Request) -> User:
    """The user of a request, by token, session or loopback. Raises `Unauthenticated` or `Forbidden`."""
    if not context.settings.api.tokens:
        if not is_loopback(client_address(request)):
            raise Forbidden("Without configured tokens this server accepts connections from its own machine only.")
        if not is_loopback(request.headers.get("host", "")):
            raise Forbidden("Use the host name localhost or 127.0.0.1; other names need configured tokens.")
        return LOCAL
    if (token := sent_token(request)) is not None:
        owner = valid_token(context, token)
        return User(owner.name, owner.role, "token")
    if (session := find_session(context, request)) is None:
        raise Unauthenticated("A token is needed: send `Authorization: Bearer TOKEN`, or log in at /login.")
    return User(session.owner.name, session.owner.role, "session", session.csrf)


def sent_token(request: Request) -> str | None:
    """The token in the header `Authorization`; empty when that has another scheme, None without the header."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if not scheme:
        return None
    return token.strip() if scheme.lower() == "bearer" else ""


def check_origin(request: Request) -> None:
    """Refuses a change that a browser sends on behalf of a page of another site. `Sec-Fetch-Site` tells, which no page can set;
    a browser that leaves it out (older ones, and all at an `http` address by name) has sent `Origin`."""
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    if site in ("same-origin", "none") or (site is None and (origin is None or is_same_host(request, origin))):
        return
    host = request.headers.get("host", "")[:100]
    where = ""
    if site is None and origin is not None:
        where = f" It comes from {origin[:100]} and was sent to {host}: if these are one, a proxy must pass `Host` on as it is."
    raise Forbidden(f"This change was sent by a page of another site.{where}")


def is_same_host(request: Request, address: str) -> bool:
    """True when the URL `address` (an `Origin`, a `Referer`) is on the host of the request."""
    try:
        host = urlsplit(address).netloc.lower()
    except ValueError:
        return False
    return host != "" and host == request.headers.get("host", "").lower()


async def _check_csrf(request: Request, user: User) -> None:
    token: Any = request.headers.get(CSRF_HEADER)
    if token is None and "form" in request.headers.get("content-type", ""):
        if getattr(request, "_form", None) is None:  # FastAPI has read it already for a handler with fields
            await request.body()  # the request keeps it, so the handler can read it again
        token = (await request.form()).get(CSRF_FIELD)
    if not isinstance(token, str) or not hmac.compare_digest(_unmasked(token), user.csrf.encode()):
        raise Forbidden(f"A change from a browser's session needs its CSRF token ({CSRF_HEADER} or {CSRF_FIELD}).")


async def require_operator(user: Annotated[User, Depends(current_user)]) -> User:
    if not user.may_change:
        raise Forbidden(f"{user.name} has read-only access; changes need a token with the role operator.")
    return user


class RejectUnauthenticated(Middleware):
    """Refuses unauthenticated and cross-site changes before their body is read: else it would be held in memory, and parsed,
    before a handler could refuse. A page refuses them itself, without a body. (Not `/login`: its body is what authenticates.)"""

    def __init__(self, app: ASGIApp, *, context: AppContext) -> None:
        super().__init__(app)
        self._context = context

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in SAFE and scope["path"] != LOGIN_PATH:
            request = Request(scope)
            try:
                if identify(self._context, request).via != "token":
                    check_origin(request)
            except (Unauthenticated, Forbidden) as error:
                if scope["path"].startswith("/api/"):
                    return await error_response(scope["path"], error, CLOSE)(scope, receive, send)
                return await self._app(*_without_body(scope, receive, send))
        await self._app(scope, receive, send)


def _without_body(scope: Scope, receive: Receive, send: Send) -> tuple[Scope, Receive, Send]:
    """The request as one without a body, whose connection is closed after the response."""
    messages: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive_nothing() -> Message:
        return messages.pop() if messages else await receive()

    def close(message: Message) -> None:
        MutableHeaders(scope=message).update(CLOSE)

    headers = [one for one in scope["headers"] if one[0] not in BODY_HEADERS]
    return {**scope, "headers": headers}, receive_nothing, on_start(send, close)


Viewer = Annotated[User, Depends(current_user)]
Operator = Annotated[User, Depends(require_operator)]
