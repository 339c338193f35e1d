"""The form *New backfill*: from text as typed to a `CreateBackfill`, with errors by field; and quick ranges."""

from __future__ import annotations

import calendar
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from backfill_manager.dags.definition import DagSpec
from backfill_manager.dags.schedule.timetable import ONCE, parse_date, parse_start, timetable_of
from backfill_manager.planning.backfill_range import ON_SCHEDULE, RANGED, read_end, with_defaults
from backfill_manager.schemas.commands import BackfillInput, CreateBackfill
from backfill_manager.schemas.fields import fields_of
from backfill_manager.web.pages.form_fields import (
    FORM_FIELDS,
    SETTINGS,
    Errors,
    Typed,
    as_typed,
    read_field,
    read_settings,
)

CHECKBOXES: Final = tuple(
    name for name, field in FORM_FIELDS.items() if field.widget == "checkbox" and name not in SETTINGS
)
MORE_OPTIONS: Final = tuple(name for name in SETTINGS if name not in ("max_active_runs", "batch", "stop_on_failure"))
INPUTS: Final = (*(name for name in FORM_FIELDS if name != "dag_id"), "start_time", "end_time")
DEFAULTS: Final = {
    name: as_typed(name, field.default) for name, field in fields_of(BackfillInput).items() if not field.is_list
} | {"kind": "schedule"}
PLAIN_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")


@dataclass(frozen=True)
class QuickRange:
    """A frequent range of days, the last one included."""

    label: str
    first: date
    last: date


def typed_of(form: Mapping[str, str], dag: DagSpec | None) -> Typed:
    """The text of each input: as submitted, or the defaults, overlaid by what the link holds."""
    typed = {name: form.get(name, "") for name in INPUTS}
    if "sent" not in form:
        typed |= {name: text for name, text in DEFAULTS.items() if name in typed and name not in form}
        if dag is not None and "kind" not in form and (dag.schedule is None or dag.schedule == ONCE):
            typed["kind"] = "single"
    first, slash, last = form.get("quick", "").partition("/")  # the button of a quick range, without scripts
    if slash and PLAIN_DAY.fullmatch(first) and PLAIN_DAY.fullmatch(last):
        typed |= {"start_date": first, "start_time": "", "end_date": last, "end_time": ""}
    return typed


def read_form(typed: Typed, dag: DagSpec, errors: Errors) -> CreateBackfill | None:
    """The command; None if a field is invalid, which is added to `errors`."""
    kind = typed["kind"]
    values: dict[str, Any] = {"dag_id": dag.dag_id, "kind": kind, "reprocess": typed["reprocess"] or "none"}
    values |= {name: typed[name] == "on" for name in CHECKBOXES}
    if kind in RANGED:
        if text := _moment(typed, "start"):
            values["start_date"] = read_field(errors, "start_date", _start, dag, text)
        if text := _moment(typed, "end"):
            values["end_date"] = read_field(errors, "end_date", _end, dag, kind, text, values.get("start_date"))
    elif kind == "dates":
        texts = [text for text in re.split(r"[\s,;]+", typed["dates"]) if text]
        values["dates"] = read_field(errors, "dates", _dates, texts, dag.timezone)
        if not texts:
            errors["dates"] = "List at least one date."
    elif kind == "partitions":
        keys = (line.strip() for line in typed["partitions"].splitlines())
        values["partitions"] = tuple(dict.fromkeys(key for key in keys if key))
        if not values["partitions"]:
            errors["partitions"] = "List at least one partition."
    values |= read_settings(typed, errors)
    if values.get("tasks") is None:  # the checkbox has no meaning then
        values["with_upstream"] = True
    return None if errors else read_field(errors, "", CreateBackfill.parse, values)


def _start(dag: DagSpec, text: str) -> datetime:
    return parse_start(text, dag.timezone, name="start_date")


def _end(dag: DagSpec, kind: str, text: str, start: datetime | None) -> datetime:
    return read_end(dag, kind, text, start)


def _dates(texts: list[str], zone: str) -> tuple[datetime, ...]:
    return tuple(parse_date(text, zone, name="dates") for text in texts)


def _moment(typed: Typed, end: str) -> str:
    """`2013-01-31`, or with the time: `2013-01-31T05:00`."""
    day, time = typed[f"{end}_date"].strip(), typed[f"{end}_time"].strip()
    return f"{day}T{time}" if day and time else day


def estimated_items(command: CreateBackfill, dag: DagSpec, now: datetime) -> int:
    """About how many items there will be, before anything is planned."""
    command = with_defaults(command, dag, now)
    if command.kind in ON_SCHEDULE and command.start_date is not None and command.end_date is not None:
        return timetable_of(dag, command.start_date).estimate_count(command.start_date, command.end_date)
    return len(command.dates) or len(command.partitions) or 1


def quick_ranges(dag: DagSpec, now: datetime) -> list[QuickRange]:
    """In the DAG's zone, up to the last complete day or the DAG's end date."""
    zone = ZoneInfo(dag.timezone)
    start = dag.start_date.astimezone(zone).date() if dag.start_date else None
    end = now.astimezone(zone).date() - timedelta(days=1)
    if dag.end_date is not None:
        end = min(end, dag.end_date.astimezone(zone).date())
    month = end.replace(day=1)
    previous = (month - timedelta(days=1)).replace(day=1)
    previous_end = previous.replace(day=calendar.monthrange(previous.year, previous.month)[1])
    ranges = [
        QuickRange("7 days", end - timedelta(days=6), end),
        QuickRange("30 days", end - timedelta(days=29), end),
        QuickRange(f"{month:%B %Y}", month, end),
        QuickRange(f"{previous:%B %Y}", previous, previous_end),
        QuickRange(str(end.year), end.replace(month=1, day=1), end),
    ]
    if start is None:
        return ranges
    within = [QuickRange(one.label, max(one.first, start), one.last) for one in ranges if one.last >= start]
    return [*within, *([QuickRange("Full range", start, end)] if start <= end else [])]
