"""SQL over the memory engine: SQLite, filled for the one query and thrown away, opened for reading only."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from backfill_manager.clock import from_micros, micros
from backfill_manager.errors import InvalidInput, nearest
from backfill_manager.model.records import TABLES, Record, columns
from backfill_manager.store.sql_guard import single_query

_TYPES: Final[Mapping[type, str]] = {
    str: "TEXT",
    int: "INTEGER",
    float: "REAL",
    bool: "BFM_BOOL",
    datetime: "BFM_INSTANT",
}
_READING: Final = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)

# SQLite keeps neither: a column that is selected as it stands comes back as what it was.
sqlite3.register_converter("BFM_BOOL", lambda raw: bool(int(raw)))
sqlite3.register_converter("BFM_INSTANT", lambda raw: from_micros(int(raw)))


def run_query(sql: str, tables: Mapping[str, Sequence[Record]]) -> tuple[list[str], list[tuple[Any, ...]]]:
    query = single_query(sql)
    with _Filled(tables) as connection:
        try:
            cursor = connection.execute(query)
            return [column[0] for column in cursor.description], cursor.fetchall()
        except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
            raise InvalidInput(f"The query can't be run: {_in_a_line(str(error))}") from None


def _in_a_line(message: str) -> str:
    if message.startswith("no such table: "):
        return message + nearest(message.removeprefix("no such table: "), TABLES)
    if message.startswith("no such column: "):
        known = {name for record in TABLES.values() for name in columns(record)}
        return message + nearest(message.removeprefix("no such column: ").rpartition(".")[2], known)
    return message


class _Filled:
    def __init__(self, tables: Mapping[str, Sequence[Record]]) -> None:
        self._tables = tables

    def __enter__(self) -> sqlite3.Connection:
        self._connection = connection = sqlite3.connect(":memory:", detect_types=sqlite3.PARSE_DECLTYPES)
        for name, rows in self._tables.items():
            kinds = columns(TABLES[name])
            connection.execute(
                " ".join(("CREATE TABLE", name, "(", ", ".join(f"{c} {_TYPES[k]}" for c, (k, _) in kinds.items()), ")"))
            )
            insert = " ".join(("INSERT INTO", name, "VALUES (", ", ".join("?" * len(kinds)), ")"))
            connection.executemany(insert, ([_plain(getattr(row, c)) for c in kinds] for row in rows))
        connection.commit()
        connection.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY)
        return connection

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def _plain(value: Any) -> Any:
    return micros(value) if isinstance(value, datetime) else value
