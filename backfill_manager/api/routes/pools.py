"""`/pools` and `/bundles`."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter
from fastapi.responses import Response

from backfill_manager.api.conditional_get import ReadingOf
from backfill_manager.api.context import HouseOf
from backfill_manager.api.models import (
    BundleView,
    Deactivate,
    Page,
    Parse,
    PoolChanges,
    PoolView,
    RequestView,
)
from backfill_manager.api.openapi import CHANGES, READS
from backfill_manager.api.paging import Cursor, Limit, page_of_few
from backfill_manager.api.paths import Id
from backfill_manager.api.responses import AskingOf
from backfill_manager.queries.bundles import list_bundles
from backfill_manager.queries.pools import list_pools
from backfill_manager.requests import validation
from backfill_manager.schemas import kinds

router = APIRouter(tags=["pools"])
bundles_router = APIRouter(tags=["dags"])


@router.get("/pools", operation_id="list_pools", response_model=Page[PoolView], responses=READS)
def pools(
    reading: ReadingOf,
    limit: Limit = 200,
    cursor: Cursor = None,
    order_by: Literal["name", "-name", "slots", "-slots", "used", "-used"] = "name",
) -> Response:
    """Slots (tasks at once) and how many are taken; weight and minimum share of the Spark pool."""
    return reading.of(
        ("pool", "task_instance", "dag_version"), Page[PoolView],
        lambda: page_of_few(list_pools(reading.store), order_by, limit, cursor),
    )  # fmt: skip


@router.patch(
    "/pools/{name}", status_code=202, operation_id="change_pool", response_model=RequestView, responses=CHANGES
)
async def change_pool(name: Id, body: PoolChanges, asking: AskingOf) -> Response:
    """Slots change at once; Spark takes a new weight or share when the manager starts again."""
    changes = body.model_dump()
    return await asking(kinds.POOL_SET, lambda _: validation.set_pool(asking.store, name, **changes))


@bundles_router.get("/bundles", operation_id="list_bundles", response_model=Page[BundleView], responses=READS)
def bundles(
    reading: ReadingOf,
    house: HouseOf,
    limit: Limit = 200,
    cursor: Cursor = None,
    order_by: Literal["name", "-name"] = "name",
) -> Response:
    """Where DAGs come from: active DAGs, and files that can't be read, of each."""

    def found() -> dict[str, Any]:
        return page_of_few(list_bundles(reading.store, house.settings.bundles), order_by, limit, cursor)

    return reading.of(("bundle", "dag", "import_error"), Page[BundleView], found)


@bundles_router.post(
    "/bundles/{name}/parse", status_code=202, operation_id="parse_bundle", response_model=RequestView,
    responses=CHANGES,
)  # fmt: skip
async def parse(name: Id, asking: AskingOf, body: Parse | None = None) -> Response:
    """Have files of a bundle parsed now, changed or not. What came of it is `result` of the request."""
    wanted = body or Parse()

    def payload(_: str) -> dict[str, Any]:
        known = validation.known_bundle(asking.store, asking.house.settings, name)
        return {"bundle": known, **wanted.model_dump()}

    return await asking(kinds.BUNDLE_PARSE, payload)


@bundles_router.post(
    "/bundles/{name}/deactivate", status_code=202, operation_id="deactivate_in_bundle", response_model=RequestView,
    responses=CHANGES,
)  # fmt: skip
async def deactivate(name: Id, body: Deactivate, asking: AskingOf) -> Response:
    """Make the DAGs of a file or folder inactive, until they have new content or are parsed on request."""

    def payload(_: str) -> dict[str, Any]:
        known = validation.known_bundle(asking.store, asking.house.settings, name)
        return {"bundle": known, "subpath": body.subpath}

    return await asking(kinds.BUNDLE_DEACTIVATE, payload)
