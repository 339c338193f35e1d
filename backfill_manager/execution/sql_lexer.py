"""Text and SQL: statements out of a text, and names and values into one, so that nothing from outside is ever code."""

from __future__ import annotations

import re
from typing import Final

_TOKEN: Final = re.compile(
    r"""
      (?P<comment>--[^\n]*)
    | (?P<block>/\*)
    | (?P<quoted>\b[rR]'[^']*' | \b[rR]"[^"]*" | '(?:\\.|[^'\\])*' | "(?:\\.|[^"\\])*" | `(?:``|[^`])*`)
    | (?P<end>;)
    | (?P<word>\w+)
    | (?P<other>\S)
    """,
    re.VERBOSE | re.DOTALL,
)
_BLOCK_EDGE: Final = re.compile(r"/\*|\*/")


def statements(text: str) -> list[str]:
    """The statements of a text, parted by `;` outside of quotes and comments; empty ones left out. A text that begins
    with BEGIN is a script (SQL scripting) and stays in one piece."""
    found: list[str] = []
    start = position = 0
    meant = False  # anything but space and comments since `start`
    while match := _TOKEN.search(text, position):
        position = match.end()
        if match.lastgroup == "block":
            position = _after_block(text, position)
        elif match.lastgroup == "end":
            if meant:
                found.append(text[start : match.start()].strip())
            start, meant = position, False
        elif match.lastgroup != "comment":
            if not found and not meant and match.group().upper() == "BEGIN":
                return [text.strip()]
            meant = True
    if meant:
        found.append(text[start:].strip())
    return found


def _after_block(text: str, position: int) -> int:
    """Where the comment whose `/*` ends at `position` is over; they nest."""
    depth = 1
    while depth and (edge := _BLOCK_EDGE.search(text, position)):
        depth += 1 if edge.group() == "/*" else -1
        position = edge.end()
    return len(text) if depth else position


def identifier(name: str) -> str:
    """One name, whatever it contains."""
    return "`" + name.replace("`", "``") + "`"


def string_literal(value: str) -> str:
    """A string literal without a quote or a backslash of the value's in it: all but letters, digits and a few marks
    become escapes."""
    return "'" + "".join(c if c.isascii() and (c.isalnum() or c in " _-.:/") else _escape(c) for c in value) + "'"


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
