"""What a task waits for before it starts: the setting `waits_for`, as an author declares it.

    waits_for=[
        "bronze.events",                                       a table that our own runs write: its interval is written
        rows("partner.orders", time_column="at"),              a Delta table of anyone: rows lie in the interval
        file("s3://in/{interval_start:%Y-%m-%d}/_SUCCESS"),    a file, or a folder
        condition("SELECT max(day) > :interval_start FROM t"), a query that says true
    ]

In YAML each is a mapping with the same names: `{rows: partner.orders, time_column: at}`, `{file: ...}`, `{condition: ...}`. A
path is filled in from the interval alone, in the zone of the DAG; nothing of it reaches a shell or SQL.

`schedule=on("bronze.events", every="@daily")` is `schedule="@daily"` with these as `waits_for`; in YAML it is a mapping,
`{waits_for: [...], every: ...}`.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from backfill_manager.errors import nearest, shorten
from backfill_manager.masking import mask_text
from backfill_manager.value_rules import refuse_unknown

MAX_CONDITION_LENGTH: Final = 10_000
MAX_PATH_LENGTH: Final = 2000
MAX_ROWS: Final = 10**15
_LABEL_LENGTH: Final = 100
_FIELDS: Final = ("interval_start", "interval_end")
_HOW: Final = "file('s3://in/{interval_start:%Y-%m-%d}/_SUCCESS')"


@dataclass(frozen=True)
class RowsWait:
    """Wait for at least `at_least` rows of a Delta table whose `time_column` is in the interval."""

    rows: str  # the table's name, or its path
    time_column: str
    at_least: int = 1

    @property
    def label(self) -> str:
        return self.rows if self.at_least == 1 else f"{self.at_least:,} rows in {self.rows}"


@dataclass(frozen=True)
class FileWait:
    """Wait for a file or a folder at this path."""

    file: str

    @property
    def label(self) -> str:
        return self.file

    def path(self, start: datetime | None, end: datetime | None) -> str:
        """The path for an interval, whose ends have the DAG's zone. `ValueError` where it needs one, and there is none."""
        values = {"interval_start": start, "interval_end": end}
        parts = []
        for text, name, form in _parts(self.file):
            parts.append(text)
            if name is not None:
                value = values[name]
                if value is None:
                    raise ValueError(f"the run has no {name}")
                parts.append(value.strftime(form))
        return "".join(parts)


@dataclass(frozen=True)
class ConditionWait:
    """Wait until this query in Spark SQL returns true. It returns a single value, true or false."""

    condition: str

    @property
    def label(self) -> str:
        return f"condition {shorten(' '.join(self.condition.split()), _LABEL_LENGTH)}"


@dataclass(frozen=True)
class On:
    """A schedule with data: a run for each interval of `every`. Its tasks start once the data in `waits` is there."""

    waits: tuple[Wait, ...]
    every: str | timedelta | Mapping[str, float] | None = None  # None: the schedule of the DAGs that write the tables


ExternalWait = RowsWait | FileWait | ConditionWait
Wait = str | ExternalWait


def rows(table: str, *, time_column: str, at_least: int = 1) -> RowsWait:
    """Waits for rows of the interval in a Delta table, whoever writes them: at least `at_least` rows whose `time_column` is in
    the interval. `table` is a name or a path."""
    return RowsWait(table, time_column, at_least)


def file(path: str) -> FileWait:
    """Waits until a file or a folder exists: `file("s3://in/{interval_start:%Y-%m-%d}/_SUCCESS")`."""
    return FileWait(path)


def condition(query: str) -> ConditionWait:
    """Waits until a query returns true: `condition("SELECT count(*) > 0 FROM t WHERE day = :interval_start")`."""
    return ConditionWait(query)


def on(*waits: Wait, every: str | timedelta | None = None) -> On:
    """A schedule with data: with `schedule=on("bronze.events", every="@daily")`, each daily run waits for that table.

    `every` defines the intervals. It may be left out if DAGs further up in the same file write all tables on one schedule."""
    return On(waits, every)


def label(wait: Wait) -> str:
    """How it is named to people, without secrets."""
    return wait if isinstance(wait, str) else mask_text(wait.label)


def of_json(value: Any) -> Wait:
    """What `dataclasses.asdict` has made of one."""
    return value if isinstance(value, str) else _KINDS[next(iter(_KINDS.keys() & value.keys()))](**value)


def read_waits(value: Any) -> tuple[Wait, ...]:
    """The setting: names of tables, `rows`, `file`, `condition` or, in YAML, mappings. `ValueError` for what is wrong."""
    if isinstance(value, str | ExternalWait | Mapping) or not isinstance(value, Sequence):
        raise ValueError(f"must be a list, such as ['bronze.events', {_HOW}], not {value!r}")
    return tuple(dict.fromkeys(_read(each, f"[{number}]") for number, each in enumerate(value)))


def read_schedule(value: Any) -> Any:
    """The setting `schedule`, in which `on(...)`, or in YAML its mapping, is checked but for `every`; all else as it is."""
    if isinstance(value, Mapping) and ("waits_for" in value or "on" in value):
        if unknown := [name for name in value if name not in ("waits_for", "every")]:
            example = "{waits_for: [bronze.events], every: '@daily'}"
            raise ValueError(f"must be such as {example}; it has no {unknown[0]!r}")
        value = On(value["waits_for"], value.get("every"))
    if not isinstance(value, On):
        return value
    if not value.waits:
        raise ValueError("must name what its runs wait for: on('bronze.events', every='@daily')")
    return On(read_waits(value.waits), value.every)


def _read(value: Any, where: str) -> Wait:
    if isinstance(value, Mapping):
        value = _of_mapping(value, where)
    if isinstance(value, RowsWait):
        for name in ("rows", "time_column"):
            _check_text(getattr(value, name), f"{where}: {'the table' if name == 'rows' else name}")
        n = value.at_least
        if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= MAX_ROWS:
            raise ValueError(f"{where}: at_least must be a number of rows, 1 or more, not {n!r}")
    elif isinstance(value, FileWait):
        _check_text(value.file, f"{where}: file", MAX_PATH_LENGTH)
        _check_path(value, where)
    elif isinstance(value, ConditionWait):
        _check_text(value.condition, f"{where}: condition", MAX_CONDITION_LENGTH)
    else:
        _check_text(value, f"{where}: a table's name, rows(...), file(...) or condition(...)")
    wait: Wait = value
    return wait


def _of_mapping(value: Mapping[Any, Any], where: str) -> Any:
    kinds = [name for name in _KINDS if name in value]
    if len(kinds) != 1:
        raise ValueError(f"{where} needs exactly one of {', '.join(_KINDS)}, such as {{file: /in/_SUCCESS}}")
    kind = _KINDS[kinds[0]]
    refuse_unknown(value, tuple(kind.__dataclass_fields__), where)
    if kind is RowsWait and "time_column" not in value:
        raise ValueError(f"{where} needs time_column: the column that tells which rows are the interval's")
    return kind(**value)


def _check_text(value: Any, what: str, longest: int = 1000) -> None:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{what} must be text, not {value!r}")
    if len(value) > longest:
        raise ValueError(f"{what} has {len(value):,} characters; {longest:,} is the most")


def _parts(path: str) -> Iterator[tuple[str, str | None, str]]:
    """Text, then the name and form of the value after it."""
    for text, name, form, _ in string.Formatter().parse(path):
        yield text, name, form or ""


def _check_path(wait: FileWait, where: str) -> None:
    path = wait.file
    if not re.match(r"/|[A-Za-z][A-Za-z0-9+.-]*://?[^{]", path):
        raise ValueError(f"{where}: {path!r} is neither an absolute path nor a URI, such as {_HOW}")
    try:
        parts = [(name, form, kind) for _, name, form, kind in string.Formatter().parse(path) if name is not None]
    except ValueError as error:
        raise ValueError(f"{where}: {path!r}: {error}; a brace itself is written twice") from None
    for name, form, kind in parts:
        if name not in _FIELDS:
            near = nearest(name, _FIELDS, n=1) or f"; there are {' and '.join(_FIELDS)}"
            raise ValueError(f"{where}: {path!r} has {{{name}}}, which is not filled in{near}")
        if not form or "%" not in form or kind or "{" in form:
            raise ValueError(f"{where}: {path!r}: {{{name}}} needs the form of its date: {{{name}:%Y-%m-%d}}")


_KINDS: Final[Mapping[str, type[RowsWait] | type[FileWait] | type[ConditionWait]]] = {
    "rows": RowsWait, "file": FileWait, "condition": ConditionWait
}  # fmt: skip
