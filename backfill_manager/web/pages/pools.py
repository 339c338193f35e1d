"""*Pools*: slots in use and tasks that wait for them; slots can be changed."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Form
from starlette.responses import Response

from backfill_manager.queries.pools import list_pools, waiting_by_pool
from backfill_manager.requests.checked_payloads import set_pool
from backfill_manager.schemas.request_kinds import POOL_SET
from backfill_manager.web.links import PathId
from backfill_manager.web.page import OperatorContext, ViewerContext, page_router

router: Final = page_router()


@router.get("/pools")
def pools(context: ViewerContext) -> Response:
    def compute() -> list[dict[str, Any]]:
        scheduled = waiting_by_pool(context.store)
        return [{**row, "scheduled": scheduled.get(row["name"], 0)} for row in list_pools(context.store)]

    tables = ["pool", "task_instance", "dag_run", "backfill"]
    return context.page("pools.html", pools=context.app.cached_by_version(tables, "ui:pools", compute))


@router.post("/pools/{name}")
async def set_slots(
    context: OperatorContext, name: PathId, slots: Annotated[int, Form(ge=1, le=1_000_000)],
    back: Annotated[str, Form()] = "/pools",
) -> Response:  # fmt: skip
    def payload(_: str) -> dict[str, Any]:
        return set_pool(context.store, context.app.settings, name, slots=slots)

    return await context.submit(POOL_SET, payload, back=back)
