"""Jinja of Airflow (`{{ ds }}`, `{{ params.x }}`, macros) as Python over `ctx`, as Spark SQL with named parameters, as a path.

`parse` parts a template into text and values; `as_python`, `as_sql` and `as_path` write them, and name what has no equal.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final
from zoneinfo import available_timezones

from jinja2 import Environment, TemplateSyntaxError, nodes

from backfill_manager.importers.writer import quoted, unparse

_BASES: Final = {  # the instant: in Python, in SQL, in a path
    "logical": ("ctx.logical_date", ":logical_date", "interval_start"),
    "start": ("ctx.interval.start", ":interval_start", "interval_start"),
    "end": ("ctx.interval.end", ":interval_end", "interval_end"),
}
_SPARK_FORMS: Final = {
    "%Y": "yyyy", "%m": "MM", "%d": "dd", "%H": "HH", "%M": "mm", "%S": "ss", "%j": "DDD", "%y": "yy",
}  # fmt: skip
_EXPRESSION: Final = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_COMMENT: Final = re.compile(r"\{#.*?#\}", re.DOTALL)
_SQL_PARTS: Final = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^'\\]|''|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`", re.DOTALL)
_MARK: Final = re.compile("\ue000(\\d+)\ue001")
_BEFORE_TABLE: Final = re.compile(r"\b(?:from|join|into|table|update|exists|overwrite)\s*$", re.IGNORECASE)
_BEFORE_LITERAL: Final = re.compile(r"\b(?:date|timestamp)\s*$", re.IGNORECASE)
_PARAM: Final = re.compile(r"ctx\.params(?:\.get\(|\[)(\"[^\"]+\")(?:, (.*)\)$)?")
_NAME: Final = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Moment:
    """An instant of the run, `days` later, in a time `zone` (else UTC), written by `form` (strftime); without one as it is."""

    base: str
    form: str | None = None
    days: int = 0
    zone: str = ""
    text: str = field(default="", compare=False)  # the expression as it was

    @property
    def python(self) -> str:
        at = _BASES[self.base][0]
        at = at if not self.days else f"{at} + timedelta(days={self.days})"
        return at if not self.zone else f"({at}).astimezone(ZoneInfo({quoted(self.zone)}))"

    @property
    def sql(self) -> str:
        at = _BASES[self.base][1]
        moved = at if not self.days else f"({at} + INTERVAL '{self.days}' DAY)"
        if self.form is None:
            if self.zone:
                raise _NoEqual
            return moved
        moved = moved if not self.zone else f"from_utc_timestamp({moved}, '{self.zone}')"
        form = _spark_form(self.form)
        quote = '"' if "'" in form else "'"
        return f"date_format({moved}, {quote}{form}{quote})"


@dataclass(frozen=True)
class Value:
    """Any other value of the run. `sql`: its named parameter; None: SQL has none."""

    python: str
    sql: str | None = None
    text: str = field(default="", compare=False)


@dataclass(frozen=True)
class Unknown:
    """An expression without an equal, as it was."""

    text: str


Piece = str | Moment | Value | Unknown
Translated = tuple[str, list[str]]  # the text, and what of it has no equal

PLAIN: Final[dict[str, Moment | Value]] = {
    "ds": Moment("logical", "%Y-%m-%d"), "ds_nodash": Moment("logical", "%Y%m%d"),
    "ts": Moment("logical", "%Y-%m-%dT%H:%M:%S+00:00"), "ts_nodash": Moment("logical", "%Y%m%dT%H%M%S"),
    "ts_nodash_with_tz": Moment("logical", "%Y%m%dT%H%M%S+0000"),
    "logical_date": Moment("logical"), "execution_date": Moment("logical"),
    "data_interval_start": Moment("start"), "data_interval_end": Moment("end"),
    "next_execution_date": Moment("end"), "next_ds": Moment("end", "%Y-%m-%d"), "next_ds_nodash": Moment("end", "%Y%m%d"),
    "yesterday_ds": Moment("logical", "%Y-%m-%d", -1), "yesterday_ds_nodash": Moment("logical", "%Y%m%d", -1),
    "tomorrow_ds": Moment("logical", "%Y-%m-%d", 1), "tomorrow_ds_nodash": Moment("logical", "%Y%m%d", 1),
    "run_id": Value("ctx.run_id", ":run_id"), "params": Value("ctx.params"),
}  # fmt: skip
ATTRIBUTES: Final[dict[tuple[str, str], Value]] = {
    **dict.fromkeys((("dag", "dag_id"), ("ti", "dag_id"), ("task_instance", "dag_id")), Value("ctx.dag_id")),
    **dict.fromkeys((("task", "task_id"), ("ti", "task_id"), ("task_instance", "task_id")), Value("ctx.task_id")),
    **dict.fromkeys((("ti", "try_number"), ("task_instance", "try_number")), Value("ctx.try_number")),
    **dict.fromkeys((("dag_run", "run_id"), ("ti", "run_id"), ("task_instance", "run_id")), Value("ctx.run_id", ":run_id")),
    ("dag_run", "conf"): Value("ctx.params"),
    ("dag_run", "logical_date"): Value("ctx.logical_date", ":logical_date"),
    ("dag_run", "run_type"): Value("ctx.run_type"),
}  # fmt: skip
_FILTERS: Final = {name: PLAIN[name] for name in ("ds", "ds_nodash", "ts", "ts_nodash", "ts_nodash_with_tz")}
WITHIN_QUOTES: Final = " is quoted for the shell, within other quotes"  # which is no text without an equal
_METHODS: Final = {
    "to_date_string": "%Y-%m-%d",
    "isoformat": "%Y-%m-%dT%H:%M:%S+00:00",
    "to_iso8601_string": "%Y-%m-%dT%H:%M:%S+00:00",
}


class _NoEqual(Exception):
    pass


def parse(text: str) -> list[Piece]:
    if "{%" in text:
        return [Unknown(text)]
    text = _COMMENT.sub("", text)
    pieces: list[Piece] = []
    at = 0
    for found in _EXPRESSION.finditer(text):
        pieces += [text[at : found.start()]] if found.start() > at else []
        pieces.append(_value(found[0]))
        at = found.end()
    return [*pieces, *([text[at:]] if at < len(text) or not pieces else [])]


def _value(text: str) -> Piece:
    try:
        [output] = Environment(autoescape=True).parse(text).body  # only parsed, never rendered
        [node] = output.nodes  # type: ignore[attr-defined]
        return text if isinstance(node, nodes.TemplateData) else replace(_read(node), text=text)
    except (_NoEqual, TemplateSyntaxError, ValueError):
        return Unknown(text)


def _read(node: Any) -> Moment | Value:
    match node:
        case nodes.Const(value=str() | int() | float() as value):
            return Value(repr(value))
        case nodes.Name(name=name) if name in PLAIN:
            return PLAIN[name]
        case nodes.Filter(node=inner, name=name, args=[]) if inner is not None and name in _FILTERS:
            moment = _read(inner)
            form = _FILTERS[name]
            if (
                isinstance(moment, Moment)
                and isinstance(form, Moment)
                and not (moment.zone and "+00" in str(form.form))
            ):
                return replace(moment, form=form.form)
        case nodes.Add(
            left=left, right=nodes.Call(node=nodes.Getattr(node=nodes.Name(name="macros"), attr="timedelta")) as by
        ):
            return _later(_read(left), by, 1)
        case nodes.Sub(
            left=left, right=nodes.Call(node=nodes.Getattr(node=nodes.Name(name="macros"), attr="timedelta")) as by
        ):
            return _later(_read(left), by, -1)
        case nodes.Getattr(node=nodes.Name(name=owner), attr=attr) if (owner, attr) in ATTRIBUTES:
            return ATTRIBUTES[owner, attr]
        case (
            nodes.Getattr(node=inner, attr=str() as key)
            | nodes.Getitem(node=inner, arg=nodes.Const(value=str() as key))
        ):
            return _item(_read(inner), key)
        case nodes.Call():
            return _called(node)
    raise _NoEqual


def _item(owner: Moment | Value, key: str) -> Value:
    if owner == Value("ctx.params"):
        return Value(f"ctx.params[{quoted(key)}]", f":{key}" if _NAME.fullmatch(key) else None)
    if isinstance(owner, Value) and owner.python.startswith(("ctx.params[", "ctx.result(")):
        return Value(f"{owner.python}[{quoted(key)}]")
    raise _NoEqual


def _later(moment: Moment | Value, by: Any, sign: int) -> Moment:
    """By whole days, which a call gives: `timedelta(days=1)`, `.add(weeks=1)`."""
    given = [(one.key, _constant(one.value)) for one in by.kwargs] + [("days", _constant(one)) for one in by.args]
    units = {"days": 1, "weeks": 7}
    if (
        not isinstance(moment, Moment)
        or moment.form is not None
        or moment.zone  # where a day may have another length
        or any(name not in units or type(value) is not int for name, value in given)
    ):
        raise _NoEqual
    return replace(moment, days=moment.days + sign * sum(units[name] * value for name, value in given))


def _called(node: Any) -> Moment | Value:
    arguments = [_constant(one) for one in node.args]
    match node.node:
        case nodes.Getattr(node=nodes.Name(name="macros"), attr="ds_add"):
            moment, days = _read(node.args[0]), arguments[1]
            if isinstance(moment, Moment) and moment.form == "%Y-%m-%d" and isinstance(days, int):
                return replace(moment, days=moment.days + days)
        case nodes.Getattr(node=nodes.Name(name="macros"), attr="ds_format"):
            moment = _read(node.args[0])
            if isinstance(moment, Moment) and moment.form == arguments[1] and isinstance(arguments[2], str):
                return replace(moment, form=arguments[2])
        case nodes.Getattr(node=nodes.Name(name="ti" | "task_instance"), attr="xcom_pull"):
            given = {one.key: _constant(one.value) for one in node.kwargs} | dict(
                zip(("task_ids", "dag_id", "key"), arguments, strict=False)
            )
            if given.keys() - {"task_ids", "key"}:  # of another DAG, or another run
                raise _NoEqual
            key = given.get("key", "return_value")
            if isinstance(task := given.get("task_ids"), str) and isinstance(key, str):
                return Value(f"ctx.result({quoted(task)})" + (f"[{quoted(key)}]" if key != "return_value" else ""))
        case nodes.Getattr(node=inner, attr="strftime"):
            moment = _read(inner)
            if isinstance(moment, Moment) and moment.form is None and isinstance(arguments[0], str):
                return replace(moment, form=arguments[0])
        case nodes.Getattr(node=inner, attr="add" | "subtract" as method) if not node.args:
            return _later(_read(inner), node, 1 if method == "add" else -1)
        case nodes.Getattr(node=inner, attr="in_timezone" | "in_tz") if str(*arguments[:1]) in available_timezones():
            moment = _read(inner)
            if isinstance(moment, Moment) and moment.form is None:
                return replace(moment, zone=arguments[0])
        case nodes.Getattr(node=inner, attr=method) if method in _METHODS:
            moment = _read(inner)
            if isinstance(moment, Moment) and moment.form is None and not (moment.zone and "+00" in _METHODS[method]):
                return replace(moment, form=_METHODS[method])
        case nodes.Getattr(node=inner, attr="get"):
            owner = _read(inner)
            if owner == Value("ctx.params") and isinstance(arguments[0], str):
                default = f", {arguments[1]!r}" if len(arguments) > 1 else ""
                return Value(f"ctx.params.get({quoted(arguments[0])}{default})")
    raise _NoEqual


def _constant(node: Any) -> Any:
    try:
        return node.as_const()
    except nodes.Impossible:
        return None


def as_python(text: str, *, shell: bool = False) -> Translated:
    """An expression that gives the text. In a `shell` command, what a run may set is quoted."""
    pieces = parse(text)
    problems = [_problem(piece) for piece in pieces if isinstance(piece, Unknown)]
    if all(isinstance(piece, str | Unknown) for piece in pieces):
        return quoted("".join(piece if isinstance(piece, str) else piece.text for piece in pieces)), problems
    if len(pieces) == 1 and isinstance(pieces[0], Value) and not shell:
        return pieces[0].python, problems
    if shell:
        pieces, mind = _quoted_for_shell(pieces)
        problems += mind
    parts: list[ast.expr] = []
    for piece in pieces:
        if isinstance(piece, str | Unknown):
            parts.append(ast.Constant(piece if isinstance(piece, str) else piece.text))
        else:
            form = piece.form if isinstance(piece, Moment) else None
            spec = ast.JoinedStr([ast.Constant(form)]) if form else None
            python = f"({piece.python}).isoformat()" if isinstance(piece, Moment) and not form else piece.python
            parts.append(ast.FormattedValue(ast.parse(python, mode="eval").body, -1, spec))
    return f_string(parts), problems


def with_values(node: ast.JoinedStr, *, shell: bool = False) -> Translated:
    """An f-string that makes a template, as in f"echo {name} {{{{ ds }}}}"."""
    parts: list[ast.expr] = []
    problems: list[str] = []
    for part in flat(node):
        text = part.value if isinstance(part, ast.Constant) else ""
        if not isinstance(text, str) or not has_template(text):
            parts.append(part)
            continue
        written, more = as_python(text, shell=shell)
        problems += more if _EXPRESSION.sub("", text).count("{{") == 0 else ["a template that an f-string completes"]
        found = ast.parse(written, mode="eval").body
        is_text = isinstance(found, ast.Constant) and isinstance(found.value, str)
        whole = found if is_text else ast.FormattedValue(found, -1, None)
        parts += found.values if isinstance(found, ast.JoinedStr) else [whole]
    return f_string(parts), problems


def flat(node: ast.JoinedStr) -> Iterator[ast.expr]:
    """Its parts, with the texts that stand in it for constants."""
    for part in node.values:
        match part:
            case ast.FormattedValue(value=ast.Constant(value=str()) as text):
                yield text
            case ast.FormattedValue(value=ast.JoinedStr() as inner):
                yield from flat(inner)
            case _:
                yield part


def params_of(text: str) -> dict[str, str]:
    """The params that a template names: text of Python for the value where a run has none."""
    used: dict[str, str] = {}
    for piece in parse(text):
        if isinstance(piece, Value) and (found := _PARAM.match(piece.python)):
            used[ast.literal_eval(found[1])] = found[2] or "None"
    return used


def has_template(text: str) -> bool:
    return "{{" in text or "{%" in text


def f_string(parts: Sequence[ast.expr]) -> str:
    try:
        written = unparse(ast.JoinedStr(list(parts)))
        ast.parse(written)
        return written
    except (ValueError, SyntaxError):  # quotes or a backslash that an f-string of Python 3.10 can't hold
        texts = [
            quoted(str(part.value))
            if isinstance(part, ast.Constant)
            else f"format({unparse(part.value)}, {_form(part)!r})"
            for part in parts
            if isinstance(part, ast.Constant | ast.FormattedValue)
        ]
        return f'"".join([{", ".join(texts)}])'


def _form(part: ast.FormattedValue) -> str:
    match part.format_spec:
        case ast.JoinedStr(values=[ast.Constant(value=str() as form)]):
            return form
    return ""


def _quoted_for_shell(pieces: Sequence[Piece]) -> tuple[list[Piece], list[str]]:
    quoted_pieces = list(pieces)
    problems = []
    for n, piece in enumerate(quoted_pieces):
        if not isinstance(piece, Value) or not piece.python.startswith(("ctx.params", "ctx.result")):
            continue
        quoted_pieces[n] = Value(f"shlex.quote(str({piece.python}))")
        before, after = (quoted_pieces[at] if 0 <= at < len(quoted_pieces) else "" for at in (n - 1, n + 1))
        if isinstance(before, str) and isinstance(after, str):
            within = _open_quote("".join(piece if isinstance(piece, str) else "x" for piece in pieces[:n]))
            if within and before[-1:] == after[:1] == within:
                quoted_pieces[n - 1 : n + 2] = [before[:-1], quoted_pieces[n], after[1:]]
            elif within:
                problems.append(f"`{piece.python}`{WITHIN_QUOTES}")
    return quoted_pieces, problems


def _open_quote(text: str) -> str:
    """The quotation mark of the shell within which this text ends."""
    within = ""
    for found in re.finditer(r"\\.|['\"]", text, re.DOTALL):
        mark = found[0]
        if mark[0] == "\\":
            if within == "'" and mark[1] == "'":  # no escape there
                within = ""
        elif not within:
            within = mark
        elif within == mark:
            within = ""
    return within


def as_sql(text: str) -> Translated:
    """Spark SQL, with values as named parameters."""
    pieces = parse(text)
    marked = "".join(piece if isinstance(piece, str) else f"\ue000{n}\ue001" for n, piece in enumerate(pieces))
    problems: list[str] = []
    written: list[str] = []
    at = 0
    for found in _SQL_PARTS.finditer(marked):
        outside = _sql_outside(marked[at : found.start()], pieces, problems)
        inside = _sql_inside(found[0], pieces, problems)
        # `DATE '{{ ds }}'`: no literal follows any more.
        if inside[0] not in "'\"`-/" and _BEFORE_LITERAL.search(outside):
            outside, inside = outside.rstrip(), f"({inside})"
        written += [outside, inside]
        at = found.end()
    written.append(_sql_outside(marked[at:], pieces, problems))
    return "".join(written), problems


def _sql_outside(text: str, pieces: Sequence[Piece], problems: list[str]) -> str:
    def put(found: re.Match[str]) -> str:
        piece = pieces[int(found[1])]
        before, after = text[: found.start()], text[found.end() :]
        sql = _sql_of(piece)
        if sql is None or re.search(r"[\w.`]$", before) or re.match(r"[\w`]", after):
            problems.append(_problem(piece))
            return _as_it_was(piece)
        if _BEFORE_TABLE.search(before):
            return f"IDENTIFIER({sql})"
        return sql

    return _MARK.sub(put, text)


def _sql_inside(text: str, pieces: Sequence[Piece], problems: list[str]) -> str:
    """Within a literal of SQL, a quoted name or a comment."""
    if not _MARK.search(text):
        return text
    found = [pieces[int(number)] for number in _MARK.findall(text)]
    if text.startswith(("--", "/*")) or any(_sql_of(piece) is None for piece in found) or text[0] == "`":
        if text.startswith(("--", "/*")):  # braces would make it a macro
            return _MARK.sub(lambda mark: re.sub(r"[{}%]", "", _as_it_was(pieces[int(mark[1])])).strip(), text)
        problems += [_problem(piece) for piece in found]
        return _MARK.sub(lambda mark: _as_it_was(pieces[int(mark[1])]), text)
    quote, parts = text[0], []
    for n, part in enumerate(_MARK.split(text[1:-1])):
        if n % 2:
            parts.append(str(_sql_of(pieces[int(part)])))
        elif part:
            parts.append(f"{quote}{part}{quote}")
    return parts[0] if len(parts) == 1 else f"concat({', '.join(parts)})"


def _sql_of(piece: Piece) -> str | None:
    if isinstance(piece, Moment):
        try:
            return piece.sql
        except _NoEqual:
            return None
    return piece.sql if isinstance(piece, Value) else None


def _spark_form(form: str) -> str:
    written = []
    for code, literal in re.findall(r"(%.)|([^%]+)", form):
        if code and code not in _SPARK_FORMS:
            raise _NoEqual
        quoted_literal = f"'{literal}'" if re.search("[A-Za-z]", literal) else literal
        written.append(_SPARK_FORMS[code] if code else quoted_literal)
    return "".join(written)


def as_path(text: str) -> Translated:
    """A path of `file(...)`, with `{interval_start:%Y-%m-%d}`."""
    problems, parts = [], []
    for piece in parse(text):
        if isinstance(piece, str):
            parts.append(piece.replace("{", "{{").replace("}", "}}"))
        elif isinstance(piece, Moment) and not piece.days and not piece.zone and piece.form:
            parts.append(f"{{{_BASES[piece.base][2]}:{piece.form}}}")
        else:
            problems.append(_problem(piece))
    return "".join(parts), problems


def _as_it_was(piece: Piece) -> str:
    return piece if isinstance(piece, str) else piece.text


def _problem(piece: Piece) -> str:
    if isinstance(piece, Unknown) and "{%" in piece.text:
        return "a template with `{% ... %}`"
    shown = " ".join(_as_it_was(piece).split())
    return f"`{shown}` in a template"
