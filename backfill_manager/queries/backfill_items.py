"""A backfill's items: pages of them, and one by its ordinal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from backfill_manager.errors import NotFound
from backfill_manager.model.records import Backfill, BackfillItem, DagRun
from backfill_manager.queries.documents import document
from backfill_manager.schemas import resources
from backfill_manager.store.base import Condition, Store, matching

Reverted = Mapping[str, datetime]  # by run


@dataclass(frozen=True)
class ItemPage:
    """`after` and `before`: the ordinals behind and ahead of which the next and the previous page lie, if there is one."""

    items: list[dict[str, Any]]
    after: int | None
    before: int | None


def list_items(
    store: Store, backfill_id: str, *, first: int = 1, last: int | None = None, in_states: Sequence[str] = (),
    after: int | None = None, before: int | None = None, limit: int | None = None,
    reverted: Callable[[], Reverted] | None = None,
) -> ItemPage:  # fmt: skip
    """Items by ordinal, of those in `[first, last]`: the first ones behind `after`, or the last ones ahead of `before`.
    `reverted` gives what `reverted_of` has read, where that is kept."""
    backwards = before is not None and after is None
    begins = first if after is None else max(first, after + 1)
    ends = last if before is None else before - 1 if last is None else min(last, before - 1)
    # Ordinals have no gap: the page's other end is known, other files are skipped.
    if limit is not None and not in_states:
        if backwards:
            begins = max(begins, (ends or 0) - limit)
        else:
            ends = begins + limit if ends is None else min(ends, begins + limit)
    where = [*matching(backfill_id=backfill_id, state=tuple(in_states)), Condition("ordinal", ">=", begins)]
    if ends is not None:
        where.append(Condition("ordinal", "<=", ends))
    order = ("-ordinal" if backwards else "ordinal",)
    rows = store.read(BackfillItem, where, order_by=order, limit=None if limit is None else limit + 1)
    more, rows = limit is not None and len(rows) > limit, rows[:limit]
    if backwards:
        rows.reverse()
    if not rows:
        return ItemPage([], None, None)
    # A page that was reached from another one has that one on its other side.
    has_next = more if not backwards else True
    has_previous = more if backwards else after is not None and after >= first
    items = _documents(rows, reverted or (lambda: reverted_of(store, backfill_id)))
    return ItemPage(items, rows[-1].ordinal if has_next else None, rows[0].ordinal if has_previous else None)


def find_item(store: Store, backfill_id: str, ordinal: int) -> dict[str, Any]:
    row = store.first(BackfillItem, matching(backfill_id=backfill_id, ordinal=ordinal))
    if row is None:
        raise NotFound(f"item of backfill {backfill_id} with the number", str(ordinal))
    return _documents([row], lambda: reverted_of(store, backfill_id))[0]


def reverted_of(store: Store, backfill_id: str) -> Reverted:
    """The reverted runs of the DAG of a backfill: when each was. No more are added without a new row of `response`."""
    backfill = store.first(Backfill, matching(backfill_id=backfill_id))
    if backfill is None:
        return {}
    where = [*matching(dag_id=backfill.dag_id), Condition("reverted_at", "not_null")]
    return {run.run_id: run.reverted_at for run in store.read(DagRun, where) if run.reverted_at is not None}


def _documents(rows: Sequence[BackfillItem], read_reverted: Callable[[], Reverted]) -> list[dict[str, Any]]:
    reverted = read_reverted() if any(row.run_id is not None for row in rows) else {}
    return [document(resources.Item.model_fields, row, reverted_at=reverted.get(row.run_id or "")) for row in rows]
