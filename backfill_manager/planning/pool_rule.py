"""Which pool a task instance takes its slots from."""

from __future__ import annotations

from typing import Final

SCHEDULED_POOL: Final = "scheduled"  # of runs by schedule, by hand and from outside; closed to backfills


def pool_of(backfill_pool: str | None, task_pool: str | None) -> str:
    """The task's own pool, but never the scheduled one for a task of a backfill; else the backfill's, or `scheduled`.
    `backfill_pool` is None for a run of no backfill."""
    if task_pool is None or (backfill_pool is not None and task_pool == SCHEDULED_POOL):
        return backfill_pool or SCHEDULED_POOL
    return task_pool
