"""`bfm tables`: the tables that tasks have read and written."""

from __future__ import annotations

from backfill_manager.cli.command import Group
from backfill_manager.cli.context import CliContext
from backfill_manager.cli.options import argument, option
from backfill_manager.cli.render.printer import Column, shortened

group = Group("tables", "Tables that tasks read and write: by which tasks, and which run has written which interval.")


@group.command("list")
def list_(context: CliContext) -> None:
    """List the tables that tasks have read or written. Shows which tasks, in the newest version of their DAGs that has run.

    Example: [cyan]bfm tables list[/]
    """
    columns = (
        Column("table", fold=True), Column("written_by", "written by", shortened, fold=True),
        Column("read_by", "read by", shortened, fold=True), Column("version", right=True),
        Column("written_at", "written", optional=True),
    )  # fmt: skip
    empty = "No task has read or written a table yet."
    context.out.print_rows(context.backend.tables(), columns, empty=empty)


@group.command("show")
def show(
    context: CliContext,
    table: str = argument("TABLE", "Name or path of the table, see `bfm tables list`."),
    limit: int | None = option("--limit", "Show the newest N writes.", metavar="N", min=1),
) -> None:
    """Show which run last wrote each interval or partition of a table. With the version of its DAG, Delta's version of the
    table, and rows; the newest write comes first.

    Example: [cyan]bfm tables show silver.flights --limit 10[/]
    """
    columns = (
        Column("interval_start", "interval"), Column("interval_end", "to", optional=True),
        Column("partition_key", "partition", optional=True), "dag_id", Column("task_id", "task"),
        Column("run_id", "run", fold=True), Column("reverted_run_id", "after the revert of", fold=True, optional=True),
        Column("dag_version", "DAG version", right=True, optional=True),
        Column("version", right=True), Column("rows_written", "rows", right=True),
        Column("bytes_written", "bytes", right=True, optional=True), Column("at", "written", optional=True),
    )  # fmt: skip
    limit = context.out.limit(limit)
    rows = context.backend.table_intervals(table, limit=limit)
    context.out.print_rows(rows, columns, empty=f"No task has written {table}; tasks have only read it.", limit=limit)
