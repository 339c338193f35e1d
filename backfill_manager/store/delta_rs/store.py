"""The default engine: Delta tables in a folder or an object store, through delta-rs. No JVM.

Reading goes through its embedded SQL engine; only the columns and rows that are needed are read. The leading half is in
`delta_rs.leader` and `delta_rs.compaction`; neither is imported by a client.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from arro3.core import Table
from deltalake import CommitProperties, write_deltalake
from deltalake.exceptions import DeltaError

from backfill_manager.clock import Clock, SystemClock
from backfill_manager.errors import StateError
from backfill_manager.model.records import TABLES, Manager, Request, columns
from backfill_manager.store.base import Finding, Leader
from backfill_manager.store.delta_base import DeltaStore, engine_message, query_error
from backfill_manager.store.delta_rs.append_turn import turn_to_append
from backfill_manager.store.delta_rs.log import OF_A_CLIENT, is_lost_race
from backfill_manager.store.delta_rs.tables import DeltaRsTables, run
from backfill_manager.store.refresh_once import looked_at
from backfill_manager.store.sql_guard import single_query
from backfill_manager.store.sql_text import arrow_table

if TYPE_CHECKING:
    import pyarrow as pa

    from backfill_manager.store.delta_rs.damage import Damage
    from backfill_manager.store.whole_tables import PinnedTables
    from backfill_manager.store.wrong_rows import Wrong

APPEND_RETRIES: Final = 200  # of one commit: each time another client was quicker, the log entry after it is tried
APPEND_ATTEMPTS: Final = 5  # with the table opened anew: compaction by the leader may have come between


class DeltaRsStore(DeltaStore):
    engine = DeltaRsTables.ENGINE
    tables: DeltaRsTables

    def __init__(self, root: str, *, clock: Clock | None = None) -> None:
        super().__init__(root, DeltaRsTables(root))
        self._clock = clock or SystemClock()
        self._repairs = False

    def _inspect(self, table: str) -> tuple[list[str], tuple[int, int]]:
        handle = self.tables.open(table)
        protocol = handle.protocol()
        return [x.name for x in handle.schema().fields], (protocol.min_reader_version, protocol.min_writer_version)

    def check(self) -> list[Finding]:
        damages = self.damages()
        found: list[Finding] = []
        for table in TABLES:
            wrong = [Finding(table, False, str(damage), damage.file) for damage in damages if damage.table == table]
            found += wrong or self._check(table)
        return found

    def damages(self) -> list[Damage]:
        """Damaged files of all tables; none of a state that is not there."""
        from backfill_manager.store.delta_rs.damage import UNFINISHED, Damage, damages_of

        found: list[Damage] = []
        if not self.exists() and not self.tables.was_led():
            return found
        for table in TABLES:
            with self.tables.translate_errors(table, "checked"):
                found += damages_of(self.tables, table)
        if self.unfinished_repair() is not None:
            remedy = "rows that other tables tell are not made again yet; the repair does it"
            found.append(Damage(Manager.TABLE, "repair", UNFINISHED, "is of a repair that broke off", remedy, True))
        return found

    def unfinished_repair(self) -> dict[str, Any] | None:
        """What `begin_repair` has noted last, unless the repair has ended."""
        from backfill_manager.store.delta_rs.damage import UNFINISHED, TableFiles

        if not self.exists():
            return None
        with self.tables.translate_errors(Manager.TABLE, "checked"):
            files = TableFiles(self.tables, Manager.TABLE)
            if UNFINISHED not in files.sizes():
                return None
            try:
                return dict(json.loads(files.text(UNFINISHED)))
            except ValueError:  # killed while it was written, before the repair had done anything
                return {}

    def begin_repair(self, to_do: dict[str, Any]) -> None:
        """Notes what is to be done when the files are repaired: nothing else tells it then. Nobody leads before `end_repair`."""
        from backfill_manager.store.delta_rs.damage import UNFINISHED, TableFiles

        self._repairs = True
        if not self.exists():  # nobody can lead it: the repair ends with the files
            return
        with self.tables.translate_errors(Manager.TABLE, "repaired"):
            TableFiles(self.tables, Manager.TABLE).write(UNFINISHED, json.dumps(to_do))

    def end_repair(self) -> None:
        from backfill_manager.store.delta_rs.damage import UNFINISHED, TableFiles

        with self.tables.translate_errors(Manager.TABLE, "repaired"):
            TableFiles(self.tables, Manager.TABLE).delete(UNFINISHED)

    def repair(self, damages: Sequence[Damage]) -> None:
        """Repairs the files; rows that other tables tell are for the caller. No manager may lead."""
        from backfill_manager.store.delta_rs.repair import repair

        repair(self.tables, damages)

    def wrong_rows(self) -> dict[str, list[Wrong]]:
        """Table -> what is the matter with its rows and can be repaired. Of tables that can be read: `check` names the others."""
        found = {}
        for table in TABLES:
            with suppress(StateError):
                names, _ = self._inspect(table)
                if not set(names) - set(columns(TABLES[table])):  # a column that is not ours would be lost
                    found[table] = [one for one in self._wrong_rows(table) if one.can_be_repaired]
        return {table: wrong for table, wrong in found.items() if wrong}

    def rewrite_rows(self, wrong: Mapping[str, Sequence[Wrong]]) -> Iterator[str]:
        """Repairs these rows, and says what was done. No manager may lead."""
        from backfill_manager.store.delta_rs.repair import rewrite_rows

        for table, of_table in wrong.items():
            yield from rewrite_rows(self.tables, TABLES[table], of_table)

    def lease_files(self) -> dict[str, int]:
        """The log of `manager`, into which a leader writes several times in the time of its lease: name -> bytes."""
        from backfill_manager.store.delta_rs.damage import LOG, TableFiles

        if not self.exists():
            return {}
        return TableFiles(self.tables, Manager.TABLE).sizes(LOG)

    def _query(self, query: str, places: Mapping[str, str]) -> Table:
        handles = {name: self.tables.fresh(table) for table, name in places.items()}
        try:
            run(handles, f"EXPLAIN SELECT * FROM (\n{query}\n) AS the_query")  # noqa: S608 - a query, or it can't be parsed
            return run(handles, query)
        except Exception as error:
            if isinstance(error, (MemoryError, RecursionError)):
                raise
            if "Object Store error" in str(error) or "Parquet error" in str(error):
                raise self.tables.unusable(" and ".join(places), "read", error) from error
            message = engine_message(error)  # it names the columns there are
            unknown = ".public." in message and "not found" in message
            name = message.partition(".public.")[2].partition("'")[0] if unknown else None
            raise query_error(message, no_table=name) from error

    def pin(self) -> PinnedTables:
        from backfill_manager.store.delta_rs.whole_tables import PinnedDeltaTables

        return PinnedDeltaTables(self.tables)

    def fill(self, batches_of: Callable[[str], Iterator[pa.RecordBatch]]) -> None:
        from backfill_manager.store.delta_rs.whole_tables import fill

        fill(self.tables, batches_of)

    def append_request(self, request: Request) -> None:
        rows = arrow_table(Request, [request])
        table = self.tables.location(Request.TABLE)
        self.tables.check_may_write(Request.TABLE)
        with self.tables.translate_errors(Request.TABLE, "written"), turn_to_append(table):
            for attempt in range(1, APPEND_ATTEMPTS + 1):
                handle = self.tables.take_appender(Request.TABLE)
                try:
                    retries = CommitProperties(max_commit_retries=APPEND_RETRIES)
                    write_deltalake(
                        handle, rows, mode="append", commit_properties=retries, post_commithook_properties=OF_A_CLIENT
                    )
                    self.tables.keep_appender(Request.TABLE, handle)
                    return self.tables.expect_changes()
                except DeltaError as error:
                    if attempt == APPEND_ATTEMPTS or not is_lost_race(error):
                        raise

    def lead(self, row: Manager) -> Leader:
        from backfill_manager.store.delta_rs.leader import take_over

        if not self._repairs and self.unfinished_repair() is not None:  # it would carry out requests twice, and so on
            raise StateError(f"A repair of the state at {self.root} broke off.", hint="check_state")
        looked_at.set(None)  # a leader reads what it has just written
        return take_over(self.tables, row, self._clock)

    def read_copies(self) -> None:
        self.tables.read_copies()

    def prepare_reads(self, is_over: Callable[[], bool]) -> None:
        self.tables.prefetch_copies(is_over)
        single_query("SELECT 1")  # imports a parser, which takes half a second

    def close(self) -> None:
        self.tables.close()
