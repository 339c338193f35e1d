"""`/events`: server-sent events with the tables of the state that have changed.

The tables' versions are polled once a second, for all listeners together, and not at all without listeners. An event names
tables and versions; a listener reads what it shows again (with an ETag, so what has not changed costs nothing).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from backfill_manager.api.auth import Viewer, user_or_none
from backfill_manager.api.context import Context
from backfill_manager.api.openapi import READS
from backfill_manager.api.polling import MAX_LISTENERS
from backfill_manager.errors import InvalidInput, RateLimited, nearest
from backfill_manager.model.records import TABLES

router = APIRouter(tags=["health"])


@router.get(
    "/events", operation_id="follow_events", response_class=StreamingResponse,
    responses={
        200: {
            "description": '`event: changed` with `data: {"tables": {name: version}}`. The first event contains all topics.',
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        },
        **{status: READS[status] for status in (401, 403, 422, 429, 431, 503)},
    },
)  # fmt: skip
async def events(
    request: Request,
    context: Context,
    _: Viewer,
    topics: Annotated[
        str | None,
        Query(max_length=500, description="Names of tables, separated by commas. Left out: all tables.",
              examples=["backfill,backfill_item"]),
    ] = None,
) -> StreamingResponse:  # fmt: skip
    """Streams the tables of the state that have changed: first the version of each table, then every change within about a
    second."""
    if context.tables.is_full:
        raise RateLimited(f"There are {MAX_LISTENERS} listeners already; try again later.", 60)
    names = [name.strip() for name in topics.split(",") if name.strip()] if topics else []
    for name in names:
        if name not in TABLES:
            raise InvalidInput(
                f"topics: there is no table {name[:60]!r}{nearest(name, TABLES)}; there are {', '.join(TABLES)}"
            )
    tables = frozenset(names or TABLES)
    await run_in_threadpool(context.versions, sorted(tables))  # 503 at once for a state that can't be read
    changes = context.tables.listen(tables)
    first: dict[str, int] = await anext(changes, {})  # none when the server is about to end

    async def stream() -> AsyncIterator[str]:
        yield f"retry: 2000\n{_event(first)}"
        async for changed in changes:
            if user_or_none(context, request) is None:  # logged out, or the token has expired
                return
            yield _event(changed) if changed else ": keep-alive\n\n"

    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # else nginx holds events back until it has 4 kB
    return StreamingResponse(stream(), media_type="text/event-stream", headers=headers)


def _event(tables: dict[str, int]) -> str:
    return f"event: changed\ndata: {json.dumps({'tables': tables})}\n\n"
