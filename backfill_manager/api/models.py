"""What goes in and out, typed: the names are those of the state and of `views`, and the same in command line and API.

What comes in is taken strictly (no "1" for 1, no unknown field). What goes out may have more fields than are told here;
instants are ISO-8601 in UTC with `Z`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from backfill_manager.schemas.commands import MAX_NUMBER
from backfill_manager.schemas.json_limits import invalid_json_values

TypedDate = Annotated[
    str,
    Field(
        min_length=1, max_length=100,
        description="`2013-01-31`, `2013-01-31T05:00` or with an offset; without one in the DAG's time zone.",
        examples=["2013-01-31"],
    ),
]  # fmt: skip
Kind = Literal["schedule", "single", "dates", "partitions", "missing", "stale"]
Reprocess = Literal["none", "failed", "failed_tasks", "completed"]
Count = Annotated[int, Field(ge=1, le=MAX_NUMBER)]
AnyNumber = Annotated[int, Field(ge=-MAX_NUMBER, le=MAX_NUMBER)]
Expression = Annotated[str, Field(min_length=1, max_length=1000, description="A regular expression.")]


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
