"""`limit`, `cursor` and `order_by` of a list. A cursor is opaque to clients: base64url of JSON with the order and the
position (`queries.paging`), and is validated like all input."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import MAXYEAR, datetime
from typing import Annotated, Any, Final, final

from fastapi import Query

from backfill_manager.clock import UTC, format_instant, parse_instant
from backfill_manager.dags.schedule.timezones import FIRST_YEAR
from backfill_manager.errors import InvalidInput
from backfill_manager.model.records import Record, columns
from backfill_manager.queries.paging import Order

MAX_LIMIT: Final = 1000
Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Maximum number of rows.")]
Cursor = Annotated[
    str | None, Query(max_length=4000, description="`next_cursor` of the page before; left out: the first page.")
]
Bound = Annotated[str | None, Query(max_length=40)]  # an instant, see `instant_of`
_INVALID: Final = "cursor: this is not a cursor of this list; leave it out to start with the first page."


@final  # so that `position and position.key` has the type that it looks like
@dataclass(frozen=True)
class Position:
    """Where a page begins: after the row with `value` in the ordering column and `tie`; or at a `mark` of its own, in a list
    with another part in front."""

    value: Any = None
    tie: Any = None
    mark: str = ""

    @property
    def key(self) -> tuple[Any, Any]:
        return self.value, self.tie


def order_of(text: str, columns_by_name: Mapping[str, str], tie: str) -> Order:
    """Parses `-created_at` into an `Order`; `columns_by_name`: the names that a client may use."""
    name = text.removeprefix("-")
    return Order(columns_by_name[name], tie, text.startswith("-"))


def to_cursor(order_by: str, value: Any = None, tie: Any = None, mark: str = "") -> str:
    plain = [format_instant(one) if isinstance(one, datetime) else one for one in (order_by, value, tie, mark)]
    text = json.dumps(plain, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def from_cursor(
    cursor: str | None, order_by: str, record: type[Record], order: Order, *, marks: bool = False
) -> Position | None:
    """Raises `InvalidInput` for anything but a cursor of this list in this order. `marks`: the list has marks."""
    position = _decoded(cursor, order_by)
    if position is None or (position.mark and marks):
        return position
    if position.mark:
        raise InvalidInput(_INVALID)
    kinds = columns(record)
    return Position(_checked(position.value, *kinds[order.column]), _checked(position.tie, kinds[order.tie][0], False))


def page(items: list[dict[str, Any]], order_by: str, last: tuple[Any, Any] | None) -> dict[str, Any]:
    """The JSON form of a page; `last` is the key of its last row when there are more."""
    return {"items": items, "next_cursor": None if last is None else to_cursor(order_by, *last)}


def page_of_short_list(
    rows: Sequence[dict[str, Any]], order_by: str, limit: int, cursor: str | None, *, unique: Sequence[str]
) -> dict[str, Any]:
    """A page of a list that is short by nature: it is sorted and cut here. `unique`: columns that identify a row."""
    column, descending = order_by.removeprefix("-"), order_by.startswith("-")

    def key(row: Mapping[str, Any]) -> tuple[Any, str]:
        return row[column], "\n".join(str(row[name]) for name in unique)

    position = _decoded(cursor, order_by)
    remaining = sorted(rows, key=key, reverse=descending)
    if position is not None:
        if not isinstance(position.tie, str) or position.mark:
            raise InvalidInput(_INVALID)
        try:
            remaining = [
                row for row in remaining if (key(row) < position.key if descending else key(row) > position.key)
            ]
        except TypeError:
            raise InvalidInput(_INVALID) from None
    items = remaining[:limit]
    return page(items, order_by, key(items[-1]) if len(remaining) > limit else None)


def instant_of(text: str | None, name: str) -> datetime | None:
    """An instant that bounds a list. Raises `InvalidInput` for anything else."""
    if text is None:
        return None
    try:
        at = parse_instant(text)
    except ValueError:
        at = None
    if at is None or not FIRST_YEAR <= at.year < MAXYEAR:  # the bound is moved by a microsecond or a second
        raise InvalidInput(f"{name}: {text!r} is not an instant of such a list, like 2013-01-01T05:00:00Z.")
    return at


def _decoded(cursor: str | None, order_by: str) -> Position | None:
    if cursor is None:
        return None
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        ordered_by, value, tie, mark = json.loads(text)
    except (binascii.Error, ValueError, TypeError, RecursionError):
        raise InvalidInput(_INVALID) from None
    if ordered_by != order_by:
        other = ordered_by if isinstance(ordered_by, str) else "?"
        raise InvalidInput(f"cursor: it belongs to order_by={other}; keep the order.")
    if not isinstance(mark, str):
        raise InvalidInput(_INVALID)
    return Position(value, tie, mark)


def _checked(value: Any, kind: type, nullable: bool) -> Any:
    if value is None and nullable:
        return None
    if kind is datetime and isinstance(value, str):
        try:
            return parse_instant(value).astimezone(UTC)
        except (ValueError, OverflowError):
            raise InvalidInput(_INVALID) from None
    if type(value) is not kind or (isinstance(value, int) and not -(2**63) <= value < 2**63):
        raise InvalidInput(_INVALID)
    if isinstance(value, str) and any("\ud800" <= one <= "\udfff" for one in value):
        raise InvalidInput(_INVALID)
    return value
