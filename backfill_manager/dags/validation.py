"""What `@dag`, `@task` and `sql` accept: each keyword with its check, and the one sentence for a keyword they don't.

A check takes what the person wrote and gives what `DagSpec` and `TaskSpec` hold; it raises `ValueError("must be ...")`.
The TypedDicts say the same to type checkers and editors.
"""

from __future__ import annotations

import functools
import inspect
import json
import math
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from typing import Any, Final, TypedDict

from backfill_manager.dags.definition import CALLBACKS, TRIGGER_RULES, TableRead
from backfill_manager.errors import InvalidDag, nearest

Check = Callable[[Any], Any]
Callback = Callable[[Any], object]  # def tell(ctx)
_ID = re.compile(r"(?!\.+$)[A-Za-z0-9_.-]{1,200}")
MOST: Final = 2**31 - 1  # of numbers: what is larger doesn't fit into a column
MOST_SECONDS: Final = 315_360_000  # ten years; clocks and dates would overflow


class TaskSettings(TypedDict, total=False):
    task_id: str
    trigger_rule: str
    retries: int
    retry_delay: float | timedelta
    retry_backoff: float
    max_retry_delay: float | timedelta
    timeout: float | timedelta | None
    depends_on_past: bool
    pool: str | None
    priority: int
    weight: int
    max_active_tis: int | None
    on_success: Callback | None
    on_failure: Callback | None


class SqlSettings(TaskSettings, total=False):
    into: str | None
    time_column: str | None
    partition_column: str | None


class DagSettings(TypedDict, total=False):
    dag_id: str
    schedule: str | timedelta | None
    start_date: str | date | datetime | None
    end_date: str | date | datetime | None
    timezone: str
    catchup: bool
    max_active_runs: int
    max_active_tasks: int
    batchable: bool
    lookback: int
    reads: Mapping[str, str | None] | list[str] | tuple[str, ...]
    writes: list[str] | tuple[str, ...]
    params: dict[str, Any]
    tags: list[str] | tuple[str, ...]
    description: str
    owner: str
    default_args: Mapping[str, Any]
    on_success: Callback | None
    on_failure: Callback | None


def check_keywords(given: Mapping[str, Any], known: Mapping[str, Check], who: str) -> dict[str, Any]:
    """Every keyword checked; `InvalidDag` for the first that is unknown or wrong. `who` begins the message."""
    checked = {}
    for name, value in given.items():
        if name not in known:
            told = nearest(name, known, n=1) or f"; known are {', '.join(known)}"
            raise InvalidDag(f"{who} has no setting {name!r}{told}")
        try:
            checked[name] = known[name](value)
        except ValueError as error:
            raise InvalidDag(f"{who}: {name} {error}") from None
    return checked


# -- checks -----------------------------------------------------------------------------------------------------------


def an_id(value: Any) -> str:
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise ValueError(f"must be 1 to 200 letters, digits, `_`, `.` or `-`, not dots only, not {value!r}")
    return str(value)


def _whole(least: int | None, *, or_none: bool = False) -> Check:
    def check(value: Any) -> int | None:
        if value is None and or_none:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or (least is not None and value < least):
            raise ValueError(f"must be a whole number{'' if least is None else f' of {least} or more'}, not {value!r}")
        _refuse_beyond(MOST, value)
        return int(value)

    return check


def _number(least: float) -> Check:
    def check(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < math.inf:
            raise ValueError(f"must be a number of {least:g} or more, not {value!r}")
        _refuse_beyond(MOST, value)
        return float(value)

    return check


def _seconds(*, zero: bool, or_none: bool = False) -> Check:
    def check(value: Any) -> float | None:
        if value is None and or_none:
            return None
        seconds = value.total_seconds() if isinstance(value, timedelta) else value
        told = f"must be {'zero or more' if zero else 'more than zero'} seconds or a timedelta, not {value!r}"
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
            raise ValueError(told)
        if not seconds and not zero:
            raise ValueError(told)
        _refuse_beyond(MOST_SECONDS, seconds)
        return float(seconds)

    return check


def _refuse_beyond(most: int, value: float) -> None:
    if abs(value) > most:
        raise ValueError(f"must be {f'{most} or less' if value > 0 else f'{-most} or more'}, not {value!r}")


def _yes_or_no(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be True or False, not {value!r}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be text, not {value!r}")
    return str(value)


def _or_none(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


def _filled(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"must be a name, not {value!r}")
    return str(value)


def _trigger_rule(value: Any) -> str:
    if not isinstance(value, str) or value not in TRIGGER_RULES:
        told = nearest(str(value), TRIGGER_RULES, n=1) or f"; the rules are {', '.join(TRIGGER_RULES)}"
        raise ValueError(f"must be a trigger rule, not {value!r}{told}")
    return TRIGGER_RULES[TRIGGER_RULES.index(value)]  # plain text, where an enum's member was given


def _tags(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple | set) or not all(isinstance(tag, str) for tag in value):
        raise ValueError(f"must be a list of texts, not {value!r}")
    return tuple(sorted(value) if isinstance(value, set) else value)


def _tables(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) and name.strip() for name in value):
        raise ValueError(f"must be a list of table names, not {value!r}")
    return tuple(dict.fromkeys(value))


def _reads(value: Any) -> tuple[TableRead, ...]:
    """Names, or a dict of name -> time column."""
    if not isinstance(value, Mapping):
        return tuple(TableRead(name) for name in _tables(value))
    for column in value.values():
        if column is not None and (not isinstance(column, str) or not column.strip()):
            raise ValueError(f"must name each table's time column (or None), as in {{'raw': 'at'}}, not {column!r}")
    return tuple(TableRead(name, value[name]) for name in _tables(list(value)))


def _params(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise ValueError(f"must be a dict with texts as keys, not {value!r}")
    try:
        plain: dict[str, Any] = json.loads(json.dumps(dict(value), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(f"must be JSON values all through: {error}") from None
    return plain


def _instant(value: Any) -> str | date | None:
    """Read later, when the DAG's time zone is known."""
    if value is not None and not isinstance(value, str | date):
        raise ValueError(f"must be a date as text, date or datetime, not {value!r}")
    return value


def _callback(value: Any) -> Callback:
    """A function, or a `functools.partial` of one. What it is named, and where it stands, is all the same."""
    told = f"must be a plain function that takes one argument, as in `def tell(ctx)`, not {value!r}"
    function = value.func if isinstance(value, functools.partial) else value
    if (
        not inspect.isroutine(function)
        or inspect.iscoroutinefunction(function)
        or inspect.isgeneratorfunction(function)
    ):
        raise ValueError(told)
    try:
        inspect.signature(value).bind(object())
    except TypeError:
        raise ValueError(told) from None
    callback: Callback = value
    return callback


def _schedule(value: Any) -> Any:
    return value  # dags.timetable has the say


def _task_settings(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise ValueError(f"must be a dict of task settings, not {value!r}")
    return dict(value)


TASK: Final[Mapping[str, Check]] = {
    "task_id": an_id,
    "trigger_rule": _trigger_rule,
    "retries": _whole(0),
    "retry_delay": _seconds(zero=True),
    "retry_backoff": _number(1),
    "max_retry_delay": _seconds(zero=True),
    "timeout": _seconds(zero=False, or_none=True),
    "depends_on_past": _yes_or_no,
    "pool": _or_none(an_id),
    "priority": _whole(None),
    "weight": _whole(1),
    "max_active_tis": _whole(1, or_none=True),
    **dict.fromkeys(CALLBACKS, _or_none(_callback)),
}
DEFAULT_ARGS: Final[Mapping[str, Check]] = {name: check for name, check in TASK.items() if name != "task_id"}
SQL: Final[Mapping[str, Check]] = {
    **TASK,
    "into": _or_none(_filled),
    "time_column": _or_none(_filled),
    "partition_column": _or_none(_filled),
}
DAG: Final[Mapping[str, Check]] = {
    "dag_id": an_id,
    "schedule": _schedule,
    "start_date": _instant,
    "end_date": _instant,
    "timezone": _filled,
    "catchup": _yes_or_no,
    "max_active_runs": _whole(1),
    "max_active_tasks": _whole(1),
    "batchable": _yes_or_no,
    "lookback": _whole(0),
    "reads": _reads,
    "writes": _tables,
    "params": _params,
    "tags": _tags,
    "description": _text,
    "owner": _text,
    "default_args": _task_settings,
    **dict.fromkeys(CALLBACKS, _or_none(_callback)),
}
