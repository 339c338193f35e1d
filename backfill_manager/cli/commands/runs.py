"""`bfm runs`: dag runs, whatever made them."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from backfill_manager.cli.backend.base import Document
from backfill_manager.cli.context import CliContext, command, group
from backfill_manager.cli.render.output import Column, first_line, in_short, seconds
from backfill_manager.model.states import RUN_STATES

app = group("runs", "DAG runs, whatever made them.")
RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="Its id, a beginning of it, or `latest`; DAG/RUN names its DAG as well.")
]
DagOption = Annotated[
    str | None, typer.Option("--dag", metavar="DAG", help="Of this DAG; then a logical date will do, too.")
]
TASK_COLUMNS = (
    "task_id", "state", Column("try_number", "try", right=True), Column("pool", optional=True),
    Column("started_at", "started"),
    Column("duration_s", "took", seconds, right=True), Column("spark_jobs", "spark jobs", in_short, optional=True),
    Column("error", None, first_line, fold=True),
)  # fmt: skip
_TASKS = Column("is_partial", "tasks", lambda is_partial: "partial" if is_partial else "all", optional=True)
RUN_COLUMNS = (
    "run_id", "dag_id", Column("run_type", "type", optional=True), "state", _TASKS, Column("started_at", "started"),
    Column("duration_s", "took", seconds, right=True), Column("backfill_id", "backfill", optional=True),
    Column("dag_version", "version", right=True, optional=True), Column("reason", None, first_line, fold=True),
)  # fmt: skip


@command(app, "list")
def list_(
    call: CliContext,
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
    from backfill_manager.cli.commands.backfill import elsewhere
    from backfill_manager.queries.backfills import check_states

    chosen = check_states("run", state or (), RUN_STATES, elsewhere("runs list", state))
    limit = limit or (50 if call.out.is_table else None)
    found = call.source.runs(dag_id=dag or None, backfill=backfill or None, in_states=chosen, limit=limit)
    some_are_partial = any(run["is_partial"] for run in found)
    columns = [one for one in RUN_COLUMNS if one is not _TASKS or some_are_partial]
    call.out.rows(found, columns, empty="No runs.")
    if call.out.is_table and len(found) == limit:
        call.out.remark(f"The newest {limit}; --limit shows more.")


@command(app, "show")
def show(
    call: CliContext,
    run: RunArgument,
    dag: DagOption = None,
) -> None:
    """Show one run: its interval, its place in the timeline, its tasks and their tries.

    Example: [cyan]bfm runs show 2013-01-05 --dag flights[/]
    """
    found = call.source.run(run, dag)
    told = call.source.tasks_of(found)
    tasks = with_spark_jobs(told)
    if not call.out.is_table:
        call.out.document({**found, **told, "tasks": tasks})
        return
    call.out.thing(found)
    call.out.line("")
    call.out.rows(tasks, TASK_COLUMNS, empty="It has no tasks yet.")


def with_spark_jobs(told: Document) -> list[Document]:
    """The tasks of a run, each with the `spark_jobs` of its last try that has ended."""
    of_last = {one["task_id"]: one["spark_jobs"] for one in told["tries"]}  # by task, then in their order
    return [{**task, "spark_jobs": of_last.get(task["task_id"], [])} for task in told["tasks"]]


@command(app, "timeline")
def timeline(
    call: CliContext,
    dag: Annotated[str, typer.Argument(metavar="DAG", help="The DAG's id.")],
    n: Annotated[
        int | None, typer.Option("-n", min=1, metavar="N", help="How many, the newest. \\[default: 50, all for JSON]")
    ] = None,
) -> None:
    """Draw a DAG's timeline: its runs in the order of logical dates, each with an arrow to the one it comes after, and
    beneath it those that it overrode. Times are UTC.

    Example: [cyan]bfm runs timeline flights -n 10[/]
    """
    from backfill_manager.cli.render.timeline import timeline_rows

    limit = n or (50 if call.out.is_table else None)
    found = call.source.timeline(dag, limit)
    if not call.out.is_table:
        call.out.document(found)
        return
    columns = (
        Column("drawn", ""), "logical_date", "state", Column("run_type", "type"), Column("interval_end", "until"),
        Column("dag_version", "version", right=True), Column("run_id", optional=True), Column("note", "", fold=True),
    )  # fmt: skip
    call.out.rows(list(timeline_rows(found)), columns, empty=f"{dag} has no run with a logical date yet.")
    if len(found) == limit:
        call.out.remark(f"The newest {limit}; -n shows more.")


@command(app, "cancel")
def cancel(call: CliContext, run: RunArgument, dag: DagOption = None) -> None:
    """Cancel a run: what runs of it is stopped (its Spark jobs are cancelled), what has not begun never will.

    Example: [cyan]bfm runs cancel 2013-01-05 --dag flights[/]
    """
    from backfill_manager.cli.render.response import print_response, what_of

    found = call.source.run(run, dag)
    request = call.source.cancel_run(found)
    print_response(call, request, f"Cancel run {found['run_id']}", **what_of(request))


@command(app, "mark")
def mark(
    call: CliContext,
    run: RunArgument,
    state: Annotated[Literal["success", "failed"], typer.Argument(metavar="success|failed", help="What it shall be.")],
    dag: DagOption = None,
) -> None:
    """Set a run to success or failed, whatever became of it; what runs of it is stopped.

    Example: [cyan]bfm runs mark 2013-01-05 success --dag flights[/]
    """
    from backfill_manager.cli.render.response import print_response, what_of

    found = call.source.run(run, dag)
    request = call.source.mark_run(found, state)
    print_response(call, request, f"Mark run {found['run_id']} {state}", **what_of(request))
