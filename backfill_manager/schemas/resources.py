"""Everything that is shown: what the API answers, what the client gives, and what docs/reference lists.

The fields are those of `queries`. Frozen; a newer server may send more fields, which are kept and can be read as attributes.
Instants are aware UTC datetimes, in JSON ISO-8601 with `Z`; `_s` is seconds, `_ms` milliseconds.
"""

from __future__ import annotations

from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, PlainSerializer

from backfill_manager.clock import format_instant
from backfill_manager.model import states
from backfill_manager.schemas.commands import LargeUpdatableOptions, UpdatableOptions

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
T = TypeVar("T")


class Resource(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="allow", strict=False, defer_build=True, json_schema_serialization_defaults_required=True
    )

    def document(self) -> Document:
        """The JSON form."""
        return self.model_dump(mode="json")


class Page(Resource, Generic[T]):
    items: tuple[T, ...]
    next_cursor: str | None = Field(description="`cursor` of the next page; null on the last one.")


class Backfill(Resource, UpdatableOptions):
    """A backfill with its settings; its items are counted by state."""

    backfill_id: str
    dag_id: str
    state: BackfillState
    config: dict[str, Any] = Field(
        description="What was asked for: `type`, dates or partitions, `run_backwards`, and `allow_future` where it was. Of "
        "many dates or partitions a list has the first ones, and `total`."
    )
    reprocess: Reprocess
    is_paused: bool
    created_at: Instant
    started_at: Instant | None
    completed_at: Instant | None
    planned: int = Field(description="Items of any state.")
    pending: int
    running: int
    success: int
    failed: int
    cancelled: int
    skipped: int
    reason: str | None
    is_cancelling: bool
    dag_version: int | None
    ignore_first_depends_on_past: bool
    parents: tuple[str, ...] = Field(description="Backfills that it waits for.")
    time_left_s: float | None
    finishes_at: Instant | None
    waits_for: str | None = Field(description="What its pending items wait for until `waits_until`: its time window.")
    waits_until: Instant | None
    created_by: str
    request_id: str
    hidden_at: Instant | None

    @property
    def has_ended(self) -> bool:
        return self.state in states.BACKFILL_FINISHED


class BackfillDetails(Backfill, LargeUpdatableOptions):
    """With what lists leave out, as it may be large."""


class PlannedItem(Resource):
    ordinal: int = Field(description="From 1, the order of making.")
    logical_date: Instant | None
    interval_start: Instant | None
    interval_end: Instant | None
    partition_key: str | None
    state: ItemState
    reason: str | None


class Item(PlannedItem):
    run_id: str | None
    batch: int | None


class Run(Resource):
    run_id: str
    dag_id: str
    run_type: RunType
    state: RunState
    logical_date: Instant | None
    interval_start: Instant | None
    interval_end: Instant | None
    partition_key: str | None
    previous_run_id: str | None
    overridden_by: str | None
    backfill_id: str | None
    dag_version: int
    started_at: Instant | None
    ended_at: Instant | None
    duration_s: float | None
    reason: str | None
    ordinal: int | None
    items: int = Field(description="Intervals that it takes together.")
    is_partial: bool | None = Field(
        description="Tasks were left out by choice: a whole backfill takes its date for missing. Null: made by an older release."
    )
    created_at: Instant


class RunDetails(Run):
    """What lists leave out, as it may be large."""

    conf: dict[str, Any] = Field(description="Its parameters.")


class TimelineRun(Run):
    overridden: tuple[TimelineRun, ...] = Field(description="Runs that it took the place of, newest first.")


class TaskInstance(Resource):
    dag_id: str
    run_id: str
    task_id: str
    state: TaskState
    try_number: int
    pool: str | None
    started_at: Instant | None
    ended_at: Instant | None
    duration_s: float | None
    error: str | None
    rows_written: int | None = Field(description="Into tables, by `ctx.write`, when it last succeeded.")
    priority: int
    failures: int
    queued_at: Instant | None
    retry_at: Instant | None
    result: Any = Field(description="What it returned; null in lists when it is large.")
    result_chars: int | None = Field(description="Length of the result as JSON.")


class RunningTask(TaskInstance):
    for_s: float | None = Field(description="Seconds since it began.")


class Try(Resource):
    task_id: str
    try_number: int
    launch: int
    term: int = Field(description="Of the manager that ran it.")
    state: TryState
    pool: str | None
    started_at: Instant | None
    ended_at: Instant | None
    duration_s: float | None
    error: str | None
    spark_jobs: tuple[int, ...] = Field(
        description="Ids within the Spark application of that term; those that are known."
    )


class RunTasks(Page[TaskInstance]):
    """All of a run's tasks on one page: `next_cursor` is always null."""

    tries: tuple[Try, ...]


class LogLine(Resource):
    at: Instant
    level: str
    message: str
    try_number: int
    launch: int
    line: int


class Log(Resource):
    state: TaskState = Field(description="Of the task.")
    is_whole: bool = Field(description="True when nothing will be added any more, unless it is cleared.")
    lines: tuple[LogLine, ...]
    after: str | None = Field(description="`after` of the next call, to go on behind the last line.")


class DagTask(Resource):
    task_id: str
    kind: str
    upstream: tuple[str, ...]
    downstream: tuple[str, ...]


class Dag(Resource):
    dag_id: str
    description: str | None
    schedule: str | dict[str, Any] | None
    schedule_in_words: str | None
    timezone: str
    is_paused: bool
    is_active: bool
    version: int
    bundle: str
    file: str
    owner: str | None
    tags: tuple[str, ...]
    next_logical_date: Instant | None
    next_due_at: Instant | None
    updated_at: Instant
    inactive_since: Instant | None = Field(description="Of a DAG that is not active: nothing new can be asked of it.")
    inactive_reason: str | None = Field(description="What has become of its file, or who deactivated it.")


class DeclaredParam(Resource):
    type: Literal["string", "integer", "number", "boolean", "array", "object"] | None = Field(description="Null: any.")
    choices: tuple[Any, ...] = Field(description="The values that it may have; none: all of its type.")
    description: str
    is_required: bool = Field(description="It has no default, so every run must set it.")
    is_nullable: bool


class DagDetails(Dag):
    start_date: Instant | None
    end_date: Instant | None
    catchup: bool
    max_active_runs: int
    max_active_tasks: int
    batchable: bool
    params: dict[str, Any] = Field(description="Parameters of its runs with their defaults.")
    declared_params: dict[str, DeclaredParam] = Field(description="What those that are declared may be.")
    tasks: tuple[DagTask, ...]
    runs: dict[str, int] = Field(description="How many it has, by state.")


class Cell(Resource):
    state: TaskState
    try_number: int
    started_at: Instant | None
    duration_s: float | None


class GridRun(Run):
    cells: dict[str, Cell] = Field(description="By task id.")


class GridTask(Resource):
    task_id: str
    is_current: bool


class Grid(Resource):
    order: Literal["date", "made"]
    runs: tuple[GridRun, ...] = Field(description="Oldest first.")
    tasks: tuple[GridTask, ...]
    next_cursor: str | None = Field(description="`cursor` of the page of older runs; null when there are none.")


class DagVersion(Resource):
    dag_id: str
    version: int
    is_current: bool
    created_at: Instant
    bundle: str
    file: str
    commit_id: str | None
    content_hash: str


class VersionDiff(Resource):
    dag_id: str
    before: int
    after: int
    settings: tuple[dict[str, Any], ...]
    tasks: tuple[dict[str, Any], ...]
    files: tuple[dict[str, Any], ...] | None


class Interval(Resource):
    logical_date: Instant
    interval_start: Instant
    interval_end: Instant
    due_at: Instant


class ImportProblem(Resource):
    bundle: str
    file: str
    line: int | None
    message: str
    traceback: str
    first_seen_at: Instant
    last_seen_at: Instant


class BundleInfo(Resource):
    name: str
    parser: str
    dags: int
    errors: int
    commit_id: str | None
    parsed_at: Instant | None = Field(description="When files of it were last read, whether or not they had changed.")
    settings: dict[str, Any] | None = Field(description="How it is read: configuration and manifest together.")


class Pool(Resource):
    name: str
    slots: int
    weight: int
    min_share: int
    memory_mb: int | None = Field(description="That the process of each of its tasks may take; null: no limit.")
    nice: int | None = Field(description="Of its tasks' processes; null: 5, and 10 in a backfill.")
    used: int = Field(description="Slots that are taken.")
    free: int
    queued: int = Field(description="Task instances that wait.")
    running: int


class Response(Resource):
    outcome: Literal["accepted", "refused"]
    object_id: str | None = Field(description="The id of what was made or touched.")
    message: str
    answered_at: Instant


class Request(Resource):
    """What was asked, by whom, from where, and what the manager answered."""

    request_id: str
    kind: str = Field(examples=["backfill.create"])
    state: Literal["waiting", "accepted", "refused"]
    about: dict[str, str] = Field(description="Ids and names that it speaks of.", examples=[{"dag_id": "flights"}])
    requested_by: str
    requested_at: Instant
    source: str = Field(examples=["api"])
    requested_from: str | None
    object_id: str | None
    message: str | None
    answered_at: Instant | None
    answer: Response | None

    @property
    def is_answered(self) -> bool:
        return self.state != "waiting"


class RequestDetails(Request):
    """With all that was asked, which lists leave out, as it may be large."""

    payload: Any
    result: Any = Field(default=None, description="What it gave beside words.")


class Plan(Resource):
    items: tuple[PlannedItem, ...]
    summary: dict[str, Any]


class ClearedTask(Resource):
    task_id: str
    state: TaskState


class ClearedRun(Resource):
    dag_id: str
    run_id: str
    state: RunState
    tasks: tuple[ClearedTask, ...]
    stays: tuple[str, ...] = Field(
        description="Tasks after them that stay `upstream_failed`: `downstream` clears them, too."
    )


class ClearPlan(Resource):
    runs: tuple[ClearedRun, ...]
    summary: dict[str, int]


class ManagerStatus(Resource):
    leading: bool
    term: int | None
    state: str | None
    advice: str | None


class Health(Resource):
    status: Literal["ok"] = Field(description="The state can be read.")
    manager: Literal["leading", "none"]
    detail: str | None = Field(description="What to do when something is not as it should be.")
    leader: ManagerStatus | None
    version: str
