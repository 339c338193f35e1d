"""JSON from outside: run parameters and overrides, and what payloads of the request table hold."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, Final

from backfill_manager.schemas import errors
from backfill_manager.schemas.field_types import JsonObject

MAX_DEPTH: Final = 50  # levels of JSON from outside
MAX_BYTES: Final = 65_536  # of run parameters, and of overrides, as JSON text in UTF-8: they are kept with every run


def check_sizes(**values: JsonObject) -> None:
    """`InvalidInput` for run parameters or overrides that are too large to be kept with every run."""
    for field, value in values.items():
        if excess := next(invalid_json_values(value), None) or too_large(value):
            raise errors.INVALID_VALUE(field=field, problem=excess)


def too_large(value: Any) -> str | None:
    """`must not be larger than ...` for run parameters and overrides, which every run of a backfill has a copy of; None for
    what may be kept."""
    try:
        size = len(json.dumps(value, ensure_ascii=False, default=str).encode("utf-8", "replace"))
    except RecursionError:
        return f"must not be nested more than {MAX_DEPTH} levels deep"
    if size <= MAX_BYTES:
        return None
    limit = f"must not be larger than {MAX_BYTES // 1024} kB as JSON"
    return f"{limit}, and has {size:,} bytes; put it into a table or a file, and name that here"


def invalid_json_values(value: Any, depth: int = 0, *, deepest: int = MAX_DEPTH) -> Iterator[str]:
    """What Python's JSON reader accepts and the tables, or other readers, would not: NaN, lone surrogates, and what is
    nested too deeply."""
    if depth > deepest:
        yield f"is nested more than {MAX_DEPTH} levels deep"
    elif isinstance(value, float) and not math.isfinite(value):
        yield "holds a number that is not finite"
    elif isinstance(value, str) and any("\ud800" <= char <= "\udfff" for char in value):
        yield "holds half a character (a lone surrogate)"
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from invalid_json_values(name, depth, deepest=deepest)
            yield from invalid_json_values(item, depth + 1, deepest=deepest)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from invalid_json_values(item, depth + 1, deepest=deepest)
