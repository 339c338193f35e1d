"""`bfm runs`: dag runs, whatever made them."""

from __future__ import annotations

from typing import Annotated

import typer

from backfill_manager.cli.call import Call, command, group
from backfill_manager.cli.output import Column, first_line, seconds
from backfill_manager.model.states import RUN_STATES

app = group("runs", "DAG runs, whatever made them.")
TASK_COLUMNS = (
    "task_id", "state", Column("try_number", "try", right=True), Column("pool", optional=True),
    Column("started_at", "started"),
    Column("duration_s", "took", seconds, right=True), Column("error", None, first_line, fold=True),
)  # fmt: skip
RUN_COLUMNS = (
    "run_id", "dag_id", Column("run_type", "type", optional=True), "state", Column("started_at", "started"),
    Column("duration_s", "took", seconds, right=True), Column("backfill_id", "backfill", optional=True),
    Column("dag_version", "version", right=True, optional=True), Column("reason", None, first_line, fold=True),
)  # fmt: skip


@command(app, "list")
def list_(
    call: Call,
    dag: Annotated[str | None, typer.Option("--dag", metavar="DAG", help="Only of this DAG.")] = None,
    backfill: Annotated[
        str | None,
        typer.Option("--backfill", metavar="ID", help="Only of this backfill (a beginning of its id will do)."),
    ] = None,
    state: Annotated[
        list[str] | None, typer.Option("--state", "-S", metavar="S", help="Only in this state; may be repeated.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="How many. \\[default: 50, all for JSON]")] = None,
) -> None:
    """List runs, newest first. Times are UTC.

    Example: [cyan]bfm runs list --backfill latest --state failed[/]
    """
    from backfill_manager.cli.backfill import elsewhere
    from backfill_manager.views import backfills, dags, runs

    chosen = backfills.check_states("run", state or (), RUN_STATES, elsewhere("runs list", state))
    dag_id = dags.current_dag(call.store, dag)[0].dag_id if dag else None
    backfill_id = backfills.find_backfill(call.store, backfill)["backfill_id"] if backfill else None
    limit = limit or (50 if call.out.is_table else None)
    found = runs.list_runs(call.store, dag_id=dag_id, backfill_id=backfill_id, in_states=chosen, limit=limit)
    call.out.rows(found, RUN_COLUMNS, empty="No runs.")
    if call.out.is_table and len(found) == limit:
        call.out.remark(f"The newest {limit}; --limit shows more.")


@command(app, "show")
def show(
    call: Call,
    run: Annotated[str, typer.Argument(metavar="RUN", help="Its id, a beginning of it, or `latest`.")],
    dag: Annotated[
        str | None, typer.Option("--dag", metavar="DAG", help="Of this DAG; then a logical date will do, too.")
    ] = None,
) -> None:
    """Show one run: its interval, its place in the timeline, its tasks and their tries.

    Example: [cyan]bfm runs show 2013-01-05 --dag flights[/]
    """
    from backfill_manager.views import runs, tasks

    row = runs.find_run(call.store, run, dag_id=dag)
    found = runs.run_view(row)
    instances = tasks.list_task_instances(call.store, row)
    if not call.out.is_table:
        call.out.document({**found, "tasks": instances, "tries": tasks.list_tries(call.store, row)})
        return
    call.out.thing(found)
    call.out.line("")
    call.out.rows(instances, TASK_COLUMNS, empty="It has no tasks yet.")
