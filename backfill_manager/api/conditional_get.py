"""Answers to reads: made once for each state of the tables they come from, with an ETag that says which.

    @router.get("/pools")
    def pools(reading: ReadingOf) -> Response:
        return reading.of(("pool", "task_instance"), Page[PoolView], lambda: ...)

A client that has the answer already (`If-None-Match`) gets `304`, and nothing is read. What the answer depends on beside
the tables (the time, for instance) is told by `also`.
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
from backfill_manager.api.context import HouseOf


@cache
def _adapter(model: Any) -> TypeAdapter[Any]:
    return TypeAdapter(model)


class Reading:
    def __init__(self, request: Request, house: HouseOf, person: Viewer) -> None:
        self._request, self.house = request, house
        self.store, self.person = house.store, person

    def of(
        self, tables: Sequence[str], model: Any, compute: Callable[[], Any], *, also: Sequence[object] = ()
    ) -> Response:
        """The JSON of `compute()`, which is a plain value that fits `model`."""
        versions = self.house.versions(tables)
        asked_for = (self._request.url.path, self._request.url.query, *map(str, also))
        etag = self.house.etag(versions, *asked_for)
        headers = {"ETag": etag, "Cache-Control": "private, no-cache"}
        if _opaque(etag) in _tags(self._request.headers.get("if-none-match", "")):
            return Response(status_code=304, headers=headers)

        def as_json() -> bytes:
            adapter = _adapter(model)
            return adapter.dump_json(adapter.validate_python(compute()))

        body = self.house.at_versions(versions, ("json", *asked_for), as_json)
        return Response(body, media_type="application/json", headers=headers)

    def now(self) -> datetime:
        return self.house.clock.now()

    def moment(self, seconds: int) -> int:
        """A number that changes every so many seconds: for `also`, where the answer goes with the time."""
        return int(self.house.clock.now().timestamp()) // seconds


def _tags(header: str) -> set[str]:
    return {_opaque(tag.strip()) for tag in header.split(",")}


def _opaque(tag: str) -> str:
    """Weak or strong, it is compared as weak (RFC 9110, 13.1.2)."""
    return tag.removeprefix("W/")


ReadingOf = Annotated[Reading, Depends(Reading)]
