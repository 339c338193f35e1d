"""A model of a dbt project: its Jinja rendered to SQL in a sandbox that knows `ref`, `source`, `config`, `var` and
`is_incremental`, and nothing of the machine; its tests as checks."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from jinja2 import StrictUndefined, TemplateError
from jinja2.sandbox import SandboxedEnvironment

from backfill_manager.errors import InvalidInput
from backfill_manager.importers.draft import Remark
from backfill_manager.importers.writer import call, identifier, quoted

MAX_SQL_LENGTH: Final = 1_000_000


@dataclass
class Model:
    """A model. `depends_on` and `sources` are names of models, and of tables."""

    name: str
    table: str
    sql: str
    path: str
    materialized: str = "view"
    event_time: str | None = None
    unique_key: tuple[str, ...] = ()
    batch_size: str | None = None  # of a microbatch, a key of BATCH_SIZES
    begin: str | None = None  # of a microbatch: where the first one begins
    new_columns: bool = False  # are added to its table
    is_whole: bool = False  # its SQL gives all rows: it asks for is_incremental()
    tags: tuple[str, ...] = ()
    depends_on: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)  # as text of Python
    remarks: list[Remark] = field(default_factory=list)

    def remark(self, what: str, instead: str) -> None:
        _remark(self.remarks, f"{self.path}: {what}", instead)


@dataclass
class Project:
    name: str
    settings: Mapping[str, Any]  # its dbt_project.yml
    models: dict[str, Model] = field(default_factory=dict)
    remarks: list[Remark] = field(default_factory=list)

    def remark(self, what: str, instead: str) -> None:
        _remark(self.remarks, what, instead)


def _remark(remarks: list[Remark], what: str, instead: str) -> None:
    one = Remark(None, what, instead)
    if one not in remarks:
        remarks.append(one)


class Names:
    """What a model's Jinja may use."""

    def __init__(
        self, tables: Mapping[str, str], sources: Mapping[tuple[str, str], str], variables: Mapping[str, Any], *,
        is_first: bool = False,
    ) -> None:  # fmt: skip
        self.tables, self.sources, self.variables, self.is_first = tables, sources, variables, is_first
        self.macros = ""
        self.config: dict[str, Any] = {}
        self.refs: list[str] = []
        self.reads: list[str] = []
        self.used_incremental = False
        self.target = _Target()

    def render(self, text: str, this: str = "this") -> str:
        environment = SandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=False)
        globals_ = {
            "ref": self._ref, "source": self._source, "config": self._config, "var": self._var, "this": quoted_table(this),
            "is_incremental": self._is_incremental, "execute": True, "flags": {}, "target": self.target,
        }  # fmt: skip
        return environment.from_string(self.macros + text).render(globals_)

    def try_render(self, text: str) -> None:
        """As far as it goes: `config` stands first in a model."""
        with contextlib.suppress(TemplateError, TypeError, ValueError, InvalidInput, OverflowError):
            self.render(text)

    def _ref(self, *names: str, v: Any = None, version: Any = None) -> str:
        version = version if v is None else v
        name = names[-1] if version is None else f"{names[-1]}_v{version}"
        name = one if (one := ".".join((*names[:-1], name))) in self.tables else name
        if name not in self.tables and not self.is_first:
            raise ValueError(f"ref({name!r}) is no model of the project")
        self.refs.append(name)
        return quoted_table(self.tables.get(name, name))

    def _source(self, source: str, table: str) -> str:
        found = self.sources.get((source, table), dotted(source, table))
        self.reads.append(found)
        return quoted_table(found)

    def _config(self, *given: Any, **settings: Any) -> str:
        self.config.update(given[0] if given and isinstance(given[0], dict) else {}, **settings)
        return ""

    def _var(self, name: str, *default: Any) -> Any:
        if name not in self.variables and not default and not self.is_first:
            raise ValueError(f"var({name!r}) has no value in dbt_project.yml")
        return self.variables.get(name, *default)

    def _is_incremental(self) -> bool:
        self.used_incremental = True
        return False


class _Target(dict[str, str]):
    """What a project asks of its profile, which is not here."""

    def __init__(self) -> None:
        super().__init__(name="prod", schema="")
        self.is_used = False

    def __getitem__(self, key: str) -> str:
        self.is_used = True
        return super().__getitem__(key)


def render(model: Model, text: str, names: Names, compiled: str | None = None) -> None:
    """The model's SQL, with what it refers to."""
    own = Names(names.tables, names.sources, names.variables)
    own.macros = names.macros
    try:
        if len(text) > MAX_SQL_LENGTH:
            raise ValueError("it is too long")
        sql = own.render(text, model.table)
    except (TemplateError, TypeError, ValueError, OverflowError) as error:
        model.remark(f"its Jinja: {' '.join(str(error).split())[:100]}", "`dbt compile` writes its SQL; put it here")
        sql = compiled or f"SELECT assert_true(false, {_sql_text('write the SQL of this model')})"
        own.refs += [name for name in re.findall(r"""\bref\(\s*['"](\w+)['"]\s*\)""", text) if name in names.tables]
    if own.target.is_used:
        model.remark("target", "Its name is taken as 'prod', and its schema as empty: look at what depends on it")
    if own.used_incremental:
        model.is_whole = True
        instead = "It is taken as false, as by --full-refresh: filter by `>= :interval_start AND < :interval_end`"
        model.remark("is_incremental()", instead)
    model.depends_on += [name for name in own.refs if name not in model.depends_on]
    model.sources += [table for table in own.reads if table not in model.sources]
    model.sql = re.sub(r"\n\s*\n+", "\n", sql).strip().rstrip(";").strip()
    if model.materialized == "incremental" and model.event_time and ":interval_start" not in model.sql:
        column = _sql_name(model.event_time)
        within = f"{column} >= :interval_start AND {column} < :interval_end"
        model.sql = f"SELECT * FROM (\n{model.sql}\n) WHERE {within}"  # noqa: S608 - a draft, of the project's own SQL


# -- tests ------------------------------------------------------------------------------------------------------------
def add_declared(model: Model, test: Any, column: str | None) -> None:
    if isinstance(test, str):
        add_check(model, test, column, {}, {})
    elif isinstance(test, dict) and test:
        name = str(test.get("test_name") or test.get("name") or next(iter(test)))
        arguments = next(iter(test.values())) if name in test else test
        name = name.rpartition(".")[2]  # of a package: dbt_utils.unique_combination_of_columns
        arguments = arguments if isinstance(arguments, dict) else {}
        config = {**arguments, **(arguments.get("config") or {})}
        add_check(model, name, column, {**arguments, **(arguments.get("arguments") or {})}, config)


def add_check(
    model: Model, name: str, column: str | None, arguments: Mapping[str, Any], config: Mapping[str, Any]
) -> None:
    what = f"the test {name}{f' of {column}' if column else ''}"
    limits = [one for one in ("where", "error_if", "warn_if") if config.get(one) not in (None, "!= 0")]
    if model.materialized == "view":
        model.remark(what, "Checks are of rows that a task writes, and this is a view: into= and checks=")
    elif name == "relationships" and not limits:
        to = f"{arguments.get('to', 'a table')}.{arguments.get('field', 'id')}"
        model.remark(what, f"A check is of single rows: add a task after it that looks for rows without one in {to}")
    elif limits or (condition := _condition(name, column, arguments)) is None:
        what += f" with {' and '.join(limits)}" if limits else ""
        model.remark(what, 'A condition of single rows: checks=["..."]; else a task after it')
    else:
        is_warning = str(config.get("severity")).lower() == "warn"
        text = quoted(condition)
        model.checks.append(call("Check", [text, 'on_failure="warn"']) if is_warning else text)


def _condition(name: str, column: str | None, arguments: Mapping[str, Any]) -> str | None:
    """What a test of dbt says, as a condition of `checks=`; None for what these don't say."""
    key = _sql_name(column) if column else ""
    values, columns = arguments.get("values"), arguments.get("combination_of_columns")
    if name == "not_null" and column:
        return f"no nulls in {key}"
    if name == "unique" and column:
        return f"unique({key})"
    if name == "accepted_values" and column and isinstance(values, list):
        quote = arguments.get("quote", True)
        texts = (_sql_text(str(one)) if quote and not isinstance(one, int | float) else str(one) for one in values)
        return f"{key} IS NULL OR {key} IN ({', '.join(texts)})"
    if name == "unique_combination_of_columns" and isinstance(columns, list):
        return f"unique({', '.join(_sql_name(str(one)) for one in columns)})"
    return None


def identifier_of(name: str) -> str:
    return identifier(name, "m", "dbt")


def dotted(schema: Any, name: Any) -> str:
    return f"{schema}.{name}" if schema else str(name)


def _sql_name(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else "`" + name.replace("`", "``") + "`"


def quoted_table(name: str) -> str:
    return ".".join(_sql_name(part) for part in name.split("."))


def _sql_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
