"""One server: sending, trying again when the line breaks, and reading what comes back.

A change carries an `Idempotency-Key`, the same one in every try, so that it has its effect once whether or not the first
try arrived. What the server itself refuses is not tried again, but for "come back later" (429, or 503 with a time).
"""

from __future__ import annotations

import ipaddress
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import httpx
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt

from backfill_manager.client.errors import Unreachable, error_of
from backfill_manager.errors import BackfillManagerError, InvalidInput

PREFIX: Final = "/api/v1"
ATTEMPTS: Final = 4
FIRST_WAIT_S: Final = 0.2  # then twice as long each time
LONGEST_WAIT_S: Final = 10.0
LONGEST_SILENCE_S: Final = 40.0  # of a stream; the server gives a sign of life every 15 s
FROM_A_PROXY: Final = frozenset({502, 504})  # between us and the server, and it may be back in a moment


class _TryAgain(Exception):
    """This try came to nothing; `error` is what to raise when it was the last."""

    def __init__(self, error: BackfillManagerError, after_s: float | None = None) -> None:
        super().__init__(str(error))
        self.error, self.after_s = error, after_s


class Connection:
    def __init__(
        self, url: str, token: str | None, timeout: float, pause: Callable[[float], None] = time.sleep
    ) -> None:
        """`timeout` in seconds: of connecting, and of each silence of the server."""
        self.url = _checked(url)
        self.timeout = timeout
        self._pause = pause
        headers = {"Accept": "application/json", "User-Agent": "backfill_manager.client"}
        if token:
            headers["Authorization"] = f"Bearer {_sendable(token)}"
        # A proxy of the environment is no way to one's own machine.
        self._http = httpx.Client(
            base_url=self.url, headers=headers, timeout=timeout, trust_env=not _is_loopback(self.url)
        )

    def close(self) -> None:
        self._http.close()

    def read(self, path: str, params: Mapping[str, Any] | None = None, *, silence_s: float = 0.0) -> Any:
        """`silence_s`: how long the server may take to answer, beside the usual."""
        return self._document(self._send("GET", path, params=_said(params), timeout=self.timeout + silence_s))

    def read_if_changed(self, path: str, etag: str | None) -> tuple[Any, str | None] | None:
        """The document and its tag; None when it is still the one of `etag`."""
        answer = self._send("GET", path, headers={"If-None-Match": etag} if etag else {})
        return None if answer.status_code == 304 else (self._document(answer), answer.headers.get("etag"))

    def change(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        *,
        wait: float = 0.0,
        silence_s: float = 0.0,
        key: str | None = None,
    ) -> Any:
        """A POST, PATCH or DELETE. `wait`: seconds in which the manager's answer may come; `key`: an idempotency key of
        the caller's own."""
        said = _said({"wait": wait or None})
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        timeout = self.timeout + max(wait, silence_s)
        return self._document(self._send(method, path, json=body, params=said, timeout=timeout, headers=headers))

    @contextmanager
    def lines(self, path: str, params: Mapping[str, Any]) -> Iterator[Iterator[str]]:
        """The lines of an answer that does not end. `Unreachable` (also in between) when the line breaks."""
        with (
            _told(self.url),
            self._http.stream(
                "GET",
                PREFIX + path,
                params=_said(params),
                headers={"Accept": "text/event-stream"},
                timeout=max(self.timeout, LONGEST_SILENCE_S),
            ) as answer,
        ):
            if answer.status_code != 200:
                answer.read()
                raise self._error(answer)
            yield answer.iter_lines()

    # -- one try after the other --------------------------------------------------------------------------------------
    def _send(self, method: str, path: str, **how: Any) -> httpx.Response:
        trying = Retrying(
            retry=retry_if_exception_type(_TryAgain), stop=stop_after_attempt(ATTEMPTS), wait=_wait, reraise=True,
            sleep=self._pause,
        )  # fmt: skip
        try:
            return trying(self._try, method, path, how)
        except _TryAgain as last:
            raise last.error from last.__cause__

    def _try(self, method: str, path: str, how: dict[str, Any]) -> httpx.Response:
        try:
            with _told(self.url):
                answer = self._http.request(method, PREFIX + path, **how)
        except Unreachable as error:
            raise _TryAgain(error) from error.__cause__
        if answer.status_code in FROM_A_PROXY:
            raise _TryAgain(self._error(answer))
        if answer.status_code == 429 or (answer.status_code == 503 and "retry-after" in answer.headers):
            raise _TryAgain(self._error(answer), _seconds(answer.headers.get("retry-after")))
        if answer.status_code >= 400:
            raise self._error(answer)
        return answer

    def _error(self, answer: httpx.Response) -> BackfillManagerError:
        if "json" not in answer.headers.get("content-type", ""):
            return self._strange(answer)
        problem = self._document(answer)
        return error_of(answer.status_code, problem) if isinstance(problem, dict) else self._strange(answer)

    def _document(self, answer: httpx.Response) -> Any:
        try:
            if answer.status_code in (200, 201, 202) or answer.status_code >= 400:
                return answer.json()
        except ValueError:
            pass
        raise self._strange(answer)

    def _strange(self, answer: httpx.Response) -> Unreachable:
        kind = answer.headers.get("content-type", "nothing").partition(";")[0]
        return Unreachable(
            f"{answer.url} answered {answer.status_code} with {kind}, which no `bfm serve` does;"
            " is this the server's address, without a path?"
        )


@contextmanager
def _told(url: str) -> Iterator[None]:
    try:
        yield
    except httpx.TimeoutException as error:
        raise Unreachable(f"The server at {url} did not answer in time ({type(error).__name__}).") from error
    except httpx.TransportError as error:
        raise Unreachable(f"The server at {url} can't be reached: {error or type(error).__name__}.") from error


def _wait(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    asked = error.after_s if isinstance(error, _TryAgain) else None
    return min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** (state.attempt_number - 1) if asked is None else asked)


def _seconds(text: str | None) -> float | None:
    return float(text) if text and text.isascii() and text.isdigit() else None


def _said(params: Mapping[str, Any] | None) -> dict[str, Any]:
    """Without what was not said; `true` and `false` as JSON writes them."""
    return {name: value for name, value in (params or {}).items() if value is not None and value != ()}


def _checked(url: str) -> str:
    try:
        parsed = httpx.URL(url.strip().rstrip("/"))
    except httpx.InvalidURL as error:
        raise InvalidInput(f"The server's address {url[:200]!r} can't be read: {error}.") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise InvalidInput(f"The server's address must be like http://127.0.0.1:8099, not {url[:200]!r}.")
    if parsed.userinfo:
        raise InvalidInput("The server's address must not hold a password; the token comes from BFM_TOKEN or a file.")
    if parsed.query or parsed.fragment:
        raise InvalidInput(f"The server's address must end before '?' and '#': {url[:200]!r}.")
    return str(parsed)


def _sendable(token: str) -> str:
    if not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidInput("The token holds characters that no token has; is it the whole token and nothing else?")
    return token


def _is_loopback(url: str) -> bool:
    host = httpx.URL(url).host
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
