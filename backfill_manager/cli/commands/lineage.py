"""`bfm lineage`: what a DAG or a table is made of, and what is made of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from backfill_manager.cli.backend.base import Document
from backfill_manager.cli.command import Command
from backfill_manager.cli.context import CliContext
from backfill_manager.cli.options import argument
from backfill_manager.errors import NotFound


def lineage(
    context: CliContext,
    name: str = argument("DAG|TABLE", "Id of a DAG, or name or path of a table, see `bfm tables list`."),
) -> None:
    """Show what a DAG or a table is made from (upstream), and what is made from it (downstream). Over all DAGs: the tables,
    and the tasks that read and write them, as their tries have recorded it.

    Example: [cyan]bfm lineage silver.flights[/]
    """
    try:
        found = context.backend.lineage(table=name)
    except NotFound as no_table:
        if name not in {dag["dag_id"] for dag in context.backend.dags(active=None)}:
            raise no_table
        found = context.backend.lineage(dag_id=name)
    if not context.out.is_table:
        context.out.print_document(found)
        return
    if not found["edges"]:
        context.out.note(f"No task of {name} has read or written a table yet.")
    for side in ("upstream", "downstream"):
        context.out.print_line(f"{side}:")
        for line in tree_lines(found["edges"], found["of"], side):
            context.out.print_line(f"  {line}")


command = Command("lineage", lineage)


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
