"""What a backfill, a clear or a mark would do, without doing it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from backfill_manager.schemas.resources.backfills import PlannedItem
from backfill_manager.schemas.resources.base import Instant, Resource, RunState, RunType, TaskState


class RenderedTask(Resource):
    """What a task will run."""

    task_id: str = Field(description="Id of the task.")
    kind: str = Field(description="`sql`, `python`, `executor` or `bash`.")
    sql: str | None = Field(description="For a `sql` task: its statements.")
    into: str | None = Field(description="Table that the rows of the last statement are written to.")
    mapped_value: Any = Field(description="For a mapped task: its value.")


class RenderedRun(Resource):
    """What the tasks of a run will see. Values whose names look like secrets are shown as `***`."""

    dag_id: str = Field(description="Id of the DAG.")
    run_id: str = Field(description="Id that the run would have as the first run of its date or partition.")
    logical_date: Instant | None = Field(description="Logical date. null for a partition.")
    interval_start: Instant | None = Field(description="Start of the data interval. null for a partition.")
    interval_end: Instant | None = Field(description="End of the data interval (exclusive). null for a partition.")
    partition_key: str | None = Field(description="Partition key. null for a date.")
    note: str | None = Field(None, description="Why the run has another date than the requested one.")
    params: dict[str, Any] = Field(description="Parameters of the DAG, overridden by those of the run.")
    sql_parameters: dict[str, str] = Field(
        description="Parameters that SQL uses as `:name`, each with its value as a Spark SQL literal.",
        examples=[{"interval_start": "TIMESTAMP '2013-01-05T05:00:00Z'"}],
    )
    tasks: tuple[RenderedTask, ...] = Field(description="Tasks, each after its upstream tasks.")


class Plan(Resource):
    """What a backfill would do."""

    items: tuple[PlannedItem, ...] = Field(description="Items that would be planned, in the order of the runs.")
    summary: dict[str, Any] = Field(description="Number of items, runs and days, by state and reason.")
    first_item: RenderedRun | None = Field(
        default=None, description="What the tasks of the first run would see. null if nothing would run."
    )
    downstream: tuple[dict[str, Any], ...] = Field(
        (),
        description="With `downstream`: the same for each downstream DAG, with its `dag_id` and the DAGs that it "
        "`waits_for`.",
    )


class ClearedTask(Resource):
    """A task instance that would be cleared."""

    task_id: str = Field(description="Id of the task.")
    state: TaskState = Field(description="Current state of the task instance.")


class ClearedRun(Resource):
    """A run with tasks that would be cleared."""

    dag_id: str = Field(description="Id of the DAG.")
    run_id: str = Field(description="Id of the run.")
    state: RunState = Field(description="Current state of the run.")
    tasks: tuple[ClearedTask, ...] = Field(description="Tasks that would be cleared.")
    stays: tuple[str, ...] = Field(
        description="Ids of downstream tasks that stay `upstream_failed`. Use `downstream` to clear them, too."
    )
    run_type: RunType = Field(description="What created the run.")
    logical_date: Instant | None = Field(description="Logical date of the run. null for a partition.")
    partition_key: str | None = Field(description="Partition key. null for a date.")
    dag_version: int = Field(description="DAG version of the run.")
    to_version: int | None = Field(description="Version that the run moves to. null: it keeps its version.")


class ClearPlan(Resource):
    """What a clear would change."""

    runs: tuple[ClearedRun, ...] = Field(description="Runs by DAG and logical date.")
    summary: dict[str, int] = Field(
        description="Number of runs and tasks that would be cleared, stopped first, or left as they are."
    )
    batches_left_out: tuple[str, ...] = Field(
        (),
        description="Ids of batch runs that contain some of the dates together with earlier ones. They are left as they "
        "are.",
    )


class MarkedRun(Resource):
    """A run that would be marked."""

    dag_id: str = Field(description="Id of the DAG.")
    run_id: str = Field(description="Id of the run.")
    state: RunState = Field(description="Current state of the run.")
    run_type: RunType = Field(description="What created the run.")
    logical_date: Instant | None = Field(description="Logical date of the run. null for a partition.")
    partition_key: str | None = Field(description="Partition key. null for a date.")


class MarkSummary(Resource):
    """Number of runs that a mark would change."""

    runs: int = Field(description="Number of runs that get the state.")
    unchanged: int = Field(description="Number of runs that already have the state and are left as they are.")
    running: int = Field(description="Number of the runs that are queued or running, and are stopped first.")
    by_state: dict[str, int] = Field(description="Number of the runs by current state.")


class MarkPlan(Resource):
    """What a mark of several runs would change."""

    state: Literal["success", "failed"] = Field(description="State that the runs get.")
    runs: tuple[MarkedRun, ...] = Field(description="Runs by logical date.")
    summary: MarkSummary = Field(description="Number of runs.")
    batches_left_out: tuple[str, ...] = Field(
        (),
        description="Ids of batch runs that contain some of the dates together with earlier ones. They are left as they "
        "are.",
    )
