"""Whole tables as a stream of Arrow batches: what a state is exported and imported by."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from backfill_manager.errors import StateError
from backfill_manager.model.records import COMMIT_ORDER, TABLES, Manager, Record, Request, columns
from backfill_manager.store.table_properties import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from backfill_manager.store.base import Store

BATCH_ROWS: Final = 10_000
# Parents before their children, as a commit is the other way round: where a leader writes meanwhile, what is read is what
# a crash would have left. (Beyond that, tables that have moved on meanwhile are read again.)
READING_ORDER: Final = (Manager.TABLE, *reversed(COMMIT_ORDER), Request.TABLE)
# The lease last: a state whose import broke off is not one that can be led.
FILLING_ORDER: Final = (*COMMIT_ORDER, Request.TABLE, Manager.TABLE)


class PinnedTables(ABC):
    """All tables as they were at one moment."""

    versions: dict[str, int]

    @abstractmethod
    def batches(self, table: str) -> Iterator[pa.RecordBatch]: ...

    def check(self) -> None:  # noqa: B027 - most hold what they have
        """`StateError` if what was read is not of one moment."""


class TablesInMemory(PinnedTables):
    def __init__(self, rows: dict[str, Sequence[Record]], versions: dict[str, int]) -> None:
        self._rows, self.versions = rows, versions

    def batches(self, table: str) -> Iterator[pa.RecordBatch]:
        rows = self._rows[table]
        for begin in range(0, len(rows), BATCH_ROWS):
            yield batch_of(table, rows[begin : begin + BATCH_ROWS])


class TablesReadWhole(PinnedTables):
    """Each table read at once; nothing may write meanwhile."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.versions = {table: store.version(table) for table in READING_ORDER}

    def batches(self, table: str) -> Iterator[pa.RecordBatch]:
        read = self._store.read_arrow(table, list(columns(TABLES[table])))
        yield from read.cast(arrow_schema(TABLES[table])).to_batches(max_chunksize=BATCH_ROWS)

    def check(self) -> None:
        changed = [table for table, version in self.versions.items() if self._store.version(table) != version]
        if changed:
            raise StateError(
                f"The state was written meanwhile ({', '.join(changed)}). Stop its manager, and export it again."
            )


def batch_of(table: str, rows: Sequence[Record]) -> pa.RecordBatch:
    import pyarrow as pa

    schema = arrow_schema(TABLES[table])
    return pa.record_batch([[getattr(row, name) for row in rows] for name in schema.names], schema=schema)


def records_in(table: str, batch: pa.RecordBatch) -> list[Record]:
    return [TABLES[table](**row) for row in batch.to_pylist()]
