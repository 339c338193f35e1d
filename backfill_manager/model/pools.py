"""Pools that always exist, and which pool a task takes its slots from."""

from __future__ import annotations

from typing import Final

SCHEDULED_POOL: Final = "scheduled"
BACKFILL_POOL: Final = "backfill"


def pool_of(task_pool: str | None, backfill_pool: str | None) -> str:
    """The pool in which a task takes its slots: its own, else that of what made its run (`backfill_pool` None: no backfill). A
    backfill never takes slots of scheduled runs, whatever its tasks name."""
    if task_pool is None or (backfill_pool is not None and task_pool == SCHEDULED_POOL):
        return backfill_pool or SCHEDULED_POOL
    return task_pool
