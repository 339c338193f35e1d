"""What the two Delta engines share: creating and checking the tables, reading, and the leader's commits."""

from __future__ import annotations

import pkgutil
import re
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Final

from arro3.core import ChunkedArray

from backfill_manager.errors import InvalidInput, StateError, StateNotInitialised, StateUnavailable, nearest, shorten
from backfill_manager.humanise import plural
from backfill_manager.model.records import (
    NEW_TABLES,
    RECORDS,
    SCHEMA_VERSION,
    TABLES,
    BackfillItem,
    Manager,
    Record,
    Request,
    TaskInstance,
    columns,
)  # fmt: skip
from backfill_manager.model.transitions import Changes
from backfill_manager.number_ranges import Ranges
from backfill_manager.store.base import (
    CHILDREN,
    ChangedTables,
    Condition,
    Finding,
    Leader,
    R,
    Store,
    Term,
    items_to_move,
)
from backfill_manager.store.filters import checked, known_columns, orders, record_of, records_of
from backfill_manager.store.sql_guard import single_query, tables_named, with_view
from backfill_manager.store.sql_text import Dialect, predicate, python_columns, select
from backfill_manager.store.table_properties import ENGINE_PROPERTY, VERSION_PROPERTY, nullable_schema
from backfill_manager.store.wrong_rows import Wrong, wrong_rows

if TYPE_CHECKING:
    import pyarrow as pa

UPGRADE_ATTEMPTS: Final = 20
MAX_ERROR_LENGTH: Final = 300
MAX_SPANS: Final = 8
WIDE_GAP: Final = 500
FOREIGN_REMEDY: Final = (
    "an export leaves them out; `bfm state export`, and `bfm state import --as-original` to another place"
)
_ANSI: Final = re.compile(r"\x1b\[[0-9;]*m")
_CAUSE: Final = "↳"  # before each in delta-rs' messages
# Behind the name of the file, twice, and of each layer that passed it on.
_LOST_FILE: Final = re.compile(r"Object at location (?:\S*/)?(\S+) not found\b")
_URL_QUERY: Final = re.compile(r"(https?://[^\s?]+)\?\S*")
# What delta-rs says when it has no key and the machine no role: S3; Azure and Google Cloud.
_NO_CREDENTIALS: Final = re.compile(r"loading credentials|credential provider|performing token request", re.IGNORECASE)
_CREDENTIALS: Final = {  # the usual ones; docs/how-to/run-on-object-storage.md has all
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "s3a": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "abfss": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
}


def engine_message(error: BaseException) -> str:
    """An engine's message without its colours, call stacks and SQLSTATE; with the causes that storage names below it."""
    java = getattr(error, "java_exception", None)
    text = _ANSI.sub("", str(error if java is None else java.getMessage()))
    text = _URL_QUERY.sub(r"\1", text)  # it may sign the request
    if lost := _LOST_FILE.search(text):
        return f"its file {lost[1]} is missing"
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [type(error).__name__]
    causes = [line.removeprefix(_CAUSE).strip() for line in lines[1:] if line.startswith(_CAUSE)]
    return shorten(": ".join([lines[0].partition(" SQLSTATE:")[0], *causes]), MAX_ERROR_LENGTH)


def query_error(message: str, *, no_table: str | None = None) -> InvalidInput:
    """For a query that an engine refuses; with the nearest names for a table that there is not."""
    if no_table in TABLES:
        message = f"name the table {no_table} alone, without a schema"
    elif no_table is not None:
        message = f"there is no table {no_table!r}{nearest(no_table, TABLES) or '; there are ' + ', '.join(TABLES)}"
    return InvalidInput(f"The query can't be run: {message}")


@cache
def sql_file(name: str) -> str:
    text = pkgutil.get_data("backfill_manager.store", f"sql/{name}.sql")  # importlib.resources costs a command 15 ms
    assert text is not None, "a package is always loaded from files or an archive"
    return text.decode()


class DeltaTables(ABC):
    """The tables of one state: where they are, whether they can be used, and creating them."""

    ENGINE: ClassVar[str]
    DIALECT: ClassVar[Dialect]
    CONFLICTS: ClassVar[tuple[type[Exception], ...]]  # what is raised when another commit came first
    root: str

    @abstractmethod
    def location(self, table: str) -> str: ...

    def name_in_sql(self, table: str) -> str:
        return table

    def name_behind_view(self, table: str) -> str:
        """Its name in a query in which a view has its own."""
        return self.name_in_sql(table)

    @abstractmethod
    def run(self, tables: Sequence[str], sql: str) -> Any:
        """Runs a statement of ours that reads these tables, as they are now; gives an Arrow table."""

    @abstractmethod
    def version(self, table: str) -> int: ...

    @abstractmethod
    def exists(self) -> bool:
        """True when `manager` is there: the last table that `create_missing` creates stands for all."""

    @abstractmethod
    def translate_errors(self, table: str, doing: str = "read") -> AbstractContextManager[None]:
        """Whatever the engine raises inside becomes a `StateError` of one line that names the table and where it is."""

    @abstractmethod
    def _has(self, table: str) -> bool: ...

    @abstractmethod
    def _properties(self, table: str) -> Mapping[str, str]:
        """The properties of a table that is there, whatever version it has."""

    @abstractmethod
    def create(self, record: type[Record]) -> None: ...

    @abstractmethod
    def _upgrade(self, record: type[Record]) -> bool:
        """Adds the columns that an older release did not have; the version is written last. False if there was nothing to
        do. One of `CONFLICTS` when another manager does the same at this moment."""

    def check_owner(self, table: str, properties: Mapping[str, str], *, may_be_older: bool = False) -> bool:
        """`StateError` when the table belongs to the other engine, to another version, or to someone else altogether. True if
        an older release made it: it lacks columns that were added since, each of which may be null."""
        owner, version = properties.get(ENGINE_PROPERTY), properties.get(VERSION_PROPERTY)
        what = f"Table {table} at {self.location(table)}"
        if owner is None or version is None or not version.isdigit():
            raise StateError(f"{what} was not made by backfill_manager; choose another state root.")
        if int(version) > SCHEMA_VERSION:
            raise StateError(
                f"{what} has state version {version}; this backfill_manager knows {SCHEMA_VERSION}. "
                "Use the newer release that wrote it."
            )
        if int(version) < SCHEMA_VERSION and not may_be_older:
            raise self._outdated(table, version)
        if owner != self.ENGINE:
            raise StateError(
                f"{what} belongs to the engine {owner}, this is {self.ENGINE}. One engine per state, ever: "
                "mixing them loses commits. Name the state as it was made."
            )
        return int(version) < SCHEMA_VERSION

    def unusable(self, table: str, doing: str, error: Exception) -> StateUnavailable:
        what = f"Table {table} at {self.location(table)} can't be {doing}: {engine_message(error)}"
        variables = _CREDENTIALS.get(self.location(table).partition("://")[0])
        if variables and _NO_CREDENTIALS.search(str(error)):
            return StateUnavailable(what, hint="set_credentials", variables=variables)
        is_damaged = doing in ("read", "opened") or _LOST_FILE.search(str(error)) is not None
        return StateUnavailable(what, hint="check_state" if is_damaged else None)

    def was_led(self) -> bool:
        """True when a manager has led this state, as far as can be known without its table `manager`."""
        return False

    def half_imported(self) -> StateError:
        return StateError(
            f"At {self.root} is a part of a state: an import broke off there, or is going on. Delete it, and import it again, or "
            "wait for its end."
        )

    def _outdated(self, table: str, version: str) -> StateError:
        return StateError(
            f"Table {table} at {self.location(table)} has state version {version}, this backfill_manager works with "
            f"{SCHEMA_VERSION}. A manager that starts adds what is missing; older releases can't read it then.",
            hint="upgrade_state",
        )

    def _version_without(self, table: str) -> str | None:
        """The version of this state if it is one from before this table. The table `manager` is upgraded last."""
        version = self._properties(Manager.TABLE).get(VERSION_PROPERTY, "")
        return version if version.isdigit() and int(version) < NEW_TABLES.get(table, 0) else None

    def is_from_before(self, table: str) -> bool:
        """The state is of a release that did not have this table: the next manager makes it."""
        return self.exists() and self._version_without(table) is not None

    def missing(self, table: str) -> StateError:
        if not self.exists() and not self.was_led():
            return StateNotInitialised(self.root)
        if self.exists() and (version := self._version_without(table)):
            return self._outdated(Manager.TABLE, version)
        return StateError(f"Table {table} of the state is missing at {self.location(table)}.", hint="check_state")

    def create_missing(self, *, in_a_state: bool) -> ChangedTables:
        """Creates and upgrades what is needed; tables of a state that is there already only if `in_a_state`."""
        changed = ChangedTables([], [])
        is_there = self.exists()
        if not is_there and self.was_led():  # made anew it would begin with a term that every other table refuses
            raise self.missing(Manager.TABLE)
        for record in RECORDS:
            with self.translate_errors(record.TABLE, "made"):
                if not self._has(record.TABLE):
                    if is_there and not in_a_state and not self._version_without(record.TABLE):
                        raise self.missing(record.TABLE)
                    self.create(record)
                    changed.created.append(record.TABLE)
                elif self._upgrade_with_retries(record):
                    changed.upgraded.append(record.TABLE)
                if record is Request and not is_there:  # the first one: a storage that is unfit gets no more
                    self.check_promises()
        return changed

    def check_promises(self) -> None:  # noqa: B027 - Spark's catalogs keep theirs
        """See `Store.check_promises`."""

    def _upgrade_with_retries(self, record: type[Record]) -> bool:
        """Two managers that start at the same time both upgrade: who was not the first looks again at what is left."""
        for attempt in range(1, UPGRADE_ATTEMPTS + 1):
            try:
                return self._upgrade(record)
            except self.CONFLICTS as error:
                if attempt == UPGRADE_ATTEMPTS:
                    raise self.unusable(record.TABLE, "made", error) from error
        return False


class DeltaStore(Store):
    tables: DeltaTables

    def __init__(self, root: str, tables: DeltaTables) -> None:
        self.root = root
        self.tables = tables

    def init(self, *, recreate: bool = False) -> ChangedTables:
        return self.tables.create_missing(in_a_state=recreate)

    def check_promises(self) -> None:
        self.tables.check_promises()

    def exists(self) -> bool:
        return self.tables.exists()

    def was_begun(self) -> bool:
        return self.tables.exists() or self.tables.was_led()

    def locations(self) -> dict[str, str]:
        return {name: self.tables.location(name) for name in TABLES}

    def check(self) -> list[Finding]:
        return [finding for name in TABLES for finding in self._check(name)]

    def _check(self, table: str) -> list[Finding]:
        record, at = TABLES[table], f"(at {self.tables.location(table)})"
        wrong: list[str] = []
        try:
            names, protocol = self._inspect(table)
            expected, there = set(columns(record)), set(names)
            if missing := expected - there:
                return [Finding(table, False, f"columns missing: {', '.join(sorted(missing))} {at}")]
            if foreign := there - expected:
                wrong.append(f"columns that don't belong there: {', '.join(sorted(foreign))}: {FOREIGN_REMEDY} {at}")
            if protocol != (1, 2):
                shown = f"protocol {protocol[0]}/{protocol[1]} instead of 1/2"
                wrong.append(f"{shown}: a feature is on that not every reader has {at}")
            every = [f"count(CAST({name} AS STRING))" for name in columns(record)]  # reads each column of each file
            rows = python_columns(self._select(table, ["count(*)", *every], ()))[0][0]
            wrong += [f"{one} {at}" for one in self._wrong_rows(table)]
        except StateError as error:
            wrong.append(str(error))
        return [Finding(table, False, message) for message in wrong] or [Finding(table, True, plural(rows, "row"))]

    def _wrong_rows(self, table: str) -> list[Wrong]:
        return wrong_rows(TABLES[table], self.tables.name_in_sql(table), lambda sql: self.tables.run([table], sql))

    @abstractmethod
    def _inspect(self, table: str) -> tuple[list[str], tuple[int, int]]:
        """The columns that are there, and the least reader and writer version."""

    def _select(self, table: str, what: Sequence[str], where: Sequence[Condition], **how: Any) -> Any:
        """An Arrow table. `what` are checked names, or functions of them; `how` as for `select`."""
        met = predicate(checked(TABLES[table], where), self.tables.DIALECT)
        return self.tables.run([table], select(self.tables.name_in_sql(table), what, met, **how))

    def read(
        self, record: type[R], where: Sequence[Condition] = (), order_by: Sequence[str] = (), limit: int | None = None,
        without: Sequence[str] = (),
    ) -> list[R]:  # fmt: skip
        left_out, order = known_columns(record, without), orders(record, order_by)
        names = [name for name in columns(record) if name not in left_out]
        found = self._select(record.TABLE, names, where, order_by=order, limit=limit)
        return records_of(record, names, python_columns(found))

    def read_arrow(self, table: str, columns: Sequence[str], where: Sequence[Condition] = ()) -> pa.Table:
        import pyarrow as pa

        schema = nullable_schema(record_of(table), columns)
        found = self._select(table, schema.names, where).columns
        # by arro3: DataFusion gives string views, which older pyarrows can't cast; and not by `pa.table`, which imports pandas
        # to ask whether this is one of its frames: 50 MB and half a second
        plain = (ChunkedArray.from_arrow(column).cast(kind) for column, kind in zip(found, schema.types, strict=True))
        return pa.Table.from_arrays([pa.chunked_array(column) for column in plain], schema=schema)

    def count(self, table: str, by: Sequence[str], where: Sequence[Condition] = ()) -> dict[tuple[Any, ...], int]:
        keys = known_columns(record_of(table), by)
        *values, counts = python_columns(self._select(table, [*keys, "count(*)"], where, group_by=keys))
        return dict(zip(zip(*values, strict=True) if keys else [()], counts, strict=True))

    def unanswered(self) -> list[Request]:
        names = ", ".join(f"r.{name}" for name in columns(Request))
        tables = {name: self.tables.name_in_sql(name) for name in ("request", "response")}
        found = self.tables.run(list(tables), sql_file("unanswered").format(columns=names, **tables))
        first: dict[str, Request] = {}
        for request in records_of(Request, list(columns(Request)), python_columns(found)):
            first.setdefault(request.request_id, request)
        return list(first.values())

    def lease(self) -> Manager | None:
        return next(iter(self.read(Manager, order_by=["-term"], limit=1)), None)

    def version(self, table: str) -> int:
        return self.tables.version(record_of(table).TABLE)

    def query(self, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        query = single_query(sql)
        places = {table: self.tables.name_in_sql(table) for table in tables_named(query, list(TABLES))}
        if TaskInstance.TABLE in places:
            place = places[TaskInstance.TABLE] = self.tables.name_behind_view(TaskInstance.TABLE)
            shown = {**dict.fromkeys(columns(TaskInstance)), "result_json": "coalesce(result_shown_json, result_json)"}
            values = [f"{value} AS {name}" if value else name for name, value in shown.items()]
            query = with_view(query, TaskInstance.TABLE, select(place, values))
        found = self._query(query, places)
        return list(found.schema.names), list(zip(*python_columns(found), strict=True))

    @abstractmethod
    def _query(self, query: str, places: Mapping[str, str]) -> Any:
        """Runs a user's query, in which these tables occur, and their names there; gives an Arrow table."""


class DeltaWriter(ABC):
    """Commits to the tables under one term; `LostLease` when it is over."""

    term: Term

    @abstractmethod
    def append(self, record: type[Record], rows: Sequence[Record] | pa.Table) -> None: ...

    @abstractmethod
    def merge(self, record: type[Record], rows: Sequence[Record]) -> Any:
        """Updates rows by key, and inserts the others."""

    @abstractmethod
    def delete(self, table: str, where: Sequence[Condition]) -> None:
        """Nothing is committed when no row meets the conditions."""

    @abstractmethod
    def delete_requests(self, where: Sequence[Condition]) -> None:
        """Nothing is deleted when a client was quicker."""

    @abstractmethod
    def update(self, table: str, where: Sequence[Condition], values: Mapping[str, str]) -> None: ...


def run_seq_spans(rows: Sequence[Record], wide_gap: int = WIDE_GAP) -> list[tuple[int, int]]:
    """The `run_seq`s of some rows as a few spans, in order: what a MERGE names, so that all files outside are skipped.

    More than one, because a tick may touch the newest runs and one straggler of long ago; the widest gaps divide them.
    """
    seqs = sorted({int(row.run_seq) for row in rows})  # type: ignore[attr-defined]
    gaps = sorted(((high - low, low) for low, high in pairwise(seqs) if high - low > wide_gap), reverse=True)
    ends = sorted(low for _, low in gaps[: MAX_SPANS - 1])
    begins = [seqs[0], *(seqs[bisect_right(seqs, low)] for low in ends)]
    return list(zip(begins, [*ends, seqs[-1]], strict=True))


def merge_condition(record: type[Record], spans: Sequence[tuple[int, int]]) -> str:
    """Which rows of the target `t` and the source `s` are the same; `spans` of `run_seq` let files be skipped."""
    within = " OR ".join(f"(t.run_seq >= {low} AND t.run_seq <= {high})" for low, high in spans)
    return " AND ".join(
        [*([f"({within})", "t.run_seq = s.run_seq"] if spans else []), *(f"t.{name} = s.{name}" for name in record.KEY)]
    )


class DeltaLeader(Leader):
    def __init__(self, row: Manager, highest: Mapping[str, int], writer: DeltaWriter) -> None:
        """`highest`: table -> its highest `run_seq`, -1 if it is empty."""
        super().__init__(row, 1 + max(0, *highest.values()), writer.term)
        self._writer = writer
        for parent, children in CHILDREN.items():
            for child in children:
                if highest[child] > highest[parent]:
                    writer.delete(child, [Condition("run_seq", ">", highest[parent])])

    def commit(self, changes: Changes) -> None:
        for table, rows in changes.by_table():
            write = self._writer.append if TABLES[table].APPEND_ONLY else self._writer.merge
            write(TABLES[table], rows)

    def append_items(self, items: pa.Table) -> None:
        rows = items.select(list(columns(BackfillItem))).sort_by("run_seq")
        ids = tuple(rows.column("backfill_id").unique().to_pylist())
        if ids:
            self._writer.delete(BackfillItem.TABLE, [Condition("backfill_id", "in", ids)])
        self._writer.append(BackfillItem, rows)

    def delete(self, table: str, where: Sequence[Condition]) -> None:
        self._term.check()
        conditions = checked(TABLES[table], where)
        if conditions is None:
            return
        if table == Request.TABLE:
            self._writer.delete_requests(conditions)
        else:
            self._writer.delete(table, conditions)

    def move_items(self, backfill_id: str, was: str, state: str, reason: str, ordinals: Ranges | None = None) -> None:
        conditions = checked(BackfillItem, items_to_move(backfill_id, was, ordinals))
        if conditions is not None:
            self._writer.update(BackfillItem.TABLE, conditions, {"state": state, "reason": reason})
