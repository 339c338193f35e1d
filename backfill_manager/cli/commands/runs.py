"""`bfm runs`: DAG runs of any type."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from backfill_manager.cli.backend.base import Document
from backfill_manager.cli.command import Group
from backfill_manager.cli.context import CliContext
from backfill_manager.cli.options import DEFAULT_LIMIT, Dag, DagFilter, Limit, state_filter, state_uri_hint
from backfill_manager.cli.render.output import Column, first_line, seconds, shortened
from backfill_manager.cli.render.response import payload_of, print_response
from backfill_manager.model.states import RUN_STATES
from backfill_manager.schemas.kinds import RUN_CANCEL, RUN_MARK

group = Group("runs", "DAG runs of any type: list, draw the timeline, cancel, mark.")
RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="Its id, a prefix of it, or `latest`; DAG/RUN names its DAG as well.")
]
DagOption = Annotated[
    str | None, typer.Option("--dag", metavar="DAG", help="Of this DAG; then RUN may be a logical date, too.")
]
TASK_COLUMNS = (
    "task_id", "state", Column("try_number", "try", right=True), Column("pool", optional=True),
    Column("started_at", "started"),
    Column("duration_s", "duration", seconds, right=True), Column("spark_jobs", "spark jobs", shortened, optional=True),
    Column("error", None, first_line, fold=True),
)  # fmt: skip
_TASKS = Column("is_partial", "tasks", lambda is_partial: "partial" if is_partial else "all", optional=True)
_RUN_COLUMNS = (
    "run_id", "dag_id", Column("run_type", "type", optional=True), "state", _TASKS, Column("started_at", "started"),
    Column("duration_s", "duration", seconds, right=True), Column("backfill_id", "backfill", optional=True),
    Column("dag_version", "version", right=True, optional=True), Column("reason", None, first_line, fold=True),
)  # fmt: skip


@group.command("list")
def list_(
    context: CliContext,
    dag: DagFilter = None,
    backfill: Annotated[
        str | None, typer.Option("--backfill", metavar="ID", help="Only of this backfill (its id or a prefix of it).")
    ] = None,
    state: Annotated[list[str] | None, state_filter(RUN_STATES)] = None,
    limit: Limit = None,
) -> None:
    """List runs, newest first. Times are UTC.

    Example: [cyan]bfm runs list --backfill latest --state failed[/]
    """
    from backfill_manager.queries.backfills import check_states

    states = check_states("run", state or (), RUN_STATES, state_uri_hint("runs list", state))
    limit = limit or (DEFAULT_LIMIT if context.out.is_table else None)
    rows = context.backend.runs(dag_id=dag or None, backfill_id=backfill or None, states=states, limit=limit)
    some_are_partial = any(run["is_partial"] for run in rows)
    columns = [one for one in _RUN_COLUMNS if one is not _TASKS or some_are_partial]
    context.out.print_rows(rows, columns, empty="No runs.")
    if context.out.is_table and len(rows) == limit:
        context.out.note(f"The newest {limit}; --limit shows more.")


@group.command("show")
def show(context: CliContext, run: RunArgument, dag: DagOption = None) -> None:
    """Show one run: its interval, its place in the timeline, its tasks and their tries.

    Example: [cyan]bfm runs show 2013-01-05 --dag flights[/]
    """
    document = context.backend.run(run, dag)
    run_tasks = context.backend.run_tasks(document)
    tasks = with_spark_jobs(run_tasks)
    if not context.out.is_table:
        context.out.print_document({**document, **run_tasks, "tasks": tasks})
        return
    context.out.print_fields(document)
    context.out.print_line("")
    context.out.print_rows(tasks, TASK_COLUMNS, empty="It has no tasks yet.")


def with_spark_jobs(run_tasks: Document) -> list[Document]:
    """The tasks of a run, each with the `spark_jobs` of its last try that has ended."""
    by_task = {one["task_id"]: one["spark_jobs"] for one in run_tasks["tries"]}  # by task, then in their order
    return [{**task, "spark_jobs": by_task.get(task["task_id"], [])} for task in run_tasks["tasks"]]


@group.command("timeline")
def timeline(
    context: CliContext,
    dag: Dag,
    n: Annotated[
        int | None,
        typer.Option("-n", min=1, metavar="N", help=f"The newest N. \\[default: {DEFAULT_LIMIT}, all for JSON]"),
    ] = None,
) -> None:
    """Draw a DAG's timeline: its runs in the order of logical dates, each with an arrow to the run before it, and
    beneath it those that it overrode. Times are UTC.

    Example: [cyan]bfm runs timeline flights -n 10[/]
    """
    from backfill_manager.cli.render.timeline import timeline_rows

    limit = n or (DEFAULT_LIMIT if context.out.is_table else None)
    runs = context.backend.timeline(dag, limit)
    if not context.out.is_table:
        context.out.print_document(runs)
        return
    columns = (
        Column("drawn", ""), "logical_date", "state", Column("run_type", "type"), Column("interval_end", "until"),
        Column("dag_version", "version", right=True), Column("run_id", optional=True), Column("note", "", fold=True),
    )  # fmt: skip
    context.out.print_rows(list(timeline_rows(runs)), columns, empty=f"{dag} has no run with a logical date yet.")
    if len(runs) == limit:
        context.out.note(f"The newest {limit}; -n shows more.")


@group.command("cancel")
def cancel(context: CliContext, run: RunArgument, dag: DagOption = None) -> None:
    """Cancel a run: running tasks are stopped (their Spark jobs are cancelled), the others never start.

    Example: [cyan]bfm runs cancel 2013-01-05 --dag flights[/]
    """
    _submit(context, RUN_CANCEL, context.backend.run(run, dag), "Cancel run {run_id}")


@group.command("mark")
def mark(
    context: CliContext,
    run: RunArgument,
    state: Annotated[Literal["success", "failed"], typer.Argument(metavar="success|failed", help="The new state.")],
    dag: DagOption = None,
) -> None:
    """Set a run to success or failed, whatever its state is; its running tasks are stopped.

    Example: [cyan]bfm runs mark 2013-01-05 success --dag flights[/]
    """
    _submit(context, RUN_MARK, context.backend.run(run, dag), "Mark run {run_id} {state}", state=state)


def _submit(context: CliContext, kind: str, run: Document, action: str, **values: Any) -> None:
    values |= {"dag_id": run["dag_id"], "run_id": run["run_id"]}
    request = context.backend.submit(kind, values)
    print_response(context, request, action.format(**values), **payload_of(request))
