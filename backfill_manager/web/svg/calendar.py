"""Layout of a year as a heat map: a square per day, a column per week, shades by rank."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from backfill_manager.queries.calendar import weeks_of
from backfill_manager.web.filters import MONTHS

STEP: Final = 20  # px from square to square
LEFT: Final = 30
TOP: Final = 20
SHADES: Final = 5


class Square(NamedTuple):
    day: str
    x: int
    y: int
    summary: Mapping[str, Any] | None  # of `queries.calendar`; None: no run
    shade: int | None  # 1 to SHADES; None: no value
    number: int  # of the day, by which it is selected


class Year(NamedTuple):
    width: int
    height: int
    squares: tuple[Square, ...]
    months: tuple[tuple[int, str], ...]  # x, name
    limits: tuple[float, ...]  # between the shades


def year_of_days(year: int, days: Mapping[str, Mapping[str, Any]], by: str = "duration_s") -> Year:
    """`by`: the key of a day's summary whose value gives the shade."""
    weeks = weeks_of(year)
    limits = quantiles([summary[by] for summary in days.values() if summary.get(by) is not None])
    squares, months = [], []
    for column, week in enumerate(weeks):
        for row, day in enumerate(week):
            if day is None:
                continue
            summary = days.get(day.isoformat())
            value = None if summary is None else summary.get(by)
            shade = None if value is None else shade_of(value, limits)
            squares.append(
                Square(day.isoformat(), LEFT + column * STEP, TOP + row * STEP, summary, shade, day.toordinal())
            )
            if day.day == 1:
                months.append((LEFT + (column + (row > 0)) * STEP, MONTHS[day.month - 1]))
    return Year(LEFT + len(weeks) * STEP, TOP + 7 * STEP, tuple(squares), tuple(months), limits)


def quantiles(values: Sequence[float]) -> tuple[float, ...]:
    """Limits that part the values into equal shares, so that a single outlier does not pale all other days."""
    ranked = sorted(values)
    cuts = [ranked[min(len(ranked) * k // SHADES, len(ranked) - 1)] for k in range(1, SHADES)] if ranked else []
    return tuple(sorted(set(cuts)))


def shade_of(value: float, limits: Sequence[float]) -> int:
    return 1 + bisect_right(limits, value)
