"""Task instances, their tries with Spark's figures, check results and logs."""

from __future__ import annotations

from typing import Annotated, Any, get_args

from pydantic import Field

from backfill_manager.model import states
from backfill_manager.schemas.checks import CheckOutcome
from backfill_manager.schemas.resources.base import Instant, Page, Resource, TaskState

TryState = Annotated[str, Field(json_schema_extra={"enum": [*states.TASK_STATES, "lost"]})]


class TaskInstance(Resource):
    """A task in a run."""

    dag_id: str = Field(description="Id of the DAG.")
    run_id: str = Field(description="Id of the run.")
    task_id: str = Field(description="Id of the task.")
    state: TaskState = Field(description="State of the task instance. `none` until it may start.")
    try_number: int = Field(
        description="Number of the try: 1 from the first start. A crash of the manager does not increase it."
    )
    pool: str | None = Field(description="Pool whose slots it uses.")
    started_at: Instant | None = Field(description="When its last try started.")
    ended_at: Instant | None = Field(description="When its last try ended.")
    duration_s: float | None = Field(description="Duration of its last try, in seconds.")
    error: str | None = Field(description="Error of its last failed try.")
    rows_written: int | None = Field(
        description="Number of rows that its last success wrote to tables, by `ctx.write` and `ctx.merge`. null: it wrote "
        "nothing."
    )
    priority: int = Field(description="Priority. Tasks with a higher value start first.")
    failures: int = Field(description="Number of failed tries since it was last cleared.")
    queued_at: Instant | None = Field(description="When it was handed to the executor.")
    retry_at: Instant | None = Field(description="When the next try is due, while it is `up_for_retry`.")
    wait_ends_at: Instant | None = Field(
        description="When its `wait_limit` ends, while it waits for tables, files, rows or conditions."
    )
    result: Any = Field(description="What the task returned. null in lists if it is large.")
    result_chars: int | None = Field(description="Length of the result as JSON, in characters.")


class RunningTask(TaskInstance):
    """A task instance that is running."""

    for_s: float | None = Field(description="Seconds since it started.")


class _StageFigures(Resource):
    tasks: int = Field(description="Number of Spark tasks.")
    failed_tasks: int = Field(description="Number of failed attempts of Spark tasks.")
    task_s: float = Field(description="Total duration of all Spark tasks, in seconds.")
    input_rows: int = Field(description="Rows read from tables and files.")
    input_bytes: int = Field(description="Bytes read from tables and files.")
    output_rows: int = Field(description="Rows written to tables and files.")
    output_bytes: int = Field(description="Bytes written to tables and files.")
    shuffle_read_bytes: int = Field(description="Shuffle bytes read from earlier stages.")
    shuffle_write_bytes: int = Field(description="Shuffle bytes written for later stages.")
    spilled_bytes: int = Field(description="Bytes spilled to disk because memory was short.")


class SparkStage(_StageFigures):
    """A stage of the Spark jobs of a try, from Spark's status store."""

    stage_id: int = Field(description="Id of the stage within the Spark application.")
    attempt: int = Field(description="Number of the last attempt of the stage, from 0.")
    name: str = Field(description="Name of the stage in Spark: the call that created it.")
    status: str = Field(description="Status of the stage in Spark when the try ended: `complete`, `failed`, `active`.")
    duration_s: float | None = Field(description="Seconds from its start to its end. null: it had not ended.")
    skew: float | None = Field(
        description="Duration of its longest task divided by the median of all its tasks. null: it has one task, its tasks "
        "took less than 0.1 s together, or Spark has no figures."
    )


class SparkStages(_StageFigures):
    """Totals of the Spark stages of a try, and the longest stages."""

    jobs: int = Field(description="Number of Spark jobs that are included: the newest 100 at most.")
    stages: int = Field(description="Number of stages that ran and that Spark still knew at the end of the try.")
    longest: tuple[SparkStage, ...] = Field(
        description="The 20 longest stages, longest first. Empty in a list of several tasks; select a single task "
        "(`task_id`) to get them."
    )


class Try(Resource):
    """One start of a task that has ended."""

    task_id: str = Field(description="Id of the task.")
    try_number: int = Field(
        description="Number of the try. A try that was lost in a crash and its repetition have the same number."
    )
    launch: int = Field(description="Number of the start. Each start has its own.")
    term: int = Field(description="Term of the manager that ran it.")
    state: TryState = Field(description="How the try ended. `lost`: the manager that ran it ended.")
    pool: str | None = Field(description="Pool whose slots it used.")
    started_at: Instant | None = Field(description="When it started.")
    ended_at: Instant | None = Field(description="When it ended.")
    duration_s: float | None = Field(description="Seconds from its start to its end.")
    error: str | None = Field(description="Why it failed.")
    spark_jobs: tuple[int, ...] = Field(
        description="Ids of its known Spark jobs, in the Spark application of that term."
    )
    spark_stages: SparkStages | None = Field(
        None, description="Figures of its Spark stages. null: it ran none, or Spark did not answer."
    )


class RunTasks(Page[TaskInstance]):
    """All tasks of a run on one page. `next_cursor` is always null."""

    tries: tuple[Try, ...] = Field(description="All starts that have ended, in the order in which they started.")


class CheckResult(Resource):
    """The result of a check of the rows that a task was about to publish."""

    task_id: str = Field(description="Id of the task.")
    try_number: int = Field(description="Number of the try.")
    launch: int = Field(description="Number of the start. Each start has its own.")
    table: str = Field(description="Name of the table in the catalog, or its path.")
    condition: str = Field(description="The check as it was declared.")
    name: str | None = Field(description="Name of the check, if it has one.")
    outcome: str = Field(
        description="`failed`: nothing was published. `warned`: the rows were published although the check failed. "
        "`error`: the check could not be run. `skipped`: an earlier try had checked and published the rows.",
        json_schema_extra={"enum": list(get_args(CheckOutcome))},
    )
    rows: int | None = Field(description="Number of rows of the write. null: they were not checked.")
    failing_rows: int | None = Field(
        description="Number of rows that do not meet the check. null: the check is not about single rows."
    )
    value: float | None = Field(
        description="Number of rows, or the percentage above the mean of the preceding intervals."
    )
    message: str | None = Field(description="The finding in words.")
    at: Instant = Field(description="When the try ended.")


class LogLine(Resource):
    """One line of a task's log."""

    at: Instant = Field(description="When it was written.")
    level: str = Field(description="Log level: `INFO`, `WARNING`, ...")
    message: str = Field(description="Text of the line. Secrets are masked.")
    try_number: int = Field(description="Number of the try that wrote it.")
    launch: int = Field(description="Number of the start that wrote it.")
    line: int = Field(description="Line number within that start, from 1.")


class Log(Resource):
    """Lines of a task's log."""

    state: TaskState = Field(description="State of the task.")
    is_whole: bool = Field(
        description="Whether the log is complete. No lines are added any more, unless the task is cleared."
    )
    lines: tuple[LogLine, ...] = Field(description="Lines of the log, oldest first.")
    after: str | None = Field(description="Value of `after` for the next call, to continue after the last line.")
