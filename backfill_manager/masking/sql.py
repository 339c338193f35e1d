"""Removes from SQL the texts that something secret meets: what `lower(token)` is compared with, on either side, in a list,
between two, in a call; and the values of an INSERT that names such a column.

A statement is taken apart into conditions and columns, at keywords, semicolons and commas that no bracket encloses. Where one of
these parts names something secret, its texts are masked. That is more than has to be (`split(token, '-')`), and needs no parser:
what is shown may be half a statement, or one within an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

_IS_SQL: Final = re.compile(r"(?i)\b(?:select|where|having|merge|insert|update|delete|filter)\b")
_TOKEN: Final = re.compile(
    r"""(?P<text>'(?:\\.|''|[^'\\\n])*'|"(?:\\.|[^"\\\n])*")|`(?P<quoted>[^`\n]*)`|(?P<word>[A-Za-z_][\w.$]*)"""
    r"|(?P<open>[(\[])|(?P<close>[)\]])|(?P<comma>,)|(?P<end>;)"
)
_BEGINS_PART: Final = frozenset(
    {
        "and", "delete", "from", "group", "having", "insert", "join", "limit", "matched", "merge", "on", "or", "order", "qualify",
        "select", "set", "union", "update", "using", "values", "where", "with",
    }
)  # fmt: skip
_RESTS: Final = {"between": "and", "distinct": "from"}


@dataclass
class _Part:
    is_secret: bool = False  # it names something secret
    texts: list[tuple[int, int]] = field(default_factory=list)  # where its texts stand
    awaits: str = ""  # the keyword that is only the rest of BETWEEN, or of IS DISTINCT
    is_of_values: bool = False


def mask_sql(sql: str, is_secret: Callable[[str], bool], mask: Callable[[str], str]) -> str:
    """The SQL, or any text with SQL in it, with `mask(text)` in place of each such text, quotation marks included."""
    if not _IS_SQL.search(sql):
        return sql
    hidden = sorted(span for part in _parts(sql, is_secret) if part.is_secret for span in part.texts)
    shown, end = [], 0
    for start, stop in hidden:
        shown += [sql[end:start], mask(sql[start:stop])]
        end = stop
    return "".join([*shown, sql[end:]])


def _parts(sql: str, is_secret: Callable[[str], bool]) -> list[_Part]:
    parts = [_Part()]
    enclosing = [parts[0]]  # by bracket; the same part as long as no other one begins within the bracket

    def begin(part: _Part) -> None:
        parts.append(part)
        enclosing[-1] = part

    for token in _TOKEN.finditer(sql):
        part, kind = enclosing[-1], token.lastgroup
        if kind == "text":
            part.texts.append(token.span())
        elif kind == "open":
            enclosing.append(part)
        elif kind == "close":
            if len(enclosing) > 1:
                enclosing.pop()
        elif kind == "end":
            enclosing = [part]
            begin(_Part())
        elif kind == "comma":
            if len(enclosing) == 1 or enclosing[-2] is not part:
                begin(_Part(is_secret=part.is_of_values and part.is_secret, is_of_values=part.is_of_values))
        elif kind == "word" and (word := token["word"].lower()) in _BEGINS_PART:
            if word == part.awaits:
                part.awaits = ""
            else:
                is_of_values = word == "values"
                begin(_Part(is_secret=is_of_values and part.is_secret, is_of_values=is_of_values))
        else:
            part.awaits = _RESTS.get((token["word"] or "").lower(), part.awaits)
            part.is_secret |= is_secret(token["word"] or token["quoted"] or "")
    return parts
