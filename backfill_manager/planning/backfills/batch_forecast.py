"""Gives a plan with `batch=auto` what a dry run needs to foresee the sizes of its runs: past runs, slots, target and window."""

from __future__ import annotations

import dataclasses

from backfill_manager.model.pools import pool_of
from backfill_manager.model.records import Pool
from backfill_manager.planning.backfills.backfill_plan import BackfillPlan
from backfill_manager.planning.backfills.past_costs import read_past
from backfill_manager.planning.backfills.time_window import TimeWindow
from backfill_manager.planning.batches.auto_batch_size import BatchLimits
from backfill_manager.schemas.backfill_columns import AUTO
from backfill_manager.store.base import Store


def with_batch_limits(plan: BackfillPlan, store: Store, target_s: float) -> BackfillPlan:
    """The plan, and all downstream of it. `target_s`: of those that name none. Of a time window its whole length is taken, as
    nobody knows when which run begins."""
    below = tuple(with_batch_limits(one, store, target_s) for one in plan.downstream)
    plan, command = dataclasses.replace(plan, downstream=below), plan.command
    if command.batch != AUTO:
        return plan
    slots = {pool.name: pool.slots for pool in store.read(Pool)}
    at_once = min(plan.max_active_runs, slots.get(pool_of(None, command.pool), plan.max_active_runs))
    window_s = None if command.window is None else TimeWindow.parse(command.window).length_s
    limits = BatchLimits(1 if plan.dag.is_serial else at_once, command.batch_target or target_s, window_s)
    return dataclasses.replace(plan, past=read_past(store, plan.dag), limits=limits)
