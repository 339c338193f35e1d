"""Time and ids: the only source of both.

Everything that needs "now" takes a `Clock`; tests pass `testing.FakeClock` and never sleep.
Instants are timezone-aware UTC datetimes throughout; `parse_instant` and `format_instant` are their only text form.
"""

from __future__ import annotations

import secrets
import time
from datetime import datetime, timedelta, timezone
from typing import Final, Protocol
from zoneinfo import ZoneInfo

UTC = timezone.utc
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_INSTANT = datetime.min.replace(tzinfo=UTC)


class Clock(Protocol):
    def now(self) -> datetime:
        """The instant, aware, in UTC."""

    def monotonic(self) -> float:
        """Seconds that only go forward; for leases and time limits."""

    def boottime(self) -> float:
        """The same, which goes on while the machine sleeps: for what others may do meanwhile."""

    def new_id(self) -> str:
        """A new id: 12 hex digits, random, so that a few of its first characters tell it from others."""


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def boottime(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()

    def new_id(self) -> str:
        return secrets.token_hex(6)


# What messages give as right, of no year that a reader could take for a hint.
DATE_FORM: Final = "YYYY-MM-DD"
INSTANT_FORM: Final = "YYYY-MM-DDTHH:MM:SSZ"


def format_instant(at: datetime | None) -> str | None:
    """ISO-8601 in UTC with `Z`: `2013-01-01T05:00:00Z`; parts of a second only when there are any."""
    if at is None:
        return None
    return f"{at.astimezone(UTC).replace(tzinfo=None).isoformat()}Z"


def in_zone(at: datetime, zone: str) -> str:
    """An instant as people type it in a zone, with its offset: `2013-01-05T00:00:00-05:00`; of UTC with `Z`."""
    return at.astimezone(ZoneInfo(zone)).isoformat().replace("+00:00", "Z")


def parse_instant(text: str) -> datetime:
    """The reverse of `format_instant`, for text that this package wrote; what people type goes through
    `dags.schedule.timetable.parse_date`. Raises `ValueError` for anything else."""
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)
    except OverflowError:  # the first or last hours of the calendar, in another zone
        raise ValueError(f"{text!r} is out of the calendar") from None


def micros(at: datetime) -> int:
    """Microseconds since 1970-01-01 UTC; how instants cross into Spark SQL without any zone in between."""
    return (at - EPOCH) // timedelta(microseconds=1)


def earlier(at: datetime, by: timedelta) -> datetime:
    """No earlier than the calendar begins."""
    return at - by if at - FIRST_INSTANT > by else FIRST_INSTANT


def from_micros(value: int) -> datetime:
    return EPOCH + timedelta(microseconds=value)
