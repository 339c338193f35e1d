"""SQL for DataFusion, the engine inside delta-rs: conditions and values in, plain Python values out. Without pyarrow, whose
import alone would cost a reading command a fifth of a second. (DataFusion's own expressions are not in deltalake's interface,
and sqlglot costs 70 ms to import.)

No text from outside is ever put into a statement. A string crosses as the hexadecimal digits of its UTF-8 bytes
(`CAST(X'6869' AS VARCHAR)`), an instant as a whole number of microseconds; DataFusion folds both into literals before it
plans, so files are still skipped by their statistics. Names of columns and tables are those of `model.records`, checked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from arro3.core import Array, ChunkedArray, DataType, Table
from deltalake import DeltaTable, QueryBuilder

from backfill_manager.clock import from_micros, micros
from backfill_manager.model.records import Record, columns
from backfill_manager.store.base import Condition
from backfill_manager.store.rows import plain_values

_INSTANT = DataType.timestamp("us", tz="UTC")
_ARROW = {str: DataType.string(), int: DataType.int64(), float: DataType.float64(), bool: DataType.bool()}


def literal(value: Any) -> str:
    """A value as SQL: digits, and words that stand in this function."""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        return f"CAST({_text(str(value))} AS BIGINT)" if value < 0 else str(value)
    if isinstance(value, float):
        return f"CAST({_text(repr(value) if math.isfinite(value) else str(value))} AS DOUBLE)"
    if isinstance(value, datetime):
        return f"arrow_cast({literal(micros(value))}, 'Timestamp(Microsecond, Some(\"UTC\"))')"
    if isinstance(value, str):
        return _text(value)
    raise TypeError(f"{type(value).__name__} can't be used in a condition")


def _text(value: str) -> str:
    return f"CAST(X'{value.encode('utf-8', 'replace').hex()}' AS VARCHAR)"


def predicate(conditions: Sequence[Condition] | None) -> str:
    """Conditions that `filters.checked` has passed, as one boolean expression."""
    if conditions is None:
        return "FALSE"
    return " AND ".join(_one(condition) for condition in conditions) or "TRUE"


def _one(condition: Condition) -> str:
    column = f'"{condition.column}"'
    match condition.operator:
        case "is_null":
            return f"{column} IS NULL"
        case "not_null":
            return f"{column} IS NOT NULL"
        case "in":
            return f"{column} IN ({', '.join(literal(value) for value in condition.value)})"
        case "starts_with":
            return f"starts_with({column}, {literal(condition.value)})"
        case "shorter_than":
            return f"character_length({column}) < {literal(condition.value)}"
        case comparison:
            return f"{column} {comparison} {literal(condition.value)}"


def run(handles: dict[str, DeltaTable], sql: str) -> Table:
    builder = QueryBuilder()
    for name, handle in handles.items():
        builder.register(name, handle)
    return builder.execute(sql).read_all()


def select(
    table: str,
    what: Iterable[str],
    where: str = "TRUE",
    *,
    group_by: Sequence[str] = (),
    order_by: Sequence[tuple[str, bool]] = (),
    limit: int | None = None,
) -> str:
    """The one place that puts a statement together: `what`, tables and columns are checked names, `where` is a `predicate`."""
    sql = f"SELECT {', '.join(what)} FROM {table} WHERE {where}"  # noqa: S608 - no text from outside, see above
    if group_by:
        sql += " GROUP BY " + ", ".join(f'"{name}"' for name in group_by)
    if order_by:
        order = (f'"{name}" {"DESC" if descending else "ASC"} NULLS LAST' for name, descending in order_by)
        sql += f" ORDER BY {', '.join(order)}"
    return sql if limit is None else f"{sql} LIMIT {int(limit)}"


def python_columns(table: Table) -> list[list[Any]]:
    return [_python_values(column) for column in table.columns]


def _python_values(column: ChunkedArray) -> list[Any]:
    if column.type == _INSTANT:  # by way of whole numbers: seven times as fast, and UTC is `timezone.utc` as everywhere
        return [None if value is None else from_micros(value) for value in column.cast(DataType.int64()).to_pylist()]
    return list(column.to_pylist())


def arrow_table(record: type[Record], rows: Sequence[Record]) -> Table:
    """Rows of one table as Arrow, in the order of its columns."""
    kinds = columns(record)
    arrays = [_array(plain_values(rows, name, kind), kind) for name, (kind, _) in kinds.items()]
    return Table.from_arrays(arrays, names=list(kinds))


def _array(values: list[Any], kind: type) -> Array:
    return Array(values, DataType.int64()).cast(_INSTANT) if kind is datetime else Array(values, _ARROW[kind])
