"""What the two Delta engines share: creating and checking the tables, reading, and the leader's commits."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, ClassVar, Final

from backfill_manager.errors import InvalidInput, LostLease, StateError, StateNotInitialised, nearest, shorten
from backfill_manager.model.records import RECORDS, TABLES, BackfillItem, Manager, Record, Request, columns
from backfill_manager.model.transitions import Changes
from backfill_manager.store.base import CHILDREN, Condition, Finding, Leader, R, Store
from backfill_manager.store.filters import checked, columns_without, known_columns, orders, record_of, records_of
from backfill_manager.store.rows import in_predicate
from backfill_manager.store.schema import check_properties, column_mismatch

if TYPE_CHECKING:
    import pyarrow as pa

UPGRADE_ATTEMPTS: Final = 20
MAX_ERROR_LENGTH: Final = 220
_ANSI: Final = re.compile(r"\x1b\[[0-9;]*m")


def first_line(error: BaseException) -> str:
    """An engine's message without its colours, call stacks and SQLSTATE."""
    java = getattr(error, "java_exception", None)
    text = _ANSI.sub("", str(error if java is None else java.getMessage()))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return shorten((lines[0] if lines else type(error).__name__).partition(" SQLSTATE:")[0], MAX_ERROR_LENGTH)


def query_error(message: str, *, no_table: str | None = None) -> InvalidInput:
    """For a query that an engine refuses; with the nearest names for a table that there is not."""
    if no_table is not None:
        message = f"there is no table {no_table!r}{nearest(no_table, TABLES) or '; there are ' + ', '.join(TABLES)}"
    return InvalidInput(f"The query can't be run: {message}")


@cache
def sql_text(name: str) -> str:
    return resources.files("backfill_manager.store").joinpath(f"sql/{name}.sql").read_text(encoding="utf-8")


class DeltaTables(ABC):
    """The tables of one state: where they are, whether they can be used, and creating them."""

    ENGINE: ClassVar[str]
    CONFLICTS: ClassVar[tuple[type[Exception], ...]]  # what is raised when another commit came first
    root: str

    @abstractmethod
    def location(self, table: str) -> str: ...

    @abstractmethod
    def exists(self) -> bool:
        """True when `manager` is there: the last table that `create_missing` creates stands for all."""

    @abstractmethod
    def translate_errors(self, table: str, doing: str = "read") -> AbstractContextManager[None]:
        """Whatever the engine raises inside becomes a `StateError` of one line that names the table and where it is."""

    @abstractmethod
    def _has(self, table: str) -> bool: ...

    @abstractmethod
    def _create(self, record: type[Record]) -> None: ...

    @abstractmethod
    def _upgrade(self, record: type[Record]) -> bool:
        """Adds the columns that an older release did not have; the version is written last. False if there was nothing to
        do. One of `CONFLICTS` when another manager does the same at this moment."""

    def check_owner(self, table: str, properties: Mapping[str, str], *, may_be_older: bool = False) -> None:
        location = self.location(table)
        check_properties(properties, engine=self.ENGINE, table=table, place=location, may_be_older=may_be_older)

    def unusable(self, table: str, doing: str, error: Exception) -> StateError:
        return StateError(f"Table {table} at {self.location(table)} can't be {doing}: {first_line(error)}")

    def missing(self, table: str) -> StateError:
        if not self.exists():
            return StateNotInitialised(self.root)
        return StateError(
            f"Table {table} of the state is missing at {self.location(table)}. Restore it, or make it anew, empty.",
            hint="init_state", root=self.root,
        )  # fmt: skip

    def create_missing(self) -> list[str]:
        """Creates and upgrades what is needed; returns the names of the changed tables."""
        changed = []
        for record in RECORDS:
            with self.translate_errors(record.TABLE, "made"):
                if not self._has(record.TABLE):
                    self._create(record)
                elif not self._upgrade_with_retries(record):
                    continue
            changed.append(record.TABLE)
        return changed

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

    def init(self) -> list[str]:
        return self.tables.create_missing()

    def exists(self) -> bool:
        return self.tables.exists()

    def locations(self) -> dict[str, str]:
        return {name: self.tables.location(name) for name in TABLES}

    def check(self) -> list[Finding]:
        return [self._check(name) for name in TABLES]

    def _check(self, table: str) -> Finding:
        location = self.tables.location(table)
        try:
            names, protocol = self._inspect(table)
            if wrong := column_mismatch(TABLES[table], names):
                return Finding(table, False, f"{wrong} (at {location})")
            if protocol != (1, 2):
                shown = f"protocol {protocol[0]}/{protocol[1]} instead of 1/2"
                return Finding(table, False, f"{shown}: a feature is on that not every reader has (at {location})")
            return Finding(table, True, f"{self._scan(table)} rows")
        except StateError as error:
            return Finding(table, False, str(error))

    @abstractmethod
    def _inspect(self, table: str) -> tuple[list[str], tuple[int, int]]:
        """The columns that are there, and the least reader and writer version."""

    @abstractmethod
    def _scan(self, table: str) -> int:
        """Reads each column of each file; the number of rows."""

    # -- reading ------------------------------------------------------------------------------------------------------
    def read(
        self, record: type[R], where: Sequence[Condition] = (), order_by: Sequence[str] = (), limit: int | None = None,
        without: Sequence[str] = (),
    ) -> list[R]:  # fmt: skip
        names, order = columns_without(record, without), orders(record, order_by)
        return records_of(record, names, self._read(record.TABLE, names, checked(record, where), order, limit))

    def read_arrow(self, table: str, columns: Sequence[str], where: Sequence[Condition] = ()) -> pa.Table:
        import pyarrow as pa

        from backfill_manager.store.schema import arrow_schema

        record = record_of(table)
        names = known_columns(record, columns)
        schema = pa.schema([arrow_schema(record).field(name).with_nullable(True) for name in names])
        return self._read_arrow(table, names, checked(record, where)).cast(schema)

    def count(self, table: str, by: Sequence[str], where: Sequence[Condition] = ()) -> dict[tuple[Any, ...], int]:
        record = record_of(table)
        *keys, counts = self._count(table, known_columns(record, by), checked(record, where))
        return dict(zip(zip(*keys, strict=True) if keys else [()], counts, strict=True))

    def unanswered(self) -> list[Request]:
        names = ", ".join(f"r.{name}" for name in columns(Request))
        first: dict[str, Request] = {}
        for values in zip(*self._run(("request", "response"), sql_text("unanswered"), columns=names), strict=True):
            request = Request(*values)
            first.setdefault(request.request_id, request)
        return list(first.values())

    def lease(self) -> Manager | None:
        return next(iter(self.read(Manager, order_by=["-term"], limit=1)), None)

    # Conditions are checked ones, None stands for one that is never true; columns come as lists of Python values.
    @abstractmethod
    def _read(
        self, table: str, names: Sequence[str], where: Sequence[Condition] | None, order: Sequence[tuple[str, bool]],
        limit: int | None,
    ) -> list[list[Any]]: ...  # fmt: skip

    @abstractmethod
    def _read_arrow(self, table: str, names: Sequence[str], where: Sequence[Condition] | None) -> pa.Table: ...

    @abstractmethod
    def _count(self, table: str, by: Sequence[str], where: Sequence[Condition] | None) -> list[list[Any]]:
        """The columns `by`, and the number of rows."""

    @abstractmethod
    def _run(self, tables: Sequence[str], sql: str, **values: str) -> list[list[Any]]:
        """A statement of ours, in which `{request}` stands for the table's name."""


class Term:
    """A term of leadership, which may be over."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._over: str | None = None

    def check(self) -> None:
        if self._over:
            raise LostLease(self._over)

    def lost(self) -> LostLease:
        return self.end(f"Term {self.number} is over: another manager has written to the state.")

    def end(self, reason: str) -> LostLease:
        self._over = reason
        return LostLease(reason)


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
    def update(self, table: str, where: Sequence[Condition], values: Mapping[str, str]) -> None: ...

    @staticmethod
    def merge_condition(record: type[Record], spans: Sequence[tuple[int, int]]) -> str:
        """Which rows of the target `t` and the source `s` are the same; `spans` of `run_seq` let files be skipped."""
        of_spans = [in_predicate(spans), "t.run_seq = s.run_seq"] if spans else []
        return " AND ".join([*of_spans, *(f"t.{name} = s.{name}" for name in record.KEY)])


class DeltaLeader(Leader):
    def __init__(self, row: Manager, highest: Mapping[str, int], writer: DeltaWriter) -> None:
        """`highest`: table -> its highest `run_seq`, -1 if it is empty."""
        super().__init__(row, 1 + max(0, *highest.values()))
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

    def move_items(self, backfill_id: str, was: str, state: str, reason: str) -> None:
        where = [Condition("backfill_id", "=", backfill_id), Condition("state", "=", was)]
        self._writer.update(BackfillItem.TABLE, where, {"state": state, "reason": reason})

    def _end_term(self, reason: str) -> None:
        self._writer.term.end(reason)
