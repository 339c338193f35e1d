"""Queries that wait for each other end a manager only when nothing has moved for long, as far as it could look itself."""

from __future__ import annotations

from dataclasses import replace

from backfill_manager.execution.spark.query_threads import FullPool
from backfill_manager.manager.services.query_monitor import MAX_STANDSTILL_S, QUERIES_INTERVAL_S, QueryMonitor

FULL = FullPool("spark.sql.subquery.maxThreadThreshold", 128, completed=500, jobs=900)
LOOKS = int(MAX_STANDSTILL_S / QUERIES_INTERVAL_S)


def reported(seen: list[list[FullPool]]) -> list[str]:
    looks, gone = iter(seen), list[str]()
    monitor = QueryMonitor(lambda: next(looks), gone.append)
    for _ in seen:
        monitor.run_once()
    return gone


def test_a_pool_that_stays_full_without_a_job_is_reported() -> None:
    assert reported([[FULL]] * LOOKS) == []
    (reason,) = reported([[FULL]] * (LOOKS + 1))
    assert "all 128 threads of spark.sql.subquery.maxThreadThreshold have been taken for 5 min" in reason


def test_what_moves_is_not_reported() -> None:
    """A call has ended, a job has begun, or nothing waits for a moment."""
    assert reported([[replace(FULL, completed=n // LOOKS)] for n in range(4 * LOOKS)]) == []
    assert reported([[replace(FULL, jobs=n // LOOKS)] for n in range(4 * LOOKS)]) == []
    assert reported(([[FULL]] * LOOKS + [[]]) * 3) == []
