"""Schedules: how they are written, and when they fire. Pure; the scheduler's next run and the planner's SQL share it.

A schedule divides time into half-open intervals between consecutive firings (docs/semantics.md, "Intervals and time
zones"). A firing is found without stepping through the minutes: the zone's windows (`dags.schedule.timezones`) cut time into
stretches with one offset, and within a stretch the next matching reading is a bisection (`dags.schedule.cron`). It costs some
microseconds.

Importing this is light; croniter is loaded when the first expression is read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from datetime import time as wall_time
from typing import TYPE_CHECKING, Any, Final

from backfill_manager.clock import DATE_FORM, UTC, format_instant, from_micros, micros
from backfill_manager.dags.schedule import timezones as tz
from backfill_manager.dags.schedule.cron_expression import PRESETS, Cron, parse_cron
from backfill_manager.dags.schedule.description import describe_schedule
from backfill_manager.dags.schedule.timezones import FIRST_YEAR, LAST_YEAR, check_timezone, start_of_day
from backfill_manager.errors import InvalidSchedule, nearest
from backfill_manager.schemas import errors

if TYPE_CHECKING:
    from backfill_manager.dags.definition import DagSpec

Schedule = str | dict[str, float] | None  # as `DagSpec.schedule` keeps it

ONCE: Final = "@once"
_SECOND: Final = 1_000_000  # micros
_MAX_STEP_S: Final = 100 * 366 * 86_400
_MAX_YEARS_APART: Final = 45  # between two firings: 29 February on a given weekday, across a year like 2100
_DATE: Final = re.compile(
    r"(?P<day>\d{4}-\d{2}-\d{2})"
    r"(?:[T ](?P<time>\d{2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?)(?P<offset>Z|[+-]\d{2}(?::?\d{2})?)?)?",
    re.IGNORECASE | re.ASCII,
)


def parse_schedule(value: Any, *, where: str = "schedule") -> Schedule:
    """The schedule in its JSON form: a cron expression or preset as text, `{"seconds": n}` for a duration, or None. It takes
    text, None, a `timedelta` (a pendulum duration is one) or that form. `InvalidSchedule` in a line that begins with `where`."""
    try:
        if value is None:
            return None
        if isinstance(value, str):
            return _parse_text(value)
        if isinstance(value, timedelta):
            return _parse_duration(value)
        if isinstance(value, Mapping):
            seconds = value.get("seconds")
            if set(value) == {"seconds"} and isinstance(seconds, int | float) and not isinstance(seconds, bool):
                return _step(seconds)
            raise InvalidSchedule(f'{dict(value)!r} is not a duration; it is written {{"seconds": 3600}}')
        what = "give a cron expression, a preset such as '@daily', a timedelta or None"
        raise InvalidSchedule(f"{value!r} is not a schedule; {what}")
    except InvalidSchedule as error:
        raise InvalidSchedule(f"{where}: {error}") from None


def _parse_text(value: str) -> str:
    text = " ".join(value.split()) if value.isascii() else value  # blanks beyond ASCII don't separate fields
    if not text:
        raise InvalidSchedule("the text is empty; give a cron expression, a preset such as '@daily', or None")
    presets = (*PRESETS, ONCE)
    if f"@{text.lower()}" in presets:
        raise InvalidSchedule(f"{text!r} is not a schedule; did you mean '@{text.lower()}'?")
    if not text.startswith("@"):
        parse_cron(text)
        return text
    if text.lower() not in presets:
        hint = nearest(text.lower(), presets) or "; one of " + ", ".join(presets)
        raise InvalidSchedule(f"there is no preset {text[:60]!r}{hint}")
    return text.lower()


def _parse_duration(value: timedelta) -> dict[str, float]:
    if getattr(value, "years", 0) or getattr(value, "months", 0):
        what = "use '@monthly', '@yearly' or another cron expression"
        raise InvalidSchedule(f"{value!r} has months or years, which are not of one length; {what}")
    return _step(value.total_seconds())


def _step(seconds: float) -> dict[str, float]:
    if not math.isfinite(seconds) or seconds != int(seconds):
        raise InvalidSchedule(f"the duration {seconds} s is not a whole number of seconds")
    if not 1 <= seconds <= _MAX_STEP_S:
        raise InvalidSchedule(f"the duration {int(seconds)} s must be from one second to a hundred years")
    return {"seconds": int(seconds)}


def parse_date(value: str | date, timezone: str, *, name: str) -> datetime:
    """What people write for a date, as an instant in UTC: `2013-01-01`, `2013-01-01T05:00`, with `Z` or an offset.

    Without an offset it is wall-clock time in `timezone`, the date alone midnight there; a reading that the clocks
    skip or repeat is the instant at which a cron schedule with that time fires. `InvalidInput` names the field (`name`)."""
    zone = check_timezone(timezone)
    if isinstance(value, datetime):  # made plain, whatever class it came as
        shown = value.isoformat()
        read = datetime.combine(value.date(), value.time(), value.tzinfo)
    elif isinstance(value, date):
        read, shown = datetime.combine(value, wall_time()), value.isoformat()
    else:
        read, shown = _read_date(value, name), value
    if not FIRST_YEAR <= read.year < LAST_YEAR:
        years = f"{FIRST_YEAR} to {LAST_YEAR - 1}"
        raise errors.INVALID_DATE(field=name, problem=f"{shown!r} is out of range; use a year from {years}")
    return tz.instant_of_reading(read, zone) if read.tzinfo is None else read.astimezone(UTC)


def parse_start(value: str | date, timezone: str, *, name: str) -> datetime:
    """The start of a range as people write it, as an instant in UTC. The date alone is the first instant of that day."""
    at, day = parse_date(value, timezone, name=name), date_only(value)
    return at if day is None else start_of_day(day, check_timezone(timezone))


def parse_end(value: str | date, timezone: str, *, name: str) -> datetime:
    """The inclusive end of a range as people write it, as an instant in UTC. The date alone means the whole day: its
    last microsecond. With a time it is that instant."""
    at, day = parse_date(value, timezone, name=name), date_only(value)
    return at if day is None else end_of_day(day, timezone) - timedelta(microseconds=1)


def parse_last(value: str | date, timetable: Timetable) -> datetime:
    """The same for the end of a range of intervals: of a date alone the last instant at which an interval starts on that
    day, or its first instant when none does. No interval starts between this and the end of the day."""
    end = parse_end(value, timetable.timezone, name="end_date")
    if (day := date_only(value)) is None:
        return end
    begin = start_of_day(day, check_timezone(timetable.timezone))
    return max(begin, timetable.last_at_or_before(end) or begin) if timetable.repeats else begin


def date_only(value: str | date) -> date | None:
    if isinstance(value, datetime):
        return None
    if isinstance(value, date):
        return value
    match = _DATE.fullmatch(value.strip()) if isinstance(value, str) else None
    return date.fromisoformat(match["day"]) if match is not None and match["time"] is None else None


def end_of_day(day: date, timezone: str) -> datetime:
    return start_of_day(day + timedelta(days=1), check_timezone(timezone))


def _read_date(text: str, name: str) -> datetime:
    expected = f"use {DATE_FORM}, {DATE_FORM}THH:MM or {DATE_FORM}THH:MM+01:00"
    match = _DATE.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        shown = text if not isinstance(text, str) or len(text) <= 60 else f"{text[:60]}..."
        raise errors.INVALID_DATE(field=name, problem=f"{shown!r} is not a date; {expected}")
    clock, offset = match["time"] or "00:00", (match["offset"] or "").upper()
    whole, *part = re.split("[.,]", clock)
    if part:
        clock = f"{whole}.{part[0][:6]:0<6}"
    if offset == "Z":
        offset = "+00:00"
    elif offset and ":" not in offset:
        offset = f"{offset[:3]}:{offset[3:] or '00'}"
    try:
        return datetime.fromisoformat(f"{match['day']}T{clock}{offset}")
    except ValueError as error:
        raise errors.INVALID_DATE(field=name, problem=f"{text!r} is not a date: {error}; {expected}") from None


def timetable_of(dag: DagSpec, range_start: datetime | None = None) -> Timetable:
    """The DAG's timetable. A duration counts from the DAG's `start_date`, or else from where the range starts."""
    return Timetable(dag.schedule, dag.timezone, dag.start_date or range_start, dag.exclude_dates)


class Timetable:
    """When a schedule fires. All instants are aware; what is given back is UTC.

    `anchor` is where a duration's grid passes through (also before it), and the one firing of `@once`. Without
    one, a duration fires at any instant it is given, and `@once` never. `None` as schedule never fires.
    Cron does not fire on `exclude_dates` (YYYY-MM-DD, in the time zone): the interval before them ends after them.
    """

    def __init__(
        self, schedule: Schedule, timezone: str = "UTC", anchor: datetime | None = None, exclude_dates: Sequence[str] = ()
    ) -> None:  # fmt: skip
        check_timezone(timezone)
        self.schedule = parse_schedule(schedule)
        self.timezone = timezone
        self.anchor = anchor
        is_text = isinstance(self.schedule, str) and self.schedule != ONCE
        self.cron: Cron | None = parse_cron(str(self.schedule), tuple(exclude_dates)) if is_text else None
        self.step: int | None = int(self.schedule["seconds"]) * _SECOND if isinstance(self.schedule, dict) else None

    @property
    def repeats(self) -> bool:
        """False for None and `@once`, which have no intervals."""
        return self.cron is not None or self.step is not None

    def first_at_or_after(self, at: datetime) -> datetime | None:
        """The first firing at or after an instant; None when there is none."""
        if self.cron is not None:
            return _instant(self._first(self.cron, -(-micros(at) // _SECOND)))
        if self.step is not None:
            return _shift(at, -self._beyond_grid(at) % self.step)
        return self._once(lambda anchor: anchor >= at)

    def next_after(self, at: datetime) -> datetime | None:
        """The first firing later than an instant: for a firing, the end of the interval that it starts."""
        if self.cron is not None:
            return _instant(self._first(self.cron, micros(at) // _SECOND + 1))
        if self.step is not None:
            return _shift(at, self.step - self._beyond_grid(at))
        return self._once(lambda anchor: anchor > at)

    def last_at_or_before(self, at: datetime) -> datetime | None:
        """The last firing at or before an instant; None when there is none."""
        if self.cron is not None:
            return _instant(self._last(self.cron, micros(at) // _SECOND))
        if self.step is not None:
            return _shift(at, -self._beyond_grid(at))
        return self._once(lambda anchor: anchor <= at)

    def last_before(self, at: datetime) -> datetime | None:
        return self.last_at_or_before(at - timedelta(microseconds=1))

    def last_complete(self, now: datetime) -> tuple[datetime, datetime] | None:
        """The last interval that has ended; None for a schedule without any."""
        end = self.last_at_or_before(now) if self.repeats else None
        start = self.last_before(end) if end is not None else None
        return None if start is None or end is None else (start, end)

    def intervals(self, start: datetime, end: datetime) -> Iterator[tuple[datetime, datetime]]:
        """Every interval that starts in `[start, end]`, oldest first, one at a time."""
        at = self.first_at_or_after(start) if self.repeats else None
        while at is not None and at <= end:
            until = self.next_after(at)
            if until is None:
                return
            yield at, until
            at = until

    def estimate_count(self, start: datetime, end: datetime) -> int:
        """Intervals that start in `[start, end]`: exact for a duration, else right to a few days' worth, and quick."""
        if start > end:
            return 0
        if self.step is not None:
            first = self.first_at_or_after(start)
            return 0 if first is None or first > end else (micros(end) - micros(first)) // self.step + 1
        if self.cron is None:
            return 0
        months = range(start.year * 12 + start.month - 1, end.year * 12 + end.month)
        days = sum(len(self.cron.days_of(month // 12, month % 12 + 1)) for month in months)
        return min(days, (end - start).days + 2) * len(self.cron.times)

    def windows(self, start: datetime, until: datetime) -> list[tz.Window]:
        """For cron: the zone's windows over `[start, until)`, by the half of the clock-change rule that applies."""
        assert self.cron is not None
        first, last = -(-micros(start) // _SECOND), -(-micros(until) // _SECOND)
        return tz.windows_between(self.timezone, first, last, self.cron.every_hour)

    def describe(self) -> str:
        """The schedule in words: `every day at 00:00 (Europe/Amsterdam)`."""
        return describe_schedule(self.schedule, self.cron, self.timezone)

    def nearest_starts(self, start: datetime, end: datetime) -> str:
        """For a range without any start: `the nearest start at X and Y`."""
        near = (self.last_before(start), self.next_after(end))
        return f"the nearest start at {' and '.join(str(format_instant(at)) for at in near if at is not None)}"

    def _once(self, fits: Callable[[datetime], bool]) -> datetime | None:
        """The one firing of `@once`, if it fits."""
        return self.anchor.astimezone(UTC) if self.schedule == ONCE and self.anchor and fits(self.anchor) else None

    def _beyond_grid(self, at: datetime) -> int:
        """Micros since the last point of a duration's grid."""
        return 0 if self.anchor is None else (micros(at) - micros(self.anchor)) % (self.step or 1)

    def _first(self, cron: Cron, at: int) -> int | None:
        year = from_micros(at * _SECOND).year
        for each in range(max(year, FIRST_YEAR), min(year, LAST_YEAR) + _MAX_YEARS_APART + 1):
            found: int | None = None
            for window in tz.windows_of_year(self.timezone, each, cron.every_hour):
                if found is not None and window.utc_from >= found:  # so are those after it
                    break
                if window.utc_until <= at:
                    continue
                reading = cron.first_reading(max(window.local_from, at + window.offset), window.local_until)
                if reading is not None:
                    firing = reading - window.offset
                    found = firing if found is None else min(found, firing)
            if found is not None:
                return found
        return None

    def _last(self, cron: Cron, at: int) -> int | None:
        year = from_micros(at * _SECOND).year
        for each in range(min(year, LAST_YEAR + _MAX_YEARS_APART), max(year - _MAX_YEARS_APART, FIRST_YEAR) - 1, -1):
            found = [
                reading - window.offset
                for window in tz.windows_of_year(self.timezone, each, cron.every_hour)
                if window.utc_from <= at
                and (reading := cron.last_reading(window.local_from, min(window.local_until, at + window.offset + 1)))
                is not None
            ]
            if found:
                return max(found)
        return None


def _instant(seconds: int | None) -> datetime | None:
    return None if seconds is None else from_micros(seconds * _SECOND)


def _shift(at: datetime, by: int) -> datetime | None:
    try:
        return from_micros(micros(at) + by)
    except OverflowError:  # beyond the year 9999
        return None
