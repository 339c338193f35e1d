"""What goes in and out, typed: the names are those of the state and of `views`, and the same in command line and API.

What comes in is taken strictly (no "1" for 1, no unknown field). What goes out may have more fields than are told here;
instants are ISO-8601 in UTC with `Z`.
"""

from __future__ import annotations

from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from backfill_manager.schemas.commands import MAX_NUMBER
from backfill_manager.schemas.json_limits import invalid_json_values

Instant = Annotated[str, Field(json_schema_extra={"format": "date-time"}, examples=["2013-01-01T05:00:00Z"])]
TypedDate = Annotated[
    str,
    Field(
        min_length=1, max_length=100,
        description="`2013-01-31`, `2013-01-31T05:00` or with an offset; without one in the DAG's time zone.",
        examples=["2013-01-31"],
    ),
]  # fmt: skip
RunState = Literal["queued", "running", "success", "failed", "cancelled", "overridden"]
RunType = Literal["scheduled", "backfill", "manual", "external"]
BackfillState = Literal["queued", "running", "paused", "success", "failed", "cancelled"]
ItemState = Literal["pending", "running", "success", "failed", "cancelled", "skipped"]
TaskState = Literal[
    "none", "scheduled", "queued", "running", "success", "failed", "up_for_retry", "upstream_failed", "skipped",
    "cancelled", "removed",
]  # fmt: skip
Kind = Literal["schedule", "single", "dates", "partitions", "missing", "stale"]
Reprocess = Literal["none", "failed", "failed_tasks", "completed"]
Count = Annotated[int, Field(ge=1, le=MAX_NUMBER)]
AnyNumber = Annotated[int, Field(ge=-MAX_NUMBER, le=MAX_NUMBER)]
Expression = Annotated[str, Field(min_length=1, max_length=1000, description="A regular expression.")]
T = TypeVar("T")


# -- in -----------------------------------------------------------------------------------------------------------------


class Input(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _is_json(cls, value: Any) -> Any:
        for wrong in invalid_json_values(value):
            raise ValueError(wrong)
        return value


class NewBackfill(Input):
    """A backfill as asked for. What is left out is as the DAG says, or the plain choice."""

    model_config = ConfigDict(
        extra="forbid", strict=True,
        json_schema_extra={
            "examples": [{"dag_id": "flights", "start_date": "2013-01-01", "end_date": "2013-01-31", "priority": 5}]
        },
    )  # fmt: skip

    dag_id: Annotated[str, Field(min_length=1, max_length=200)]
    kind: Kind | None = Field(
        default=None, description="Left out: `dates` or `partitions` if there are some, else `schedule`."
    )
    start_date: TypedDate | None = Field(default=None, description="The first interval starts here or after.")
    end_date: TypedDate | None = Field(
        default=None,
        description="The last interval starts here or before (inclusive); a date alone is its whole day in the DAG's zone. "
        "Left out: the last interval that is complete, none after the DAG's `end_date`.",
    )
    dates: Annotated[list[TypedDate], Field(max_length=100_000)] = []
    partitions: Annotated[list[Annotated[str, Field(min_length=1, max_length=1000)]], Field(max_length=100_000)] = []
    run_backwards: bool = False
    reprocess: Reprocess = Field(
        default="none",
        description="Dates that have a run: left, done again if it failed, its failed tasks run again in place, done again.",
    )
    max_active_runs: Count | None = None
    batch: Count = 1
    conf: dict[str, Any] = Field(default={}, description="Parameters of its runs; 64 kB at most.")
    tasks: Expression | None = Field(
        default=None,
        description="Only tasks in whose id this regular expression is found, and what is upstream of them.",
    )
    with_upstream: bool = Field(default=True, description="Of `tasks`: false runs them alone.")
    with_downstream: bool = Field(default=False, description="Of `tasks`: and what is downstream of them.")
    mark_success: bool = False
    stop_on_failure: Count | None = None
    pool: Annotated[str, Field(min_length=1, max_length=200)] = "backfill"
    priority: AnyNumber = 0
    overrides: dict[str, Any] = Field(
        default={}, description="64 kB at most.", examples=[{"retries": 3, "clean.timeout": 60}]
    )
    window: Annotated[str, Field(max_length=20)] | None = Field(default=None, examples=["20:00-06:00"])
    is_polite: bool = False
    downstream: bool = Field(default=False, description="And a backfill of every DAG that reads what this one writes.")
    allow_future: bool = Field(
        default=False, description="Also intervals that have not ended; else they are skipped: `not complete yet`."
    )
    ignore_first_depends_on_past: bool = Field(
        default=True, description="The first item does not wait for the run before it; the others wait for theirs."
    )


class BackfillSettings(Input):
    """Settings of a backfill that goes on; those that are named are meant."""

    max_active_runs: Count | None = None
    priority: AnyNumber | None = None
    pool: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    batch: Count | None = None
    stop_on_failure: Count | None = None
    window: Annotated[str, Field(max_length=20)] | None = None
    is_polite: bool | None = None
    tasks: Expression | None = None
    with_upstream: bool | None = None
    with_downstream: bool | None = None
    mark_success: bool | None = None
    overrides: dict[str, Any] | None = None
    conf: dict[str, Any] | None = None

    def named(self) -> dict[str, Any]:
        """What was said; null means none where there may be none, and is left out elsewhere."""
        said = self.model_dump(exclude_unset=True, exclude={"was"})
        may_be_none = {"stop_on_failure", "window", "tasks"}
        return {name: value for name, value in said.items() if value is not None or name in may_be_none}


class BackfillChanges(BackfillSettings):
    """Settings of a backfill that goes on; those that are named change."""

    model_config = ConfigDict(
        extra="forbid", strict=True,
        json_schema_extra={"examples": [{"priority": 10, "max_active_runs": 4, "was": {"priority": 0}}]},
    )  # fmt: skip

    was: BackfillSettings | None = Field(
        default=None,
        description="Of the settings that are to change, what you saw them to be: refused if one of them is not so any more.",
    )


class Cancel(Input):
    let_running_finish: bool = Field(default=False, description="Don't stop the tasks that run; only start no more.")


class DagChanges(Input):
    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [{"is_paused": True}]})

    is_paused: bool


class NewRun(Input):
    model_config = ConfigDict(
        extra="forbid", strict=True,
        json_schema_extra={"examples": [{"logical_date": "2013-01-05", "conf": {"full": True}}]},
    )  # fmt: skip

    logical_date: TypedDate | None = Field(default=None, description="Left out: the latest complete interval.")
    conf: dict[str, Any] = Field(default={}, description="Its parameters; 64 kB at most.")
    allow_future: bool = Field(default=False, description="Take a date in the future, too.")


class Clear(Input):
    """Which finished tasks shall run again. Without dates, tasks or runs: all of them."""

    model_config = ConfigDict(
        extra="forbid", strict=True,
        json_schema_extra={"examples": [{"dry_run": True, "start_date": "2013-01-05", "only_failed": True}]},
    )  # fmt: skip

    dry_run: bool = Field(default=False, description="Only tell what would be cleared.")
    start_date: TypedDate | None = Field(default=None, description="Runs of this logical date or later.")
    end_date: TypedDate | None = Field(
        default=None,
        description="Runs of this logical date or earlier; a date alone is its whole day in the DAG's zone.",
    )
    run_ids: Annotated[list[Annotated[str, Field(min_length=1, max_length=2000)]], Field(max_length=1000)] = []
    tasks: Expression | None = None
    upstream: bool = False
    downstream: bool = Field(
        default=False,
        description="And all tasks after them; without it, those that could not start stay `upstream_failed`.",
    )
    only_failed: bool = False
    only_running: bool = False
    latest_version: bool = Field(default=False, description="They run with the DAG's current version.")


class MarkRun(Input):
    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [{"state": "success"}]})

    state: Literal["success", "failed", "skipped"] = Field(description="`skipped` is for a task only.")
    task_id: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        default=None, description="Left out: the whole run."
    )

    @model_validator(mode="after")
    def _a_run_is_not_skipped(self) -> MarkRun:
        if self.task_id is None and self.state == "skipped":
            raise ValueError("a run is marked success or failed; skipped is for a task (task_id)")
        return self


class PoolChanges(Input):
    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [{"slots": 32}]})

    slots: Count | None = None
    weight: Count | None = None
    min_share: Annotated[int, Field(ge=0, le=MAX_NUMBER)] | None = None


class Parse(Input):
    """Files of a bundle to be parsed now, changed or not."""

    subpath: Annotated[str, Field(max_length=1000)] = Field(
        default="", description="A file or folder of it; empty: all."
    )
    dry_run: bool = False
    deactivate_removed: bool = False


class Deactivate(Input):
    subpath: Annotated[str, Field(min_length=1, max_length=1000)] = Field(examples=["old_reports"])


# -- out ----------------------------------------------------------------------------------------------------------------


class Output(BaseModel):
    model_config = ConfigDict(extra="allow")


class Page(BaseModel, Generic[T]):
    items: list[T]
    next_cursor: str | None = Field(description="`cursor` of the next page; null on the last one.")


class BackfillView(Output):
    backfill_id: str
    dag_id: str
    state: BackfillState
    config: dict[str, Any] = Field(
        description="What was asked for: `type`, dates or partitions, `run_backwards`, and `allow_future` where it was. Of "
        "many dates or partitions a list has the first ones, and `total`."
    )
    reprocess: Reprocess
    max_active_runs: int | None
    priority: int
    pool: str
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
    batch: int
    tasks: str | None
    with_upstream: bool
    with_downstream: bool
    mark_success: bool
    stop_on_failure: int | None
    window: str | None
    is_polite: bool
    ignore_first_depends_on_past: bool
    parents: list[str]
    time_left_s: float | None
    finishes_at: Instant | None
    created_by: str
    request_id: str
    hidden_at: Instant | None


class BackfillDetails(BackfillView):
    """What lists leave out, as it may be large."""

    conf: dict[str, Any] = Field(description="Parameters of its runs.")
    overrides: dict[str, Any] = Field(description="Settings of the DAG and its tasks that hold for its runs.")


class ItemView(Output):
    ordinal: int = Field(description="From 1, the order of making.")
    logical_date: Instant | None
    interval_start: Instant | None
    interval_end: Instant | None
    partition_key: str | None
    state: ItemState
    reason: str | None
    run_id: str | None
    batch: int | None


class RunView(Output):
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


class RunDetails(RunView):
    """What lists leave out, as it may be large."""

    conf: dict[str, Any] = Field(description="Its parameters.")


class TimelineRun(RunView):
    overridden: list[TimelineRun] = Field(description="Runs that it took the place of, newest first.")


class TaskInstanceView(Output):
    dag_id: str
    run_id: str
    task_id: str
    state: TaskState
    try_number: int
    pool: str | None
    started_at: Instant | None
    ended_at: Instant | None
    duration_s: float | None
    rows_written: int | None = Field(description="Into tables, by `ctx.write`, when it last succeeded.")
    error: str | None
    priority: int
    failures: int
    queued_at: Instant | None
    retry_at: Instant | None
    result: Any = Field(description="What it returned; null in lists when it is large.")
    result_chars: int | None = Field(description="Length of the result as JSON.")


class RunningTask(TaskInstanceView):
    for_s: float | None = Field(description="Seconds since it began.")


class TryView(Output):
    task_id: str
    try_number: int
    launch: int
    term: int = Field(description="Of the manager that ran it.")
    state: TaskState | Literal["lost"]
    pool: str | None
    started_at: Instant | None
    ended_at: Instant | None
    duration_s: float | None
    error: str | None
    spark_jobs: list[int] = Field(description="Ids within the Spark application of that term; those that are known.")


class RunTasks(Page[TaskInstanceView]):
    """All of a run's tasks on one page: `next_cursor` is always null."""

    tries: list[TryView]


class LogLine(Output):
    at: Instant
    level: str
    message: str
    try_number: int
    launch: int
    line: int


class LogView(BaseModel):
    state: TaskState = Field(description="Of the task.")
    is_whole: bool = Field(description="True when nothing will be added any more, unless it is cleared.")
    lines: list[LogLine]
    after: str | None = Field(description="`after` of the next call, to go on behind the last line.")


class DagTask(Output):
    task_id: str
    kind: str
    upstream: list[str]
    downstream: list[str]


class DagView(Output):
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
    tags: list[str]
    next_logical_date: Instant | None
    next_due_at: Instant | None
    updated_at: Instant
    inactive_since: Instant | None = Field(description="Of a DAG that is not active: nothing new can be asked of it.")
    inactive_reason: str | None = Field(description="What has become of its file, or who deactivated it.")


class DagDetails(DagView):
    start_date: Instant | None
    end_date: Instant | None
    catchup: bool
    max_active_runs: int
    max_active_tasks: int
    batchable: bool
    params: dict[str, Any]
    tasks: list[DagTask]
    runs: dict[str, int] = Field(description="How many it has, by state.")


class Cell(Output):
    state: TaskState
    try_number: int
    started_at: Instant | None
    duration_s: float | None


class GridRun(RunView):
    cells: dict[str, Cell] = Field(description="By task id.")


class GridTask(Output):
    task_id: str
    is_current: bool


class GridView(BaseModel):
    order: Literal["date", "made"]
    runs: list[GridRun] = Field(description="Oldest first.")
    tasks: list[GridTask]
    next_cursor: str | None = Field(description="`cursor` of the page of older runs; null when there are none.")


class VersionView(Output):
    dag_id: str
    version: int
    is_current: bool
    created_at: Instant
    bundle: str
    file: str
    commit_id: str | None
    content_hash: str


class VersionDiff(Output):
    dag_id: str
    before: int
    after: int
    settings: list[dict[str, Any]]
    tasks: list[dict[str, Any]]
    files: list[dict[str, Any]] | None


class Interval(Output):
    logical_date: Instant
    interval_start: Instant
    interval_end: Instant
    due_at: Instant


class ImportErrorView(Output):
    bundle: str
    file: str
    line: int | None
    message: str
    traceback: str
    first_seen_at: Instant
    last_seen_at: Instant


class BundleView(Output):
    name: str
    parser: str
    dags: int
    errors: int
    commit_id: str | None
    parsed_at: Instant | None = Field(description="When files of it were last read, whether or not they had changed.")
    settings: dict[str, Any] | None = Field(description="How it is read: configuration and manifest together.")


class PoolView(Output):
    name: str
    slots: int
    weight: int
    min_share: int
    used: int = Field(description="Slots that are taken.")
    free: int
    queued: int = Field(description="Task instances that wait.")
    running: int


class Answer(BaseModel):
    outcome: Literal["accepted", "refused"]
    object_id: str | None = Field(description="The id of what was made or touched.")
    message: str
    answered_at: Instant


class ListedRequest(Output):
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
    answer: Answer | None


class RequestView(ListedRequest):
    """With all that was asked, which lists leave out, as it may be large."""

    payload: Any
    result: Any = Field(default=None, description="What it gave beside words.")


class PlannedItem(Output):
    ordinal: int
    logical_date: Instant | None
    interval_start: Instant | None
    interval_end: Instant | None
    partition_key: str | None
    state: ItemState
    reason: str | None


class PlanView(Output):
    items: list[PlannedItem]
    summary: dict[str, Any]


class ClearedTask(Output):
    task_id: str
    state: TaskState


class ClearedRun(Output):
    dag_id: str
    run_id: str
    state: RunState
    tasks: list[ClearedTask]
    stays: list[str] = Field(description="Tasks after them that stay `upstream_failed`: `downstream` clears them, too.")


class ClearPlanView(Output):
    runs: list[ClearedRun]
    summary: dict[str, int]


class ManagerView(Output):
    leading: bool
    term: int | None
    state: str | None
    advice: str | None


class HealthView(BaseModel):
    status: Literal["ok"] = Field(description="The state can be read.")
    manager: Literal["leading", "none"]
    detail: str | None = Field(description="What to do when something is not as it should be.")
    leader: ManagerView | None
    version: str
