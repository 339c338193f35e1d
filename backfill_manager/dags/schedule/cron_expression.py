"""A cron expression as five sets, and the walk over the wall-clock readings that match it.

`croniter` reads the expression (once); everything after that is set membership and bisection, here and, from the same
sets, in `planning/sql/cron_firings.sql`. Time zones play no part here: readings are local seconds since 1970-01-01.

What is special about days is taken over from croniter, so that someone who comes from Airflow gets the same dates:
- both day fields restricted: day-of-month OR day-of-week; a restricted field is one without `*` (so `1-31` restricts);
- `MON#1`, `L5`: the n-th, the last such weekday of the month. Beside a restricted day-of-month they alone decide;
- `15W`: the weekday nearest to the 15th within its month. Beside a restricted day-of-week it alone decides; with `#`,
  both must hold.
"""

from __future__ import annotations

import calendar
import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import date
from functools import lru_cache
from typing import Any, Final, Literal

from backfill_manager.errors import InvalidSchedule

PRESETS: Final[dict[str, str]] = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@quarterly": "0 0 1 */3 *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
LAST: Final = -1  # in place of n: the last such weekday of the month
_FIELDS: Final = ("minute", "hour", "day", "month", "weekday")
_RIGHT: Final = (
    "0-59",
    "0-23",
    "1-31, L for the last day, 15W for the weekday nearest to the 15th",
    "1-12 or JAN-DEC",
    "0-7 or SUN-SAT, MON#2 for the second Monday, L5 for the last Friday",
)
_MAX_LENGTH: Final = 1000  # characters; a list of all minutes has 169
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_RANDOM: Final = re.compile(r"(?:^|,)[hr](?:\(|/|,|$)", re.IGNORECASE)

DayRule = Literal["any", "month", "week", "either", "both"]


@dataclass(frozen=True, eq=False)
class Cron:
    """The sets. Weekdays count from 0 for Sunday, as in cron."""

    text: str
    times: tuple[int, ...]  # minutes of the day at which it fires, rising
    every_hour: bool  # hour field `*`: the other half of the clock-change rule
    months: frozenset[int]
    day_rule: DayRule  # which of the two day sets decide, and how they are joined
    month_days: frozenset[int]
    last_day: bool  # `L` among the days
    nearest_to: int  # `15W`: 15; 0 for none
    weekdays: frozenset[int]
    nth_weekdays: frozenset[tuple[int, int]]  # (weekday, n); if there are any, `weekdays` is empty
    excluded: frozenset[int] = frozenset()  # days since 1970-01-01 that do not match, whatever the sets say
    _days: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict, repr=False)

    def days_of(self, year: int, month: int) -> tuple[int, ...]:
        """The matching days of one month, as days since 1970-01-01."""
        if (year, month) not in self._days:
            self._days[year, month] = tuple(self._find_days(year, month)) if month in self.months else ()
        return self._days[year, month]

    def first_reading(self, low: int, high: int) -> int | None:
        """The first matching reading in `[low, high)`."""
        first, minute = divmod(-(-low // 60), 1440)
        for day in self._days_between(first, (high - 1) // 86_400):
            at = bisect_left(self.times, minute) if day == first else 0
            if at < len(self.times):
                reading = (day * 1440 + self.times[at]) * 60
                return reading if reading < high else None
        return None

    def last_reading(self, low: int, high: int) -> int | None:
        last, minute = divmod((high - 1) // 60, 1440)
        for day in self._days_between(low // 86_400, last, backwards=True):
            at = bisect_left(self.times, minute + 1) if day == last else len(self.times)
            if at > 0:
                reading = (day * 1440 + self.times[at - 1]) * 60
                return reading if reading >= low else None
        return None

    def _days_between(self, first: int, last: int, *, backwards: bool = False) -> Iterator[int]:
        """The matching days in `[first, last]`."""
        begin, end = (date.fromordinal(day + _EPOCH_DAY) for day in (first, last))
        months = range(begin.year * 12 + begin.month - 1, end.year * 12 + end.month)
        for month in reversed(months) if backwards else months:
            days = self.days_of(month // 12, month % 12 + 1)
            inside = days[bisect_left(days, first) : bisect_left(days, last + 1)]
            yield from reversed(inside) if backwards else inside

    def _find_days(self, year: int, month: int) -> list[int]:
        first_weekday, length = calendar.monthrange(year, month)
        first = date(year, month, 1).toordinal() - _EPOCH_DAY
        matching = []
        for day in range(1, length + 1):
            weekday = (first_weekday + day) % 7  # monthrange counts from Monday, cron from Sunday
            by_day = self._by_day_of_month(year, month, day, length)
            by_week = self._by_weekday(weekday, day, length)
            fits = {
                "any": True,
                "month": by_day,
                "week": by_week,
                "either": by_day or by_week,
                "both": by_day and by_week,
            }
            if fits[self.day_rule] and first + day - 1 not in self.excluded:
                matching.append(first + day - 1)
        return matching

    def _by_day_of_month(self, year: int, month: int, day: int, length: int) -> bool:
        if self.nearest_to:
            target = min(self.nearest_to, length)
            weekday = calendar.weekday(year, month, target)
            if weekday == calendar.SATURDAY:
                target += -1 if target > 1 else 2
            elif weekday == calendar.SUNDAY:
                target += 1 if target < length else -2
            return day == target
        return day in self.month_days or (self.last_day and day == length)

    def _by_weekday(self, weekday: int, day: int, length: int) -> bool:
        if self.nth_weekdays:
            nth = (weekday, (day + 6) // 7) in self.nth_weekdays
            return nth or (day > length - 7 and (weekday, LAST) in self.nth_weekdays)
        return weekday in self.weekdays


_KINDS_OF_YEAR: Final = tuple(  # there are fourteen, by length and by first weekday
    {(calendar.isleap(year), calendar.weekday(year, 1, 1)): year for year in range(2000, 2040)}.values()
)


@lru_cache(maxsize=1024)
def parse_cron(text: str, exclude_dates: tuple[str, ...] = ()) -> Cron:
    """The sets of a five-field expression or a preset; `InvalidSchedule` names the field that is wrong, or says that
    the expression never fires. The text is expected as `timetable.parse_schedule` leaves it, dates as YYYY-MM-DD."""
    if exclude_dates:
        excluded = frozenset(date.fromisoformat(day).toordinal() - _EPOCH_DAY for day in exclude_dates)
        return replace(parse_cron(text), excluded=excluded, _days={})
    fields = PRESETS.get(text.lower(), text).split()
    shown = repr(text) if len(text) <= 60 else f"{text[:60]!r}..."
    if len(text) > _MAX_LENGTH or not text.isascii():
        raise InvalidSchedule(f"the cron expression {shown} must be at most {_MAX_LENGTH} plain ASCII characters")
    if len(fields) != 5:
        why = " (seconds and years are not supported)" if len(fields) in (6, 7) else ""
        count = f"{len(fields)} field{'' if len(fields) == 1 else 's'}"
        raise InvalidSchedule(
            f"the cron expression {shown} has {count}, but needs five{why}: minute hour day month weekday"
        )
    for name, value in zip(_FIELDS, fields, strict=True):
        if _RANDOM.search(value):
            why = "H and R stand for a random value; write the one you want"
            raise InvalidSchedule(f"the cron expression {shown} has {value!r} as its {name}: {why}")
    made = _read(fields)
    if isinstance(made, str):
        raise InvalidSchedule(f"the cron expression {shown} can't be read: {_what_is_wrong(fields, made)}")
    cron = _sets(text, *made)
    if not any(cron.days_of(year, month) for year in _KINDS_OF_YEAR for month in range(1, 13)):
        raise InvalidSchedule(f"the cron expression {shown} never fires: there is no such day in any year")
    return cron


def _read(fields: list[str]) -> tuple[list[list[Any]], dict[int, set[Any]], set[int]] | str:
    from croniter import croniter

    try:
        reader = croniter(" ".join(fields), start_time=0.0)
    except (ValueError, TypeError, KeyError, IndexError) as error:  # its own errors are ValueErrors and TypeErrors
        return str(error).splitlines()[0] if str(error) else type(error).__name__
    return reader.expanded, reader.nth_weekday_of_month, reader.nearest_weekday


def _what_is_wrong(fields: list[str], complaint: str) -> str:
    for at, (name, value, right) in enumerate(zip(_FIELDS, fields, _RIGHT, strict=True)):
        alone = ["*"] * 5
        alone[at] = value
        if isinstance(_read(alone), str):
            parts = [_read([*"****", part]) for part in value.split(",")] if name == "weekday" else []
            if len(parts) > 1 and not any(isinstance(part, str) for part in parts):
                return f"the weekday {value!r} mixes plain weekdays with n-th ones; use one kind or the other"
            return f"the {name} {value!r} is not one; right would be {right}, or * , lists a,b, ranges a-b, steps */n"
    return complaint


def _sets(text: str, expanded: list[list[Any]], nth: dict[int, set[Any]], nearest_to: set[int]) -> Cron:
    minutes, hours, days, months, weekdays = expanded
    by_month, by_week = days[0] != "*", weekdays[0] != "*"
    rule: DayRule = "either" if by_month and by_week else "month" if by_month else "week" if by_week else "any"
    if rule == "either" and (nearest_to or nth):  # croniter's way, see the head of this file
        rule = "both" if nearest_to and nth else "month" if nearest_to else "week"

    def numbers(values: list[Any], everything: range) -> list[int]:
        return list(everything) if "*" in values else [value for value in values if value != "l"]

    return Cron(
        text=text,
        times=tuple(sorted(h * 60 + m for h in numbers(hours, range(24)) for m in numbers(minutes, range(60)))),
        every_hour="*" in hours,
        months=frozenset(numbers(months, range(1, 13))),
        day_rule=rule,
        month_days=frozenset(numbers(days, range(1, 32))),
        last_day="l" in days,
        nearest_to=next(iter(nearest_to), 0),
        weekdays=frozenset() if nth else frozenset(numbers(weekdays, range(7))),
        nth_weekdays=frozenset((day, LAST if n == "l" else n) for day, ns in nth.items() for n in ns),
    )
