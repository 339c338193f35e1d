"""The data interval of a run, and where its ends lie on a wall clock.

Comparing instants needs no rule. A DATE or a TIMESTAMP_NTZ is a reading of a wall clock in the DAG's time zone, and a
clock that is put back shows some readings twice and one that is put forward leaves some out. The rule is that of the
schedule (docs/semantics.md, S14 to S16): a repeated reading belongs to its second occurrence, a skipped one moves forward by
the gap. So neighbouring intervals share no reading and lose none, whatever their length.

Standard library only: this module is also sent to executors that have no backfill_manager.
"""

from __future__ import annotations

import zoneinfo
from bisect import bisect_left
from datetime import date, datetime, time, timedelta
from typing import NamedTuple

_MICROSECOND = timedelta(microseconds=1)
_DAY = timedelta(days=1)


class Interval(NamedTuple):
    """Half-open `[start, end)`, aware UTC instants; `start, end = ctx.interval` works."""

    start: datetime
    end: datetime


def reading(at: datetime, timezone: str) -> datetime:
    """The first wall-clock reading (naive) in `timezone` that belongs to the instant `at` or to a later one."""
    zone = zoneinfo.ZoneInfo(timezone)
    here = at.astimezone(zone)
    wall = here.replace(tzinfo=None)
    first, second = (here.replace(fold=fold).utcoffset() or timedelta() for fold in (0, 1))
    if here.fold == 0 and first > second:  # the first pass through repeated readings: they belong to the second
        whole = at.replace(microsecond=0)
        until_change = bisect_left(
            range(round((first - second).total_seconds())), True,
            key=lambda s: (whole + timedelta(seconds=s)).astimezone(zone).utcoffset() != first,
        )  # fmt: skip
        return (whole + timedelta(seconds=until_change)).astimezone(zone).replace(tzinfo=None)
    before = (at - _MICROSECOND).astimezone(zone).replace(tzinfo=None) + _MICROSECOND
    return min(before, wall) if before < wall else wall  # right after a gap: the skipped readings belong here


def ends(interval: Interval, timezone: str) -> dict[str, tuple[str, str]]:
    """Spark type name -> the interval's ends in that type, in ISO 8601."""
    readings = reading(interval.start, timezone), reading(interval.end, timezone)
    start, end = (_utc(at).isoformat(timespec="microseconds") + "Z" for at in interval)
    first, last = (at.isoformat(timespec="microseconds") for at in readings)
    return {
        "timestamp": (start, end),
        "timestamp_ntz": (first, last),
        "date": (_date(readings[0]).isoformat(), _date(readings[1]).isoformat()),
    }


def bounds(interval: Interval, timezone: str) -> dict[str, tuple[str, str]]:
    """Spark type name -> the interval's ends as literals of that type. Written out of our own values only, so safe in SQL."""
    found = ends(interval, timezone)
    return {kind: (f"{kind.upper()} '{lower}'", f"{kind.upper()} '{upper}'") for kind, (lower, upper) in found.items()}


def instant_literal(at: datetime) -> str:
    return f"TIMESTAMP '{_utc(at).isoformat(timespec='microseconds')}Z'"


def _utc(at: datetime) -> datetime:
    """Its reading in UTC (naive)."""
    return at.astimezone(zoneinfo.ZoneInfo("UTC")).replace(tzinfo=None)


def _date(at: datetime) -> date:
    """A date is its midnight: the first date whose midnight is not before `at`."""
    return at.date() if at.time() == time.min else at.date() + _DAY
