"""What every Delta table of the state carries, whichever engine made it: its columns, and the properties that say so.

Columns come from the dataclasses and from nowhere else. Tables stay at protocol 1/2, without any feature, so that
both engines, and every other reader, can work with them. The two retention properties go into the one CREATE, because
Delta checks one against the default of the other. They are short: a table that changes every second would otherwise
keep a week of dead files and log entries. Ten minutes is longer than any reader of the state needs one snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final

from backfill_manager.errors import StateError
from backfill_manager.model.records import COMMIT_ORDER, SCHEMA_VERSION, Record, columns

if TYPE_CHECKING:
    import pyarrow as pa

ENGINE_PROPERTY: Final = "backfill_manager.engine"
VERSION_PROPERTY: Final = "backfill_manager.state_version"
LEADER_APP_ID: Final = "backfill_manager.leader"  # of the application transaction that carries the term

RETENTION_MINUTES: Final = 10
TABLE_PROPERTIES: Final[Mapping[str, str]] = {
    "delta.logRetentionDuration": f"interval {RETENTION_MINUTES} minutes",
    "delta.deletedFileRetentionDuration": f"interval {RETENTION_MINUTES} minutes",
    "delta.checkpointInterval": "100",
}

LED_TABLES: Final[tuple[str, ...]] = COMMIT_ORDER  # what leaders write beside `manager`, which holds the lease itself


def properties(engine: str) -> dict[str, str]:
    return {**TABLE_PROPERTIES, ENGINE_PROPERTY: engine, VERSION_PROPERTY: str(SCHEMA_VERSION)}


def check_properties(
    found: Mapping[str, str], *, engine: str, table: str, place: str, may_be_older: bool = False
) -> None:
    """`StateError` when the table belongs to the other engine, to another version, or to someone else altogether."""
    owner, version = found.get(ENGINE_PROPERTY), found.get(VERSION_PROPERTY)
    if owner is None or version is None or not version.isdigit():
        raise StateError(f"Table {table} at {place} was not made by backfill_manager; choose another state root.")
    if int(version) > SCHEMA_VERSION:
        raise StateError(
            f"Table {table} at {place} has state version {version}; this backfill_manager knows {SCHEMA_VERSION}. "
            "Use the newer release that wrote it."
        )
    if int(version) < SCHEMA_VERSION and not may_be_older:
        raise StateError(
            f"Table {table} at {place} has state version {version}, this backfill_manager works with {SCHEMA_VERSION}. A "
            "manager that starts adds what is missing; older releases can't read it then.",
            hint="upgrade_state",
        )
    if owner != engine:
        raise StateError(
            f"Table {table} at {place} belongs to the engine {owner}, this is {engine}. One engine per state, ever: "
            "mixing them loses commits. Name the state as it was made."
        )


def is_older(found: Mapping[str, str]) -> bool:
    """Made by an older release: its table lacks columns that were added since, each of which may be null."""
    return int(found.get(VERSION_PROPERTY, SCHEMA_VERSION)) < SCHEMA_VERSION


def column_mismatch(record: type[Record], found: Iterable[str]) -> str | None:
    """What is wrong with a table's columns, in words; None when they are as they should be."""
    expected, there = set(columns(record)), set(found)
    if missing := sorted(expected - there):
        return f"columns missing: {', '.join(missing)}"
    if extra := sorted(there - expected):
        return f"columns that don't belong there: {', '.join(extra)}"
    return None


def arrow_schema(record: type[Record]) -> pa.Schema:
    """Instants are timestamp[us, UTC]."""
    import pyarrow as pa

    types = {
        str: pa.string(),
        int: pa.int64(),
        float: pa.float64(),
        bool: pa.bool_(),
        datetime: pa.timestamp("us", tz="UTC"),
    }
    return pa.schema([pa.field(name, types[kind], nullable) for name, (kind, nullable) in columns(record).items()])
