"""Time zones as small tables: which wall-clock reading is which instant, by the clock-change rule of docs/semantics.md.

Offsets come from `zoneinfo` alone, never from the JVM, so that the planner's SQL and the scheduler read the same
data. A zone becomes *windows*: stretches of local readings, each with one offset, so that within a window `instant =
reading - offset` and nothing else matters. Two sets of windows make the two halves of the rule:

- every instant counts (hour field `*`): one window for each stretch of constant offset. In a repeated hour two windows
  overlap, so a reading there is two instants; in a skipped hour there is none.
- every reading counts once: the windows cut the local axis into pieces without gap or overlap. A repeated reading
  belongs to the later stretch alone; a skipped one has a window of its own with the offset of before the change,
  which moves it forward by the size of the gap.

Instants and local readings are whole seconds since 1970-01-01, UTC and wall clock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, available_timezones

from backfill_manager.clock import EPOCH, UTC
from backfill_manager.errors import InvalidInput, nearest

FIRST_YEAR: Final = 1900  # what `parse_date` lets in; tables are made for a year at a time, on demand
LAST_YEAR: Final = 2200
_STEP: Final = 43_200  # seconds between two probes for a change of offset: no zone has ever changed twice in half a day
_NEAR: Final = 2 * 86_400  # no change of clocks was larger than a day
_ALWAYS_UTC: Final = frozenset({"UTC", "Etc/UTC", "Zulu", "Etc/Zulu", "UCT", "Etc/UCT", "Etc/Universal", "Universal"})


class Window(NamedTuple):
    """Local readings in `[local_from, local_until)` are the instants `reading - offset`."""

    local_from: int
    local_until: int
    offset: int

    @property
    def utc_from(self) -> int:
        return self.local_from - self.offset

    @property
    def utc_until(self) -> int:
        return self.local_until - self.offset

    def within(self, utc_from: int, utc_until: int) -> Window:
        """The part whose instants lie in `[utc_from, utc_until)`; empty when `local_from >= local_until`."""
        first, until = max(self.local_from, utc_from + self.offset), min(self.local_until, utc_until + self.offset)
        return Window(first, until, self.offset)


def check_timezone(name: str) -> ZoneInfo:
    """The zone, or `InvalidInput` with the nearest names."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError, TypeError, AttributeError):
        near = nearest(name, available_timezones()) if isinstance(name, str) else ""
        hint = near or "; use a name such as Europe/Amsterdam or UTC"
        raise InvalidInput(f"timezone: there is no time zone {name!r}{hint}") from None


def instant_of_reading(naive: datetime, zone: ZoneInfo) -> datetime:
    """The one instant of a wall-clock reading: a repeated one at its second occurrence, a skipped one moved forward by
    the gap. `fold=0` reads a skipped time with the offset of before, `fold=1` a repeated one with the offset of after:
    in both cases the later of the two is meant."""
    return max(naive.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))


def start_of_day(day: date, zone: ZoneInfo) -> datetime:
    """The first instant of a local day, also where the clocks skip its midnight or repeat it. Of a day that the zone
    has skipped as a whole it is the first instant after it."""
    midnight = datetime.combine(day, time())
    both = (midnight.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    return min(at for at in both if at.astimezone(zone).date() >= day)


def year_start(year: int) -> int:
    return (datetime(year, 1, 1, tzinfo=UTC) - EPOCH) // timedelta(seconds=1)


@lru_cache(maxsize=4096)
def windows_of_year(zone: str, year: int, every_instant: bool) -> tuple[Window, ...]:
    """The windows whose instants lie in the UTC year, by their first instant. `every_instant`: the rule of hour `*`."""
    first, until = year_start(year), year_start(year + 1)
    if zone in _ALWAYS_UTC:
        return (Window(first, until, 0),)
    stretches = list(_joined([*_stretches(zone, year - 1), *_stretches(zone, year), *_stretches(zone, year + 1)]))
    near = [s for s in stretches if s.utc_until > first - _NEAR and s.utc_from < until + _NEAR]
    found = near if every_instant else [*_last_occurrences(near), *_gaps(near)]
    clipped = (window.within(first, until) for window in found)
    return tuple(sorted((w for w in clipped if w.local_from < w.local_until), key=lambda w: (w.utc_from, w.offset)))


def windows_between(zone: str, utc_from: int, utc_until: int, every_instant: bool) -> list[Window]:
    """All windows whose instants lie in `[utc_from, utc_until)`: the small relation that is handed to Spark SQL."""
    if utc_from >= utc_until:
        return []
    years = range(_year_of(utc_from), _year_of(utc_until - 1) + 1)
    found = (w.within(utc_from, utc_until) for year in years for w in windows_of_year(zone, year, every_instant))
    return list(_joined(w for w in found if w.local_from < w.local_until))


def _joined(windows: Iterable[Window]) -> Iterable[Window]:
    """Joins windows of the same offset of which one begins where another ends."""
    joined: dict[tuple[int, int], Window] = {}  # by their open end
    for window in windows:
        before = joined.pop((window.local_from, window.offset), window)
        joined[window.local_until, window.offset] = before._replace(local_until=window.local_until)
    return joined.values()


@lru_cache(maxsize=4096)
def _stretches(zone_name: str, year: int) -> tuple[Window, ...]:
    """Stretches of constant offset in one UTC year, found by stepping and bisecting, exact to the second."""
    zone = check_timezone(zone_name)
    at, until = year_start(year), year_start(year + 1)
    offset = _offset(zone, at)
    found: list[Window] = []
    began = at
    while at < until:
        ahead = min(at + _STEP, until)
        while at < ahead and _offset(zone, ahead) != offset:
            high = _change(zone, offset, at, ahead)
            if high == until:  # it belongs to the next year
                break
            found.append(Window(began + offset, high + offset, offset))
            began = at = high
            offset = _offset(zone, high)
        at = ahead
    found.append(Window(began + offset, until + offset, offset))
    return tuple(found)


def _change(zone: ZoneInfo, offset: int, at: int, until: int) -> int:
    """The first second in `[at, until]` at which the zone has another offset."""
    return at + bisect_left(range(at, until), True, key=lambda second: _offset(zone, second) != offset)


def _last_occurrences(stretches: list[Window]) -> Iterable[Window]:
    """Each stretch without the readings that a later one has again."""
    for i, stretch in enumerate(stretches):
        yield from _without(stretch, [s for s in stretches[i + 1 :] if s.utc_from < stretch.utc_until + _NEAR])


def _gaps(stretches: list[Window]) -> Iterable[Window]:
    """The skipped readings before each jump forward, with the offset of before it."""
    for before, after in pairwise(stretches):
        if after.offset > before.offset:
            yield from _without(Window(before.local_until, after.local_from, before.offset), stretches)


def _without(window: Window, others: Iterable[Window]) -> list[Window]:
    pieces = [window]
    for other in others:
        before = (piece._replace(local_until=min(piece.local_until, other.local_from)) for piece in pieces)
        after = (piece._replace(local_from=max(piece.local_from, other.local_until)) for piece in pieces)
        pieces = [
            part for both in zip(before, after, strict=True) for part in both if part.local_from < part.local_until
        ]
    return pieces


def _offset(zone: ZoneInfo, at: int) -> int:
    offset = (EPOCH + timedelta(seconds=at)).astimezone(zone).utcoffset()
    assert offset is not None  # a ZoneInfo always knows
    return offset // timedelta(seconds=1)


def _year_of(at: int) -> int:
    return (EPOCH + timedelta(seconds=at)).year
