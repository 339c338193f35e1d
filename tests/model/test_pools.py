"""Limits of a task's process: the task's own, else its pool's, else the default."""

from __future__ import annotations

import pytest

from backfill_manager.model.pools import memory_of, nice_of
from backfill_manager.model.records import Pool

PLAIN = Pool(name="p", slots=1, weight=1, min_share=0)
LIMITED = PLAIN.evolve(memory_mb=512, nice=0)


@pytest.mark.parametrize(
    ("task", "pool", "expected"), [(None, None, None), (None, PLAIN, None), (None, LIMITED, 512), (64, LIMITED, 64)]
)
def test_memory(task: int | None, pool: Pool | None, expected: int | None) -> None:
    assert memory_of(task, pool) == expected


@pytest.mark.parametrize(
    ("task", "pool", "of_schedule", "of_backfill"),
    [(None, None, 5, 10), (None, PLAIN, 5, 10), (None, LIMITED, 0, 0), (0, PLAIN, 0, 0), (19, LIMITED, 19, 19)],
)
def test_nice(task: int | None, pool: Pool | None, of_schedule: int, of_backfill: int) -> None:
    assert nice_of(task, pool, of_backfill=False) == of_schedule
    assert nice_of(task, pool, of_backfill=True) == of_backfill
