"""Dates as people type them into fields of pages: in the one zone that the page says (the chosen one, else the DAG's own).

Commands read dates without an offset in the DAG's zone. `for_command` makes an exact instant of a text that was typed in another
zone. A form sends its zone along (`zone`), so a page that is opened from a link, or whose zone was switched since, shows the same
instants in its own: `moved`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, Literal
from zoneinfo import ZoneInfo

from backfill_manager.clock import format_instant
from backfill_manager.dags.schedule.timetable import (
    date_only,
    end_of_day,
    parse_date,
    parse_end,
    parse_start,
)
from backfill_manager.dags.schedule.timezones import check_timezone
from backfill_manager.errors import InvalidInput

# Of a range: a date alone is its first instant, its last, or the one after.
Edge = Literal["at", "start", "end", "end_excluded"]


def _parse_end_excluded(text: str, zone: str, *, name: str) -> datetime:
    at, day = parse_end(text, zone, name=name), date_only(text)
    return at if day is None else end_of_day(day, zone)


_READ: Final[dict[str, Callable[..., datetime]]] = {
    "at": parse_date, "start": parse_start, "end": parse_end, "end_excluded": _parse_end_excluded,
}  # fmt: skip


def for_command(text: str, zone: str, own: str, edge: Edge, *, name: str) -> str:
    """A text that means in the zone `own` what was typed in `zone`. `InvalidInput` names the field (`name`)."""
    text = text.strip()
    if not text or zone == own:
        return text
    return str(format_instant(_READ[edge](text, zone, name=name)))


def moved(text: str, was: str, zone: str, edge: Edge) -> str:
    """What would be typed in `zone` for what was typed in `was`; a text that is no date stays."""
    text = text.strip()
    if not text or was == zone:
        return text
    try:
        at = _READ[edge](text, was, name="date")
        return as_typed(at, zone, edge)
    except InvalidInput:
        return text


def as_typed(at: datetime, zone: str, edge: Edge) -> str:
    """The shortest text that reads as this instant in the zone."""
    return shortest_text(at, zone, lambda text: _READ[edge](text, zone, name="date"))


def shortest_text(at: datetime, zone: str, read: Callable[[str], datetime]) -> str:
    """The same for any other way to read it."""
    here = at.astimezone(ZoneInfo(zone))
    days = (f"{here - timedelta(days=n):%Y-%m-%d}" for n in (0, 1))  # the end of a range may be the day before
    texts = (*days, f"{here:%Y-%m-%dT%H:%M}", here.replace(tzinfo=None).isoformat())
    return next((text for text in texts if read(text) == at), here.isoformat())  # the hour that the clock shows twice


def checked_zone(name: str) -> str:
    """The name of a zone that came with a form. `InvalidInput` for one that is none."""
    return check_timezone(name).key
