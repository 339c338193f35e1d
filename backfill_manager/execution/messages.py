"""The messages of the executor: the launches that it takes, the events and outcomes that it reports, matched once
(`manager.apply_outcomes`).

    TaskLaunch ─► Executor ─► TaskStarted ─► TaskEnded(outcome)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from backfill_manager.dags.definition import DagSpec, TaskSpec
from backfill_manager.execution.interval import Interval
from backfill_manager.masking import Known, mask_code, mask_text, mask_values, secrets_in, secrets_of
from backfill_manager.model.records import DagRun, DagVersion, TaskInstance, TaskLog
from backfill_manager.schemas.checks import CheckOutcome

if TYPE_CHECKING:
    from backfill_manager.schemas.resources import SparkStages

LaunchKey = tuple[str, str, str, int]  # dag_id, run_id, task_id, launch
SpanValue = str | bool | int | float | list[str | bool | int | float]


@dataclass(frozen=True)
class Ended:
    """What a callback reports: a task of its run that has ended, or the whole run."""

    task_id: str | None  # None: the run
    state: str  # success, failed
    error: str | None = None  # the task's error in one line, or the run's reason: "failed: clean"


@dataclass(frozen=True)
class TaskLaunch:
    """One start of one task instance, with everything that it needs."""

    ti: TaskInstance  # in state queued
    run: DagRun
    dag: DagSpec  # with this task alone
    task: TaskSpec
    version: DagVersion
    pool: str
    params: dict[str, Any] = field(default_factory=dict)  # the DAG's, with the run's conf laid over them
    results: dict[str, Any] = field(default_factory=dict)  # of each task that it may read; None: it returned nothing
    memory_mb: int | None = None  # that its process, and what that starts, may take; None: no limit
    nice: int = 0  # of its process, added to the manager's
    ended: Ended | None = None  # of a callback: what it reports
    preview_id: str | None = None  # of a preview: whose clones it reads and writes

    @property
    def key(self) -> LaunchKey:
        return (self.ti.dag_id, self.ti.run_id, self.ti.task_id, self.ti.launch)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Masked wherever they stand: of its params, and of the variables that its command is given."""
        return tuple(dict.fromkeys((*secrets_in(self.params), *secrets_of(dict(self.task.env)))))

    @property
    def interval(self) -> Interval | None:
        if self.run.interval_start is None or self.run.interval_end is None:
            return None
        return Interval(self.run.interval_start, self.run.interval_end)


@dataclass(frozen=True)
class Succeeded:
    result_json: str | None = None
    rows_written: int | None = None
    shown_json: str | None = None  # the result without secrets; None: it holds none


@dataclass(frozen=True)
class Failed:
    error: str  # one line for tables and lists; the traceback is in the task's log
    retryable: bool = True


@dataclass(frozen=True)
class Skipped:
    reason: str


@dataclass(frozen=True)
class Cancelled:
    reason: str


@dataclass(frozen=True)
class Lost:
    """Spark went away while it ran: no try is spent, but it may be the task that ends it, so losses are counted
    (`manager.crash_loops`). `alone`: no other task had begun at that moment."""

    reason: str
    alone: bool = False


@dataclass(frozen=True)
class PutBack:
    """The manager was stopped, or has handed over, before the task had finished: it starts again, and nothing is counted."""

    reason: str


@dataclass(frozen=True)
class Postponed:
    """Something outside of the task keeps it from running here for a moment (a lease that is not certain, no process or
    thread left): it starts again after a while, and nothing is counted."""

    reason: str


Outcome = Succeeded | Failed | Skipped | Cancelled | Lost | PutBack | Postponed


@dataclass(frozen=True)
class AccessedTable:
    """One table that a try has read or written, or whose write was reverted."""

    access: Literal["read", "write", "revert"]
    name: str | None  # in the catalog, as schema.table or catalog.schema.table; None: it was named by its path
    path: str | None  # a URI; None: it is not known
    version: int | None = None  # Delta's; None: not a Delta table, or an earlier try has written it
    rows: int | None = None  # written; None: not known, as always of what is read
    bytes: int | None = None  # of the files that were written, likewise
    table_id: str | None = None  # Delta's, another one when the table was dropped and made anew
    interval_column: str | None = None  # by which the rows of the run's interval (or partition) were written
    columns_json: str | None = None  # while they are recorded, see `TableAccesses.columns_of` and `tables_in`


@dataclass(frozen=True)
class CheckedWrite:
    """What one check found in the rows of a write."""

    table: str  # its name in the catalog, else its path
    condition: str
    name: str | None
    outcome: CheckOutcome
    rows: int | None = None  # of the write; None: it could not be checked, or was not
    failing: int | None = None  # of them; None: the check is not of single rows
    value: float | None = None  # what was compared, see `schemas.checks.Verdict`
    message: str | None = None

    def without_secrets(self, known: tuple[Known, ...] = ()) -> CheckedWrite:
        """As it is stored: a condition may be written with the value of a param, or of the task's environment."""
        name, message = (None if text is None else mask_text(text, known) for text in (self.name, self.message))
        return replace(self, condition=mask_code(self.condition, known), name=name, message=message)


@dataclass(frozen=True)
class SpanEvent:
    """Something that a span of a task's code tells of an instant."""

    name: str
    at_ns: int
    attributes: dict[str, SpanValue] = field(default_factory=dict)


@dataclass(frozen=True)
class SpanLink:
    """Another span, of which a span of a task's code says that it belongs to it."""

    trace_id: str  # ids as those of `TaskSpan`
    span_id: str
    attributes: dict[str, SpanValue] = field(default_factory=dict)


@dataclass(frozen=True)
class TaskSpan:
    """A span that the code of a task has made by the API of OpenTelemetry, as it leaves the task's process."""

    name: str
    trace_id: str  # 32 digits of hexadecimal
    span_id: str  # 16
    parent_id: str | None
    kind: Literal["INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER"]
    start_ns: int  # since 1970
    end_ns: int
    status: Literal["UNSET", "OK", "ERROR"] = "UNSET"
    message: str | None = None  # of the status
    scope: str = ""  # the tracer's name
    attributes: dict[str, SpanValue] = field(default_factory=dict)
    events: tuple[SpanEvent, ...] = ()
    links: tuple[SpanLink, ...] = ()

    def without_secrets(self, masked: Callable[[str], str]) -> TaskSpan:
        def clean(values: dict[str, SpanValue]) -> dict[str, SpanValue]:
            return {key: mask_values(_masked_value(value, masked), key) for key, value in values.items()}

        return replace(
            self, name=masked(self.name), message=None if self.message is None else masked(self.message),
            attributes=clean(self.attributes),
            events=tuple(replace(one, attributes=clean(one.attributes)) for one in self.events),
            links=tuple(replace(one, attributes=clean(one.attributes)) for one in self.links),
        )  # fmt: skip


def _masked_value(value: SpanValue, masked: Callable[[str], str]) -> SpanValue:
    if isinstance(value, str):
        return masked(value)
    return [masked(one) if isinstance(one, str) else one for one in value] if isinstance(value, list) else value


@dataclass(frozen=True)
class TaskStarted:
    key: LaunchKey
    at: datetime


@dataclass(frozen=True)
class TaskEnded:
    key: LaunchKey
    outcome: Outcome
    at: datetime
    spark_jobs: tuple[int, ...] = ()  # ids within the Spark application, see `SparkStatus.jobs_of`
    tables: tuple[AccessedTable, ...] = ()  # read and written; none that is known of a process that was killed
    checks: tuple[CheckedWrite, ...] = ()  # likewise
    spark_stages: SparkStages | None = None  # of the jobs; None: Spark does not say


@dataclass(frozen=True)
class TaskLogged:
    lines: tuple[TaskLog, ...]


Event = TaskStarted | TaskEnded | TaskLogged
