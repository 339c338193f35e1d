"""`/pools`."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter

from backfill_manager.api.bodies import PoolChanges
from backfill_manager.api.conditional_get import Reader, read_from
from backfill_manager.api.openapi import CHANGE, reads
from backfill_manager.api.paging import Paging, paged
from backfill_manager.api.parameters import Id
from backfill_manager.api.submit import ApiSubmit, Payload, submits
from backfill_manager.errors import InvalidInput
from backfill_manager.queries.pools import list_pools
from backfill_manager.requests import checked_payloads
from backfill_manager.schemas import request_kinds
from backfill_manager.schemas.resources import Page, Pool

router = APIRouter(prefix="/pools", tags=["pools"])


@router.get("", operation_id="list_pools", **reads(Page[Pool]))
@read_from("pool", "task_instance", "dag_version")
def get_pools(
    reader: Reader, paging: Annotated[Paging, paged("name", "-name", "slots", "-slots", "used", "-used")]
) -> Any:
    """Returns the pools: number of slots and how many are used, weight and minimum share of the Spark pool, and limits of task
    processes."""
    return paging.short_page(list_pools(reader.store), "name")


@router.patch("/{name}", operation_id="change_pool", **CHANGE)
@submits(request_kinds.POOL_SET)
def change_pool(name: Id, body: PoolChanges, submitter: ApiSubmit) -> Payload:
    """Changes a pool. New `slots` apply at once, `memory_mb` and `nice` to the next tasks that start, `weight` and `min_share`
    after a restart of the manager. null is the same as left out, except for `memory_mb` and `nice`, where it removes the pool's
    own value."""
    given = body.model_dump(exclude_unset=True)
    if not given:
        raise InvalidInput(f"Nothing to change was named; the fields are {', '.join(PoolChanges.model_fields)}.")
    return checked_payloads.set_pool(submitter.store, submitter.context.settings, name, **given)
