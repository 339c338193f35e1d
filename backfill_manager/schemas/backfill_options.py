"""The options of a backfill, each declared once: type, default, limits, label (title) and help (description).

A new one is one field of `UpdatableOptions` (it can be changed while the backfill runs) or of `PlanOptions` (it can't). If it is
kept with the backfill, it is also a column of `model.records.Backfill` (`backfill_columns`). From the declaration come the CLI's
option, the field of the form, the REST body and its OpenAPI text, and the payload of the request.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import Self

from backfill_manager.clock import format_instant
from backfill_manager.errors import nearest
from backfill_manager.schemas import errors
from backfill_manager.schemas.command import Command
from backfill_manager.schemas.field_types import (
    Batch,
    Count,
    DateText,
    Duration,
    Hours,
    Instant,
    JsonObject,
    Name,
    Number,
    Regex,
)
from backfill_manager.schemas.fields import option
from backfill_manager.schemas.json_values import check_sizes

Kind = Literal["schedule", "single", "dates", "partitions", "missing", "stale", "outdated"]
By = Literal["runs", "data"]
Reprocess = Literal["none", "failed", "failed_tasks", "completed"]
Date = TypeVar("Date")


class UpdatableOptions(BaseModel):
    """Settings of a backfill that lists show; also a part of the resource `Backfill`."""

    model_config = ConfigDict(defer_build=True)

    max_active_runs: Count | None = option(None, "Maximum number of active runs.", metavar="N", none="the DAG's own")
    batch: Batch | None = option(
        None,
        "Combine up to N consecutive intervals per run, for DAGs that are batchable. auto: as many as the cost of past runs "
        "suggests, adjusted while the backfill runs.",
        metavar="N|auto", none="auto for a DAG that is batchable, else 1", as_text=True,
    )  # fmt: skip
    batch_target: Duration | None = option(
        None, "Maximum expected duration of one run, if the batch size is `auto`. Seconds, or text such as `10 min`.",
        metavar="TIME", none="the configuration's limits.batch_target, 10 minutes", as_text=True,
    )  # fmt: skip
    tasks: Regex | None = option(
        None,
        "Regular expression. Run only tasks whose id matches, and the tasks upstream of them; skip the "
        "others. Such runs are partial: for a backfill of all tasks, their dates are missing.",
        "--tasks", "-t", metavar="REGEX", none="all of them",
    )  # fmt: skip
    with_upstream: bool = option(
        True, "Also run the tasks upstream of the selected tasks.", "--upstream", label="Upstream tasks"
    )
    with_downstream: bool = option(
        False, "Also run the tasks downstream of the selected tasks.", "--downstream-tasks", label="Downstream tasks"
    )  # fmt: skip
    mark_success: bool = option(False, "Run no task; set the runs to success.", "--mark-success", "-m")
    stop_on_failure: Count | None = option(None, "Pause after N failed items.", metavar="N", none="never")
    pool: Name = option("backfill", "Pool whose slots are used.", metavar="P")
    priority: Number = option(0, "Priority. Higher values start first.", metavar="N")
    window: Hours | None = option(
        None, "Start work only in these hours of the DAG's zone.", label="Time window", metavar="HH:MM-HH:MM",
        none="any hour", examples=["20:00-06:00"],
    )  # fmt: skip
    notify: Name | None = option(
        None, "Target in `notifications` of the configuration that gets a message when the backfill ends, in "
        "addition to the targets of its DAG.",
        metavar="TARGET", none="those of its DAG",
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
        {}, "Settings of the DAG or its tasks, for this backfill only: retries=3, clean.timeout=600.", "--set",
        metavar="NAME=VALUE", examples=[{"retries": 3, "clean.timeout": 60}],
    )  # fmt: skip


class BackfillSettings(UpdatableOptions, LargeUpdatableOptions, Command):
    """Options of a backfill that can be changed while it runs. Tasks that are already running are not affected."""


UPDATABLE_FIELDS: Final = tuple(BackfillSettings.model_fields)
NEVER_NULL: Final = {
    "max_active_runs": "a whole number",
    "batch": "a whole number, or `auto`",
}  # decided when it was created
CHECKED_TOGETHER: Final = ("tasks", "with_upstream", "with_downstream", "overrides")  # settings, with those that change


class PlanOptions(Command, Generic[Date]):
    """Options of a backfill that say what is planned. `Date` is an instant, or text to be read in the DAG's zone."""

    dag_id: Name = Field(title="DAG", description="Id of the DAG.")
    kind: Kind | None = option(
        None,
        "schedule: each interval of the schedule; single: one run over the whole range; dates, partitions: those "
        "listed; missing: intervals without a successful run; stale: those whose successful run had another definition or code "
        "than the DAG has now; outdated: those whose inputs have changed since they were read.",
        none="schedule, or what the listed dates or partitions imply",
    )
    by: By = option(
        "runs",
        "How an interval counts as missing. runs: it has no successful run; data: a table that the DAG writes has no row in "
        "it, whatever runs there were.",
    )
    start_date: Date | None = option(
        None, "The first interval starts at or after this date.", "--from", "-s", label="From", metavar="T",
        none="the DAG's start_date",
    )  # fmt: skip
    end_date: Date | None = option(
        None, "The last interval starts at or before this date (inclusive). A date without a time includes that "
        "whole day in the DAG's zone.",
        "--to", "-e", label="To", metavar="T", none="the last complete interval, none after the DAG's end_date",
    )  # fmt: skip
    dates: tuple[Date, ...] = option((), "Logical dates.", "--date", metavar="T", strict=False)
    partitions: tuple[str, ...] = option(
        (), "Keys that are not dates: a region, a customer.", "--partition", metavar="KEY", strict=False
    )
    run_backwards: bool = option(False, "Run the last interval first.", "--run-backwards", "-B", label="Newest first")
    reprocess: Reprocess = option(
        "none",
        "What to do with dates that already have a run. none: leave them; failed: re-do those that failed, as "
        "new runs; failed_tasks: re-run their failed tasks, and what depends on them, in the same runs; "
        "completed: also re-do those that succeeded.",
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
        "Write into clones of the tables, which only this backfill and those downstream of it see. Compare "
        "them (`backfill diff`), then promote or discard them. Dates that already have a run are included.",
    )
    ignore_first_depends_on_past: bool = option(
        True, "The first item does not wait for the run before it. The others wait for theirs.",
        "--ignore-first-depends-on-past", "-I", label="Ignore first depends_on_past",
    )  # fmt: skip


class BackfillConfig(Command):
    """What a backfill covers: its `type`, with a range or a list."""

    type: Kind = Field(description="Kind of the backfill.")
    by: By = Field("runs", description="For the type `missing`: how an interval counts as missing.")
    start_date: DateText | None = Field(None, description="The first interval starts at or after this date.")
    end_date: DateText | None = Field(None, description="The last interval starts at or before this date (inclusive).")
    dates: tuple[DateText, ...] = Field((), description="Logical dates, for the type `dates`.", strict=False)
    partitions: tuple[str, ...] = Field((), description="Partition keys, for the type `partitions`.", strict=False)
    run_backwards: bool = Field(False, description="Run the last interval first.")
    allow_future: bool = Field(False, description="Also run intervals that have not ended yet.")
    total: Count | None = Field(
        None, description="Number of dates or partitions, in lists of backfills that contain only the first of many."
    )


class BackfillInput(BackfillSettings, PlanOptions[DateText], Command):
    """A backfill as a person or a REST client writes it: dates are text, and `kind` may be left to what is listed."""

    config: BackfillConfig | None = option(
        None, "What the backfill covers, as one object as in the resource `Backfill`. Replaces kind, dates, "
        "partitions and order.",
        metavar="JSON", examples=[{"type": "schedule", "start_date": "2013-01-01", "end_date": "2013-01-31"}],
    )  # fmt: skip
    copy_of: Name | None = option(
        None, "Id of another backfill of the DAG. Its range and settings are used for everything that is not given "
        "here.", "--copy-of",
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
        """The tagged union of `backfill.config_json`; its tag comes first (`config_begins`). An end that was left out is null
        until the backfill is planned."""
        if self.kind == "dates":
            body: JsonObject = {"dates": [format_instant(date) for date in self.dates]}
        elif self.kind == "partitions":
            body = {"partitions": list(self.partitions)}
        else:
            body = {"start_date": format_instant(self.start_date), "end_date": format_instant(self.end_date)}
        future = {"allow_future": True} if self.allow_future else {}
        by = {"by": self.by} if self.by != "runs" else {}
        return {"type": self.kind, **by, **body, "run_backwards": self.run_backwards, **future}

    @staticmethod
    def config_begins(kind: str) -> str:
        """How the text of `backfill.config_json` begins for this kind."""
        return json.dumps({"type": kind})[:-1]

    @classmethod
    def from_payload(cls, values: Mapping[str, Any]) -> Self:
        return cls.parse(as_written_now(values))


def as_written_now(values: Any) -> Any:
    """A payload of an older release, where `tasks` meant the selected tasks alone, in today's layout."""
    if isinstance(values, Mapping) and values.get("tasks") is not None and "with_upstream" not in values:
        return {**values, "with_upstream": False}
    return values


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
