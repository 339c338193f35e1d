"""What a dry run adds to a plan (`make_plan`): a backfill is created without waiting for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING

from backfill_manager.model.records import Pool
from backfill_manager.planning.backfill_plan import BackfillPlan
from backfill_manager.planning.dry_run_reruns import with_reruns
from backfill_manager.planning.estimates import FilesOf, with_estimates
from backfill_manager.planning.plan_waits import CheckWaits, with_waits

if TYPE_CHECKING:
    from backfill_manager.store.base import Store


def with_dry_run(
    plan: BackfillPlan, store: Store, now: datetime, *, check_waits: CheckWaits, files_of: FilesOf
) -> BackfillPlan:
    """The pools that its tasks lack, the data that its items would wait for, the failed tasks that would run again, and what it
    would cost."""
    plan = _with_pools(plan, {pool.name for pool in store.read(Pool)})
    return with_estimates(with_reruns(with_waits(plan, store, check_waits), store), store, files_of, now)


def _with_pools(plan: BackfillPlan, known: Collection[str]) -> BackfillPlan:
    below = tuple(_with_pools(one, known) for one in plan.downstream)
    return dataclasses.replace(plan, unknown_pools=plan.pools_not_in(known), downstream=below)
