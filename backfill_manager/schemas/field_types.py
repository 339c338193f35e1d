"""Types of the fields of commands: what a value may be, its limits, how it is read from text, and how JSON schema says that."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, Final

from pydantic import AwareDatetime, Field, PlainSerializer, WithJsonSchema
from pydantic.functional_validators import AfterValidator, BeforeValidator

from backfill_manager.clock import INSTANT_FORM, format_instant, parse_instant
from backfill_manager.errors import shorten
from backfill_manager.number_ranges import RANGE_PATTERN, read_range
from backfill_manager.value_rules import (
    MAX_MEMORY_MB,
    MAX_NICE,
    MEMORY_PATTERN,
    MIN_MEMORY_MB,
    read_duration,
    read_memory,
)

MAX_NUMBER: Final = 1_000_000_000  # of slots, a priority, a batch, ...: sums of them still fit a column
MAX_PARTITION_KEY_LENGTH: Final = 1000
MAX_NOTE_LENGTH: Final = 4000
MAX_RANGES: Final = 2000  # of items or dates that are selected; a range may be as long as the backfill


def _read_instant(value: Any) -> Any:
    if value is None or isinstance(value, datetime):
        return value
    try:
        return parse_instant(value)
    except (ValueError, AttributeError):
        raise ValueError(f"must be an instant, {INSTANT_FORM}, not {str(value)[:40]!r}") from None


def _matching(pattern: str, problem: str) -> AfterValidator:
    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(f"must be {problem}, not {value[:60]!r}")
        return value

    return AfterValidator(check)


def path_within_bundle(path: str) -> str:
    """As files of a bundle are named: `./daily/` is `daily`, and `.` is all of it."""
    return "/".join(part for part in path.split("/") if part not in ("", "."))


def _read_note(value: Any) -> Any:
    """Ends of lines as `\n`, which browsers send as `\r\n`; nothing around it."""
    return value.replace("\r\n", "\n").replace("\r", "\n").strip() if isinstance(value, str) else value


def _read_nice(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if not re.fullmatch(r"none|[0-9]{1,2}", value):
        raise ValueError(f"must be 0 to {MAX_NICE}, or `none`, not {value[:60]!r}")
    return None if value == "none" else int(value)


def _read_item_range(value: Any) -> Any:
    if type(value) is int:
        value = str(value)
    if isinstance(value, str):
        first, _ = read_range(value)  # or what is wrong with it
        if first < 1:
            raise ValueError(f"must not be below 1, the number of the first item, not {value[:40]!r}")
    return value


def few_ranges(values: tuple[str, ...]) -> tuple[str, ...]:
    if len(values) > MAX_RANGES:
        raise ValueError(f"must be at most {MAX_RANGES:,} ranges, not {len(values):,}; choose fewer, longer ones")
    return values


def _read_batch(value: Any) -> Any:
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,10}", value):
        value = int(value)
    if value == "auto" or (type(value) is int and 1 <= value <= MAX_NUMBER):
        return value
    raise ValueError(f"must be a whole number of 1 to {MAX_NUMBER:,}, or `auto`, not {shorten(repr(value), 60)}")


Instant = Annotated[AwareDatetime, BeforeValidator(_read_instant), PlainSerializer(format_instant, return_type=str)]
DateText = Annotated[
    str,
    Field(
        min_length=1, max_length=100, examples=["2013-01-31"],
        description="Date such as `2013-01-31` or `2013-01-31T05:00`, in the DAG's time zone unless it has an offset.",
    ),
]  # fmt: skip
Count = Annotated[int, Field(ge=1, le=MAX_NUMBER)]
Number = Annotated[int, Field(ge=-MAX_NUMBER, le=MAX_NUMBER)]
Regex = Annotated[str, Field(min_length=1, max_length=1000)]
Text = Annotated[str, Field(min_length=1)]
NoteText = Annotated[str, Field(max_length=MAX_NOTE_LENGTH), BeforeValidator(_read_note)]
Batch = Annotated[
    int | str,
    BeforeValidator(_read_batch),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 1, "maximum": MAX_NUMBER}, {"type": "string", "enum": ["auto"]}]}
    ),
]
_DURATION_TEXT: Final = {"type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*[A-Za-z]*\s*$"}
Duration = Annotated[
    Annotated[float, Field(ge=1, le=MAX_NUMBER, allow_inf_nan=False)],
    BeforeValidator(read_duration),
    WithJsonSchema(
        {"anyOf": [{"type": "number", "minimum": 1, "maximum": MAX_NUMBER}, _DURATION_TEXT], "examples": ["10 min"]}
    ),
]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Id = Annotated[str, _matching(
    r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", "1 to 64 letters (a to z), digits, '_', '.' or '-', and begin with a letter or digit"
)]  # fmt: skip
PoolName = Annotated[str, _matching(
    r"(?!\.+$)(?!control$)[A-Za-z0-9_.-]{1,200}",
    "up to 200 letters (a to z), digits, '_', '.' or '-', and not 'control', the pool that plans",
)]  # fmt: skip
Subpath = Annotated[str, _matching(
    r"(?!/)(?!(.*/)?\.\.(/|$)).{0,1000}", "a path within the bundle, such as daily/flights.py, or empty for all of it"
), AfterValidator(path_within_bundle)]  # fmt: skip
Hours = Annotated[
    str,
    _matching(r"\s*([01]\d|2[0-3]):[0-5]\d-(([01]\d|2[0-3]):[0-5]\d|24:00)\s*", "a span of hours such as 20:00-06:00"),
    Field(max_length=20),
]
_ITEM_RANGE_PATTERN: Final = f"^{RANGE_PATTERN}$"
_MEMORY_TEXT: Final = {"type": "string", "pattern": f"^(none|{MEMORY_PATTERN})$"}
_MEMORY_SCHEMA: Final = {"type": "integer", "minimum": MIN_MEMORY_MB, "maximum": MAX_MEMORY_MB}
MemoryLimit = Annotated[
    Annotated[int, Field(ge=MIN_MEMORY_MB, le=MAX_MEMORY_MB)] | None,
    BeforeValidator(lambda value: None if value == "none" else read_memory(value)),
    WithJsonSchema({"anyOf": [_MEMORY_SCHEMA, _MEMORY_TEXT, {"type": "null"}], "examples": ["2 GB"]}),
]
_NICE_SCHEMA: Final = {"type": "integer", "minimum": 0, "maximum": MAX_NICE}
Nice = Annotated[
    Annotated[int, Field(ge=0, le=MAX_NICE)] | None,
    BeforeValidator(_read_nice),
    WithJsonSchema({"anyOf": [_NICE_SCHEMA, {"type": "string", "pattern": "^(none|[0-9]{1,2})$"}, {"type": "null"}]}),
]
ItemRange = Annotated[
    str,
    BeforeValidator(_read_item_range),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": _ITEM_RANGE_PATTERN}]}),
]
ItemRanges = Annotated[
    tuple[ItemRange, ...], AfterValidator(few_ranges), Field(json_schema_extra={"maxItems": MAX_RANGES})
]
JsonObject = dict[str, Any]
