"""Values that are typed as JSON: run parameters, and overrides as NAME=VALUE."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from backfill_manager.clock import DATE_FORM
from backfill_manager.schemas import errors

_EXAMPLES: Final = {"conf": '{"full": true}', "config": f'{{"type": "dates", "dates": ["{DATE_FORM}"]}}'}
_LOOKS_LIKE_A_FILE: Final = re.compile(r"[^{}\[\]\"]+\.ya?ml")


def parse_conf(text: str | None) -> dict[str, Any]:
    """Run parameters; None is an empty object."""
    return {} if text is None else parse_object("conf", text)


def parse_object(field: str, text: str) -> dict[str, Any]:
    """The JSON object that is typed for a field. `InvalidInput` with the place of what is wrong in it."""

    def refuse(constant: str) -> Any:
        raise errors.NOT_JSON(field=field, problem=f"{constant} is not JSON; use a number, or null")

    try:
        value = json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError as error:
        around = repr(text[max(0, error.pos - 15) : error.pos + 15])
        problem = f"{error.msg} at line {error.lineno}, column {error.colno}: {around}"
        hint = "conf_is_no_file" if _LOOKS_LIKE_A_FILE.fullmatch(text) else None
        raise errors.NOT_JSON(field=field, problem=problem, hint=hint, text=text[:200]) from None
    except RecursionError:
        raise errors.INVALID_VALUE(field=field, problem="is nested too deeply to be read") from None
    if not isinstance(value, dict):
        problem = f"must be a JSON object such as {_EXAMPLES[field]}, not {json.dumps(value)[:60]}"
        raise errors.INVALID_VALUE(field=field, problem=problem)
    return value


def parse_overrides(pairs: Sequence[str]) -> dict[str, Any]:
    """`["retries=3", "clean.trigger_rule=all_done"]` -> `{"retries": 3, "clean.trigger_rule": "all_done"}`. A value that is
    no JSON is text."""
    overrides: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        name = name.strip()
        if not equals or not name:
            raise errors.BAD_OVERRIDE(pair=pair[:60])
        if name in overrides:
            raise errors.OVERRIDE_TWICE(name=name)
        overrides[name] = _value(text.strip())
    return overrides


def _value(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=lambda constant: constant)
    except (json.JSONDecodeError, RecursionError):
        return text
