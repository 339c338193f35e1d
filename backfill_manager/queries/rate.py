"""How fast a backfill goes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backfill_manager.clock import parse_instant
from backfill_manager.model import states


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
