"""The rows of the state tables: frozen dataclasses, and the only list of columns in the project.

Types are `str`, `int`, `float`, `bool`, `datetime` (aware, UTC, microseconds), each possibly `| None`. Text columns whose
name ends in `_json` hold a JSON document. Every engine derives its DDL from `TABLES`.

`run_seq` rises with creation, over all tables that have it (one counter of the leader); a MERGE names the lowest one it
touches, so that old files are skipped and a tick costs the same whatever the history (docs/design-decisions.md, "Tick cost is
independent of state size").
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Final, TypeVar

# The version of the state's layout. A column that is added may be null, so that an older state can be brought up to date:
# 2: request.requested_from, backfill.hidden_at, task_instance.rows_written, dag.deactivated_by, dag_version.commit_id,
#    bundle.commit_id and helpers_json, and what a manager knows of itself. All of them may be null.
# 3: task_try.spark_jobs_json. It may be null.
# 4: backfill.with_upstream, with_downstream and ignore_first_depends_on_past, dag_run.is_partial, task_instance.losses,
#    manager.state_id, state_id_since and state_root, dag_version.reader_json, bundle.parsed_at and settings_json. All of
#    them may be null.
# 5: response.error_code, error_field and error_params. They may be null.
# 6: pool.memory_mb and nice, dag_version.python. They may be null.
# 7: backfill.waits_until. It may be null.
# 8: task_instance.result_shown_json, backfill.batch_target. They may be null.
# 9: the table table_access.
# 10: the table check_result; table_access.columns_json, table_id and interval_column, backfill.preview_id and
#     preview_outcome, and dag_run.reverted_at, reverted_by and restored_run_id, which may be null.
# 11: the table notification; backfill.notify, which may be null.
# 12: backfill.note, note_by and note_at, the same of dag_run; task_try.spark_stages_json. They may be null.
# 13: task_instance.wait_ends_at, which may be null.
# 14: manager.slow_loop and slow_loop_since. They may be null.
SCHEMA_VERSION: Final = 14

# Since this version; states of an older one get them when a manager starts.
NEW_TABLES: Final = {"table_access": 9, "check_result": 10, "notification": 11}

TABLES: dict[str, type[Record]] = {}  # in the order of this file
R = TypeVar("R", bound="Record")
AUTO_BATCH: Final = 0  # of `backfill.batch`


@dataclass(frozen=True)
class Record:
    TABLE: ClassVar[str]
    KEY: ClassVar[tuple[str, ...]]  # the columns that identify a row
    APPEND_ONLY: ClassVar[bool]  # rows are never changed: committed by append, not by MERGE

    def __init_subclass__(cls, *, table: str, key: tuple[str, ...], append_only: bool = False) -> None:
        cls.TABLE, cls.KEY, cls.APPEND_ONLY = table, key, append_only
        TABLES[table] = cls

    @property
    def key(self) -> tuple[Any, ...]:
        values = vars(self)
        return tuple([values[name] for name in self.KEY])

    def evolve(self: R, **changes: Any) -> R:
        return type(self)(**{**vars(self), **changes})  # a third of the time of `dataclasses.replace`


@dataclass(frozen=True)
class Request(Record, table="request", key=("request_id",), append_only=True):
    request_id: str  # Id of the request, chosen by the client
    kind: str  # `backfill.create`, `backfill.pause`, ...: see schemas/request_kinds.py
    payload_json: str  # Fields of the command
    requested_by: str  # Name of the token, or of the user of the command line
    requested_at: datetime
    source: str = "cli"  # `cli`, `api` or `ui`
    requested_from: str | None = None  # Address of the client, for `api` and `ui`


@dataclass(frozen=True)
class Response(Record, table="response", key=("request_id",), append_only=True):
    request_id: str  # Id of the request
    kind: str
    outcome: str  # `accepted` or `refused`
    object_id: str | None  # Id of the object that was created or changed
    message: str  # What was done, or why it was refused
    payload_json: str | None  # Result of the request besides the message
    answered_at: datetime
    term: int  # Term of the manager that answered
    error_code: str | None = None  # Code of a refusal; with field and params, each interface words the error itself
    error_field: str | None = None  # Field to which the error refers
    error_params: str | None = None  # Values in the error's text, as JSON


@dataclass(frozen=True)
class Backfill(Record, table="backfill", key=("backfill_id",)):
    """A backfill. The number of items by state is not a column: it is counted from `backfill_item`."""

    backfill_id: str
    dag_id: str
    state: str
    config_json: str  # `{"type": "schedule", "start_date": ..., "end_date": ..., "run_backwards": ...}`
    reprocess: str  # `none`, `failed`, `failed_tasks` or `completed`
    max_active_runs: int  # Maximum number of active runs
    priority: int
    pool: str
    is_paused: bool  # Whether it starts no new runs
    created_at: datetime
    run_seq: int  # Sequence number, higher than those of all its planned items
    planned: int = 0  # Number of items, in any state
    is_cancelled: bool = False  # Whether a user has cancelled it; nothing of it starts any more
    is_cancelling: bool = False  # Whether its running tasks are being stopped, too; kept after a crash
    dag_version: int = 0
    batch: int = 1  # Maximum number of items per run; 0: `auto`, decided for each run by the cost of past runs
    conf_json: str = "{}"  # Parameters of its runs
    overrides_json: str = "{}"  # `{"retries": 3, "clean.timeout": 60}`: settings of the DAG, of all tasks, of one task
    tasks: str | None = None  # Regular expression that selects tasks; null: all tasks
    mark_success: bool = False
    stop_on_failure: int | None = None  # Number of failed items after which it is paused; null: never
    window: str | None = None  # Hours in which it starts work, in the DAG's time zone: `20:00-06:00`
    is_polite: bool = False  # Whether it starts nothing while a scheduled task waits for a slot
    parents_json: str = "[]"  # For a downstream backfill: ids of the backfills that write what it reads
    failed_when_resumed: int = 0  # Failed items when it was resumed; `stop_on_failure` counts from there
    created_by: str = ""  # User who requested it
    request_id: str = ""  # Id of the request that created it
    changed_by: str = ""  # Id of the request that last changed it
    started_at: datetime | None = None  # When its first run started
    completed_at: datetime | None = None  # When its last run ended
    reason: str | None = None  # Why it is in its state
    hidden_at: datetime | None = None  # When it was hidden; lists leave it out since then, its id still works
    with_upstream: bool | None = (
        None  # Whether the tasks upstream of `tasks` run, too; null: written by an older release
    )
    with_downstream: bool | None = None  # Whether the tasks downstream of `tasks` run, too
    ignore_first_depends_on_past: bool | None = None  # Whether its first item does not wait for the run before it
    waits_until: datetime | None = None  # When its `window` opens, while pending items wait for it
    batch_target: float | None = None  # Maximum expected seconds of a run if `batch` is 0; null: as configured
    preview_id: str | None = None  # For a preview: id of the backfill at the root of its tree; they share its clones
    preview_outcome: str | None = None  # `promoted`, `discarded` or `expired`; null: its clones exist
    notify: str | None = None  # Target in `notifications` of the configuration that gets a message when it ends
    note: str | None = None  # Note of a user, without secrets; null: there is none
    note_by: str | None = None  # User who last changed the note
    note_at: datetime | None = None

    @property
    def is_preview(self) -> bool:
        """Whether its runs write clones. Once promoted, it is as if it had never been one."""
        return self.preview_id is not None and self.preview_outcome != "promoted"


@dataclass(frozen=True)
class BackfillItem(Record, table="backfill_item", key=("backfill_id", "ordinal")):
    backfill_id: str
    ordinal: int  # Position in the order of creation, from 1
    state: str
    run_seq: int  # Sequence number of the item
    logical_date: datetime | None = None
    interval_start: datetime | None = None
    interval_end: datetime | None = None
    partition_key: str | None = None
    reason: str | None = None  # Why it is skipped, failed or cancelled
    run_id: str | None = None  # Id of the run that last processed it
    batch: int | None = None  # Pending items with the same number form one run; the ordinal of the first of them


RunKey = tuple[str, str]  # dag_id, run_id


@dataclass(frozen=True)
class DagRun(Record, table="dag_run", key=("dag_id", "run_id")):
    dag_id: str
    run_id: str
    run_type: str  # `scheduled`, `backfill`, `manual`, `external` or `preview`
    state: str
    dag_version: int
    run_seq: int  # Sequence number of the run
    created_at: datetime
    logical_date: datetime | None = None
    interval_start: datetime | None = None
    interval_end: datetime | None = None  # End of the data interval (exclusive)
    partition_key: str | None = None
    previous_run_id: str | None = None  # Id of the previous run in the timeline
    overridden_by: str | None = None  # Id of the run that replaced it
    backfill_id: str | None = None  # Id of the backfill that created it
    ordinal: int | None = None  # Ordinal of its backfill item; for a batch, of the first item
    items: int = 1  # Number of intervals; if more than 1, it counts for every date in its interval
    conf_json: str = "{}"  # Parameters of the run
    request_id: str | None = None  # For a manual or external run: id of the request that created it
    started_at: datetime | None = None
    ended_at: datetime | None = None
    reason: str | None = None  # Why it is in its state
    is_partial: bool | None = (
        None  # Whether tasks were left out on request; a backfill of all tasks treats its date as missing
    )

    reverted_at: datetime | None = (
        None  # When it was reverted; its tables contain the rows from before the run since then
    )
    reverted_by: str | None = None  # Id of the request that reverted it
    restored_run_id: str | None = None  # Id of the earlier run, whole and successful, whose rows were restored
    note: str | None = None  # Note of a user, without secrets; null: there is none
    note_by: str | None = None  # User who last changed the note
    note_at: datetime | None = None

    @property
    def is_for_schedule(self) -> bool:
        """Whether the schedule made it, and no backfill runs it again."""
        return self.run_type == "scheduled" and self.backfill_id is None

    @property
    def is_undone(self) -> bool:
        """Whether it was reverted, and no run before it counts in its place: its date is missing."""
        return self.reverted_at is not None and self.restored_run_id is None


@dataclass(frozen=True)
class TaskInstance(Record, table="task_instance", key=("dag_id", "run_id", "task_id")):
    dag_id: str
    run_id: str
    task_id: str
    state: str
    run_seq: int  # Sequence number of the run
    try_number: int = 0  # 1 from the first start; a crash of the manager does not increase it
    launch: int = 0  # Number of the start; it also counts starts after a crash, and identifies late tries
    generation: int = 0  # Number that a clear increases; output of an older generation is replaced
    cleared_by: str | None = None  # Id of the request that last cleared it
    failures: int = 0  # Failed tries since the last clear, compared with `retries`
    pool: str | None = None  # Pool whose slots it uses
    priority: int = 0
    queued_at: datetime | None = None  # When it was handed to the executor
    started_at: datetime | None = None
    ended_at: datetime | None = None
    duration_s: float | None = None
    retry_at: datetime | None = None  # When the next try is due
    error: str | None = None  # Error of the last failed try
    result_json: str | None = None  # What the task returned
    rows_written: int | None = None  # Rows that its last success wrote, by `ctx.write` and `ctx.merge`; null: none
    losses: int | None = None  # Consecutive starts that ended with their process or JVM, over all terms; null: 0
    result_shown_json: str | None = None  # Result without secrets; null: it contains none
    wait_ends_at: datetime | None = None  # When its `wait_limit` ends, while it waits for data


@dataclass(frozen=True)
class TaskTry(Record, table="task_try", key=("dag_id", "run_id", "task_id", "launch"), append_only=True):
    """One start of a task that has ended. The row is written with its task instance, or derived from it again."""

    dag_id: str
    run_id: str
    task_id: str
    launch: int  # Number of the start
    try_number: int
    state: str  # How it ended; `lost`: with the manager, the JVM or the fork server
    run_seq: int  # Sequence number of the run
    term: int  # Term of the manager that ran it
    pool: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    duration_s: float | None = None
    error: str | None = None
    spark_jobs_json: str | None = (
        None  # Ids of its jobs in the Spark application of its term: `[3, 4]`; null: none known
    )
    spark_stages_json: str | None = (
        None  # Figures of the Spark stages of these jobs (`SparkStages`); null: nothing is known
    )


@dataclass(frozen=True)
class TableAccess(
    Record, table="table_access", key=("dag_id", "run_id", "task_id", "launch", "number"), append_only=True
):
    """A table that a try has read or written. The row is written when the try ends."""

    dag_id: str
    run_id: str
    task_id: str
    launch: int
    number: int  # Number within the try, from 1
    access: str  # `read` or `write`; `revert`: the write of this try was undone by `version`
    run_seq: int  # Sequence number of the run
    at: datetime  # When the try ended
    succeeded: bool  # Whether the try succeeded; what a failed try has written may remain
    dag_version: int
    table_path: str | None = None  # Path of the table, as a URI
    table_name: str | None = None  # Name in the catalog, without Spark's own catalog; null: it was named by its path
    version: int | None = None  # Delta version; null: not a Delta table, or an earlier try has written it
    rows_written: int | None = None
    bytes_written: int | None = None  # Bytes of the files written
    interval_start: datetime | None = None  # Start of the data interval of the run
    interval_end: datetime | None = None
    partition_key: str | None = None
    table_id: str | None = None  # Delta's id of the table; a table that is dropped and created again has another id
    interval_column: str | None = None  # For a write: column that holds the time of a row, or the partition key
    columns_json: str | None = (
        None  # `[{"name", "type", "from": [[table, column]]}]`, for a read without `from`; null: unknown
    )


@dataclass(frozen=True)
class CheckResult(
    Record, table="check_result", key=("dag_id", "run_id", "task_id", "launch", "number"), append_only=True
):
    """The result of a check of the rows that a try was about to publish. The row is written when the try ends."""

    dag_id: str
    run_id: str
    task_id: str
    launch: int
    number: int  # Number within the try, from 1
    try_number: int
    table_name: str  # Name in the catalog, without Spark's own catalog; else the path
    condition: str  # The check as it was declared
    outcome: str  # `passed`, `failed`, `warned`, `error` or `skipped`
    run_seq: int  # Sequence number of the run
    at: datetime  # When the try ended
    dag_version: int
    name: str | None = None  # Name of the check
    rows: int | None = None  # Number of rows of the write; null: they were not checked
    failing_rows: int | None = None  # Rows that do not meet the check; null: it is not about single rows
    value: float | None = None  # Number of rows, or the percentage above the mean of the preceding intervals
    message: str | None = None  # The finding in words
    interval_start: datetime | None = None  # Start of the data interval of the run
    interval_end: datetime | None = None
    partition_key: str | None = None


@dataclass(frozen=True)
class TaskLog(Record, table="task_log", key=("dag_id", "run_id", "task_id", "launch", "line"), append_only=True):
    dag_id: str
    run_id: str
    task_id: str
    launch: int  # Number of the start
    try_number: int
    line: int  # Line number within the start, from 1
    at: datetime
    level: str
    message: str  # Text of the line, without secrets
    run_seq: int  # Sequence number of the run


@dataclass(frozen=True)
class Notification(Record, table="notification", key=("notification_id", "target")):
    """A message about a run or a backfill for one target. It is committed together with what it reports."""

    notification_id: str
    target: str  # Name of a target in `notifications` of the configuration
    event: str  # `failed`, `late`, `deadlocked` or `done`
    state: str  # `waiting`, `sent`, or `failed`: given up
    dag_id: str
    title: str  # First line of the message
    text: str  # Rest of the message
    run_seq: int  # Sequence number of the message
    created_at: datetime
    run_id: str | None = None
    backfill_id: str | None = None
    failures: int = 0  # Number of failed attempts to send it
    error: str | None = None  # Error of the last failed attempt
    ended_at: datetime | None = None  # When it was sent or given up


@dataclass(frozen=True)
class DagRow(Record, table="dag", key=("dag_id",)):
    dag_id: str
    bundle: str
    file: str  # Path of its file within the bundle
    current_version: int  # Number of the version that new runs use
    is_paused: bool
    is_active: bool  # Whether a file defines it
    schedule: str | None
    timezone: str  # IANA name of its time zone
    updated_at: datetime
    description: str | None = None
    owner: str | None = None
    tags_json: str = "[]"
    start_date: datetime | None = None
    end_date: datetime | None = None
    deactivated_by: str | None = None  # User who deactivated it; new content or a parse on request activates it again


@dataclass(frozen=True)
class DagVersion(Record, table="dag_version", key=("dag_id", "version")):
    dag_id: str
    version: int
    content_hash: str  # Hash of the definition and of the bundle's code
    definition_json: str  # Definition of the DAG (`dags.definition.DagSpec`)
    bundle: str
    file: str  # Path of the file within the bundle
    snapshot: str  # Folder with the files of the bundle as they were in this version
    created_at: datetime
    commit_id: str | None = None  # Commit of a git bundle
    reader_json: str | None = None  # For a parser's own format: `{"reader": "module:Class", "options": {...}}`
    python: str | None = None  # Python interpreter of its tasks; null: the manager's


@dataclass(frozen=True)
class ImportProblem(Record, table="import_error", key=("bundle", "file")):
    bundle: str
    file: str
    line: int | None  # Line in the file, if it is known
    message: str
    traceback: str
    is_current: bool  # Whether the file still cannot be imported
    first_seen_at: datetime
    last_seen_at: datetime


@dataclass(frozen=True)
class BundleRow(Record, table="bundle", key=("name",)):
    name: str
    path: str  # Location of the bundle
    parser: str
    content_hash: str  # Hash of all its files
    refreshed_at: datetime  # When its files last changed
    commit_id: str | None = None  # For a git bundle: commit that was last read
    helpers_json: str | None = None  # Files that look like DAG files but define no DAG
    parsed_at: datetime | None = None  # When its files were last parsed, whether or not they had changed
    settings_json: str | None = None  # Settings of the bundle, from configuration and manifest together


@dataclass(frozen=True)
class Pool(Record, table="pool", key=("name",)):
    name: str
    slots: int  # Number of task slots
    weight: int  # Weight of the Spark pool: its share of the cores
    min_share: int  # Minimum share of the Spark pool: number of cores that it gets first
    memory_mb: int | None = None  # Memory limit of each task's process, in MB; null: no limit
    nice: int | None = None  # Niceness of task processes, added to the manager's; null: by type of the run


@dataclass(frozen=True)
class Manager(Record, table="manager", key=("term",)):
    """A term of leadership. The row with the highest term is the lease."""

    term: int
    manager_id: str
    host: str
    pid: int
    state: str  # `leading` or `stopped`
    started_at: datetime
    heartbeat_at: datetime  # Last heartbeat
    lease_s: int  # Seconds without a heartbeat after which another manager may lead
    version: str  # Version of the package
    application_id: str | None = None  # Id of its Spark application
    ended_at: datetime | None = None
    spark_ui: str | None = None  # URL of the Spark web UI, as the driver knows it
    ticks: int | None = None  # Ticks of this term, up to the heartbeat
    commits: int | None = None  # Commits of this term, up to the heartbeat
    tick_ms: float | None = None  # Median duration of the last hundred ticks, in milliseconds
    commit_ms: float | None = None  # Median duration of the last hundred commits, in milliseconds
    state_id: str | None = None  # Identity of the state, part of every output transaction; copied from term to term
    state_id_since: datetime | None = None  # When the state got this identity
    state_root: str | None = None  # Location of the state when the term began; elsewhere, it was moved or copied
    slow_loop: str | None = None  # Its loop that has been at the same work for unusually long, or hangs; null: none
    slow_loop_since: datetime | None = None  # When that loop began this work


RECORDS: tuple[type[Record], ...] = tuple(TABLES.values())

# The order in which a tick commits its tables: children before parents, so that whatever a crash leaves half-done can
# be derived again from what is there; what was made but has no parent yet is swept away at the next take-over. Versions
# come first: a run or backfill must never name one that is not there.
COMMIT_ORDER: tuple[str, ...] = (
    "dag_version", "table_access", "check_result", "task_instance", "task_try", "task_log", "notification", "dag_run",
    "backfill_item", "backfill", "dag", "import_error", "bundle", "pool", "response",
)  # fmt: skip


def columns(record: type[Record]) -> dict[str, tuple[type, bool]]:
    """Column name -> (Python type, nullable), in order."""
    return _columns(record.TABLE)


@functools.cache
def _columns(table: str) -> dict[str, tuple[type, bool]]:
    hints, found = typing.get_type_hints(TABLES[table]), dict[str, tuple[type, bool]]()
    for field in dataclasses.fields(TABLES[table]):
        args = typing.get_args(hints[field.name])
        kind = next((a for a in args if a is not type(None)), hints[field.name])
        found[field.name] = (kind, bool(args))
    return found


def has_run_seq(record: type[Record]) -> bool:
    return "run_seq" in columns(record)
