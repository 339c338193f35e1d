"""Ends batches early in a pool in which scheduled runs wait for slots. Pure.

A slot is not taken from a task that runs. But a task of a scheduled run that has waited for a slot for `WAIT_S` shows that the
tasks of batches last too long there. For ten minutes from then on no batch is made in that pool that would take longer than
`YIELDING_TARGET_S`, and larger ones in which no task runs or is handed to the executor (between two tasks, or before the first)
end early: their items are pending again, and smaller runs take them. One whose next tasks wait for data goes on: it takes no
slot, and smaller runs would wait for the same data.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from backfill_manager.manager.decisions.auto_batch_inputs import YIELDING_TARGET_S, is_yielding
from backfill_manager.manager.decisions.item_outcomes import ENDED_EARLY
from backfill_manager.manager.decisions.runs import cancel_tasks, end_run
from backfill_manager.manager.state import ActiveBackfill, ActiveRun, ManagerState
from backfill_manager.manager.tick_context import Tick
from backfill_manager.model import states as s
from backfill_manager.model.pools import pool_of
from backfill_manager.planning.batches.auto_batch_size import cost_of

WAIT_S: Final = 30.0


def end_batches_early(tick: Tick) -> None:
    for pool in _waited_for(tick.state, tick.now):
        tick.state.waited_for[pool] = tick.now
    for live in tick.state.backfills.values():
        goes_on = not live.row.is_cancelled and not live.row.is_paused and live.row.waits_until is None
        if live.is_batch_auto and goes_on and is_yielding(tick, live):
            for run in _too_large(tick.state, live):
                cancel_tasks(tick, run, ENDED_EARLY)
                end_run(tick, run, s.CANCELLED, ENDED_EARLY)


def _waited_for(state: ManagerState, now: datetime) -> Iterator[str]:
    """Pools in which a task of a scheduled run waits for too long, as this leader sees it."""
    before, state.waiting_since = state.waiting_since, {}
    if not any(live.is_batch_auto for live in state.backfills.values()):
        return
    for run, ti in state.tasks():
        if ti.state in (s.SCHEDULED, s.QUEUED) and run.row.is_for_schedule and run.may_start:
            since = state.waiting_since[ti.key] = before.get(ti.key, now)
            if now - since >= timedelta(seconds=WAIT_S):
                yield pool_of(run.spec.task(ti.task_id).pool, None)


def _too_large(state: ManagerState, live: ActiveBackfill) -> list[ActiveRun]:
    """Its runs that would be made smaller now, in which nothing runs, and something is left to do."""
    cost = cost_of(live.past or [])
    if cost is None:
        return []
    most = cost.fitting(YIELDING_TARGET_S)
    active = [state.runs[key] for key, items in live.running.items() if len(items) > most and key in state.runs]
    at_rest = [run for run in active if not any(ti.state in s.TASK_STARTED for ti in run.tasks.values())]
    unfinished = [run for run in at_rest if any(ti.state not in s.TASK_FINISHED for ti in run.own_tasks)]
    may_work = [run for run in unfinished if run.is_working or not run.waits_for_data]
    return [run for run in may_work if not live.took_over(run.row)]
