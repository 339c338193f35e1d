"""The JSON Schema of `*.dag.yaml` files, for editors: `dag.schema.json`, printed by `bfm dags schema`.

Made from the definition's defaults and the sentences below; a test holds that every keyword has its entry and that the
shipped file is what `schema()` gives. After a change:

    python -m backfill_manager.dags.yaml.json_schema > backfill_manager/dags/yaml/dag.schema.json
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from importlib import resources
from typing import Any, Final

from backfill_manager.dags.definition import TRIGGER_RULES, DagSpec, TaskSpec
from backfill_manager.dags.validation import MOST, MOST_SECONDS

FILE: Final = "dag.schema.json"
Schema = dict[str, Any]


def shipped() -> Schema:
    found: Schema = json.loads(resources.files(__package__).joinpath(FILE).read_text(encoding="utf-8"))
    return found


def schema() -> Schema:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A DAG of backfill_manager",
        "description": "One document of a *.dag.yaml file in a bundle.",
        "type": "object",
        "additionalProperties": False,
        "required": ["dag_id", "tasks"],
        "properties": _with_defaults(DAG, DagSpec),
        "$defs": {"task": _task(), "default_args": _default_args()},
    }


def _task() -> Schema:
    return {
        "description": "A task: what it runs (exactly one of sql, python and executor), what it comes after, its settings.",
        "type": "object",
        "additionalProperties": False,
        "properties": {**RUNS, **_with_defaults({**TASK, **SQL}, TaskSpec)},
        "oneOf": [{"required": [kind]} for kind in ("sql", "python", "executor")],
        "dependentRequired": {
            "into": ["sql"],
            "time_column": ["sql", "into"],
            "partition_column": ["sql", "into"],
        },
    }


def _default_args() -> Schema:
    return {
        "description": "Settings of every task that says nothing itself.",
        "type": "object",
        "additionalProperties": False,
        "properties": _with_defaults(TASK, TaskSpec),
    }


def _with_defaults(properties: Mapping[str, Schema], of: type[DagSpec] | type[TaskSpec]) -> dict[str, Schema]:
    defaults = {field.name: field.default for field in dataclasses.fields(of)}
    has_one = {name for name, value in defaults.items() if isinstance(value, str | int | float | None)}
    return {name: {**said, "default": defaults[name]} if name in has_one else said for name, said in properties.items()}


# -- kinds of values --------------------------------------------------------------------------------------------------

_ID: Final[Schema] = {"type": "string", "pattern": r"^(?!\.+$)[A-Za-z0-9_.-]{1,200}$"}
_FILLED: Final[Schema] = {"type": "string", "pattern": "\\S"}
_TRUTH: Final[Schema] = {"type": "boolean"}
_FUNCTION: Final[Schema] = {"type": "string", "pattern": "^[^\\s:]+:[^\\s:]+$", "examples": ["helpers:clean"]}
_LIST_OF_NAMES: Final[Schema] = {"type": "array", "items": _FILLED}


def _whole(least: int | None = None) -> Schema:
    return {"type": "integer", "minimum": -MOST if least is None else least, "maximum": MOST}


def _seconds(**more: Any) -> Schema:
    return {"type": "number", **more, "maximum": MOST_SECONDS}


def _or_null(said: Schema) -> Schema:
    return {**said, "type": [said["type"], "null"]}


def _told(said: Schema, *sentence: str, **more: Any) -> Schema:
    return {"description": " ".join(sentence), **said, **more}


def _date(*sentence: str) -> Schema:
    return _told(
        {"type": ["string", "null"]}, *sentence, "The DAG's wall clock, unless it has an offset.",
        examples=["2013-01-01", "2013-01-01T05:00", "2013-01-01T05:00:00-05:00"],
    )  # fmt: skip


def _callback(of: str) -> dict[str, Schema]:
    return {
        f"on_{end}": _told(
            _or_null(_FUNCTION), f"module:function, called with `ctx` when {of} has {done}.", default=None
        )
        for end, done in (("success", "succeeded"), ("failure", "failed"))
    }


# -- the keys ---------------------------------------------------------------------------------------------------------

DAG: Final[Mapping[str, Schema]] = {
    "dag_id": _told(_ID, "Its name, in every command and table; no other DAG has it."),
    "schedule": _told(
        {
            "anyOf": [
                {"type": ["string", "null"]},
                {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["seconds"],
                    "properties": {"seconds": {"type": "integer", "minimum": 1}},
                },
            ]
        },
        "When its intervals end: cron, a preset, {seconds: 3600}, or null: only when asked.",
        examples=["@daily", "@hourly", "0 6 * * MON-FRI", {"seconds": 3600}],
    ),
    "start_date": _date("The first interval starts at or after it."),
    "end_date": _date("The last interval starts at or before it; a date alone is its whole day in `timezone`."),
    "timezone": _told(_FILLED, "The zone of its schedule and dates.", examples=["America/New_York"]),
    "catchup": _told(_TRUTH, "true: every interval since start_date; false: only the latest one that is complete."),
    "max_active_runs": _told(_whole(1), "Scheduled runs at once; a backfill has a limit of its own."),
    "max_active_tasks": _told(_whole(1), "Tasks at once, over all of its runs."),
    "batchable": _told(_TRUTH, "Its tasks work on an interval of any length, so a backfill may do many as one."),
    "lookback": _told(_whole(0), "Intervals before that each scheduled run does again, for late data."),
    "reads": {
        "description": "Tables that it reads: a list, or each with the time column that tells an interval's rows.",
        "anyOf": [_LIST_OF_NAMES, {"type": "object", "additionalProperties": _or_null(_FILLED)}],
        "examples": [{"flights_raw": "time_hour"}],
    },
    "writes": _told(_LIST_OF_NAMES, "Tables that it writes; DAGs that read them are downstream."),
    "params": _told({"type": "object"}, "Parameters of its runs with their defaults; a run may set others."),
    "tags": _told({"type": "array", "items": {"type": "string"}}, "Words to find it by."),
    "description": _told({"type": "string"}, "What it is for, in a line."),
    "owner": _told({"type": "string"}, "Who to ask."),
    "default_args": {"$ref": "#/$defs/default_args"},
    **_callback("a run"),
    "tasks": _told(
        {
            "type": "object",
            "minProperties": 1,
            "propertyNames": _ID,
            "additionalProperties": {"$ref": "#/$defs/task"},
        },
        "Its tasks by their ids.",
    ),
}
RUNS: Final[Mapping[str, Schema]] = {
    "sql": _told(
        _FILLED,
        "Spark SQL with :interval_start, :interval_end and the run's params, or a .sql file beside this one.",
    ),
    "python": _told(_FUNCTION, "module:function of the bundle, called with `ctx` in a thread of the driver."),
    "executor": _told(_FUNCTION, "module:function of the bundle, called with `ctx` wholly on a Spark executor."),
    "after": {
        "description": "The task, or tasks, that it waits for.",
        "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
        "default": [],
    },
}
TASK: Final[Mapping[str, Schema]] = {
    "trigger_rule": {"description": "How those it waits for must have ended.", "enum": list(TRIGGER_RULES)},
    "retries": _told(_whole(0), "Further tries after a failed one."),
    "retry_delay": _told(_seconds(minimum=0), "Seconds before the second try."),
    "retry_backoff": _told(
        {"type": "number", "minimum": 1, "maximum": MOST}, "Each further delay is this many times the one before."
    ),
    "max_retry_delay": _told(_seconds(minimum=0), "Seconds that a delay has at most."),
    "timeout": _told(_or_null(_seconds(exclusiveMinimum=0)), "Seconds that a try may take."),
    "depends_on_past": _told(_TRUTH, "Waits for the same task of the run before."),
    "pool": _told(_or_null(_ID), "Its pool; null: that of the run's kind."),
    "priority": _told(_whole(), "Higher ones go first."),
    "weight": _told(_whole(1), "Slots of the pool that it takes."),
    "max_active_tis": _told(_or_null(_whole(1)), "Of this task at once, over all runs."),
    **_callback("the task"),
}
SQL: Final[Mapping[str, Schema]] = {
    "into": _told(_or_null(_FILLED), "The table that the last statement's rows replace the interval of."),
    "time_column": _told(_or_null(_FILLED), "Of `into`: tells which rows are the interval's."),
    "partition_column": _told(_or_null(_FILLED), "Of `into`: holds the partition key."),
}


def as_text() -> str:
    return json.dumps(schema(), indent=2) + "\n"


if __name__ == "__main__":
    print(as_text(), end="")
