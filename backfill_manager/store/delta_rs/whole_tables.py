"""Streams whole tables out of delta-rs, and into a new state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, QueryBuilder, Transaction, write_deltalake

from backfill_manager.errors import StateError
from backfill_manager.model.records import RECORDS, TABLES, Record, columns
from backfill_manager.store.delta_rs.tables import DeltaRsTables
from backfill_manager.store.sql_text import select
from backfill_manager.store.table_properties import LEADER_APP_ID, LED_TABLES, arrow_schema
from backfill_manager.store.whole_tables import FILLING_ORDER, READING_ORDER, PinnedTables

ATTEMPTS: Final = 50
FILE_BYTES: Final = 4_000_000


class PinnedDeltaTables(PinnedTables):
    """A handle of each table, none of which has got a new version while they were opened."""

    def __init__(self, tables: DeltaRsTables) -> None:
        self._tables = tables
        for _ in range(ATTEMPTS):
            self._handles = {table: tables.open(table) for table in READING_ORDER}
            self.versions = {table: handle.version() for table, handle in self._handles.items()}
            if all(tables.open(table).version() == self.versions[table] for table in LED_TABLES):
                return
        raise StateError(f"The state at {tables.root} is written all the time. Stop its manager, and export it then.")

    def batches(self, table: str) -> Iterator[pa.RecordBatch]:
        schema = arrow_schema(TABLES[table])
        builder = QueryBuilder().register(table, self._handles[table])
        with self._tables.translate_errors(table):
            for batch in builder.execute(select(table, columns(TABLES[table]))):
                arrays: list[Any] = [batch.column(field.name).cast(field.type) for field in schema]  # string views
                yield pa.record_batch([pa.array(array) for array in arrays], schema=schema)


def fill(tables: DeltaRsTables, batches_of: Callable[[str], Iterator[pa.RecordBatch]]) -> None:
    """Makes the tables of a state that is not there yet, with these rows. Until the last one is there, the state is one whose
    lease is missing: nobody can lead it."""
    mark = CommitProperties(app_transactions=[Transaction(LEADER_APP_ID, 0)])
    by_name: dict[str, type[Record]] = {record.TABLE: record for record in RECORDS}
    for table in FILLING_ORDER:
        with tables.translate_errors(table, "written"):
            if not DeltaTable.is_deltatable(tables.location(table)):
                tables.create(by_name[table])
            handle, schema = DeltaTable(tables.location(table)), arrow_schema(TABLES[table])
            rows = pa.RecordBatchReader.from_batches(schema, batches_of(table))
            write_deltalake(handle, rows, mode="append", commit_properties=mark, target_file_size=FILE_BYTES)
