"""Everything that is shown: what the API answers, what the client gives, and what docs/reference lists.

A new field is declared here and filled in `queries/`. Frozen; a newer server may send more fields, which are kept and can be read
as attributes.
Instants are aware UTC datetimes, in JSON ISO-8601 with `Z`; `_s` is seconds, `_ms` milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Generic, Literal, TypeVar, get_args

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, GetJsonSchemaHandler, PlainSerializer
from pydantic_core import core_schema

from backfill_manager.clock import format_instant
from backfill_manager.model import states
from backfill_manager.schemas.backfill_options import BackfillConfig, LargeUpdatableOptions, UpdatableOptions
from backfill_manager.schemas.checks import CheckOutcome
from backfill_manager.schemas.findings import FINDINGS

Document = dict[str, Any]
Instant = Annotated[
    AwareDatetime, PlainSerializer(format_instant, return_type=str),
    Field(json_schema_extra={"format": "date-time"}, examples=["2013-01-01T05:00:00Z"]),
]  # fmt: skip
# Texts, so that a client reads a state that a newer server has; the schema lists those of this release.
RunState = Annotated[str, Field(json_schema_extra={"enum": list(states.RUN_STATES)})]
RunType = Annotated[str, Field(json_schema_extra={"enum": list(states.RUN_TYPES)})]
BackfillState = Annotated[str, Field(json_schema_extra={"enum": list(states.BACKFILL_STATES)})]
ItemState = Annotated[str, Field(json_schema_extra={"enum": list(states.ITEM_STATES)})]
TaskState = Annotated[str, Field(json_schema_extra={"enum": list(states.TASK_STATES)})]
TryState = Annotated[str, Field(json_schema_extra={"enum": [*states.TASK_STATES, "lost"]})]
Reprocess = Annotated[str, Field(json_schema_extra={"enum": ["none", "failed", "failed_tasks", "completed"]})]
Note = Annotated[str | None, Field(description="Note that a person has added.")]
NoteBy = Annotated[str | None, Field(description="User who last changed the note.")]
NoteAt = Annotated[Instant | None, Field(description="When the note was last changed.")]
T = TypeVar("T")


class _AsDescribedBy:
    """Has a plain document's JSON schema be that of a model."""

    def __init__(self, model: type[BaseModel]) -> None:
        self._model = model

    def __get_pydantic_json_schema__(self, _: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        # As an item of a list it is a reference: by itself it would be written out in every model that has it.
        reference: dict[str, Any] = handler(core_schema.list_schema(self._model.__pydantic_core_schema__))["items"]
        return reference


class Resource(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="allow", strict=False, defer_build=True, json_schema_serialization_defaults_required=True
    )

    def document(self) -> Document:
        """The JSON form."""
        return self.model_dump(mode="json")


class Page(Resource, Generic[T]):
    """One page of a list."""

    items: tuple[T, ...] = Field(description="Rows of this page.")
    next_cursor: str | None = Field(description="`cursor` of the next page. null on the last page.")


class Backfill(Resource, UpdatableOptions):
    """A backfill with its settings, and its number of items by state."""

    backfill_id: str = Field(description="Id of the backfill.")
    dag_id: str = Field(description="Id of the DAG.")
    state: BackfillState = Field(description="State of the backfill. `queued` until its first run starts.")
    config: Annotated[Document, _AsDescribedBy(BackfillConfig)] = Field(
        description="What was requested: `type`, dates or partitions, `run_backwards`, and `allow_future` if it was set. "
        "If there are many dates or partitions, lists contain the first ones, and `total`."
    )
    reprocess: Reprocess = Field(description="What happens to dates that already have a run.")
    is_paused: bool = Field(description="Whether the backfill is paused. It then starts no new runs.")
    created_at: Instant = Field(
        description="When the manager created it. While it waits for the manager: when it was requested."
    )
    started_at: Instant | None = Field(description="When its first run started.")
    completed_at: Instant | None = Field(description="When its last run ended.")
    planned: int = Field(description="Number of items, in any state.")
    pending: int = Field(description="Number of items that have no run yet.")
    running: int = Field(description="Number of items whose run has not ended.")
    success: int = Field(description="Number of items that succeeded.")
    failed: int = Field(description="Number of items that failed.")
    cancelled: int = Field(description="Number of items that were cancelled.")
    skipped: int = Field(description="Number of items that were planned but left out. Each has a reason.")
    reason: str | None = Field(description="Why it is in its state, if there is more to say.")
    is_cancelled: bool = Field(description="Whether it was cancelled. Nothing of it is started any more.")
    is_cancelling: bool = Field(
        description="Whether it was cancelled together with its running tasks, which are being stopped."
    )
    dag_version: int | None = Field(description="Version of the DAG that it runs. null until it is created.")
    ignore_first_depends_on_past: bool = Field(
        description="Whether its first item does not wait for the run before it."
    )
    parents: tuple[str, ...] = Field(description="Ids of the backfills that it waits for.")
    time_left_s: float | None = Field(
        description="Estimated seconds until it ends. null in lists, and if there is no estimate."
    )
    finishes_at: Instant | None = Field(description="Estimated time at which it ends.")
    timezone: str | None = Field(
        None, description="Time zone of the DAG, in which `window` is given. null if the DAG is not known."
    )
    waits_for: str | None = Field(description="What its pending items wait for until `waits_until`: its time window.")
    waits_until: Instant | None = Field(description="When its time window opens.")
    created_by: str = Field(description="User who requested it.")
    request_id: str = Field(description="Id of the request that created it.")
    hidden_at: Instant | None = Field(description="When it was deleted. Lists leave it out since then.")
    preview_id: str | None = Field(
        None,
        description="For a preview: id of the backfill that was created with `preview`. Downstream backfills share its "
        "clones.",
    )
    preview_outcome: str | None = Field(
        None, description="`promoted`, `discarded` or `expired`. null while its clones exist."
    )
    note: Note = None
    note_by: NoteBy = None
    note_at: NoteAt = None

    @property
    def has_ended(self) -> bool:
        return self.state in states.BACKFILL_FINISHED


class BackfillDetails(Backfill, LargeUpdatableOptions):
    """A backfill with the fields that lists leave out because they may be large."""


class PlannedItem(Resource):
    """An interval or partition of a backfill, before it is created."""

    ordinal: int = Field(description="Position in the order of creation, from 1.")
    logical_date: Instant | None = Field(description="Logical date of the item. null for a partition.")
    interval_start: Instant | None = Field(description="Start of its data interval.")
    interval_end: Instant | None = Field(description="End of its data interval (exclusive).")
    partition_key: str | None = Field(description="Partition key. null for a date.")
    state: ItemState = Field(description="State of the item. `skipped` if it will not run.")
    reason: str | None = Field(description="Why it is skipped, failed or cancelled.")


class Item(PlannedItem):
    """An interval or partition of a backfill, with its run."""

    run_id: str | None = Field(description="Id of the run that last processed the item.")
    batch: int | None = Field(description="Number of the batch. Items with the same number share a run.")
    reverted_at: Instant | None = Field(
        None, description="When its run was reverted. The rows that the run wrote no longer count."
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
    retry_at: Instant | None = Field(
        description="When the next try is due, while it is `up_for_retry`. While it waits for tables, files, rows or conditions: "
        "when its `wait_limit` ends."
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
        description="Duration of its longest task divided by the median of all its tasks. null: it has one task, or Spark "
        "has no figures."
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


class Table(Resource):
    """A table that tasks have read or written."""

    table: str = Field(description="Name of the table in the catalog, or its path.")
    path: str | None = Field(description="Location of the table, as a URI.")
    written_by: tuple[str, ...] = Field(
        description="Tasks that write the table, as `dag.task`, in the newest version of their DAG that has run."
    )
    read_by: tuple[str, ...] = Field(description="Tasks that read the table, likewise.")
    version: int | None = Field(description="Delta version of the last write by a task.")
    written_at: Instant | None = Field(description="When that version was written.")


class TableInterval(Resource):
    """The last write of an interval or a partition of a table."""

    dag_id: str = Field(description="Id of the DAG.")
    run_id: str = Field(description="Id of the run.")
    task_id: str = Field(description="Id of the task.")
    interval_start: Instant | None = Field(description="Start of the data interval of the run. null: it has none.")
    interval_end: Instant | None = Field(description="End of the data interval of the run (exclusive).")
    partition_key: str | None = Field(description="Partition key of the run, if it is for a partition.")
    dag_version: int = Field(description="Version of the DAG.")
    version: int | None = Field(description="Delta version of the table that the write created.")
    rows_written: int | None = Field(description="Number of rows written. null: not known.")
    bytes_written: int | None = Field(description="Bytes of the files written. null: not known.")
    at: Instant = Field(description="When the try ended.")
    reverted_run_id: str | None = Field(
        description="Id of the run whose revert restored these rows, with `version`. If it is this run itself, there were "
        "no rows before it."
    )


TABLE_INTERVAL_KEY = ("dag_id", "run_id", "task_id")  # tells two of one table apart


class LineageEdge(Resource):
    """A task that reads or writes a table."""

    direction: str = Field(
        description="Where the edge is, relative to the DAG or table.",
        json_schema_extra={"enum": ["upstream", "own", "downstream"]},
    )
    table: str = Field(description="Name of the table.")
    dag_id: str = Field(description="Id of the task's DAG.")
    task_id: str = Field(description="Id of the task.")
    task: str = Field(description="DAG and task as `dag.task`.")
    access: str = Field(
        description="Whether the task reads or writes the table.", json_schema_extra={"enum": ["read", "write"]}
    )


class Lineage(Resource):
    """The tables and tasks from which a DAG or a table is made, and those made from it."""

    of: str = Field(description="The DAG or table.")
    edges: tuple[LineageEdge, ...] = Field(description="Reads and writes: upstream, the DAG's own, and downstream.")


class Gap(Resource):
    """A difference, in one interval, between the content of a table and what the runs of a DAG should have written."""

    dag_id: str = Field(description="Id of the DAG that writes the table.")
    table: str = Field(description="Name of the table.")
    interval_start: Instant | None = Field(
        description="Start of the interval. null: the finding is about the whole table."
    )
    interval_end: Instant | None = Field(description="End of the interval (exclusive).")
    finding: str = Field(description="Kind of the finding.", json_schema_extra={"enum": list(FINDINGS)})
    because: str = Field(description="Reason in words.")
    rows: int | None = Field(description="Number of rows in the interval. null: not known.")
    usual_rows: int | None = Field(
        description="Usual number of rows: the median of the same weekday and hour in the weeks around it, else of the "
        "intervals around it. null: too few are known."
    )
    run_id: str | None = Field(description="Id of the run that last wrote the interval. null: none is recorded.")


def gap_place(gap: Mapping[str, Any]) -> str:
    """Tells two gaps of one table apart, and sorts them: first what holds of the whole table, then interval by interval."""
    return f"{gap['interval_start'] or ''}\n{FINDINGS.index(gap['finding'])}"


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


class DagTask(Resource):
    """A task of a DAG's current version."""

    task_id: str = Field(description="Id of the task, unique within the DAG.")
    kind: str = Field(description="What the task runs: `python`, `executor`, `sql` or `bash`.")
    upstream: tuple[str, ...] = Field(description="Ids of the upstream tasks, for which it waits.")
    downstream: tuple[str, ...] = Field(description="Ids of the downstream tasks, which wait for it.")
    mapped_from: str | None = Field(description="For a mapped task: id of the task that was declared with `over`.")
    mapped_value: Any = Field(description="For a mapped task: its value.")
    over_result_of: str | None = Field(description="Id of the task over whose result it is mapped in each run.")
    trigger_rule: str | None = Field(
        description="Which states of the upstream tasks let it start. null for a callback."
    )
    calls_back: str | None = Field(description="For a callback: the outcome that it reports, `success` or `failed`.")
    watches: str | None = Field(description="For a callback: id of the task that it reports on. null: the whole run.")
    retries: int = Field(description="Number of further tries after the first one fails.")
    retry_delay_s: float = Field(description="Delay before the second try, in seconds.")
    timeout_s: float | None = Field(description="Maximum duration of a try, in seconds.")
    depends_on_past: bool = Field(description="Whether it waits for the same task in the previous run.")
    wait_for_downstream: bool = Field(
        description="Whether it also waits for the tasks directly downstream of that one."
    )
    waits_for: tuple[str, ...] = Field(
        description="Data that it waits for before it starts: tables, rows, files and conditions, in words."
    )
    pool: str | None = Field(description="Pool whose slots it uses. null: the pool of its run.")
    priority: int = Field(description="Priority. Tasks with a higher value start first.")
    weight: int = Field(description="Number of pool slots that it takes.")
    max_active_tis: int | None = Field(description="Maximum number of its instances that run at the same time.")


class Dag(Resource):
    """A DAG as defined by its current version."""

    dag_id: str = Field(description="Id of the DAG.")
    description: str | None = Field(description="Description by its author. Lists shorten a long one.")
    schedule: str | dict[str, Any] | None = Field(
        description="Schedule as written by its author. null: it runs only manually and in backfills."
    )
    schedule_in_words: str | None = Field(description="The schedule as a sentence.")
    timezone: str = Field(description="IANA name of its time zone.")
    is_paused: bool = Field(description="Whether it is paused. No scheduled runs are created.")
    is_active: bool = Field(description="Whether a file defines it.")
    version: int = Field(description="Number of its current version.")
    bundle: str = Field(description="Name of the bundle that defines it.")
    file: str = Field(description="Path of its file within the bundle.")
    owner: str | None = Field(description="Owner as declared by its author.")
    tags: tuple[str, ...] = Field(description="Tags as declared by its author.")
    next_logical_date: Instant | None = Field(description="Logical date of the next scheduled run.")
    next_due_at: Instant | None = Field(description="When that run will be created: at the end of its interval.")
    updated_at: Instant = Field(description="When its current version or its settings last changed.")
    inactive_since: Instant | None = Field(
        description="When the DAG became inactive. No new runs can be requested for it since then."
    )
    inactive_reason: str | None = Field(
        description="Why it is inactive: what happened to its file, or who deactivated it."
    )


class DeclaredParam(Resource):
    """Declaration of a parameter of a DAG."""

    type: Literal["string", "integer", "number", "boolean", "array", "object"] | None = Field(
        description="Type of the value. null: any type."
    )
    choices: tuple[Any, ...] = Field(description="Allowed values. Empty: all values of its type.")
    description: str = Field(description="Description by its author.")
    is_required: bool = Field(description="Whether every run must set it, because it has no default.")
    is_nullable: bool = Field(description="Whether it may be null.")


class DagDetails(Dag):
    """A DAG with the fields that lists leave out."""

    start_date: Instant | None = Field(description="Earliest date of a scheduled run.")
    end_date: Instant | None = Field(description="Latest date of a scheduled run.")
    catchup: bool = Field(description="Whether missed intervals are scheduled, too.")
    max_active_runs: int = Field(description="Maximum number of active scheduled runs.")
    max_active_tasks: int = Field(description="Maximum number of running tasks, over all its runs.")
    batchable: bool = Field(description="Whether its tasks can process an interval of any length.")
    expected_by_s: float | None = Field(
        description="Seconds after the end of its interval within which a scheduled run must succeed."
    )
    notify: tuple[str, ...] = Field(
        description="Targets in `notifications` of the configuration that receive messages about it."
    )
    params: dict[str, Any] = Field(description="Default values of its run parameters.")
    declared_params: dict[str, DeclaredParam] = Field(description="Declarations of its run parameters.")
    tasks: tuple[DagTask, ...] = Field(description="Tasks, each after its upstream tasks. Callbacks come last.")
    runs: dict[str, int] = Field(description="Number of runs by state.")
    unknown_pools: dict[str, tuple[str, ...]] = Field(
        {}, description="Pools that do not exist, each with the tasks that name it. These tasks fail when they start."
    )


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


class DagVersion(Resource):
    """A version of a DAG."""

    dag_id: str = Field(description="Id of the DAG.")
    version: int = Field(description="Number of the version, from 1.")
    is_current: bool = Field(description="Whether new runs use it.")
    created_at: Instant = Field(description="When the manager first saw it.")
    bundle: str = Field(description="Name of the bundle that defined it.")
    file: str = Field(description="Path of its file within the bundle.")
    commit_id: str | None = Field(description="Commit of a git bundle.")
    content_hash: str = Field(
        description="Hash of its definition and its code. Two versions with the same hash do the same."
    )
    snapshot: str = Field(description="Folder with the files of the bundle as they were in this version.")


class VersionDiff(Resource):
    """Differences between two versions of a DAG."""

    dag_id: str = Field(description="Id of the DAG.")
    before: int = Field(description="Number of the first version.")
    after: int = Field(description="Number of the second version.")
    settings: tuple[dict[str, Any], ...] = Field(
        description="Changed settings, each with `name`, `before` and `after`."
    )
    tasks: tuple[dict[str, Any], ...] = Field(
        description="Changed tasks, each with `task_id`, `change` (`added`, `removed`, `changed`) and its `settings`."
    )
    files: tuple[dict[str, Any], ...] | None = Field(
        description="Changed files, each with `file`, `change` and `diff`. null if the server cannot read one of the "
        "snapshots."
    )


class Interval(Resource):
    """An interval that will be scheduled."""

    logical_date: Instant = Field(description="Logical date of the interval.")
    interval_start: Instant = Field(description="Start of the interval.")
    interval_end: Instant = Field(description="End of the interval (exclusive).")
    due_at: Instant = Field(description="When its run will be created.")
    waits_for: tuple[str, ...] = Field((), description="What its tasks will wait for before they start.")


class ImportProblem(Resource):
    """A file that could not be imported."""

    bundle: str = Field(description="Name of the bundle.")
    file: str = Field(description="Path of the file within the bundle.")
    line: int | None = Field(description="Line in the file, if it is known.")
    message: str = Field(description="Description of the error.")
    traceback: str = Field(description="Python traceback. Empty if there is none.")
    first_seen_at: Instant = Field(description="When it was first read with this error.")
    last_seen_at: Instant = Field(description="When it was last read with this error.")


class BundleInfo(Resource):
    """A source of DAGs."""

    name: str = Field(description="Name of the bundle.")
    parser: str = Field(description="Name of its parser.")
    dags: int = Field(description="Number of its active DAGs.")
    errors: int = Field(description="Number of its files that could not be imported.")
    commit_id: str | None = Field(description="For a git bundle: commit that was last read.")
    parsed_at: Instant | None = Field(description="When its files were last parsed, whether or not they had changed.")
    settings: dict[str, Any] | None = Field(
        description="Settings of the bundle, from configuration and manifest together."
    )
    path: str = Field(description="Location of the bundle.")
    is_configured: bool = Field(description="Whether the configuration of the server contains it.")
    content_hash: str | None = Field(description="Hash of all its files.")
    refreshed_at: Instant | None = Field(description="When its files last changed.")


class Pool(Resource):
    """A limit on the number of running tasks."""

    name: str = Field(description="Name of the pool.")
    slots: int = Field(description="Number of task slots.")
    weight: int = Field(description="Weight in Spark's fair scheduler: its share of the cores.")
    min_share: int = Field(
        description="Minimum share in Spark's fair scheduler: the number of cores that it gets first."
    )
    memory_mb: int | None = Field(description="Memory limit of each task's process, in MB. null: no limit.")
    nice: int | None = Field(description="Niceness of the processes of its tasks. null: 5, and 10 in a backfill.")
    used: int = Field(description="Number of slots used by running tasks.")
    free: int = Field(description="Number of free slots.")
    queued: int = Field(
        description="Number of task instances that were handed to the executor and wait for a slot. They use no slot."
    )
    running: int = Field(description="Number of running task instances.")


class Response(Resource):
    """The manager's answer to a request."""

    outcome: Literal["accepted", "refused"] = Field(description="Whether the request was carried out.")
    object_id: str | None = Field(description="Id of the object that was created or changed.")
    message: str = Field(description="What was done, or why it was refused.")
    answered_at: Instant = Field(description="When the manager answered.")


NotificationState = Literal["waiting", "sent", "failed"]
NotificationEvent = Literal["failed", "late", "deadlocked", "done"]


class Notification(Resource):
    """A message about a run or a backfill for one target of the configuration."""

    target: str = Field(description="Name of the target.", examples=["ops"])
    event: NotificationEvent = Field(description="Event that it reports.")
    state: NotificationState = Field(
        description="`waiting` until it is sent. `failed`: given up after a day and 20 attempts."
    )
    dag_id: str = Field(description="Id of the DAG.", examples=["flights"])
    run_id: str | None = Field(description="Id of the run that it is about.")
    backfill_id: str | None = Field(description="Id of the backfill that it is about.")
    title: str = Field(description="First line of the message.")
    text: str = Field(description="Rest of the message. Errors of a backfill are added when it is sent.")
    created_at: Instant = Field(description="When it was created, together with what it reports.")
    ended_at: Instant | None = Field(description="When it was sent or given up.")
    failures: int = Field(description="Number of failed attempts to send it.")
    error: str | None = Field(description="Error of the last failed attempt.")


class Request(Resource):
    """A request for a change: what was requested, by whom, from where, and the answer of the manager."""

    request_id: str = Field(description="Id of the request.")
    kind: str = Field(description="Kind of the request.", examples=["backfill.create"])
    state: Literal["waiting", "accepted", "refused"] = Field(description="`waiting` until the manager has answered.")
    about: dict[str, str] = Field(
        description="Ids and names of the objects that it is about.", examples=[{"dag_id": "flights"}]
    )
    requested_by: str = Field(description="Name of the token, or of the user of the command line.")
    requested_at: Instant = Field(description="When it was submitted.")
    source: str = Field(description="Interface that was used: `cli`, `api` or `ui`.", examples=["api"])
    requested_from: str | None = Field(description="Address of the client, for `api` and `ui`.")
    object_id: str | None = Field(description="Id of the object that was created or changed.")
    message: str | None = Field(description="What was done, or why it was refused. null while it waits.")
    answered_at: Instant | None = Field(description="When the manager answered.")
    answer: Response | None = Field(description="The answer as one object. null while it waits.")
    outcome: Literal["waiting", "accepted", "refused"] = Field(description="Same as `state`.")

    @property
    def is_answered(self) -> bool:
        return self.state != "waiting"


class RequestDetails(Request):
    """A request with its payload, which lists leave out because it may be large."""

    payload: Any = Field(description="Payload of the request. Its fields depend on `kind`.")
    result: Any = Field(default=None, description="Result of the request, if it has one besides the message.")


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


class ManagerStatus(Resource):
    """The manager of a term."""

    leading: bool = Field(description="Whether the manager is running.")
    term: int | None = Field(description="Number of the term. It increases with every new leader.")
    state: str | None = Field(description="`leading` or `stopped`.")
    advice: str | None = Field(description="What to do if the manager is not running.")
    manager_id: str = Field(description="Id of the manager.")
    host: str = Field(description="Host on which it runs.")
    pid: int = Field(description="Process id.")
    started_at: Instant = Field(description="When it became the leader.")
    heartbeat_at: Instant = Field(description="When it sent its last heartbeat.")
    heartbeat_age_s: float = Field(description="Seconds since its last heartbeat.")
    lease_s: int = Field(description="Seconds without a heartbeat after which another manager may lead.")
    ended_at: Instant | None = Field(description="When it stopped.")
    version: str = Field(description="Version of the package.")
    application_id: str | None = Field(description="Id of its Spark application.")
    spark_ui: str | None = Field(description="URL of the Spark web UI.")
    ticks: int | None = Field(description="Number of ticks in this term.")
    commits: int | None = Field(description="Number of commits in this term.")
    tick_ms: float | None = Field(description="Median duration of the last hundred ticks, in milliseconds.")
    commit_ms: float | None = Field(description="Median duration of the last hundred commits, in milliseconds.")


class Health(Resource):
    """Whether the server and the manager are working."""

    status: Literal["ok"] = Field(description="`ok`: the state can be read.")
    manager: Literal["leading", "none"] = Field(description="`leading` if a manager is running, else `none`.")
    detail: str | None = Field(description="What to do if something is wrong.")
    leader: ManagerStatus | None = Field(
        description="The manager of the last term. null without a token, and before the first term."
    )
    version: str = Field(description="Version of the server.")
