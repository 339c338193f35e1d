"""`If-Match` and `If-None-Match` of changes: `412` unless the object is still (or not) as the client has seen it.

The ETag is that of a GET of the same address, or of the object above it where there is none (`/backfills/{id}/pause`). Weak tags
are compared by their text (RFC 9110, 13.1.2), as one names both forms of a response, compressed and not.
"""

from __future__ import annotations

from typing import Final

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import Message

from backfill_manager.api.auth import identify
from backfill_manager.api.context import Context
from backfill_manager.api.middleware import BODY_HEADERS
from backfill_manager.api.submit import request_of_key

_OWN_HEADERS: Final = (b"if-match", b"if-none-match", *BODY_HEADERS)


def names(sent: str | None, tag: str | None) -> bool:
    """Whether a header names this ETag (None: there is no such object)."""
    if sent is None or tag is None:
        return False
    tags = [one.strip().removeprefix("W/") for one in sent.split(",")]
    return "*" in tags or tag in tags


def sent_tags(headers: Headers, name: str) -> str | None:
    """The value of such a header; of several lines all together (RFC 9110, 5.3)."""
    return ", ".join(headers.getlist(name)) if name in headers else None


def check_if_match(headers: Headers, tag: str | None) -> None:
    if "if-match" in headers and not names(sent_tags(headers, "if-match"), tag):
        raise HTTPException(412, "This is not as in the ETag of If-Match any more; read it again.")


async def check_preconditions(request: Request, context: Context) -> None:
    """For every route of the API; reads check theirs when they know their ETag (`conditional_get`). A change that is sent again
    has none: what it was submitted for may be done by now."""
    headers = request.headers
    if request.method in ("GET", "HEAD") or not ("if-match" in headers or "if-none-match" in headers):
        return
    if key := headers.get("idempotency-key"):
        user = identify(context, request)
        if await run_in_threadpool(request_of_key, context.store, user, key):
            return
    tag = await _current_tag(request)
    check_if_match(headers, tag)
    if names(sent_tags(headers, "if-none-match"), tag):
        raise HTTPException(412, "This exists already as If-None-Match says that it must not.")


async def _current_tag(request: Request) -> str | None:
    path = request.scope["path"]
    status, tag = await _get(request, path)
    return (await _get(request, path.rpartition("/")[0]))[1] if status == 405 else tag


async def _get(request: Request, path: str) -> tuple[int, str | None]:
    """Status and ETag of a GET by the same client."""
    started: list[Message] = []
    query = f"dag_id={request.query_params['dag_id']}" if "dag_id" in request.query_params else ""
    scope = {
        **request.scope, "method": "GET", "path": path, "raw_path": path.encode(), "query_string": query.encode(),
        "headers": [one for one in request.scope["headers"] if one[0] not in _OWN_HEADERS],
        "state": dict(request.scope.get("state", {})),
    }  # fmt: skip

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            started.append(message)

    try:
        await request.app.router(scope, receive, send)
    except HTTPException as error:
        return error.status_code, None
    [message] = started
    tag = Headers(raw=message["headers"]).get("etag")
    return message["status"], tag.removeprefix("W/") if tag else None
