"""SQL for the two Delta engines: conditions and values in, plain Python values out. Without pyarrow, whose import alone would
cost a reading command a fifth of a second. (DataFusion's own expressions are not in deltalake's interface, and sqlglot costs
70 ms to import.)

No text from outside is ever put into a statement. A string crosses as the hexadecimal digits of its UTF-8 bytes
(`CAST(X'6869' AS STRING)`), an instant as a whole number of microseconds; both engines fold them into literals before they
plan, so files are still skipped by their statistics. Names of columns and tables are those of `model.records`, checked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from arro3.core import Array, ChunkedArray, DataType, Table

from backfill_manager.clock import from_micros, micros
from backfill_manager.model.records import Record, columns
from backfill_manager.number_ranges import Ranges
from backfill_manager.store.base import Condition

_INSTANT = DataType.timestamp("us", tz="UTC")
_SHORT_RANGE: Final = 4
_ARROW = {str: DataType.string(), int: DataType.int64(), float: DataType.float64(), bool: DataType.bool()}


@dataclass(frozen=True)
class Dialect:
    """What the engines spell differently."""

    instant: str  # of a number of microseconds
    starts_with: str


DATAFUSION: Final = Dialect("arrow_cast({}, 'Timestamp(Microsecond, Some(\"UTC\"))')", "starts_with")
SPARK: Final = Dialect("timestamp_micros({})", "startswith")


def literal(value: Any, dialect: Dialect = DATAFUSION) -> str:
    """A value as SQL: digits, and words that stand in this function."""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        return f"CAST({_text(str(value))} AS BIGINT)" if value < 0 else str(value)
    if isinstance(value, float):
        return f"CAST({_text(repr(value) if math.isfinite(value) else str(value))} AS DOUBLE)"
    if isinstance(value, datetime):
        return dialect.instant.format(literal(micros(value)))
    if isinstance(value, str):
        return _text(value)
    raise TypeError(f"{type(value).__name__} can't be used in a condition")


def _text(value: str) -> str:
    return f"CAST(X'{value.encode('utf-8', 'replace').hex()}' AS STRING)"


def predicate(conditions: Sequence[Condition] | None, dialect: Dialect = DATAFUSION) -> str:
    """Conditions that `filters.checked` has passed, as one boolean expression; None stands for one that is never true."""
    if conditions is None:
        return "FALSE"
    return " AND ".join(_one(condition, dialect) for condition in conditions) or "TRUE"


def _one(condition: Condition, dialect: Dialect) -> str:
    column, value = condition.column, condition.value
    match condition.operator:
        case "is_null":
            return f"{column} IS NULL"
        case "not_null":
            return f"{column} IS NOT NULL"
        case "in":
            return f"{column} IN ({', '.join(literal(one, dialect) for one in value)})"
        case "starts_with":
            return f"{dialect.starts_with}({column}, {literal(value)})"
        case "shorter_than":
            return f"character_length({column}) < {literal(value)}"
        case "in_ranges":
            return _in_ranges(column, value)
        case comparison:
            return f"{column} {comparison} {literal(value, dialect)}"


def _in_ranges(column: str, ranges: Ranges) -> str:
    """Short ranges as a list of numbers, which an engine finds at once; longer ones side by side in a balanced tree, as a
    chain of a thousand would be as deep."""
    short = [n for first, last in ranges if last - first < _SHORT_RANGE for n in range(first, last + 1)]
    parts = [f"{column} IN ({', '.join(map(literal, short))})"] if short else []
    parts += [
        f"{column} BETWEEN {literal(first)} AND {literal(last)}"
        for first, last in ranges
        if last - first >= _SHORT_RANGE
    ]
    while len(parts) > 1:
        pairs = (parts[at : at + 2] for at in range(0, len(parts), 2))
        parts = [f"({' OR '.join(pair)})" for pair in pairs]
    return parts[0]


def select(
    table: str, what: Iterable[str], where: str = "TRUE", *, group_by: Sequence[str] = (), having: str | None = None,
    order_by: Sequence[tuple[str, bool]] = (), limit: int | None = None,
) -> str:  # fmt: skip
    """The one place that puts a statement together: `what`, tables and columns are checked names, `where` is a `predicate`,
    `having` is text of ours."""
    sql = f"SELECT {', '.join(what)} FROM {table} WHERE {where}"  # noqa: S608 - no text from outside, see above
    if group_by:
        sql += f" GROUP BY {', '.join(group_by)}"
    if having:
        sql += f" HAVING {having}"
    if order_by:
        order = (f"{name} {'DESC' if descending else 'ASC'} NULLS LAST" for name, descending in order_by)
        sql += f" ORDER BY {', '.join(order)}"
    return sql if limit is None else f"{sql} LIMIT {int(limit)}"


def python_columns(table: Any) -> list[list[Any]]:
    """Of an Arrow table, arro3's or pyarrow's. Instants come as aware datetimes in `timezone.utc`."""
    return [_python_values(column) for column in table.columns]


def _python_values(column: Any) -> list[Any]:
    if column.type != _INSTANT:
        return list(column.to_pylist())
    whole = ChunkedArray.from_arrow(column).cast(DataType.int64())  # seven times as fast, and UTC is `timezone.utc`
    return [None if value is None else from_micros(value) for value in whole.to_pylist()]


def arrow_table(record: type[Record], rows: Sequence[Record]) -> Table:
    """Rows of one table as Arrow, in the order of its columns."""
    kinds = columns(record)
    arrays = [_array([getattr(row, name) for row in rows], kind) for name, (kind, _) in kinds.items()]
    return Table.from_arrays(arrays, names=list(kinds))


def _array(values: list[Any], kind: type) -> Array:
    if kind is datetime:
        return Array([None if value is None else micros(value) for value in values], DataType.int64()).cast(_INSTANT)
    if kind is str:  # half a character, in a file name or a program's output, must not break a whole tick
        values = [None if value is None else value.encode("utf-8", "replace").decode() for value in values]
    return Array(values, _ARROW[kind])
