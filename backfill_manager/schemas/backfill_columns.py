"""How the options of a backfill are kept in its row: a column of the option's name, or `<name>_json`. The column `batch` is 0
for `auto`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from backfill_manager.model.records import AUTO_BATCH, Backfill, columns
from backfill_manager.model.stored_json import shown_column
from backfill_manager.schemas.backfill_options import CreateBackfill

AUTO: Final = "auto"  # the value of the option `batch`
# option -> its column, for all that are kept as they were given
_COLUMNS: Final = {
    name: column
    for name in CreateBackfill.model_fields
    for column in (name, f"{name}_json")
    if column in columns(Backfill)
}
STORED_OPTIONS: Final = tuple(_COLUMNS)


def columns_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as columns of `Backfill`; those that are not kept as they were given are left out."""
    columns_of_options = {
        _COLUMNS[name]: json.dumps(value) if _COLUMNS[name] != name else value
        for name, value in options.items()
        if name in _COLUMNS
    }
    if "batch" in columns_of_options:
        batch = columns_of_options["batch"]
        columns_of_options["batch"] = AUTO_BATCH if batch == AUTO else batch or 1
    return columns_of_options


def option_of(row: Backfill, name: str) -> Any:
    """What an option of a backfill is, one of `STORED_OPTIONS`."""
    if _COLUMNS[name] != name:
        return shown_column(row, _COLUMNS[name]) or {}  # lists don't read it
    value = getattr(row, name)
    if value is None and columns(Backfill)[name][0] is bool:
        return False  # written by an older release
    if name == "batch" and value == AUTO_BATCH:
        return AUTO
    return value


def options_of(row: Backfill) -> dict[str, Any]:
    """Every option that the row keeps."""
    return {name: option_of(row, name) for name in STORED_OPTIONS}
