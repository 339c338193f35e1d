"""What every Delta table of the state carries, whichever engine made it: its columns, and the properties that say so.

Columns come from the dataclasses and from nowhere else. Tables stay at protocol 1/2, without any feature, so that
both engines, and every other reader, can work with them. The two retention properties go into the one CREATE, because
Delta checks one against the default of the other. They are short: a table that changes every second would otherwise
keep a week of dead files and log entries. Ten minutes is longer than any reader of the state needs one snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

from backfill_manager.model.records import COMMIT_ORDER, SCHEMA_VERSION, Record, columns
from backfill_manager.store.filters import known_columns

if TYPE_CHECKING:
    import pyarrow as pa

ENGINE_PROPERTY: Final = "backfill_manager.engine"
VERSION_PROPERTY: Final = "backfill_manager.state_version"
LEADER_APP_ID: Final = "backfill_manager.leader"  # of the application transaction that carries the term

RETENTION_MINUTES: Final = 10
STATISTICS_COLUMNS: Final = 11  # the first ones of every table: keys, `state`, `run_seq`, logical dates
TABLE_PROPERTIES: Final[Mapping[str, str]] = {
    "delta.logRetentionDuration": f"interval {RETENTION_MINUTES} minutes",
    "delta.deletedFileRetentionDuration": f"interval {RETENTION_MINUTES} minutes",
    "delta.checkpointInterval": "20",  # a commit reads all entries of the log since the last one
    # A commit reads the statistics of every file that there is.
    "delta.dataSkippingNumIndexedCols": str(STATISTICS_COLUMNS),
}

LED_TABLES: Final[tuple[str, ...]] = COMMIT_ORDER  # what leaders write beside `manager`, which holds the lease itself


def properties(engine: str) -> dict[str, str]:
    return {**TABLE_PROPERTIES, ENGINE_PROPERTY: engine, VERSION_PROPERTY: str(SCHEMA_VERSION)}


def arrow_schema(record: type[Record]) -> pa.Schema:
    """Instants are timestamp[us, UTC]."""
    import pyarrow as pa

    instant = pa.timestamp("us", tz="UTC")
    types = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_(), datetime: instant}
    return pa.schema([pa.field(name, types[kind], nullable) for name, (kind, nullable) in columns(record).items()])


def nullable_schema(record: type[Record], names: Sequence[str]) -> pa.Schema:
    """Of some columns that are read; `InvalidInput` for one that there is not."""
    import pyarrow as pa

    schema = arrow_schema(record)
    return pa.schema([schema.field(name).with_nullable(True) for name in known_columns(record, names)])
