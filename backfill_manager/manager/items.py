"""How the items of a backfill end: as their run did, or all at once when there is nothing left to wait for. Pure.

A batch that failed is retried in halves, so that one bad day does not fail the month: its items are pending again, each half
with a number that keeps it apart, down to single intervals. A batch that failed before it had started (a deadlock) is not, as
its halves would fail alike; nor is an existing run whose failed tasks ran again.
"""

from __future__ import annotations

from collections.abc import Sequence

from backfill_manager.manager.instructions import Instructions, MoveItems
from backfill_manager.manager.state import ActiveBackfill, ManagerState
from backfill_manager.model import states as s
from backfill_manager.model import transitions as c
from backfill_manager.model.records import BackfillItem, DagRun

SPLIT_REASON = "its batch failed; retried in halves"


def end_items(state: ManagerState, live: ActiveBackfill, items: Sequence[BackfillItem], run: DagRun) -> None:
    """Ends the items that `run`, which has ended, had taken."""
    may_be_split = len(items) > 1 and not live.took_over(run)
    if run.state == s.FAILED and may_be_split and run.started_at is not None and not live.row.is_cancelled:
        _split(state, live, items)
        return
    for item in items:
        state.put_item(live, item, c.item_ended(item, run.state, run.reason))


def _split(state: ManagerState, live: ActiveBackfill, items: Sequence[BackfillItem]) -> None:
    middle = (len(items) + 1) // 2
    for half in (items[:middle], items[middle:]):
        for item in half:
            state.put_item(live, item, c.item_again(item, half[0].ordinal, SPLIT_REASON))
    live.pending.clear()  # read again, with the timeline around them


def close_pending(state: ManagerState, live: ActiveBackfill, end_state: str, reason: str, todo: Instructions) -> None:
    """Ends every pending item in this state, in one statement."""
    todo.moves.append(MoveItems(live.row.backfill_id, s.PENDING, end_state, reason))
    live.counts[end_state] += live.counts[s.PENDING]
    live.counts[s.PENDING] = 0
    live.pending.clear()
    for item in state.changes.rows(BackfillItem.TABLE):  # pending since this tick only: the statement comes before them
        if isinstance(item, BackfillItem) and (item.backfill_id, item.state) == (live.row.backfill_id, s.PENDING):
            state.changes.put(c.item_ended(item, end_state, reason))
    forget_dependencies(state, live.row.backfill_id)


def reopen_failed(state: ManagerState, live: ActiveBackfill, todo: Instructions) -> int:
    """Makes every failed item pending again, in one statement; returns how many."""
    failed = live.counts[s.FAILED]
    todo.moves.append(MoveItems(live.row.backfill_id, s.FAILED, s.PENDING, "retried"))
    live.counts[s.PENDING] += failed
    live.counts[s.FAILED] = 0
    live.pending.clear()  # read again, in order
    forget_dependencies(state, live.row.backfill_id)
    return failed


def forget_dependencies(state: ManagerState, backfill_id: str) -> None:
    """Has backfills that wait for items of this one read them again."""
    for other in state.backfills.values():
        if backfill_id in other.parents:
            other.waits = None
