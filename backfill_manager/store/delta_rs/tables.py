"""Opening the tables of a state that delta-rs keeps, and telling in one line why one can't be opened.

Every handle that leaves this module has been checked: made by us, for this engine, by no newer version. Readers share
one handle for each table, brought up to date before use (on a disk, two looks at files when nothing has changed); a
leader takes handles of its own, which nobody refreshes, because a handle that stands still is what makes its commits a
compare-and-swap.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Final, TypeVar

from deltalake import DeltaTable, Field, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.schema import PrimitiveType

from backfill_manager.clock import SystemClock
from backfill_manager.errors import StateError, StateNotInitialised
from backfill_manager.model.records import RECORDS, TABLES, Manager, Record, columns
from backfill_manager.store.schema import SCHEMA_VERSION, VERSION_PROPERTY, check_properties, is_older, properties
from backfill_manager.store.uri import is_local

ENGINE: Final = "delta-rs"
UPGRADE_ATTEMPTS: Final = 20
T = TypeVar("T")
LISTED_EVERY_S: Final = 1.0
Entry = tuple[int, int, int]  # of a log: inode, time and size of its file; one of a state made anew differs
_DELTA_TYPES: Final = {str: "string", int: "long", float: "double", bool: "boolean", datetime: "timestamp"}
UNUSABLE: Final = re.compile(r"[\[\]|^\\\x00-\x1f\x7f]")  # delta-rs can't make a URL of these, and panics
_ANSI: Final = re.compile(r"\x1b\[[0-9;]*m")


def refuse_dynamodb() -> None:
    """delta-rs dropped its DynamoDB lock and merely logs so: two managers would both believe they lead."""
    if os.environ.get("AWS_S3_LOCKING_PROVIDER", "").lower() == "dynamodb":
        raise StateError(
            "AWS_S3_LOCKING_PROVIDER=dynamodb is set, but delta-rs has no such lock any more. Unset it: "
            "S3's own conditional put keeps the state's commits apart."
        )


def first_line(error: BaseException) -> str:
    """What the engine says, without its colours, call stacks and second thoughts."""
    lines = [line.strip() for line in _ANSI.sub("", str(error)).splitlines() if line.strip()]
    line = lines[0] if lines else type(error).__name__
    return line if len(line) <= 220 else line[:217] + "..."


def the_engines(error: Exception) -> bool:
    """True for what deltalake raises, which includes bare `Exception` for errors of Parquet and of the object store."""
    return isinstance(error, (DeltaError, OSError)) or type(error) is Exception


@contextmanager
def translate_errors(table: str, place: str, doing: str = "read") -> Iterator[None]:
    """Whatever deltalake raises inside becomes one line that names the table and where it is."""
    try:
        yield
    except Exception as error:
        if not the_engines(error):
            raise
        raise StateError(f"Table {table} at {place} can't be {doing}: {first_line(error)}") from error


def _local_base(root: str) -> str:
    base = str(Path(root).expanduser().absolute())
    if wrong := UNUSABLE.findall(base):
        raise StateError(
            f"The state can't be kept at {base!r}: choose a path without {' '.join(sorted(set(wrong)))!r}."
        )
    return base


class DeltaRsTables:
    def __init__(self, root: str) -> None:
        refuse_dynamodb()
        self.root = root
        self._base = _local_base(root) if is_local(root) else root.rstrip("/")
        self._held: dict[str, DeltaTable] = {}
        self._seen: dict[str, Entry | None] = {}  # the log entry of the held handle's version
        self._listed_at: dict[str, float] = {}
        self._clock = SystemClock()  # a real disk takes real time
        self._lock = threading.Lock()

    def place(self, table: str) -> str:
        return f"{self._base}/{table}"

    def made(self) -> bool:
        """`manager` is the last table that `create_missing` makes, so it stands for all."""
        with translate_errors(Manager.TABLE, self.place(Manager.TABLE), "looked for"):
            return DeltaTable.is_deltatable(self.place(Manager.TABLE))

    def open(self, table: str, *, may_be_older: bool = False) -> DeltaTable:
        """A handle of the table as it is now."""
        place = self.place(table)
        with translate_errors(table, place, "opened"):
            try:
                handle = DeltaTable(place)
            except TableNotFoundError as error:
                if not self.made():
                    raise StateNotInitialised(self.root) from error
                raise StateError(
                    f"Table {table} of the state is missing at {place}. Restore it, or make it anew, empty: "
                    f"`bfm --state {self.root} state init`."
                ) from error
            check_properties(
                handle.metadata().configuration, engine=ENGINE, table=table, place=place, may_be_older=may_be_older
            )
        return handle

    def fresh(self, table: str) -> DeltaTable:
        """The readers' handle, up to date. It may be shared: registering it for a query copies its snapshot."""
        with self._lock:
            handle = self._held.get(table)
            if handle is not None and self._entry(table, handle.version()) != self._seen[table]:
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
                handle = self._held[table] = self.open(table)
            self._seen[table], self._listed_at[table] = self._entry(table, handle.version()), listed_at
            return handle

    def _is_last(self, table: str, version: int) -> bool:
        """Nothing has followed: two looks at files, where a listing of the log costs many times as much. But now and then
        that, too: a mounted share may remember for long that a file is not there."""
        if self._seen[table] is None or self._clock.monotonic() - self._listed_at[table] > LISTED_EVERY_S:
            return False
        return self._entry(table, version + 1) is None

    def _entry(self, table: str, version: int) -> Entry | None:
        """The file of this version in the table's log; None where there is none, or no disk."""
        if not is_local(self.root):
            return None
        try:
            about = os.stat(f"{self.place(table)}/_delta_log/{version:020}.json")
        except OSError:
            return None
        return about.st_ino, about.st_mtime_ns, about.st_size

    def reading(self, tables: Sequence[str], use: Callable[[dict[str, DeltaTable]], T]) -> T:
        """Read through the readers' handles, and once more through new ones when that fails: files that a snapshot knew
        may have been vacuumed away, or the whole state made anew, while this handle was not looked at."""
        with translate_errors(" and ".join(tables), " and ".join(self.place(table) for table in tables)):
            try:
                return use({table: self.fresh(table) for table in tables})
            except Exception as error:
                if not the_engines(error):
                    raise
            self.forget()
            return use({table: self.fresh(table) for table in tables})

    def create_missing(self) -> list[str]:
        made = []
        for record in RECORDS:
            place = self.place(record.TABLE)
            with translate_errors(record.TABLE, place, "made"):
                if DeltaTable.is_deltatable(place):
                    if self._brought_up_to_date(record):
                        made.append(record.TABLE)
                    continue
                DeltaTable.create(
                    place, schema=_delta_schema(record), mode="ignore", configuration=dict(properties(ENGINE)),
                    raise_if_key_not_exists=False,
                )  # fmt: skip
            made.append(record.TABLE)
        return made

    def _brought_up_to_date(self, record: type[Record]) -> bool:
        """A table of an older release gets the columns that were added since; its version is said last. Two managers that
        start at the same time both try: who was not the first looks again at what is left to do."""
        for attempt in range(1, UPGRADE_ATTEMPTS + 1):
            handle = self.open(record.TABLE, may_be_older=True)
            if not is_older(handle.metadata().configuration):
                return False
            there = {field.name for field in handle.schema().fields}
            try:
                if missing := [field for field in _delta_schema(record).fields if field.name not in there]:
                    handle.alter.add_columns(missing)
                handle.alter.set_table_properties({VERSION_PROPERTY: str(SCHEMA_VERSION)}, raise_if_not_exists=False)
                return True
            except CommitFailedError:
                if attempt == UPGRADE_ATTEMPTS:
                    raise
        return False

    def forget(self) -> None:
        with self._lock:
            self._held.clear()

    def locations(self) -> dict[str, str]:
        return {name: self.place(name) for name in TABLES}


def _delta_schema(record: type[Record]) -> Schema:
    return Schema(
        [
            Field(name, PrimitiveType(_DELTA_TYPES[kind]), nullable=nullable)
            for name, (kind, nullable) in columns(record).items()
        ]
    )
