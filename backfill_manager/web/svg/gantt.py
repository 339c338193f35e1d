"""Layout of a run's attempts over time: x and width of each bar in per cent of the width, and the ticks of the scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from backfill_manager.clock import parse_instant

MIN_WIDTH: Final = 0.4  # per cent: an attempt of a millisecond is visible, and can be hovered
MAX_TICKS: Final = 6
_STEPS_S: Final = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600,
    7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 2_592_000, 31_536_000,
)  # fmt: skip


class Bar(NamedTuple):
    x: float  # per cent
    width: float
    span: Mapping[str, Any]  # of `queries.gantt`
    duration_s: float


class Row(NamedTuple):
    task_id: str
    state: str
    bars: tuple[Bar, ...]


class Tick(NamedTuple):
    x: float
    after_s: float  # from the begin
    is_last: bool


class Gantt(NamedTuple):
    begin: datetime | None
    length_s: float
    rows: tuple[Row, ...]
    ticks: tuple[Tick, ...]


def gantt(rows: Sequence[Mapping[str, Any]]) -> Gantt:
    """`rows` of `queries.gantt`. If nothing has started, there are no bars and no ticks."""
    ends = [(parse_instant(s["from"]), parse_instant(s["to"])) for row in rows for s in row["spans"]]
    if not ends:
        return Gantt(None, 0.0, tuple(Row(row["task_id"], row["state"], ()) for row in rows), ())
    begin, end = min(a for a, _ in ends), max(b for _, b in ends)
    length_s = max((end - begin).total_seconds(), 0.001)

    def bar(span: Mapping[str, Any]) -> Bar:
        start, stop = parse_instant(span["from"]), parse_instant(span["to"])
        duration_s = (stop - start) / timedelta(seconds=1)
        width = min(max(100 * duration_s / length_s, MIN_WIDTH), 100.0)
        x = min(100 * (start - begin).total_seconds() / length_s, 100 - width)
        return Bar(round(x, 3), round(width, 3), span, duration_s)

    drawn = (Row(row["task_id"], row["state"], tuple(map(bar, row["spans"]))) for row in rows)
    return Gantt(begin, length_s, tuple(drawn), ticks(length_s))


def ticks(length_s: float) -> tuple[Tick, ...]:
    """At most six ticks at round distances from the begin."""
    step = next((s for s in _STEPS_S if length_s / s <= MAX_TICKS), _STEPS_S[-1])
    n = int(length_s / step)
    return tuple(
        Tick(round(100 * k * step / length_s, 3), k * step, k == n and k * step / length_s > 0.9) for k in range(n + 1)
    )
