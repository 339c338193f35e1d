"""Values that are typed as JSON: run parameters (`--conf`) and settings (`--set NAME=VALUE`), and how large they may be."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from backfill_manager.errors import InvalidInput

DEEPEST: Final = 50  # levels of JSON from outside
MOST_BYTES: Final = 65_536  # of run parameters, and of settings, as JSON text in UTF-8: they are kept with every run
_LOOKS_LIKE_A_FILE: Final = re.compile(r"[^{}\[\]\"]+\.ya?ml")


def parse_conf(text: str | None) -> dict[str, Any]:
    """A JSON object; nothing said is an empty one. `InvalidInput` with the place of what is wrong in it."""
    if text is None:
        return {}
    try:
        value = json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        hint = ""
        if _LOOKS_LIKE_A_FILE.fullmatch(text):
            hint = f". (The configuration file is named before the command: `bfm --conf {text} backfill create …`)"
        place = f"line {error.lineno}, column {error.colno}: {_around(text, error.pos)}"
        raise InvalidInput(f"--conf is not JSON: {error.msg} at {place}{hint}") from None
    except RecursionError:
        raise InvalidInput("--conf is nested too deeply to be read.") from None
    if not isinstance(value, dict):
        raise InvalidInput(f"--conf must be a JSON object such as '{{\"full\": true}}', not {json.dumps(value)[:60]}.")
    return value


def too_large(value: Any) -> str | None:
    """`must not be larger than ...` for run parameters and settings, which every run of a backfill has a copy of; None for
    what may be kept."""
    try:
        size = len(json.dumps(value, ensure_ascii=False, default=str).encode("utf-8", "replace"))
    except RecursionError:
        return f"must not be nested more than {DEEPEST} levels deep"
    if size <= MOST_BYTES:
        return None
    most = f"must not be larger than {MOST_BYTES // 1024} kB as JSON"
    return f"{most}, and has {size:,} bytes; put it into a table or a file, and name that here"


def parse_settings(pairs: Sequence[str]) -> dict[str, Any]:
    """`["retries=3", "clean.trigger_rule=all_done"]` -> `{"retries": 3, "clean.trigger_rule": "all_done"}`. A value that
    is no JSON is text."""
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        name = name.strip()
        if not equals or not name:
            raise InvalidInput(f"--set {pair[:60]!r} must be NAME=VALUE, such as retries=3 or clean.timeout=600.")
        if name in found:
            raise InvalidInput(f"--set names {name!r} twice; say once what it shall be.")
        found[name] = _value(text.strip())
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_as_text)
    except (json.JSONDecodeError, RecursionError):
        return text


def _as_text(constant: str) -> str:
    return constant


def _refuse(constant: str) -> Any:
    raise InvalidInput(f"--conf: {constant} is not JSON; use a number, or null.")


def _around(text: str, position: int) -> str:
    return repr(text[max(0, position - 15) : position + 15])


def invalid_json_values(value: Any, depth: int = 0, *, deepest: int = DEEPEST) -> Iterator[str]:
    """What Python's reader lets through and the tables, or other readers, would not: NaN, half characters; and what is
    nested too deeply. Nothing for JSON as it should be."""
    if depth > deepest:
        yield f"is nested more than {DEEPEST} levels deep"
    elif isinstance(value, float) and not math.isfinite(value):
        yield "holds a number that is not finite"
    elif isinstance(value, str) and any("\ud800" <= one <= "\udfff" for one in value):
        yield "holds half a character (a lone surrogate)"
    elif isinstance(value, dict):
        for name, one in value.items():
            yield from invalid_json_values(name, depth, deepest=deepest)
            yield from invalid_json_values(one, depth + 1, deepest=deepest)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from invalid_json_values(one, depth + 1, deepest=deepest)
