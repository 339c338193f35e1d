"""`limit`, `cursor` and `order_by` of a list. A cursor is opaque to clients: base64url of JSON that holds the order and
the place (`queries.paging`), and is looked at like all else that comes from outside."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import MAXYEAR, datetime
from typing import Annotated, Any, Final

from fastapi import Query

from backfill_manager.clock import UTC, format_instant, parse_instant
from backfill_manager.dags.schedule.timezones import FIRST_YEAR
from backfill_manager.errors import InvalidInput
from backfill_manager.model.records import DagRow, Record, columns
from backfill_manager.queries.paging import Order

MOST: Final = 1000
Limit = Annotated[int, Query(ge=1, le=MOST, description="How many at most.")]
Cursor = Annotated[
    str | None, Query(max_length=4000, description="`next_cursor` of the page before; left out: the first page.")
]
Bound = Annotated[str | None, Query(max_length=40)]  # an instant, see `instant_of`
_WRONG: Final = "cursor: this is not one that a list gave; leave it out to begin again."


@dataclass(frozen=True)
class Place:
    """Where a page begins: behind the row with `value` in the ordering column and `tie`; or at a `mark` of the list's
    own, for one that has another part in front."""

    value: Any = None
    tie: Any = None
    mark: str = ""

    @property
    def of_row(self) -> tuple[Any, Any]:
        return self.value, self.tie


def order_of(text: str, columns_by_name: Mapping[str, str], tie: str) -> Order:
    """`-created_at` -> an order; `columns_by_name`: the names that a client may say."""
    name = text.removeprefix("-")
    return Order(columns_by_name[name], tie, text.startswith("-"))


def to_cursor(order_by: str, value: Any = None, tie: Any = None, mark: str = "") -> str:
    plain = format_instant(value) if isinstance(value, datetime) else value
    text = json.dumps([order_by, plain, tie, mark], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def from_cursor(
    cursor: str | None, order_by: str, record: type[Record], order: Order, *, marks: bool = False
) -> Place | None:
    """`InvalidInput` for anything but a cursor of this list in this order. `marks`: it may stand at a mark of its own."""
    if cursor is None:
        return None
    said, value, tie, mark = _opened(cursor)
    if said != order_by:
        raise InvalidInput(f"cursor: it belongs to order_by={said if isinstance(said, str) else '?'}; keep the order.")
    if not isinstance(mark, str) or (mark and not marks):
        raise InvalidInput(_WRONG)
    if mark:
        return Place(mark=mark)
    kinds = columns(record)
    return Place(_read(value, *kinds[order.column]), _read(tie, kinds[order.tie][0], False))


def page_of_few(rows: Sequence[Mapping[str, Any]], order_by: str, limit: int, cursor: str | None) -> dict[str, Any]:
    """A page of a list that is short by nature: it is put in order here, and paged by counting."""
    place = from_cursor(cursor, order_by, DagRow, Order("dag_id", "dag_id"), marks=True)
    mark = "0" if place is None else place.mark
    if not mark.isascii() or not mark.isdigit() or len(mark) > 9:
        raise InvalidInput(_WRONG)
    begins = int(mark)
    ends = begins + limit
    ordered = sorted(rows, key=lambda one: one[order_by.removeprefix("-")], reverse=order_by.startswith("-"))
    more = len(ordered) > ends
    return {"items": ordered[begins:ends], "next_cursor": to_cursor(order_by, mark=str(ends)) if more else None}


def instant_of(text: str | None, name: str) -> datetime | None:
    """Where a list goes on that is bounded by a date: an instant that it told. `InvalidInput` for anything else."""
    if text is None:
        return None
    try:
        at = parse_instant(text)
    except ValueError:
        at = None
    if at is None or not FIRST_YEAR <= at.year < MAXYEAR:  # no place for a microsecond or a second more
        raise InvalidInput(f"{name}: {text!r} is no instant of such a list, like 2013-01-01T05:00:00Z.")
    return at


def _opened(cursor: str) -> tuple[Any, Any, Any, Any]:
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        said, value, tie, mark = json.loads(text)
    except (binascii.Error, ValueError, TypeError, RecursionError):
        raise InvalidInput(_WRONG) from None
    return said, value, tie, mark


def _read(value: Any, kind: type, nullable: bool) -> Any:
    if value is None and nullable:
        return None
    if kind is datetime and isinstance(value, str):
        try:
            return parse_instant(value).astimezone(UTC)
        except (ValueError, OverflowError):
            raise InvalidInput(_WRONG) from None
    if type(value) is not kind or (isinstance(value, int) and not -(2**63) <= value < 2**63):
        raise InvalidInput(_WRONG)
    if isinstance(value, str) and any("\ud800" <= one <= "\udfff" for one in value):
        raise InvalidInput(_WRONG)
    return value
