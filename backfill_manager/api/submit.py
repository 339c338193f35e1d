"""Submits commands to the manager: appends a row to the `request` table, and waits for the response if the client wants to.

An `Idempotency-Key` becomes a part of the request's id, next to a fingerprint of the HTTP request:

    k<hash of user and key>.<hash of method, address and body>

so the same key with the same body finds the existing request, whatever has changed in the state meanwhile, and the same key
with another body is refused (422).
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import wraps
from typing import Annotated, Any, Final, Literal, NamedTuple

from fastapi import Depends, Header, Query
from fastapi import Request as HttpRequest
from fastapi.responses import JSONResponse, Response
from starlette.concurrency import run_in_threadpool

from backfill_manager.api.auth import Operator, User
from backfill_manager.api.client_addresses import client_address
from backfill_manager.api.context import AppContext, Context
from backfill_manager.api.errors import error_response
from backfill_manager.api.openapi import PREFIX
from backfill_manager.errors import BackfillManagerError, InvalidInput
from backfill_manager.model import records
from backfill_manager.queries.requests import request_details
from backfill_manager.requests import submit
from backfill_manager.schemas.errors import refusal
from backfill_manager.schemas.request_kinds import REFUSED
from backfill_manager.store.base import Condition, Store

Payload = dict[str, Any]
MAX_WAIT_S: Final = 60
Wait = Annotated[
    float,
    Query(
        ge=0,
        le=MAX_WAIT_S,
        allow_inf_nan=False,
        description="Maximum time to wait for the manager's response, in seconds.",
    ),
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1, max_length=200,
        description="Key chosen by the client. Requests with the same key and the same body create one request, however "
        "often they are sent.",
    ),
]  # fmt: skip
# Of two requests with a key at the same time, the second must see the first; other keys do not wait for a slow storage.
_locks_of_keys: Final = tuple(threading.Lock() for _ in range(64))


class Submitted(NamedTuple):
    """A request, and the manager's response if it came in time."""

    request: records.Request
    answer: records.Response | None

    @property
    def refusal(self) -> BackfillManagerError | None:
        """Why the manager has refused it; None when it has not."""
        return refusal(self.answer) if self.answer is not None and self.answer.outcome == REFUSED else None


class Submitter:
    """Submits commands for one HTTP request, with its user, address and interface for the audit trail."""

    def __init__(
        self, context: AppContext, user: User, http_request: HttpRequest, *, source: Literal["api", "ui"],
        idempotency_key: str | None = None,
    ) -> None:  # fmt: skip
        self.context, self.store, self._http_request = context, context.store, http_request
        self._key, self._user, self._source = idempotency_key, user, source

    async def submit(self, kind: str, payload: Payload | Callable[[str], Payload], *, wait_s: float = 0.0) -> Submitted:
        """Appends one request and waits up to `wait_s` seconds for its response.

        `payload` may be a function of the request id. It is called in a thread (so it may read the state), raises for what
        can be refused without the manager, and is not called when the idempotency key has a request already.
        """
        fingerprint = "" if self._key is None else await _fingerprint(self._http_request)

        def append(request_id: str) -> records.Request:
            return submit.submit(
                self.store, self.context.clock, kind, payload(request_id) if callable(payload) else payload,
                request_id=request_id, requested_by=self._user.name, source=self._source,
                requested_from=client_address(self._http_request),
            )  # fmt: skip

        def append_once() -> records.Request:
            if self._key is None:
                return append(self.context.clock.new_id())
            prefix = _id_prefix(self._user, self._key)
            request_id = f"{prefix}.{fingerprint}"
            with _locks_of_keys[int(prefix[1:], 16) % len(_locks_of_keys)]:
                existing = request_of_key(self.store, self._user, self._key)
                if existing is None:
                    return append(request_id)
                if existing.request_id != request_id:
                    raise InvalidInput(
                        "This Idempotency-Key was used for another request; choose a new one for a new request."
                    )
                return existing

        request = await run_in_threadpool(append_once)
        return Submitted(request, await self.context.responses.wait(request.request_id, wait_s))


class ApiSubmitter(Submitter):
    """What a handler of the API that changes something works with: `await submitter(kind, payload)`, or `submits`."""

    def __init__(
        self, http_request: HttpRequest, context: Context, user: Operator, wait: Wait = 0,
        idempotency_key: IdempotencyKey = None,
    ) -> None:  # fmt: skip
        from_browser = user.via == "session" or "hx-request" in http_request.headers
        super().__init__(
            context, user, http_request, source="ui" if from_browser else "api", idempotency_key=idempotency_key
        )
        self._wait_s = wait

    async def __call__(
        self, kind: str, payload: Callable[[str], Payload], *, location: Callable[[str], str] | None = None
    ) -> Response:
        """Submits a command; the response is `202` with the request, `200` or `201` with the manager's answer, or `409`.
        `location` makes the address of a new object from its id: then it is `201`."""
        submitted = await self.submit(kind, payload, wait_s=self._wait_s)
        request, answer = submitted
        headers = {"Location": f"{PREFIX}/requests/{request.request_id}"}
        if submitted.refusal:
            return error_response(self._http_request.url.path, submitted.refusal, headers)
        status = 202 if answer is None else 200 if location is None else 201
        if answer is not None and answer.object_id is not None and location is not None:
            headers["Location"] = location(answer.object_id)
        return JSONResponse(request_document(request_details(request, answer)), status, headers=headers)


def submits(kind: str) -> Callable[[Callable[..., Payload]], Callable[..., Awaitable[Response]]]:
    """Has the payload that a handler returns submitted as a command of this kind. The handler is called as `payload` of
    `Submitter.submit` is."""

    def decorate(payload: Callable[..., Payload]) -> Callable[..., Awaitable[Response]]:
        @wraps(payload)
        async def handler(*, submitter: ApiSubmitter, **given: Any) -> Response:
            return await submitter(kind, lambda _: payload(submitter=submitter, **given))

        return handler

    return decorate


def request_document(view: dict[str, Any]) -> dict[str, Any]:
    """`queries.requests.request_view` (or `request_details`) with `state` and the answer as one object."""
    answered = view["outcome"] in ("accepted", "refused")
    answer = {name: view[name] for name in ("outcome", "object_id", "message", "answered_at")}
    return {**view, "state": view["outcome"], "answer": answer if answered else None}


def _id_prefix(user: User, key: str) -> str:
    return "k" + hashlib.sha256(json.dumps([user.name, key]).encode()).hexdigest()[:24]


def request_of_key(store: Store, user: User, key: str) -> records.Request | None:
    """What the user has submitted with this Idempotency-Key."""
    return store.first(records.Request, [Condition("request_id", "starts_with", f"{_id_prefix(user, key)}.")])


async def _fingerprint(request: HttpRequest) -> str:
    is_form = getattr(request, "_form", None) is not None  # of a page, whose keys have its values in them
    body = b"" if is_form else await request.body()
    with suppress(ValueError, RecursionError):  # empty: as it is
        body = json.dumps(json.loads(body), sort_keys=True).encode()
    query = [(name, value) for name, value in request.query_params.multi_items() if name != "wait"]  # `dag_id` of a run
    address = json.dumps([request.method, request.url.path, sorted(query)])
    return hashlib.sha256(address.encode() + b"\n" + body).hexdigest()[:24]


ApiSubmit = Annotated[ApiSubmitter, Depends(ApiSubmitter)]
