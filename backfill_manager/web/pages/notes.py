"""Notes on runs and backfills: their forms are on the pages of these; one that somebody else has changed meanwhile is shown
beside the text that was to replace it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

from fastapi import Form
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from backfill_manager.queries.backfills import find_backfill
from backfill_manager.queries.named_run import find_run
from backfill_manager.queries.runs import run_view
from backfill_manager.requests.checked_payloads import noted_backfill, noted_run
from backfill_manager.schemas import request_kinds
from backfill_manager.web.links import PathId, to, to_run
from backfill_manager.web.page import OperatorContext, PageContext, page_router

router: Final = page_router()
_Text = Annotated[str, Form(max_length=20_000)]  # the command has the limit of a note


@router.post("/dags/{dag_id}/runs/{run_id}/note")
async def note_run(
    context: OperatorContext, dag_id: PathId, run_id: PathId, text: _Text = "", was: _Text = ""
) -> Response:
    return await _save(
        context, request_kinds.RUN_NOTE, text, to_run(dag_id, run_id), f"run {run_id}",
        payload=lambda: noted_run(find_run(context.store, run_id, dag_id=dag_id), text, was),
        read=lambda: run_view(find_run(context.store, run_id, dag_id=dag_id)),
    )  # fmt: skip


@router.post("/backfills/{backfill_id}/note")
async def note_backfill(context: OperatorContext, backfill_id: PathId, text: _Text = "", was: _Text = "") -> Response:
    return await _save(
        context, request_kinds.BACKFILL_NOTE, text, to("backfills", backfill_id), f"backfill {backfill_id}",
        payload=lambda: noted_backfill(find_backfill(context.store, backfill_id), text, was),
        read=lambda: find_backfill(context.store, backfill_id),
    )  # fmt: skip


async def _save(
    context: PageContext, kind: str, text: str, home: str, what: str, *, payload: Callable[[], dict[str, Any]],
    read: Callable[[], dict[str, Any]],
) -> Response:  # fmt: skip
    """`home`: the page of what has the note. `read` gives it as it is now."""
    submitted = await context.request_change(kind, lambda _: payload())
    if submitted.refusal is None:
        return context.show_response(submitted, back=home)
    noted = await run_in_threadpool(read)
    return context.page("note.html", status=409, noted=noted, text=text, home=home, what=what, dag_id=noted["dag_id"])
