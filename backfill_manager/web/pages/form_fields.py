"""Fields of the backfill forms: label, hint and limits from `schemas.commands`, and text as typed <-> value.

A form is read as plain text first (`Typed`), so that it can be shown again as it was typed, valid or not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from fastapi import Request

from backfill_manager.errors import BackfillManagerError, InvalidInput
from backfill_manager.requests.json_input import parse_conf, parse_overrides
from backfill_manager.schemas.commands import BackfillInput, BackfillSettings
from backfill_manager.schemas.errors import INVALID_VALUE
from backfill_manager.schemas.fields import DeclaredField, fields_of
from backfill_manager.web.page import message_of

Typed = dict[str, str]  # text by field; a checkbox is "on" or ""
Errors = dict[str, str]  # message by field; "" is the form as a whole
MAX_TEXT_LENGTH: Final = 200_000
_FIELDS: Final = fields_of(BackfillInput)


@dataclass(frozen=True)
class FormField:
    name: str
    label: str
    hint: str
    widget: Literal["number", "text", "checkbox", "pool", "lines"]


def _form_field(field: DeclaredField) -> FormField:
    widget: Literal["number", "text", "checkbox", "pool", "lines"] = "text"
    if field.name == "pool":
        widget = "pool"
    elif field.type in (bool, int, dict):
        widget = {bool: "checkbox", int: "number", dict: "lines"}[field.type]  # type: ignore[assignment]
    empty = f" Empty: {field.option.none}." if field.option.none else ""
    one_per_line = " One NAME=VALUE per line." if field.name == "overrides" else ""
    return FormField(field.name, field.label, field.help + empty + one_per_line, widget)


FORM_FIELDS: Final = {name: _form_field(field) for name, field in _FIELDS.items()}
SETTINGS: Final = {name: FORM_FIELDS[name] for name in BackfillSettings.model_fields}
KINDS: Final = {
    "schedule": ("Every interval", "Each interval of the schedule in the range."),
    "missing": ("Missing", "Intervals in the range without a successful run: gaps and failures."),
    "stale": ("Stale", "Intervals whose last success is of an older version of the DAG."),
    "single": ("One run", "One run over the whole range."),
    "dates": ("Dates", "The logical dates you list."),
    "partitions": ("Partitions", "Keys that are not dates: regions, customers. Such runs have no interval."),
}
REPROCESS: Final = {
    "none": "Skip",
    "failed": "Reprocess failed runs",
    "failed_tasks": "Re-run failed tasks in place",
    "completed": "Reprocess failed and successful runs",
}


async def form_of(request: Request) -> dict[str, str]:
    """The text fields of a submitted form. The body stays readable (for the request's fingerprint)."""
    await request.body()
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
    return str(value)


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
    values = {name: read_field(errors, name, _read, field, typed.get(name, "")) for name, field in SETTINGS.items()}
    return {name: value for name, value in values.items() if name not in errors}


def read_field(errors: Errors, name: str, read: Callable[..., Any], *args: Any) -> Any:
    """What `read(*args)` returns; if it refuses, None, and the message is added for the field `name`."""
    try:
        return read(*args)
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
