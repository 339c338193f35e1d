"""Checks conditions against the columns and brings them into their plainest form, for all engines; applies them in memory.

`sql_text` renders checked conditions for the others.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from backfill_manager.errors import InvalidInput, nearest
from backfill_manager.model.records import TABLES, Record, columns
from backfill_manager.number_ranges import is_in
from backfill_manager.store.base import Condition, R

COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda a, b: a in b,
    "starts_with": lambda a, b: a.startswith(b),
    "shorter_than": lambda a, b: len(a) < b,
    "in_ranges": is_in,
}


def record_of(table: str) -> type[Record]:
    if table not in TABLES:
        raise InvalidInput(f"The state has no table {table!r}{nearest(table, TABLES) or ''}")
    return TABLES[table]


def known_columns(record: type[Record], names: Sequence[str]) -> list[str]:
    known = columns(record)
    for name in names:
        if name not in known:
            raise InvalidInput(f"Table {record.TABLE} has no column {name!r}{nearest(name, known)}")
    return list(names)


def records_of(record: type[R], names: Sequence[str], values: Sequence[Sequence[Any]]) -> list[R]:
    """Rows from the values of the columns `names`; other columns are None."""
    rows = zip(*values, strict=True)
    if len(names) == len(columns(record)):
        return [record(*row) for row in rows]
    left_out = {name: None for name in columns(record) if name not in names}
    return [record(**dict(zip(names, row, strict=True)), **left_out) for row in rows]


def checked(record: type[Record], where: Sequence[Condition]) -> list[Condition] | None:
    """The same conditions, with columns, operators and the types of values checked. None when no row can ever meet
    them: a comparison with null, or a choice among nothing."""
    plain: list[Condition] = []
    for condition in where:
        known_columns(record, [condition.column])
        if condition.operator in ("is_null", "not_null"):
            plain.append(condition)
            continue
        if condition.operator not in COMPARISONS:
            known = ", ".join([*COMPARISONS, "is_null", "not_null"])
            raise InvalidInput(f"{condition.operator!r} is not a condition; one of {known}")
        many = condition.operator in ("in", "in_ranges")
        values = [v for v in (condition.value if many else (condition.value,)) if v is not None]
        if not values:
            return None
        for value in values:
            _check_type(record, condition, value)
        plain.append(Condition(condition.column, condition.operator, tuple(values) if many else values[0]))
    return plain


def _check_type(record: type[Record], condition: Condition, value: Any) -> None:
    kind, _ = columns(record)[condition.column]
    column = f"{record.TABLE}.{condition.column}"
    if condition.operator == "in_ranges":
        if kind is int and [type(one) for one in value] == [int, int]:
            return
        raise InvalidInput(f"{column} is compared with the range {value!r}, which is not one of whole numbers")
    if condition.operator == "shorter_than":
        if kind is str and type(value) is int:
            return
        raise InvalidInput(f"{column} can't be compared with a number of characters, {value!r}")
    if isinstance(value, datetime) and value.tzinfo is None:
        raise InvalidInput(f"{column} is compared with {value}, which has no time zone")
    fits = (
        type(value) is kind or (kind, type(value)) == (float, int) or (kind is datetime and isinstance(value, datetime))
    )
    if not fits or (condition.operator == "starts_with" and kind is not str):
        raise InvalidInput(f"{column} holds {kind.__name__}; {condition.operator} {value!r} makes no sense")


def that_meet(rows: list[R], conditions: Sequence[Condition]) -> list[R]:
    """The rows that meet all conditions, which `checked` has returned. One condition at a time, as each leaves fewer rows."""
    found = rows
    for condition in conditions:
        column = operator.attrgetter(condition.column)
        if condition.operator == "is_null":
            found = [row for row in found if column(row) is None]
        elif condition.operator == "not_null":
            found = [row for row in found if column(row) is not None]
        else:
            compare, wanted = COMPARISONS[condition.operator], condition.value
            found = [row for row in found if (value := column(row)) is not None and compare(value, wanted)]
    return found


def orders(record: type[Record], order_by: Sequence[str]) -> list[tuple[str, bool]]:
    """`["-created_at"]` -> `[("created_at", True)]`; True is descending."""
    found = [(name.removeprefix("-"), name.startswith("-")) for name in order_by]
    known_columns(record, [name for name, _ in found])
    return found
