"""Every command that the manager takes, each field declared once: type, default, limits, label (title) and help (description).

A command is a frozen pydantic model that takes its values strictly: no "1" for 1, no unknown field. `COMMANDS` maps each
kind of request to the model of its payload, which is also the layout of `request.payload_json`. Releases share a state, so a
field may be added with a default, but none may change its name or meaning. Only form is checked here; what depends on the
DAG or the state is checked by `requests.backfill_checks` and `requests.checked_payloads`.

A new option of a backfill is one field of `UpdatableOptions` (it can be changed while the backfill runs) or of `PlanOptions` (it
can't). If it is kept with the backfill, it is also a column of `model.records.Backfill`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final, Generic, Literal, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, PlainSerializer, ValidationError, WithJsonSchema
from pydantic.functional_validators import AfterValidator, BeforeValidator
from typing_extensions import Self

from backfill_manager.clock import INSTANT_FORM, format_instant, parse_instant
from backfill_manager.errors import InvalidInput, nearest, shorten
from backfill_manager.number_ranges import RANGE_PATTERN, Ranges, read_range, read_ranges
from backfill_manager.schemas import errors, kinds
from backfill_manager.schemas.errors import invalid_input
from backfill_manager.schemas.fields import DeclaredField, Option, fields_of, option
from backfill_manager.schemas.regex import check_regex
from backfill_manager.value_rules import (
    MAX_MEMORY_MB,
    MAX_NICE,
    MEMORY_PATTERN,
    MIN_MEMORY_MB,
    read_duration,
    read_memory,
)

MAX_NUMBER: Final = 1_000_000_000  # of slots, a priority, a batch, ...: sums of them still fit a column
MAX_PAYLOAD_LENGTH: Final = 32_000_000  # characters of JSON: a million dates or partitions
MAX_PARTITION_KEY_LENGTH: Final = 1000
MAX_DEPTH: Final = 50  # levels of JSON from outside
MAX_NOTE_LENGTH: Final = 4000
MAX_RANGES: Final = 2000  # of items or dates that are selected; a range may be as long as the backfill
MAX_BYTES: Final = 65_536  # of run parameters, and of overrides, as JSON text in UTF-8: they are kept with every run

Kind = Literal["schedule", "single", "dates", "partitions", "missing", "stale", "outdated"]
By = Literal["runs", "data"]
Reprocess = Literal["none", "failed", "failed_tasks", "completed"]


def _read_instant(value: Any) -> Any:
    if value is None or isinstance(value, datetime):
        return value
    try:
        return parse_instant(value)
    except (ValueError, AttributeError):
        raise ValueError(f"must be an instant, {INSTANT_FORM}, not {str(value)[:40]!r}") from None


def _matching(pattern: str, problem: str) -> AfterValidator:
    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(f"must be {problem}, not {value[:60]!r}")
        return value

    return AfterValidator(check)


def _read_note(value: Any) -> Any:
    """Ends of lines as `\n`, which browsers send as `\r\n`; nothing around it."""
    return value.replace("\r\n", "\n").replace("\r", "\n").strip() if isinstance(value, str) else value


def _read_nice(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if not re.fullmatch(r"none|[0-9]{1,2}", value):
        raise ValueError(f"must be 0 to {MAX_NICE}, or `none`, not {value[:60]!r}")
    return None if value == "none" else int(value)


def _read_item_range(value: Any) -> Any:
    if type(value) is int:
        value = str(value)
    if isinstance(value, str):
        first, _ = read_range(value)  # or what is wrong with it
        if first < 1:
            raise ValueError(f"must not be below 1, the number of the first item, not {value[:40]!r}")
    return value


def _few_ranges(values: tuple[str, ...]) -> tuple[str, ...]:
    if len(values) > MAX_RANGES:
        raise ValueError(f"must be at most {MAX_RANGES:,} ranges, not {len(values):,}; choose fewer, longer ones")
    return values


def _read_batch(value: Any) -> Any:
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,10}", value):
        value = int(value)
    if value == "auto" or (type(value) is int and 1 <= value <= MAX_NUMBER):
        return value
    raise ValueError(f"must be a whole number of 1 to {MAX_NUMBER:,}, or `auto`, not {shorten(repr(value), 60)}")


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
NoteText = Annotated[str, Field(max_length=MAX_NOTE_LENGTH), BeforeValidator(_read_note)]
Batch = Annotated[
    int | str,
    BeforeValidator(_read_batch),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 1, "maximum": MAX_NUMBER}, {"type": "string", "enum": ["auto"]}]}
    ),
]
_DURATION_TEXT: Final = {"type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*[A-Za-z]*\s*$"}
Duration = Annotated[
    Annotated[float, Field(ge=1, le=MAX_NUMBER, allow_inf_nan=False)],
    BeforeValidator(read_duration),
    WithJsonSchema(
        {"anyOf": [{"type": "number", "minimum": 1, "maximum": MAX_NUMBER}, _DURATION_TEXT], "examples": ["10 min"]}
    ),
]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Id = Annotated[str, _matching(
    r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", "1 to 64 letters, digits, '_', '.' or '-', and begin with a letter or digit"
)]  # fmt: skip
PoolName = Annotated[str, _matching(
    r"(?!\.+$)(?!control$)[A-Za-z0-9_.-]{1,200}",
    "up to 200 letters, digits, '_', '.' or '-', and not 'control', the pool that plans",
)]  # fmt: skip
Subpath = Annotated[str, _matching(
    r"(?!/)(?!(.*/)?\.\.(/|$)).{0,1000}", "a path within the bundle, such as daily/flights.py, or empty for all of it"
)]  # fmt: skip
Hours = Annotated[
    str,
    _matching(r"\s*([01]\d|2[0-3]):[0-5]\d-(([01]\d|2[0-3]):[0-5]\d|24:00)\s*", "a span of hours such as 20:00-06:00"),
    Field(max_length=20),
]
_ITEM_RANGE_PATTERN: Final = f"^{RANGE_PATTERN}$"
_MEMORY_TEXT: Final = {"type": "string", "pattern": f"^(none|{MEMORY_PATTERN})$"}
_MEMORY_SCHEMA: Final = {"type": "integer", "minimum": MIN_MEMORY_MB, "maximum": MAX_MEMORY_MB}
MemoryLimit = Annotated[
    Annotated[int, Field(ge=MIN_MEMORY_MB, le=MAX_MEMORY_MB)] | None,
    BeforeValidator(lambda value: None if value == "none" else read_memory(value)),
    WithJsonSchema({"anyOf": [_MEMORY_SCHEMA, _MEMORY_TEXT, {"type": "null"}], "examples": ["2 GB"]}),
]
_NICE_SCHEMA: Final = {"type": "integer", "minimum": 0, "maximum": MAX_NICE}
Nice = Annotated[
    Annotated[int, Field(ge=0, le=MAX_NICE)] | None,
    BeforeValidator(_read_nice),
    WithJsonSchema({"anyOf": [_NICE_SCHEMA, {"type": "string", "pattern": "^(none|[0-9]{1,2})$"}, {"type": "null"}]}),
]
ItemRange = Annotated[
    str,
    BeforeValidator(_read_item_range),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": _ITEM_RANGE_PATTERN}]}),
]
ItemRanges = Annotated[
    tuple[ItemRange, ...], AfterValidator(_few_ranges), Field(json_schema_extra={"maxItems": MAX_RANGES})
]
JsonObject = dict[str, Any]
Date = TypeVar("Date")
CONFIG: Final = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


_COMMANDS: dict[str, type[Command]] = {}
COMMANDS: Final[Mapping[str, type[Command]]] = MappingProxyType(_COMMANDS)  # the layout of each kind's payload


class Command(BaseModel):
    """A request to the manager. One with a `kind` is a payload of the request table."""

    model_config = CONFIG
    KIND: ClassVar[str] = ""

    def __init_subclass__(cls, kind: str = "", **config: Any) -> None:
        super().__init_subclass__(**config)
        cls.KIND = kind
        if kind:
            _COMMANDS[kind] = cls

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


class UpdatableOptions(BaseModel):
    """Settings of a backfill that lists show; also a part of the resource `Backfill`."""

    model_config = ConfigDict(defer_build=True)

    max_active_runs: Count | None = option(None, "Runs at once.", metavar="N", none="the DAG's own")
    batch: Batch | None = option(
        None,
        "Combine up to N consecutive intervals per run, for DAGs that are batchable. auto: as many as what runs have cost so far "
        "suggests, more or fewer while the backfill runs.",
        metavar="N|auto", none="auto for a DAG that is batchable, else 1", as_text=True,
    )  # fmt: skip
    batch_target: Duration | None = option(
        None, "Of batches that size themselves: how long one run should take at most. Seconds, or text such as `10 min`.",
        metavar="TIME", none="the configuration's limits.batch_target, 10 minutes", as_text=True,
    )  # fmt: skip
    tasks: Regex | None = option(
        None,
        "A regular expression. Run only tasks whose id matches, and what is upstream of them; the others are skipped. "
        "Such runs are partial: to a backfill of all tasks their dates are missing.",
        "--tasks", "-t", metavar="REGEX", none="all of them",
    )  # fmt: skip
    with_upstream: bool = option(
        True, "Of the selected tasks: run what is upstream of them, too.", "--upstream", label="Upstream tasks"
    )
    with_downstream: bool = option(
        False, "Of the selected tasks: run what is downstream of them, too.", "--downstream-tasks", label="Downstream tasks"
    )  # fmt: skip
    mark_success: bool = option(False, "Run no task: the runs are set to success.", "--mark-success", "-m")
    stop_on_failure: Count | None = option(None, "Pause after N failed items.", metavar="N", none="never")
    pool: Name = option("backfill", "Pool whose slots are used.", metavar="P")
    priority: Number = option(0, "Higher goes first.", metavar="N")
    window: Hours | None = option(
        None, "Start work only in these hours of the DAG's zone.", label="Time window", metavar="HH:MM-HH:MM",
        none="any hour", examples=["20:00-06:00"],
    )  # fmt: skip
    notify: Name | None = option(
        None, "A target of the configuration's notifications that hears how it ends, beside those of its DAG.", metavar="TARGET",
        none="those of its DAG",
    )  # fmt: skip
    is_polite: bool = option(
        False, "Yield to scheduled work: start nothing while a scheduled task waits for a slot.", "--polite",
        label="Yield to scheduled runs",
    )  # fmt: skip


class LargeUpdatableOptions(BaseModel):
    """Settings of a backfill that lists leave out, as they may be large."""

    model_config = ConfigDict(defer_build=True)

    conf: JsonObject = option(
        {}, "Parameters of the runs, as a JSON object (64 kB at most).", "--conf", "-c", label="Run parameters",
        metavar="JSON", examples=[{"full": True}],
    )  # fmt: skip
    overrides: JsonObject = option(
        {}, "Settings of the DAG or its tasks, for this backfill alone: retries=3, clean.timeout=600.", "--set",
        metavar="NAME=VALUE", examples=[{"retries": 3, "clean.timeout": 60}],
    )  # fmt: skip


class BackfillSettings(UpdatableOptions, LargeUpdatableOptions, Command):
    """Options of a backfill that can be changed while it runs. What runs already is not touched."""


UPDATABLE_FIELDS: Final = tuple(BackfillSettings.model_fields)
NEVER_NULL: Final = {
    "max_active_runs": "a whole number",
    "batch": "a whole number, or `auto`",
}  # decided when it was created
CHECKED_TOGETHER: Final = ("tasks", "with_upstream", "with_downstream", "overrides")  # settings, with those that change


class PlanOptions(Command, Generic[Date]):
    """Options of a backfill that say what is planned. `Date` is an instant, or text to be read in the DAG's zone."""

    dag_id: Name = Field(title="DAG", description="The DAG's id.")
    kind: Kind | None = option(
        None,
        "schedule: each interval of the schedule; single: one run over the whole range; dates, partitions: as listed; "
        "missing: intervals without a successful run; stale: those whose success is of another definition or code than the DAG "
        "has now; outdated: those whose inputs have changed since they were read.",
        none="schedule, or as dates or partitions say",
    )
    by: By = option(
        "runs",
        "What says that an interval is missing. runs: it has no successful run; data: a table that the DAG writes has no row in "
        "it, whatever runs there were.",
    )
    start_date: Date | None = option(
        None, "The first interval starts here or after.", "--from", "-s", label="From", metavar="T",
        none="the DAG's start_date",
    )  # fmt: skip
    end_date: Date | None = option(
        None, "The last interval starts here or before (inclusive); a date alone is its whole day in the DAG's zone.",
        "--to", "-e", label="To", metavar="T", none="the last complete interval, none after the DAG's end_date",
    )  # fmt: skip
    dates: tuple[Date, ...] = option((), "Logical dates.", "--date", metavar="T", strict=False)
    partitions: tuple[str, ...] = option(
        (), "Keys that are no dates: a region, a customer.", "--partition", metavar="KEY", strict=False
    )
    run_backwards: bool = option(False, "Newest first.", "--run-backwards", "-B", label="Newest first")
    reprocess: Reprocess = option(
        "none",
        "Dates that have a run already. none: leave them; failed: re-do those that failed, as new runs; failed_tasks: "
        "re-run their failed tasks, and what depends on them, in the same runs; completed: re-do what succeeded, too.",
    )
    downstream: bool = option(
        False, "Also backfill every DAG that reads what this one writes, and so on.", "--downstream", "--downstream-dags",
        label="Downstream DAGs",
    )  # fmt: skip
    allow_future: bool = option(
        False,
        "Also run intervals that have not ended yet, up to the end of the range. Otherwise they are skipped: not complete "
        "yet.",
    )
    preview: bool = option(
        False,
        "Write into clones of the tables, which only this backfill and those downstream of it see: to be compared (`backfill "
        "diff`), then promoted or discarded. Dates that have a run are done, too.",
    )
    ignore_first_depends_on_past: bool = option(
        True, "The first item does not wait for the run before it; the others wait for theirs.",
        "--ignore-first-depends-on-past", "-I", label="Ignore first depends_on_past",
    )  # fmt: skip


class BackfillConfig(Command):
    """What a backfill covers, in one object, as it is shown: of its `type`, a range, or what is listed."""

    type: Kind = Field(description="The backfill's kind.")
    by: By = Field("runs", description="Of the type `missing`: what says so.")
    start_date: DateText | None = Field(None, description="The first interval starts here or after.")
    end_date: DateText | None = Field(None, description="The last interval starts here or before (inclusive).")
    dates: tuple[DateText, ...] = Field((), description="Logical dates, of the type `dates`.", strict=False)
    partitions: tuple[str, ...] = Field((), description="Keys, of the type `partitions`.", strict=False)
    run_backwards: bool = Field(False, description="Newest first.")
    allow_future: bool = Field(False, description="Also run intervals that have not ended yet.")
    total: Count | None = Field(
        None, description="In a list of backfills, which has the first of many dates or partitions: how many there are."
    )


class BackfillInput(BackfillSettings, PlanOptions[DateText], Command):
    """A backfill as a person or a REST client writes it: dates are text, and `kind` may be left to what is listed."""

    config: BackfillConfig | None = option(
        None, "What it covers as one object, as another backfill shows it: in place of kind, dates, partitions and order.",
        metavar="JSON", examples=[{"type": "schedule", "start_date": "2013-01-01", "end_date": "2013-01-31"}],
    )  # fmt: skip
    copy_of: Name | None = option(
        None, "Another backfill of the DAG: what is not given here is as it is there, the range and all settings.", "--copy-of",
        metavar="ID",
    )  # fmt: skip

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"dag_id": "flights", "start_date": "2013-01-01", "end_date": "2013-01-31", "priority": 5}]
        }
    )


class CreateBackfill(BackfillSettings, PlanOptions[Instant], Command):
    """A backfill to be planned; `config` is how the state keeps and shows what was planned."""

    kind: Kind = "schedule"

    @property
    def goes_by_data(self) -> bool:
        """Whether the tables say which intervals are wanted, not the runs alone."""
        return self.kind == "outdated" or self.by == "data"

    @property
    def effective_reprocess(self) -> Reprocess:
        """Which runs are done again, by `reprocess` or by the kind."""
        if self.goes_by_data:
            return "completed"
        if self.reprocess == "failed_tasks":  # of `missing`, too: what failed goes on where it failed
            return self.reprocess
        by_kind: dict[str, Reprocess] = {"missing": "failed", "stale": "completed"}
        if self.preview and self.reprocess == "none":  # it changes no run that is there
            return by_kind.get(self.kind, "completed")
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
        by = {"by": self.by} if self.by != "runs" else {}
        return {"type": self.kind, **by, **body, "run_backwards": self.run_backwards, **future}

    @classmethod
    def from_payload(cls, values: Mapping[str, Any]) -> Self:
        return cls.parse(_as_written_now(values))


def _as_written_now(values: Any) -> Any:
    """A payload of an older release, where `tasks` meant the selected tasks alone, in today's layout."""
    if isinstance(values, Mapping) and values.get("tasks") is not None and "with_upstream" not in values:
        return {**values, "with_upstream": False}
    return values


class CreateBackfillPayload(Command, kind=kinds.BACKFILL_CREATE):
    """The id is chosen by whoever sends the request, so that sending it twice makes one backfill."""

    backfill_id: Id
    ask: Annotated[CreateBackfill, BeforeValidator(_as_written_now)]

    def check(self) -> None:
        check_sizes(conf=self.ask.conf, overrides=self.ask.overrides)


class DryRunBackfillPayload(CreateBackfillPayload, kind=kinds.BACKFILL_DRY_RUN): ...


class _Note(Command):
    """What a person writes about a run or a backfill."""

    text: NoteText = Field(description=f"Up to {MAX_NOTE_LENGTH} characters; an empty one removes the note.")
    was: NoteText | None = Field(
        None,
        description="The note that you saw, empty if there was none: refused if it is another one now. Null: whatever it is.",
    )


class UpdateBackfill(Command, kind=kinds.BACKFILL_SET):
    """`was`: the settings that change, as the sender saw them; refused when one of them has another value by now."""

    backfill_id: Id
    changes: JsonObject  # of `BackfillSettings`, see `changed_settings`
    was: JsonObject | None = None

    def check(self) -> None:
        changed_settings(self.changes)


class _OfBackfill(Command):
    backfill_id: Id


class PauseBackfill(_OfBackfill, kind=kinds.BACKFILL_PAUSE): ...


class UnpauseBackfill(_OfBackfill, kind=kinds.BACKFILL_UNPAUSE): ...


class CancelBackfill(_OfBackfill, kind=kinds.BACKFILL_CANCEL):
    let_running_finish: bool = option(
        False, "Don't stop the tasks that run; only start no more.", label="Let running tasks finish"
    )


class RetryBackfill(_OfBackfill, kind=kinds.BACKFILL_RETRY):
    """Runs its failed items once more."""

    latest_version: bool = option(False, "Run them with the DAG's current version, not the one that the backfill has.")
    downstream: bool = option(
        False, "Also retry the backfills downstream of it that failed.", "--downstream", label="Downstream backfills"
    )
    items: ItemRanges = option(
        (), "Only those of its failed items that have this number, or a number of this range (5-20).", "--item",
        metavar="N|N-M", none="all that failed", strict=False,
    )  # fmt: skip

    @property
    def ordinals(self) -> Ranges | None:
        """Of the chosen items; None: all of them."""
        return read_ranges(self.items) if self.items else None


class DiffBackfill(_OfBackfill, kind=kinds.BACKFILL_DIFF):
    """How the tables would change if this preview was promoted now."""

    key: tuple[Text, ...] = option(
        (),
        "Columns that identify a row, by which rows are compared.",
        metavar="COLUMN",
        none="those of ctx.merge, else whole rows",
        strict=False,
    )
    table: Text | None = option(None, "Only this table.", metavar="TABLE", none="all that it has written")


class PromoteBackfill(_OfBackfill, kind=kinds.BACKFILL_PROMOTE):
    """Swaps what a preview has written into the tables."""

    partial: bool = option(False, "Although some of its items failed or were cancelled: promote those that succeeded.")
    rebase: bool = option(
        False,
        "Although others have written the same intervals since, or the table has got other columns: swap its rows in.",
    )


class DiscardBackfill(_OfBackfill, kind=kinds.BACKFILL_DISCARD):
    """Deletes the clones of a preview."""


class RevertBackfill(_OfBackfill, kind=kinds.BACKFILL_REVERT):
    """Puts what its runs have written back to what it was before."""

    dry_run: bool = option(False, "Only say what would be put back.", "--dry-run", "-n")


class NoteBackfill(_Note, _OfBackfill, kind=kinds.BACKFILL_NOTE):
    """A note on a backfill, whatever its state."""


class HideBackfill(_OfBackfill, kind=kinds.BACKFILL_HIDE):
    """Cancels it if it runs, and leaves it out of lists."""


def changed_settings(changes: Mapping[str, Any]) -> BackfillSettings:
    """The settings that a backfill is to have, defaults for those that are not in `changes`; `InvalidInput` for what can't
    be set whichever backfill it is."""
    if not changes:
        raise errors.NOTHING_TO_SET(fields=", ".join(UPDATABLE_FIELDS))
    for name in changes:
        if name not in UPDATABLE_FIELDS:
            near = nearest(name, UPDATABLE_FIELDS) or "."
            raise errors.NOT_UPDATABLE(name=name, nearest=near, fields=", ".join(UPDATABLE_FIELDS))
    for name, kind in NEVER_NULL.items():
        if changes.get(name, 1) is None:
            raise errors.INVALID_VALUE(field=name, problem=f"must be {kind}, not null")
    settings = BackfillSettings.parse(changes)
    check_sizes(conf=settings.conf, overrides=settings.overrides)
    return settings


# -- DAGs, runs and tasks ---------------------------------------------------------------------------------------------


class _OfDag(Command):
    dag_id: Text = Field(title="DAG", description="The DAG's id.")


class PauseDag(_OfDag, kind=kinds.DAG_PAUSE): ...


class UnpauseDag(_OfDag, kind=kinds.DAG_UNPAUSE): ...


class DeactivateDag(_OfDag, kind=kinds.DAG_DEACTIVATE): ...


class TriggerInput(Command):
    """A run by hand as a person or a REST client writes it."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"logical_date": "2013-01-05", "conf": {"full": True}}]})
    logical_date: DateText | None = option(
        None, "In the DAG's zone, unless it has an offset.", metavar="T", none="the latest complete interval"
    )
    partition_key: str | None = option(
        None, "A key that is no date: a region, a customer. Such a run has no date and no interval.", "--partition",
        metavar="KEY", label="Partition", none="a run of a date",
    )  # fmt: skip
    conf: JsonObject = option(
        {}, "Parameters of the run, as a JSON object (64 kB at most).", "--conf", "-c", label="Run parameters", metavar="JSON"
    )  # fmt: skip
    allow_future: bool = option(False, "Take a date in the future, too; else it is refused.")


class TriggerDag(_OfDag, kind=kinds.DAG_TRIGGER):
    """Null as the logical date, without a partition: the manager chooses the latest complete interval."""

    logical_date: Instant | None
    partition_key: str | None = None
    conf: JsonObject = Field(title="Run parameters")
    allow_future: bool = False

    def check(self) -> None:
        check_sizes(conf=self.conf)


class _OfRun(_OfDag):
    run_id: Text


class CancelRun(_OfRun, kind=kinds.RUN_CANCEL): ...


class MarkRun(_OfRun, kind=kinds.RUN_MARK):
    state: Literal["success", "failed"] = Field(description="The state it gets.")


class RevertRun(_OfRun, kind=kinds.RUN_REVERT):
    """Puts what it has written back to what it was before."""

    dry_run: bool = option(False, "Only say what would be put back.", "--dry-run", "-n")


class NoteRun(_Note, _OfRun, kind=kinds.RUN_NOTE):
    """A note on a run, whatever its state."""


class MarkTask(_OfRun, kind=kinds.TASK_MARK):
    task_id: Text
    state: Literal["success", "failed", "skipped"] = Field(description="The state it gets.")


class RunTask(_OfDag, kind=kinds.TASK_RUN):
    """One task by hand, outside of any run of the schedule."""

    task_id: Text
    logical_date: Instant
    conf: JsonObject = Field(default_factory=dict, title="Run parameters")

    def check(self) -> None:
        check_sizes(conf=self.conf)


class ChosenRuns(Command):
    """Runs that a command is about. Dates are text, because an expression may choose DAGs in several time zones, and a date
    without an offset is in each DAG's own."""

    start_date: Text | None = option(
        None, "Runs of this logical date or later.", "--from", "-s", label="From", metavar="T"
    )
    end_date: Text | None = option(
        None, "Runs of this logical date or earlier (inclusive); a date alone is its whole day.", "--to", "-e", label="To",
        metavar="T",
    )  # fmt: skip
    run_ids: tuple[Text, ...] = option(
        (), "Only these runs, of any kind.", "--run", label="Runs", metavar="RUN", strict=False
    )
    dates: Annotated[tuple[Text, ...], AfterValidator(_few_ranges)] = option(
        (), "Only runs of this logical date, or of a range of them (2013-01-05/2013-01-09, inclusive); a date alone is its "
        "whole day.", "--date", metavar="T|T/T", strict=False,
    )  # fmt: skip
    backfill_id: Id | None = option(None, "Only runs of this backfill.", "--backfill", metavar="ID", label="Backfill")
    items: ItemRanges = option(
        (), "Of the backfill: only the runs of the items with this number, or a number of this range (5-20).", "--item",
        metavar="N|N-M", strict=False,
    )  # fmt: skip

    @property
    def ordinals(self) -> Ranges | None:
        """Of the chosen items; None: whatever items."""
        return read_ranges(self.items) if self.items else None

    def to_payload(self) -> JsonObject:
        """Without what was added after other releases, unless it says something: they don't know it."""
        return {name: value for name, value in super().to_payload().items() if value or name not in _CHOSEN_SINCE}

    def check(self) -> None:
        if self.items and self.backfill_id is None:
            raise errors.ITEMS_WITHOUT_BACKFILL(items=", ".join(self.items[:5]))
        if self.dates and (self.start_date is not None or self.end_date is not None):
            raise errors.DATES_AND_RANGE()


_CHOSEN_SINCE: Final = frozenset({"dates", "backfill_id", "items"})


class MarkRuns(ChosenRuns, _OfDag, kind=kinds.RUNS_MARK):
    """Sets the chosen runs of a DAG to a state; those that are in it already stay as they are."""

    state: Literal["success", "failed"] = Field(description="The state they get.")


class ClearTasks(ChosenRuns):
    """Which finished task instances run again. Without dates, tasks or runs: all of them."""

    dag_id: Text = Field(title="DAG", description="The DAG's id, or an expression that is found in it.")
    is_regex: bool = option(False, "The DAG is a regular expression.", "--dag-regex", "-R", label="Regular expression")
    tasks: Regex | None = option(
        None, "Only tasks whose id matches this regular expression.", "--tasks", "-t", metavar="REGEX"
    )
    upstream: bool = option(False, "Also the tasks upstream of them.", "--upstream", "-u")
    downstream: bool = option(
        False,
        "Also the tasks downstream of them; without it, those that could not start stay `upstream_failed`.",
        "--downstream", "-d",
    )  # fmt: skip
    only_failed: bool = option(False, "Only those that failed.", "--only-failed", "-f")
    only_running: bool = option(False, "Only those that run; they are stopped first.", "--only-running", "-r")
    latest_version: bool = option(False, "Run them with the DAG's current version, not the one they had.")

    def to_payload(self) -> JsonObject:
        return {_CLEAR_PAYLOAD.get(name, name): value for name, value in super().to_payload().items()}

    @classmethod
    def from_payload(cls, values: Mapping[str, Any]) -> Self:
        return cls.parse(_read_clear(values))

    def check(self) -> None:
        super().check()
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


class ClearTasksPayload(Command, kind=kinds.TASKS_CLEAR):
    ask: Annotated[ClearTasks, BeforeValidator(_read_clear)]

    def check(self) -> None:
        self.ask.check()


# -- bundles, pools, the manager --------------------------------------------------------------------------------------


class ParseBundle(Command, kind=kinds.BUNDLE_PARSE):
    """Files of a bundle to be parsed now, changed or not."""

    bundle: Text
    subpath: Subpath = option("", "A file or folder of it; empty: all.", label="Path", examples=["daily/x.py"])
    dry_run: bool = option(False, "Only say what would change.", "--dry-run", "-n")
    deactivate_removed: bool = option(False, "Deactivate DAGs that these files don't define any more.")


class DeactivateInBundle(Command, kind=kinds.BUNDLE_DEACTIVATE):
    """DAGs of a file or folder become inactive until they have new content."""

    bundle: Text
    subpath: Subpath = Field(title="Path", description="A file or folder of it.", examples=["old_reports"])


class SetPool(Command, kind=kinds.POOL_SET):
    name: PoolName = Field(title="Pool", description="Its name.")
    slots: Annotated[Count, Option(metavar="N", none="as it is")] = Field(description="Tasks at once.")
    weight: Annotated[Count, Option(metavar="N", none="as it is")] = Field(description="Its share of the cores.")
    min_share: Annotated[int, Field(ge=0, le=MAX_NUMBER), Option(metavar="N", none="as it is")] = Field(
        title="Minimum share", description="Cores it comes first for."
    )
    memory_mb: Annotated[MemoryLimit, Option(("--memory",), "SIZE", "as it is", as_text=True)] = Field(
        None, title="Memory",
        description="Of the process of each task, with those it starts: MB, or text such as `2 GB`; `none`: no limit.",
    )  # fmt: skip
    nice: Annotated[Nice, Option((), "N", "as it is", as_text=True)] = Field(
        None,
        description="How far processes of tasks stand back when cores are short, 0 to 19; `none`: 5, and 10 in a backfill.",
    )


class StopManager(Command, kind=kinds.MANAGER_STOP):
    drain: bool = option(False, "Let running tasks finish first; no new ones start.")


class StandBy(Command, kind=kinds.MANAGER_STAND_BY):
    """A heartbeat of a manager that waits for the lease."""

    manager_id: Text
    host: Text
    pid: Count


class CompactState(Command, kind=kinds.STATE_COMPACT): ...


class PruneState(Command, kind=kinds.STATE_PRUNE): ...


# Of a payload: fields that older releases don't write.
MAY_BE_LEFT_OUT: Final = frozenset(
    {
        "was",
        "allow_future",
        "memory_mb",
        "nice",
        "partition_key",
        "latest_version",
        "downstream",
        "conf",
        "key",
        "table",
        "partial",
        "rebase",
        "items",
        "dates",
        "start_date",
        "end_date",
        "run_ids",
        "backfill_id",
    }
)


def find_field(name: str) -> DeclaredField | None:
    """The declaration of a field by its name, of a backfill's before another command's."""
    commands = (BackfillInput, ClearTasks, TriggerInput, *COMMANDS.values())
    return next((fields_of(command)[name] for command in commands if name in fields_of(command)), None)


# -- JSON from outside: run parameters, overrides, payloads of the request table ---------------------------------------


def check_sizes(**values: JsonObject) -> None:
    """`InvalidInput` for run parameters or overrides that are too large to be kept with every run."""
    for field, value in values.items():
        if excess := next(invalid_json_values(value), None) or too_large(value):
            raise errors.INVALID_VALUE(field=field, problem=excess)


def too_large(value: Any) -> str | None:
    """`must not be larger than ...` for run parameters and overrides, which every run of a backfill has a copy of; None for
    what may be kept."""
    try:
        size = len(json.dumps(value, ensure_ascii=False, default=str).encode("utf-8", "replace"))
    except RecursionError:
        return f"must not be nested more than {MAX_DEPTH} levels deep"
    if size <= MAX_BYTES:
        return None
    limit = f"must not be larger than {MAX_BYTES // 1024} kB as JSON"
    return f"{limit}, and has {size:,} bytes; put it into a table or a file, and name that here"


def invalid_json_values(value: Any, depth: int = 0, *, deepest: int = MAX_DEPTH) -> Iterator[str]:
    """What Python's JSON reader accepts and the tables, or other readers, would not: NaN, lone surrogates, and what is
    nested too deeply."""
    if depth > deepest:
        yield f"is nested more than {MAX_DEPTH} levels deep"
    elif isinstance(value, float) and not math.isfinite(value):
        yield "holds a number that is not finite"
    elif isinstance(value, str) and any("\ud800" <= char <= "\udfff" for char in value):
        yield "holds half a character (a lone surrogate)"
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from invalid_json_values(name, depth, deepest=deepest)
            yield from invalid_json_values(item, depth + 1, deepest=deepest)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from invalid_json_values(item, depth + 1, deepest=deepest)


def parse_command(kind: str, payload: Any) -> Command:
    """The command of a payload, or `InvalidInput` that names the kind, the field and what it should be. A request may have
    been written by another release, or by hand."""
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
    payload: JsonObject = _read_json(kind, text)
    parse_command(kind, payload)
    return payload


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
