"""One page of a backfill's items: a stretch of ordinals, some states of them, forwards or backwards from a place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from backfill_manager.errors import NotFound
from backfill_manager.model.records import BackfillItem
from backfill_manager.queries.backfills import item_view
from backfill_manager.store.base import Condition, Store


@dataclass(frozen=True)
class ItemPage:
    """`after` and `before`: the ordinals at which the next page and the one before it go on; None: there is none."""

    items: list[dict[str, Any]]
    after: int | None
    before: int | None


def page_of_items(
    store: Store,
    backfill_id: str,
    first: int,
    last: int,
    *,
    in_states: Sequence[str] = (),
    after: int | None = None,
    before: int | None = None,
    limit: int = 50,
) -> ItemPage:
    """Items with ordinals in `[first, last]`: those behind `after`, or the last ones ahead of `before`."""
    backwards = before is not None and after is None
    begins = first if after is None else max(first, after + 1)
    ends = last if before is None else min(last, before - 1)
    if not in_states:  # ordinals have no gap, so the page's other end is known, and other files are skipped
        begins, ends = (max(begins, ends - limit), ends) if backwards else (begins, min(ends, begins + limit))
    where = [
        Condition("backfill_id", "=", backfill_id),
        Condition("ordinal", ">=", begins),
        Condition("ordinal", "<=", ends),
    ]
    if in_states:
        where.append(Condition("state", "in", tuple(in_states)))
    rows = store.read(BackfillItem, where, order_by=("-ordinal" if backwards else "ordinal",), limit=limit + 1)
    more, rows = len(rows) > limit, rows[:limit]
    if backwards:
        rows.reverse()
    if not rows:
        return ItemPage([], None, None)
    # A page that was come to from another has that one on its other side.
    has_next = more if not backwards else True
    has_before = more if backwards else after is not None and after >= first
    return ItemPage(
        [item_view(row) for row in rows],
        rows[-1].ordinal if has_next else None,
        rows[0].ordinal if has_before else None,
    )


def find_item(store: Store, backfill_id: str, ordinal: int) -> dict[str, Any]:
    where = [Condition("backfill_id", "=", backfill_id), Condition("ordinal", "=", ordinal)]
    rows = store.read(BackfillItem, where, limit=1)
    if not rows:
        raise NotFound(f"item of backfill {backfill_id} with the number", str(ordinal))
    return item_view(rows[0])
