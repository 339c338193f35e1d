"""The kinds of requests, and how one is answered. Imports nothing: every command of the command line may read it."""

from __future__ import annotations

from typing import Final

BACKFILL_CREATE: Final = "backfill.create"
BACKFILL_DRY_RUN: Final = "backfill.dry_run"  # answered with {"items": [...], "summary": {...}} as payload_json
BACKFILL_PAUSE: Final = "backfill.pause"
BACKFILL_UNPAUSE: Final = "backfill.unpause"
BACKFILL_CANCEL: Final = "backfill.cancel"
BACKFILL_SET: Final = "backfill.set"
BACKFILL_RETRY: Final = "backfill.retry"
BACKFILL_HIDE: Final = "backfill.hide"
BACKFILL_DIFF: Final = "backfill.diff"  # answered with {"tables": [...]} as payload_json
BACKFILL_PROMOTE: Final = "backfill.promote"  # answered with {"tables": [...]} as payload_json
BACKFILL_DISCARD: Final = "backfill.discard"
BACKFILL_REVERT: Final = (
    "backfill.revert"  # answered with {"tables": [...], "read_by": [...]} as payload_json, as is the next
)
RUN_REVERT: Final = "run.revert"
BACKFILL_NOTE: Final = "backfill.note"
RUN_NOTE: Final = "run.note"
POOL_SET: Final = "pool.set"
MANAGER_STOP: Final = "manager.stop"
MANAGER_STAND_BY: Final = "manager.stand_by"
STATE_COMPACT: Final = "state.compact"  # answered with {"files": {table: number}} as payload_json
STATE_PRUNE: Final = "state.prune"  # answered with {"pruned": {what: number}} as payload_json
DAG_PAUSE: Final = "dag.pause"
DAG_UNPAUSE: Final = "dag.unpause"
DAG_DEACTIVATE: Final = "dag.deactivate"
BUNDLE_PARSE: Final = "bundle.parse"
BUNDLE_DEACTIVATE: Final = "bundle.deactivate"
DAG_TRIGGER: Final = "dag.trigger"  # answered with the run's id as object_id
RUN_CANCEL: Final = "run.cancel"
RUN_MARK: Final = "run.mark"
RUNS_MARK: Final = "runs.mark"
TASK_RUN: Final = "task.run"  # answered with the external run's id as object_id
TASK_MARK: Final = "task.mark"
TASKS_CLEAR: Final = "tasks.clear"

ACCEPTED: Final = "accepted"
REFUSED: Final = "refused"
