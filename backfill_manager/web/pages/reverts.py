"""*Revert* of a run and of a backfill: what would be put back, and the question.

The plan is the manager's dry run, as of `bfm runs revert --dry-run`. Making it is a request like any other; the page shows the
answer to the request that it was opened with, and the button that reverts only below a plan.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Final

from fastapi import Query
from starlette.responses import Response

from backfill_manager.model.records import Response as Answer
from backfill_manager.queries.backfills import find_backfill
from backfill_manager.queries.dags import spec_of_run
from backfill_manager.queries.named_run import find_run
from backfill_manager.requests.checked_payloads import reverted_backfill, reverted_run
from backfill_manager.schemas import request_kinds
from backfill_manager.store.base import matching
from backfill_manager.web.links import PathId, to, to_run
from backfill_manager.web.page import OperatorContext, PageContext, ViewerContext, page_router

router: Final = page_router()
MAX_READERS: Final = 10  # that are named
_RequestId = Annotated[str, Query(max_length=200)]


@router.get("/dags/{dag_id}/runs/{run_id}/revert")
def plan_of_run(context: ViewerContext, dag_id: PathId, run_id: PathId, request_id: _RequestId = "") -> Response:
    row = find_run(context.store, run_id, dag_id=dag_id)
    spec = spec_of_run(context.store, row)
    return _page(
        context, f"run {row.run_id}", to_run(row.dag_id, row.run_id), request_kinds.RUN_REVERT, row.run_id, request_id,
        spec.timezone if spec else "UTC",
    )  # fmt: skip


@router.post("/dags/{dag_id}/runs/{run_id}/revert/plan")
async def make_plan_of_run(context: OperatorContext, dag_id: PathId, run_id: PathId) -> Response:
    return await _submit_run(context, dag_id, run_id, to_run(dag_id, run_id, "revert"), dry_run=True)


@router.post("/dags/{dag_id}/runs/{run_id}/revert")
async def revert_run(context: OperatorContext, dag_id: PathId, run_id: PathId) -> Response:
    return await _submit_run(context, dag_id, run_id, to_run(dag_id, run_id), dry_run=False)


@router.get("/backfills/{backfill_id}/revert")
def plan_of_backfill(context: ViewerContext, backfill_id: PathId, request_id: _RequestId = "") -> Response:
    row = find_backfill(context.store, backfill_id)
    of_it = row["backfill_id"]
    home = to("backfills", of_it)
    return _page(context, f"backfill {of_it}", home, request_kinds.BACKFILL_REVERT, of_it, request_id, row["timezone"])


@router.post("/backfills/{backfill_id}/revert/plan")
async def make_plan_of_backfill(context: OperatorContext, backfill_id: PathId) -> Response:
    return await _submit_backfill(context, backfill_id, to("backfills", backfill_id, "revert"), dry_run=True)


@router.post("/backfills/{backfill_id}/revert")
async def revert_backfill(context: OperatorContext, backfill_id: PathId) -> Response:
    return await _submit_backfill(context, backfill_id, to("backfills", backfill_id), dry_run=False)


def _page(
    context: PageContext, what: str, home: str, kind: str, object_id: str, request_id: str, zone: str
) -> Response:  # fmt: skip
    """`plan` is None before there is one: nobody has asked, the manager is at it (`is_pending`), or has refused."""
    answer = context.store.first(Answer, matching(request_id=request_id, kind=kind)) if request_id else None
    plan: dict[str, Any] | None = None
    if answer is not None and answer.outcome == request_kinds.ACCEPTED and answer.object_id == object_id:
        found = json.loads(answer.payload_json or "{}")
        if all(table["version"] is None for table in found["tables"]):  # else it has been done
            plan = {**found, "named": list(dict.fromkeys((one["dag_id"], one["run_id"]) for one in found["read_by"]))}
    return context.page(
        "revert.html", what=what, home=home, plan=plan, is_pending=bool(request_id) and answer is None,
        most=MAX_READERS, zone=zone,
        nav="backfills" if kind == request_kinds.BACKFILL_REVERT else "dags",
    )  # fmt: skip


async def _submit_run(context: PageContext, dag_id: str, run_id: str, back: str, *, dry_run: bool) -> Response:
    def payload(_: str) -> dict[str, Any]:
        return reverted_run(find_run(context.store, run_id, dag_id=dag_id), dry_run=dry_run)

    return await context.submit(request_kinds.RUN_REVERT, payload, back=back)


async def _submit_backfill(context: PageContext, backfill_id: str, back: str, *, dry_run: bool) -> Response:
    def payload(_: str) -> dict[str, Any]:
        return reverted_backfill(find_backfill(context.store, backfill_id), dry_run=dry_run)

    return await context.submit(request_kinds.BACKFILL_REVERT, payload, back=back)
