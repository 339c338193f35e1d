"""What a dry run adds to a plan (`make_plan`): a backfill is created without waiting for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from datetime import datetime

from backfill_manager.model.records import DagRun, Pool
from backfill_manager.planning.backfills.backfill_plan import BackfillPlan
from backfill_manager.planning.backfills.dry_run_reruns import with_reruns
from backfill_manager.planning.backfills.estimates import FilesOf, with_estimates
from backfill_manager.planning.backfills.plan_waits import CheckWaits, with_waits
from backfill_manager.planning.runs.timeline import OF_TIMELINE, first_date, number_of
from backfill_manager.store.base import Condition, Store


def with_dry_run(
    plan: BackfillPlan, store: Store, now: datetime, *, check_waits: CheckWaits, files_of: FilesOf
) -> BackfillPlan:
    """The pools that its tasks lack, the id of its first run, the data that its items would wait for, the failed tasks that would
    run again, and what it would cost."""
    plan = _with_first_run(_with_pools(plan, {pool.name for pool in store.read(Pool)}), store)
    return with_estimates(with_reruns(with_waits(plan, store, check_waits), store), store, files_of, now)


def _with_pools(plan: BackfillPlan, known: Collection[str]) -> BackfillPlan:
    below = tuple(_with_pools(one, known) for one in plan.downstream)
    return dataclasses.replace(plan, unknown_pools=plan.pools_not_in(known), downstream=below)


def _with_first_run(plan: BackfillPlan, store: Store) -> BackfillPlan:
    if plan.first_key is None:
        return plan
    date, partition = plan.first_key
    place = Condition("logical_date", "=", date) if partition is None else Condition("partition_key", "=", partition)
    there = store.read(DagRun, [Condition("dag_id", "=", plan.dag.dag_id), place, OF_TIMELINE])
    numbers = (number_of(run) for run in there if first_date(run) == run.logical_date)
    return dataclasses.replace(plan, runs_of_first_key=max(numbers, default=0))
