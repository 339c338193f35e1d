"""JSON in columns of the state. Somebody else may have written what can't be read: it stops what needs it, and no manager."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, Final

from backfill_manager.errors import InvalidInput
from backfill_manager.model.records import Backfill, Record

OPTIONS: Final = ("conf_json", "overrides_json", "parents_json")  # of a backfill, without which its runs can't be right


def is_json(text: str | None) -> bool:
    if text is not None:
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            return False
    return True


def read_column(row: Record, column: str, kind: type = object) -> Any:
    """Its value; None where it is null. `InvalidInput` if it is no JSON, or of another kind."""
    text = getattr(row, column)
    if text is None:
        return None
    with suppress(ValueError, RecursionError):
        value = json.loads(text)
        if isinstance(value, kind):
            return value
    raise unreadable(row, column)


def unreadable(row: Record, column: str) -> InvalidInput:
    key = "/".join(str(part) for part in row.key)
    return InvalidInput(f"{column} of {row.TABLE} {key} can't be read; `bfm state check` names all such rows")


def shown_json(text: str | None) -> Any:
    """None where it can't be read: who looks at a page sees all else."""
    return json.loads(text) if text is not None and is_json(text) else None


def parents_of(row: Backfill) -> tuple[str, ...]:
    """None where they can't be read."""
    return () if unreadable_options(row) else tuple(json.loads(row.parents_json))


def unreadable_options(row: Backfill) -> InvalidInput | None:
    """Why the runs of this backfill can't be what was asked for."""
    try:
        for column in OPTIONS:
            read_column(row, column, list if column == "parents_json" else dict)
    except InvalidInput as error:
        return error
    return None
