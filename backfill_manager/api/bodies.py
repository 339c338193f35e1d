"""Bodies of changes: the fields of the commands (`schemas.commands`) without those that the address has.

They are validated strictly (no "1" for 1, no unknown field), and dates are text, read in the DAG's zone.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, Final, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    create_model,
    model_validator,
)
from pydantic_core.core_schema import CoreSchema, no_info_after_validator_function

from backfill_manager.schemas import backfill_options, commands, field_types, json_values
from backfill_manager.schemas.fields import fields_of

MAX_LISTED: Final = 100_000  # dates or partitions
_CHOOSING: Final = ("run_ids", "dates", "items")


def _example(**fields: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [fields]})


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=False)

    @model_validator(mode="before")
    @classmethod
    def _is_json(cls, value: Any) -> Any:
        for problem in json_values.invalid_json_values(value):
            raise ValueError(problem)
        return value

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        found = handler(schema)
        for field in handler.resolve_ref_schema(found)["properties"].values():
            if "minItems" in field:
                field.pop("default", None)  # `[]`, which a generated client would send
        return found


class NotEmpty:
    """Of a list that means all when it is left out: one that is given and empty is what a script has chosen, which is nothing."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(schema), "minItems": 1}

    @staticmethod
    def _check(value: tuple[Any, ...]) -> tuple[Any, ...]:
        if not value:
            raise ValueError("is empty; leave it out where all are meant")
        return value


def _body_of(
    command: type[BaseModel], *, without: Collection[str] = (), nullable: bool = False, choosing: Collection[str] = ()
) -> Any:
    """A body with the fields of a command. `nullable`: each may be null or left out, whatever the command's default. `choosing`:
    lists that are `NotEmpty`."""
    fields: dict[str, Any] = {}
    for name, field in command.model_fields.items():
        if name in without:
            continue
        fields[name] = (Annotated[field.annotation, NotEmpty()] if name in choosing else field.annotation, field)
        if nullable:
            parts = (field.annotation, *field.metadata)
            declared: Any = Annotated[parts]
            fields[name] = (declared | None, Field(default=None, description=field.description))
    return create_model(f"{command.__name__}Body", __base__=Body, **fields)


class NewBackfill(backfill_options.BackfillInput, Body):
    """A backfill to create, or only to plan."""

    dates: Annotated[
        tuple[field_types.DateText, ...], Field(max_length=MAX_LISTED, strict=False, description="Logical dates.")
    ] = ()
    partitions: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=field_types.MAX_PARTITION_KEY_LENGTH)], ...],
        Field(max_length=MAX_LISTED, strict=False, description="Keys that are not dates: a region, a customer."),
    ] = ()


class ExpectedSettings(_body_of(backfill_options.BackfillSettings, nullable=True)):  # type: ignore[misc]
    """Settings of an unfinished backfill."""

    def given(self) -> dict[str, Any]:
        """The settings that were sent; null is kept where it means none, and else the same as left out."""
        values: dict[str, Any] = self.model_dump(exclude_unset=True, exclude={"was"})
        declared = fields_of(backfill_options.BackfillSettings)
        nullable = {name for name in declared if declared[name].may_be_none} - backfill_options.NEVER_NULL.keys()
        return {name: value for name, value in values.items() if value is not None or name in nullable}


class BackfillChanges(ExpectedSettings):
    """Changes to the settings of an unfinished backfill."""

    model_config = _example(priority=10, max_active_runs=4, was={"priority": 0})

    was: ExpectedSettings | None = Field(
        default=None,
        description="Values of the changed settings that the user has seen. The request is refused if one of them has "
        "another value now.",
    )


class Cancel(_body_of(commands.CancelBackfill, without={"backfill_id"})):  # type: ignore[misc]
    """How to cancel a backfill."""


class Retry(_body_of(commands.RetryBackfill, without={"backfill_id"}, choosing={"items"})):  # type: ignore[misc]
    pass


class Diff(_body_of(commands.DiffBackfill, without={"backfill_id"})):  # type: ignore[misc]
    """How to compare the tables with a preview."""


class Promote(_body_of(commands.PromoteBackfill, without={"backfill_id"})):  # type: ignore[misc]
    """How to promote a preview."""


class Revert(_body_of(commands.RevertRun, without={"dag_id", "run_id"})):  # type: ignore[misc]
    """How to revert a run or a backfill."""


class Note(_body_of(commands.NoteRun, without={"dag_id", "run_id"})):  # type: ignore[misc]
    """A note on a run or a backfill."""

    model_config = _example(text="Late data, see https://example.com/tickets/12", was="")


class DagChanges(Body):
    """Changes to a DAG."""

    model_config = _example(is_paused=True)

    is_paused: bool = Field(description="Pause the DAG (no scheduled runs are created), or unpause it.")


class NewRun(commands.TriggerInput, Body):
    """A manual run."""


class Clear(_body_of(commands.ClearTasks, without={"dag_id", "is_regex"}, choosing=_CHOOSING)):  # type: ignore[misc]
    """Which finished tasks run again. Without dates, tasks or runs: all of them."""

    model_config = _example(dry_run=True, start_date="2013-01-05", only_failed=True)

    run_ids: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=4000)], ...],
        Field(max_length=1000, strict=False, description="Only these runs, of any type."),
        NotEmpty(),
    ] = ()
    dry_run: bool = Field(default=False, description="Only return what would be cleared.")


class MarkRuns(_body_of(commands.MarkRuns, without={"dag_id"}, choosing=_CHOOSING)):  # type: ignore[misc]
    """Runs of a DAG, and the state to set."""

    model_config = _example(dry_run=True, state="success", dates=["2013-01-05/2013-01-09"])

    dry_run: bool = Field(default=False, description="Only return what would be marked.")


class MarkRun(Body):
    """The state to set for a run, or for one of its tasks."""

    model_config = _example(state="success")

    state: Literal["success", "failed", "skipped"] = Field(
        description="State to set. `skipped` is possible for tasks only."
    )
    task_id: field_types.Name | None = Field(default=None, description="Id of the task. Left out: the whole run.")

    @model_validator(mode="after")
    def _a_run_is_not_skipped(self) -> MarkRun:
        if self.task_id is None and self.state == "skipped":
            raise ValueError("a run is marked success or failed; skipped is for a task (task_id)")
        return self


class PoolChanges(_body_of(commands.SetPool, without={"name"}, nullable=True)):  # type: ignore[misc]
    """Changes to a pool."""

    model_config = _example(slots=32)


class Parse(_body_of(commands.ParseBundle, without={"bundle"})):  # type: ignore[misc]
    """Which files of a bundle to parse now, changed or not."""


class Deactivate(Body):
    """Which DAGs of a bundle to deactivate."""

    subpath: Annotated[
        field_types.Subpath,
        Field(min_length=1, max_length=1000, examples=["old_reports"], description="File or folder of the bundle."),
    ]
