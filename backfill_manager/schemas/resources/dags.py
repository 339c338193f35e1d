"""DAGs, their versions and next intervals, and the bundles that define them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from backfill_manager.schemas.resources.base import Instant, Resource


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
    exclude_dates: tuple[str, ...] = Field(
        (), description="Dates on which its schedule does not fire, in its time zone."
    )
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
