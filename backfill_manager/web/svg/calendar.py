"""A year of days as a heat map: a square for each day, a column for each week, shades by rank."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

from backfill_manager.queries.calendar import weeks_of

CELL: Final = 16
STEP: Final = 20
LEFT: Final = 30
TOP: Final = 20
SHADES: Final = 5
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@dataclass(frozen=True)
class Square:
    day: str
    x: int
    y: int
    found: Mapping[str, Any] | None  # of views.calendar; None: no run
    shade: int | None  # 1 to SHADES, by what is shown; None: there is nothing to show


@dataclass(frozen=True)
class Year:
    width: int
    height: int
    squares: tuple[Square, ...]
    months: tuple[tuple[int, str], ...]  # x, name
    limits: tuple[float, ...]  # between the shades


def year_of_days(year: int, days: Mapping[str, Mapping[str, Any]], by: str = "duration_s") -> Year:
    """`by` names the figure of a day that gives its shade."""
    weeks = weeks_of(year)
    limits = limits_between([d[by] for d in days.values() if d.get(by) is not None])
    squares, months = [], []
    for column, week in enumerate(weeks):
        for row, one in enumerate(week):
            if one is None:
                continue
            found = days.get(one.isoformat())
            value = None if found is None else found.get(by)
            shade = None if value is None else shade_of(value, limits)
            squares.append(Square(one.isoformat(), LEFT + column * STEP, TOP + row * STEP, found, shade))
            if one.day == 1:
                months.append((LEFT + (column + (row > 0)) * STEP, _month(one)))
    return Year(LEFT + len(weeks) * STEP, TOP + 7 * STEP, tuple(squares), tuple(months), limits)


def limits_between(values: Sequence[float]) -> tuple[float, ...]:
    """What parts the values in equal shares, so that one run of ten hours does not turn all others pale."""
    ranked = sorted(values)
    cuts = [ranked[min(len(ranked) * k // SHADES, len(ranked) - 1)] for k in range(1, SHADES)] if ranked else []
    return tuple(sorted(set(cuts)))


def shade_of(value: float, limits: Sequence[float]) -> int:
    return 1 + bisect_right(limits, value)


def _month(day: date) -> str:
    return _MONTHS[day.month - 1]
