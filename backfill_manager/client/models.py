"""What a server tells, typed: the fields of the JSON documents, instants as aware UTC `datetime`s.

Frozen. A newer server may send more fields: they are kept, and can be read as attributes. `document()` gives the JSON
form back.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from typing import Annotated, Any, Final

from pydantic import AwareDatetime, BaseModel, ConfigDict, PlainSerializer

from backfill_manager.clock import format_instant

Instant = Annotated[AwareDatetime, PlainSerializer(format_instant, return_type=str)]
Document = dict[str, Any]

BACKFILL_ENDED: Final = frozenset({"success", "failed", "cancelled"})


def plain(value: Any) -> Any:
    """What goes out as JSON: a date is said as an instant if it is aware, else as it stands: in the DAG's time zone."""
    if isinstance(value, datetime):
        return value.isoformat() if value.tzinfo is None else format_instant(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(one) for one in value]
    return value


class Resource(BaseModel):
    model_config = ConfigDict(frozen=True, extra="allow")

    def document(self) -> Document:
        return self.model_dump(mode="json")


class Backfill(Resource):
    """One backfill; its items are counted by state."""

    backfill_id: str
    dag_id: str
    state: str
    config: Document
    reprocess: str
    max_active_runs: int | None
    priority: int
    pool: str
    is_paused: bool
    created_at: Instant
    started_at: Instant | None
    completed_at: Instant | None
    planned: int
    pending: int
    running: int
    success: int
    failed: int
    cancelled: int
    skipped: int
    reason: str | None

    @property
    def has_ended(self) -> bool:
        return self.state in BACKFILL_ENDED


class Item(Resource):
    """One planned interval or partition."""

    ordinal: int
    logical_date: Instant | None
    interval_start: Instant | None
    interval_end: Instant | None
    partition_key: str | None
    state: str
    reason: str | None
    run_id: str | None


class Run(Resource):
    run_id: str
    dag_id: str
    run_type: str
    state: str
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
    is_partial: bool | None = None  # tasks were left out by choice


class TimelineRun(Run):
    overridden: tuple[TimelineRun, ...]  # those that it took the place of, newest first


class TaskInstance(Resource):
    dag_id: str
    run_id: str
    task_id: str
    state: str
    try_number: int
    pool: str | None
    started_at: Instant | None
    ended_at: Instant | None
    duration_s: float | None
    rows_written: int | None
    error: str | None


class Try(Resource):
    task_id: str
    try_number: int
    launch: int
    term: int  # of the manager that ran it
    state: str
    pool: str | None
    started_at: Instant | None
    ended_at: Instant | None
    duration_s: float | None
    error: str | None
    spark_jobs: tuple[int, ...]  # ids within the Spark application of that term; those that are known


class RunTasks(Resource):
    items: tuple[TaskInstance, ...]
    tries: tuple[Try, ...]


class LogLine(Resource):
    at: Instant
    level: str
    message: str
    try_number: int
    launch: int
    line: int


class Log(Resource):
    state: str  # of the task
    is_whole: bool  # nothing will be added any more, unless it is cleared
    lines: tuple[LogLine, ...]
    after: str | None  # for the next call, which goes on behind the last line


class Dag(Resource):
    dag_id: str
    description: str | None
    schedule: str | Document | None
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
    inactive_since: Instant | None = None  # of a DAG that is not active: nothing new can be asked of it
    inactive_reason: str | None = None


class DagTask(Resource):
    task_id: str
    kind: str
    upstream: tuple[str, ...]
    downstream: tuple[str, ...]


class DagDetails(Dag):
    start_date: Instant | None
    end_date: Instant | None
    catchup: bool
    max_active_runs: int
    max_active_tasks: int
    batchable: bool
    params: Document
    tasks: tuple[DagTask, ...]
    runs: dict[str, int]  # by state


class Interval(Resource):
    logical_date: Instant
    interval_start: Instant
    interval_end: Instant
    due_at: Instant


class Cell(Resource):
    state: str
    try_number: int
    started_at: Instant | None
    duration_s: float | None


class GridRun(Run):
    cells: dict[str, Cell]  # by task id


class Grid(Resource):
    runs: tuple[GridRun, ...]  # oldest first
    tasks: tuple[Document, ...]
    next_cursor: str | None  # of older runs


class VersionDiff(Resource):
    dag_id: str
    before: int
    after: int
    settings: tuple[Document, ...]
    tasks: tuple[Document, ...]
    files: tuple[Document, ...] | None  # None: the server can't see the files of these versions


class DagVersion(Resource):
    dag_id: str
    version: int
    is_current: bool
    created_at: Instant
    bundle: str
    file: str
    commit_id: str | None
    content_hash: str


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
    parsed_at: Instant | None
    settings: dict[str, Any] | None


class Pool(Resource):
    name: str
    slots: int
    weight: int
    min_share: int
    used: int
    free: int
    queued: int
    running: int


class Request(Resource):
    """What was asked, and the manager's answer: `state` is waiting, accepted or refused."""

    request_id: str
    kind: str
    state: str
    about: dict[str, str] = {}  # ids and names that it speaks of
    payload: Any = None  # all that was asked; not of those that a list gives
    requested_by: str
    requested_at: Instant
    source: str
    object_id: str | None  # what was made or touched
    message: str | None
    answered_at: Instant | None

    @property
    def is_answered(self) -> bool:
        return self.state != "waiting"


class Plan(Resource):
    """A dry run."""

    items: tuple[Document, ...]
    summary: Document


class ClearPlan(Resource):
    runs: tuple[Document, ...]
    summary: dict[str, int]


class Health(Resource):
    status: str  # ok, unusable
    manager: str  # leading, none
    detail: str | None
    leader: Document | None
    version: str
