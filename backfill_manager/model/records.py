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
SCHEMA_VERSION: Final = 12

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
    request_id: str
    kind: str  # backfill.create, backfill.pause, ..., see schemas/request_kinds.py
    payload_json: str
    requested_by: str
    requested_at: datetime
    source: str = "cli"  # cli, api, ui
    requested_from: str | None = None  # of api and ui: the address it came from


@dataclass(frozen=True)
class Response(Record, table="response", key=("request_id",), append_only=True):
    request_id: str
    kind: str
    outcome: str  # accepted, refused
    object_id: str | None  # the new or touched thing
    message: str
    payload_json: str | None
    answered_at: datetime
    term: int
    error_code: str | None = None  # of a refusal: with `error_field` and `error_params` each interface words it itself
    error_field: str | None = None
    error_params: str | None = None  # JSON


@dataclass(frozen=True)
class Backfill(Record, table="backfill", key=("backfill_id",)):
    """A backfill. Counts by state are not columns: they are counted from `backfill_item`."""

    backfill_id: str
    dag_id: str
    state: str
    config_json: str  # the tagged union: {"type": "schedule", "start_date": ..., "end_date": ..., "run_backwards": ...}
    reprocess: str
    max_active_runs: int
    priority: int
    pool: str
    is_paused: bool
    created_at: datetime
    run_seq: int  # higher than every item's of its plan
    planned: int = 0  # items, of any state
    is_cancelled: bool = False  # a person has cancelled it: nothing of it begins any more
    is_cancelling: bool = False  # ... with what runs; survives a crash in the middle of it
    dag_version: int = 0
    batch: int = (
        1  # items that one run may take together; 0: `auto`, decided for each run by what runs have cost so far
    )
    conf_json: str = "{}"
    overrides_json: str = "{}"  # {"retries": 3, "clean.timeout": 60}: settings of the DAG, of every task, of one task
    tasks: str | None = None  # regular expression
    mark_success: bool = False
    stop_on_failure: int | None = None
    window: str | None = None  # "20:00-06:00" in the DAG's zone: the hours in which it starts work
    is_polite: bool = False  # starts nothing while a scheduled task waits for a slot
    parents_json: str = "[]"  # of a downstream backfill: ids of the backfills that write what this one reads
    failed_when_resumed: int = 0  # failed items that a person has seen: `stop_on_failure` counts from there
    created_by: str = ""
    request_id: str = ""
    changed_by: str = ""  # the request that last changed it
    started_at: datetime | None = None
    completed_at: datetime | None = None
    reason: str | None = None
    hidden_at: datetime | None = None  # since then lists leave it out; by its id it is still found
    with_upstream: bool | None = None  # of the tasks that `tasks` names, those upstream too; None: an older release
    with_downstream: bool | None = None  # ... and those downstream
    ignore_first_depends_on_past: bool | None = None  # its first item does not wait for the run before it
    waits_until: datetime | None = None  # its pending items wait for its `window`, which opens then
    batch_target: float | None = None  # seconds that a run should take at most where `batch` is 0; None: as configured
    preview_id: str | None = None  # of a preview: the backfill at the top of its tree, whose clones all of them share
    preview_outcome: str | None = None  # promoted, discarded, expired; None: its clones are there
    notify: str | None = None  # a target of the configuration's `notifications` that hears of its end
    note: str | None = None  # a person's remark, without secrets; None: there is none
    note_by: str | None = None  # who wrote it last
    note_at: datetime | None = None

    @property
    def is_preview(self) -> bool:
        """Whether its runs write clones. Once promoted, it is as if it had never been one."""
        return self.preview_id is not None and self.preview_outcome != "promoted"


@dataclass(frozen=True)
class BackfillItem(Record, table="backfill_item", key=("backfill_id", "ordinal")):
    backfill_id: str
    ordinal: int  # from 1, the order of making
    state: str
    run_seq: int
    logical_date: datetime | None = None
    interval_start: datetime | None = None
    interval_end: datetime | None = None
    partition_key: str | None = None
    reason: str | None = None
    run_id: str | None = None  # the run that last took it
    batch: int | None = None  # pending items with the same number make one run; it is the first one's ordinal


RunKey = tuple[str, str]  # dag_id, run_id


@dataclass(frozen=True)
class DagRun(Record, table="dag_run", key=("dag_id", "run_id")):
    dag_id: str
    run_id: str
    run_type: str
    state: str
    dag_version: int
    run_seq: int
    created_at: datetime
    logical_date: datetime | None = None
    interval_start: datetime | None = None
    interval_end: datetime | None = None
    partition_key: str | None = None
    previous_run_id: str | None = None
    overridden_by: str | None = None
    backfill_id: str | None = None
    ordinal: int | None = None  # of the backfill item, of its first one in a batch
    items: int = 1  # intervals that it takes together; more than 1: it stands for every date in its interval
    conf_json: str = "{}"
    request_id: str | None = None  # of a manual or external run: the request that created it
    started_at: datetime | None = None
    ended_at: datetime | None = None
    reason: str | None = None
    is_partial: bool | None = None  # tasks were left out by choice: for a whole backfill this date is still missing

    reverted_at: datetime | None = None  # since then its tables hold the rows of before it
    reverted_by: str | None = None  # the request
    restored_run_id: str | None = None  # the run before it, whole and successful, whose rows are back
    note: str | None = None  # a person's remark, without secrets; None: there is none
    note_by: str | None = None  # who wrote it last
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
    run_seq: int  # the run's
    try_number: int = 0  # 1 from the first start; a crash of the manager does not raise it
    launch: int = 0  # raised by every start, crash or not; tells a late try from the living one
    generation: int = 0  # raised by clear: output of an older generation is replaced
    cleared_by: str | None = None  # the request that cleared it last
    failures: int = 0  # tries that failed since the last clear; compared with `retries`
    pool: str | None = None
    priority: int = 0
    queued_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    duration_s: float | None = None
    retry_at: datetime | None = None
    error: str | None = None
    result_json: str | None = None
    rows_written: int | None = (
        None  # into tables, by `ctx.write` and `ctx.merge`, when it last succeeded; None: it wrote nothing
    )
    losses: int | None = None  # starts in a row that ended with their process or JVM, over all terms; None: 0
    result_shown_json: str | None = None  # the result without secrets; None: it holds none


@dataclass(frozen=True)
class TaskTry(Record, table="task_try", key=("dag_id", "run_id", "task_id", "launch"), append_only=True):
    """One start of a task that has ended; written with, or derived again from, its task instance."""

    dag_id: str
    run_id: str
    task_id: str
    launch: int
    try_number: int
    state: str
    run_seq: int
    term: int
    pool: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    duration_s: float | None = None
    error: str | None = None
    spark_jobs_json: str | None = None  # "[3, 4]": ids in the Spark application of its term; None: none that is known
    spark_stages_json: str | None = None  # `schemas.resources.SparkStages` of these jobs; None: nothing is known


@dataclass(frozen=True)
class TableAccess(
    Record, table="table_access", key=("dag_id", "run_id", "task_id", "launch", "number"), append_only=True
):
    """A table that a try has read or written; written with its end."""

    dag_id: str
    run_id: str
    task_id: str
    launch: int
    number: int  # within the try, from 1
    access: str  # read, write; revert: what this try has written was taken back, by `version`
    run_seq: int
    at: datetime  # the end of the try
    succeeded: bool  # the try; what a failed one has written may stay
    dag_version: int
    table_path: str | None = None  # a URI
    table_name: str | None = None  # in the catalog, without Spark's own; null: it was named by its path
    version: int | None = None  # Delta's; null: not a Delta table, or an earlier try has written it
    rows_written: int | None = None
    bytes_written: int | None = None  # in files
    interval_start: datetime | None = None  # of the run
    interval_end: datetime | None = None
    partition_key: str | None = None
    table_id: str | None = None  # Delta's, another one when the table was dropped and made anew
    interval_column: str | None = None  # of a write: the column that tells the rows of the interval, or the partition
    columns_json: str | None = (
        None  # [{"name", "type", "from": [[table, column]]}], of a read without `from`; null: unknown
    )


@dataclass(frozen=True)
class CheckResult(
    Record, table="check_result", key=("dag_id", "run_id", "task_id", "launch", "number"), append_only=True
):
    """What a check found in the rows that a try was about to publish; written with its end."""

    dag_id: str
    run_id: str
    task_id: str
    launch: int
    number: int  # within the try, from 1
    try_number: int
    table_name: str  # in the catalog, without Spark's own; else its path
    condition: str  # the check, as it was declared
    outcome: str  # passed, failed, warned, error, skipped
    run_seq: int
    at: datetime  # the end of the try
    dag_version: int
    name: str | None = None  # of the check
    rows: int | None = None  # of the write; null: it was not checked
    failing_rows: int | None = None  # null: the check is not of single rows
    value: float | None = None  # the number of rows, or percent above the mean of those before
    message: str | None = None
    interval_start: datetime | None = None  # of the run
    interval_end: datetime | None = None
    partition_key: str | None = None


@dataclass(frozen=True)
class TaskLog(Record, table="task_log", key=("dag_id", "run_id", "task_id", "launch", "line"), append_only=True):
    dag_id: str
    run_id: str
    task_id: str
    launch: int
    try_number: int
    line: int
    at: datetime
    level: str
    message: str
    run_seq: int


@dataclass(frozen=True)
class Notification(Record, table="notification", key=("notification_id", "target")):
    """A message about a run or a backfill to one target; committed with what it tells."""

    notification_id: str
    target: str  # a name of the configuration's `notifications`
    event: str  # failed, late, deadlocked, done
    state: str  # waiting, sent; failed: given up
    dag_id: str
    title: str
    text: str
    run_seq: int
    created_at: datetime
    run_id: str | None = None
    backfill_id: str | None = None
    failures: int = 0  # attempts that have failed
    error: str | None = None  # of the last one
    ended_at: datetime | None = None  # sent, or given up


@dataclass(frozen=True)
class DagRow(Record, table="dag", key=("dag_id",)):
    dag_id: str
    bundle: str
    file: str
    current_version: int
    is_paused: bool
    is_active: bool
    schedule: str | None
    timezone: str
    updated_at: datetime
    description: str | None = None
    owner: str | None = None
    tags_json: str = "[]"
    start_date: datetime | None = None
    end_date: datetime | None = None
    deactivated_by: str | None = None  # the person who did; it comes back with new content, or when it is asked for


@dataclass(frozen=True)
class DagVersion(Record, table="dag_version", key=("dag_id", "version")):
    dag_id: str
    version: int
    content_hash: str  # of the definition and of the bundle's code
    definition_json: str  # dags.definition.DagSpec
    bundle: str
    file: str  # within the bundle
    snapshot: str  # folder that holds the bundle's files as they were
    created_at: datetime
    commit_id: str | None = None  # of a git bundle
    reader_json: str | None = None  # of a format of a parser's own: {"reader": "module:Class", "options": {...}}
    python: str | None = None  # the interpreter that its tasks run with; None: the manager's


@dataclass(frozen=True)
class ImportProblem(Record, table="import_error", key=("bundle", "file")):
    bundle: str
    file: str
    line: int | None
    message: str
    traceback: str
    is_current: bool
    first_seen_at: datetime
    last_seen_at: datetime


@dataclass(frozen=True)
class BundleRow(Record, table="bundle", key=("name",)):
    name: str
    path: str
    parser: str
    content_hash: str
    refreshed_at: datetime
    commit_id: str | None = None  # of a git bundle
    helpers_json: str | None = None  # files that look as if they made DAGs, and make none
    parsed_at: datetime | None = None  # when files of it were last read, whether or not something had changed
    settings_json: str | None = None  # how it is read: configuration and manifest together


@dataclass(frozen=True)
class Pool(Record, table="pool", key=("name",)):
    name: str
    slots: int
    weight: int
    min_share: int
    memory_mb: int | None = None  # that a process of its tasks may take; None: no limit
    nice: int | None = None  # added to the manager's, for processes of its tasks; None: by the kind of their run


@dataclass(frozen=True)
class Manager(Record, table="manager", key=("term",)):
    """One row per term of leadership; the row with the highest term is the lease."""

    term: int
    manager_id: str
    host: str
    pid: int
    state: str  # leading, stopped
    started_at: datetime
    heartbeat_at: datetime
    lease_s: int
    version: str
    application_id: str | None = None
    ended_at: datetime | None = None
    spark_ui: str | None = None  # address of Spark's own pages, as the driver knows it
    ticks: int | None = None  # of this term, as of the heartbeat; the same holds for what follows
    commits: int | None = None
    tick_ms: float | None = None  # median of the last hundred
    commit_ms: float | None = None
    state_id: str | None = None  # identity of the state: part of every output transaction; copied from term to term
    state_id_since: datetime | None = None  # when the state was given this identity
    state_root: str | None = None  # where the state was when this term began; elsewhere it was moved or copied


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
