"""Time partitions of Dagster's as the schedule and the dates of a DAG."""

from __future__ import annotations

import ast
import re
from datetime import datetime, time, timedelta
from typing import Final

from backfill_manager.importers.writer import unparse

PARTITIONS: Final = {
    "HourlyPartitionsDefinition": "@hourly", "DailyPartitionsDefinition": "@daily", "WeeklyPartitionsDefinition": "@weekly",
    "MonthlyPartitionsDefinition": "@monthly",
}  # fmt: skip


def cron_of(kind: str, given: dict[str, ast.expr]) -> str | None:
    """The schedule of partitions that begin later than the preset's; empty if they don't, None if it is not written out."""
    first_day = 1 if kind.startswith("Monthly") else 0
    values = []
    for name, default in (("minute_offset", 0), ("hour_offset", 0), ("day_offset", first_day)):
        match given.get(name):
            case None:
                values.append(default)
            case ast.Constant(value=int() as value):
                values.append(value)
            case _:
                return None
    minute, hour, day = values
    if values == [0, 0, first_day]:
        return ""
    if kind.startswith("Hourly"):
        return f"{minute} * * * *"
    if kind.startswith("Monthly"):
        return f"{minute} {hour} {day} * *"
    return f"{minute} {hour} * * {day if kind.startswith('Weekly') else '*'}"


def days_of(excluded: ast.expr) -> list[str] | None:
    """The dates of a list of `datetime(2025, 12, 25)`; None if anything else is in it."""
    days = []
    for one in excluded.elts if isinstance(excluded, ast.List | ast.Tuple) else [excluded]:
        if not isinstance(one, ast.Call) or unparse(one.func).rpartition(".")[2] != "datetime":
            return None
        try:
            at = datetime(*(ast.literal_eval(part) for part in one.args))
        except (TypeError, ValueError):
            return None
        if at.time() != time() or any(word.arg not in ("tz", "tzinfo") for word in one.keywords):
            return None
        days.append(f"{at:%Y-%m-%d}")
    return days


def date_of(text: str, *, is_end: bool) -> str | None:
    """A date or hour (`2024-05-01-06:00`) as ours. Dagster's end is the first that has no partition, ours the last that has."""
    found = re.fullmatch(r"(\d{4}-\d\d-\d\d)(?:[-T ](\d\d:\d\d)(?::00)?)?", text)
    if found is None:
        return None
    at = datetime.fromisoformat(f"{found[1]}T{found[2] or '00:00'}") - timedelta(minutes=is_end)
    return at.isoformat(timespec="minutes") if found[2] else f"{at:%Y-%m-%d}"
