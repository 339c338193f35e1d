"""Conditional GET: responses to reads are computed once for each state of the tables they come from, with an ETag.

    @router.get("/pools")
    def list_pools(reader: Reader) -> Response:
        return reader.response(("pool", "task_instance"), Page[Pool], lambda: ...)

A client that has the response already (`If-None-Match`) gets `304`, and nothing is read. What the response depends on
besides the tables (the time, for instance) is in `vary_by`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cache
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.responses import Response
from pydantic import TypeAdapter

from backfill_manager.api.auth import Viewer
from backfill_manager.api.context import Context


@cache
def _adapter(model: Any) -> TypeAdapter[Any]:
    return TypeAdapter(model)


class ConditionalReader:
    """What a handler that reads works with."""

    def __init__(self, request: Request, context: Context, _: Viewer) -> None:
        self._request, self.context, self.store = request, context, context.store

    def response(
        self, tables: Sequence[str], model: Any, compute: Callable[[], Any], *, vary_by: Sequence[object] = ()
    ) -> Response:
        """The JSON of `compute()`, which returns a plain value that fits `model`."""
        versions = self.context.versions(tables)
        key = (self._request.url.path, self._request.url.query, *map(str, vary_by))
        etag = self.context.etag(versions, *key)
        headers = {"ETag": etag, "Cache-Control": "private, no-cache"}
        if _opaque(etag) in map(_opaque, self._request.headers.get("if-none-match", "").split(",")):
            return Response(status_code=304, headers=headers)

        def as_json() -> bytes:
            adapter = _adapter(model)
            return adapter.dump_json(adapter.validate_python(compute()))

        body = self.context.at_versions(versions, ("json", *key), as_json)
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
