"""Expands a schedule over a range into its intervals by Spark SQL (`sql/cron_firings.sql`, `sql/duration_firings.sql`).

Python computes a handful of values: the sets of the cron expression, the windows of the time zone (`dags.schedule.timezones`),
and the first firing after the range, which ends the last interval. There is no Python loop over intervals, and the result is
epoch micros (BIGINT), which no session time zone can change: `place` (its position in the order of creation), `logical_date`,
`interval_start`, `interval_end`, `partition_key` (null).
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta

from backfill_manager.clock import micros
from backfill_manager.dags.schedule.cron_expression import Cron
from backfill_manager.dags.schedule.timetable import Timetable
from backfill_manager.planning.backfills.sql_queries import query

_DAY = 86_400


def intervals(timetable: Timetable, start: datetime, end: datetime) -> str:
    """The query of every interval that starts in `[start, end]`; of none for a schedule that has no intervals (None, `@once`)."""
    if timetable.cron is not None:
        return query("cron_firings", _cron_values(timetable, timetable.cron, start, end))
    return query("duration_firings", {"grid": json.dumps(_grid(timetable, start, end))})


def _cron_values(timetable: Timetable, cron: Cron, start: datetime, end: datetime) -> dict[str, str]:
    last = timetable.next_after(end) if start <= end else None  # ends the last interval, starts none
    until = start if last is None else last + timedelta(seconds=1)
    windows = [
        {
            "first_day": window.local_from // _DAY, "until_day": (window.local_until - 1) // _DAY,
            "local_from": window.local_from, "local_until": window.local_until, "zone_offset": window.offset,
        }
        for window in timetable.windows(start, until)
    ]  # fmt: skip
    sets = {"times": cron.times, "months": cron.months, "month_days": cron.month_days, "weekdays": cron.weekdays}
    return {
        "windows": json.dumps(windows),
        "day_rule": cron.day_rule,
        "last_day": str(cron.last_day).lower(),
        "nearest_to": str(cron.nearest_to),
        "excluded": " ".join(map(str, sorted(cron.excluded))),
        "nth_weekdays": " ".join(f"{weekday}#{n}" for weekday, n in sorted(cron.nth_weekdays)),
        **{name: " ".join(str(number) for number in sorted(numbers)) for name, numbers in sets.items()},
    }


def _grid(timetable: Timetable, start: datetime, end: datetime) -> dict[str, int]:
    first = timetable.first_at_or_after(start) if timetable.step is not None and start <= end else None
    if timetable.step is None or first is None or first > end:
        return {"first": 0, "step": 1, "count": 0}
    count = (micros(end) - micros(first)) // timetable.step + 1
    return {"first": micros(first), "step": timetable.step, "count": count}
