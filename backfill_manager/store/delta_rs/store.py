"""The default engine: Delta tables in a folder or an object store, through delta-rs. No JVM.

Reading goes through its embedded SQL engine; only the columns and rows that are needed are read. The leading half is in
`delta_rs.leader` and `delta_rs.compaction`; neither is imported by a client.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from backfill_manager.clock import Clock, SystemClock
from backfill_manager.model.records import TABLES, Manager, Request, columns
from backfill_manager.store.base import Condition, Leader
from backfill_manager.store.delta_base import DeltaStore, first_line, query_error
from backfill_manager.store.delta_rs.sql import arrow_table, predicate, python_columns, run, select
from backfill_manager.store.delta_rs.tables import DeltaRsTables
from backfill_manager.store.filters import record_of
from backfill_manager.store.sql_guard import single_query, tables_named

if TYPE_CHECKING:
    import pyarrow as pa

APPEND_RETRIES: Final = 200  # of one commit: each time another client was quicker, the log entry after it is tried
APPEND_ATTEMPTS: Final = 5  # with the table opened anew: compaction by the leader may have come between


class DeltaRsStore(DeltaStore):
    engine = DeltaRsTables.ENGINE
    tables: DeltaRsTables

    def __init__(self, root: str, *, clock: Clock | None = None) -> None:
        super().__init__(root, DeltaRsTables(root))
        self._clock = clock or SystemClock()

    def _inspect(self, table: str) -> tuple[list[str], tuple[int, int]]:
        handle = self.tables.open(table)
        protocol = handle.protocol()
        return [x.name for x in handle.schema().fields], (protocol.min_reader_version, protocol.min_writer_version)

    def _scan(self, table: str) -> int:
        every = [f'count(CAST("{name}" AS VARCHAR))' for name in columns(TABLES[table])]
        with self.tables.translate_errors(table):
            handles = {table: self.tables.open(table)}
            return int(python_columns(run(handles, select(table, ["count(*)", *every])))[0][0])

    # -- reading ------------------------------------------------------------------------------------------------------
    def _run(self, tables: Sequence[str], sql: str, **values: str) -> list[list[Any]]:
        sql = sql.format(**values, **{name: name for name in tables})
        return python_columns(self.tables.reading(tables, lambda handles: run(handles, sql)))

    def _read(
        self, table: str, names: Sequence[str], where: Sequence[Condition] | None, order: Sequence[tuple[str, bool]],
        limit: int | None,
    ) -> list[list[Any]]:  # fmt: skip
        what = [f'"{name}"' for name in names]
        sql = select(table, what, predicate(where), order_by=order, limit=limit)
        return python_columns(self.tables.reading([table], lambda handles: run(handles, sql)))

    def _read_arrow(self, table: str, names: Sequence[str], where: Sequence[Condition] | None) -> pa.Table:
        import pyarrow as pa

        # plain strings: the engine's own string views are not known everywhere Arrow goes from here
        kinds = columns(TABLES[table])
        what = [f'arrow_cast("{n}", \'Utf8\') AS "{n}"' if kinds[n][0] is str else f'"{n}"' for n in names]
        sql = select(table, what, predicate(where))
        found = self.tables.reading([table], lambda handles: run(handles, sql))
        # not `pa.table`, which imports pandas to ask whether this is one of its frames: 50 MB and half a second
        return pa.RecordBatchReader.from_stream(found).read_all()

    def _count(self, table: str, by: Sequence[str], where: Sequence[Condition] | None) -> list[list[Any]]:
        sql = select(table, [*(f'"{name}"' for name in by), "count(*)"], predicate(where), group_by=by)
        return python_columns(self.tables.reading([table], lambda handles: run(handles, sql)))

    def version(self, table: str) -> int:
        handle = self.tables.fresh(record_of(table).TABLE)
        # counted from its creation (ms): a table created anew, that has come as far as the old one, is another one
        return (handle.metadata().created_time or 0) + int(handle.version())

    def query(self, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        query = single_query(sql)
        handles = {name: self.tables.fresh(name) for name in tables_named(query, list(TABLES))}
        _run_users(handles, f"EXPLAIN SELECT * FROM (\n{query}\n) AS the_query")  # noqa: S608 - a query, or it can't be parsed
        found = _run_users(handles, query)
        return list(found.schema.names), list(zip(*python_columns(found), strict=True))

    # -- writing ------------------------------------------------------------------------------------------------------
    def append_request(self, request: Request) -> None:
        rows = arrow_table(Request, [request])
        with self.tables.translate_errors(Request.TABLE, "written"):
            for attempt in range(1, APPEND_ATTEMPTS + 1):
                handle = self.tables.open(Request.TABLE)
                try:
                    retries = CommitProperties(max_commit_retries=APPEND_RETRIES)
                    return write_deltalake(handle, rows, mode="append", commit_properties=retries)
                except CommitFailedError:
                    if attempt == APPEND_ATTEMPTS:
                        raise

    def lead(self, row: Manager) -> Leader:
        from backfill_manager.store.delta_rs.leader import take_over

        return take_over(self.tables, row, self._clock)

    def close(self) -> None:
        self.tables.forget()


def _run_users(handles: dict[str, DeltaTable], sql: str) -> Any:
    """Runs a user's query; `InvalidInput` with the engine's message, which names the columns there are."""
    try:
        return run(handles, sql)
    except Exception as error:
        if isinstance(error, (MemoryError, RecursionError)):
            raise
        message = first_line(error)
        unknown = ".public." in message and "not found" in message
        name = message.partition(".public.")[2].partition("'")[0] if unknown else None
        raise query_error(message, no_table=name) from error
