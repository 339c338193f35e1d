"""How values are written on pages: the filters of the templates. Everything that comes in is plain data of `views`."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

from markupsafe import Markup, escape

from backfill_manager.clock import UTC, format_instant, parse_instant

_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_NOTHING: Final = Markup('<span class="nothing">–</span>')
_STATE_WORDS: Final = {
    "none": "not started", "up_for_retry": "waits for retry", "upstream_failed": "upstream failed",
    "scheduled": "ready", "leading": "leads",
}  # fmt: skip


def number(value: int | float | None) -> str | Markup:
    """`336,776`; a float keeps two significant places below 10."""
    if value is None:
        return _NOTHING
    if isinstance(value, int) or float(value).is_integer() or abs(value) >= 100:
        return f"{round(value):,}"
    return f"{value:.2g}" if abs(value) < 10 else f"{value:.1f}"


def duration(seconds: float | None) -> str | Markup:
    """`850 ms`, `4.2 s`, `3 min 5 s`, `2 h 10 min`, `3 d 4 h`."""
    if seconds is None:
        return _NOTHING
    if seconds < 0:
        return "0 s"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    whole = round(seconds)
    for size, unit, small, small_unit in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            many, rest = divmod(whole, size)
            return f"{many} {unit} {rest // small} {small_unit}" if rest >= small else f"{many} {unit}"
    return f"{whole} s"


def instant(text: str | datetime | None, zone: str = "UTC", *, seconds: bool = False) -> Markup:
    """`5 Jan 2013, 05:00` as a clock in `zone` shows it; the exact instant in UTC is its title."""
    at = _at(text)
    if at is None:
        return _NOTHING
    there = at.astimezone(ZoneInfo(zone))
    shown = f"{there.day} {_MONTHS[there.month - 1]} {there.year}, {there:%H:%M:%S}"
    if not seconds:
        shown = shown[:-3]
    return _time(at, shown)


def clock_time(text: str | datetime | None) -> Markup:
    """`05:00:07.250`: for logs."""
    at = _at(text)
    return _NOTHING if at is None else _time(at, f"{at:%H:%M:%S}.{at.microsecond // 1000:03d}")


def day(text: str | datetime | None, zone: str = "UTC") -> Markup:
    """A logical date as short as it can be said: `2013-01-05`, with the time where that is not midnight in `zone`."""
    at = _at(text)
    return _NOTHING if at is None else _time(at, plain_day(at, zone))


def plain_day(text: str | datetime | None, zone: str = "UTC") -> str:
    at = _at(text)
    if at is None:
        return ""
    there = at.astimezone(ZoneInfo(zone))
    is_midnight = (there.hour, there.minute, there.second, there.microsecond) == (0, 0, 0, 0)
    clock = "" if is_midnight else f" {there:%H:%M}" if there.second == 0 else f" {there:%H:%M:%S}"
    return f"{there.year:04}-{there.month:02}-{there.day:02}{clock}"


def ago(text: str | datetime | None, now: datetime) -> Markup:
    """`3 min ago`, `in 2 h`; `live.js` keeps it going."""
    at = _at(text)
    return _NOTHING if at is None else _time(at, plain_ago(at, now), css="ago")


def plain_ago(at: datetime, now: datetime) -> str:
    seconds = (now - at).total_seconds()
    size = abs(seconds)
    if size < 1:
        return "now"
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        if size >= length:
            return f"{int(size // length)} {unit} ago" if seconds > 0 else f"in {int(size // length)} {unit}"
    return "now"


def state_word(state: str) -> str:
    return _STATE_WORDS.get(state, state.replace("_", " "))


def plural(n: int, one: str, many: str | None = None) -> str:
    """`1 run`, `1,234 runs`."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def as_json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True, default=str)


def told(text: str) -> Markup:
    """A message of ours, where `commands` stand between backticks."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # one without its partner
        return escape(text)
    return Markup("").join(Markup("<code>{}</code>").format(part) if n % 2 else part for n, part in enumerate(parts))


def short_run(run_id: str) -> str:
    """A run's id without its type: what tells it from its neighbours."""
    return run_id.partition("__")[2] or run_id


def _at(value: str | datetime | None) -> datetime | None:
    return parse_instant(value) if isinstance(value, str) else value


def _time(at: datetime, shown: str, css: str = "") -> Markup:
    exact = format_instant(at.astimezone(UTC)) or ""
    named = Markup(' class="{}"').format(css) if css else Markup("")
    title = exact.replace("T", " ").replace("Z", " UTC")
    return Markup('<time datetime="{}" title="{}"{}>{}</time>').format(exact, title, named, escape(shown))


FILTERS: Final[dict[str, Callable[..., Any]]] = {
    "number": number, "duration": duration, "instant": instant, "clock_time": clock_time, "day": day, "ago": ago,
    "plain_day": plain_day, "state_word": state_word, "plural": plural, "as_json": as_json, "short_run": short_run,
    "told": told,
}  # fmt: skip
