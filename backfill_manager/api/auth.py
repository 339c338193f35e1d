"""Authentication (tokens, browser sessions) and authorization (roles).

Without configured tokens the server listens on loopback only, every client there is `operator`, and the `Host` must be a
loopback name, or any web page could reach it by a name of its own (DNS rebinding). With tokens, programs send
`Authorization: Bearer`, and browsers log in with a token and get a session in a signed cookie that no script can read.
Tokens are stored as SHA-256 and compared in constant time.

A browser sends its cookie, and reaches loopback, on behalf of any page. So a change must come from a page of this server
(`Origin`, `Sec-Fetch-Site`), and one in a session must carry the session's CSRF token as well.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import secrets
from dataclasses import dataclass
from operator import xor
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from fastapi import Depends, Request
from itsdangerous import BadSignature, URLSafeTimedSerializer
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from backfill_manager.api.context import AppContext, Context
from backfill_manager.api.errors import error_response
from backfill_manager.api.middleware import CLOSE, Middleware
from backfill_manager.errors import Forbidden, Unauthenticated
from backfill_manager.settings import TokenSettings

Role = Literal["viewer", "operator"]
COOKIE: Final = "bfm_session"
CSRF_HEADER: Final = "X-CSRF-Token"
CSRF_FIELD: Final = "csrf_token"
SESSION_S: Final = 12 * 3600
SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
MAX_TOKEN_LENGTH: Final = 1000


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
    """The configured token that this is. Compares all of them, so that the time taken tells nothing."""
    digest, owner = sha256_of(token[: MAX_TOKEN_LENGTH + 1]), None
    for configured in context.settings.api.tokens:
        if hmac.compare_digest(digest, configured.sha256):
            owner = configured
    return owner


def _signer(context: AppContext) -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(context.secret, salt="bfm.session", signer_kwargs={"digest_method": hashlib.sha256})


def open_session(context: AppContext, request: Request, response: Response, token: str) -> User:
    """Logs a browser in: sets its cookie on `response`. Raises `Unauthenticated` for a wrong token."""
    owner = token_owner(context, token)
    if owner is None:
        raise Unauthenticated("Invalid token; `bfm config token NAME` makes one.")
    csrf = secrets.token_urlsafe(24)
    # The digest ties the session to the token: it ends when the token leaves the configuration.
    value = _signer(context).dumps([owner.name, owner.sha256[:16], csrf])
    response.set_cookie(
        COOKIE, str(value), max_age=SESSION_S, path="/", httponly=True, samesite="lax", secure=_is_https(request)
    )
    return User(owner.name, owner.role, "session", csrf)


def close_session(request: Request, response: Response) -> None:
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="lax", secure=_is_https(request))


def _session(context: AppContext, request: Request) -> User | None:
    try:
        name, digest, csrf = _signer(context).loads(request.cookies.get(COOKIE, ""), max_age=SESSION_S)
    except (BadSignature, ValueError, TypeError):
        return None
    for token in context.settings.api.tokens:
        if token.name == name and hmac.compare_digest(token.sha256[:16], str(digest)):
            return User(token.name, token.role, "session", str(csrf))
    return None


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


def _is_https(request: Request) -> bool:
    """True also behind a proxy that terminates TLS and says so. A client that forges the header only restricts its own cookie."""
    return "https" in (request.url.scheme, request.headers.get("x-forwarded-proto", "").strip().lower())


def is_loopback(host: str) -> bool:
    """`localhost`, 127.x.x.x, ::1, also with a port or in brackets."""
    name = host.strip().lower()
    if name.startswith("["):
        name = name[1:].partition("]")[0]
    elif name.count(":") == 1:
        name = name.partition(":")[0]
    if name.rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def client_address(request: Request) -> str:
    """The peer's address, for the audit trail; `X-Forwarded-For` is not trusted."""
    return request.client.host if request.client else "unknown"


async def current_user(request: Request, context: Context) -> User:
    """The user of a request. Raises `Unauthenticated` (401) or `Forbidden` (403)."""
    user = _identify(context, request)
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
        user = _identify(context, request)
    except Unauthenticated:
        return None
    request.state.user = user
    return user


def _identify(context: AppContext, request: Request) -> User:
    if not context.settings.api.tokens:
        if not is_loopback(client_address(request)):
            raise Forbidden("Without configured tokens this server accepts connections from its own machine only.")
        if not is_loopback(request.headers.get("host", "")):
            raise Forbidden("Use the host name localhost or 127.0.0.1; other names need configured tokens.")
        return LOCAL
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme:
        owner = token_owner(context, token.strip()) if scheme.lower() == "bearer" else None
        if owner is None:
            raise Unauthenticated("Invalid token.")
        return User(owner.name, owner.role, "token")
    if (user := _session(context, request)) is None:
        raise Unauthenticated("A token is needed: send `Authorization: Bearer TOKEN`, or log in at /login.")
    return user


def check_origin(request: Request) -> None:
    """Refuses a change that a browser sends on behalf of a page of another site."""
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    if site not in (None, "same-origin", "none") or (origin is not None and not is_same_host(request, origin)):
        raise Forbidden("This change was sent by a page of another site.")


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
    """Refuses unauthenticated and cross-site changes before their body is read: else it would be held in memory, and parsed
    as JSON, before a handler could refuse. (Not for pages: the body of `/login` is what authenticates.)"""

    def __init__(self, app: ASGIApp, *, context: AppContext) -> None:
        super().__init__(app)
        self._context = context

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in SAFE and scope["path"].startswith("/api/"):
            request = Request(scope)
            try:
                if _identify(self._context, request).via != "token":
                    check_origin(request)
            except (Unauthenticated, Forbidden) as error:
                return await error_response(scope["path"], error, CLOSE)(scope, receive, send)
        await self._app(scope, receive, send)


Viewer = Annotated[User, Depends(current_user)]
Operator = Annotated[User, Depends(require_operator)]
