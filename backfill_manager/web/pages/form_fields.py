"""Fields of the backfill forms: label, hint and limits from `schemas.backfill_options`, and text as typed <-> value; and the form
*New backfill* as a `CreateBackfill`, with errors by field, and quick ranges.

A form is read as plain text first (`Typed`), so that it can be shown again as it was typed, valid or not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any, Final, Literal, NamedTuple, TypeVar
from zoneinfo import ZoneInfo

from fastapi import Request

from backfill_manager.clock import parse_instant
from backfill_manager.dags.definition import DagSpec
from backfill_manager.dags.schedule.timetable import ONCE, parse_date, parse_start, timetable_of
from backfill_manager.errors import BackfillManagerError, InvalidInput
from backfill_manager.planning.backfills.backfill_range import ON_SCHEDULE, RANGED, read_end, with_defaults
from backfill_manager.requests.json_input import parse_conf, parse_overrides
from backfill_manager.schemas.backfill_options import BackfillInput, BackfillSettings, CreateBackfill
from backfill_manager.schemas.errors import INVALID_VALUE
from backfill_manager.schemas.fields import DeclaredField, fields_of
from backfill_manager.web.dates import Edge, checked_zone, for_command, moved, shortest_text
from backfill_manager.web.dates import as_typed as moment_as_typed
from backfill_manager.web.page import message_of

T = TypeVar("T")
Widget = Literal["number", "text", "checkbox", "pool", "lines"]
Typed = dict[str, str]  # text by field; a checkbox is "on" or ""
Errors = dict[str, str]  # message by field; "" is the form as a whole
MAX_TEXT_LENGTH: Final = 200_000
_FIELDS: Final = fields_of(BackfillInput)


@dataclass(frozen=True)
class FormField:
    name: str
    label: str
    hint: str
    widget: Widget


def _form_field(field: DeclaredField) -> FormField:
    of_type: dict[type, Widget] = {bool: "checkbox", int: "number", dict: "lines"}
    empty = f" Empty: {field.option.none}." if field.option.none else ""
    one_per_line = " One NAME=VALUE per line." if field.name == "overrides" else ""
    widget: Widget = (
        "pool" if field.name == "pool" else "text" if field.option.as_text else of_type.get(field.type, "text")
    )
    return FormField(field.name, field.label, field.help + empty + one_per_line, widget)


_NOT_TYPED: Final = frozenset({"config", "copy_of"})  # a copy comes filled in, by `?copy=`
FORM_FIELDS: Final = {name: _form_field(field) for name, field in _FIELDS.items() if name not in _NOT_TYPED}
SETTINGS: Final = {name: FORM_FIELDS[name] for name in BackfillSettings.model_fields}
CHECKBOXES: Final = tuple(
    name for name, field in FORM_FIELDS.items() if field.widget == "checkbox" and name not in SETTINGS
)
MORE_OPTIONS: Final = tuple(name for name in SETTINGS if name not in ("max_active_runs", "batch", "stop_on_failure"))
INPUTS: Final = (*(name for name in FORM_FIELDS if name != "dag_id"), "start_time", "end_time")
PLAIN_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")
KINDS: Final = {
    "schedule": ("Every interval", "Each interval of the schedule in the range."),
    "missing": ("Missing", "Intervals in the range without a successful run: gaps and failures."),
    "stale": ("Stale", "Intervals whose last success is of another definition or code than the DAG has now."),
    "outdated": ("Outdated", "Intervals whose inputs have changed since they were read, by the tables' history."),
    "single": ("One run", "One run over the whole range."),
    "dates": ("Dates", "The logical dates you list."),
    "partitions": ("Partitions", "Keys that are not dates: regions, customers. Such runs have no interval."),
}
BY: Final = {"runs": "No successful run", "data": "No rows in a table that the DAG writes"}
REPROCESS: Final = {
    "none": "Skip", "failed": "Reprocess failed runs", "failed_tasks": "Re-run failed tasks in place",
    "completed": "Reprocess failed and successful runs",
}  # fmt: skip


async def form_of(request: Request) -> dict[str, str]:
    """The text fields of a submitted form."""
    async with request.form() as form:
        return {name: value for name, value in form.items() if isinstance(value, str)}


def add_error(errors: Errors, error: BackfillManagerError, field: str | None = None) -> None:
    """Words an error with the labels of fields and puts it to its field, or to the form as a whole."""
    name = field or error.field or ""
    errors.setdefault(name if name in FORM_FIELDS else "", message_of(error))


def as_typed(name: str, value: Any) -> str:
    """A setting as it would be typed."""
    if value is None or value is False:
        return ""
    if value is True:
        return "on"
    if name == "conf":
        return json.dumps(value, ensure_ascii=False, indent=2) if value else ""
    if name == "overrides":
        return "\n".join(f"{key}={_plain(item)}" for key, item in sorted(value.items()))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _plain(value: Any) -> str:
    """As `parse_overrides` reads it back: a text without quotes unless it would be taken for JSON."""
    if isinstance(value, str):
        try:
            json.loads(value)
        except ValueError:
            return value if value == value.strip() and "\n" not in value else json.dumps(value)
    return json.dumps(value, ensure_ascii=False)


def read_settings(typed: Mapping[str, str], errors: Errors) -> dict[str, Any]:
    """The settings that are valid; for each other one a message is added to `errors`."""
    values = {
        name: read_field(errors, name, partial(_read, field, typed.get(name, ""))) for name, field in SETTINGS.items()
    }
    return {name: value for name, value in values.items() if name not in errors}


def read_field(errors: Errors, name: str, read: Callable[[], T]) -> T | None:
    """What `read()` returns; if it refuses, None, and the message is added for the field `name`."""
    try:
        return read()
    except InvalidInput as error:
        add_error(errors, error, name)
        return None


def _read(field: FormField, text: str) -> Any:
    if len(text) > MAX_TEXT_LENGTH:
        raise INVALID_VALUE(
            field=field.name, problem=f"holds {len(text):,} characters; up to {MAX_TEXT_LENGTH:,} are possible"
        )
    text = text.strip()
    value: Any = text or _FIELDS[field.name].default
    if field.widget == "checkbox":
        value = text == "on"
    elif field.name == "overrides":
        value = parse_overrides([line for line in text.splitlines() if line.strip()])
    elif field.name == "conf":
        value = parse_conf(text or None)
    elif field.widget == "number" and text:
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
            raise INVALID_VALUE(field=field.name, problem=f"must be a whole number, not {text[:30]!r}")
        value = int(text)
    return getattr(BackfillSettings.parse({field.name: value}), field.name)


class QuickRange(NamedTuple):
    """A frequent range of days, the last one included."""

    label: str
    first: date
    last: date


DEFAULTS: Final = {
    **{name: as_typed(name, field.default) for name, field in _FIELDS.items() if not field.is_list}, "kind": "schedule",
}  # fmt: skip


def typed_of(form: Mapping[str, str], dag: DagSpec | None, zone: str) -> Typed:
    """The text of each input: as submitted, or the defaults, overlaid by what the link holds. Dates as they would be typed in
    `zone`, if they come from a page of another one (`form["zone"]`)."""
    typed = {name: form.get(name, "") for name in INPUTS}
    if "sent" not in form:
        typed |= {name: text for name, text in DEFAULTS.items() if name in typed and name not in form}
        if dag is not None and "kind" not in form and (dag.schedule is None or dag.schedule == ONCE):
            typed["kind"] = "single"
    first, slash, last = form.get("quick", "").partition("/")  # the button of a quick range, without scripts
    if slash and PLAIN_DAY.fullmatch(first) and PLAIN_DAY.fullmatch(last):
        typed |= {"start_date": first, "start_time": "", "end_date": last, "end_time": ""}
    return _moved(typed, checked_zone(form["zone"]), zone) if form.get("zone") else typed


def _moved(typed: Typed, was: str, zone: str) -> Typed:
    if was == zone:
        return typed
    found = dict(typed)
    edges: dict[str, Edge] = {"start": "start", "end": end_edge(typed["kind"])}
    for name, edge in edges.items():
        day, _, time = moved(_moment(typed, name), was, zone, edge).partition("T")
        found |= {f"{name}_date": day, f"{name}_time": time}
    found["dates"] = "\n".join(moved(text, was, zone, "at") for text in _listed(typed["dates"]))
    return found


def end_edge(kind: str) -> Edge:
    """What a day as the end of the range means: one run over all of it ends where the next day begins."""
    return "end_excluded" if kind == "single" else "end"


def _listed(text: str) -> list[str]:
    return [one for one in re.split(r"[\s,;]+", text) if one]


def typed_of_copy(options: Mapping[str, Any], settings: Mapping[str, Any], dag: DagSpec, field_zone: str) -> Typed:
    """The form as it would be typed for another backfill like this one: `options` as of `options_to_copy`, `settings` as
    shown. Its range stays the same, whatever the clock says by now."""
    typed = {name: "" for name in INPUTS} | {name: as_typed(name, value) for name, value in settings.items()}
    typed |= {name: as_typed(name, options.get(name, False)) for name in CHECKBOXES}
    kind, zone = options["kind"], dag.timezone
    typed |= {"kind": kind, "by": options.get("by", "runs"), "reprocess": options["reprocess"]}
    typed["partitions"] = "\n".join(options.get("partitions", ()))
    dates = [parse_instant(text) for text in options.get("dates", ())]
    typed["dates"] = "\n".join(moment_as_typed(at, zone, "at") for at in dates)
    start, end = (parse_instant(at) if (at := options.get(f"{name}_date")) else None for name in ("start", "end"))
    if start is not None:
        typed["start_date"], _, typed["start_time"] = moment_as_typed(start, zone, "start").partition("T")
    if end is not None:
        text = shortest_text(end, zone, lambda text: read_end(dag, kind, text, start))
        typed["end_date"], _, typed["end_time"] = text.partition("T")
    return _moved(typed, zone, field_zone)


def read_form(typed: Typed, dag: DagSpec, errors: Errors, zone: str) -> CreateBackfill | None:
    """The command, of dates that were typed in `zone`; None if a field is invalid, which is added to `errors`."""
    kind = typed["kind"]
    values: dict[str, Any] = {"dag_id": dag.dag_id, "kind": kind, "reprocess": typed["reprocess"] or "none"}
    values["by"] = typed["by"] or "runs" if kind == "missing" else "runs"
    values |= {name: typed[name] == "on" for name in CHECKBOXES}
    if kind in RANGED:
        if text := _moment(typed, "start"):
            values["start_date"] = read_field(errors, "start_date", lambda: parse_start(text, zone, name="start_date"))
        if typed_end := _moment(typed, "end"):
            values["end_date"] = read_field(
                errors, "end_date", lambda: _read_end(typed_end, dag, kind, zone, values.get("start_date"))
            )
    elif kind == "dates":
        texts = _listed(typed["dates"])
        values["dates"] = read_field(
            errors, "dates", lambda: tuple(parse_date(text, zone, name="dates") for text in texts)
        )
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
    return None if errors else read_field(errors, "", partial(CreateBackfill.parse, values))


def _read_end(text: str, dag: DagSpec, kind: str, zone: str, start: datetime | None) -> datetime:
    return read_end(dag, kind, for_command(text, zone, dag.timezone, end_edge(kind), name="end_date"), start)


def typed_range(typed: Typed) -> tuple[str, str]:
    return _moment(typed, "start"), _moment(typed, "end")


def lacks_range(typed: Typed) -> bool:
    """Both ends are empty, as on a page that was come back to: nobody means all that the DAG has ever had by that. What is
    missing or stale may be meant without a range."""
    return typed["kind"] in ("schedule", "single") and typed_range(typed) == ("", "")


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


def quick_ranges(dag: DagSpec, now: datetime, field_zone: str) -> list[QuickRange]:
    """In the zone of the fields, up to the last complete day or the DAG's end date."""
    zone = ZoneInfo(field_zone)
    start = dag.start_date.astimezone(zone).date() if dag.start_date else None
    end = now.astimezone(zone).date() - timedelta(days=1)
    if dag.end_date is not None:
        end = min(end, dag.end_date.astimezone(zone).date())
    month = end.replace(day=1)
    previous_end = month - timedelta(days=1)
    previous = previous_end.replace(day=1)
    ranges = [
        QuickRange("7 days", end - timedelta(days=6), end),
        QuickRange("30 days", end - timedelta(days=29), end),
        QuickRange(f"{month:%B %Y}", month, end),
        QuickRange(f"{previous:%B %Y}", previous, previous_end),
        QuickRange(str(end.year), end.replace(month=1, day=1), end),
    ]
    if start is None:
        return ranges
    ranges.append(QuickRange("Full range", start, end))
    return [one._replace(first=max(one.first, start)) for one in ranges if one.last >= start]
