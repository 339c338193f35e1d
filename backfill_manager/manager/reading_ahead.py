"""What decisions will need next is read from the tables before they are made: they themselves read nothing.

Only between commits, when the tables say all that memory says. Bounded: a window of pending items for each backfill, the
stretch of timeline round it, and the last states of runs that a live run depends on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from backfill_manager.manager.working_set import Alive, LiveBackfill
from backfill_manager.model import states as s
from backfill_manager.model.records import BackfillItem, DagRun, TaskInstance
from backfill_manager.planning.timeline import Stretch
from backfill_manager.store.contract import Condition, Store

WINDOW = 500  # pending items held for one backfill


def read_ahead(alive: Alive, store: Store) -> bool:
    """Bring in what is missing; True if anything was (then there may be something new to decide)."""
    found = False
    for live in alive.backfills.values():
        if live.window_is_short and len(live.pending) < min(live.row.max_active_runs, WINDOW // 2):
            refill(live, store)
            found = True
    for run in alive.runs.values():
        previous = (run.row.dag_id, run.row.previous_run_id or "")
        if run.past is None and run.needs_past and previous not in alive.runs:
            run.past = {
                ti.task_id: ti.state
                for ti in store.read(
                    TaskInstance, [Condition("dag_id", "=", previous[0]), Condition("run_id", "=", previous[1])]
                )
            }
            found = True
    return found


def refill(live: LiveBackfill, store: Store) -> None:
    """The next pending items, and the timeline that they will stand in."""
    where = [Condition("backfill_id", "=", live.row.backfill_id), Condition("state", "=", s.PENDING)]
    live.pending = deque(store.read(BackfillItem, where, order_by=["ordinal"], limit=WINDOW))
    if live.pending:
        live.stretch = Stretch.of(timeline_around(live.row.dag_id, live.pending, store))


def timeline_around(dag_id: str, items: Sequence[BackfillItem], store: Store) -> list[DagRun]:
    """Runs of the timeline on the items' dates or keys, between them, and the nearest one on either side."""
    base = [
        Condition("dag_id", "=", dag_id),
        Condition("state", "!=", s.OVERRIDDEN),
        Condition("run_type", "!=", s.EXTERNAL_RUN),
    ]
    keys = [item.partition_key for item in items if item.partition_key is not None]
    dates = [item.logical_date for item in items if item.logical_date is not None]
    found: list[DagRun] = []
    if keys:
        found += store.read(DagRun, [*base, Condition("partition_key", "in", keys)])
    if dates:
        first, last = min(dates), max(dates)
        between = [Condition("logical_date", ">=", first), Condition("logical_date", "<=", last)]
        found += store.read(DagRun, [*base, *between])
        for operator, edge, order in (("<", first, "-logical_date"), (">", last, "logical_date")):
            beyond = Condition("logical_date", operator, edge)  # type: ignore[arg-type]
            found += store.read(DagRun, [*base, beyond], order_by=[order], limit=1)
    return found
