"""Reads a list page by page, each by a range, so that the last page of a million rows costs what the first does; and finds
one of a list by what a person types: its id, a unique prefix of it, or `latest`.

A place in a list is the value of its last row in the column that orders it, and in `tie`, which no two rows share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from backfill_manager.errors import Ambiguous, NotFound
from backfill_manager.store.base import Condition, Operator, R, Store

Place = tuple[Any, Any]
LATEST: Final = "latest"
MAX_LISTED_IDS: Final = 1000  # ids in one condition; for more, all rows are read


class Page(NamedTuple):
    """`after` is the place at which the next page begins, None on the last page."""

    items: list[dict[str, Any]]
    after: Any = None


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

    def place(self, row: object) -> Place:
        return getattr(row, self.column), getattr(row, self.tie)

    def arranged(self, rows: Iterable[R]) -> list[R]:
        """The same order for rows that have been read in several parts."""
        listed = list(rows)
        valued = [row for row in listed if getattr(row, self.column) is not None]
        others = [row for row in listed if getattr(row, self.column) is None]
        valued.sort(key=self.place, reverse=self.descending)
        others.sort(key=lambda row: getattr(row, self.tie), reverse=self.descending)
        return valued + others


@dataclass(frozen=True)
class Slice:
    """The part of a list to read: up to `limit` rows in `order`, behind the place `after` (None: from the beginning)."""

    order: Order
    limit: int | None = None
    after: Place | None = None

    def read(
        self, store: Store, record: type[R], where: Sequence[Condition], without: Sequence[str] = ()
    ) -> tuple[list[R], Place | None]:
        """The rows, and the place of the last one if more follow. `without`: columns that are not read."""
        limit = None if self.limit is None else self.limit + 1
        rows: list[R] = []
        for part in [[]] if self.after is None else _behind(self.order, *self.after):
            left = None if limit is None else limit - len(rows)
            if left != 0:
                rows += store.read(record, [*where, *part], order_by=self.order.by, limit=left, without=without)
        if self.limit is None or len(rows) <= self.limit:
            return rows, None
        return rows[: self.limit], self.order.place(rows[self.limit - 1])

    def read_any(
        self, store: Store, record: type[R], either: Iterable[Sequence[Condition]], without: Sequence[str] = ()
    ) -> tuple[list[R], Place | None]:
        """`read` of the rows that fit one of several filters, of which no row fits two."""
        parts = [self.read(store, record, where, without) for where in either]
        rows = self.order.arranged(row for part, _ in parts for row in part)
        more = any(place is not None for _, place in parts) or (self.limit is not None and len(rows) > self.limit)
        rows = rows[: self.limit]
        return rows, self.order.place(rows[-1]) if more and rows else None

    def page(
        self, store: Store, record: type[R], where: Sequence[Condition], view: Callable[[R], dict[str, Any]],
        without: Sequence[str] = (),
    ) -> Page:  # fmt: skip
        """The same as a page of documents."""
        rows, after = self.read(store, record, where, without)
        return Page([view(row) for row in rows], after)


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


def choose(kind: str, id_or_prefix: str, newest_first: Sequence[str], hint: str | None = None) -> str:
    """The one id that `id_or_prefix` means. `NotFound` offers the nearest, `Ambiguous` lists those that begin so."""
    if id_or_prefix == LATEST:
        if newest_first:
            return newest_first[0]
        raise NotFound(kind, id_or_prefix, hint=hint, more=f"; there is no {kind} at all.")
    if id_or_prefix in newest_first:
        return id_or_prefix
    matches = [one for one in newest_first if id_or_prefix and one.startswith(id_or_prefix)]
    if not matches:
        raise NotFound(kind, id_or_prefix, newest_first, hint)
    if len(matches) > 1:
        raise Ambiguous(kind, id_or_prefix, matches)
    return matches[0]
