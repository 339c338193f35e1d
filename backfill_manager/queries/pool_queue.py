"""Tasks that may start and wait for a slot, by the pool they wait for. The pool is written when a task is queued; before
that it follows from the definition and from what made the run (`states.pool_of`)."""

from __future__ import annotations

from collections import Counter
from typing import Final

from backfill_manager.errors import NotFound
from backfill_manager.model import states
from backfill_manager.model.records import Backfill, DagRun, TaskInstance
from backfill_manager.queries.dags import spec_reader
from backfill_manager.queries.runs import NOT_LISTED
from backfill_manager.store.base import Condition, Store

MOST: Final = 5000  # task instances that are looked at; only live runs have any


def waiting_by_pool(store: Store) -> dict[str, int]:
    """Pool -> task instances in the state `scheduled`."""
    ready = store.read(TaskInstance, [Condition("state", "=", states.SCHEDULED)], limit=MOST)
    if not ready:
        return {}
    runs = {
        run.key: run
        for run in store.read(DagRun, [Condition("state", "in", tuple(sorted(states.RUN_LIVE)))], without=NOT_LISTED)
    }
    ids = tuple({run.backfill_id for run in runs.values() if run.backfill_id})
    rows = store.read(Backfill, [Condition("backfill_id", "in", ids)]) if ids else []
    pool_of = {row.backfill_id: row.pool for row in rows}
    spec_of = spec_reader(store)
    found: Counter[str] = Counter()
    for ti in ready:
        run = runs.get((ti.dag_id, ti.run_id))
        if run is None:  # ended between the two looks
            continue
        try:
            task = spec_of(run.dag_id, run.dag_version).by_id.get(ti.task_id)
        except NotFound:
            continue
        found[states.pool_of(task.pool if task else None, pool_of.get(run.backfill_id or ""))] += 1
    return dict(found)
