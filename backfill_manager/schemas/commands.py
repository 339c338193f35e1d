"""Every command that the manager takes; each field is declared once: type, default, limits, label (title) and help
(description). The options of a backfill are in `backfill_options`.

`COMMANDS` maps each kind of request to the model of its payload, which is also the layout of `request.payload_json`. Releases
share a state, so a field may be added with a default, but none may change its name or meaning. Only form is checked here; what
depends on the DAG or the state is checked by `requests.backfill_checks` and `requests.checked_payloads`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field
from pydantic.functional_validators import AfterValidator, BeforeValidator
from typing_extensions import Self

from backfill_manager.number_ranges import Ranges, read_ranges
from backfill_manager.schemas import errors, request_kinds
from backfill_manager.schemas.backfill_options import BackfillInput, CreateBackfill, as_written_now, changed_settings
from backfill_manager.schemas.command import Command, registered
from backfill_manager.schemas.field_types import (
    MAX_NOTE_LENGTH,
    MAX_NUMBER,
    Count,
    DateText,
    Id,
    Instant,
    ItemRanges,
    JsonObject,
    MemoryLimit,
    Nice,
    NoteText,
    PoolName,
    Regex,
    Subpath,
    Text,
    few_ranges,
)
from backfill_manager.schemas.fields import DeclaredField, Option, fields_of, option
from backfill_manager.schemas.json_values import check_sizes
from backfill_manager.schemas.regex import check_regex

COMMANDS: Final[Mapping[str, type[Command]]] = MappingProxyType(registered)  # the layout of each kind's payload


class CreateBackfillPayload(Command, kind=request_kinds.BACKFILL_CREATE):
    """The id is chosen by whoever sends the request, so that sending it twice makes one backfill."""

    backfill_id: Id
    ask: Annotated[CreateBackfill, BeforeValidator(as_written_now)]

    def check(self) -> None:
        check_sizes(conf=self.ask.conf, overrides=self.ask.overrides)


class DryRunBackfillPayload(CreateBackfillPayload, kind=request_kinds.BACKFILL_DRY_RUN): ...


class _Note(Command):
    """A note that a person adds to a run or a backfill."""

    text: NoteText = Field(
        description=f"Text of the note, up to {MAX_NOTE_LENGTH} characters. An empty text removes the note."
    )
    was: NoteText | None = Field(
        None,
        description="Note that the user has seen, empty if there was none. The request is refused if the note is another "
        "one now. null: no comparison.",
    )


class UpdateBackfill(Command, kind=request_kinds.BACKFILL_SET):
    """`was`: the settings that change, as the sender saw them; refused when one of them has another value by now."""

    backfill_id: Id
    changes: JsonObject  # of `BackfillSettings`, see `changed_settings`
    was: JsonObject | None = None

    def check(self) -> None:
        changed_settings(self.changes)


class _OfBackfill(Command):
    backfill_id: Id


class PauseBackfill(_OfBackfill, kind=request_kinds.BACKFILL_PAUSE): ...


class UnpauseBackfill(_OfBackfill, kind=request_kinds.BACKFILL_UNPAUSE): ...


class CancelBackfill(_OfBackfill, kind=request_kinds.BACKFILL_CANCEL):
    let_running_finish: bool = option(
        False, "Don't stop running tasks; only start no more.", label="Let running tasks finish"
    )


class RetryBackfill(_OfBackfill, kind=request_kinds.BACKFILL_RETRY):
    """Runs the failed items of a backfill again."""

    latest_version: bool = option(False, "Use the DAG's current version, not the version of the backfill.")
    downstream: bool = option(
        False, "Also retry failed backfills that are downstream of it.", "--downstream", label="Downstream backfills"
    )
    items: ItemRanges = option(
        (), "Only the failed items with this number, or with a number in this range (5-20).", "--item",
        metavar="N|N-M", none="all that failed", strict=False,
    )  # fmt: skip

    @property
    def ordinals(self) -> Ranges | None:
        """Of the chosen items; None: all of them."""
        return read_ranges(self.items) if self.items else None


class DiffBackfill(_OfBackfill, kind=request_kinds.BACKFILL_DIFF):
    """Shows how the tables would change if this preview were promoted now."""

    key: tuple[Text, ...] = option(
        (),
        "Columns that identify a row, by which rows are compared.",
        metavar="COLUMN",
        none="those of ctx.merge, else whole rows",
        strict=False,
    )
    table: Text | None = option(None, "Only this table.", metavar="TABLE", none="all that it has written")


class PromoteBackfill(_OfBackfill, kind=request_kinds.BACKFILL_PROMOTE):
    """Moves the rows that a preview has written into the tables."""

    partial: bool = option(False, "Promote the items that succeeded, although others failed or were cancelled.")
    rebase: bool = option(
        False,
        "Promote by replacing the rows of the intervals, although others have written these intervals since "
        "or the table's columns have changed.",
    )


class DiscardBackfill(_OfBackfill, kind=request_kinds.BACKFILL_DISCARD):
    """Deletes the clones of a preview."""


class RevertBackfill(_OfBackfill, kind=request_kinds.BACKFILL_REVERT):
    """Restores the intervals that the runs of a backfill have written to what they were before."""

    dry_run: bool = option(False, "Only show what would be restored.", "--dry-run", "-n")


class NoteBackfill(_Note, _OfBackfill, kind=request_kinds.BACKFILL_NOTE):
    """A note on a backfill in any state."""


class HideBackfill(_OfBackfill, kind=request_kinds.BACKFILL_HIDE):
    """Cancels a backfill if it is active, and leaves it out of lists."""


# -- DAGs, runs and tasks ---------------------------------------------------------------------------------------------


class _OfDag(Command):
    dag_id: Text = Field(title="DAG", description="Id of the DAG.")


class PauseDag(_OfDag, kind=request_kinds.DAG_PAUSE): ...


class UnpauseDag(_OfDag, kind=request_kinds.DAG_UNPAUSE): ...


class DeactivateDag(_OfDag, kind=request_kinds.DAG_DEACTIVATE): ...


class TriggerInput(Command):
    """A manual run as a person or a REST client writes it."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"logical_date": "2013-01-05", "conf": {"full": True}}]})
    logical_date: DateText | None = option(
        None,
        "Logical date of the run. In the DAG's time zone, unless it has an offset.",
        metavar="T",
        none="the latest complete interval",
    )
    partition_key: str | None = option(
        None, "Partition key that is not a date: a region, a customer. Such a run has no date and no interval.", "--partition",
        metavar="KEY", label="Partition", none="a run of a date",
    )  # fmt: skip
    conf: JsonObject = option(
        {}, "Parameters of the run, as a JSON object (64 kB at most).", "--conf", "-c", label="Run parameters", metavar="JSON"
    )  # fmt: skip
    allow_future: bool = option(False, "Allow a date in the future, which is refused otherwise.")


class TriggerDag(_OfDag, kind=request_kinds.DAG_TRIGGER):
    """Null as the logical date, without a partition: the manager chooses the latest complete interval."""

    logical_date: Instant | None
    partition_key: str | None = None
    conf: JsonObject = Field(title="Run parameters")
    allow_future: bool = False

    def check(self) -> None:
        check_sizes(conf=self.conf)


class _OfRun(_OfDag):
    run_id: Text


class CancelRun(_OfRun, kind=request_kinds.RUN_CANCEL): ...


class MarkRun(_OfRun, kind=request_kinds.RUN_MARK):
    state: Literal["success", "failed"] = Field(description="State to set.")


class RevertRun(_OfRun, kind=request_kinds.RUN_REVERT):
    """Restores the intervals that a run has written to what they were before."""

    dry_run: bool = option(False, "Only show what would be restored.", "--dry-run", "-n")


class NoteRun(_Note, _OfRun, kind=request_kinds.RUN_NOTE):
    """A note on a run in any state."""


class MarkTask(_OfRun, kind=request_kinds.TASK_MARK):
    task_id: Text
    state: Literal["success", "failed", "skipped"] = Field(description="State to set.")


class RunTask(_OfDag, kind=request_kinds.TASK_RUN):
    """Runs one task by hand, outside of the timeline."""

    task_id: Text
    logical_date: Instant
    conf: JsonObject = Field(default_factory=dict, title="Run parameters")

    def check(self) -> None:
        check_sizes(conf=self.conf)


class ChosenRuns(Command):
    """Runs that a command is about. Dates are text, because an expression may choose DAGs in several time zones, and a date
    without an offset is in each DAG's own."""

    start_date: Text | None = option(
        None, "Only runs with this logical date or a later one.", "--from", "-s", label="From", metavar="T"
    )
    end_date: Text | None = option(
        None, "Only runs with this logical date or an earlier one (inclusive). A date without a time includes that "
        "whole day.", "--to", "-e", label="To",
        metavar="T",
    )  # fmt: skip
    run_ids: tuple[Text, ...] = option(
        (), "Only these runs, of any type.", "--run", label="Runs", metavar="RUN", strict=False
    )
    dates: Annotated[tuple[Text, ...], AfterValidator(few_ranges)] = option(
        (), "Only runs with this logical date, or in this range of dates (2013-01-05/2013-01-09, inclusive). A "
        "date without a time includes that whole day.", "--date", metavar="T|T/T", strict=False,
    )  # fmt: skip
    backfill_id: Id | None = option(None, "Only runs of this backfill.", "--backfill", metavar="ID", label="Backfill")
    items: ItemRanges = option(
        (), "Only runs of the backfill's items with this number, or with a number in this range (5-20).", "--item",
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


class MarkRuns(ChosenRuns, _OfDag, kind=request_kinds.RUNS_MARK):
    """Sets the chosen runs of a DAG to a state. Runs that already have the state are left as they are."""

    state: Literal["success", "failed"] = Field(description="State to set.")


class ClearTasks(ChosenRuns):
    """Which finished task instances run again. Without dates, tasks or runs: all of them."""

    dag_id: Text = Field(title="DAG", description="Id of the DAG, or a regular expression that is searched for in ids.")
    is_regex: bool = option(
        False, "Treat the DAG as a regular expression.", "--dag-regex", "-R", label="Regular expression"
    )
    tasks: Regex | None = option(
        None, "Only tasks whose id matches this regular expression.", "--tasks", "-t", metavar="REGEX"
    )
    upstream: bool = option(False, "Also clear the tasks upstream of them.", "--upstream", "-u")
    downstream: bool = option(
        False,
        "Also clear the tasks downstream of them. Without it, those that could not start stay `upstream_failed`.",
        "--downstream", "-d",
    )  # fmt: skip
    only_failed: bool = option(False, "Only tasks that failed.", "--only-failed", "-f")
    only_running: bool = option(False, "Only running tasks. They are stopped first.", "--only-running", "-r")
    latest_version: bool = option(False, "Use the DAG's current version, not the version of the run.")

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


class ClearTasksPayload(Command, kind=request_kinds.TASKS_CLEAR):
    ask: Annotated[ClearTasks, BeforeValidator(_read_clear)]

    def check(self) -> None:
        self.ask.check()


# -- bundles, pools, the manager --------------------------------------------------------------------------------------


class ParseBundle(Command, kind=request_kinds.BUNDLE_PARSE):
    """Parses files of a bundle now, changed or not."""

    bundle: Text
    subpath: Subpath = option(
        "", "File or folder of the bundle. Empty: all files.", label="Path", examples=["daily/x.py"]
    )
    dry_run: bool = option(False, "Only show what would change.", "--dry-run", "-n")
    deactivate_removed: bool = option(False, "Deactivate DAGs that these files no longer define.")


class DeactivateInBundle(Command, kind=request_kinds.BUNDLE_DEACTIVATE):
    """Deactivates the DAGs of a file or folder until they have new content."""

    bundle: Text
    subpath: Subpath = Field(title="Path", description="File or folder of the bundle.", examples=["old_reports"])


class SetPool(Command, kind=request_kinds.POOL_SET):
    name: PoolName = Field(title="Pool", description="Name of the pool.")
    slots: Annotated[Count | None, Option(metavar="N", none="as it is")] = Field(
        None, description="Number of task slots."
    )
    weight: Annotated[Count | None, Option(metavar="N", none="as it is")] = Field(
        None, description="Weight in Spark's fair scheduler: the pool's share of the cores."
    )
    min_share: Annotated[Annotated[int, Field(ge=0, le=MAX_NUMBER)] | None, Option(metavar="N", none="as it is")] = (
        Field(
            None,
            title="Minimum share",
            description="Minimum share in Spark's fair scheduler: the number of cores that the pool gets first.",
        )
    )
    memory_mb: Annotated[MemoryLimit, Option(("--memory",), "SIZE", "as it is", as_text=True)] = Field(
        None, title="Memory",
        description="Memory limit of each task's process, including its child processes: MB, or text such as `2 GB`. "
        "`none`: no limit.",
    )  # fmt: skip
    nice: Annotated[Nice, Option((), "N", "as it is", as_text=True)] = Field(
        None,
        description="CPU niceness of task processes, 0 to 19: a higher value gives way to others when cores are short. "
        "`none`: 5, and 10 in a backfill.",
    )


class StopManager(Command, kind=request_kinds.MANAGER_STOP):
    drain: bool = option(False, "Let running tasks finish first. No new tasks start.")


class StandBy(Command, kind=request_kinds.MANAGER_STAND_BY):
    """A heartbeat of a manager that waits for the lease."""

    manager_id: Text
    host: Text
    pid: Count


class CompactState(Command, kind=request_kinds.STATE_COMPACT): ...


class PruneState(Command, kind=request_kinds.STATE_PRUNE): ...


def find_field(name: str) -> DeclaredField | None:
    """The declaration of a field by its name, of a backfill's before another command's."""
    commands = (BackfillInput, ClearTasks, TriggerInput, *COMMANDS.values())
    return next((fields_of(command)[name] for command in commands if name in fields_of(command)), None)
