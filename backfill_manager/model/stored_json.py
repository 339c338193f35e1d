"""JSON in columns of the state. Somebody else may have written what can't be read: it stops what needs it, and no manager."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, Final

from backfill_manager.errors import InvalidInput
from backfill_manager.model.records import Backfill, Record

OPTIONS: Final = ("conf_json", "overrides_json", "parents_json")  # of a backfill, without which its runs can't be right
# The type of the value, and that of its elements or keys. Any value may be in the other columns.
KINDS: Final[dict[str, tuple[type, type]]] = {
    "columns_json": (list, dict), "conf_json": (dict, str), "config_json": (dict, str), "definition_json": (dict, str),
    "helpers_json": (list, str), "overrides_json": (dict, str), "parents_json": (list, str), "reader_json": (dict, str),
    "settings_json": (dict, str), "spark_jobs_json": (list, int), "spark_stages_json": (dict, str), "tags_json": (list, str),
}  # fmt: skip


def is_readable(column: str, text: str | None) -> bool:
    """Whether it is null, or JSON of the kind that this column holds."""
    if text is not None:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return False
        kind, of = KINDS.get(column, (object, object))
        if isinstance(value, list | dict):
            return isinstance(value, kind) and all(isinstance(one, of) for one in value)
        return isinstance(value, kind)
    return True


def read_column(row: Record, column: str) -> Any:
    """Its value; None where it is null. `InvalidInput` if it can't be read."""
    text = getattr(row, column)
    if not is_readable(column, text):
        raise unreadable(row, column)
    return None if text is None else json.loads(text)


def unreadable(row: Record, column: str) -> InvalidInput:
    key = "/".join(str(part) for part in row.key)
    return InvalidInput(f"{column} of {row.TABLE} {key} can't be read; `bfm state check` names all such rows")


def shown_column(row: Record, column: str) -> Any:
    """None where it can't be read: who looks at a page sees all else."""
    with suppress(InvalidInput):
        return read_column(row, column)
    return None


def parents_of(row: Backfill) -> tuple[str, ...]:
    """None where they can't be read."""
    return () if unreadable_options(row) else tuple(json.loads(row.parents_json))


def unreadable_options(row: Backfill) -> InvalidInput | None:
    """Why the runs of this backfill can't be what was asked for."""
    return next((unreadable(row, column) for column in OPTIONS if not is_readable(column, getattr(row, column))), None)
