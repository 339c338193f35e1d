"""The state in memory: for tests, ours and our users'. The same promises as Delta's, with a lock where Delta has a
log.

One `MemoryStore` is one state; each holder of the object is a client or a manager of it. Several leaders can exist:
the one with the highest term is the real one, and every other finds out at its next commit.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from backfill_manager.clock import from_micros, micros
from backfill_manager.errors import InvalidInput, StateNotInitialised, nearest
from backfill_manager.humanise import plural
from backfill_manager.model.records import (
    TABLES,
    BackfillItem,
    Manager,
    Record,
    Request,
    TaskInstance,
    columns,
    has_run_seq,
)
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
    check_next_term,
    items_to_move,
)
from backfill_manager.store.filters import checked, known_columns, orders, record_of, that_meet
from backfill_manager.store.sql_guard import single_query
from backfill_manager.store.table_properties import nullable_schema
from backfill_manager.store.whole_tables import FILLING_ORDER, PinnedTables, TablesInMemory, records_in

if TYPE_CHECKING:
    import pyarrow as pa


_TYPES: Final = {str: "TEXT", int: "INTEGER", float: "REAL", bool: "BFM_BOOL", datetime: "BFM_INSTANT"}
_READING: Final = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)

# SQLite keeps neither: a column that is selected as it stands comes back as what it was.
sqlite3.register_converter("BFM_BOOL", lambda raw: bool(int(raw)))
sqlite3.register_converter("BFM_INSTANT", lambda raw: from_micros(int(raw)))


class MemoryStore(Store):
    engine = root = place = "memory"

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._tables: dict[str, list[Record]] = {}
        self._places: dict[str, dict[tuple[Any, ...], int]] = {}  # table -> key -> index in its list
        self._versions: Counter[str] = Counter()

    def init(self, *, recreate: bool = False) -> ChangedTables:
        with self.lock:
            made = [name for name in TABLES if name not in self._tables]
            for name in made:
                self._tables[name], self._places[name] = [], {}
            return ChangedTables(made, [])

    def exists(self) -> bool:
        return bool(self._tables)

    def check(self) -> list[Finding]:
        with self.lock:
            return [Finding(name, True, plural(len(self.rows(name)), "row")) for name in TABLES]

    def locations(self) -> dict[str, str]:
        return {name: f"{self.root}:{name}" for name in TABLES}

    def rows(self, table: str) -> list[Record]:
        """The table itself, under the lock."""
        if table not in self._tables:
            raise StateNotInitialised(self.root)
        return self._tables[table]

    def read(
        self, record: type[R], where: Sequence[Condition] = (), order_by: Sequence[str] = (), limit: int | None = None,
        without: Sequence[str] = (),
    ) -> list[R]:  # fmt: skip
        conditions, order = checked(record, where), orders(record, order_by)
        left_out = dict.fromkeys(known_columns(record, without))
        with self.lock:
            rows = [row for row in self.rows(record.TABLE) if isinstance(row, record)]
        found = [] if conditions is None else that_meet(rows, conditions)
        for name, descending in reversed(order):
            there = [row for row in found if getattr(row, name) is not None]
            there.sort(key=lambda row: getattr(row, name), reverse=descending)
            found = there + [row for row in found if getattr(row, name) is None]
        found = found if limit is None else found[:limit]
        return [row.evolve(**left_out) for row in found] if left_out else found

    def read_arrow(self, table: str, columns: Sequence[str], where: Sequence[Condition] = ()) -> pa.Table:
        import pyarrow as pa

        schema, rows = nullable_schema(record_of(table), columns), self.read(record_of(table), where)
        return pa.table({name: [getattr(row, name) for row in rows] for name in schema.names}, schema=schema)

    def count(self, table: str, by: Sequence[str], where: Sequence[Condition] = ()) -> dict[tuple[Any, ...], int]:
        record = record_of(table)
        names = known_columns(record, by)
        counts = Counter(tuple(getattr(row, name) for name in names) for row in self.read(record, where))
        return dict(counts) if names else {(): counts.total()}

    def unanswered(self) -> list[Request]:
        with self.lock:
            requests, answered = self.rows("request"), self._places["response"]
            asked = [row for row in requests if isinstance(row, Request) and (row.request_id,) not in answered]
        first: dict[str, Request] = {}
        for row in sorted(asked, key=lambda row: (row.requested_at, row.request_id)):
            first.setdefault(row.request_id, row)
        return list(first.values())

    def version(self, table: str) -> int:
        with self.lock:
            self.rows(record_of(table).TABLE)
            return self._versions[table]

    def query(self, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        query = single_query(sql)
        with self.lock:
            tables = {name: list(self.rows(name)) for name in TABLES}
        tasks = self.read(TaskInstance)
        tables[TaskInstance.TABLE] = [one.evolve(result_json=one.result_shown_json or one.result_json) for one in tasks]
        with _filled(tables) as connection:
            try:
                cursor = connection.execute(query)
                return [column[0] for column in cursor.description], cursor.fetchall()
            except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
                raise InvalidInput(f"The query can't be run: {_in_a_line(str(error))}") from None

    def pin(self) -> PinnedTables:
        with self.lock:
            return TablesInMemory({name: list(self.rows(name)) for name in TABLES}, dict(self._versions))

    def fill(self, batches_of: Callable[[str], Iterator[pa.RecordBatch]]) -> None:
        self.init()
        for table in FILLING_ORDER:
            for batch in batches_of(table):
                with self.lock:
                    self.write(records_in(table, batch))

    def append_request(self, request: Request) -> None:
        with self.lock:
            self.rows("request").append(request)
            self._versions["request"] += 1

    def lease(self) -> Manager | None:
        with self.lock:
            terms = [row for row in self.rows("manager") if isinstance(row, Manager)]
        return max(terms, key=lambda row: row.term, default=None)

    def lead(self, row: Manager) -> Leader:
        with self.lock:
            last = self.lease()
            check_next_term(row, last.term if last else 0)
            numbered: dict[str, list[Any]] = {name: self.rows(name) for name in TABLES if has_run_seq(TABLES[name])}
            highest = {name: max((row.run_seq for row in rows), default=-1) for name, rows in numbered.items()}
            self.write([row])
            for parent, children in CHILDREN.items():
                for child in children:
                    if highest[child] > highest[parent]:
                        self.replace(child, [row for row in numbered[child] if row.run_seq <= highest[parent]])
            return MemoryLeader(self, row, 1 + max(0, *highest.values()))

    def write(self, rows: Sequence[Record]) -> None:
        """Put rows of one table in: replaced by key, or appended where rows never change. Under the lock."""
        for row in rows:
            table, places, key = self.rows(row.TABLE), self._places[row.TABLE], row.key
            self._versions[row.TABLE] += 1
            if not row.APPEND_ONLY and key in places:
                table[places[key]] = row
            else:
                places[key] = len(table)
                table.append(row)

    def replace(self, table: str, rows: list[Record]) -> None:
        self._tables[table], self._places[table] = [], {}
        self._versions[table] += 1
        self.write(rows)


class MemoryLeader(Leader):
    def __init__(self, store: MemoryStore, row: Manager, first_seq: int) -> None:
        super().__init__(row, first_seq, Term(row.term))
        self._store = store

    @contextmanager
    def _committing(self) -> Iterator[None]:
        with self._store.lock:
            self._term.check()
            last = self._store.lease()
            if last is None or last.term != self.term:
                raise self._term.end(f"Term {self.term} is over: another manager leads.")
            yield

    def commit(self, changes: Changes) -> None:
        for _, rows in changes.by_table():
            with self._committing():
                self._store.write(rows)

    def append_items(self, items: pa.Table) -> None:
        with self._committing():
            names = list(columns(BackfillItem))
            rows: list[Record] = [BackfillItem(**row) for row in items.select(names).to_pylist()]
            ids = {row.backfill_id for row in rows}  # type: ignore[attr-defined]
            kept = [row for row in self._store.rows("backfill_item") if row.backfill_id not in ids]  # type: ignore[attr-defined]
            self._store.replace("backfill_item", kept + rows)

    def move_items(self, backfill_id: str, was: str, state: str, reason: str, ordinals: Ranges | None = None) -> None:
        mine = items_to_move(backfill_id, was, ordinals)
        with self._committing():
            moved = self._store.read(BackfillItem, mine)
            self._store.write([item.evolve(state=state, reason=reason) for item in moved])

    def delete(self, table: str, where: Sequence[Condition]) -> None:
        with self._committing():
            gone = {id(row) for row in self._store.read(TABLES[table], where)}
            if gone:
                self._store.replace(table, [row for row in self._store.rows(table) if id(row) not in gone])

    def _update_lease(self, **fields: Any) -> None:
        with self._committing():
            self.row = self.row.evolve(**fields)
            self._store.write([self.row])

    def compact(self, *, everywhere: bool = False) -> dict[str, int]:
        with self._committing():
            return dict.fromkeys(TABLES, 0) if everywhere else {}


# -- SQL: SQLite, filled for the one query and thrown away, opened for reading only -----------------------------------


def _in_a_line(message: str) -> str:
    about, _, name = message.partition(": ")
    every_column = {name for record in TABLES.values() for name in columns(record)}
    known = {"no such table": TABLES, "no such column": every_column}.get(about, ())
    return message + nearest(name.rpartition(".")[2], known)


@contextmanager
def _filled(tables: Mapping[str, Sequence[Record]]) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", detect_types=sqlite3.PARSE_DECLTYPES)
    try:
        for name, rows in tables.items():
            kinds = columns(TABLES[name])
            connection.execute(f"CREATE TABLE {name} ({', '.join(f'{c} {_TYPES[k]}' for c, (k, _) in kinds.items())})")
            insert = f"INSERT INTO {name} VALUES ({', '.join('?' * len(kinds))})"  # noqa: S608 - our own table names
            values = ([getattr(row, c) for c in kinds] for row in rows)
            connection.executemany(
                insert, ([micros(x) if isinstance(x, datetime) else x for x in row] for row in values)
            )
        connection.commit()
        connection.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY)
        yield connection
    finally:
        connection.close()
