"""SQL text of tasks: its statements, and names and values quoted so that nothing from outside becomes code."""

from __future__ import annotations

import re

from backfill_manager.store.sql_guard import split_statements


def statements(text: str) -> list[str]:
    """The statements of a text. One that begins with BEGIN is a script (SQL scripting) and is not split."""
    found = split_statements(text, "spark")
    return [text.strip()] if found and found[0][0] == "BEGIN" else [statement for _, statement in found]


def identifier(name: str) -> str:
    """A name, quoted."""
    return "`" + name.replace("`", "``") + "`"


def string_literal(value: str) -> str:
    """A string, quoted: all but letters, digits and a few other characters become escapes, quotes and backslashes too."""

    def escaped(match: re.Match[str]) -> str:
        code = ord(match[0])
        return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"

    return "'" + re.sub(r"[^A-Za-z0-9 _\-.:/]", escaped, value) + "'"
