"""Macros in the text of SQL tasks: Jinja, whose values come out as SQL literals, beside the named parameters.

    SELECT * FROM {{ params.table | identifier }} WHERE day = {{ interval.start | date }}
    {% if params.region %} AND region = {{ params.region }} {% endif %}

The text is the author's, values are anybody's: a run sets params. So nothing that a value holds becomes SQL. What an expression
gives is kept aside, with a mark in its place; when the text is whole, each mark must be a word of SQL of its own, and its literal
is put there. Within quotation marks, or within a name, it is an error, and within a comment nothing of it is written.

The manager renders SQL, so the sandbox has no attributes that lead anywhere, no loops over anything but values, no includes,
nothing that differs from try to try. It is imported for a text that has macros only: Jinja and sqlglot take time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from datetime import date, datetime
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

from jinja2 import StrictUndefined, TemplateError, TemplateSyntaxError, Undefined, UndefinedError, meta, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.filters import FILTERS
from jinja2.lexer import Token, TokenStream
from jinja2.sandbox import ImmutableSandboxedEnvironment
from sqlglot import TokenType, tokenize
from sqlglot.errors import TokenError

from backfill_manager.clock import format_instant
from backfill_manager.errors import BackfillManagerError, nearest
from backfill_manager.store.sql_guard import identifier, string_literal

NAMES: Final = ("dag_id", "interval", "logical_date", "mapped_value", "params", "partition_key", "run_id", "task_id")
MAX_CHARS: Final = 1_000_000  # of a text with its values
_MARK: Final = "__bfm_value_"
_MARKS: Final = re.compile(rf"{_MARK}(\d+)__")
_FILTERS: Final = (
    "abs", "batch", "capitalize", "count", "d", "default", "dictsort", "first", "float", "int", "items", "join", "last", "length",
    "list", "lower", "map", "max", "min", "reject", "rejectattr", "replace", "reverse", "round", "select", "selectattr", "slice",
    "sort", "string", "sum", "title", "trim", "unique", "upper",
)  # fmt: skip
_PADDING: Final = ("center", "expandtabs", "format", "format_map", "ljust", "rjust", "zfill")  # to any length
_NOT_HERE: Final[dict[type[nodes.Node], str]] = {
    nodes.Macro: "{% macro %}", nodes.CallBlock: "{% call %}", nodes.FilterBlock: "{% filter %}",
    nodes.AssignBlock: "{% set %} ... {% endset %}", nodes.Include: "{% include %}", nodes.Import: "{% import %}",
    nodes.FromImport: "{% from %}", nodes.Extends: "{% extends %}", nodes.Block: "{% block %}",
}  # fmt: skip
_OF_AIRFLOW: Final = {
    "ds": "{{ logical_date | date }}", "ds_nodash": "{{ logical_date | date('%Y%m%d') }}",
    "ts": "{{ logical_date }}", "execution_date": "{{ logical_date }}",
    "data_interval_start": "{{ interval.start }}", "data_interval_end": "{{ interval.end }}",
    "interval_start": "{{ interval.start }}", "interval_end": "{{ interval.end }}",
}  # fmt: skip


class MacroError(BackfillManagerError):
    """What is wrong with the macros of a text; `line` of it, if it is known."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


class MacroInterval(NamedTuple):
    start: datetime
    end: datetime


class _Sql(NamedTuple):
    """SQL that a filter has written."""

    text: str


def check_macros(text: str, params: Collection[str] | None = None) -> str:
    """The text with a word of SQL for each value, and all that any run may have of it. `MacroError` for what can be known of a
    text before it has values. `params`: the names of the DAG's."""
    environment = _Environment("UTC")
    try:
        tree = environment.parse(text)
        environment.compile(tree)
    except TemplateSyntaxError as error:
        raise MacroError(error.message or "it can't be read", error.lineno) from None
    if _MARK in text:
        raise MacroError(f"{_MARK} is a name of ours; choose another")
    for kind, written in _NOT_HERE.items():
        if (found := tree.find(kind)) is not None:
            raise MacroError(f"{written} is not among the macros of SQL tasks", found.lineno)
    unknown = meta.find_undeclared_variables(tree) - set(NAMES)
    for name in tree.find_all(nodes.Name):
        if name.name in unknown:
            written = (
                f"; write {_OF_AIRFLOW[name.name]}" if name.name in _OF_AIRFLOW else nearest(name.name, NAMES, n=1)
            )
            raise MacroError(
                f"there is no {name.name!r} here{written or '; there are ' + ', '.join(NAMES)}", name.lineno
            )
    for attribute in tree.find_all(nodes.Getattr):
        is_param = isinstance(attribute.node, nodes.Name) and attribute.node.name == "params"
        if is_param and params is not None and attribute.attr not in {*params, *dir(dict)}:
            hint = nearest(attribute.attr, params, n=1) or "; a run may set those only that its DAG has"
            raise MacroError(f"the DAG has no param {attribute.attr!r}{hint}", attribute.lineno)
    lines: list[int] = []
    parts: list[str] = []
    for line, kind_of_token, value in environment.lex(text):
        if kind_of_token == "data":
            parts.append(value)
        elif kind_of_token in ("block_begin", "comment_begin"):
            parts.append(" ")
        elif kind_of_token == "variable_begin":
            parts.append(f"{_MARK}{len(lines)}__")
            lines.append(line)
        else:
            parts.append("\n" * value.count("\n"))
    with_marks = "".join(parts)
    _check_places(with_marks, lines)
    return with_marks


def render_macros(text: str, values: Mapping[str, Any], timezone: str) -> str:
    """The text with the values of a run, those of `NAMES` that it has; dates are days of this zone. `MacroError` if it has none
    for what the text uses."""
    environment = _Environment(timezone)
    try:
        with_marks = "".join(_bounded(environment.from_string(text).generate(values)))
    except (TemplateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        is_name = isinstance(error, UndefinedError) and str(error).endswith("is undefined")
        has = f"; this run has {', '.join(sorted(values))}" if is_name else ""
        raise MacroError(f"{error}{has}", getattr(error, "lineno", None)) from None
    in_code = _check_places(with_marks)
    return _MARKS.sub(lambda mark: environment.written[int(mark[1])] if int(mark[1]) in in_code else "?", with_marks)


def sql_literal(value: Any) -> str:
    """A value as Spark SQL writes it, so that nothing in it can be anything else. `MacroError` for what is no value of SQL."""
    if isinstance(value, Undefined):
        str(value)  # says what is not there, unless it is no name
        raise MacroError("an `if` without `else` has no value where it is false; write {% if ... %} ... {% endif %}")
    if isinstance(value, _Sql):
        return value.text
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return string_literal(value)
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        number = f"{value!r}D" if isinstance(value, float) else str(int(value))
        return f"({number})" if value < 0 else number  # two minus signs begin a comment
    if isinstance(value, datetime) and value.tzinfo is not None:
        return f"TIMESTAMP '{format_instant(value)}'"
    if isinstance(value, date) and not isinstance(value, datetime):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, Mapping):
        return f"map({', '.join(sql_literal(part) for pair in value.items() for part in pair)})"
    if isinstance(value, list | tuple) and not isinstance(value, MacroInterval):
        return f"array({', '.join(map(sql_literal, value))})"
    what = "an interval; write {{ interval.start }} and {{ interval.end }}"
    raise MacroError(
        f"this is {what}" if isinstance(value, MacroInterval) else f"a {type(value).__name__} is no value of SQL"
    )


class _LinesOfBlocks(Extension):
    """A line that has nothing but blocks or comments of Jinja leaves no empty one. Other line ends stay: Jinja's `trim_blocks`
    takes it after each block, so that the next line would go on with a name, or be part of a comment of SQL."""

    def filter_stream(self, stream: TokenStream) -> Iterator[Token]:
        is_first, has_text = True, False  # the line, up to here
        for token in stream:
            if token.type == "variable_begin":
                has_text = True
            elif token.type == "data":
                text = token.value
                if not is_first and not has_text and text.startswith("\n"):
                    token = Token(token.lineno, "data", text[1:])
                has_text = bool(text.rpartition("\n")[2].strip()) or (has_text and "\n" not in text)
            is_first = False
            yield token


class _Environment(ImmutableSandboxedEnvironment):
    """Jinja for one text. `written` has what its expressions gave, in the order of their marks."""

    intercepted_binops = frozenset(("*", "**", "%"))

    def __init__(self, timezone: str) -> None:
        super().__init__(
            undefined=StrictUndefined,
            finalize=self._mark,
            extensions=[_LinesOfBlocks],
            lstrip_blocks=True,
            keep_trailing_newline=True,
        )
        self._zone = ZoneInfo(timezone)
        self.written: list[str] = []
        self.globals = {}
        self.filters = {name: FILTERS[name] for name in _FILTERS}
        self.filters |= {"date": self._date, "identifier": _identifier, "values": _values}

    def getattr(self, obj: Any, attribute: str) -> Any:
        """`params.items` is the param of this name, if there is one."""
        if isinstance(obj, dict) and attribute in obj:
            return obj[attribute]
        return self.unsafe_undefined(obj, attribute) if _pads(obj, attribute) else super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        return self.unsafe_undefined(obj, argument) if _pads(obj, argument) else super().getitem(obj, argument)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Texts and lists are not multiplied: the manager's memory would hold what comes of it."""
        if not isinstance(left, int | float) or not isinstance(right, int | float) or operator == "**":
            raise SecurityError(f"{operator} is for numbers, and ** for none")
        return super().call_binop(context, operator, left, right)

    def _mark(self, value: Any) -> str:
        self.written.append(sql_literal(value))
        return f"{_MARK}{len(self.written) - 1}__"

    def _date(self, value: Any, form: str | None = None) -> date | str:
        """The day of an instant in the DAG's zone, or of a text such as `2024-05-01`; with a form (of strftime) as text."""
        if isinstance(value, str):
            value = date.fromisoformat(value)
        if not isinstance(value, date):
            raise MacroError(f"date is for instants, dates and text such as '2024-05-01', not for {value!r}")
        here = value.astimezone(self._zone) if isinstance(value, datetime) else value
        if form is not None:
            return here.strftime(form)
        return here.date() if isinstance(here, datetime) else here


def _pads(obj: Any, attribute: Any) -> bool:
    return isinstance(obj, str) and attribute in _PADDING


def _identifier(value: Any) -> _Sql:
    """A name of a table or column, quoted; its parts are parted by dots."""
    parts = value.split(".") if isinstance(value, str) else []
    # Spark puts variables of its own in there.
    if not parts or not all(part.strip() for part in parts) or "${" in value:
        raise MacroError(f"identifier is for a name such as 'sales' or 'mart.sales', not for {value!r}")
    return _Sql(".".join(map(identifier, parts)))


def _values(value: Any) -> _Sql:
    """Those of a list, for `IN ({{ params.ids | values }})`; NULL, which nothing is equal to, for an empty one."""
    if not isinstance(value, list | tuple):
        raise MacroError(f"values is for a list, not for {value!r}")
    return _Sql(", ".join(map(sql_literal, value)) or "NULL")


def _bounded(chunks: Iterator[str]) -> Iterator[str]:
    length = 0
    for chunk in chunks:
        length += len(chunk)
        if length > MAX_CHARS:
            raise MacroError(f"with its values the text has more than {MAX_CHARS:,} characters")
        yield chunk


def _check_places(text: str, lines: list[int] | None = None) -> set[int]:
    """The numbers of the marks that stand in code, and not in a comment. `MacroError` for one within something else. `lines`: of
    the marks."""
    try:
        tokens = tokenize(text, read="spark")
    except TokenError:
        raise MacroError("a quotation mark or a comment does not end") from None
    in_code: set[int] = set()
    for token in tokens:
        for mark in _MARKS.finditer(token.text):
            number = int(mark[1])
            if token.token_type == TokenType.VAR and token.text == mark[0]:
                in_code.add(number)
                continue
            is_name = token.token_type == TokenType.VAR
            why = (
                "a value stands within a name or beside another; make one of them: {{ ('sales_' ~ params.x) | identifier }}"
                if is_name
                else "a value stands within quotation marks, and brings its own; write {{ ... }} without them"
            )
            raise MacroError(why, lines[number] if lines else None)
    return in_code
