"""Lists page by page: each page is read by a range, so that the last of a million rows costs what the first does.

A place in a list is what its last row has in the column that orders it, and in `tie`, which no two rows share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from backfill_manager.store.base import Condition, Operator, R, Store


@dataclass(frozen=True)
class Order:
    """By `column`, then by `tie`, in the same direction; rows without a value come last."""

    column: str
    tie: str
    descending: bool = False

    @property
    def by(self) -> tuple[str, ...]:
        sign = "-" if self.descending else ""
        return (f"{sign}{self.tie}",) if self.column == self.tie else (f"{sign}{self.column}", f"{sign}{self.tie}")

    def place(self, row: object) -> tuple[Any, Any]:
        return getattr(row, self.column), getattr(row, self.tie)


def read_page(
    store: Store,
    record: type[R],
    where: Sequence[Condition],
    order: Order,
    limit: int,
    after: tuple[Any, Any] | None,
    *,
    without: Sequence[str] = (),
) -> list[R]:
    """Up to `limit` rows behind the place `after` (None: from the beginning). `without`: columns that are not read."""
    if after is None:
        return store.read(record, where, order_by=order.by, limit=limit, without=without)
    found: list[R] = []
    for more in _behind(order, *after):
        if len(found) < limit:
            found += store.read(record, [*where, *more], order_by=order.by, limit=limit - len(found), without=without)
    return found


def _behind(order: Order, value: Any, tie: Any) -> list[list[Condition]]:
    """What lies behind a place, part by part: the same value, further ones, none."""
    further: Operator = "<" if order.descending else ">"
    if order.column == order.tie:
        return [[Condition(order.tie, further, tie)]]
    if value is None:
        return [[Condition(order.column, "is_null"), Condition(order.tie, further, tie)]]
    return [
        [Condition(order.column, "=", value), Condition(order.tie, further, tie)],
        [Condition(order.column, further, value)],
        [Condition(order.column, "is_null")],
    ]
