"""Sessions of browsers: a signed cookie names the token's owner, and a session that was logged out is remembered.

The signature is checked without any memory of the server. Only what was logged out is kept, as an empty file for each in a folder
beside the state (in this user's cache, where the state is no folder) for as long as its cookie would be valid: servers
over one folder agree, and so does one that starts again.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fastapi import Request
from itsdangerous import BadSignature, URLSafeTimedSerializer
from starlette.responses import Response

from backfill_manager.errors import StateError
from backfill_manager.settings import TokenSettings
from backfill_manager.store.uri import canonical_place, is_local
from backfill_manager.user_cache import cache_folder

if TYPE_CHECKING:
    from backfill_manager.api.context import AppContext

COOKIE: Final = "bfm_session"
SESSION_S: Final = 12 * 3600
FOLDER: Final = "ended_sessions"


@dataclass(frozen=True)
class Session:
    owner: TokenSettings
    csrf: str

    @property
    def id(self) -> str:
        return hashlib.sha256(self.csrf.encode()).hexdigest()[:32]


class EndedSessions:
    """Which sessions were logged out."""

    def __init__(self, state_root: str) -> None:
        state = hashlib.sha256(canonical_place(state_root).encode()).hexdigest()[:12]
        self._state = Path(state_root).expanduser().absolute() if is_local(state_root) else None
        self._in_cache = cache_folder() / FOLDER / state

    @property
    def _folder(self) -> Path:
        """Of new ones: a server may be there before its state, and then has the cache only."""
        return self._state / FOLDER if self._state and self._state.is_dir() else self._in_cache

    def __contains__(self, session: Session) -> bool:
        return any(os.path.exists(folder / session.id) for folder in {self._folder, self._in_cache})

    def add(self, session: Session) -> None:
        """Remembers it, and forgets those whose cookies are no longer valid. `StateError` when it can't be written."""
        file = self._folder / session.id
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file.touch(mode=0o600)
            oldest = file.stat().st_mtime - SESSION_S
        except OSError as error:
            raise StateError(f"You are not logged out: {file} can't be written: {error.strerror}.") from None
        for other in file.parent.iterdir():
            with suppress(FileNotFoundError):  # another server was quicker
                if other.stat().st_mtime < oldest:
                    other.unlink()


def _signer(context: AppContext) -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(context.secret, salt="bfm.session", signer_kwargs={"digest_method": hashlib.sha256})


def start_session(context: AppContext, request: Request, response: Response, owner: TokenSettings) -> Session:
    """Sets the cookie of a new session on `response`."""
    session = Session(owner, secrets.token_urlsafe(24))
    # The digest ties the session to the token: it ends when the token leaves the configuration.
    value = _signer(context).dumps([owner.name, owner.sha256[:16], session.csrf])
    response.set_cookie(
        COOKIE,
        str(value),
        max_age=SESSION_S,
        path=_path(context),
        httponly=True,
        samesite="lax",
        secure=_is_https(request),
    )
    return session


def find_session(context: AppContext, request: Request) -> Session | None:
    """The session of a request, unless it, or its token, has ended."""
    try:
        name, digest, csrf = _signer(context).loads(request.cookies.get(COOKIE, ""), max_age=SESSION_S)
    except (BadSignature, ValueError, TypeError):
        return None
    for token in context.settings.api.tokens:
        if token.name == name and hmac.compare_digest(token.sha256[:16], str(digest)):
            session = Session(token, str(csrf))
            has_ended = token.is_expired(context.clock.now()) or session in context.ended_sessions
            return None if has_ended else session
    return None


def end_session(context: AppContext, request: Request, response: Response) -> Session | None:
    """Ends the session of a request, if it has one, here and in the browser."""
    session = find_session(context, request)
    if session is not None:
        context.ended_sessions.add(session)
    response.delete_cookie(COOKIE, path=_path(context), httponly=True, samesite="lax", secure=_is_https(request))
    return session


def _path(context: AppContext) -> str:
    """Of the cookie: servers under several paths of one host have a session each."""
    return context.settings.api.path or "/"


def _is_https(request: Request) -> bool:
    """True also behind any proxy that says so: of several, the first, which has the browser's connection. A client that
    forges the header only restricts its own cookie."""
    said = request.headers.get("x-forwarded-proto", "").partition(",")[0].strip().lower()
    return "https" in (request.url.scheme, said)
