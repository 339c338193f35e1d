"""A long list, cut into pages with numbers: for lists that are known whole. What grows without end is paged by a place in
it (`queries.paging`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Query

from backfill_manager.web import paths

PageNumber = Annotated[int, Query(ge=1, le=1_000_000)]


@dataclass(frozen=True)
class Paged:
    """One page: its `rows`, the numbers of the first and the last of them, how many there are, and its neighbours' links."""

    rows: Sequence[Any]
    first: int
    last: int
    total: int
    before: str | None
    after: str | None


def cut(rows: Sequence[Any], page: int, size: int, *address: str, name: str = "page", **chosen: Any) -> Paged:
    """The page of this number at `address`; the last one, where there are fewer: rows may have gone since the link was made.
    `chosen`: what else the address says, which the links keep."""
    page = max(1, min(page, -(-len(rows) // size)))
    begins = (page - 1) * size
    shown = rows[begins : begins + size]

    def link(to: int) -> str:
        return paths.to(*address, **chosen, **{name: to if to > 1 else None})

    return Paged(
        shown, begins + 1 if shown else 0, begins + len(shown), len(rows), link(page - 1) if page > 1 else None,
        link(page + 1) if begins + size < len(rows) else None,
    )  # fmt: skip
