"""The default engine: Delta tables in a folder or an object store, through delta-rs. No JVM.

Reading goes through its embedded SQL engine; only the columns and rows that are asked for are read. The leading half
is in `delta_rs_leading`, the housekeeping in `maintenance`; neither is imported by a client that only reads and asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from backfill_manager.clock import Clock, SystemClock
from backfill_manager.errors import InvalidInput, StateError, nearest
from backfill_manager.model.records import TABLES, Manager, Request, columns
from backfill_manager.store.base import Condition, Finding, Leader, R, Store
from backfill_manager.store.delta_rs.sql import arrow_table, predicate, python_columns, run, select
from backfill_manager.store.delta_rs.tables import ENGINE, DeltaRsTables, first_line, translate_errors
from backfill_manager.store.filters import checked, columns_without, known_columns, orders, record_of, records_of
from backfill_manager.store.schema import column_mismatch
from backfill_manager.store.sql_guard import single_query, tables_named

if TYPE_CHECKING:
    import pyarrow as pa

ASK_RETRIES = 200  # of one commit: each time another client was quicker, the log entry after it is tried
ASK_ATTEMPTS = 5  # with the table opened anew: compaction by the leader may have come between


class DeltaRsStore(Store):
    engine = ENGINE

    def __init__(self, root: str, *, clock: Clock | None = None) -> None:
        self.root = root
        self.tables = DeltaRsTables(root)
        self._clock = clock or SystemClock()

    # -- the state as a whole -----------------------------------------------------------------------------------------
    def init(self) -> list[str]:
        return self.tables.create_missing()

    def exists(self) -> bool:
        return self.tables.made()

    def check(self) -> list[Finding]:
        return [self._check(name) for name in TABLES]

    def _check(self, table: str) -> Finding:
        record = TABLES[table]
        try:
            handle = self.tables.open(table)
            if wrong := column_mismatch(record, [field.name for field in handle.schema().fields]):
                return Finding(table, False, f"{wrong} (at {self.tables.place(table)})")
            protocol = handle.protocol()
            if (protocol.min_reader_version, protocol.min_writer_version) != (1, 2):
                found = f"protocol {protocol.min_reader_version}/{protocol.min_writer_version} instead of 1/2"
                place = self.tables.place(table)
                return Finding(table, False, f"{found}: a feature is on that not every reader has (at {place})")
            # touches each column of each file
            every = [f'count(CAST("{name}" AS VARCHAR))' for name in columns(record)]
            with translate_errors(table, self.tables.place(table)):
                rows = python_columns(run({table: handle}, select(table, ["count(*)", *every])))[0][0]
        except StateError as error:
            return Finding(table, False, str(error))
        return Finding(table, True, f"{rows} rows")

    def locations(self) -> dict[str, str]:
        return self.tables.locations()

    # -- reading ------------------------------------------------------------------------------------------------------
    def _columns(self, table: str, sql: str) -> list[list[Any]]:
        return python_columns(self.tables.reading([table], lambda handles: run(handles, sql)))

    def read(
        self,
        record: type[R],
        where: Sequence[Condition] = (),
        order_by: Sequence[str] = (),
        limit: int | None = None,
        without: Sequence[str] = (),
    ) -> list[R]:
        names = columns_without(record, without)
        what = [f'"{name}"' for name in names]
        sql = select(
            record.TABLE, what, predicate(checked(record, where)), order_by=orders(record, order_by), limit=limit
        )
        return records_of(record, names, self._columns(record.TABLE, sql))

    def read_arrow(self, table: str, columns: Sequence[str], where: Sequence[Condition] = ()) -> pa.Table:
        import pyarrow as pa

        from backfill_manager.store.schema import arrow_schema

        record = record_of(table)
        names = known_columns(record, columns)
        schema = pa.schema([arrow_schema(record).field(name).with_nullable(True) for name in names])
        # plain strings: the engine's own string views are not known everywhere Arrow goes from here
        what = [
            f'arrow_cast("{n}", \'Utf8\') AS "{n}"' if schema.field(n).type == pa.string() else f'"{n}"' for n in names
        ]
        sql = select(table, what, predicate(checked(record, where)))
        found = self.tables.reading([table], lambda handles: run(handles, sql))
        # not `pa.table`, which imports pandas to ask whether this is one of its frames: 50 MB and half a second
        return pa.RecordBatchReader.from_stream(found).read_all().cast(schema)

    def count(self, table: str, by: Sequence[str], where: Sequence[Condition] = ()) -> dict[tuple[Any, ...], int]:
        record = record_of(table)
        names = known_columns(record, by)
        what = [*(f'"{name}"' for name in names), "count(*)"]
        *keys, counts = self._columns(table, select(table, what, predicate(checked(record, where)), group_by=names))
        return dict(zip(zip(*keys, strict=True) if keys else [()], counts, strict=True))

    def unanswered(self) -> list[Request]:
        found = python_columns(
            self.tables.reading(["request", "response"], lambda handles: run(handles, _unanswered_sql()))
        )
        first: dict[str, Request] = {}
        for values in zip(*found, strict=True):
            request = Request(*values)
            first.setdefault(request.request_id, request)
        return list(first.values())

    def version(self, table: str) -> int:
        handle = self.tables.fresh(record_of(table).TABLE)
        # counted from when it was made (ms): a table made anew, that has come as far as the old one, is another one
        return (handle.metadata().created_time or 0) + int(handle.version())

    def query(self, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        query = single_query(sql)
        handles = {name: self.tables.fresh(name) for name in tables_named(query, list(TABLES))}
        _ask_engine(
            handles, " ".join(("EXPLAIN SELECT * FROM (\n", query, "\n) AS the_query"))
        )  # a query, or it can't be parsed
        found = _ask_engine(handles, query)
        return list(found.schema.names), list(zip(*python_columns(found), strict=True))

    # -- clients ------------------------------------------------------------------------------------------------------
    def ask(self, request: Request) -> None:
        place = self.tables.place(Request.TABLE)
        rows = arrow_table(Request, [request])
        with translate_errors(Request.TABLE, place, "written"):
            for attempt in range(1, ASK_ATTEMPTS + 1):
                handle = self.tables.open(Request.TABLE)
                try:
                    write_deltalake(
                        handle, rows, mode="append", commit_properties=CommitProperties(max_commit_retries=ASK_RETRIES)
                    )
                    return
                except CommitFailedError:
                    if attempt == ASK_ATTEMPTS:
                        raise

    # -- leadership ---------------------------------------------------------------------------------------------------
    def lease(self) -> Manager | None:
        return next(iter(self.read(Manager, order_by=["-term"], limit=1)), None)

    def lead(self, row: Manager) -> Leader:
        from backfill_manager.store.delta_rs.leader import take_over

        return take_over(self.tables, row, self._clock)

    def close(self) -> None:
        self.tables.forget()


@cache
def _unanswered_sql() -> str:
    text = resources.files("backfill_manager.store").joinpath("sql/unanswered.sql").read_text(encoding="utf-8")
    return text.format(
        columns=", ".join(f"r.{name}" for name in columns(Request)), request="request", response="response"
    )


def _ask_engine(handles: dict[str, DeltaTable], sql: str) -> Any:
    """`InvalidInput` with the engine's own words; it names the columns there are, we name the tables."""
    try:
        return run(handles, sql)
    except Exception as error:
        if isinstance(error, (MemoryError, RecursionError)):
            raise
        said = first_line(error)
        if ".public." in said and "not found" in said:
            wrong = said.partition(".public.")[2].partition("'")[0]
            said = f"there is no table {wrong!r}{nearest(wrong, TABLES) or '; there are ' + ', '.join(TABLES)}"
        raise InvalidInput(f"The query can't be run: {said}") from error
