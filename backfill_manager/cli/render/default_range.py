"""The ends of a new backfill's range that were not given, in words; apart from `plan`, as lists load no timetables."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, time
from typing import Any
from zoneinfo import ZoneInfo

from backfill_manager.clock import in_zone, parse_instant
from backfill_manager.dags.schedule.timetable import ONCE
from backfill_manager.planning.backfills.backfill_range import RANGED


def may_leave_ends_out(values: Mapping[str, Any]) -> bool:
    """Whether a new backfill covers a range of which an end was not given. A copy, or a `config`, has another backfill's."""
    if any(values.get(name) for name in ("config", "copy_of", "dates", "partitions")):
        return False
    is_range = (values.get("kind") or "schedule") in RANGED
    return is_range and not (values.get("start_date") and values.get("end_date"))


def ends_left_out(values: Mapping[str, Any], dag: Mapping[str, Any], now: datetime) -> str | None:
    """`No --from: from start_date 2013-01-01; no --to: until now (the last complete interval).`: the ends that a new backfill of
    this DAG gets as they were not given. None for one that is refused, so that an error stays one line."""
    start, end, zone = dag["start_date"], dag["end_date"], dag["timezone"]
    is_single, repeats = values.get("kind") == "single", dag["schedule"] not in (None, ONCE)
    if not dag["is_active"] or not (repeats or is_single):
        return None
    parts = []
    if not values.get("start_date"):
        if start is None:
            return None
        parts.append(f"no --from: from start_date {_day(start, zone)}")
    if not values.get("end_date"):
        if end is not None and (not repeats or _is_complete(end, dag, now)):
            parts.append(f"no --to: until end_date {_day(end, zone)}")
        elif repeats:
            parts.append("no --to: until now (the last complete interval)")
        else:
            return None
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _is_complete(end: str, dag: Mapping[str, Any], now: datetime) -> bool:
    """Whether the interval that begins at the DAG's end_date, its last, has ended."""
    at = parse_instant(end)
    if at > now:
        return False
    from backfill_manager.dags.schedule.timetable import Timetable, parse_schedule

    anchor = None if dag["start_date"] is None else parse_instant(dag["start_date"])
    timetable = Timetable(parse_schedule(dag["schedule"]), dag["timezone"], anchor, dag["exclude_dates"])
    complete = timetable.last_complete(now)
    return complete is not None and at <= complete[0]


def _day(instant: str, zone: str) -> str:
    """As people type it in the zone: midnight as the date alone."""
    at = parse_instant(instant).astimezone(ZoneInfo(zone))
    return at.date().isoformat() if at.time() == time() else in_zone(at, zone)
