"""The fields of the forms about backfills: what each is called, what it means, how it is typed, and which one an error
is about.

A form is read as plain text first (`typed`), so that what a person wrote comes back as it was, right or wrong. The errors
of `requests.backfills` speak of the command line's options; here they speak of fields.
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
from backfill_manager.schemas import errors
from backfill_manager.schemas.commands import MAX_NUMBER, UPDATABLE_FIELDS, BackfillInput, find_field
from backfill_manager.schemas.fields import fields_of

Typed = dict[str, str]  # name of a field -> what is in it; a box that is ticked holds "on", another ""
Wrong = dict[str, str]  # name of a field -> what is wrong with it; "" stands for the form as a whole
LONGEST: Final = 200_000  # characters of a field


@dataclass(frozen=True)
class Field:
    name: str
    label: str
    hint: str
    kind: Literal["number", "text", "check", "pool", "lines"]
    option: str  # of the command line, which errors name
    low: int | None = None


SETTINGS: Final[dict[str, Field]] = {
    field.name: field
    for field in (
        Field("max_active_runs", "Runs at once", "Empty: the DAG's own limit.", "number", "--max-active-runs", 1),
        Field("priority", "Priority", "Higher goes first.", "number", "--priority"),
        Field("pool", "Pool", "Whose slots it uses.", "pool", "--pool"),
        Field(
            "batch", "Batch", "Up to so many neighbouring intervals make one run, for DAGs that are batchable.",
            "number", "--batch", 1,
        ),
        Field(
            "stop_on_failure", "Stop on failure", "Pause after so many failed items. Empty: go on.",
            "number", "--stop-on-failure", 1,
        ),
        Field(
            "window", "Working hours", "Start work only then, in the DAG's zone: 20:00-06:00. Empty: at any hour.",
            "text", "--window",
        ),
        Field(
            "tasks", "Tasks", "A regular expression: run only tasks whose id matches. Empty: all of them.",
            "text", "--tasks",
        ),
        Field(
            "with_upstream", "With upstream tasks", "Of the tasks that are named: what is upstream of them runs, too.",
            "check", "--no-upstream",
        ),
        Field(
            "with_downstream", "With downstream tasks", "Of the tasks that are named: what is downstream of them runs, too.",
            "check", "--downstream-tasks",
        ),
        Field("is_polite", "Polite", "Start nothing while a scheduled task waits for a slot.", "check", "--polite"),
        Field("mark_success", "Mark success", "Run no task: the runs are set to success.", "check", "--mark-success"),
        Field(
            "overrides", "Settings of the DAG and its tasks",
            "For this backfill alone, one NAME=VALUE a line: retries=3 for every task, clean.timeout=600 for one.",
            "lines", "--set",
        ),
        Field("conf", "Run parameters", 'A JSON object that the runs are given: {"full": true}.', "lines", "--conf"),
    )
}  # fmt: skip
assert set(SETTINGS) == set(UPDATABLE_FIELDS)

KINDS: Final = {
    "schedule": ("Every interval", "Each interval of the schedule from the first to the last."),
    "missing": ("What is missing", "Intervals in the range without a successful run: gaps, and what failed."),
    "stale": ("What is stale", "Intervals whose last success was made by an older version of the DAG."),
    "single": ("One run", "One run over the whole range; its interval is the range."),
    "dates": ("Dates", "Logical dates that you list."),
    "partitions": ("Partitions", "Keys that are no dates: regions, customers. A run then has no interval."),
}


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a form that was sent, as text; files are none of ours. What was sent stays readable for others."""
    await request.body()
    async with request.form() as form:
        return {name: value for name, value in form.items() if isinstance(value, str)}


def in_words(error: BackfillManagerError | str) -> str:
    """An error as a sentence, with the labels of fields."""
    text = error if isinstance(error, str) else error.worded(_quoted_label)
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "?", "!")) else f"{text}."


def _quoted_label(field: str) -> str:
    declared = find_field(field)
    return f"“{declared.label if declared else field}”"


def field_of(error: BackfillManagerError) -> str:
    """The name of the form's field that an error is about; "" when it is about the whole."""
    names = {"start_date": "from_date", "end_date": "to_date"}
    field = error.field or ""
    return names.get(field, field if field in fields_of(BackfillInput) else "")


def as_typed(name: str, value: Any) -> str:
    """A setting as a person would type it."""
    if value is None or value is False:
        return ""
    if value is True:
        return "on"
    if name == "conf":
        return json.dumps(value, ensure_ascii=False, indent=2) if value else ""
    if name == "overrides":
        return "\n".join(f"{key}={_plain(one)}" for key, one in sorted(value.items()))
    return str(value)


def _plain(value: Any) -> str:
    """As `parse_overrides` reads it back: a text stays bare where it would not be taken for JSON."""
    if isinstance(value, str):
        try:
            json.loads(value)
        except ValueError:
            return value if value == value.strip() and "\n" not in value else json.dumps(value)
    return json.dumps(value, ensure_ascii=False)


def read_settings(typed: Mapping[str, str], wrong: Wrong) -> dict[str, Any]:
    """The settings that could be read; for each other one there is a sentence in `wrong`."""
    found: dict[str, Any] = {}
    for name, field in SETTINGS.items():
        value = reading(wrong, name, _read, field, typed.get(name, ""))
        if name not in wrong:
            found[name] = value
    return found


def reading(wrong: Wrong, name: str, read: Callable[..., Any], *args: Any) -> Any:
    """What `read(*args)` gives; when it refuses, that is told of the field `name`."""
    try:
        return read(*args)
    except InvalidInput as error:
        wrong.setdefault(name, in_words(error))
        return None


def _read(field: Field, text: str) -> Any:
    if len(text) > LONGEST:
        raise errors.INVALID_VALUE(
            field=field.name, problem=f"holds {len(text):,} characters; up to {LONGEST:,} can be read"
        )
    text = text.strip()
    match field.kind:
        case "check":
            return text == "on"
        case "number":
            return _number(field, text)
        case "lines" if field.name == "conf":
            return parse_conf(text or None)
        case "lines":
            return parse_overrides([line for line in text.splitlines() if line.strip()])
        case "pool":
            return text or "backfill"
        case _:
            return text or None


_WHEN_EMPTY: Final = {"batch": 1, "priority": 0}


def _number(field: Field, text: str) -> int | None:
    if not text:
        return _WHEN_EMPTY.get(field.name)
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        raise errors.INVALID_VALUE(field=field.name, problem=f"must be a whole number, not {text[:30]!r}")
    number = int(text)
    if field.low is not None and number < field.low:
        raise errors.INVALID_VALUE(
            field=field.name, problem=f"must be a whole number from {field.low} up, not {number}"
        )
    if abs(number) > MAX_NUMBER:
        raise errors.INVALID_VALUE(field=field.name, problem=f"must not be above {MAX_NUMBER:,}, not {text[:30]}")
    return number
