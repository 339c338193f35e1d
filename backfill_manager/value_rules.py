"""What values of settings and DAG files have in common: the pattern of a name, and the wording of pydantic's errors ("must be 1
or more, not 0")."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from backfill_manager.errors import nearest, shorten

MIN_MEMORY_MB: Final = 16
MAX_MEMORY_MB: Final = 1 << 20
MAX_NICE: Final = 19
MEMORY_PATTERN: Final = r"\s*([0-9]{1,7}(?:\.[0-9]{1,3})?)\s*(?:([mMgGtT])(?:[iI]?[bB])?)?\s*"
NAME_PATTERN: Final = r"(?!\.+$)[A-Za-z0-9_.-]{1,200}"  # of DAGs, tasks, pools, bundles, tokens
DURATION_UNITS: Final = {
    **dict.fromkeys(("", "s", "sec", "secs", "second", "seconds"), 1),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600),
    **dict.fromkeys(("d", "day", "days"), 86400),
}
CATALOG_SCHEMA: Final = r"[A-Za-z_]\w*\.[A-Za-z_]\w*"  # of a state in a catalog: `main.jobs`
_DELTA_PATH: Final = re.compile(r"delta\.`([^`]*/[^`]*)`", re.IGNORECASE)
NAME_RULE: Final = "1 to 200 letters (a to z), digits, `_`, `.` or `-`, not dots only"

_KINDS: Final = {  # pydantic's types of errors, by what the value must be
    "keys and values": ("model_type", "dict_type", "mapping_type"),
    "a list": ("list_type", "tuple_type"),
    "text": ("string_type",),
    "a whole number": ("int_type", "int_parsing", "int_from_float"),
    "a number": ("float_type", "float_parsing"),
    "a finite number": ("finite_number",),
    "true or false": ("bool_type", "bool_parsing"),
    "more than {gt}": ("greater_than",),
    "{ge} or more": ("greater_than_equal",),
    "less than {lt}": ("less_than",),
    "{le} or less": ("less_than_equal",),
    "{expected}": ("literal_error", "enum"),
}
_MUST_BE: Final = {kind: what for what, kinds in _KINDS.items() for kind in kinds}


def read_memory(value: Any) -> Any:
    """Text such as `512 MB`, `2 GB` or `1.5g` as MB, of 1024 in a GB; another value as it is, but for true and false."""
    if not isinstance(value, str | bool):
        return value
    match = None if isinstance(value, bool) else re.fullmatch(MEMORY_PATTERN, value)
    if match is None:
        raise ValueError(f"must be MB, or a size such as `512 MB` or `2 GB`, not {shorten(repr(value), 200)}")
    number, unit = match.groups()
    return round(float(number) * 1024 ** "mgt".index((unit or "m").lower()))


def read_duration(value: Any) -> Any:
    """Text such as `90s`, `5 minutes` or `1 day` as seconds; another value as it is, but for true and false."""
    if not isinstance(value, str):
        return read_number(value)
    match = re.fullmatch(r"\s*(\d{1,12}(?:\.\d{1,6})?)\s*([a-z]*)\s*", value, re.ASCII | re.IGNORECASE)
    if not match or match[2].lower() not in DURATION_UNITS:
        raise ValueError(f"must be seconds, or a time such as `90s`, `5 minutes`, `2h` or `1 day`, not {value!r}")
    return float(match[1]) * DURATION_UNITS[match[2].lower()]


def read_number(value: Any) -> Any:
    """The value as it is, but for true and false."""
    if isinstance(value, bool):  # YAML's `yes` would pass for 1
        raise ValueError(f"must be a number, not {str(value).lower()}")
    return value


def check_name(value: Any) -> str:
    """`ValueError` for what is no name."""
    if not isinstance(value, str) or not re.fullmatch(NAME_PATTERN, value):
        raise ValueError(f"must be {NAME_RULE}, not {value!r}")
    return str(value)


def refuse_unknown(value: Mapping[Any, Any], known: Collection[str], where: str) -> None:
    """`ValueError` for the first key that is none of those known."""
    if unknown := [name for name in value if name not in known]:
        near = nearest(str(unknown[0]), known, n=1) or f"; it has {', '.join(known)}"
        raise ValueError(f"{where} has no {unknown[0]!r}{near}")


def table_key(name: str) -> str:
    """A table's name or path as names are compared: a path as `table_path` writes it; names do not differ by case."""
    name = name_or_path(name)
    return table_path(name) if "/" in name else name.lower().removeprefix("spark_catalog.")


def name_or_path(table: str) -> str:
    """The path of delta.`/a/path`, as SQL writes it; any other name or path as it is."""
    quoted = _DELTA_PATH.fullmatch(table)
    return quoted[1] if quoted else table


def table_path(location: str) -> str:
    """A table's path in the one spelling of many: `/a/b` for `/a/b/`, `file:/a/b` and `file:///a/b`, which Spark, Hadoop and
    delta-rs write; `s3://c/d` for `s3://c/d/`."""
    is_local = location.startswith(("/", "file:"))
    path = "/" + location.removeprefix("file:").lstrip("/") if is_local else location
    return path.rstrip("/") or "/"


def table_keys(name: str) -> tuple[str, ...]:
    """What a table that is written so may be: a name without a schema is one in Spark's own, too."""
    key = table_key(name)
    return (key,) if "/" in name or "." in name else (key, f"default.{key}")


def describe_error(error: Mapping[str, Any]) -> str:
    """What is wrong with one field, to be put after its name; `error` is an entry of `ValidationError.errors()`. Unknown
    and missing fields are for the caller, who knows which fields there are."""
    kind, value = error["type"], error["input"]
    message = error["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    if kind in ("value_error", "assertion_error"):  # a validator of ours: it shows the value itself, or hides it
        return message if message.startswith(("must", "each")) else f"is wrong: {message}"
    if kind in _MUST_BE:
        given = error.get("ctx", {}).items()
        limits = {name: int(x) if isinstance(x, float) and x.is_integer() else x for name, x in given}
        what = f"must be {_MUST_BE[kind]}".format(**limits)
    else:
        what = f"{message[0].lower()}{message[1:]}".removeprefix("input ").replace("should ", "must ")
        what = what if what.startswith("must") else f"is wrong: {what}"
    return f"{what}, not {shorten(repr(value), 200)}" if isinstance(value, str | int | float | None) else what
