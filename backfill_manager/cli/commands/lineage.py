"""`bfm lineage`: what a DAG or a table is made of, and what is made of it."""

from __future__ import annotations

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
    from backfill_manager.cli.render.lineage import tree_lines

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
