"""Submits a request: appends one row to `request`, and polls for the manager's response.

The same request id sent twice has the effect of once. A new backfill's id is derived from the request id, so that a
client that doesn't know whether its first attempt arrived may simply repeat it.
"""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import re
import time
from collections.abc import Callable
from typing import Any

from backfill_manager.clock import Clock
from backfill_manager.model.records import Request, Response
from backfill_manager.schemas import errors
from backfill_manager.schemas.payloads import check_length, parse_command
from backfill_manager.store.base import Store, matching

_REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_STOP_ID = re.compile(r"stop-term-([1-9][0-9]{0,17})-[0-9a-f]{12}")


def submit(
    store: Store, clock: Clock, kind: str, payload: dict[str, Any], *, request_id: str | None = None,
    requested_by: str | None = None, source: str = "cli", requested_from: str | None = None,
) -> Request:  # fmt: skip
    """Appends a request. With a `request_id` that exists already nothing is written and the first one is returned;
    `InvalidInput` if that one is another request."""
    parse_command(kind, payload)
    payload_json = json.dumps(payload, sort_keys=True, ensure_ascii=False)
    check_length(kind, payload_json)
    if request_id is not None:
        if not _REQUEST_ID.fullmatch(request_id):
            raise errors.BAD_REQUEST_ID(request_id=request_id[:80])
        existing = store.first(Request, matching(request_id=request_id))
        if existing:
            if (existing.kind, existing.payload_json) != (kind, payload_json):
                raise errors.REQUEST_ID_USED(request_id=request_id, kind=existing.kind)
            return existing
    request = Request(
        request_id=request_id or clock.new_id(), kind=kind, payload_json=payload_json, source=source,
        requested_by=requested_by or current_user(), requested_at=clock.now(), requested_from=requested_from,
    )  # fmt: skip
    store.append_request(request)
    return request


def id_from(request_id: str) -> str:
    """The id of what this request creates: the same whenever it is sent again."""
    return hashlib.sha256(request_id.encode()).hexdigest()[:12]


def id_of_stop(term: int, new_id: str) -> str:
    """Of a request to stop the manager of this term. It is in the id because managers of older releases refuse a payload with a
    field that they don't know."""
    return f"stop-term-{term}-{new_id}"


def term_to_stop(request_id: str) -> int | None:
    """None for a request whose client has not stated it."""
    match = _STOP_ID.fullmatch(request_id)
    return None if match is None else int(match[1])


def current_user() -> str:
    """The operating system's user of this process, whatever `$USER` and `$LOGNAME` say."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container's user without a name
        return f"uid {os.getuid()}"


def response_to(store: Store, request_id: str) -> Response | None:
    return store.first(Response, matching(request_id=request_id))


def wait_for_response(
    store: Store, clock: Clock, request_id: str, timeout_s: float, *, pause: Callable[[float], None] = time.sleep
) -> Response | None:
    """The manager's response, or None when there is none within `timeout_s` seconds."""
    until = clock.monotonic() + timeout_s
    while True:
        response = response_to(store, request_id)
        if response is not None or clock.monotonic() >= until:
            return response
        pause(0.1)
