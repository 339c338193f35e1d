"""Conditional GET: responses to reads are computed once for each state of the tables they come from, with an ETag.

    @router.get("/pools", response_model=Page[Pool])
    @read_from("pool", "task_instance")
    def list_pools(reader: Reader) -> Any:
        return ...

A client that has the response already (`If-None-Match`) gets `304`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import datetime
from functools import wraps
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.responses import Response
from pydantic_core import to_json

from backfill_manager.api.auth import Viewer
from backfill_manager.api.context import Context
from backfill_manager.api.preconditions import check_if_match, names, sent_tags


class RequestReader:
    """What a handler that reads works with."""

    def __init__(self, request: Request, context: Context, _: Viewer) -> None:
        self.request, self.context, self.store = request, context, context.store

    def now(self) -> datetime:
        return self.context.clock.now()


Reader = Annotated[RequestReader, Depends(RequestReader)]


def read_from(*tables: str, ttl_s: int | None = None) -> Callable[[Callable[..., Any]], Callable[..., Response]]:
    """Has a handler called once for each state of `tables` and each address, and after `ttl_s` seconds again where the time
    matters. It returns a plain document of `queries`, with the fields of the route's `response_model`. That is not
    validated once more, as it would take longer than all the rest."""

    def decorate(compute: Callable[..., Any]) -> Callable[..., Response]:
        @wraps(compute)
        def handler(*, reader: RequestReader, **given: Any) -> Response:
            request, context = reader.request, reader.context
            versions = context.versions(tables)
            period = () if ttl_s is None else (str(int(reader.now().timestamp()) // ttl_s),)
            # As handlers read it: of `?dag_id=a#b` the query of a URL would be `dag_id=a`.
            address = (request.scope["path"], request.scope["query_string"])
            key = ("json", *address, *period)
            body, tag = context.at_versions(versions, key, lambda: compute_tagged(reader, address, given))
            # A weak ETag promises the same content, not the same bytes.
            headers = {"ETag": f"W/{tag}", "Cache-Control": "private, no-cache"}
            check_if_match(request.headers, tag)
            if names(sent_tags(request.headers, "if-none-match"), tag):
                return Response(status_code=304, headers=headers)
            return Response(body, media_type="application/json", headers=headers)

        def compute_tagged(
            reader: RequestReader, address: tuple[str, bytes], given: dict[str, Any]
        ) -> tuple[bytes, str]:
            body = to_json(compute(reader=reader, **given), inf_nan_mode="null")
            path, query = address
            named = f"{reader.store.root}\n{path}\n".encode("utf-8", "replace") + query + b"\n"
            return body, f'"{hashlib.sha256(named + body).hexdigest()[:24]}"'

        return handler

    return decorate
