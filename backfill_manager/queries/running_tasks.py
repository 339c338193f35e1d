"""What of a backfill runs at this moment."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from backfill_manager.model import states
from backfill_manager.model.records import DagRun, TaskInstance
from backfill_manager.queries.runs import NOT_LISTED
from backfill_manager.queries.tasks import listed_task
from backfill_manager.store.base import Condition, Store


def running_tasks(store: Store, backfill: Mapping[str, Any], now: datetime) -> list[dict[str, Any]]:
    """Task instances of the backfill that run now, longest first, with `for_s` seconds."""
    if not backfill["running"]:
        return []
    of_it = [Condition("backfill_id", "=", backfill["backfill_id"]), Condition("state", "=", states.RUNNING)]
    runs = store.read(DagRun, of_it, without=NOT_LISTED)
    if not runs:
        return []
    where = [
        Condition("run_seq", ">=", min(run.run_seq for run in runs)),
        Condition("dag_id", "=", backfill["dag_id"]),
        Condition("run_id", "in", tuple(run.run_id for run in runs)),
        Condition("state", "=", states.RUNNING),
    ]
    return [
        {**listed_task(row), "for_s": None if row.started_at is None else (now - row.started_at).total_seconds()}
        for row in store.read(TaskInstance, where, order_by=("started_at",))
    ]
