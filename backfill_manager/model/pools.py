"""Pools that always exist, which pool a task takes its slots from, and the limits of its process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from backfill_manager.model.records import Pool

SCHEDULED_POOL: Final = "scheduled"
BACKFILL_POOL: Final = "backfill"
NICE: Final = 5  # the manager goes before every task
NICE_OF_BACKFILL: Final = 10  # ... and a task of the schedule before one of a backfill
MAX_SUBQUERY_THREADS: Final = 128  # of a driver, the most that Spark allows


def too_many_slots(pools: Iterable[Pool]) -> str | None:
    """What may happen with so many slots in all, and what to do; None: nothing. A query with a subquery in a subquery keeps one
    of Spark's threads while it waits for another one."""
    slots = sum(pool.slots for pool in pools)
    if slots <= MAX_SUBQUERY_THREADS:
        return None
    return (
        f"the pools have {slots} slots in all, and Spark has {MAX_SUBQUERY_THREADS} threads for subqueries: when more queries "
        "than that with a subquery in a subquery run at once, they may wait for each other for ever; give tasks with such "
        f"queries a pool of at most {MAX_SUBQUERY_THREADS} slots"
    )


def pool_of(task_pool: str | None, backfill_pool: str | None) -> str:
    """The pool in which a task takes its slots: its own, else that of what made its run (`backfill_pool` None: no backfill). A
    backfill never takes slots of scheduled runs, whatever its tasks name."""
    if task_pool is None or (backfill_pool is not None and task_pool == SCHEDULED_POOL):
        return backfill_pool or SCHEDULED_POOL
    return task_pool


def start_order(priority: int, run_seq: int, *, for_schedule: bool) -> tuple[int, int, int]:
    """Which of the tasks that wait for slots goes first, the least: higher priority, then scheduled before
    backfill, then older."""
    return -priority, int(not for_schedule), run_seq


def memory_of(task_mb: int | None, pool: Pool | None) -> int | None:
    """MB that the process of a task may take: the task's own setting, else its pool's; None: no limit."""
    return task_mb if task_mb is not None or pool is None else pool.memory_mb


def nice_of(task_nice: int | None, pool: Pool | None, *, of_backfill: bool) -> int:
    """By how much the process of a task is nicer than the manager: the task's own setting, else its pool's, else by what made
    its run."""
    of_pool = pool.nice if pool is not None else None
    of_run = NICE_OF_BACKFILL if of_backfill else NICE
    return next(nice for nice in (task_nice, of_pool, of_run) if nice is not None)
