"""*Pools*: slots in use and who waits for them; slots can be changed."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Form
from starlette.responses import Response

from backfill_manager.queries.pools import list_pools, waiting_by_pool
from backfill_manager.requests.validation import set_pool
from backfill_manager.schemas.kinds import POOL_SET
from backfill_manager.web import paths
from backfill_manager.web.page import OperatorVisit, PageContextOf, page_router

router: Final = page_router()


@router.get("/pools")
def pools(visit: PageContextOf) -> Response:
    def compute() -> list[dict[str, Any]]:
        ready = waiting_by_pool(visit.store)
        return [{**one, "ready": ready.get(one["name"], 0)} for one in list_pools(visit.store)]

    tables = ["pool", "task_instance", "dag_run", "backfill"]
    return visit.page("pools.html", pools=visit.house.cached_by_version(tables, "ui:pools", compute))


@router.post("/pools/{name}")
async def change(
    visit: OperatorVisit,
    name: str,
    slots: Annotated[int, Form(ge=1, le=1_000_000)],
    back: Annotated[str, Form()] = "/pools",
) -> Response:
    def payload(_: str) -> dict[str, Any]:
        return set_pool(visit.store, paths.from_segment(name), slots=slots, weight=None, min_share=None)

    return await visit.ask(POOL_SET, payload, back=back)
