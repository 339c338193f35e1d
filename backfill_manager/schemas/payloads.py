"""Reads the payloads of requests: of an older release, or written by hand."""

from __future__ import annotations

import json
from typing import Any, Final

from backfill_manager.errors import InvalidInput, nearest
from backfill_manager.schemas import errors
from backfill_manager.schemas.command import Command
from backfill_manager.schemas.commands import COMMANDS
from backfill_manager.schemas.field_types import JsonObject
from backfill_manager.schemas.json_values import MAX_DEPTH, invalid_json_values

MAX_PAYLOAD_LENGTH: Final = 32_000_000  # characters of JSON: a million dates or partitions
# Of a payload: fields that older releases don't write.
MAY_BE_LEFT_OUT: Final = frozenset({
    "was", "allow_future", "memory_mb", "nice", "partition_key", "latest_version", "downstream", "conf", "key", "table",
    "partial", "rebase", "items", "dates", "start_date", "end_date", "run_ids", "backfill_id", "slots", "weight", "min_share",
})  # fmt: skip


def parse_command(kind: str, payload: Any) -> Command:
    """The command of a payload, or `InvalidInput` that names the kind, the field and what it should be. A request may have
    been written by another release, or by hand."""
    if kind not in COMMANDS:
        raise errors.UNKNOWN_KIND(kind=kind[:60], nearest=nearest(kind, COMMANDS) or f"; one of {', '.join(COMMANDS)}")
    if not isinstance(payload, dict):
        raise errors.NOT_AN_OBJECT(kind=kind, type=type(payload).__name__)
    for problem in invalid_json_values(payload, deepest=MAX_DEPTH + 2):  # the payload, and `ask` in it
        raise errors.UNREADABLE_PAYLOAD(kind=kind, problem=problem)
    command = COMMANDS[kind]
    try:
        for name in command.model_fields:
            if name not in payload and name not in MAY_BE_LEFT_OUT:
                raise errors.MISSING_FIELD(field=name, name=name)
        parsed = command.parse(payload)
        parsed.check()
    except InvalidInput as error:
        raise error.prefixed(f"{kind}: ") from None
    return parsed


def check_length(kind: str, text: str) -> None:
    if len(text) > MAX_PAYLOAD_LENGTH:
        raise errors.PAYLOAD_TOO_LONG(kind=kind[:60], length=f"{len(text):,}", max=f"{MAX_PAYLOAD_LENGTH:,}")


def parse_payload(kind: str, text: str) -> JsonObject:
    """A request's `payload_json` as a checked dict; `InvalidInput` for an unknown kind, broken JSON or wrong fields, and for
    what is too large to be read between two ticks."""
    payload: JsonObject = _read_json(kind, text)
    parse_command(kind, payload)
    return payload


def read_command(kind: str, text: str) -> Command:
    """A request's `payload_json` as a command, checked in the same way."""
    return parse_command(kind, _read_json(kind, text))


def _read_json(kind: str, text: str) -> Any:
    check_length(kind, text)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        problem = f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        raise errors.UNREADABLE_PAYLOAD(kind=kind, problem=problem) from None
    except RecursionError:
        raise errors.UNREADABLE_PAYLOAD(kind=kind, problem="is nested too deeply to be read") from None
