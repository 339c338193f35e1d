"""Describes a schedule for tables and pages: everyday ones in plain English, others by their expression."""

from __future__ import annotations

import calendar
from typing import Final

from backfill_manager.dags.schedule.cron_expression import Cron
from backfill_manager.humanise import plural

_UNITS: Final = (("week", 604_800), ("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1))
_MAX_TIMES: Final = 4  # more than these are not spelled out


def describe_schedule(schedule: str | dict[str, float] | None, cron: Cron | None, timezone: str) -> str:
    if schedule is None:
        return "only when triggered"
    if isinstance(schedule, dict):
        return f"every {_length(int(schedule['seconds']))}"
    if cron is None:
        return "once"
    without = f", except {plural(len(cron.excluded), 'date')}" if cron.excluded else ""
    return f"{_cron(cron)} ({timezone}){without}"


def _cron(cron: Cron) -> str:
    days, times = _days(cron), _times(cron)
    if days is None or times is None:
        return f"cron {cron.text!r}"
    return f"{times}{days}" if times.startswith("every") else f"{days.strip() or 'every day'} at {times}"


def _length(seconds: int) -> str:
    parts = []
    for unit, size in _UNITS:
        n, seconds = divmod(seconds, size)
        if n:
            parts.append(f"{n} {unit}{'' if n == 1 else 's'}")
    return " ".join(parts) if len(parts) > 1 else parts[0].removeprefix("1 ")


def _times(cron: Cron) -> str | None:
    """`00:00 and 12:00`, or `every 15 minutes`."""
    if cron.every_hour:
        minutes = [minute for minute in cron.times if minute < 60]
        if minutes == [0]:
            return "every hour"
        if len(minutes) == 1:
            return f"every hour at minute {minutes[0]}"
        step = minutes[1] - minutes[0]
        if minutes == list(range(0, 60, step)) and 60 % step == 0:
            return "every minute" if step == 1 else f"every {step} minutes"
        return None
    if len(cron.times) > _MAX_TIMES:
        return None
    return _listed([f"{minute // 60:02}:{minute % 60:02}" for minute in cron.times])


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _days(cron: Cron) -> str | None:
    """` every Monday`, ` on day 1 of each month`, nothing for every day; None for anything longer."""
    every_month = len(cron.months) == 12
    if cron.day_rule == "any":
        return "" if every_month else None
    if cron.day_rule == "week" and every_month and not cron.nth_weekdays:
        if cron.weekdays == frozenset({1, 2, 3, 4, 5}):
            return " on weekdays"
        if len(cron.weekdays) == 7:
            return ""
        names = [calendar.day_name[day] for day in sorted((day - 1) % 7 for day in cron.weekdays)]  # 0 is Monday there
        return f" every {names[0]}" if len(names) == 1 else f" on {_listed(names)}"
    if cron.day_rule != "month" or cron.nearest_to or len(cron.month_days) + cron.last_day != 1:
        return None
    day = "the last day" if cron.last_day else f"day {next(iter(cron.month_days))}"
    if every_month:
        return f" on {day} of each month"
    if len(cron.months) == 1:
        return f" on {day} of {calendar.month_name[next(iter(cron.months))]}"
    if sorted(cron.months) == [1, 4, 7, 10]:
        return f" on {day} of each quarter"
    return None
