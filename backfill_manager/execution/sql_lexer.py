"""SQL text of tasks: its statements, and names and values quoted so that nothing from outside becomes code."""

from __future__ import annotations

from backfill_manager.store.sql_guard import identifier, split_statements, string_literal

__all__ = ["identifier", "statements", "string_literal"]


def statements(text: str) -> list[str]:
    """The statements of a text. One that begins with BEGIN is a script (SQL scripting) and is not split."""
    found = split_statements(text, "spark")
    return [text.strip()] if found and found[0][0] == "BEGIN" else [statement for _, statement in found]
