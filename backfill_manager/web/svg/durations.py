"""Layout of how long the last runs of a task took: a bar each, oldest first, and their median as a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from statistics import median
from typing import Any, Final, NamedTuple

from backfill_manager.clock import parse_instant
from backfill_manager.model.states import RUNNING

HEIGHT: Final = 72  # px, of the longest
TOP: Final = 12  # px above it, for a mark
MIN_HEIGHT: Final = 2
MIN_PLACES: Final = 12  # of few bars none is wider than a twelfth


class Bar(NamedTuple):
    x: float  # per cent
    width: float
    y: float  # px from the top
    height: float
    row: Mapping[str, Any]  # of `queries.tasks.list_all_task_instances`
    duration_s: float


class Durations(NamedTuple):
    bars: tuple[Bar, ...]
    median_s: float | None  # of those that succeeded
    median_y: float
    longest_s: float


def durations(newest: Sequence[Mapping[str, Any]], now: datetime) -> Durations:
    """`newest` first. Those that have not started are left out; of one that is running, the time so far counts."""
    timed = [(row, seconds) for row in reversed(newest) if (seconds := _seconds(row, now)) is not None]
    if not timed:
        return Durations((), None, 0.0, 0.0)
    longest = max(seconds for _, seconds in timed)
    place = 100 / max(len(timed), MIN_PLACES)

    def height(seconds: float) -> float:
        return round(max(HEIGHT * seconds / longest, MIN_HEIGHT), 1) if longest else float(MIN_HEIGHT)

    bars = tuple(
        Bar(round(n * place + place * 0.1, 3), round(place * 0.8, 3), round(TOP + HEIGHT - high, 1), high, row, seconds)
        for n, (row, seconds) in enumerate(timed)
        for high in (height(seconds),)
    )
    whole = [seconds for row, seconds in timed if row["state"] == "success"]
    middle = median(whole) if whole else None
    return Durations(bars, middle, round(TOP + HEIGHT - height(middle or 0.0), 1), longest)


def _seconds(row: Mapping[str, Any], now: datetime) -> float | None:
    if row["started_at"] is None:
        return None
    if row["state"] == RUNNING:
        return max((now - parse_instant(row["started_at"])).total_seconds(), 0.0)
    seconds: float | None = row["duration_s"]
    return seconds
