"""What `planning.batches.auto_batch_size` is given of an active backfill with `batch=auto`, and what its runs teach it. Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from backfill_manager.manager.state import ActiveBackfill, ActiveRun
from backfill_manager.manager.tick_context import Tick
from backfill_manager.model import states as s
from backfill_manager.model.pools import pool_of
from backfill_manager.planning.backfills.past_costs import past_run
from backfill_manager.planning.backfills.time_window import TimeWindow
from backfill_manager.planning.batches.auto_batch_size import (
    MAX_PAST,
    BatchLimits,
    cost_of,
    growth_limit,
    size_of_next,
    waiting_factor,
)

YIELDING_TARGET_S: Final = 30.0  # of a batch in a pool where scheduled runs have waited (`manager.end_batches_early`)
REMEMBERED_S: Final = 600.0


def next_size(tick: Tick, live: ActiveBackfill) -> int:
    """How many items the next run may take."""
    past = live.past or []
    cost, waits, busy_s = cost_of(past), waiting_factor(past), []
    for key, items in live.running.items():
        run = tick.state.runs.get(key)
        if cost is not None and run is not None:
            since = run.row.started_at or tick.now
            busy_s.append(max(0.0, cost.seconds(len(items)) - (tick.now - since).total_seconds() / waits))
    return size_of_next(cost, growth_limit(past), _limits(tick, live), live.counts[s.PENDING], busy_s).items


def _limits(tick: Tick, live: ActiveBackfill) -> BatchLimits:
    row, pool = live.row, tick.state.pools.get(pool_of(None, live.row.pool))
    target_s = row.batch_target or tick.state.batch_target_s
    if is_yielding(tick, live):
        target_s = min(target_s, YIELDING_TARGET_S)
    window_s = None
    if row.window is not None:
        window_s = TimeWindow.parse(row.window).seconds_left(tick.now, live.spec.timezone)
    slots = row.max_active_runs if pool is None else max(1, min(row.max_active_runs, pool.slots))
    return BatchLimits(1 if live.spec.is_serial else slots, target_s, window_s)


def is_yielding(tick: Tick, live: ActiveBackfill) -> bool:
    """Whether a task of a scheduled run has waited for too long, not long ago, in a pool that its tasks use."""
    since = tick.now - timedelta(seconds=REMEMBERED_S)
    waited_for = {pool for pool, at in tick.state.waited_for.items() if at > since}
    pools = (pool_of(live.spec.task(task_id).pool, live.row.pool) for task_id in live.selected)
    return bool(waited_for) and not waited_for.isdisjoint(pools)


def remember_cost(live: ActiveBackfill, run: ActiveRun) -> None:
    """Of a run that has ended."""
    if live.past is None:
        return
    tasks = run.tasks.values()
    took_s = {ti.task_id: ti.duration_s for ti in tasks if ti.duration_s is not None}
    one = past_run(run.row, run.spec, took_s, sum(ti.rows_written or 0 for ti in tasks), own=True)
    if one is not None:
        live.past = [*live.past[-2 * MAX_PAST + 1 :], one]
