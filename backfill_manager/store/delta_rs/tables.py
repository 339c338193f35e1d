"""Opens the tables of a state that delta-rs keeps.

Every handle that leaves this module has been checked: created by us, for this engine, by no newer version. Readers share one
handle for each table, brought up to date before use (on a disk, two looks at files when nothing has changed). A leader takes
handles of its own, which nobody refreshes: a handle that stands still makes its commits a compare-and-swap.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from arro3.core import RecordBatchReader, Table
from cachetools import LRUCache
from deltalake import DeltaTable, QueryBuilder, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from backfill_manager.clock import SystemClock
from backfill_manager.errors import StateError, StateUnavailable
from backfill_manager.model.records import SCHEMA_VERSION, TABLES, Manager, Record, Request
from backfill_manager.store.delta_base import DeltaTables
from backfill_manager.store.delta_rs.log import is_torn_listing
from backfill_manager.store.refresh_once import MAX_AGE_S, looked_at
from backfill_manager.store.sql_text import DATAFUSION
from backfill_manager.store.table_properties import (
    LEADER_APP_ID,
    LED_TABLES,
    TABLE_PROPERTIES,
    VERSION_PROPERTY,
    arrow_schema,
    properties,
)
from backfill_manager.store.uri import canonical_place, is_local

if TYPE_CHECKING:
    from backfill_manager.store.delta_rs.copies import TableCopies

LIST_INTERVAL_S: Final = 1.0
NO_COPIES_FOR_S: Final = 60.0  # after one could not be made
MAX_RESULT_BYTES: Final = 16_000_000  # of all together
_log = logging.getLogger(__name__)
Entry = tuple[int, int, int]  # of a log: inode, time and size of its file; one of a state made anew differs
DECODED: Final = re.compile("%[0-9A-Fa-f]{2}")  # delta-rs takes `a%20b` for `a b` in some places, and not in others
UNUSABLE: Final = re.compile(r"[\[\]|^\\\x00-\x1f\x7f]")  # delta-rs can't make a URL of these, and panics


def is_engine_error(error: Exception) -> bool:
    """True for what deltalake raises, which includes bare `Exception` for errors of Parquet and of the object store."""
    return isinstance(error, (DeltaError, OSError)) or type(error) is Exception


def run(handles: Mapping[str, DeltaTable], sql: str) -> Table:
    builder = QueryBuilder()
    for name, handle in handles.items():
        builder.register(name, handle)
    return _read_all(builder.execute(sql))


def _read_all(reader: RecordBatchReader) -> Table:
    """While arro3 reads, no other thread of this process runs, as it keeps the interpreter's lock: over an object store for
    seconds. PyArrow lets them, but takes 0.1 s to import."""
    if threading.active_count() == 1:
        return reader.read_all()
    import pyarrow as pa

    try:
        found = pa.RecordBatchReader.from_stream(reader).read_all()
    except (pa.ArrowException, OSError) as error:
        raise DeltaError(str(error)) from error
    return Table.from_arrow(found)


def _load(location: str) -> DeltaTable:
    try:
        return DeltaTable(location)
    except DeltaError as error:
        if not (is_torn_listing(error) and is_local(location)):
            raise
    # All versions up to one that is there now are there, too; what comes later is not looked at.
    entries = (name.partition(".") for name in os.listdir(f"{location}/_delta_log"))
    return DeltaTable(
        location, version=max(int(name) for name, _, ending in entries if ending == "json" and name.isdigit())
    )


def _dated_version(handle: DeltaTable) -> int:
    """Counted from its creation (ms): a table created anew, that has come as far as the old one, is another one."""
    return (handle.metadata().created_time or 0) + int(handle.version())


class DeltaRsTables(DeltaTables):
    ENGINE = "delta-rs"
    DIALECT = DATAFUSION
    CONFLICTS = (CommitFailedError,)

    def __init__(self, root: str) -> None:
        if os.environ.get("AWS_S3_LOCKING_PROVIDER", "").lower() == "dynamodb":
            raise StateError(  # delta-rs merely logs that it has dropped it: two managers would both believe they lead
                "AWS_S3_LOCKING_PROVIDER=dynamodb is set, but delta-rs has no such lock any more. Unset it: "
                "S3's own conditional put keeps the state's commits apart."
            )
        self.root = root
        self._base = str(Path(root).expanduser().absolute()) if is_local(root) else root.rstrip("/")
        if wrong := [*UNUSABLE.findall(self._base), *DECODED.findall(self._base)] if is_local(root) else ():
            wrong_characters = " ".join(sorted(set(wrong)))
            raise StateError(f"The state can't be kept at {self._base!r}: choose a path without {wrong_characters!r}.")
        self._handles: dict[str, DeltaTable] = {}
        self._entries: dict[str, Entry | None] = {}  # the log entry of the held handle's version
        self._listed_at: dict[str, float] = {}
        self._appender: tuple[DeltaTable, Entry | None] | None = None  # and the log entry of its version
        self._clock = SystemClock()  # a real disk takes real time
        self._locks = {table: threading.Lock() for table in TABLES}
        self._looking = threading.Lock()
        self._copies: TableCopies | None = None
        self._tables_read: set[str] = set()  # of the copies
        self._copied_from = 0.0  # by the monotonic clock
        self._results: LRUCache[Any, Table] = LRUCache(MAX_RESULT_BYTES, getsizeof=lambda table: 1_000 + table.nbytes)

    def location(self, table: str) -> str:
        return f"{self._base}/{table}"

    def name_behind_view(self, table: str) -> str:
        return f"{table}_{secrets.token_hex(8)}"  # none that a query could name

    @contextmanager
    def translate_errors(self, table: str, doing: str = "read") -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if not is_engine_error(error):
                raise
            raise self.unusable(table, doing, error) from error

    def read_copies(self) -> None:
        """Read a state in an object store through copies from now on (`copies`), inside of `refresh_once`."""
        from backfill_manager.store.delta_rs.copies import TableCopies, can_copy

        if not is_local(self.root) and can_copy(self._base):
            with self._giving_up_copies():
                self._copies = TableCopies(self._base)

    def prefetch_copies(self, is_over: Callable[[], bool]) -> None:
        """Of all tables the log, and the files of those that are small, before anybody reads them. Ends soon after `is_over`."""
        with self._looking, self._giving_up_copies():
            if self._copies is not None:
                self._copies.look(TABLES)
        for table in TABLES:
            if is_over():
                return
            with (
                self._looking,
                self._giving_up_copies(),
            ):  # a page that is asked for meanwhile waits for one table at most
                if self._copies is not None and self._copies.has(table):
                    self._copies.handle(table)

    def exists(self) -> bool:
        with self._looking, self._giving_up_copies():
            if self._is_in_copies(Manager.TABLE):
                return True
        with self.translate_errors(Manager.TABLE, "looked for"):
            is_there = self._has(Manager.TABLE)
        if not is_there and is_local(self.root):
            self._check_rights()
        elif not is_there:
            self._check_scheme()
        return is_there

    def _check_scheme(self) -> None:
        """`StateError` where delta-rs knows no such storage, of which it says, too, that there is no table."""
        try:
            _load(self.location(Manager.TABLE))
        except TableNotFoundError as error:
            if "Unknown scheme" in str(error):
                raise StateError(
                    f"No state can be kept at {self.root}: use a folder, s3://, abfss://, gs:// or catalog.schema."
                ) from None
        except (DeltaError, OSError):
            pass  # whoever uses it says why

    def _check_rights(self) -> None:
        """`StateUnavailable` where this user may not see whether there is a state: delta-rs says that there is none."""
        try:
            os.scandir(f"{self.location(Manager.TABLE)}/_delta_log").close()
        except PermissionError as error:
            raise StateUnavailable(f"The state at {self.root} can't be read: {error.strerror}.") from None
        except OSError:
            pass  # there is none

    def check_may_write(self, table: str) -> None:
        """`StateUnavailable` where this user may not. delta-rs would say so, too, but print a Rust panic before."""
        place = self.location(table)
        if is_local(place) and os.path.isdir(place) and not os.access(place, os.W_OK):
            read_only = os.statvfs(place).f_flag & os.ST_RDONLY
            why = "its file system is read-only" if read_only else "this user may not write into its folder"
            raise StateUnavailable(f"Table {table} at {place} can't be written: {why}.")

    def open(self, table: str, *, may_be_older: bool = False) -> DeltaTable:
        """A handle of the table as it is now."""
        with self.translate_errors(table, "opened"):
            try:
                handle = _load(self.location(table))
            except TableNotFoundError as error:
                raise self.missing(table) from error
            self.check_owner(table, handle.metadata().configuration, may_be_older=may_be_older)
        return handle

    def take_appender(self, table: str) -> DeltaTable:
        """A handle for one append, up to date. Who gives it back with `keep_appender` spares the next append the reading of the
        whole log."""
        with self._looking:
            kept, self._appender = self._appender, None
        if kept is not None:
            handle, entry = kept
            if entry is not None and self._entry(table, handle.version()) == entry:  # the state was not made anew
                if self._entry(table, handle.version() + 1) is None:
                    return handle
                with suppress(DeltaError, OSError):  # cleaned up beyond what this handle knows
                    handle.update_incremental()
                    self.check_owner(table, handle.metadata().configuration)
                    return handle
        return self.open(table)

    def keep_appender(self, table: str, handle: DeltaTable) -> None:
        entry = self._entry(table, handle.version())
        with self._looking:
            self._appender = handle, entry

    def fresh(self, table: str) -> DeltaTable:
        """The readers' handle, up to date. It may be shared: registering it for a query copies its snapshot."""
        if (copied := self._copied(table, with_files=True)) is not None:
            return copied
        looks = None if is_local(self.root) else looked_at.get()
        if looks is None:
            return self._refreshed(table)
        with self._looking:  # one of the page's threads; the others find what it has brought
            if not looks:
                self._look_at_all(looks)
        at = looks.get((id(self), table))
        handle = self._handles.get(table)
        if handle is None or at is None or self._clock.monotonic() - at > MAX_AGE_S:
            at, handle = self._clock.monotonic(), self._refreshed(table)
            looks[id(self), table] = at
        return handle

    def _copied(self, table: str, *, with_files: bool) -> DeltaTable | None:
        """A handle of a copy; None where there are no copies. `with_files`: its rows can be read."""
        handle = None
        with self._looking, self._giving_up_copies():
            if self._is_in_copies(table) and (copies := self._copies) is not None:
                self._tables_read.add(table)
                if with_files and not copies.fetch_files(table):
                    return None
                handle = copies.handle(table)
        if handle is not None:
            self.check_owner(table, handle.metadata().configuration)
        return handle

    def _is_in_copies(self, table: str) -> bool:
        """Whether there is such a table, and can be a copy of it. Looks again after `MAX_AGE_S`."""
        looks = looked_at.get()
        if self._copies is None or looks is None or self._clock.monotonic() < self._copied_from:
            return False
        at = looks.get((id(self), table))
        if at is None or self._clock.monotonic() - at > MAX_AGE_S or not self._copies.has(table):
            tables = {table} if at is not None else ({table, *self._tables_read} if self._tables_read else set(TABLES))
            self._copies.look(tables)
            looks |= dict.fromkeys(((id(self), one) for one in tables), self._clock.monotonic())
        return self._copies.has(table)

    @contextmanager
    def _giving_up_copies(self) -> Iterator[None]:
        """Reading the tables themselves says what is wrong, if it matters."""
        try:
            yield
        except Exception as error:
            if not is_engine_error(error):
                raise
            _log.debug("the tables are not copied: %s", error)
            self._copied_from = self._clock.monotonic() + NO_COPIES_FOR_S
            if self._copies is not None:
                self._copies.forget()
            self.expect_changes()

    def _look_at_all(self, looks: dict[tuple[int, str], float]) -> None:
        """Every table that has been read before, at once: the time of one."""

        def look(table: str) -> None:
            with suppress(StateError):  # raised again for whoever reads it
                self._refreshed(table)
                looks[id(self), table] = began

        began, tables = self._clock.monotonic(), list(self._handles)
        if tables:
            with ThreadPoolExecutor(len(tables)) as threads:
                list(threads.map(look, tables))

    def _refreshed(self, table: str) -> DeltaTable:
        with self._locks[table]:
            handle = self._handles.get(table)
            if handle is not None and self._entry(table, handle.version()) != self._entries[table]:
                handle = None  # the state was made anew, and may have come to the same version
            if handle is not None and self._is_last(table, handle.version()):
                return handle
            listed_at = self._clock.monotonic()
            if handle is not None:
                try:
                    handle.update_incremental()
                except (DeltaError, OSError):  # moved away, or cleaned up beyond what this handle knows
                    handle = None
            if handle is None:
                handle = self._handles[table] = self.open(table)
            self._entries[table], self._listed_at[table] = self._entry(table, handle.version()), listed_at
            return handle

    def _is_last(self, table: str, version: int) -> bool:
        """No commit has followed: two looks at files, where a listing of the log costs many times as much. But once in
        `LIST_INTERVAL_S` that, too: a mounted share may cache for long that a file is not there."""
        if self._entries[table] is None or self._clock.monotonic() - self._listed_at[table] > LIST_INTERVAL_S:
            return False
        return self._entry(table, version + 1) is None

    def _entry(self, table: str, version: int) -> Entry | None:
        """The file of this version in the table's log; None where there is none, or no disk."""
        if not is_local(self.root):
            return None
        try:
            about = os.stat(f"{self.location(table)}/_delta_log/{version:020}.json")
        except OSError:
            return None
        return about.st_ino, about.st_mtime_ns, about.st_size

    def run(self, tables: Sequence[str], sql: str) -> Table:
        """Through the readers' handles, and once more through new ones, of the tables themselves, when that fails: files that a
        snapshot has may have been vacuumed, or the whole state created anew, since the handle was last used."""
        with self.translate_errors(" and ".join(tables)):
            try:
                return self._result({table: self.fresh(table) for table in tables}, sql)
            except Exception as error:
                if not is_engine_error(error):
                    raise
            self.forget()
            return self._result({table: self._refreshed(table) for table in tables}, sql)

    def _result(self, handles: Mapping[str, DeltaTable], sql: str) -> Table:
        """What a statement of ours gives at some versions never changes: of an object store it is kept for a while."""
        if is_local(self.root):
            return run(handles, sql)
        key = sql, tuple((table, _dated_version(handle)) for table, handle in handles.items())
        with self._looking:
            found = self._results.get(key)
        if found is None:
            found = run(handles, sql)
            with self._looking, suppress(ValueError):  # larger than all that may be kept
                self._results[key] = found
        return found

    def version(self, table: str) -> int:
        return _dated_version(self._copied(table, with_files=False) or self.fresh(table))

    def forget(self) -> None:
        for table, lock in self._locks.items():
            with lock:
                self._handles.pop(table, None)
        with self._looking:
            if self._copies is not None:
                self._copies.forget()
        self.expect_changes()

    def close(self) -> None:
        self.forget()
        with self._looking:
            copies, self._copies = self._copies, None
        if copies is not None:
            copies.close()

    def expect_changes(self) -> None:
        """What was looked at is to be looked at again."""
        if looks := looked_at.get():
            for key in [key for key in looks if key[0] == id(self)]:
                del looks[key]

    def _has(self, table: str) -> bool:
        return DeltaTable.is_deltatable(self.location(table))

    def _properties(self, table: str) -> dict[str, str]:
        return dict(_load(self.location(table)).metadata().configuration)

    def check_promises(self) -> None:
        from backfill_manager.store.delta_rs.storage_probe import check_conditional_put

        self.check_may_write(Request.TABLE)
        with self.translate_errors(Request.TABLE, "written"):
            check_conditional_put(lambda: self.open(Request.TABLE), self.root)

    def was_led(self) -> bool:
        try:
            return _load(self.location(LED_TABLES[0])).transaction_version(LEADER_APP_ID) is not None
        except (DeltaError, OSError):
            return False

    def create(self, record: type[Record]) -> None:
        place = canonical_place(self.root)
        if "://" not in place:  # its owner alone reads it; a folder that is there already keeps its mode
            Path(place).mkdir(mode=0o700, parents=True, exist_ok=True)
        DeltaTable.create(
            self.location(record.TABLE), schema=Schema.from_arrow(arrow_schema(record)), mode="ignore",
            configuration=dict(properties(self.ENGINE)), raise_if_key_not_exists=False,
        )  # fmt: skip

    def _upgrade(self, record: type[Record]) -> bool:
        handle = self.open(record.TABLE, may_be_older=True)
        if not self.check_owner(record.TABLE, handle.metadata().configuration, may_be_older=True):
            return False
        there = {field.name for field in handle.schema().fields}
        made_now = {**TABLE_PROPERTIES, VERSION_PROPERTY: str(SCHEMA_VERSION)}
        fields = Schema.from_arrow(arrow_schema(record)).fields
        try:
            if missing := [field for field in fields if field.name not in there]:
                handle.alter.add_columns(missing)
            handle.alter.set_table_properties(made_now, raise_if_not_exists=False)
        except DeltaError as error:
            if is_torn_listing(error):
                raise CommitFailedError(str(error)) from error
            raise
        return True
