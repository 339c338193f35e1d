"""States and legal transitions, as data. Any other transition raises (`model.transitions`).

An unfinished task or run may be marked success or failed in any state. These transitions are not drawn.

task:      none ─► scheduled ─► queued ─► running ─► success | failed | skipped | cancelled
             ▲          ▲                    └─► up_for_retry ─► scheduled
             └── clear ── any finished       none ─► upstream_failed | skipped | removed
run:       queued ─► running ─► success | failed | cancelled          finished ─► queued (clear) | overridden
backfill:  queued ─► running ◄─► paused ─► success | failed | cancelled       finished ─► running (retry, clear)
item:      pending ─► running ─► success | failed | cancelled         pending ─► skipped | success | failed | cancelled
               ▲──────── halves of a batch, retry of what failed      success, failed, cancelled ─► running (its run was cleared)
"""

from __future__ import annotations

from typing import Final, Literal, get_args

# -- task instance ----------------------------------------------------------------------------------------------------
NONE: Final = "none"  # not started; waits for its upstream tasks
SCHEDULED: Final = "scheduled"  # may start; waits for a slot
QUEUED: Final = "queued"  # committed and handed to the executor
RUNNING: Final = "running"  # started
SUCCESS: Final = "success"  # ended successfully
FAILED: Final = "failed"  # its last try failed
UP_FOR_RETRY: Final = "up_for_retry"  # waits for its next try
UPSTREAM_FAILED: Final = "upstream_failed"  # its trigger rule can no longer be met
SKIPPED: Final = "skipped"  # left out: by the task itself, a trigger rule, or a selection of tasks
CANCELLED: Final = "cancelled"  # stopped on request
REMOVED: Final = "removed"  # a newer version of the DAG no longer contains it
# -- only runs, backfills, items --------------------------------------------------------------------------------------
OVERRIDDEN: Final = "overridden"  # a newer run of its date has replaced it
PAUSED: Final = "paused"  # starts no new runs
PROMOTED: Final = "promoted"  # of a preview, as the next two: its rows are in the tables, its runs in the timeline
DISCARDED: Final = "discarded"
EXPIRED: Final = "expired"
PENDING: Final = "pending"  # has no run yet
# -- managers ---------------------------------------------------------------------------------------------------------
LEADING: Final = "leading"
STOPPED: Final = "stopped"

TASK_STATES: Final = (
    NONE, SCHEDULED, QUEUED, RUNNING, SUCCESS, FAILED, UP_FOR_RETRY, UPSTREAM_FAILED, SKIPPED, CANCELLED, REMOVED,
)  # fmt: skip
RUN_STATES: Final = (QUEUED, RUNNING, SUCCESS, FAILED, CANCELLED, OVERRIDDEN)
BACKFILL_STATES: Final = (QUEUED, RUNNING, PAUSED, SUCCESS, FAILED, CANCELLED)
ITEM_STATES: Final = (PENDING, RUNNING, SUCCESS, FAILED, CANCELLED, SKIPPED)

STATES: Final = {
    "task_instance": TASK_STATES, "dag_run": RUN_STATES, "backfill": BACKFILL_STATES, "backfill_item": ITEM_STATES,
}  # fmt: skip

TASK_FINISHED: Final = frozenset({SUCCESS, FAILED, UPSTREAM_FAILED, SKIPPED, CANCELLED, REMOVED})
TASK_STARTED: Final = frozenset({QUEUED, RUNNING})
RUN_FINISHED: Final = frozenset({SUCCESS, FAILED, CANCELLED, OVERRIDDEN})
RUN_LIVE: Final = frozenset({QUEUED, RUNNING})
BACKFILL_FINISHED: Final = frozenset({SUCCESS, FAILED, CANCELLED})
ITEM_UNFINISHED: Final = (PENDING, RUNNING)

SCHEDULED_RUN: Final = "scheduled"
BACKFILL_RUN: Final = "backfill"
MANUAL_RUN: Final = "manual"
EXTERNAL_RUN: Final = "external"
PREVIEW_RUN: Final = "preview"  # of a backfill whose tables are clones; `backfill` once it is promoted
RUN_TYPES: Final = (SCHEDULED_RUN, BACKFILL_RUN, MANUAL_RUN, EXTERNAL_RUN, PREVIEW_RUN)
TIMELINE_RUN_TYPES: Final = (SCHEDULED_RUN, BACKFILL_RUN, MANUAL_RUN)


_MOVES: Final[dict[str, dict[str, str]]] = {
    "task_instance": {
        **dict.fromkeys(TASK_FINISHED, NONE),  # cleared
        NONE: "scheduled success failed skipped upstream_failed cancelled removed",
        SCHEDULED: "queued success failed skipped upstream_failed cancelled removed none",
        QUEUED: "running up_for_retry cancelled failed",
        RUNNING: "success failed up_for_retry skipped cancelled",
        UP_FOR_RETRY: "scheduled success failed skipped cancelled removed none",
    },
    "dag_run": {
        QUEUED: "running success failed cancelled",
        RUNNING: "success failed cancelled",
        **dict.fromkeys((SUCCESS, FAILED, CANCELLED), "queued overridden"),
    },
    "backfill": {
        QUEUED: "running paused success failed cancelled",
        RUNNING: "paused success failed cancelled",
        PAUSED: "running success failed cancelled",
        **dict.fromkeys(BACKFILL_FINISHED, RUNNING),
    },
    "backfill_item": {
        PENDING: "running skipped cancelled success failed",
        RUNNING: "success failed cancelled pending",
        SUCCESS: "running",
        FAILED: "pending running",
        CANCELLED: "running",
    },
}
LEGAL: Final[dict[str, frozenset[tuple[str, str]]]] = {
    table: frozenset((was, to) for was, targets in moves.items() for to in targets.split())
    for table, moves in _MOVES.items()
}

# When a task may start, by the states of those before it (manager.trigger_rules).
TriggerRule = Literal[
    "all_success", "all_failed", "all_done", "one_success", "one_failed",
    "none_failed", "none_failed_min_one_success", "none_skipped", "always",
]  # fmt: skip
TRIGGER_RULES: Final[tuple[str, ...]] = get_args(TriggerRule)

# What a write of a task does with the rows that are in the table (execution.delta_write).
WriteMode = Literal["replace", "append", "overwrite"]
