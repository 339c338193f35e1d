"""How long a backfill will still take: by its own pace so far, else by how long runs of its DAG took before.

Its pace is read from many runs and changes slowly: who is asked often may keep it for some seconds.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from backfill_manager.clock import format_instant, parse_instant
from backfill_manager.model import states
from backfill_manager.model.records import DagRun
from backfill_manager.queries.runs import NOT_LISTED
from backfill_manager.store.base import Condition, Store

_LAST: Final = 100  # runs that are looked at
_ENDED: Final = Condition("state", "in", (states.SUCCESS, states.FAILED))


@dataclass(frozen=True)
class Pace:
    """Seconds from one item's end to the next one's; where none of its own has ended yet, those that a run of its DAG
    takes. Both None: nothing to tell it from."""

    per_item_s: float | None
    run_s: float | None = None

    def left_s(self, backfill: dict[str, Any]) -> float | None:
        left = _left(backfill)
        if self.per_item_s is not None:
            return left * self.per_item_s
        if self.run_s is None:
            return None
        runs, at_once = math.ceil(left / int(backfill["batch"])), int(backfill["max_active_runs"] or 1)
        return self.run_s * math.ceil(runs / at_once)


def with_time_left(store: Store, backfill: dict[str, Any], now: datetime) -> dict[str, Any]:
    """The same view with `time_left_s` and `finishes_at`, where they can be told: not while it is paused, and no end for
    one that works in certain hours only."""
    return at_pace(backfill, read_pace(store, backfill, now), now) if goes_on(backfill) else backfill


def goes_on(backfill: dict[str, Any]) -> bool:
    """Whether there is a time left that could be told."""
    return bool(backfill["state"] == states.RUNNING and _left(backfill))


def at_pace(backfill: dict[str, Any], pace: Pace, now: datetime) -> dict[str, Any]:
    """`with_time_left` for a backfill that goes on, and whose pace is known."""
    left_s = pace.left_s(backfill)
    if left_s is None:
        return backfill
    end = None if backfill["window"] else format_instant((now + timedelta(seconds=left_s)).replace(microsecond=0))
    return {**backfill, "time_left_s": round(left_s, 1), "finishes_at": end}


def read_pace(store: Store, backfill: dict[str, Any], now: datetime) -> Pace:
    of_it = [Condition("backfill_id", "=", backfill["backfill_id"]), _ENDED]
    per_item = _seconds_per_item(
        store.read(DagRun, of_it, order_by=("-ended_at",), limit=_LAST, without=NOT_LISTED), now
    )
    if per_item is not None:
        return Pace(per_item)
    of_dag = [Condition("dag_id", "=", backfill["dag_id"]), Condition("state", "=", states.SUCCESS)]
    return Pace(None, _median_s(store.read(DagRun, of_dag, order_by=("-run_seq",), limit=_LAST, without=NOT_LISTED)))


def _left(backfill: dict[str, Any]) -> int:
    return int(backfill["pending"] + backfill["running"])


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


def items_per_minute(backfill: Mapping[str, Any]) -> float | None:
    """While it runs, the rate that its `time_left_s` is reckoned with (`queries.eta`); once it has ended, what it came
    to from beginning to end. None when there is nothing to tell it from."""
    if backfill["state"] == states.RUNNING and backfill["time_left_s"]:
        return float((backfill["pending"] + backfill["running"]) * 60 / backfill["time_left_s"])
    if backfill["started_at"] is None or backfill["completed_at"] is None:
        return None
    took = (parse_instant(backfill["completed_at"]) - parse_instant(backfill["started_at"])).total_seconds()
    done = backfill["success"] + backfill["failed"]
    return done * 60 / took if took > 0 and done else None
