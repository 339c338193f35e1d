"""Jinja filters: how values are written on pages. Values are plain data from `queries`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from jinja2 import pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape

from backfill_manager import humanise
from backfill_manager.clock import UTC, format_instant, parse_instant
from backfill_manager.errors import nearest
from backfill_manager.masking import mask_values
from backfill_manager.model.states import RUNNING
from backfill_manager.web.highlight import code_lines

MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_NO_VALUE: Final = Markup('<span class="no-value">–</span>')
_STATE_LABELS: Final = {
    "none": "not started", "up_for_retry": "up for retry", "upstream_failed": "upstream failed", "leading": "running",
}  # fmt: skip


def number(value: float | None) -> str | Markup:
    return _NO_VALUE if value is None else humanise.number(value)


def duration(seconds: float | None) -> str | Markup:
    return _NO_VALUE if seconds is None else humanise.duration(seconds)


def instant(value: str | datetime | None, zone: str = "UTC", *, seconds: bool = False) -> Markup:
    """`5 Jan 2013, 05:00 EST` in `zone`, with the exact instant in UTC as title."""

    def text(at: datetime) -> str:
        local = at.astimezone(ZoneInfo(zone))
        clock = f"{local:%H:%M:%S}" if seconds else f"{local:%H:%M}"
        return f"{local.day} {MONTHS[local.month - 1]} {local.year}, {clock} {_zone_label(local)}"

    return _time(value, text)


def clock_time(value: str | datetime | None, zone: str = "UTC") -> Markup:
    """`05:00:07.250 EST`: for logs."""

    def text(at: datetime) -> str:
        local = at.astimezone(ZoneInfo(zone))
        return f"{local:%H:%M:%S}.{local.microsecond // 1000:03d} {_zone_label(local)}"

    return _time(value, text)


def day(value: str | datetime | None, zone: str = "UTC") -> Markup:
    """`plain_day` in a <time> element."""
    return _time(value, lambda at: plain_day(at, zone))


def plain_day(value: str | datetime | None, zone: str = "UTC") -> str:
    """A logical date in `zone`, as short as possible: `2013-01-05`, and with the time unless it is midnight:
    `2013-01-05 05:00 UTC`."""
    at = _at(value)
    if at is None:
        return ""
    local = at.astimezone(ZoneInfo(zone))
    is_midnight = (local.hour, local.minute, local.second, local.microsecond) == (0, 0, 0, 0)
    clock = f"{local:%H:%M}" if local.second == 0 else f"{local:%H:%M:%S}"
    day_ = f"{local.year:04}-{local.month:02}-{local.day:02}"
    return day_ if is_midnight else f"{day_} {clock} {_zone_label(local)}"


def ago(value: str | datetime | None, now: datetime) -> Markup:
    """`3 min ago`, `in 2 h`; `live.js` keeps it current."""
    return _time(value, lambda at: humanise.age(at, now), css="ago")


def example_days(now: datetime, dag: Mapping[str, Any] | None = None) -> tuple[str, str]:
    """First and last day of a range that a command or a field may show: the last seven days that the DAG has."""
    zone = ZoneInfo(dag["timezone"] if dag else "UTC")
    first, end = (
        at.astimezone(zone).date() if (at := _at(dag[name] if dag else None)) else None
        for name in ("start_date", "end_date")
    )
    last = now.astimezone(zone).date() - timedelta(days=1)
    last = max(min(last, end or last), first or date.min)
    return max(last - timedelta(days=6), first or date.min).isoformat(), last.isoformat()


def elapsed(row: Mapping[str, Any], now: datetime) -> str | Markup:
    """How long a run or a task took; of one that is running, the time so far, which `live.js` keeps current."""
    if row["state"] != RUNNING or row["started_at"] is None:
        return duration(row["duration_s"])
    return _time(row["started_at"], lambda at: humanise.elapsed((now - at).total_seconds()), css="elapsed")


def state_label(state: str) -> str:
    return _STATE_LABELS.get(state, state.replace("_", " "))


def as_json(value: Any) -> str:
    """A JSON value as a page shows it: in lines, and without secrets."""
    return json.dumps(mask_values(value), indent=2, ensure_ascii=False, sort_keys=True, default=str)


def inline_code(text: str) -> Markup:
    """A message as HTML: what stands between backticks becomes <code>."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # an unpaired backtick
        return escape(text)
    return Markup("").join(Markup("<code>{}</code>").format(part) if n % 2 else part for n, part in enumerate(parts))


def short_run(run_id: str) -> str:
    """A run's id without the prefix of its type."""
    return run_id.partition("__")[2] or run_id


def _zone_label(local: datetime) -> str:
    """`CET`, `UTC`; of a zone whose abbreviation is a number, `UTC-03`."""
    name = local.tzname() or ""
    return f"UTC{name}" if name[:1] in "+-" else name


def _in_zone_of_page(write: Callable[..., Any]) -> Callable[..., Any]:
    """The filter, whose `zone` is the one that the user has chosen for all times of the page, if any."""

    @pass_context
    def written(context: Context, value: Any, zone: str = "UTC", **options: Any) -> Any:
        return write(value, context.get("chosen_zone") or zone, **options)

    return written


def _at(value: str | datetime | None) -> datetime | None:
    return parse_instant(value) if isinstance(value, str) else value


def _time(value: str | datetime | None, text: Callable[[datetime], str], css: str = "") -> Markup:
    """A <time> element with what `text` makes of the instant."""
    if (at := _at(value)) is None:
        return _NO_VALUE
    exact = format_instant(at.astimezone(UTC)) or ""
    css_class = Markup(' class="{}"').format(css) if css else Markup("")
    title = exact.replace("T", " ").replace("Z", " UTC")
    return Markup('<time datetime="{}" title="{}"{}>{}</time>').format(exact, title, css_class, text(at))


FILTERS: Final[dict[str, Callable[..., Any]]] = {
    "number": number, "duration": duration, "instant": _in_zone_of_page(instant),
    "clock_time": _in_zone_of_page(clock_time), "day": _in_zone_of_page(day), "ago": ago,
    "elapsed": elapsed, "estimate": humanise.estimate, "plain_day": _in_zone_of_page(plain_day),
    "state_label": state_label, "plural": humanise.plural, "size": humanise.size, "memory": humanise.memory,
    "in_zone": humanise.window,
    "as_json": as_json, "short_run": short_run, "inline_code": inline_code,
    "code_lines": code_lines, "nearest": nearest,
}  # fmt: skip
