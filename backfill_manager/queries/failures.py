"""Why the items of a backfill have failed: their tasks' errors, equal ones together."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from backfill_manager.errors import shorten
from backfill_manager.humanise import plural
from backfill_manager.masking import mask_text
from backfill_manager.model import states as s
from backfill_manager.model.records import BackfillItem, Notification, TaskInstance
from backfill_manager.store.base import Store, matching

MAX_ITEMS: Final = 5_000  # failed ones that are read, the first
MAX_GROUPS: Final = 5  # in a message
MAX_ERROR_CHARS: Final = 300
# What differs between errors that are alike: instants, numbers, hexadecimal ids.
_VARIES: Final = re.compile(r"\b[0-9a-f]{8,}\b|\d[\d:.T+Z-]*")


@dataclass(frozen=True)
class ErrorGroup:
    """Tasks of a backfill that have failed alike."""

    task_id: str
    error: str  # of the first of them
    count: int
    first_run_id: str  # where it is found


def alike(error: str) -> str:
    """The same text for errors that differ in nothing but instants, numbers and ids."""
    return _VARIES.sub("#", error)


def group_errors(store: Store, dag_id: str, backfill_id: str) -> list[ErrorGroup]:
    """The most frequent first; only of what has failed and was not run again since."""
    failed = matching(backfill_id=backfill_id, state=s.FAILED)
    items = store.read(BackfillItem, failed, order_by=["ordinal"], limit=MAX_ITEMS)
    run_ids = sorted({item.run_id for item in items if item.run_id})
    if not run_ids:
        return []
    where = matching(dag_id=dag_id, run_id=run_ids, state=s.FAILED)
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for ti in store.read(TaskInstance, where, order_by=["run_id", "task_id"]):
        error = mask_text(ti.error or "no error was recorded")
        group = found.setdefault((ti.task_id, alike(error)), {"error": error, "count": 0, "run_id": ti.run_id})
        group["count"] += 1
    groups = [ErrorGroup(task_id, one["error"], one["count"], one["run_id"]) for (task_id, _), one in found.items()]
    return sorted(groups, key=lambda group: -group.count)


def failures_of(store: Store, row: Notification) -> list[str]:
    """Lines for a message about a backfill that has failed, the most frequent errors first; else none."""
    if row.backfill_id is None or row.event == "done":
        return []
    groups = group_errors(store, row.dag_id, row.backfill_id)
    lines = [
        f"{plural(group.count, 'task')} {group.task_id} ({group.first_run_id}{', ...' if group.count > 1 else ''}): "
        + shorten(group.error, MAX_ERROR_CHARS)
        for group in groups[:MAX_GROUPS]
    ]
    return lines + ([f"and {plural(len(groups) - MAX_GROUPS, 'other error')}"] if len(groups) > MAX_GROUPS else [])
