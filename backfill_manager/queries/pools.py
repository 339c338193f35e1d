"""Pools, the slots in use, and the tasks that wait for one."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from backfill_manager.dags.stored_definition import definition_or_why
from backfill_manager.errors import NotFound
from backfill_manager.model import states
from backfill_manager.model.pools import pool_of
from backfill_manager.model.records import Backfill, DagRun, DagVersion, Pool, TaskInstance
from backfill_manager.queries.dags import spec_reader
from backfill_manager.queries.documents import document
from backfill_manager.queries.runs import NOT_LISTED
from backfill_manager.schemas import resources
from backfill_manager.store.base import Condition, Store, matching

MAX_WAITING_READ: Final = 5000  # task instances; only live runs have any


def list_pools(store: Store) -> list[dict[str, Any]]:
    """`used` counts the slots of tasks that run (one may take several); `queued` and `running` count task instances. One that is
    queued waits for its slot in the executor: more are handed to it than a pool has slots."""
    where = matching(state=(states.QUEUED, states.RUNNING))
    held = store.count("task_instance", ("pool", "dag_id", "task_id", "state"), where)
    weights = _weights(store, {dag_id for _, dag_id, _, _ in held})
    tasks: Counter[tuple[str, str]] = Counter()
    slots: Counter[str] = Counter()
    for (pool, dag_id, task_id, state), number in held.items():
        tasks[pool, state] += number
        if state == states.RUNNING:
            slots[pool] += number * weights.get((dag_id, task_id), 1)
    return [
        document(
            resources.Pool.model_fields, row, used=slots[row.name], free=max(row.slots - slots[row.name], 0),
            queued=tasks[row.name, states.QUEUED], running=tasks[row.name, states.RUNNING],
        )
        for row in store.read(Pool, order_by=("name",))
    ]  # fmt: skip


def _weights(store: Store, dag_ids: set[str]) -> dict[tuple[str, str], int]:
    """By the newest version of each DAG; a task that is gone from it counts as one slot."""
    if not dag_ids:
        return {}
    versions = store.read(DagVersion, [Condition("dag_id", "in", tuple(dag_ids))], order_by=("version",))
    newest = {row.dag_id: row for row in versions}
    return {
        (dag_id, task.task_id): task.weight for dag_id, row in newest.items() for task in definition_or_why(row).tasks
    }


def waiting_by_pool(store: Store) -> dict[str, int]:
    """Pool -> task instances in the state `scheduled`."""
    ready = store.read(TaskInstance, matching(state=states.SCHEDULED), limit=MAX_WAITING_READ)
    if not ready:
        return {}
    live = store.read(DagRun, matching(state=sorted(states.RUN_LIVE)), without=NOT_LISTED)
    runs = {run.key: run for run in live}
    ids = tuple({run.backfill_id for run in runs.values() if run.backfill_id})
    rows = store.read(Backfill, [Condition("backfill_id", "in", ids)]) if ids else []
    pools = {row.backfill_id: row.pool for row in rows}
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
        of_backfill = pools.get(run.backfill_id) if run.backfill_id else None
        found[pool_of(task.pool if task else None, of_backfill)] += 1
    return dict(found)
