"""`/events`: server-sent events that tell which tables of the state have changed.

The versions of the tables are looked at once a second, for all listeners together, and not at all when nobody listens. An
event names tables and their versions; what a listener shows of them it asks for anew (with an ETag, so what has not
changed costs nothing).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated, Final

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from backfill_manager.api.auth import Viewer
from backfill_manager.api.context import HouseOf
from backfill_manager.api.errors import RateLimited
from backfill_manager.api.openapi import READS
from backfill_manager.api.version_watcher import MOST_LISTENERS
from backfill_manager.errors import InvalidInput, nearest
from backfill_manager.model.records import TABLES

router = APIRouter(tags=["health"])

TOPICS: Final = tuple(TABLES)


@router.get(
    "/events", operation_id="follow_events", response_class=StreamingResponse,
    responses={
        200: {
            "description": "`event: changed` with `data: {\"tables\": {name: version}}`; the first has every topic.",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        },
        **{status: READS[status] for status in (401, 403, 422, 429, 431, 503)},
    },
)  # fmt: skip
async def events(
    house: HouseOf,
    _: Viewer,
    topics: Annotated[
        str | None,
        Query(max_length=500, description="Names of tables, with commas between them; left out: all.",
              examples=["backfill,backfill_item"]),
    ] = None,
) -> StreamingResponse:  # fmt: skip
    """Which tables of the state have changed: at first where they stand, then every change within a second or so."""
    if house.tables.is_full:
        raise RateLimited(f"{MOST_LISTENERS} listen already; come back later.", 60)
    wanted = _topics(topics)
    await run_in_threadpool(house.versions, sorted(wanted))  # 503 at once for a state that can't be read
    changes = house.tables.listen(wanted)
    first = await anext(changes)

    async def stream() -> AsyncIterator[str]:
        yield f"retry: 2000\n{_event(first)}"
        async for changed in changes:
            yield _event(changed) if changed else ": still here\n\n"

    return StreamingResponse(stream(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


def _event(tables: dict[str, int]) -> str:
    return f"event: changed\ndata: {json.dumps({'tables': tables})}\n\n"


def _topics(text: str | None) -> frozenset[str]:
    names = [name.strip() for name in text.split(",") if name.strip()] if text else []
    for name in names:
        if name not in TOPICS:
            raise InvalidInput(
                f"topics: there is no table {name[:60]!r}{nearest(name, TOPICS)}; there are {', '.join(TOPICS)}"
            )
    return frozenset(names or TOPICS)
