"""How the items of a backfill end: as their run did, all at once when there is nothing left to wait for. Pure.

A batch that failed is tried again in halves, so that one poisoned day does not hold up the month: its items are pending
again, each half with a number that keeps it apart, down to single intervals. One that failed before it had begun (a
deadlock) is not: its halves would meet the same; nor is one that was there before and whose failed tasks ran again.
"""

from __future__ import annotations

from collections.abc import Sequence

from backfill_manager.manager.instructions import Instructions, MoveItems
from backfill_manager.manager.state import ActiveBackfill, ManagerState
from backfill_manager.model import states as s
from backfill_manager.model import transitions as c
from backfill_manager.model.records import BackfillItem, DagRun

SPLIT_REASON = "its batch failed; tried again in halves"


def end_items(state: ManagerState, live: ActiveBackfill, items: Sequence[BackfillItem], run: DagRun) -> None:
    """`run`, which has ended, had taken these items."""
    may_be_parted = len(items) > 1 and not live.took_over(run)
    if run.state == s.FAILED and may_be_parted and run.started_at is not None and not live.row.is_cancelled:
        _halve(state, live, items)
        return
    for item in items:
        state.put_item(live, item, c.item_ended(item, run.state, run.reason))


def _halve(state: ManagerState, live: ActiveBackfill, items: Sequence[BackfillItem]) -> None:
    middle = (len(items) + 1) // 2
    for half in (items[:middle], items[middle:]):
        for item in half:
            state.put_item(live, item, c.item_again(item, half[0].ordinal, SPLIT_REASON))
    live.pending.clear()  # read again, with the timeline round them, which may not be held any more


def close_pending(state: ManagerState, live: ActiveBackfill, end_state: str, reason: str, todo: Instructions) -> None:
    """Every item that is still pending ends so, in one statement."""
    todo.moves.append(MoveItems(live.row.backfill_id, s.PENDING, end_state, reason))
    live.counts[end_state] += live.counts[s.PENDING]
    live.counts[s.PENDING] = 0
    live.pending.clear()
    for item in state.changes.rows(BackfillItem.TABLE):  # pending only since this tick: the statement comes before them
        if isinstance(item, BackfillItem) and (item.backfill_id, item.state) == (live.row.backfill_id, s.PENDING):
            state.changes.put(c.item_ended(item, end_state, reason))
    forget_waits(state, live.row.backfill_id)


def reopen_failed(state: ManagerState, live: ActiveBackfill, todo: Instructions) -> int:
    """Every failed item is pending again, in one statement; returns how many."""
    failed = live.counts[s.FAILED]
    todo.moves.append(MoveItems(live.row.backfill_id, s.FAILED, s.PENDING, "tried again"))
    live.counts[s.PENDING] += failed
    live.counts[s.FAILED] = 0
    live.pending.clear()  # read again, in order
    forget_waits(state, live.row.backfill_id)
    return failed


def forget_waits(state: ManagerState, backfill_id: str) -> None:
    """Those that wait for this backfill's items read them again."""
    for other in state.backfills.values():
        if backfill_id in other.parents:
            other.waits = None
