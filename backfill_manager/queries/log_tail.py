"""The end of a task's log: a page shows that first, and follows from there with `tasks.list_log_lines(after=...)`."""

from __future__ import annotations

from typing import Any

from backfill_manager.model.records import DagRun, TaskLog
from backfill_manager.queries.tasks import log_view
from backfill_manager.store.base import Condition, Store


def log_tail(
    store: Store, run: DagRun, task_id: str, *, try_number: int | None = None, limit: int = 1000
) -> tuple[list[dict[str, Any]], bool]:
    """The last `limit` lines, oldest first, and whether there are earlier ones."""
    where = [
        Condition("run_seq", "=", run.run_seq),
        Condition("dag_id", "=", run.dag_id),
        Condition("run_id", "=", run.run_id),
        Condition("task_id", "=", task_id),
    ]
    if try_number is not None:
        where.append(Condition("try_number", "=", try_number))
    rows = store.read(TaskLog, where, order_by=("-launch", "-line"), limit=limit + 1)
    return [log_view(row) for row in rows[:limit][::-1]], len(rows) > limit
