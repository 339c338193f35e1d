"""The connection to a server: sends requests, retries when the network fails, and decodes the responses.

A change carries an `Idempotency-Key`, the same one in every attempt, so that it takes effect once whether or not the first
attempt arrived. What the server refuses is not retried, except "try again later" (429, or 503 with a time).
"""

from __future__ import annotations

import ipaddress
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import httpx
from httpx_sse import EventSource, ServerSentEvent

from backfill_manager import errors
from backfill_manager.errors import BackfillManagerError, InvalidInput, RateLimited, Unreachable
from backfill_manager.schemas.errors import CATALOGUE, PROBLEM_TYPE, PROBLEMS

PREFIX: Final = "/api/v1"
ATTEMPTS: Final = 4
MIN_RETRY_DELAY_S: Final = 0.2  # doubled with each attempt
MAX_RETRY_DELAY_S: Final = 10.0
EVENTS_TIMEOUT_S: Final = 40.0  # without an event; the server sends a keep-alive every 15 s
PROXY_ERRORS: Final = frozenset({502, 503, 504})  # of a proxy before the server, unless they are problem documents


class Connection:
    def __init__(self, url: str, token: str | None, timeout: float, sleep: Callable[[float], None]) -> None:
        """`timeout` in seconds: to connect, and between two parts of a response."""
        self.url, self.timeout, self._sleep = _checked(url), timeout, sleep
        headers = {"Accept": "application/json", "User-Agent": "backfill_manager.client"}
        if token:
            headers["Authorization"] = f"Bearer {_sendable(token)}"
        # A proxy of the environment can't reach this machine's loopback.
        self._http = httpx.Client(
            base_url=self.url, headers=headers, timeout=timeout, trust_env=not _is_loopback(self.url)
        )

    def close(self) -> None:
        self._http.close()

    def read(self, path: str, params: Mapping[str, Any] | None = None) -> Any:
        return self._document(self._send("GET", path, params=_given(params or {})))

    def read_if_changed(self, path: str, etag: str | None) -> tuple[Any, str | None] | None:
        """The document and its ETag; None when the ETag is still `etag`."""
        response = self._send("GET", path, headers={"If-None-Match": etag} if etag else {})
        return None if response.status_code == 304 else (self._document(response), response.headers.get("etag"))

    def change(
        self, method: str, path: str, body: Mapping[str, Any] | None, *, wait: float = 0.0, extra_timeout_s: float = 0.0,
        key: str | None = None,
    ) -> Any:  # fmt: skip
        """A POST, PATCH or DELETE. `wait`: seconds to wait for the manager's answer; `key`: an idempotency key of the
        caller's own."""
        params, headers = _given({"wait": wait or None}), {"Idempotency-Key": key or uuid.uuid4().hex}
        timeout = self.timeout + max(wait, extra_timeout_s)
        return self._document(self._send(method, path, json=body, params=params, timeout=timeout, headers=headers))

    @contextmanager
    def events(self, params: Mapping[str, Any]) -> Iterator[Iterator[ServerSentEvent]]:
        """The server-sent events of a stream without an end. Raises `Unreachable` when the connection fails, at any time."""
        timeout = max(self.timeout, EVENTS_TIMEOUT_S)
        headers = {"Accept": "text/event-stream"}
        with (
            _network_errors(self.url),
            self._http.stream("GET", f"{PREFIX}/events", params=params, headers=headers, timeout=timeout) as response,
        ):
            if response.status_code != 200:
                response.read()
                raise self._error(response)
            yield EventSource(response).iter_sse()

    def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        delay_s = 0.0
        for attempt in range(ATTEMPTS):
            if attempt:
                self._sleep(min(MAX_RETRY_DELAY_S, delay_s))
            delay_s = MIN_RETRY_DELAY_S * 2.0**attempt
            try:
                with _network_errors(self.url):
                    response = self._http.request(method, PREFIX + path, **options)
            except Unreachable as error:
                failure: BackfillManagerError = error
                continue
            if response.status_code < 400:
                return response
            failure = self._error(response)
            after = response.headers.get("retry-after", "")
            if response.status_code == 429 or (response.status_code == 503 and after):
                delay_s = float(after) if after.isascii() and after.isdigit() else delay_s
            elif not _is_of_proxy(response):
                break
        raise failure

    def _error(self, response: httpx.Response) -> BackfillManagerError:
        if _is_of_proxy(response):
            return Unreachable(
                f"A proxy before {self.url} answered {response.status_code}: the server behind it can't be reached."
            )
        if "json" not in response.headers.get("content-type", ""):
            return self._not_our_server(response)
        problem = self._document(response)
        return error_of(response.status_code, problem) if isinstance(problem, dict) else self._not_our_server(response)

    def _document(self, response: httpx.Response) -> Any:
        try:
            if response.status_code in (200, 201, 202) or response.status_code >= 400:
                return response.json()
        except ValueError:
            pass
        raise self._not_our_server(response)

    def _not_our_server(self, response: httpx.Response) -> Unreachable:
        if response.has_redirect_location:
            to = response.headers["location"].partition("?")[0]
            return Unreachable(
                f"{response.url} redirects to {to}; is the server's address there, or a login before it?"
            )
        kind = response.headers.get("content-type", "nothing").partition(";")[0]
        return Unreachable(
            f"{response.url} answered {response.status_code} with {kind}, which no `bfm serve` does;"
            " is this the server's address, without the path of a page?"
        )


def _is_of_proxy(response: httpx.Response) -> bool:
    return response.status_code in PROXY_ERRORS and "problem+json" not in response.headers.get("content-type", "")


@contextmanager
def _network_errors(url: str) -> Iterator[None]:
    try:
        yield
    except httpx.TimeoutException as error:
        raise Unreachable(f"The server at {url} did not answer in time ({type(error).__name__}).") from error
    except httpx.RequestError as error:  # also a body that can't be decompressed
        raise Unreachable(f"The server at {url} can't be reached: {error or type(error).__name__}.") from error


def error_of(status: int, problem: Mapping[str, Any]) -> BackfillManagerError:
    """The error of a problem document (RFC 9457): `except` clauses, exit codes and wording are those without a server."""
    name = str(problem.get("type", "")).removeprefix(PROBLEM_TYPE)
    kinds: dict[str | int, type[BackfillManagerError]] = {type: kind for kind, _, type, _ in PROBLEMS}
    kinds |= {"too-many-connections": RateLimited} | dict.fromkeys((400, 413, 422, 431), InvalidInput)
    kinds |= {401: errors.Unauthenticated, 403: errors.Forbidden, 409: errors.Refused, 429: RateLimited}
    kind = kinds.get(name) or kinds.get(status, BackfillManagerError)
    message = str(problem.get("detail") or problem.get("title") or f"The server answered with {status}.")
    error = kind.__new__(kind, message)
    BackfillManagerError.__init__(error, message)  # not that of the class: some make their message from ids
    error.code, error.field, error.hint = problem.get("code") or error.code, problem.get("field"), problem.get("hint")
    error.params = problem.get("params") or {}
    if error.code in CATALOGUE and error.params:
        error.template = CATALOGUE[error.code].template
    return error


def _given(params: Mapping[str, Any]) -> dict[str, Any]:
    """Without parameters that have no value."""
    return {name: value for name, value in params.items() if value is not None and value != ()}


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
