"""What a DAG or a table is made of, and what is made of it, as lines of a tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from backfill_manager.cli.backend.base import Document


def tree_lines(edges: Sequence[Document], start: str, side: Literal["upstream", "downstream"]) -> Iterator[str]:
    """Tables and tasks by turns, indented; what was shown before is not shown again with all that is behind it."""
    into, out_of = ("write", "read") if side == "upstream" else ("read", "write")
    seen: set[str] = set()

    def line(node: str, kind: str, depth: int) -> Iterator[str]:
        yield f"{'  ' * depth}{node}" + (" (see above)" if node in seen else "")
        if node not in seen:
            seen.add(node)
            yield from below(node, kind, depth + 1)

    def below(node: str, kind: str, depth: int) -> Iterator[str]:
        access, other = (into, "task") if kind == "table" else (out_of, "table")
        for found in sorted({edge[other] for edge in edges if edge[kind] == node and edge["access"] == access}):
            yield from line(found, other, depth)

    own = sorted({edge["task"] for edge in edges if edge["direction"] == "own"})
    if not own:
        yield from line(start, "table", 0)
    for task in own:
        yield from line(task, "task", 0)
