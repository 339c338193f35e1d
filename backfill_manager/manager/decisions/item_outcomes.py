"""How the items of a backfill end: as their run did, or all at once when there is nothing left to wait for. Pure.

A batch that failed is retried in halves, so that one bad day does not fail the month: its items are pending again, each half
with a number that keeps it apart, down to single intervals. A batch that failed before it had started (a deadlock) is not, as
its halves would fail alike; nor is an existing run whose failed tasks ran again, nor one that failed by a mark. The items
of a batch that ended early for scheduled runs (`end_batches_early`) are pending again, too, and are joined anew.
"""

from __future__ import annotations

from collections.abc import Sequence

from backfill_manager.manager.decisions.notification_rules import DEADLOCK
from backfill_manager.manager.state import ActiveBackfill, ManagerState
from backfill_manager.manager.tick_context import MoveItems, Tick
from backfill_manager.model import states as s
from backfill_manager.model import transitions as c
from backfill_manager.model.records import BackfillItem, DagRun
from backfill_manager.number_ranges import Ranges

SPLIT_REASON = "its batch failed; retried in halves"
MARKED_FAILED = "marked failed by "
ENDED_EARLY = "its batch ended early, as a scheduled run had waited for a slot; smaller batches take its intervals"


def was_marked_failed(run: DagRun) -> bool:
    """Whether a person has said so of the run: known by its reason after a crash, too."""
    return (run.reason or "").startswith(MARKED_FAILED)


def end_items(
    state: ManagerState, live: ActiveBackfill, items: Sequence[BackfillItem], run: DagRun, *, by_mark: bool = False
) -> None:  # fmt: skip
    """Ends the items that `run`, which has ended, had taken. The reason of a deadlock is the backfill's, too: a crash may have
    come between the run and its backfill. `by_mark`: it had ended before, and has done nothing since but be marked."""
    if run.state == s.FAILED and live.row.reason is None and _is_deadlocked(run):
        state.put(live.row.evolve(reason=run.reason))
    if run.state == s.FAILED and not by_mark and _may_be_split(live, items, run):
        middle = (len(items) + 1) // 2
        for half in (items[:middle], items[middle:]):
            for item in half:
                state.put_item(live, item, c.item_again(item, half[0].ordinal, SPLIT_REASON))
        live.pending.clear()  # read again, with the timeline around them
        return
    # Known by it after a crash, too.
    if run.state == s.CANCELLED and run.reason == ENDED_EARLY and not live.row.is_cancelled:
        for item in items:
            state.put_item(live, item, c.item_again(item, None, ENDED_EARLY))
        live.pending.clear()
        return
    ended, reason = run.state, run.reason
    if ended not in s.RUN_FINISHED:  # somebody else wrote it
        ended, reason = s.FAILED, f"its run {run.run_id} has the unknown state {run.state!r}"
    for item in items:
        state.put_item(live, item, c.item_ended(item, ended, reason))


def is_split_if_it_fails(state: ManagerState, run: DagRun) -> bool:
    """Whether its items are tried again in halves."""
    live = state.owner_of(run)
    return live is not None and _may_be_split(live, live.running.get(run.key, ()), run)


def _may_be_split(live: ActiveBackfill, items: Sequence[BackfillItem], run: DagRun) -> bool:
    if len(items) < 2 or was_marked_failed(run) or live.took_over(run) or live.row.is_cancelled:
        return False
    return run.started_at is not None or not _is_deadlocked(run)


def _is_deadlocked(run: DagRun) -> bool:
    return (run.reason or "").startswith(DEADLOCK)


def batch_of_half(item: BackfillItem) -> str | None:
    """Id of the failed run of which a pending item is to run again in a half."""
    return item.run_id if item.reason == SPLIT_REASON else None


def close_pending(
    tick: Tick, live: ActiveBackfill, end_state: str, reason: str, ranges: Ranges | None = None, number: int | None = None
) -> None:  # fmt: skip
    """Ends every pending item in this state, in one statement. `ranges`: where they all are, if the tables may have others as
    pending, which have begun in this tick; where only some of them are, with their `number`. None is pending since this tick:
    a backfill whose items are (`end_items`) makes no run, and its runs wait, until they have been read."""
    _move(tick, live, s.PENDING, end_state, reason, ranges, number)


def reopen_failed(tick: Tick, live: ActiveBackfill, chosen: Sequence[int] | None = None, ranges: Ranges = ()) -> int:
    """Makes every failed item pending again, in one statement; returns how many. `chosen`: of the failed items only those
    with these numbers, which lie in `ranges`."""
    if chosen is None:
        return _move(tick, live, s.FAILED, s.PENDING, "retried")
    return _move(tick, live, s.FAILED, s.PENDING, "retried", ranges, len(chosen)) if chosen else 0


def _move(
    tick: Tick, live: ActiveBackfill, was: str, now: str, reason: str, ranges: Ranges | None = None, number: int | None = None
) -> int:  # fmt: skip
    """`number`: how many are in the ranges; None: all in the state `was`."""
    tick.moves.append(MoveItems(live.row.backfill_id, was, now, reason, ranges))
    moved = live.counts[was] if number is None else number
    live.counts[now] += moved
    live.counts[was] -= moved
    live.pending.clear()  # what is pending now is read again, in order
    forget_dependencies(tick.state, live.row.backfill_id)
    return moved


def forget_dependencies(state: ManagerState, backfill_id: str) -> None:
    """Has backfills that wait for items of this one read them again."""
    for other in state.backfills.values():
        if backfill_id in other.parents:
            other.waits = None
