"""The hours in which a backfill starts work: `20:00-06:00`, read on the wall clock of the DAG's time zone.

The end is not part of it; an end at or before the beginning lies on the next day. `00:00-24:00` is always.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from backfill_manager.clock import UTC
from backfill_manager.schemas import errors

_CLOCKS_CHANGE_AT = 30  # whole multiples of so many minutes of UTC, in every zone of our time
_HOURS = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-4]):([0-5]\d)", re.ASCII)


@dataclass(frozen=True)
class TimeWindow:
    """Minutes since midnight; `until` may lie beyond the next midnight."""

    start: int
    until: int

    @classmethod
    def parse(cls, text: str) -> TimeWindow:
        match = _HOURS.fullmatch(text.strip())
        hours = tuple(int(part) for part in match.groups()) if match else None
        if hours is None or hours[2:] > (24, 0):
            raise errors.BAD_WINDOW(window=text[:40])
        start, until = hours[0] * 60 + hours[1], hours[2] * 60 + hours[3]
        if start == until:
            raise errors.EMPTY_WINDOW(window=text)
        return cls(start, until if until > start else until + 24 * 60)

    @property
    def length_s(self) -> float:
        return (self.until - self.start) * 60.0

    def is_open(self, at: datetime, timezone: str) -> bool:
        minute = self._minute(at, timezone)
        return self.start <= minute < self.until or minute + 24 * 60 < self.until

    def opens_at(self, at: datetime, timezone: str) -> datetime:
        """The first instant at or after `at` at which it is open, to the minute."""
        opening = at if self.is_open(at, timezone) else at.astimezone(UTC).replace(second=0, microsecond=0)
        while not self.is_open(opening, timezone):
            wait = (self.start - self._minute(opening, timezone)) % (24 * 60)
            to_change = _CLOCKS_CHANGE_AT - opening.minute % _CLOCKS_CHANGE_AT  # until then a clock runs on evenly
            opening += timedelta(minutes=min(wait, to_change))
        return opening

    def seconds_left(self, at: datetime, timezone: str) -> float | None:
        """Until it closes, from an instant at which it is open; None: it never does."""
        if self.until - self.start >= 24 * 60:
            return None
        closing = at.astimezone(UTC).replace(second=0, microsecond=0)
        while self.is_open(closing, timezone):
            minute = self._minute(closing, timezone)
            left = (self.until if minute >= self.start else self.until - 24 * 60) - minute
            closing += timedelta(minutes=min(left, _CLOCKS_CHANGE_AT - closing.minute % _CLOCKS_CHANGE_AT))
        return max(0.0, (closing - at).total_seconds())

    @staticmethod
    def _minute(at: datetime, timezone: str) -> int:
        local = at.astimezone(ZoneInfo(timezone))
        return local.hour * 60 + local.minute
