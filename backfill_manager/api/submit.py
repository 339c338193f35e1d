"""From a handler to the manager: the one way to `requests.submit.ask`, with who asked, from where, and by what way.

An `Idempotency-Key` becomes a part of the request's id, beside a fingerprint of what was asked:

    k<of person and key>.<of method, address and body>

so the same key with the same body finds the request that is there already, whatever has become of the state meanwhile,
and the same key with another body is seen to be a mistake (422).
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from backfill_manager.api.auth import User, client_address
from backfill_manager.api.context import AppContext
from backfill_manager.errors import InvalidInput
from backfill_manager.model import records
from backfill_manager.requests import submit
from backfill_manager.store.base import Condition

Payload = dict[str, Any]
_asking_with_a_key: Final = threading.Lock()


@dataclass(frozen=True)
class Asked:
    """A request, and the manager's answer if it came in time."""

    request: records.Request
    answer: records.Response | None

    @property
    def request_id(self) -> str:
        return self.request.request_id


async def submit_request(
    house: AppContext,
    person: User,
    request: Request,
    kind: str,
    payload: Payload | Callable[[str], Payload],
    *,
    wait_s: float = 0.0,
    idempotency_key: str | None = None,
    source: Literal["api", "ui"] | None = None,
) -> Asked:
    """Append one request and wait for its answer, up to `wait_s` seconds.

    `payload` may be a function of the request id (run in a thread: it may read the state, and raise for what can be
    refused without the manager). With an `idempotency_key` whose request is there already, it is not called.
    """
    fingerprint = await _fingerprint(request) if idempotency_key is not None else ""
    requested_by = person.name
    came_by = source or _source(request, person)
    came_from = client_address(request)

    def append() -> records.Request:
        request_id = house.clock.new_id()
        if idempotency_key is not None:
            first_part = _of_key(requested_by, idempotency_key)
            request_id = f"{first_part}.{fingerprint}"
            if before := _asked_before(house, first_part, request_id):
                return before
        what = payload(request_id) if callable(payload) else payload
        return submit.submit(
            house.store, house.clock, kind, what,
            request_id=request_id, requested_by=requested_by, source=came_by, requested_from=came_from,
        )  # fmt: skip

    def append_once() -> records.Request:
        if idempotency_key is None:
            return append()
        with _asking_with_a_key:  # two at once, of which the second would not see the first
            return append()

    appended = await run_in_threadpool(append_once)
    return Asked(appended, await house.answers.wait(appended.request_id, wait_s))


def _source(request: Request, person: User) -> Literal["api", "ui"]:
    return "ui" if person.via == "session" or "hx-request" in request.headers else "api"


def _of_key(person: str, key: str) -> str:
    return "k" + hashlib.sha256(json.dumps([person, key]).encode()).hexdigest()[:24]


async def _fingerprint(request: Request) -> str:
    body = await request.body()
    with suppress(ValueError, RecursionError):  # a form, or nothing: as it is
        body = json.dumps(json.loads(body), sort_keys=True).encode()
    about = [(name, value) for name, value in request.query_params.multi_items() if name != "wait"]  # `dag_id` of a run
    address = json.dumps([request.method, request.url.path, sorted(about)])
    return hashlib.sha256(address.encode() + b"\n" + body).hexdigest()[:24]


def _asked_before(house: AppContext, first_part: str, request_id: str) -> records.Request | None:
    found = house.store.read(records.Request, [Condition("request_id", "starts_with", f"{first_part}.")], limit=1)
    if found and found[0].request_id != request_id:
        raise InvalidInput("This Idempotency-Key was used for another request; take a new one for a new request.")
    return found[0] if found else None
