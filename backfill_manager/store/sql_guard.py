"""SQL as text: its statements, whether it is one query and nothing else, as far as can be decided without an engine, and names
and values quoted so that nothing from outside becomes code.

`single_query` is the first of two checks: each engine then parses the text itself, as a query only, before it runs it.
"""

from __future__ import annotations

import re
from contextlib import suppress

from backfill_manager.errors import InvalidInput


def split_statements(sql: str, dialect: str) -> list[tuple[str, str]]:
    """(first word, text) of each statement, split at `;` outside of quotes and comments; empty ones are dropped. What can't be
    tokenized is one statement: the engine reports what is wrong with it."""
    from sqlglot import TokenType, tokenize
    from sqlglot.errors import TokenError

    try:
        tokens = tokenize(sql, read=dialect)
    except TokenError:
        return [(sql.split(maxsplit=1)[0].upper(), sql.strip())]
    found: list[tuple[str, str]] = []
    start, word = 0, ""
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
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


def with_view(query: str, name: str, definition: str) -> str:
    """The query with a WITH in front, so that this name stands for the definition, whatever table has it too."""
    from sqlglot import TokenType, tokenize
    from sqlglot.errors import TokenError

    at, view = 0, f"{name} AS ({definition})"
    with suppress(TokenError):  # the engine reports it
        first, *rest = tokenize(query, read="postgres")
        if first.token_type == TokenType.WITH:
            at = (rest[0] if rest and rest[0].token_type == TokenType.RECURSIVE else first).end + 1
    return f"{query[:at]} {view}, {query[at:]}" if at else f"WITH {view} {query}"


def tables_named(sql: str, known: list[str]) -> list[str]:
    """Those of the known tables whose name occurs in the text; the only ones an engine needs to look at."""
    words = {word.lower() for word in re.findall(r"\w+", sql)}
    return [name for name in known if name in words]


def identifier(name: str) -> str:
    """A name, quoted."""
    return "`" + name.replace("`", "``") + "`"


def string_literal(value: str) -> str:
    """A string, quoted: all but letters, digits and a few other characters become escapes, quotes and backslashes too."""

    def escaped(match: re.Match[str]) -> str:
        code = ord(match[0])
        return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"

    return "'" + re.sub(r"[^A-Za-z0-9 _\-.:/]", escaped, value) + "'"
