"""`limit`, `cursor` and `order_by` of a list. A cursor is opaque to clients: base64url of JSON with the order and the
place (`queries.paging`), and is validated like all input."""

from __future__ import annotations

import base64
import json
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import MAXYEAR, datetime
from typing import Annotated, Any, Final, Literal

from fastapi import Depends, Query

from backfill_manager.clock import INSTANT_FORM, UTC, format_instant, parse_instant
from backfill_manager.dags.schedule.timezones import FIRST_YEAR
from backfill_manager.errors import InvalidInput
from backfill_manager.model.records import Record, columns
from backfill_manager.queries.paging import Order, Place

MAX_LIMIT: Final = 1000
MAX_CURSOR_LENGTH: Final = 20_000  # one may hold the id of a run, and that a partition key
Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Maximum number of rows.")]
Cursor = Annotated[
    str | None,
    Query(max_length=MAX_CURSOR_LENGTH, description="`next_cursor` of the previous page. Left out: the first page."),
]
Bound = Annotated[str | None, Query(max_length=40, description="Only intervals that start at this instant or later.")]


@dataclass(frozen=True)
class Paging:
    """Which page of a list is wanted."""

    limit: int
    cursor: str | None
    order_by: str

    def order(self, tie: str, **columns: str) -> Order:
        """`-created_at` as an `Order`; `columns` are those with another name than clients use."""
        name = self.order_by.removeprefix("-")
        return Order(columns.get(name, name), tie, self.order_by.startswith("-"))

    def after(self, record: type[Record], order: Order, *, marks: bool = False) -> Any:
        """The place behind which the page begins, None for the first page. With `marks` it may be a text instead, in a list
        with another part in front. Raises `InvalidInput` for anything but a cursor of this list in this order."""
        if self.cursor is None:
            return None
        with _refuse_invalid():
            value, tie, mark = self._decoded(self.cursor, marks)
            if mark:
                return mark
            kinds = columns(record)
            return _checked(value, *kinds[order.column]), _checked(tie, kinds[order.tie][0])

    def page(self, items: list[dict[str, Any]], last: Place | str | None) -> dict[str, Any]:
        """The JSON form of a page; `last` is the place (or mark) of its last row when there are more."""
        return {"items": items, "next_cursor": self.cursor_behind(last)}

    def cursor_behind(self, last: Place | str | None) -> str | None:
        if last is None:
            return None
        place = (None, None, last) if isinstance(last, str) else (*last, "")
        plain = [format_instant(one) if isinstance(one, datetime) else one for one in (self.order_by, *place)]
        text = json.dumps(plain, separators=(",", ":"))
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    def short_page(
        self, rows: Sequence[Any], *unique: str, tie_of: Callable[[Mapping[str, Any]], str] | None = None,
        value_of: Callable[[Any, str], Any] = operator.getitem,
        documents: Callable[[Sequence[Any]], list[dict[str, Any]]] = list,
    ) -> dict[str, Any]:  # fmt: skip
        """A page of a list that is short by nature: it is sorted and cut here. `unique`: columns that identify a row. `tie_of`
        makes the text that does, where rows of one value are not sorted by these. Where a row is not its own document,
        `value_of` gives the value of its column, and `documents` are made of those on the page."""
        column, descending = self.order_by.removeprefix("-"), self.order_by.startswith("-")

        def key(row: Any) -> tuple[Any, str]:
            return value_of(row, column), tie_of(row) if tie_of else "\n".join(
                str(value_of(row, name)) for name in unique
            )

        remaining = sorted(rows, key=key, reverse=descending)
        if self.cursor is not None:
            with _refuse_invalid():
                value, tie, _ = self._decoded(self.cursor)
                if not isinstance(tie, str):
                    raise TypeError(tie)
                place = (value, tie)
                remaining = [row for row in remaining if (key(row) < place if descending else key(row) > place)]
        items = remaining[: self.limit]
        return self.page(documents(items), key(items[-1]) if len(remaining) > self.limit else None)

    def _decoded(self, cursor: str, marks: bool = False) -> tuple[Any, Any, str]:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        ordered_by, value, tie, mark = json.loads(text)
        if ordered_by != self.order_by:
            other = ordered_by if isinstance(ordered_by, str) else "?"
            raise InvalidInput(f"cursor: it belongs to order_by={other}; keep the order.")
        if not isinstance(mark, str) or (mark and not marks):
            raise ValueError(mark)
        return value, tie, mark


@contextmanager
def _refuse_invalid() -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError, RecursionError, OverflowError):
        raise InvalidInput(
            "cursor: this is not a cursor of this list; leave it out to start with the first page."
        ) from None


def paged(*orders: str, limit: int = 200) -> Any:
    """The dependency of a handler on its `Paging`: the orders that its list has, the default first, and the default limit."""

    def paging(limit: Limit = limit, cursor: Cursor = None, order_by: Any = orders[0]) -> Paging:
        return Paging(limit, cursor, order_by)

    order = Query(description="Column to sort by. With `-`: in descending order.")
    paging.__annotations__["order_by"] = Annotated[Literal.__getitem__(orders), order]
    return Depends(paging)


def instant_of(text: str | None, name: str) -> datetime | None:
    """An instant that bounds a list. Raises `InvalidInput` for anything else."""
    if text is None:
        return None
    try:
        at = parse_instant(text)
    except ValueError:
        at = None
    if at is None or not FIRST_YEAR <= at.year < MAXYEAR:  # the bound is moved by a microsecond or a second
        raise InvalidInput(f"{name}: {text!r} is not an instant of such a list, {INSTANT_FORM}.")
    return at


def _checked(value: Any, kind: type, nullable: bool = False) -> Any:
    """A value of a cursor, which may be forged. Raises `ValueError`."""
    if value is None and nullable:
        return None
    if kind is datetime and isinstance(value, str):
        return parse_instant(value).astimezone(UTC)
    if type(value) is not kind or (isinstance(value, int) and not -(2**63) <= value < 2**63):
        raise ValueError(value)
    if isinstance(value, str) and any("\ud800" <= one <= "\udfff" for one in value):
        raise ValueError(value)
    return value
