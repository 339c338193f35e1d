"""Runs, the timeline of a DAG and its grid."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from backfill_manager.schemas.resources.base import (
    Instant,
    Note,
    NoteAt,
    NoteBy,
    Resource,
    RunState,
    RunType,
    TaskState,
)


class Run(Resource):
    """A DAG run of any type."""

    run_id: str = Field(description="Id of the run, unique within its DAG.")
    dag_id: str = Field(description="Id of the DAG.")
    run_type: RunType = Field(description="What created the run.")
    state: RunState = Field(description="State of the run. `overridden`: a newer run of the same date has replaced it.")
    logical_date: Instant | None = Field(description="Logical date of the run. null for a partition.")
    interval_start: Instant | None = Field(description="Start of its data interval.")
    interval_end: Instant | None = Field(description="End of its data interval (exclusive).")
    partition_key: str | None = Field(description="Partition key. null for a date.")
    previous_run_id: str | None = Field(
        description="Id of the previous run in the timeline, for which `depends_on_past` waits."
    )
    overridden_by: str | None = Field(description="Id of the run that has replaced it.")
    backfill_id: str | None = Field(description="Id of the backfill that created it.")
    dag_version: int = Field(description="Version of the DAG that it runs.")
    started_at: Instant | None = Field(description="When its first task started.")
    ended_at: Instant | None = Field(description="When its last task ended.")
    duration_s: float | None = Field(description="Seconds from its start to its end.")
    reason: str | None = Field(description="Why it is in its state, if there is more to say.")
    ordinal: int | None = Field(description="Ordinal of its item in the backfill. For a batch: of the first item.")
    items: int = Field(description="Number of intervals that it processes together.")
    is_partial: bool | None = Field(
        description="Whether tasks were left out on request. A backfill of all tasks treats the date of such a run as "
        "missing. null: created by an older release."
    )
    reverted_at: Instant | None = Field(
        description="When the run was reverted. Since then its tables contain the rows from before the run, and the run "
        "no longer counts."
    )
    reverted_by: str | None = Field(description="Id of the request that reverted it.")
    restored_run_id: str | None = Field(
        description="For a reverted run: id of the earlier run whose rows were restored. The date then counts as done. "
        "null: the date is missing."
    )
    created_at: Instant = Field(description="When the manager created it.")
    note: Note = None
    note_by: NoteBy = None
    note_at: NoteAt = None


class RunDetails(Run):
    """A run with the fields that lists leave out because they may be large."""

    conf: dict[str, Any] = Field(description="Parameters of the run.")


class TimelineRun(Run):
    """A run in the timeline of its DAG."""

    overridden: tuple[TimelineRun, ...] = Field(description="Runs that it has replaced, newest first.")


class Cell(Resource):
    """A task in one run of the grid."""

    state: TaskState = Field(description="State of the task in the run.")
    try_number: int = Field(description="Number of the try. 0 before the first start.")
    started_at: Instant | None = Field(description="When its last try started.")
    duration_s: float | None = Field(description="Duration of its last try, in seconds.")


class GridRun(Run):
    """A run with the state of each of its tasks."""

    cells: dict[str, Cell] = Field(description="Tasks of the run, by task id.")


class GridTask(Resource):
    """A task in the grid."""

    task_id: str = Field(description="Id of the task.")
    is_current: bool = Field(
        description="Whether the current version of the DAG contains it, or creates it in its runs by mapping."
    )
    mapped_from: str | None = Field(
        description="For a task that is mapped over a result in runs: id of the task from which it is mapped."
    )


class Grid(Resource):
    """Runs of a DAG and their tasks."""

    order: Literal["date", "made"] = Field(
        description="Order of the runs: by logical date (`date`) or by creation (`made`)."
    )
    runs: tuple[GridRun, ...] = Field(description="Runs, oldest first.")
    tasks: tuple[GridTask, ...] = Field(
        description="Tasks of the current version in its order, each followed by the tasks that are mapped from it in "
        "these runs. Tasks that only older runs had come last."
    )
    next_cursor: str | None = Field(description="`cursor` of the page with older runs. null if there are none.")
