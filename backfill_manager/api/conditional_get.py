"""Conditional GET: responses to reads are computed once for each state of the tables they come from, with an ETag.

    @router.get("/pools", response_model=Page[Pool])
    def list_pools(reader: Reader) -> Response:
        return reader.response(("pool", "task_instance"), lambda: ...)

A client that has the response already (`If-None-Match`) gets `304`, and nothing is read. What the response depends on
besides the tables (the time, for instance) is in `vary_by`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.responses import Response
from pydantic_core import to_json

from backfill_manager.api.auth import Viewer
from backfill_manager.api.context import Context


class ConditionalReader:
    """What a handler that reads works with."""

    def __init__(self, request: Request, context: Context, _: Viewer) -> None:
        self._request, self.context, self.store = request, context, context.store

    def response(
        self, tables: Sequence[str], compute: Callable[[], Any], *, vary_by: Sequence[object] = ()
    ) -> Response:
        """The JSON of `compute()`: a plain document of `queries`, with the fields of the route's `response_model`. It is not
        validated once more, as that would take longer than all the rest."""
        versions = self.context.versions(tables)
        key = (self._request.url.path, self._request.url.query, *map(str, vary_by))
        etag = self.context.etag(versions, *key)
        headers = {"ETag": etag, "Cache-Control": "private, no-cache"}
        if _opaque(etag) in map(_opaque, self._request.headers.get("if-none-match", "").split(",")):
            return Response(status_code=304, headers=headers)

        body = self.context.at_versions(versions, ("json", *key), lambda: to_json(compute(), inf_nan_mode="null"))
        return Response(body, media_type="application/json", headers=headers)

    def now(self) -> datetime:
        return self.context.clock.now()

    def period(self, seconds: int) -> int:
        """A number that changes every so many seconds: for `vary_by`, where the response depends on the time."""
        return int(self.now().timestamp()) // seconds


def _opaque(tag: str) -> str:
    """Weak and strong tags are compared as weak ones (RFC 9110, 13.1.2)."""
    return tag.strip().removeprefix("W/")


Reader = Annotated[ConditionalReader, Depends(ConditionalReader)]
