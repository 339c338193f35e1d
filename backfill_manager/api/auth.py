"""Who asks, and what they may do.

Without configured tokens the server is for the person at this machine: it listens on loopback only, whoever comes from
there is `operator`, and the `Host` must be a loopback name, or any web page could reach it by a name of its own (DNS
rebinding). With tokens there are two ways in: `Authorization: Bearer` for programs, and for browsers a session, opened
with a token, in a signed cookie that no script can read. A token is known by its SHA-256 and looked for in constant time.

A browser sends its cookie, and reaches loopback, whichever page makes it. So a change must come from a page of ours
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

from backfill_manager.api.context import AppContext, HouseOf
from backfill_manager.api.errors import Forbidden, Unauthenticated, of_error
from backfill_manager.settings import TokenSettings

Role = Literal["viewer", "operator"]
COOKIE: Final = "bfm_session"
CSRF_HEADER: Final = "X-CSRF-Token"
CSRF_FIELD: Final = "csrf_token"
SESSION_S: Final = 12 * 3600
SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
LONGEST_TOKEN: Final = 1000  # characters


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


# -- tokens -----------------------------------------------------------------------------------------------------------


def sha256_of(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def owner_of(house: AppContext, token: str) -> TokenSettings | None:
    """Every configured token is compared, whether or not one has fitted already."""
    digest, found = sha256_of(token[: LONGEST_TOKEN + 1]), None
    for known in house.settings.api.tokens:
        if hmac.compare_digest(digest, known.sha256):
            found = known
    return found


# -- sessions ---------------------------------------------------------------------------------------------------------


def _signer(house: AppContext) -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(house.secret, salt="bfm.session", signer_kwargs={"digest_method": hashlib.sha256})


def open_session(house: AppContext, request: Request, response: Response, token: str) -> User:
    """Log a browser in: its cookie goes into `response`. `Unauthenticated` for a wrong token."""
    owner = owner_of(house, token)
    if owner is None:
        raise Unauthenticated("This token is none of those that are configured; `bfm config token NAME` makes one.")
    csrf = secrets.token_urlsafe(24)
    # The digest ties it to the token: with that gone from the configuration, the session is over.
    value = _signer(house).dumps([owner.name, owner.sha256[:16], csrf])
    response.set_cookie(
        COOKIE, str(value), max_age=SESSION_S, path="/", httponly=True, samesite="lax", secure=_is_https(request)
    )
    return User(owner.name, owner.role, "session", csrf)


def close_session(request: Request, response: Response) -> None:
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="lax", secure=_is_https(request))


def _session(house: AppContext, request: Request) -> User | None:
    value = request.cookies.get(COOKIE)
    if not value:
        return None
    try:
        name, digest, csrf = _signer(house).loads(value, max_age=SESSION_S)
    except (BadSignature, ValueError, TypeError):
        return None
    for token in house.settings.api.tokens:
        if token.name == name and hmac.compare_digest(token.sha256[:16], str(digest)):
            return User(token.name, token.role, "session", str(csrf))
    return None


def csrf_token(request: Request) -> str:
    """For pages: what a form or a header of theirs must carry. Empty where there is no session. Another text each time:
    in pages that are compressed, a secret that stays the same can be guessed from their sizes (BREACH)."""
    person: User | None = getattr(request.state, "person", None)
    return _masked(person.csrf) if person and person.csrf else ""


def _masked(secret: str) -> str:
    plain = secret.encode()
    pad = secrets.token_bytes(len(plain))
    return base64.urlsafe_b64encode(pad + bytes(map(xor, pad, plain))).decode()


def _unmasked(given: str) -> bytes:
    """Empty for what no page was given."""
    try:
        both = base64.b64decode(given, altchars=b"-_", validate=True)
    except ValueError:
        return b""
    half = len(both) // 2
    return bytes(map(xor, both[:half], both[half:]))


def _is_https(request: Request) -> bool:
    """Also behind a proxy that has TLS and says so. Whoever makes that up only keeps their own cookie off plain HTTP."""
    return "https" in (request.url.scheme, request.headers.get("x-forwarded-proto", "").strip().lower())


# -- who ----------------------------------------------------------------------------------------------------------------


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
    """For the audit trail. The peer's own address; a proxy's `X-Forwarded-For` could say anything."""
    return request.client.host if request.client else "unknown"


async def person_of(request: Request, house: HouseOf) -> User:
    """Whoever asks. `Unauthenticated` (401) or `Forbidden` (403)."""
    person = _known(house, request)
    if request.method not in SAFE:
        if person.via != "token":  # no browser adds an `Authorization` by itself
            check_origin(request)
        if person.via == "session":
            await _check_csrf(request, person)
    request.state.person = person
    return person


def known_or_none(house: AppContext, request: Request) -> User | None:
    """Who asks, for pages that send strangers to the login."""
    try:
        person = _known(house, request)
    except Unauthenticated:
        return None
    request.state.person = person
    return person


def _known(house: AppContext, request: Request) -> User:
    if not house.settings.api.tokens:
        return _at_this_machine(request)
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme:
        owner = owner_of(house, token.strip()) if scheme.lower() == "bearer" else None
        if owner is None:
            raise Unauthenticated("This token is none of those that are configured.")
        return User(owner.name, owner.role, "token")
    person = _session(house, request)
    if person is None:
        raise Unauthenticated("A token is needed: send `Authorization: Bearer TOKEN`, or log in at /login.")
    return person


def _at_this_machine(request: Request) -> User:
    if not is_loopback(client_address(request)):
        raise Forbidden("Without configured tokens this server answers its own machine only.")
    if not is_loopback(request.headers.get("host", "")):
        raise Forbidden("Ask for it by the name localhost or 127.0.0.1; other names need configured tokens.")
    return LOCAL


def check_origin(request: Request) -> None:
    """A change that a browser sends for a page of another site is refused."""
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    foreign = site is not None and site not in ("same-origin", "none")
    if origin is not None:
        foreign |= not is_of_ours(request, origin)
    if foreign:
        raise Forbidden("This change was sent by a page of another site.")


def is_of_ours(request: Request, address: str) -> bool:
    """Whether `address` (of an `Origin`, a `Referer`) is on the host that was asked; not so for what is no address."""
    try:
        host = urlsplit(address).netloc.lower()
    except ValueError:
        return False
    return host != "" and host == request.headers.get("host", "").lower()


async def _check_csrf(request: Request, person: User) -> None:
    given: Any = request.headers.get(CSRF_HEADER)
    if given is None and "form" in request.headers.get("content-type", ""):
        if getattr(request, "_form", None) is None:  # FastAPI has read it already for a handler with fields
            await request.body()  # kept by the request: the handler can read it again
        given = (await request.form()).get(CSRF_FIELD)
    if not isinstance(given, str) or not hmac.compare_digest(_unmasked(given), person.csrf.encode()):
        raise Forbidden(f"A change from a browser's session needs its CSRF token ({CSRF_HEADER} or {CSRF_FIELD}).")


async def operator_of(person: Annotated[User, Depends(person_of)]) -> User:
    if not person.may_change:
        raise Forbidden(f"{person.name} may look, and change nothing: that takes a token with the role operator.")
    return person


class RefuseStrangers:
    """Changes by whoever is not known, or from another site's page, are refused before their body is read: it would be held in
    memory, and read as JSON, before a handler could say so. (Pages are not meant: the body of `/login` is what makes somebody
    known.)"""

    def __init__(self, app: ASGIApp, *, house: AppContext) -> None:
        self._app, self._house = app, house

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] not in SAFE and scope["path"].startswith("/api/"):
            request = Request(scope)
            try:
                if _known(self._house, request).via != "token":
                    check_origin(request)
            except (Unauthenticated, Forbidden) as error:
                told = of_error(scope["path"], error)
                told.headers["Connection"] = "close"
                await told(scope, receive, send)
                return
        await self._app(scope, receive, send)


Viewer = Annotated[User, Depends(person_of)]
Operator = Annotated[User, Depends(operator_of)]
