"""Is this text one query, and nothing but a query? What can be told without an engine.

It is the first of two looks: each engine then parses the text itself, as a query and as nothing else, before it runs
it.
"""

from __future__ import annotations

import re
from typing import Final

from backfill_manager.errors import InvalidInput

_TOKEN: Final = re.compile(
    r"""(?P<blank>\s+|--[^\n]*|/\*.*?\*/)|(?P<quoted>'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`)|(?P<word>\w+)|(?P<mark>.)""",
    re.DOTALL,
)


def single_query(sql: str) -> str:
    """The query without a closing semicolon; `InvalidInput` for more than one statement or one that is no query."""
    words: list[str] = []
    end = None
    for token in _TOKEN.finditer(sql):
        if token.lastgroup == "blank":
            continue
        if end is not None:
            raise InvalidInput("Only one statement at a time: there is something after the semicolon.")
        if token["mark"] == ";":
            end = token.start()
        elif token["word"]:
            words.append(token["word"].upper())
        elif not words and token["mark"] != "(":
            break
    if not words or words[0] not in ("SELECT", "WITH"):
        shown = " ".join(sql.split())[:60]
        raise InvalidInput(f"Only a query can be run here, one that begins with SELECT or WITH; this is {shown!r}.")
    return sql if end is None else sql[:end]


def tables_named(sql: str, known: list[str]) -> list[str]:
    """Those of the known tables whose name occurs in the text; the only ones an engine needs to look at."""
    words = {word.lower() for word in re.findall(r"\w+", sql)}
    return [name for name in known if name in words]
