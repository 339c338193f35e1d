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
Note = Annotated[str | None, Field(description="What a person has written about it.")]
NoteBy = Annotated[str | None, Field(description="Who wrote the note last.")]
NoteAt = Annotated[Instant | None, Field(description="When.")]
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

    items: tuple[T, ...] = Field(description="Of this page.")
    next_cursor: str | None = Field(description="`cursor` of the next page; null on the last one.")


class Backfill(Resource, UpdatableOptions):
    """A backfill with its settings; its items are counted by state."""

    backfill_id: str = Field(description="Its id.")
    dag_id: str = Field(description="The DAG that it runs.")
    state: BackfillState = Field(description="`queued` until its first run begins.")
    config: Annotated[Document, _AsDescribedBy(BackfillConfig)] = Field(
        description="What was asked for: `type`, dates or partitions, `run_backwards`, and `allow_future` where it was. Of "
        "many dates or partitions a list has the first ones, and `total`."
    )
    reprocess: Reprocess = Field(description="What is done with dates that have a run already.")
    is_paused: bool = Field(description="It starts no new runs.")
    created_at: Instant = Field(
        description="When the manager created it; of one that waits for that, when it was requested."
    )
    started_at: Instant | None = Field(description="When its first run began.")
    completed_at: Instant | None = Field(description="When its last run ended.")
    planned: int = Field(description="Items of any state.")
    pending: int = Field(description="Items that have no run yet.")
    running: int = Field(description="Items whose run has not ended.")
    success: int = Field(description="Items that succeeded.")
    failed: int = Field(description="Items that failed.")
    cancelled: int = Field(description="Items that were cancelled.")
    skipped: int = Field(description="Items that were planned and left out, each with its reason.")
    reason: str | None = Field(description="Why it is in its state, where there is more to say.")
    is_cancelled: bool = Field(description="It was cancelled: nothing of it begins any more.")
    is_cancelling: bool = Field(description="It was cancelled, and what runs is being stopped.")
    dag_version: int | None = Field(description="Version of the DAG that it runs; null until it is created.")
    ignore_first_depends_on_past: bool = Field(description="Its first item does not wait for the run before it.")
    parents: tuple[str, ...] = Field(description="Backfills that it waits for.")
    time_left_s: float | None = Field(
        description="Estimated seconds until it ends; null in lists, and where nothing can be said."
    )
    finishes_at: Instant | None = Field(description="When that will be.")
    timezone: str | None = Field(
        None, description="The DAG's time zone, in which `window` is; null where the DAG is not known."
    )
    waits_for: str | None = Field(description="What its pending items wait for until `waits_until`: its time window.")
    waits_until: Instant | None = Field(description="When its time window opens.")
    created_by: str = Field(description="Who requested it.")
    request_id: str = Field(description="The request that created it.")
    hidden_at: Instant | None = Field(description="When it was deleted: lists leave it out since then.")
    preview_id: str | None = Field(
        None,
        description="Of a preview: the backfill that was created with `preview`, whose clones those downstream share.",
    )
    preview_outcome: str | None = Field(
        None, description="`promoted`, `discarded` or `expired`; null while its clones are there."
    )
    note: Note = None
    note_by: NoteBy = None
    note_at: NoteAt = None

    @property
    def has_ended(self) -> bool:
        return self.state in states.BACKFILL_FINISHED


class BackfillDetails(Backfill, LargeUpdatableOptions):
    """With what lists leave out, as it may be large."""


class PlannedItem(Resource):
    """An interval or partition of a backfill, before it is created."""

    ordinal: int = Field(description="From 1, the order of making.")
    logical_date: Instant | None = Field(description="The date that it stands for; null of a partition.")
    interval_start: Instant | None = Field(description="Where its data interval begins.")
    interval_end: Instant | None = Field(description="Where its data interval ends (exclusive).")
    partition_key: str | None = Field(description="Null of a date.")
    state: ItemState = Field(description="`skipped` where it will not run.")
    reason: str | None = Field(description="Why it is skipped, failed or cancelled.")


class Item(PlannedItem):
    """An interval or partition of a backfill, with its run."""

    run_id: str | None = Field(description="The run that last took it.")
    batch: int | None = Field(description="Items with the same number share a run.")
    reverted_at: Instant | None = Field(None, description="When that run was reverted: what it wrote counts no more.")


class Run(Resource):
    """A DAG run of any type."""

    run_id: str = Field(description="Its id, unique within its DAG.")
    dag_id: str = Field(description="Its DAG.")
    run_type: RunType = Field(description="What created it.")
    state: RunState = Field(description="`overridden`: another run has taken its place.")
    logical_date: Instant | None = Field(description="The date that it stands for; null of a partition.")
    interval_start: Instant | None = Field(description="Where its data interval begins.")
    interval_end: Instant | None = Field(description="Where its data interval ends (exclusive).")
    partition_key: str | None = Field(description="Null of a date.")
    previous_run_id: str | None = Field(
        description="The run before it in the timeline, which `depends_on_past` waits for."
    )
    overridden_by: str | None = Field(description="The run that has taken its place.")
    backfill_id: str | None = Field(description="The backfill that created it.")
    dag_version: int = Field(description="Version of the DAG that it runs.")
    started_at: Instant | None = Field(description="When its first task began.")
    ended_at: Instant | None = Field(description="When its last task ended.")
    duration_s: float | None = Field(description="Seconds between the two.")
    reason: str | None = Field(description="Why it is in its state, where there is more to say.")
    ordinal: int | None = Field(description="Of its item in the backfill; of several, the first one's.")
    items: int = Field(description="Intervals that it takes together.")
    is_partial: bool | None = Field(
        description="Tasks were left out by choice: a whole backfill takes its date for missing. Null: made by an older release."
    )
    reverted_at: Instant | None = Field(
        description="Since then its tables hold the rows of before it, and it counts no more."
    )
    reverted_by: str | None = Field(description="The request that reverted it.")
    restored_run_id: str | None = Field(
        description="Of a reverted one: the run before it, whose rows are back, so that its date is done. Null: it is missing."
    )
    created_at: Instant = Field(description="When the manager created it.")
    note: Note = None
    note_by: NoteBy = None
    note_at: NoteAt = None


class RunDetails(Run):
    """What lists leave out, as it may be large."""

    conf: dict[str, Any] = Field(description="Its parameters.")


class TimelineRun(Run):
    """A run that stands in the timeline of its DAG."""

    overridden: tuple[TimelineRun, ...] = Field(description="Runs that it took the place of, newest first.")


class TaskInstance(Resource):
    """A task of a run."""

    dag_id: str = Field(description="The DAG of its run.")
    run_id: str = Field(description="Its run.")
    task_id: str = Field(description="Its task.")
    state: TaskState = Field(description="`none` until it may start.")
    try_number: int = Field(description="1 from the first start; a crash of the manager does not raise it.")
    pool: str | None = Field(description="Pool whose slot it takes.")
    started_at: Instant | None = Field(description="When its last try began.")
    ended_at: Instant | None = Field(description="When its last try ended.")
    duration_s: float | None = Field(description="Seconds that its last try took.")
    error: str | None = Field(description="Of its last failed try.")
    rows_written: int | None = Field(description="Into tables, by `ctx.write`, when it last succeeded.")
    priority: int = Field(description="Higher goes first.")
    failures: int = Field(description="Tries that failed since it was last cleared.")
    queued_at: Instant | None = Field(description="When it was handed to the executor.")
    retry_at: Instant | None = Field(description="When it is tried again, while it is `up_for_retry`.")
    result: Any = Field(description="What it returned; null in lists when it is large.")
    result_chars: int | None = Field(description="Length of the result as JSON.")


class RunningTask(TaskInstance):
    """A task instance that runs."""

    for_s: float | None = Field(description="Seconds since it began.")


class _StageFigures(Resource):
    tasks: int = Field(description="Tasks of Spark.")
    failed_tasks: int = Field(description="Attempts of them that failed.")
    task_s: float = Field(description="Seconds that all of them ran, added up.")
    input_rows: int = Field(description="Rows read from tables and files.")
    input_bytes: int = Field(description="Bytes read from tables and files.")
    output_rows: int = Field(description="Rows written to tables and files.")
    output_bytes: int = Field(description="Bytes written to tables and files.")
    shuffle_read_bytes: int = Field(description="Bytes taken from stages before.")
    shuffle_write_bytes: int = Field(description="Bytes left for stages after it.")
    spilled_bytes: int = Field(description="Bytes written to disk for want of memory.")


class SparkStage(_StageFigures):
    """A stage of the Spark jobs of a try, by Spark's status store."""

    stage_id: int = Field(description="Its id within the Spark application.")
    attempt: int = Field(description="From 0; the last one.")
    name: str = Field(description="As Spark names it: the call that made it.")
    status: str = Field(description="As Spark has it, when the try ended: `complete`, `failed`, `active`.")
    duration_s: float | None = Field(description="Seconds from its beginning to its end; null: it had not ended.")
    skew: float | None = Field(
        description="Duration of its longest task, divided by the median of all; null for one task, or where Spark does not say."
    )


class SparkStages(_StageFigures):
    """What the Spark stages of a try did, added up; and the longest of them."""

    jobs: int = Field(description="Spark jobs that these are of: the newest 100 at most.")
    stages: int = Field(description="Stages that ran, and that Spark still knew at the end of the try.")
    longest: tuple[SparkStage, ...] = Field(
        description="The 20 longest, longest first. Empty in a list of several tasks; a single task (`task_id`) has them."
    )


class Try(Resource):
    """One start of a task that has ended."""

    task_id: str = Field(description="Its task.")
    try_number: int = Field(description="A try that was lost in a crash and its repetition share it.")
    launch: int = Field(description="Every start has its own.")
    term: int = Field(description="Of the manager that ran it.")
    state: TryState = Field(description="How it ended; `lost` with the manager that ran it.")
    pool: str | None = Field(description="Pool whose slot it took.")
    started_at: Instant | None = Field(description="When it began.")
    ended_at: Instant | None = Field(description="When it ended.")
    duration_s: float | None = Field(description="Seconds between the two.")
    error: str | None = Field(description="Why it failed.")
    spark_jobs: tuple[int, ...] = Field(
        description="Ids within the Spark application of that term; those that are known."
    )
    spark_stages: SparkStages | None = Field(
        None, description="What its Spark stages did; null: it ran none, or Spark did not say."
    )


class RunTasks(Page[TaskInstance]):
    """All of a run's tasks on one page: `next_cursor` is always null."""

    tries: tuple[Try, ...] = Field(description="Every start that has ended, in the order of their starts.")


class CheckResult(Resource):
    """What a check found in the rows that a task was about to publish."""

    task_id: str = Field(description="The task.")
    try_number: int = Field(description="Its try.")
    launch: int = Field(description="Every start has its own.")
    table: str = Field(description="The table's name in the catalog, else its path.")
    condition: str = Field(description="The check, as it was declared.")
    name: str | None = Field(description="Its name, if it has one.")
    outcome: str = Field(
        description="`failed` published nothing, `warned` did; `error`: it could not be run; `skipped`: an earlier try had "
        "checked and published the rows.",
        json_schema_extra={"enum": list(get_args(CheckOutcome))},
    )
    rows: int | None = Field(description="Rows of the write; null: they were not checked.")
    failing_rows: int | None = Field(description="Of them; null: the check is not of single rows.")
    value: float | None = Field(description="The number of rows, or percent above the mean of the intervals before.")
    message: str | None = Field(description="What was found, in words.")
    at: Instant = Field(description="When the try ended.")


class Table(Resource):
    """A table that tasks have read or written."""

    table: str = Field(description="Its name in the catalog, else its path.")
    path: str | None = Field(description="Where it lies, as a URI.")
    written_by: tuple[str, ...] = Field(
        description="Tasks, as `dag.task`, in the newest version of their DAG that has run."
    )
    read_by: tuple[str, ...] = Field(description="Tasks, likewise.")
    version: int | None = Field(description="Delta's version of it that a task wrote last.")
    written_at: Instant | None = Field(description="When.")


class TableInterval(Resource):
    """Who has written an interval or a partition of a table last."""

    dag_id: str = Field(description="The DAG of the run.")
    run_id: str = Field(description="The run.")
    task_id: str = Field(description="Its task.")
    interval_start: Instant | None = Field(description="Of the run; null: it has none.")
    interval_end: Instant | None = Field(description="Exclusive.")
    partition_key: str | None = Field(description="Of a run for a partition.")
    dag_version: int = Field(description="Version of the DAG.")
    version: int | None = Field(description="Delta's version of the table that it made.")
    rows_written: int | None = Field(description="Rows; null: not known.")
    bytes_written: int | None = Field(description="Bytes in files; null: not known.")
    at: Instant = Field(description="When the try ended.")
    reverted_run_id: str | None = Field(
        description="The run whose revert put these rows back, with `version`; if it is this run itself, there were none before."
    )


TABLE_INTERVAL_KEY = ("dag_id", "run_id", "task_id")  # tells two of one table apart


class LineageEdge(Resource):
    """A task that reads or writes a table."""

    direction: str = Field(description="Where it lies.", json_schema_extra={"enum": ["upstream", "own", "downstream"]})
    table: str = Field(description="The table.")
    dag_id: str = Field(description="The DAG of the task.")
    task_id: str = Field(description="The task.")
    task: str = Field(description="The same two, as `dag.task`.")
    access: str = Field(description="What it does with the table.", json_schema_extra={"enum": ["read", "write"]})


class Lineage(Resource):
    """What a DAG or a table is made of, and what is made of it."""

    of: str = Field(description="The DAG or table.")
    edges: tuple[LineageEdge, ...] = Field(description="Upstream, the DAG's own, and downstream.")


class Gap(Resource):
    """Something that a table does not hold as the runs of a DAG say, in one interval."""

    dag_id: str = Field(description="The DAG that writes the table.")
    table: str = Field(description="The table.")
    interval_start: Instant | None = Field(description="The interval; null: this holds of the whole table.")
    interval_end: Instant | None = Field(description="Exclusive.")
    finding: str = Field(description="What was found.", json_schema_extra={"enum": list(FINDINGS)})
    because: str = Field(description="Why, in words.")
    rows: int | None = Field(description="Rows in the interval; null: not known.")
    usual_rows: int | None = Field(description="The median of the intervals around it; null: too few are known.")
    run_id: str | None = Field(description="The run that wrote it last; null: none is recorded.")


def gap_place(gap: Mapping[str, Any]) -> str:
    """Tells two gaps of one table apart, and sorts them: first what holds of the whole table, then interval by interval."""
    return f"{gap['interval_start'] or ''}\n{FINDINGS.index(gap['finding'])}"


class LogLine(Resource):
    """One line of a task's log."""

    at: Instant = Field(description="When it was written.")
    level: str = Field(description="`INFO`, `WARNING`, ...")
    message: str = Field(description="Its text; secrets are masked.")
    try_number: int = Field(description="The try that wrote it.")
    launch: int = Field(description="The start that wrote it.")
    line: int = Field(description="Its number in that start, from 1.")


class Log(Resource):
    """Lines of a task's log."""

    state: TaskState = Field(description="Of the task.")
    is_whole: bool = Field(description="True when nothing will be added any more, unless it is cleared.")
    lines: tuple[LogLine, ...] = Field(description="Oldest first.")
    after: str | None = Field(description="`after` of the next call, to go on behind the last line.")


class DagTask(Resource):
    """A task of a DAG's current version."""

    task_id: str = Field(description="Its id, unique within the DAG.")
    kind: str = Field(description="What runs: `python`, `executor`, `sql` or `bash`.")
    upstream: tuple[str, ...] = Field(description="Ids of the tasks that it waits for.")
    downstream: tuple[str, ...] = Field(description="Ids of the tasks that wait for it.")
    mapped_from: str | None = Field(description="Of a mapped task: the id that its `over` was declared with.")
    mapped_value: Any = Field(description="Of a mapped task: the value that it is for.")
    over_result_of: str | None = Field(description="The task whose result it is mapped over, in each run.")
    trigger_rule: str | None = Field(description="When it starts, by the states of those upstream; null of a callback.")
    calls_back: str | None = Field(description="Of a callback: on what.")
    watches: str | None = Field(description="Of a callback: the task whose ends it tells of; null: the whole run's.")
    retries: int = Field(description="Tries after the first.")
    retry_delay_s: float = Field(description="Seconds before the second try.")
    timeout_s: float | None = Field(description="Seconds that a try may take.")
    depends_on_past: bool = Field(description="It waits for the same task of the run before.")
    wait_for_downstream: bool = Field(description="It waits for the tasks downstream of that one, too.")
    waits_for: tuple[str, ...] = Field(
        description="Tables that must have been written for the run's interval before it starts."
    )
    pool: str | None = Field(description="Pool whose slots it takes; null: that of its run.")
    priority: int = Field(description="Higher goes first.")
    weight: int = Field(description="Slots that it takes.")
    max_active_tis: int | None = Field(description="Instances of it that run at once.")


class Dag(Resource):
    """A DAG, as its current version defines it."""

    dag_id: str = Field(description="Its id.")
    description: str | None = Field(description="As its author wrote it; lists shorten a long one.")
    schedule: str | dict[str, Any] | None = Field(
        description="As its author wrote it; null: it runs by hand and in backfills only."
    )
    schedule_in_words: str | None = Field(description="The schedule as a sentence.")
    timezone: str = Field(description="IANA name of the zone of its dates.")
    is_paused: bool = Field(description="No scheduled runs are created.")
    is_active: bool = Field(description="A file defines it.")
    version: int = Field(description="The current one.")
    bundle: str = Field(description="The bundle that defines it.")
    file: str = Field(description="Its file in the bundle.")
    owner: str | None = Field(description="As its author wrote it.")
    tags: tuple[str, ...] = Field(description="As its author wrote them.")
    next_logical_date: Instant | None = Field(description="Logical date of the next scheduled run.")
    next_due_at: Instant | None = Field(description="When that run is created: at the end of its interval.")
    updated_at: Instant = Field(description="When its current version or its settings last changed.")
    inactive_since: Instant | None = Field(description="Of a DAG that is not active: nothing new can be asked of it.")
    inactive_reason: str | None = Field(description="What has become of its file, or who deactivated it.")


class DeclaredParam(Resource):
    """What a param of a DAG may be."""

    type: Literal["string", "integer", "number", "boolean", "array", "object"] | None = Field(description="Null: any.")
    choices: tuple[Any, ...] = Field(description="The values that it may have; none: all of its type.")
    description: str = Field(description="As its author wrote it.")
    is_required: bool = Field(description="It has no default, so every run must set it.")
    is_nullable: bool = Field(description="It may be null.")


class DagDetails(Dag):
    """With what lists leave out."""

    start_date: Instant | None = Field(description="No scheduled run has an earlier date.")
    end_date: Instant | None = Field(description="No scheduled run has a later date.")
    catchup: bool = Field(description="Missed intervals are scheduled, too.")
    max_active_runs: int = Field(description="Runs at once.")
    max_active_tasks: int = Field(description="Running tasks at once, of all its runs.")
    batchable: bool = Field(description="Its tasks work on an interval of any length.")
    expected_by_s: float | None = Field(
        description="Seconds after its interval's end in which a scheduled run must have succeeded."
    )
    notify: tuple[str, ...] = Field(description="Targets of the configuration's `notifications` that hear of it.")
    params: dict[str, Any] = Field(description="Defaults of its run parameters.")
    declared_params: dict[str, DeclaredParam] = Field(description="What those that are declared may be.")
    tasks: tuple[DagTask, ...] = Field(description="Each after those that it waits for; callbacks come last.")
    runs: dict[str, int] = Field(description="How many it has, by state.")
    unknown_pools: dict[str, tuple[str, ...]] = Field(
        {}, description="Pools that do not exist, each with the tasks that name it: they fail when they start."
    )


class Cell(Resource):
    """A task in one run."""

    state: TaskState = Field(description="Of the task in the run.")
    try_number: int = Field(description="0 before the first start.")
    started_at: Instant | None = Field(description="When its last try began.")
    duration_s: float | None = Field(description="Seconds that its last try took.")


class GridRun(Run):
    """A run with the state of each of its tasks."""

    cells: dict[str, Cell] = Field(description="By task id.")


class GridTask(Resource):
    """A row of the grid."""

    task_id: str = Field(description="Its id.")
    is_current: bool = Field(description="The current version of the DAG has it, or makes it in its runs.")
    mapped_from: str | None = Field(
        description="Of a task that is mapped in runs, over a result: the id that it is mapped from."
    )


class Grid(Resource):
    """Runs of a DAG and their tasks."""

    order: Literal["date", "made"] = Field(description="By logical date, or by creation.")
    runs: tuple[GridRun, ...] = Field(description="Oldest first.")
    tasks: tuple[GridTask, ...] = Field(
        description="Those of the current version in its order, each followed by those that are mapped from it in these runs; "
        "then those that only older runs had."
    )
    next_cursor: str | None = Field(description="`cursor` of the page of older runs; null when there are none.")


class DagVersion(Resource):
    """A version of a DAG."""

    dag_id: str = Field(description="Its DAG.")
    version: int = Field(description="From 1.")
    is_current: bool = Field(description="New runs use it.")
    created_at: Instant = Field(description="When the manager first saw it.")
    bundle: str = Field(description="The bundle that defined it.")
    file: str = Field(description="Its file in the bundle.")
    commit_id: str | None = Field(description="Of a git bundle.")
    content_hash: str = Field(description="Of its definition and its code: two versions with the same one do the same.")
    snapshot: str = Field(description="Folder with the bundle's files as they were.")


class VersionDiff(Resource):
    """What differs between two versions of a DAG."""

    dag_id: str = Field(description="The DAG.")
    before: int = Field(description="The version that is compared.")
    after: int = Field(description="The version that it is compared with.")
    settings: tuple[dict[str, Any], ...] = Field(description="Each with `name`, `before` and `after`.")
    tasks: tuple[dict[str, Any], ...] = Field(
        description="Each with `task_id`, `change` (`added`, `removed`, `changed`) and its `settings`."
    )
    files: tuple[dict[str, Any], ...] | None = Field(
        description="Each with `file`, `change` and `diff`; null when one of the snapshots can't be seen by the server."
    )


class Interval(Resource):
    """An interval that will be scheduled."""

    logical_date: Instant = Field(description="The date that it stands for.")
    interval_start: Instant = Field(description="Where it begins.")
    interval_end: Instant = Field(description="Where it ends (exclusive).")
    due_at: Instant = Field(description="When its run is created.")
    waits_for: tuple[str, ...] = Field((), description="What its tasks will wait for before they start.")


class ImportProblem(Resource):
    """A file that could not be imported."""

    bundle: str = Field(description="Its bundle.")
    file: str = Field(description="Its path in the bundle.")
    line: int | None = Field(description="Where in the file, if that is known.")
    message: str = Field(description="What is wrong.")
    traceback: str = Field(description="Of Python; empty where there is none.")
    first_seen_at: Instant = Field(description="When it was first read with this error.")
    last_seen_at: Instant = Field(description="When it was last read with this error.")


class BundleInfo(Resource):
    """A source of DAGs."""

    name: str = Field(description="Its name.")
    parser: str = Field(description="What reads its files.")
    dags: int = Field(description="Active DAGs of it.")
    errors: int = Field(description="Files of it that could not be imported.")
    commit_id: str | None = Field(description="Of a git bundle: what was last read.")
    parsed_at: Instant | None = Field(description="When files of it were last read, whether or not they had changed.")
    settings: dict[str, Any] | None = Field(description="How it is read: configuration and manifest together.")
    path: str = Field(description="Where it is.")
    is_configured: bool = Field(description="The server's configuration has it.")
    content_hash: str | None = Field(description="Of all of its files.")
    refreshed_at: Instant | None = Field(description="When its files last changed.")


class Pool(Resource):
    """A limit of the number of running tasks."""

    name: str = Field(description="Its name.")
    slots: int = Field(description="Tasks at once.")
    weight: int = Field(description="Its share of the cores.")
    min_share: int = Field(description="Cores that it comes first for.")
    memory_mb: int | None = Field(description="That the process of each of its tasks may take; null: no limit.")
    nice: int | None = Field(description="Of its tasks' processes; null: 5, and 10 in a backfill.")
    used: int = Field(description="Slots that are taken, by tasks that run.")
    free: int = Field(description="Slots that are not taken.")
    queued: int = Field(description="Task instances that the executor has and that wait for a slot; they take none.")
    running: int = Field(description="Task instances that run.")


class Response(Resource):
    """The manager's answer to a request."""

    outcome: Literal["accepted", "refused"] = Field(description="Whether it was carried out.")
    object_id: str | None = Field(description="The id of what was made or touched.")
    message: str = Field(description="What was done, or why not.")
    answered_at: Instant = Field(description="When the manager answered.")


NotificationState = Literal["waiting", "sent", "failed"]
NotificationEvent = Literal["failed", "late", "deadlocked", "done"]


class Notification(Resource):
    """A message about a run or a backfill to one target of the configuration."""

    target: str = Field(description="The target's name.", examples=["ops"])
    event: NotificationEvent = Field(description="What it is about.")
    state: NotificationState = Field(
        description="`waiting` until it is sent; `failed`: given up after a day and 20 attempts."
    )
    dag_id: str = Field(description="The DAG's id.", examples=["flights"])
    run_id: str | None = Field(description="Of the run that it is about.")
    backfill_id: str | None = Field(description="Of the backfill that it is about.")
    title: str = Field(description="Its first line.")
    text: str = Field(description="What follows; errors of a backfill are read when it is sent.")
    created_at: Instant = Field(description="When it was made, with what it reports.")
    ended_at: Instant | None = Field(description="When it was sent or given up.")
    failures: int = Field(description="Attempts that have failed.")
    error: str | None = Field(description="Of the last failed attempt.")


class Request(Resource):
    """What was asked, by whom, from where, and what the manager answered."""

    request_id: str = Field(description="Its id.")
    kind: str = Field(description="What is asked for.", examples=["backfill.create"])
    state: Literal["waiting", "accepted", "refused"] = Field(description="`waiting` until the manager has answered.")
    about: dict[str, str] = Field(description="Ids and names that it speaks of.", examples=[{"dag_id": "flights"}])
    requested_by: str = Field(description="Name of the token, or of the user of the command line.")
    requested_at: Instant = Field(description="When it was submitted.")
    source: str = Field(description="The interface: `cli`, `api` or `ui`.", examples=["api"])
    requested_from: str | None = Field(description="The address that it came from, of `api` and `ui`.")
    object_id: str | None = Field(description="The id of what was made or touched.")
    message: str | None = Field(description="What was done, or why not; null while it waits.")
    answered_at: Instant | None = Field(description="When the manager answered.")
    answer: Response | None = Field(description="The same as one object; null while it waits.")
    outcome: Literal["waiting", "accepted", "refused"] = Field(description="The same as `state`.")

    @property
    def is_answered(self) -> bool:
        return self.state != "waiting"


class RequestDetails(Request):
    """With all that was asked, which lists leave out, as it may be large."""

    payload: Any = Field(description="All that was asked: the fields depend on `kind`.")
    result: Any = Field(default=None, description="What it gave beside words.")


class RenderedTask(Resource):
    """What a task will run."""

    task_id: str = Field(description="Its id.")
    kind: str = Field(description="`sql`, `python`, `executor` or `bash`.")
    sql: str | None = Field(description="Of a `sql` task: its statements.")
    into: str | None = Field(description="The table that the last statement's rows go to.")
    mapped_value: Any = Field(description="Of a mapped task: the value that it is for.")


class RenderedRun(Resource):
    """What the tasks of a run will see. Values whose names look secret are `***`."""

    dag_id: str = Field(description="Its DAG.")
    run_id: str = Field(description="The id that it would have as the first run of its date or partition.")
    logical_date: Instant | None = Field(description="Null of a partition.")
    interval_start: Instant | None = Field(description="Null of a partition.")
    interval_end: Instant | None = Field(description="Null of a partition.")
    partition_key: str | None = Field(description="Null of a date.")
    note: str | None = Field(None, description="Where it is of another date than was asked for: why.")
    params: dict[str, Any] = Field(description="The DAG's, with the run's own laid over them.")
    sql_parameters: dict[str, str] = Field(
        description="Name and value of what SQL uses as `:name`, as Spark SQL writes it.",
        examples=[{"interval_start": "TIMESTAMP '2013-01-05T05:00:00Z'"}],
    )
    tasks: tuple[RenderedTask, ...] = Field(description="Each after those that it waits for.")


class Plan(Resource):
    """What a backfill would do."""

    items: tuple[PlannedItem, ...] = Field(description="What would be planned, in the order of the runs.")
    summary: dict[str, Any] = Field(description="Numbers of items, runs and days, by state and reason.")
    first_item: RenderedRun | None = Field(
        default=None, description="What the tasks of the first run would see; null when nothing would run."
    )
    downstream: tuple[dict[str, Any], ...] = Field(
        (), description="With `downstream`: the same of each such DAG, with its `dag_id` and which ones it `waits_for`."
    )


class ClearedTask(Resource):
    """A task instance that is cleared."""

    task_id: str = Field(description="Its id.")
    state: TaskState = Field(description="That it has now.")


class ClearedRun(Resource):
    """A run of which tasks are cleared."""

    dag_id: str = Field(description="Its DAG.")
    run_id: str = Field(description="Its id.")
    state: RunState = Field(description="That it has now.")
    tasks: tuple[ClearedTask, ...] = Field(description="Those that are cleared.")
    stays: tuple[str, ...] = Field(
        description="Tasks after them that stay `upstream_failed`: `downstream` clears them, too."
    )
    run_type: RunType = Field(description="What created it.")
    logical_date: Instant | None = Field(description="The date that it stands for; null of a partition.")
    partition_key: str | None = Field(description="Null of a date.")
    dag_version: int = Field(description="Version of the DAG that it has.")
    to_version: int | None = Field(description="Version that it moves to; null: it keeps the one it has.")


class ClearPlan(Resource):
    """What a clear would touch."""

    runs: tuple[ClearedRun, ...] = Field(description="By DAG and logical date.")
    summary: dict[str, int] = Field(
        description="How many runs and tasks are cleared, stopped first, or stay as they are."
    )
    batches_left_out: tuple[str, ...] = Field(
        (),
        description="Ids of batches that took some of the dates together with earlier ones: they are left as they are.",
    )


class MarkedRun(Resource):
    """A run that is marked."""

    dag_id: str = Field(description="Its DAG.")
    run_id: str = Field(description="Its id.")
    state: RunState = Field(description="That it has now.")
    run_type: RunType = Field(description="What created it.")
    logical_date: Instant | None = Field(description="The date that it stands for; null of a partition.")
    partition_key: str | None = Field(description="Null of a date.")


class MarkSummary(Resource):
    """How many runs a mark would touch."""

    runs: int = Field(description="That get the state.")
    unchanged: int = Field(description="That have the state already, and stay as they are.")
    running: int = Field(description="Of the runs: those that are queued or running, and stopped first.")
    by_state: dict[str, int] = Field(description="The runs by the state that they have now.")


class MarkPlan(Resource):
    """What a mark of several runs would touch."""

    state: Literal["success", "failed"] = Field(description="The state that the runs get.")
    runs: tuple[MarkedRun, ...] = Field(description="By logical date.")
    summary: MarkSummary = Field(description="How many they are.")
    batches_left_out: tuple[str, ...] = Field(
        (),
        description="Ids of batches that took some of the dates together with earlier ones: they are left as they are.",
    )


class ManagerStatus(Resource):
    """The manager of a term."""

    leading: bool = Field(description="It is running.")
    term: int | None = Field(description="Counts managers: every new leader has the next one.")
    state: str | None = Field(description="`leading`, or `stopped`.")
    advice: str | None = Field(description="What to do when it is not running.")
    manager_id: str = Field(description="Its id.")
    host: str = Field(description="Where it runs.")
    pid: int = Field(description="Its process.")
    started_at: Instant = Field(description="When it became the leader.")
    heartbeat_at: Instant = Field(description="Its last heartbeat.")
    heartbeat_age_s: float = Field(description="Seconds since then.")
    lease_s: int = Field(description="Seconds without a heartbeat after which another one may lead.")
    ended_at: Instant | None = Field(description="When it stopped.")
    version: str = Field(description="Of its package.")
    application_id: str | None = Field(description="Of its Spark application.")
    spark_ui: str | None = Field(description="Address of Spark's own pages.")
    ticks: int | None = Field(description="Of this term.")
    commits: int | None = Field(description="Of this term.")
    tick_ms: float | None = Field(description="Median of the last hundred ticks.")
    commit_ms: float | None = Field(description="Median of the last hundred commits.")


class Health(Resource):
    """Whether the server and the manager work."""

    status: Literal["ok"] = Field(description="The state can be read.")
    manager: Literal["leading", "none"] = Field(description="Whether a manager is running.")
    detail: str | None = Field(description="What to do when something is not as it should be.")
    leader: ManagerStatus | None = Field(
        description="The manager of the last term; null for who has no token, and before the first one."
    )
    version: str = Field(description="Of the server.")
