"""SQL as text: its statements, whether it is one query and nothing else, as far as can be decided without an engine, and names
and values quoted so that nothing from outside becomes code.

`single_query` is the first of two checks: each engine then parses the text itself, as a query only, before it runs it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from backfill_manager.errors import InvalidInput

if TYPE_CHECKING:
    from sqlglot import Token, exp

_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPEN: Final = "a quotation mark or a comment does not end"


def _tokens(sql: str, dialect: str = "spark") -> list[Token] | None:
    """None where a quotation mark or a comment does not end. Most commands do without sqlglot, which takes 70 ms to import."""
    from sqlglot import tokenize
    from sqlglot.errors import TokenError

    try:
        return tokenize(sql, read=dialect)
    except TokenError:
        return None


def split_statements(sql: str, dialect: str) -> list[tuple[str, str]]:
    """(first word, text) of each statement, split at `;` outside of quotes and comments; empty ones are dropped. What can't be
    tokenized is one statement: the engine reports what is wrong with it."""
    if (tokens := _tokens(sql, dialect)) is None:
        return [(sql.split(maxsplit=1)[0].upper(), sql.strip())]
    found: list[tuple[str, str]] = []
    start, word = 0, ""
    for token in tokens:
        if token.token_type.name == "SEMICOLON":
            if word:
                found.append((word, sql[start : token.start].strip()))
            start, word = token.end + 1, ""
        elif not word and token.text != "(":
            word = token.text.upper()
    return [*found, (word, sql[start:].strip())] if word else found


def spark_statements(sql: str) -> list[str]:
    """The statements of a task's text. One that begins with BEGIN is a script (SQL scripting) and is not split."""
    found = split_statements(sql, "spark")
    return [sql.strip()] if found and found[0][0] == "BEGIN" else [statement for _, statement in found]


def single_query(sql: str) -> str:
    """The query without a closing semicolon; `InvalidInput` for more than one statement or one that is no query."""
    found = split_statements(sql, "postgres")
    if len(found) > 1:
        raise InvalidInput("Only one statement at a time: there is something after the semicolon.")
    if not found or found[0][0] not in ("SELECT", "WITH"):
        shown = " ".join(sql.split())[:60]
        raise InvalidInput(f"Only a query can be run here, one that begins with SELECT or WITH; this is {shown!r}.")
    return found[0][1]


_NAMED: Final = re.compile(r"(?<!:):([^\W\d]\w*)")
# What stands before a colon that takes something out of a value (`event:user`); before a parameter there is none of these.
_ENDS_VALUE: Final = ("VAR", "IDENTIFIER", "R_PAREN", "R_BRACKET", "STRING")


def named_parameters(sql: str, known: Collection[str] = ()) -> dict[str, int]:
    """The parameters `:name` of Spark SQL that are not known, each with its first line; not what looks so within quotation marks
    and comments, or behind a value, a label or a field of a struct. What can't be tokenized has none."""
    found: dict[str, int] = {}
    if set(_NAMED.findall(sql)) <= set(known) or (tokens := _tokens(sql)) is None:
        return found
    for before, colon, name in zip([None, *tokens], tokens, tokens[1:], strict=False):
        if colon.token_type.name != "COLON" or name.start != colon.end + 1 or not name.text.isidentifier():
            continue
        is_label = before is not None and before.end + 1 == colon.start and before.text.isidentifier()
        is_path = before is not None and before.token_type.name in _ENDS_VALUE
        if name.text not in known and not is_label and not is_path:
            found.setdefault(name.text, name.line)
    return found


_NOTHING: Final = re.compile(r"(?:--[^\n]*|/\*.*?\*/|[;\s])*", re.DOTALL)
_CHANGES: Final = ("INSERT", "MERGE", "UPDATE", "DELETE", "CREATE", "DROP", "ALTER", "TRUNCATE")


def problem_of_statements(sql: str, *, has_output: bool) -> str | None:
    """What is certainly wrong with the text of a SQL task. `has_output`: the rows of its last statement go into a table. Most
    texts are not tokenized for it, which takes time."""
    if _NOTHING.fullmatch(sql):
        return "it has no statement"
    may_be_open = any(sql.count(mark) % 2 for mark in "'\"`") or sql.count("/*") != sql.count("*/")
    may_change = has_output and any(word in sql.upper() for word in _CHANGES)
    if not may_be_open and not may_change:
        return None
    if _tokens(sql) is None:
        return _OPEN
    found = split_statements(sql, "spark")
    if has_output and found[0][0] != "BEGIN" and (last := found[-1][0]) in _CHANGES:
        return f"its last statement begins with {last}, and with into=... it is a query, whose rows go into the table"
    return None


_OF_MANY_ROWS: Final = ("approx_count_distinct", "avg", "count", "count_if", "max", "mean", "min", "sum")
# A condition of these alone is one that sqlglot reads as Spark does. It does not know all that Spark takes: names that are words
# of SQL elsewhere, `event:user`.
_PLAIN: Final = frozenset((
    "VAR", "IDENTIFIER", "STRING", "NUMBER", "L_PAREN", "R_PAREN", "L_BRACKET", "R_BRACKET", "COMMA", "DOT", "STAR", "PLUS",
    "DASH", "SLASH", "MOD", "AMP", "PIPE", "CARET", "TILDE", "NOT", "DPIPE", "DAMP", "EQ", "NEQ", "NULLSAFE_EQ", "LT", "LTE",
    "GT", "GTE", "FARROW", "AND", "OR", "IN", "IS", "NULL", "TRUE", "FALSE", "BETWEEN",
))  # fmt: skip
_NOT_READ: Final = re.compile(r">>>|\bx\s+'", re.IGNORECASE)  # nor this: a shift, a binary literal


def problem_of_condition(sql: str) -> str | None:
    """What is wrong with a condition of single rows, as far as it can be known without Spark: of functions, columns and types
    only Spark knows."""
    from sqlglot import ErrorLevel, parse
    from sqlglot.errors import ParseError

    if (tokens := _tokens(sql)) is None:
        return _OPEN
    kinds = [token.token_type.name for token in tokens]
    if "SEMICOLON" in kinds:
        return "it is one condition, and has no semicolon"
    if kinds[:1] in (["SELECT"], ["WITH"]) and kinds[1:2] not in ([], ["EQ"], ["DOT"]):
        return "it is a condition that each row has to meet, such as `delay > 0`, and no query"
    values = [*(["?"] if "PLACEHOLDER" in kinds else []), *(f":{name}" for name in named_parameters(sql))]
    if values or "L_BRACE" in kinds:
        return f"it has no parameters or macros, such as {values[0] if values else '{{ ... }}'}"
    for token, after in pairwise(tokens) if "SELECT" not in kinds else ():
        if token.text.lower() in _OF_MANY_ROWS and after.token_type.name == "L_PAREN":
            return f"each row has to meet it by itself, and {token.text}(...) is of many rows"
    try:
        parse(f"SELECT * FROM t WHERE {sql}", read="spark", error_level=ErrorLevel.RAISE)  # noqa: S608 - it is not run
    except ParseError as error:
        if _PLAIN.issuperset(kinds) and not _NOT_READ.search(sql):
            near = error.errors[0].get("highlight") or ""
            return f"it is no condition in Spark SQL: it can't be read at {near!r}"
    return None


def with_view(query: str, name: str, definition: str) -> str:
    """The query with a WITH in front, so that this name stands for the definition, whatever table has it too."""
    at, view = 0, f"{name} AS ({definition})"
    begin = (_tokens(query, "postgres") or [])[:2]  # the engine reports what can't be tokenized
    kinds = [token.token_type.name for token in begin]
    if kinds[:1] == ["WITH"]:
        at = begin[1 if kinds[1:] == ["RECURSIVE"] else 0].end + 1
    return f"{query[:at]} {view}, {query[at:]}" if at else f"WITH {view} {query}"


def tables_named(sql: str, known: list[str]) -> list[str]:
    """Those of the known tables whose name occurs in the text; the only ones an engine needs to look at."""
    words = {word.lower() for word in re.findall(r"\w+", sql)}
    return [name for name in known if name in words]


@lru_cache(maxsize=1000)
def tables_read(sql: str) -> frozenset[str]:
    """The tables, in casefolded names, that statements of a SQL task read: FROM, JOIN or MERGE ... USING names them, and no WITH
    or temporary view before has made them. A statement that sqlglot can't parse reads none. Parsing takes milliseconds."""
    from sqlglot import exp, parse_one
    from sqlglot.errors import SqlglotError

    logging.getLogger("sqlglot").setLevel(logging.ERROR)  # it warns of each statement that it has no grammar for
    found, views = set[str](), set[str]()
    for statement in spark_statements(sql):
        try:
            tree = parse_one(statement, read="spark")
        except (SqlglotError, RecursionError):
            continue
        read = (table for table in tree.find_all(exp.Table) if _is_read(table) and not _is_of_with(table))
        found |= {_name_of(table) for table in read} - views
        if isinstance(tree, exp.Create) and tree.find(exp.TemporaryProperty):
            made = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this  # with a list of its columns
            views |= {_name_of(made)} if isinstance(made, exp.Table) else set()  # else a function
    return frozenset(found)


def _is_read(table: exp.Table) -> bool:
    """And no target of a statement."""
    from sqlglot import exp

    return isinstance(table.parent, (exp.From, exp.Join, exp.Subquery)) or table.arg_key == "using"


def _name_of(table: exp.Table) -> str:
    parts = [part.name for part in table.parts]
    return (parts[-1] if "/" in parts[-1] else ".".join(parts)).casefold()  # of delta.`/a/path` the path


def _is_of_with(table: exp.Table) -> bool:
    """Whether it is the name of a query in a WITH that is in force there: not within that query, nor within those before it."""
    from sqlglot import exp

    if table.db:
        return False
    inner: exp.Expr = table
    while (outer := inner.parent) is not None:
        if isinstance(outer, exp.With):
            queries = outer.expressions if outer.recursive else outer.expressions[: outer.expressions.index(inner)]
        else:
            clause = next((part for part in outer.args.values() if isinstance(part, exp.With)), inner)
            queries = [] if clause is inner else clause.expressions
        if any(query.alias.casefold() == table.name.casefold() for query in queries):
            return True
        inner = outer
    return False


def identifier(name: str) -> str:
    """A name, quoted."""
    return "`" + name.replace("`", "``") + "`"


def identifier_if_needed(name: str) -> str:
    """Quoted where it does not stand as it is."""
    return name if _PLAIN_NAME.fullmatch(name) else identifier(name)


def string_literal(value: str) -> str:
    """A string, quoted: all but letters, digits and a few other characters become escapes, quotes and backslashes too."""

    def escaped(match: re.Match[str]) -> str:
        code = ord(match[0])
        return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"

    return "'" + re.sub(r"[^A-Za-z0-9 _\-.:/]", escaped, value) + "'"
