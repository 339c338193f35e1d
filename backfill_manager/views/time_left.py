"""How long a backfill will still take: by its own rate so far, else by how long runs of its DAG took before."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from backfill_manager.clock import format_instant
from backfill_manager.model import states
from backfill_manager.model.records import DagRun
from backfill_manager.store.contract import Condition, Store

_LAST: Final = 100  # runs that are looked at
_ENDED: Final = Condition("state", "in", (states.SUCCESS, states.FAILED))


def with_time_left(store: Store, backfill: dict[str, Any], now: datetime) -> dict[str, Any]:
    """The same view with `time_left_s` and `finishes_at`, where they can be told: not while it is paused, and no end for
    one that works in certain hours only."""
    left_s = time_left_s(store, backfill, now)
    if left_s is None:
        return backfill
    end = None if backfill["window"] else format_instant((now + timedelta(seconds=left_s)).replace(microsecond=0))
    return {**backfill, "time_left_s": round(left_s, 1), "finishes_at": end}


def time_left_s(store: Store, backfill: dict[str, Any], now: datetime) -> float | None:
    left: int = backfill["pending"] + backfill["running"]
    if backfill["state"] != states.RUNNING or not left:
        return None
    of_it = [Condition("backfill_id", "=", backfill["backfill_id"]), _ENDED]
    per_item = _seconds_per_item(store.read(DagRun, of_it, order_by=("-ended_at",), limit=_LAST), now)
    if per_item is not None:
        return left * per_item
    of_dag = [Condition("dag_id", "=", backfill["dag_id"]), Condition("state", "=", states.SUCCESS)]
    run_s = _median_s(store.read(DagRun, of_dag, order_by=("-run_seq",), limit=_LAST))
    if run_s is None:
        return None
    runs, at_once = math.ceil(left / int(backfill["batch"])), int(backfill["max_active_runs"] or 1)
    return run_s * math.ceil(runs / at_once)


def _seconds_per_item(ended: Sequence[DagRun], now: datetime) -> float | None:
    begun = [run.started_at for run in ended if run.started_at is not None]
    spent = (now - min(begun)).total_seconds() if begun else 0.0
    return spent / sum(run.items for run in ended) if spent > 0 else None


def _median_s(runs: Sequence[DagRun]) -> float | None:
    took = [
        (run.ended_at - run.started_at).total_seconds()
        for run in runs
        if run.started_at is not None and run.ended_at is not None
    ]
    return statistics.median(took) if took else None
