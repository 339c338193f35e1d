"""Every command that the manager takes, each field declared once: type, default, limits, label (title) and help (description).

A command is a frozen pydantic model that takes its values strictly: no "1" for 1, no unknown field. `COMMANDS` maps each
kind of request to the model of its payload, which is also the layout of `request.payload_json`. Releases share a state, so a
field may be added with a default, but none may change its name or meaning. Only form is checked here; what depends on the
DAG or the state is checked by `requests.validation`.

A new option of a backfill is one field of `ListedSettings` (it can be changed while the backfill runs) or of `BackfillPlan` (it
can't). If it is kept with the backfill, it is also a column of `model.records.Backfill`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final, Generic, Literal, TypeVar

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
)
from typing_extensions import Self

from backfill_manager.clock import format_instant, parse_instant
from backfill_manager.errors import InvalidInput, nearest
from backfill_manager.schemas import errors, kinds
from backfill_manager.schemas.errors import invalid_input
from backfill_manager.schemas.fields import DeclaredField, Option, fields_of
from backfill_manager.schemas.json_limits import MAX_DEPTH, invalid_json_values, too_large
from backfill_manager.schemas.regex import check_regex

MAX_NUMBER: Final = 1_000_000_000  # of slots, a priority, a batch, ...: sums of them still fit a column
MAX_PAYLOAD_LENGTH: Final = 32_000_000  # characters of JSON: a million dates or partitions
MAX_PARTITION_KEY_LENGTH: Final = 1000

Kind = Literal["schedule", "single", "dates", "partitions", "missing", "stale"]
Reprocess = Literal["none", "failed", "failed_tasks", "completed"]


def _read_instant(value: Any) -> Any:
    if value is None or isinstance(value, datetime):
        return value
    try:
        return parse_instant(value)
    except (ValueError, AttributeError):
        raise ValueError(f"must be an instant such as 2013-01-31T05:00:00Z, not {str(value)[:40]!r}") from None


def _matching(pattern: str, problem: str) -> AfterValidator:
    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(f"must be {problem}, not {value[:60]!r}")
        return value

    return AfterValidator(check)


Instant = Annotated[AwareDatetime, BeforeValidator(_read_instant), PlainSerializer(format_instant, return_type=str)]
DateText = Annotated[
    str,
    Field(
        min_length=1, max_length=100, examples=["2013-01-31"],
        description="`2013-01-31`, `2013-01-31T05:00` or with an offset; without one in the DAG's time zone.",
    ),
]  # fmt: skip
Count = Annotated[int, Field(ge=1, le=MAX_NUMBER)]
Number = Annotated[int, Field(ge=-MAX_NUMBER, le=MAX_NUMBER)]
Regex = Annotated[str, Field(min_length=1, max_length=1000)]
Text = Annotated[str, Field(min_length=1)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Id = Annotated[
    str,
    _matching(
        r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}",
        "1 to 64 letters, digits, '_', '.' or '-', and begin with a letter or digit",
    ),
]
PoolName = Annotated[
    str,
    _matching(
        r"(?!\.+$)(?!control$)[A-Za-z0-9_.-]{1,200}",
        "up to 200 letters, digits, '_', '.' or '-', and not 'control', the pool that plans",
    ),
]
Subpath = Annotated[
    str,
    _matching(
        r"(?!/)(?!(.*/)?\.\.(/|$)).{0,1000}",
        "a path within the bundle, such as daily/flights.py, or empty for all of it",
    ),
]
Hours = Annotated[
    str,
    _matching(r"\s*([01]\d|2[0-3]):[0-5]\d-(([01]\d|2[0-3]):[0-5]\d|24:00)\s*", "a span of hours such as 20:00-06:00"),
    Field(max_length=20),
]
JsonObject = dict[str, Any]
Date = TypeVar("Date")
CONFIG: Final = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class Command(BaseModel):
    """A request to the manager. `KIND` is its kind in the request table."""

    model_config = CONFIG
    KIND: ClassVar[str] = ""

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """The command of these values; `InvalidInput` names the field and what would be right."""
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            raise invalid_input(error, cls) from None

    def check(self) -> None:
        """`InvalidInput` for what is wrong beyond types and limits, whatever the state holds."""

    def evolve(self, **changes: Any) -> Self:
        """A copy with other values, which must be valid."""
        return self.model_copy(update=changes)

    def to_payload(self) -> dict[str, Any]:
        """The values as JSON, in the layout of the request table."""
        return self.model_dump(mode="json")


# -- backfills --------------------------------------------------------------------------------------------------------


class ListedSettings(BaseModel):
    """Settings of a backfill that lists show; also a part of the resource `Backfill`."""

    model_config = ConfigDict(defer_build=True)

    max_active_runs: Annotated[Count | None, Option(metavar="N", default="the DAG's own")] = Field(
        default=None, title="Max active runs", description="Runs at once."
    )
    batch: Annotated[Count, Option(metavar="N")] = Field(
        default=1,
        title="Batch",
        description="Combine up to N consecutive intervals per run, for DAGs that are batchable.",
    )
    tasks: Annotated[Regex | None, Option("--tasks", "-t", metavar="REGEX", default="all of them")] = Field(
        default=None, title="Tasks",
        description="A regular expression. Run only tasks whose id matches, and what is upstream of them; the others are "
        "skipped. Such runs are partial: to a backfill of all tasks their dates are missing.",
    )  # fmt: skip
    with_upstream: Annotated[bool, Option("--upstream")] = Field(
        default=True, title="Upstream tasks", description="Of the selected tasks: run what is upstream of them, too."
    )
    with_downstream: Annotated[bool, Option("--downstream-tasks")] = Field(
        default=False,
        title="Downstream tasks",
        description="Of the selected tasks: run what is downstream of them, too.",
    )
    mark_success: Annotated[bool, Option("--mark-success", "-m")] = Field(
        default=False, title="Mark success", description="Run no task: the runs are set to success."
    )
    stop_on_failure: Annotated[Count | None, Option(metavar="N", default="never")] = Field(
        default=None, title="Stop on failure", description="Pause after N failed items."
    )
    pool: Annotated[Name, Option(metavar="P")] = Field(
        default="backfill", title="Pool", description="Pool whose slots are used."
    )
    priority: Annotated[Number, Option(metavar="N")] = Field(
        default=0, title="Priority", description="Higher goes first."
    )
    window: Annotated[Hours | None, Option(metavar="HH:MM-HH:MM", default="any hour")] = Field(
        default=None, title="Time window", description="Start work only in these hours of the DAG's zone.",
        examples=["20:00-06:00"],
    )  # fmt: skip
    is_polite: Annotated[bool, Option("--polite")] = Field(
        default=False,
        title="Yield to scheduled runs",
        description="Yield to scheduled work: start nothing while a scheduled task waits for a slot.",
    )


class LargeSettings(BaseModel):
    """Settings of a backfill that lists leave out, as they may be large."""

    model_config = ConfigDict(defer_build=True)

    conf: Annotated[JsonObject, Option("--conf", "-c", metavar="JSON")] = Field(
        default={}, title="Run parameters", description="Parameters of the runs, as a JSON object (64 kB at most).",
        examples=[{"full": True}],
    )  # fmt: skip
    overrides: Annotated[JsonObject, Option("--set", metavar="NAME=VALUE")] = Field(
        default={}, title="Overrides",
        description="Settings of the DAG or its tasks, for this backfill alone: retries=3, clean.timeout=600.",
        examples=[{"retries": 3, "clean.timeout": 60}],
    )  # fmt: skip


class BackfillSettings(ListedSettings, LargeSettings, Command):
    """Options of a backfill that can be changed while it runs. What runs already is not touched."""


UPDATABLE_FIELDS: Final = tuple(BackfillSettings.model_fields)
CHECKED_TOGETHER: Final = ("tasks", "with_upstream", "with_downstream", "overrides")  # settings, with those that change


class BackfillPlan(Command, Generic[Date]):
    """Options of a backfill that say what is planned. `Date` is an instant, or text to be read in the DAG's zone."""

    dag_id: Name = Field(title="DAG", description="The DAG's id.")
    kind: Annotated[Kind | None, Option(default="schedule, or as dates or partitions say")] = Field(
        default=None, title="Kind",
        description="schedule: each interval of the schedule; single: one run over the whole range; dates, partitions: "
        "as listed; missing: intervals without a successful run; stale: those whose success is of an older version "
        "of the DAG.",
    )  # fmt: skip
    start_date: Annotated[Date | None, Option("--from", "-s", metavar="T", default="the DAG's start_date")] = Field(
        default=None, title="From", description="The first interval starts here or after."
    )
    end_date: Annotated[
        Date | None,
        Option("--to", "-e", metavar="T", default="the last complete interval, none after the DAG's end_date"),
    ] = Field(
        default=None, title="To",
        description="The last interval starts here or before (inclusive); a date alone is its whole day in the DAG's zone.",
    )  # fmt: skip
    dates: Annotated[tuple[Date, ...], Option("--date", metavar="T")] = Field(
        default=(), title="Dates", description="Logical dates.", strict=False
    )
    partitions: Annotated[tuple[str, ...], Option("--partition", metavar="KEY")] = Field(
        default=(), title="Partitions", description="Keys that are no dates: a region, a customer.", strict=False
    )
    run_backwards: Annotated[bool, Option("--run-backwards", "-B")] = Field(
        default=False, title="Newest first", description="Newest first."
    )
    reprocess: Reprocess = Field(
        default="none", title="Reprocess",
        description="Dates that have a run already. none: leave them; failed: re-do those that failed, as new runs; "
        "failed_tasks: re-run their failed tasks, and what depends on them, in the same runs; completed: re-do what "
        "succeeded, too.",
    )  # fmt: skip
    downstream: Annotated[bool, Option("--downstream", "--downstream-dags")] = Field(
        default=False, title="Downstream DAGs",
        description="Also backfill every DAG that reads what this one writes, and so on.",
    )  # fmt: skip
    allow_future: bool = Field(
        default=False, title="Allow future",
        description="Also run intervals that have not ended yet, up to the end of the range. Otherwise they are skipped: "
        "not complete yet.",
    )  # fmt: skip
    ignore_first_depends_on_past: Annotated[bool, Option("--ignore-first-depends-on-past", "-I")] = Field(
        default=True, title="Ignore first depends_on_past",
        description="The first item does not wait for the run before it; the others wait for theirs.",
    )  # fmt: skip


class BackfillInput(BackfillSettings, BackfillPlan[DateText], Command):
    """A backfill as a person or a REST client writes it: dates are text, and `kind` may be left to what is listed."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"dag_id": "flights", "start_date": "2013-01-01", "end_date": "2013-01-31", "priority": 5}]
        }
    )


class CreateBackfill(BackfillSettings, BackfillPlan[Instant], Command):
    """A backfill to be planned; `config` is how the state keeps and shows what was planned."""

    kind: Kind = "schedule"

    @property
    def effective_reprocess(self) -> Reprocess:
        """Which runs are done again, by `reprocess` or by the kind."""
        if self.reprocess == "failed_tasks":  # of `missing`, too: what failed goes on where it failed
            return self.reprocess
        by_kind: dict[str, Reprocess] = {"missing": "failed", "stale": "completed"}
        return by_kind.get(self.kind, self.reprocess)

    def config(self) -> JsonObject:
        """The tagged union of `backfill.config_json`. An end that was left out is null until the backfill is planned."""
        if self.kind == "dates":
            body: JsonObject = {"dates": [format_instant(date) for date in self.dates]}
        elif self.kind == "partitions":
            body = {"partitions": list(self.partitions)}
        else:
            body = {"start_date": format_instant(self.start_date), "end_date": format_instant(self.end_date)}
        future = {"allow_future": True} if self.allow_future else {}
        return {"type": self.kind, **body, "run_backwards": self.run_backwards, **future}

    @classmethod
    def from_payload(cls, values: Mapping[str, Any]) -> Self:
        return cls.parse(_as_written_now(values))


def _as_written_now(values: Any) -> Any:
    """A payload of an older release, where `tasks` meant the selected tasks alone, in today's layout."""
    if isinstance(values, Mapping) and values.get("tasks") is not None and "with_upstream" not in values:
        return {**values, "with_upstream": False}
    return values


class CreateBackfillPayload(Command):
    """The id is chosen by whoever sends the request, so that sending it twice makes one backfill."""

    KIND = kinds.BACKFILL_CREATE
    backfill_id: Id
    ask: Annotated[CreateBackfill, BeforeValidator(_as_written_now)]

    def check(self) -> None:
        check_sizes(conf=self.ask.conf, overrides=self.ask.overrides)


class DryRunBackfillPayload(CreateBackfillPayload):
    KIND = kinds.BACKFILL_DRY_RUN


class UpdateBackfill(Command):
    """`was`: the settings that change, as the sender saw them; refused when one of them has another value by now."""

    KIND = kinds.BACKFILL_SET
    backfill_id: Id
    changes: JsonObject  # of `BackfillSettings`, see `changed_settings`
    was: JsonObject | None = None

    def check(self) -> None:
        changed_settings(self.changes)


class _OfBackfill(Command):
    backfill_id: Id


class PauseBackfill(_OfBackfill):
    KIND = kinds.BACKFILL_PAUSE


class UnpauseBackfill(_OfBackfill):
    KIND = kinds.BACKFILL_UNPAUSE


class CancelBackfill(_OfBackfill):
    KIND = kinds.BACKFILL_CANCEL
    let_running_finish: bool = Field(
        default=False,
        title="Let running tasks finish",
        description="Don't stop the tasks that run; only start no more.",
    )


class RetryBackfill(_OfBackfill):
    """Runs its failed items once more."""

    KIND = kinds.BACKFILL_RETRY


class HideBackfill(_OfBackfill):
    """Cancels it if it runs, and leaves it out of lists."""

    KIND = kinds.BACKFILL_HIDE


def changed_settings(changes: Mapping[str, Any]) -> BackfillSettings:
    """The settings that a backfill is to have, defaults for those that are not in `changes`; `InvalidInput` for what can't
    be set whichever backfill it is."""
    if not changes:
        raise errors.NOTHING_TO_SET(fields=", ".join(UPDATABLE_FIELDS))
    for name in changes:
        if name not in UPDATABLE_FIELDS:
            near = nearest(name, UPDATABLE_FIELDS) or "."
            raise errors.NOT_UPDATABLE(name=name, nearest=near, fields=", ".join(UPDATABLE_FIELDS))
    if changes.get("max_active_runs", 1) is None:
        raise errors.INVALID_VALUE(field="max_active_runs", problem="must be a whole number, not null")
    settings = BackfillSettings.parse(changes)
    check_sizes(conf=settings.conf, overrides=settings.overrides)
    return settings


def check_sizes(**values: JsonObject) -> None:
    """`InvalidInput` for run parameters or overrides that are too large to be kept with every run."""
    for field, value in values.items():
        if excess := next(invalid_json_values(value), None) or too_large(value):
            raise errors.INVALID_VALUE(field=field, problem=excess)


# -- DAGs, runs and tasks ---------------------------------------------------------------------------------------------


class _OfDag(Command):
    dag_id: Text = Field(title="DAG", description="The DAG's id.")


class PauseDag(_OfDag):
    KIND = kinds.DAG_PAUSE


class UnpauseDag(_OfDag):
    KIND = kinds.DAG_UNPAUSE


class DeactivateDag(_OfDag):
    KIND = kinds.DAG_DEACTIVATE


class TriggerInput(Command):
    """A run by hand as a person or a REST client writes it."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"logical_date": "2013-01-05", "conf": {"full": True}}]})
    logical_date: Annotated[DateText | None, Option(metavar="T", default="the latest complete interval")] = Field(
        default=None, title="Logical date", description="In the DAG's zone, unless it has an offset."
    )
    conf: Annotated[JsonObject, Option("--conf", "-c", metavar="JSON")] = Field(
        default={}, title="Run parameters", description="Parameters of the run, as a JSON object (64 kB at most)."
    )
    allow_future: bool = Field(
        default=False, title="Allow future", description="Take a date in the future, too; else it is refused."
    )


class TriggerDag(_OfDag):
    """Null as the logical date: the manager chooses the latest complete interval."""

    KIND = kinds.DAG_TRIGGER
    logical_date: Instant | None
    conf: JsonObject = Field(title="Run parameters")
    allow_future: bool = False

    def check(self) -> None:
        check_sizes(conf=self.conf)


class _OfRun(_OfDag):
    run_id: Text


class CancelRun(_OfRun):
    KIND = kinds.RUN_CANCEL


class MarkRun(_OfRun):
    KIND = kinds.RUN_MARK
    state: Literal["success", "failed"] = Field(description="The state it gets.")


class MarkTask(_OfRun):
    KIND = kinds.TASK_MARK
    task_id: Text
    state: Literal["success", "failed", "skipped"] = Field(description="The state it gets.")


class RunTask(_OfDag):
    """One task by hand, outside of any run of the schedule."""

    KIND = kinds.TASK_RUN
    task_id: Text
    logical_date: Instant


class ClearTasks(Command):
    """Which finished task instances run again. Without dates, tasks or runs: all of them. Dates are text, because an
    expression may choose DAGs in several time zones, and a date without an offset is in each DAG's own."""

    dag_id: Text = Field(title="DAG", description="The DAG's id, or an expression that is found in it.")
    is_regex: Annotated[bool, Option("--dag-regex", "-R")] = Field(
        default=False, title="Regular expression", description="The DAG is a regular expression."
    )
    start_date: Annotated[Text | None, Option("--from", "-s", metavar="T")] = Field(
        default=None, title="From", description="Runs of this logical date or later."
    )
    end_date: Annotated[Text | None, Option("--to", "-e", metavar="T")] = Field(
        default=None, title="To",
        description="Runs of this logical date or earlier (inclusive); a date alone is its whole day.",
    )  # fmt: skip
    run_ids: Annotated[tuple[Text, ...], Option("--run", metavar="RUN")] = Field(
        default=(), title="Runs", description="Only these runs, of any kind.", strict=False
    )
    tasks: Annotated[Regex | None, Option("--tasks", "-t", metavar="REGEX")] = Field(
        default=None, title="Tasks", description="Only tasks whose id matches this regular expression."
    )
    upstream: Annotated[bool, Option("--upstream", "-u")] = Field(
        default=False, title="Upstream", description="Also the tasks upstream of them."
    )
    downstream: Annotated[bool, Option("--downstream", "-d")] = Field(
        default=False, title="Downstream",
        description="Also the tasks downstream of them; without it, those that could not start stay `upstream_failed`.",
    )  # fmt: skip
    only_failed: Annotated[bool, Option("--only-failed", "-f")] = Field(
        default=False, title="Only failed", description="Only those that failed."
    )
    only_running: Annotated[bool, Option("--only-running", "-r")] = Field(
        default=False, title="Only running", description="Only those that run; they are stopped first."
    )
    latest_version: bool = Field(
        default=False,
        title="Latest version",
        description="Run them with the DAG's current version, not the one they had.",
    )

    def to_payload(self) -> JsonObject:
        return {_CLEAR_PAYLOAD.get(name, name): value for name, value in self.model_dump(mode="json").items()}

    @classmethod
    def from_payload(cls, values: Mapping[str, Any]) -> Self:
        return cls.parse(_read_clear(values))

    def check(self) -> None:
        if self.only_failed and self.only_running:
            raise errors.ONLY_FAILED_AND_RUNNING()
        if self.is_regex:
            check_regex("is_regex", self.dag_id)
        if self.tasks is not None:
            check_regex("tasks", self.tasks)


_CLEAR_PAYLOAD: Final = {"dag_id": "dag", "start_date": "start", "end_date": "end"}  # names in the request table


def _read_clear(values: Any) -> Any:
    if not isinstance(values, Mapping):
        return values
    names = {written: name for name, written in _CLEAR_PAYLOAD.items()}
    return {names.get(written, written): value for written, value in values.items()}


class ClearTasksPayload(Command):
    KIND = kinds.TASKS_CLEAR
    ask: Annotated[ClearTasks, BeforeValidator(_read_clear)]

    def check(self) -> None:
        self.ask.check()


# -- bundles, pools, the manager --------------------------------------------------------------------------------------


class ParseBundle(Command):
    """Files of a bundle to be parsed now, changed or not."""

    KIND = kinds.BUNDLE_PARSE
    bundle: Text
    subpath: Subpath = Field(
        default="", title="Path", description="A file or folder of it; empty: all.", examples=["daily/x.py"]
    )
    dry_run: Annotated[bool, Option("--dry-run", "-n")] = Field(
        default=False, title="Dry run", description="Only say what would change."
    )
    deactivate_removed: bool = Field(
        default=False, title="Deactivate removed", description="Deactivate DAGs that these files don't define any more."
    )


class DeactivateInBundle(Command):
    """DAGs of a file or folder become inactive until they have new content."""

    KIND = kinds.BUNDLE_DEACTIVATE
    bundle: Text
    subpath: Subpath = Field(title="Path", description="A file or folder of it.", examples=["old_reports"])


class SetPool(Command):
    KIND = kinds.POOL_SET
    name: PoolName = Field(title="Pool", description="Its name.")
    slots: Annotated[Count, Option(metavar="N")] = Field(title="Slots", description="Tasks at once.")
    weight: Annotated[Count, Option(metavar="N", default="as it is")] = Field(
        title="Weight", description="Its share of the cores."
    )
    min_share: Annotated[int, Field(ge=0, le=MAX_NUMBER), Option(metavar="N", default="as it is")] = Field(
        title="Minimum share", description="Cores it comes first for."
    )


class StopManager(Command):
    KIND = kinds.MANAGER_STOP
    drain: bool = Field(default=False, title="Drain", description="Let running tasks finish first; no new ones start.")


class StandBy(Command):
    """A heartbeat of a manager that waits for the lease."""

    KIND = kinds.MANAGER_STAND_BY
    manager_id: Text
    host: Text
    pid: Count


class CompactState(Command):
    KIND = kinds.STATE_COMPACT


COMMANDS: Final[Mapping[str, type[Command]]] = MappingProxyType(
    {
        command.KIND: command
        for command in (
            CreateBackfillPayload, DryRunBackfillPayload, UpdateBackfill, PauseBackfill, UnpauseBackfill, CancelBackfill,
            RetryBackfill, HideBackfill, SetPool, StopManager, StandBy, CompactState, PauseDag, UnpauseDag, DeactivateDag,
            ParseBundle, DeactivateInBundle, TriggerDag, CancelRun, MarkRun, RunTask, MarkTask, ClearTasksPayload,
        )
    }
)  # fmt: skip
MAY_BE_LEFT_OUT: Final = frozenset({"was", "allow_future"})  # of a payload: fields that older releases don't write


def find_field(name: str) -> DeclaredField | None:
    """The declaration of a field by its name, of a backfill's before another command's."""
    commands = (BackfillInput, ClearTasks, TriggerInput, *COMMANDS.values())
    return next((fields_of(command)[name] for command in commands if name in fields_of(command)), None)


# -- payloads of the request table ------------------------------------------------------------------------------------


def check_payload(kind: str, payload: Any) -> JsonObject:
    """The payload itself, or `InvalidInput` that names the kind, the field and what it should be."""
    parse_command(kind, payload)
    checked: JsonObject = payload
    return checked


def parse_command(kind: str, payload: Any) -> Command:
    """The command of a payload. A request may have been written by another release, or by hand."""
    if kind not in COMMANDS:
        raise errors.UNKNOWN_KIND(kind=kind[:60], nearest=nearest(kind, COMMANDS) or f"; one of {', '.join(COMMANDS)}")
    if not isinstance(payload, dict):
        raise errors.NOT_AN_OBJECT(kind=kind, type=type(payload).__name__)
    for problem in invalid_json_values(payload, deepest=MAX_DEPTH + 2):  # the payload, and `ask` in it
        raise errors.UNREADABLE_PAYLOAD(kind=kind, problem=problem)
    command = COMMANDS[kind]
    try:
        for name in command.model_fields:
            if name not in payload and name not in MAY_BE_LEFT_OUT:
                raise errors.MISSING_FIELD(field=name, name=name)
        parsed = command.parse(payload)
        parsed.check()
    except InvalidInput as error:
        raise error.prefixed(f"{kind}: ") from None
    return parsed


def check_length(kind: str, text: str) -> None:
    if len(text) > MAX_PAYLOAD_LENGTH:
        raise errors.PAYLOAD_TOO_LONG(kind=kind[:60], length=f"{len(text):,}", max=f"{MAX_PAYLOAD_LENGTH:,}")


def parse_payload(kind: str, text: str) -> JsonObject:
    """A request's `payload_json` as a checked dict; `InvalidInput` for an unknown kind, broken JSON or wrong fields, and for
    what is too large to be read between two ticks."""
    return check_payload(kind, _read_json(kind, text))


def read_command(kind: str, text: str) -> Command:
    """A request's `payload_json` as a command, checked in the same way."""
    return parse_command(kind, _read_json(kind, text))


def _read_json(kind: str, text: str) -> Any:
    check_length(kind, text)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        problem = f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        raise errors.UNREADABLE_PAYLOAD(kind=kind, problem=problem) from None
    except RecursionError:
        raise errors.UNREADABLE_PAYLOAD(kind=kind, problem="is nested too deeply to be read") from None
