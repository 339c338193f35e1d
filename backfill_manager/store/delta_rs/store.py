"""The default engine: Delta tables in a folder or an object store, through delta-rs. No JVM.

Reading goes through its embedded SQL engine; only the columns and rows that are needed are read. The leading half is in
`delta_rs.leader` and `delta_rs.compaction`; neither is imported by a client.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from arro3.core import Table
from deltalake import CommitProperties, write_deltalake
from deltalake.exceptions import CommitFailedError

from backfill_manager.clock import Clock, SystemClock
from backfill_manager.model.records import Manager, Request
from backfill_manager.store.base import Leader
from backfill_manager.store.delta_base import DeltaStore, first_line, query_error
from backfill_manager.store.delta_rs.tables import DeltaRsTables, run
from backfill_manager.store.sql_text import arrow_table

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

    def _query(self, query: str, tables: Sequence[str]) -> Table:
        handles = {name: self.tables.fresh(name) for name in tables}
        try:
            run(handles, f"EXPLAIN SELECT * FROM (\n{query}\n) AS the_query")  # noqa: S608 - a query, or it can't be parsed
            return run(handles, query)
        except Exception as error:
            if isinstance(error, (MemoryError, RecursionError)):
                raise
            message = first_line(error)  # it names the columns there are
            unknown = ".public." in message and "not found" in message
            name = message.partition(".public.")[2].partition("'")[0] if unknown else None
            raise query_error(message, no_table=name) from error

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
