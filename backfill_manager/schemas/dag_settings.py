"""The settings of DAGs and their tasks, each declared once: type, limits, help, and whether a backfill may override it.

Type checkers see the classes behind `@dag(...)`, `@task(...)` and `sql(...)` (PEP 692); pydantic checks what is passed, and
makes the JSON Schema of `*.dag.yaml` files (`dags.yaml.json_schema`). A value comes out as `TaskSpec` and `DagSpec` hold it
(`dags/definition.py`); their fields have the defaults. DAG files must load quickly: `dags.authoring` imports this when the
first decorator runs.
"""

from __future__ import annotations

import functools
import inspect
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Annotated, Any, Final, Literal, Protocol, get_args

from pydantic import ConfigDict, Field, GetCoreSchemaHandler, TypeAdapter, ValidationError, WithJsonSchema, with_config
from pydantic.functional_validators import AfterValidator, BeforeValidator, PlainValidator
from typing_extensions import TypedDict, get_type_hints

from backfill_manager.errors import nearest, shorten
from backfill_manager.model.states import TRIGGER_RULES, TriggerRule, WriteMode
from backfill_manager.schemas.checks import Check, OnFailure, read_checks
from backfill_manager.schemas.params import PARAM_TYPES, read_params, read_yaml_params
from backfill_manager.schemas.waits import On, Wait, read_schedule, read_waits
from backfill_manager.value_rules import (
    MAX_MEMORY_MB,
    MAX_NICE,
    MEMORY_PATTERN,
    MIN_MEMORY_MB,
    NAME_PATTERN,
    check_name,
    describe_error,
    read_memory,
)

MAX_LABEL: Final = 200  # characters of a tag, and of an owner
MAX_DESCRIPTION: Final = 4000
MAX_INT: Final = 2**31 - 1  # what is larger doesn't fit into a column
MAX_MAPPED: Final = 1000  # tasks of one `over`
MAX_EXCLUDED_DATES: Final = 2000
MAX_SECONDS: Final = 315_360_000  # ten years; clocks and dates would overflow

Callback = Callable[[Any], object]  # def notify(ctx)
_CONFIG = ConfigDict(extra="forbid", strict=True)


@dataclass(frozen=True)
class _As:
    """Validates a value as `type`, where the annotation also allows what a validator before turns into it."""

    type: Any

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        return handler.generate_schema(self.type)


@dataclass(frozen=True)
class _Overridable:
    """A backfill may set this for its own runs, `of_callbacks` for its callbacks, too."""

    of_callbacks: bool


_SET, _SET_OF_TASKS = _Overridable(of_callbacks=True), _Overridable(of_callbacks=False)


def _help(text: str) -> Any:
    return Field(description=text)


def _seconds(value: Any) -> Any:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds):
        raise ValueError(f"must be seconds or a timedelta, not {value!r}")
    return seconds


def _checked(rule: str, is_right: Callable[[Any], Any], read: Callable[[Any], Any] = lambda value: value) -> Any:
    """A check of a value, which becomes what `read` makes of it."""

    def check(value: Any) -> Any:
        if not is_right(value):
            raise ValueError(f"must be {rule}, not {value!r}")
        return read(value)

    return check


def _at_most(most: int) -> Any:
    """A length. Not `max_length`, which takes no half characters: they are reported with their place (`DagSpec.check`)."""

    def check(value: str) -> str:
        if len(value) > most:
            raise ValueError(f"must be text of at most {most:,} characters, not {shorten(repr(value), 100)}")
        return value

    return AfterValidator(check)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _trigger_rule(value: Any) -> Any:
    if not isinstance(value, str) or value not in TRIGGER_RULES:
        hint = nearest(str(value), TRIGGER_RULES, n=1) or f"; the rules are {', '.join(TRIGGER_RULES)}"
        raise ValueError(f"must be a trigger rule, not {value!r}{hint}")
    return str.__str__(value)  # plain text, where an enum's member was given


def _as_tuple(value: Any) -> Any:
    if isinstance(value, set):
        return tuple(sorted(value, key=str))
    return tuple(value) if isinstance(value, list) else value


def _unique(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))


def _as_days(value: Any) -> tuple[str, ...]:
    """Dates as text, rising; of a mapping (`holidays.country_holidays("DE", years=2026)`) the keys."""
    rule = "dates, such as ['2026-12-25', '2026-12-26']"
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise ValueError(f"must be {rule}, not {value!r}")
    days = set()
    for day in value:
        try:
            days.add(str(date.fromisoformat(day) if isinstance(day, str) else _day(day)))
        except ValueError:
            raise ValueError(f"must be {rule}; {day!r} is not one") from None
    if len(days) > MAX_EXCLUDED_DATES:
        raise ValueError(f"must be at most {MAX_EXCLUDED_DATES:,} dates, not {len(days):,}")
    return tuple(sorted(days))


def _day(value: Any) -> date:
    if isinstance(value, datetime) or not isinstance(value, date):
        raise ValueError("no date, or one with a time")
    return value


def _as_reads(value: Any) -> Any:
    if isinstance(value, list | tuple) and all(isinstance(name, str) for name in value):
        return dict.fromkeys(value)
    return dict(value) if isinstance(value, Mapping) else value


def _callback(value: Any) -> Any:
    """A function, or a `functools.partial` of one. How its argument is named, and where it stands, doesn't matter."""
    if value is None:
        return None
    function = value.func if isinstance(value, functools.partial) else value
    is_plain = inspect.isroutine(function) and not (
        inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function)
    )
    try:
        inspect.signature(value if is_plain else _callback).bind(object())
    except TypeError:
        is_plain = False
    if not is_plain:
        raise ValueError(f"must be a plain function that takes one argument, as in `def notify(ctx)`, not {value!r}")
    return value


def _is_reference(value: Any) -> bool:
    module, _, function = value.partition(":") if isinstance(value, str) else ("", "", "")
    return all(part.isidentifier() for part in (*module.split("."), function))


def _as_mapping(rule: str) -> BeforeValidator:
    return BeforeValidator(_checked(rule, lambda value: isinstance(value, Mapping) and value, dict))


def _as_variables(value: Any) -> tuple[tuple[str, str], ...]:
    """Pairs, as a `TaskSpec` holds them."""
    if not isinstance(value, Mapping):
        raise ValueError(f"must be variables and their values, such as {{'REGION': 'eu'}}, not {value!r}")
    for name, one in value.items():
        if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
            rule = "the name of a variable: letters, digits and `_`, not BFM_..., which are the run's"
            raise ValueError(f"must have {rule}, not {name!r}")
        if isinstance(one, bool) or not isinstance(one, str | int | float):
            raise ValueError(f"must have text for {name}, not {one!r}")
    return tuple((name, str(one)) for name, one in value.items())


class MadeTask(Protocol):
    """A task of a DAG file (`authoring.Task`)."""

    task_id: str
    task_ids: tuple[str, ...]


@dataclass(frozen=True)
class ResultOf:
    """In place of values: the result of that task in each run; of one that is mapped, those of its mapped tasks by key."""

    task_id: str


def _as_over(value: Any) -> dict[str, str] | ResultOf:
    if isinstance(getattr(value, "task_ids", None), tuple):  # a task of the DAG file
        return ResultOf(value.task_id)
    if isinstance(value, Mapping) and list(value) == [_RESULT_OF] and isinstance(value[_RESULT_OF], str):
        return ResultOf(value[_RESULT_OF])
    return values_by_key(value)


def values_by_key(value: Any, *, at_least: int = 1) -> dict[str, str]:
    """Key -> value as JSON text, in their order. `ValueError` that begins with `must`."""
    rule = (
        "text or integers that name each task, such as ['de', 'fr'], or any values by such names, such as {'de': ...}"
    )
    if isinstance(value, list | tuple):
        if wrong := [one for one in value if isinstance(one, bool) or not isinstance(one, str | int)]:
            raise ValueError(f"must be {rule}; {wrong[0]!r} has no name")
        keys, values = [str(one) for one in value], list(value)
    elif isinstance(value, Mapping):
        keys, values = list(value), list(value.values())
    else:
        raise ValueError(f"must be {rule}, not {value!r}")
    if not at_least <= len(keys) <= MAX_MAPPED:
        raise ValueError(f"must have {at_least} to {MAX_MAPPED:,} values, not {len(keys):,}")
    times = Counter(keys)
    for key in keys:
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            raise ValueError(f"must be {rule}; a name has 1 to 100 letters, digits, `_` or `-`, unlike {key!r}")
        if times[key] > 1:
            raise ValueError(f"must have each name once, not {key!r} twice")
    made: dict[str, str] = {}
    for key, one in zip(keys, values, strict=True):
        try:
            made[key] = json.dumps(one, allow_nan=False, ensure_ascii=False, sort_keys=True)
        except (TypeError, ValueError):
            raise ValueError(
                f"must have JSON values (text, numbers, booleans, null, lists, maps); {key!r} has {one!r}"
            ) from None
    return made


def _as_names(value: Any) -> Any:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"must be a task's id or a list of them, not {value!r}")
    return names


_NAME_SCHEMA: Final[dict[str, Any]] = {"type": "string", "pattern": f"^{NAME_PATTERN}$"}
Name = Annotated[str, PlainValidator(check_name), WithJsonSchema(_NAME_SCHEMA)]
Text = Annotated[str, PlainValidator(_checked("text", _is_text)), WithJsonSchema({"type": "string", "pattern": "\\S"})]
Int = Annotated[int, Field(ge=-MAX_INT, le=MAX_INT)]
Count = Annotated[int, Field(ge=0, le=MAX_INT)]
Positive = Annotated[int, Field(ge=1, le=MAX_INT)]
_SECONDS = _As(Annotated[float, Field(le=MAX_SECONDS)])
Seconds = Annotated[float | timedelta, _SECONDS, Field(ge=0), BeforeValidator(_seconds)]
PositiveSeconds = Annotated[float | timedelta, _SECONDS, Field(gt=0), BeforeValidator(_seconds)]
_MEMORY: Final = {"minimum": MIN_MEMORY_MB, "maximum": MAX_MEMORY_MB, "type": "integer"}
Memory = Annotated[
    int | str,
    _As(Annotated[int, Field(ge=MIN_MEMORY_MB, le=MAX_MEMORY_MB)]),
    BeforeValidator(read_memory),
    WithJsonSchema({"anyOf": [_MEMORY, {"type": "string", "pattern": f"^{MEMORY_PATTERN}$"}], "examples": ["2 GB"]}),
]
Nice = Annotated[int, Field(ge=0, le=MAX_NICE)]
Factor = Annotated[float, Field(ge=1, le=MAX_INT)]
Rule = Annotated[TriggerRule, BeforeValidator(_trigger_rule)]
Label = Annotated[str, _at_most(MAX_LABEL), Field(json_schema_extra={"maxLength": MAX_LABEL})]
Description = Annotated[str, _at_most(MAX_DESCRIPTION), Field(json_schema_extra={"maxLength": MAX_DESCRIPTION})]
Tags = Annotated[list[str] | tuple[str, ...], _As(tuple[Label, ...]), BeforeValidator(_as_tuple)]
Names = Annotated[
    list[str] | tuple[str, ...], _As(tuple[Text, ...]), BeforeValidator(_as_tuple), AfterValidator(_unique)
]
Params = Annotated[dict[str, Any], PlainValidator(read_params)]
_PARAM: Final[dict[str, Any]] = {
    "type": "object", "additionalProperties": False, "required": ["type"],
    "properties": {
        "type": {"enum": list(PARAM_TYPES)}, "default": True, "choices": {"type": "array", "minItems": 1},
        "description": {"type": "string"},
    },
}  # fmt: skip
_PLAIN_DEFAULT: Final = {
    "not": {
        "type": "object",
        "anyOf": [
            {"required": ["type"], "properties": {"type": {"enum": list(PARAM_TYPES)}}},
            {
                "propertyNames": {"enum": list(_PARAM["properties"])},
                "anyOf": [{"required": ["default"]}, {"required": ["choices"]}],
            },
        ],
    }
}
_PARAMS_SCHEMA: Final = {"type": "object", "additionalProperties": {"anyOf": [_PARAM, _PLAIN_DEFAULT]}}
YamlParams = Annotated[
    dict[str, Any], PlainValidator(read_yaml_params),
    WithJsonSchema({**_PARAMS_SCHEMA, "examples": [{"region": {"type": "string", "choices": ["eu", "us"], "default": "eu"}}]}),
]  # fmt: skip
Function = Annotated[Callback | None, PlainValidator(_callback)]
_REFERENCE: Final = {"type": "string", "pattern": "^[^\\s:]+:[^\\s:]+$", "examples": ["helpers:clean"]}
_as_reference = _checked("module:function, such as helpers:clean", _is_reference, str)
Reference = Annotated[str, PlainValidator(_as_reference), WithJsonSchema(_REFERENCE)]
_DATES: Final = ["2013-01-01", "2013-01-01T05:00", "2013-01-01T05:00:00-05:00"]
_as_date = _checked("a date as text, date or datetime", lambda value: value is None or isinstance(value, str | date))
Date = Annotated[  # parsed later, when the DAG's time zone is known
    str | date | datetime | None, PlainValidator(_as_date), WithJsonSchema({"type": ["string", "null"], "examples": _DATES})
]  # fmt: skip
ExcludedDates = Annotated[
    Iterable[str | date], PlainValidator(_as_days),
    WithJsonSchema({
        "type": "array", "maxItems": MAX_EXCLUDED_DATES, "items": {"type": "string", "format": "date"},
        "examples": [["2026-12-25", "2026-12-26"]],
    }),
]  # fmt: skip
_DURATION: Final = {
    "type": "object", "additionalProperties": False, "required": ["seconds"],
    "properties": {"seconds": {"type": "integer", "minimum": 1}},
}  # fmt: skip
_TABLES: Final = {"type": "array", "items": {"type": "string", "pattern": "\\S"}}
_COLUMNS: Final = {"type": "object", "additionalProperties": {"type": ["string", "null"], "pattern": "\\S"}}
Reads = Annotated[
    Mapping[str, str | None] | list[str] | tuple[str, ...],
    _As(dict[Text, Text | None]),
    BeforeValidator(_as_reads),
    WithJsonSchema({"anyOf": [_TABLES, _COLUMNS], "examples": [{"flights_raw": "time_hour"}]}),
]
_CHECK: Final[dict[str, Any]] = {
    "type": "object", "additionalProperties": False, "required": ["condition"],
    "properties": {
        "condition": {"type": "string", "pattern": "\\S"}, "name": {"type": ["string", "null"], "pattern": "\\S"},
        "on_failure": {"enum": list(get_args(OnFailure)), "default": "fail"},
    },
}  # fmt: skip
_CHECKS: Final = {
    "type": "array", "items": {"anyOf": [{"type": "string", "pattern": "\\S"}, _CHECK]},
    "examples": [["rows > 0", "no nulls in id", {"condition": "delay < 1440", "on_failure": "warn"}]],
}  # fmt: skip
Checks = Annotated[list[str | Check] | tuple[str | Check, ...], PlainValidator(read_checks), WithJsonSchema(_CHECKS)]
_TEXT: Final = {"type": "string", "pattern": "\\S"}
Columns = Annotated[
    str | list[str] | tuple[str, ...],
    _As(tuple[Text, ...]),
    BeforeValidator(lambda value: (value,) if isinstance(value, str) else _as_tuple(value)),
    AfterValidator(_unique),
    WithJsonSchema({"anyOf": [_TEXT, {"type": "array", "items": _TEXT}], "examples": [["id"]]}),
]
_ROWS_WAIT: Final[dict[str, Any]] = {
    "type": "object", "additionalProperties": False, "required": ["rows", "time_column"],
    "properties": {"rows": _TEXT, "time_column": _TEXT, "at_least": {"type": "integer", "minimum": 1, "default": 1}},
}  # fmt: skip
_FILE_WAIT, _CONDITION_WAIT = (
    {"type": "object", "additionalProperties": False, "required": [name], "properties": {name: _TEXT}}
    for name in ("file", "condition")
)
_WAITS: Final = {
    "type": "array", "items": {"anyOf": [_TEXT, _ROWS_WAIT, _FILE_WAIT, _CONDITION_WAIT]},
    "examples": [[
        "bronze.events", {"rows": "partner.orders", "time_column": "at"},
        {"file": "s3://in/{interval_start:%Y-%m-%d}/_SUCCESS"},
        {"condition": "SELECT count(*) > 0 FROM rates WHERE day = :interval_start"},
    ]],
}  # fmt: skip
Waits = Annotated[list[Wait] | tuple[Wait, ...], PlainValidator(read_waits), WithJsonSchema(_WAITS)]
_ON: Final[dict[str, Any]] = {
    "type": "object", "additionalProperties": False, "required": ["waits_for"],
    "properties": {
        "waits_for": {**_WAITS, "minItems": 1},
        "every": {"anyOf": [{"type": ["string", "null"]}, _DURATION], "examples": ["@daily"]},
    },
}  # fmt: skip
_SCHEDULES: Final = [
    "@daily", "@hourly", "0 6 * * MON-FRI", {"seconds": 3600}, {"waits_for": ["bronze.events"], "every": "@daily"}
]  # fmt: skip
Schedule = Annotated[
    str | timedelta | On | None,
    PlainValidator(read_schedule),  # dags.schedule.timetable checks the rest
    WithJsonSchema({"anyOf": [{"type": ["string", "null"]}, _DURATION, _ON], "examples": _SCHEDULES}),
]
_VARIABLE: Final = re.compile(r"(?!BFM_)[A-Za-z_][A-Za-z0-9_]*")
_VARIABLES: Final[dict[str, Any]] = {
    "type": "object", "propertyNames": {"pattern": f"^{_VARIABLE.pattern}$"}, "additionalProperties": {"type": "string"},
}  # fmt: skip
Variables = Annotated[
    dict[str, str], PlainValidator(_as_variables),
    WithJsonSchema({**_VARIABLES, "additionalProperties": {"type": ["string", "number"]}}),
]  # fmt: skip
SecretVariables = Annotated[dict[str, str], PlainValidator(_as_variables), WithJsonSchema(_VARIABLES)]
ExitCode = Annotated[int, Field(ge=1, le=255)]
_KEY: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")  # of a mapped task: what follows the dot in its id
_RESULT_OF: Final = "result_of"
_OVER: Final[dict[str, Any]] = {
    "anyOf": [
        {"type": "array", "minItems": 1, "maxItems": MAX_MAPPED, "uniqueItems": True, "items": {
            "anyOf": [{"type": "string", "pattern": f"^{_KEY.pattern}$"}, {"type": "integer"}]}},
        {"type": "object", "minProperties": 1, "maxProperties": MAX_MAPPED, "propertyNames": {"pattern": f"^{_KEY.pattern}$"}},
    ],
    "examples": [["de", "fr"], {"de": {"currency": "EUR"}, "ch": {"currency": "CHF"}}, {_RESULT_OF: "list_files"}],
}  # fmt: skip
Over = Annotated[
    list[str | int] | tuple[str | int, ...] | Mapping[str, Any] | MadeTask,
    PlainValidator(_as_over),
    WithJsonSchema(_OVER),
]
_IDS: Final = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}], "default": []}
After = Annotated[list[str], BeforeValidator(_as_names), WithJsonSchema(_IDS)]


_MEMORY_HELP: Final = (
    "Memory limit of the task's process on the driver's machine, including its child processes: MB, or "
    "text such as `2 GB`. null: the pool's limit. No effect on SQL tasks, which have no process."
)
_REUSE_HELP: Final = (
    "Let tries of this task, and of others of the same version with this setting, run one after another "
    "in one process, as Spark's Python workers do. This saves start-up time, but changes to modules and "
    "global values stay for the next try. No effect on SQL and Bash tasks, or with a memory limit."
)
_NICE_HELP: Final = (
    "CPU niceness of the task's process, 0 to 19: a higher value gives way to others when cores are "
    "short. null: the pool's value, else 5, and 10 in a backfill. No effect on SQL tasks."
)


_CHECKS_HELP: Final = (
    "Conditions that the rows written by the task must meet before they are committed: `rows > 0`, `no "
    "nulls in a, b`, `unique(a, b)`, `rows within 20 % of the 7 before`, or any SQL condition. With "
    "`on_failure: warn`, the rows are committed even if the check fails."
)
_WAITS_HELP: Final = (
    "Data that must exist for the run's interval before the task starts: tables that tasks write (also "
    "for partitions), rows of any Delta table, a file, or a query that returns true."
)
_OVER_HELP: Final = (
    "Map the task over values: create one task, `<task>.<key>`, for each value. They run in parallel. The "
    "value is in `ctx.mapped_value`, `:mapped_value`, `{{ mapped_value }}` or `$BFM_MAPPED_VALUE`. Text "
    "and integers are their own keys; other values are given by key. With another task, or `{result_of: "
    "<task>}`, the values are the result of that task in each run."
)
_PARAMS_HELP: Final = (
    "Parameters of the DAG's runs: each a default value, or declared with type, default, choices and "
    "description (Param). A run may set only these parameters."
)


class _OfTask(TypedDict, total=False):
    retries: Annotated[Count, _help("Number of further tries after the first one fails."), _SET]
    retry_delay: Annotated[Seconds, _help("Delay before the second try, in seconds."), _SET]
    retry_backoff: Annotated[Factor, _help("Factor by which the delay grows with each further try."), _SET]
    max_retry_delay: Annotated[Seconds, _help("Maximum delay between two tries, in seconds."), _SET]
    timeout: Annotated[PositiveSeconds | None, _help("Maximum duration of a try, in seconds. null: no limit."), _SET]
    depends_on_past: Annotated[bool, _help("Wait for the same task in the previous run."), _SET_OF_TASKS]
    wait_for_downstream: Annotated[
        bool,
        _help("Wait for the same task in the previous run, and for the tasks directly downstream of it there."),
        _SET_OF_TASKS,
    ]
    waits_for: Annotated[Waits, _help(_WAITS_HELP)]
    wait_limit: Annotated[
        PositiveSeconds | None,
        _help("Maximum time to wait for the data in `waits_for`, in seconds. null: no limit."),
        _SET,
    ]
    after_wait_limit: Annotated[
        Literal["fail", "skip"],
        _help("What happens to the task when `wait_limit` has passed: `fail` it, without retries, or `skip` it."),
        _SET,
    ]
    trigger_rule: Annotated[Rule, _help("Which states of the upstream tasks let the task start."), _SET_OF_TASKS]
    pool: Annotated[
        Name | None,
        _help("Pool whose slots the task uses. null: the pool of its backfill, or `scheduled` outside of a backfill."),
        _SET,
    ]
    priority: Annotated[Int, _help("Tasks with a higher priority start first."), _SET]
    weight: Annotated[Positive, _help("Number of pool slots that the task takes."), _SET]
    max_active_tis: Annotated[
        Positive | None, _help("Maximum number of running instances of this task, over all runs. null: no limit."), _SET
    ]
    memory: Annotated[Memory | None, _help(_MEMORY_HELP), _SET]
    nice: Annotated[Nice | None, _help(_NICE_HELP), _SET]
    reuse_process: Annotated[bool, _help(_REUSE_HELP), _SET]


@with_config(_CONFIG)
class DefaultArgs(_OfTask, total=False):
    """Settings of all tasks that do not set them themselves."""

    on_success: Function
    on_failure: Function


class _OfMapping(TypedDict, total=False):
    over: Annotated[Over, _help(_OVER_HELP)]


class _OfOutput(TypedDict, total=False):
    checks: Annotated[Checks, _help(_CHECKS_HELP)]


@with_config(_CONFIG)
class TaskSettings(DefaultArgs, _OfMapping, _OfOutput, total=False):
    task_id: Name


class _OfSql(TypedDict, total=False):
    into: Annotated[
        Text | None,
        _help("Table that the rows of the last statement are written to. `mode` defines which rows they replace."),
    ]
    time_column: Annotated[
        Text | None, _help("Column of `into` with the time of a row, which determines the rows of an interval.")
    ]
    partition_column: Annotated[Text | None, _help("Column of `into` with the partition key.")]
    mode: Annotated[
        WriteMode,
        _help(
            "How rows are written to `into`: `replace` those of the interval or partition, `append`, or "
            "`overwrite` the whole table."
        ),
    ]
    merge_on: Annotated[
        Columns,
        _help(
            "Merge into the table `into` by these columns, instead of writing by `mode`: rows with the same "
            "values are updated, others are inserted."
        ),
    ]
    schema: Annotated[Literal["merge"] | None, _help("`merge`: add columns that the table `into` lacks.")]


@with_config(_CONFIG)
class SqlSettings(TaskSettings, _OfSql, total=False):
    pass


class _OfBash(TypedDict, total=False):
    env: Annotated[
        Variables,
        _help("Environment variables of the command, in addition to those of the manager and of the run (`BFM_...`)."),
    ]
    secrets: Annotated[
        SecretVariables,
        _help(
            "Environment variables that contain secrets, each with the name of the secret: `{PGPASSWORD: "
            "db-password}`. They are read as by `ctx.secret`."
        ),
    ]
    cwd: Annotated[
        Text | None,
        _help(
            "Working directory: an absolute path, or a folder of the bundle, which must not be written to. null: "
            "a new, empty folder."
        ),
    ]
    skip_exit_code: Annotated[
        ExitCode | None,
        _help("Exit code with which the command skips the task. null: every exit code except 0 is a failure."),
    ]


@with_config(_CONFIG)
class BashSettings(DefaultArgs, _OfMapping, _OfBash, total=False):
    task_id: Name


class _OfDag(TypedDict, total=False):
    dag_id: Annotated[Name, _help("Id of the DAG, used in all commands and tables. It must be unique.")]
    schedule: Annotated[
        Schedule,
        _help(
            "When intervals end: cron, a preset or {seconds: 3600}. on(...): each interval once its data is "
            "there. null: only when triggered."
        ),
    ]
    start_date: Annotated[
        Date, _help("The first interval starts at or after this date. In `timezone`, unless it has an offset.")
    ]
    end_date: Annotated[
        Date,
        _help(
            "The last interval starts at or before this date. A date without a time includes that whole day in `timezone`."
        ),
    ]
    timezone: Annotated[
        Text, Field(description="Time zone of the schedule and the dates.", examples=["America/New_York"])
    ]
    exclude_dates: Annotated[
        ExcludedDates,
        _help(
            "Dates on which a cron schedule does not fire, such as holidays, in `timezone`. The interval before them ends at the "
            "next firing."
        ),
    ]
    catchup: Annotated[
        bool, _help("true: schedule every interval since `start_date`. false: only the latest interval that has ended.")
    ]
    max_active_runs: Annotated[
        Positive, _help("Maximum number of active scheduled runs. A backfill has its own limit.")
    ]
    max_active_tasks: Annotated[Positive, _help("Maximum number of running tasks, over all runs of the DAG."), _SET]
    batchable: Annotated[
        bool, _help("The tasks can process an interval of any length, so a backfill may run several intervals as one.")
    ]
    lookback: Annotated[Count, _help("Number of preceding intervals that each scheduled run repeats, for late data.")]
    reads: Annotated[
        Reads,
        _help(
            "Tables that the DAG reads: a list, or a mapping of each table to the column with the time of a row. Without it, "
            "`--downstream` goes by what its SQL tasks read."
        ),
    ]
    writes: Annotated[
        Names,
        _help("Tables that the DAG writes, besides `into` of its SQL tasks. DAGs that read them are downstream of it."),
    ]
    depends_on_past: Annotated[
        bool, _help("Default of `depends_on_past` for tasks that do not set it, as in `default_args`.")
    ]
    wait_for_downstream: Annotated[
        bool, _help("Default of `wait_for_downstream` for tasks that do not set it, as in `default_args`.")
    ]
    waits_for: Annotated[
        Waits, _help("Default of `waits_for` for tasks that have no upstream task and do not set it themselves.")
    ]
    expected_by: Annotated[
        PositiveSeconds | None,
        _help(
            "Seconds after the end of its interval within which a scheduled run must succeed. Otherwise it is "
            "reported as late."
        ),
    ]
    notify: Annotated[
        Names, _help("Targets, declared in `notifications` of the configuration, that receive messages about the DAG.")
    ]
    tags: Annotated[Tags, _help("Tags by which the DAG can be found.")]
    description: Annotated[Description, _help("Short description of the DAG.")]
    owner: Annotated[Label, _help("Person or team that is responsible for the DAG.")]


@with_config(_CONFIG)
class DagSettings(_OfDag, total=False):
    params: Annotated[Params, _help(_PARAMS_HELP)]
    default_args: Annotated[DefaultArgs, BeforeValidator(lambda v: dict(v) if isinstance(v, Mapping) else v)]
    on_success: Function
    on_failure: Function


# -- *.dag.yaml: the same settings, functions by reference ------------------------------------------------------------


@with_config(_CONFIG)
class YamlDefaultArgs(_OfTask, total=False):
    """Settings of all tasks that do not set them themselves."""

    on_success: Annotated[Reference | None, _help("Function that is called with `ctx` after the task has succeeded.")]
    on_failure: Annotated[Reference | None, _help("Function that is called with `ctx` after the task has failed.")]


KINDS: Final = ("sql", "python", "executor", "bash")  # what a task runs; exactly one of them
_TASK_RULES: Final[dict[str, Any]] = {
    "oneOf": [{"required": [kind]} for kind in KINDS],
    "not": {
        "anyOf": [
            {"required": ["executor", "checks"]},
            {"required": ["bash", "checks"]},
            {"required": ["sql", "checks"], "not": {"required": ["into"]}},
        ]
    },
    "dependentRequired": {
        "into": ["sql"],
        "time_column": ["sql", "into"],
        "partition_column": ["sql", "into"],
        "mode": ["sql", "into"],
        "merge_on": ["sql", "into"],
        "schema": ["sql", "into"],
        **{name: ["bash"] for name in ("env", "secrets", "cwd", "skip_exit_code")},
    },
}


@with_config(ConfigDict(**_CONFIG, json_schema_extra=_TASK_RULES))
class YamlTask(YamlDefaultArgs, _OfMapping, _OfOutput, _OfSql, _OfBash, total=False):
    """A task: what it runs (exactly one of sql, python, executor and bash), its upstream tasks and its settings."""

    sql: Annotated[
        Text, _help("Spark SQL with :interval_start, :interval_end and params, or a .sql file next to the YAML file.")
    ]
    python: Annotated[
        Reference, _help("Function that is called with `ctx`, in its own process on the driver's machine.")
    ]
    executor: Annotated[Reference, _help("Function that is called with `ctx`, entirely on a Spark executor.")]
    bash: Annotated[
        Text,
        _help("Command, or a .sh file next to the YAML file. The values of the run are in `$BFM_INTERVAL_START`, ..."),
    ]
    after: Annotated[After, _help("Upstream task, or a list of upstream tasks.")]


@with_config(
    ConfigDict(**_CONFIG, title="A DAG of backfill_manager", json_schema_extra={"required": ["dag_id", "tasks"]})
)
class YamlDag(_OfDag, total=False):
    """One document of a *.dag.yaml file in a bundle."""

    params: Annotated[YamlParams, _help(_PARAMS_HELP)]
    default_args: YamlDefaultArgs
    on_success: Annotated[Reference | None, _help("Function that is called with `ctx` after a run has succeeded.")]
    on_failure: Annotated[Reference | None, _help("Function that is called with `ctx` after a run has failed.")]
    tasks: Annotated[
        dict[Name, Annotated[YamlTask, _as_mapping("the settings of a task, such as `sql: SELECT 1`")]],
        _as_mapping("the tasks by their ids, each with its settings"),
        Field(min_length=1, description="Tasks of the DAG, by id.", json_schema_extra={"propertyNames": _NAME_SCHEMA}),
    ]


@functools.cache
def adapter(settings: Any) -> TypeAdapter[Any]:
    return TypeAdapter(settings)


@functools.cache
def settings_of(settings: Any) -> tuple[str, ...]:
    return tuple(get_type_hints(settings))


@functools.cache
def overridable(settings: Any, *, of_callbacks: bool = False) -> tuple[str, ...]:
    """The settings that a backfill may set for its own runs."""
    return tuple(
        name
        for name, hint in get_type_hints(settings, include_extras=True).items()
        for mark in get_args(hint)
        if isinstance(mark, _Overridable) and (mark.of_callbacks or not of_callbacks)
    )


@dataclass(frozen=True)
class Problem:
    """What is wrong with the setting at `place`."""

    place: tuple[str | int, ...]
    is_unknown: bool
    message: str

    def describe(self, owner: str) -> str:
        """One sentence; `owner` has the settings: `DAG 'flights'`."""
        place = self.place[:-1] if self.is_unknown else self.place
        if place[:1] == ("tasks",) and len(place) > 1:
            owner, place = f"{owner}, task {place[1]!r}", place[2:]
        name = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place).removeprefix(".")
        return f"{owner}: {name} {self.message}" if name else f"{owner} {self.message}"


def validate(settings: Any, values: Any) -> tuple[dict[str, Any], list[Problem]]:
    """The values as `TaskSpec` and `DagSpec` hold them, or everything that is wrong."""
    try:
        return adapter(settings).validate_python(values), []
    except ValidationError as error:
        return {}, [_problem(detail, settings) for detail in error.errors(include_url=False)]


def _problem(detail: Any, settings: Any) -> Problem:
    place = tuple(detail["loc"])
    if detail["type"] == "extra_forbidden":
        nested = {"tasks": YamlTask, "default_args": YamlDefaultArgs if settings is YamlDag else DefaultArgs}
        known = settings_of(nested[str(place[0])] if len(place) > 1 else settings)
        hint = nearest(str(place[-1]), known, n=1) or f"; known are {', '.join(known)}"
        if len(place) == 1 and settings in (DagSettings, YamlDag) and place[0] in settings_of(DefaultArgs):
            hint = f"; {place[0]} is one of tasks, and of default_args"
        return Problem(place, True, f"has no setting {place[-1]!r}{hint}")
    if place[-1:] == ("[key]",):
        return Problem(place[:-1], False, f"has an id that {describe_error(detail)}")
    return Problem(place, False, describe_error(detail))
