"""`bfm backfill`: create backfills, list, watch, change and end them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from backfill_manager.cli.airflow_aliases import OF_BACKFILL_CREATE
from backfill_manager.cli.backend.base import Document
from backfill_manager.cli.command import Group
from backfill_manager.cli.context import CliContext
from backfill_manager.cli.options import DEFAULT_LIMIT, DagFilter, Limit, spellings, state_filter, state_uri_hint
from backfill_manager.cli.render.backfill import format_config, format_item_counts, item_columns
from backfill_manager.cli.render.output import Column, first_line, seconds
from backfill_manager.cli.render.response import NO_ACTIVE_MANAGER, payload_of, print_response
from backfill_manager.errors import InvalidInput
from backfill_manager.model.states import BACKFILL_STATES, ITEM_STATES
from backfill_manager.schemas import kinds

group = Group("backfill", "Backfills: create, watch, change, pause and cancel them.")
IdArgument = Annotated[
    str, typer.Argument(metavar="ID", help="The backfill's id, a prefix of it, or `latest`.", show_default=False)
]


@group.command("create", schema="BackfillInput", without=("dag_id",), aliases=OF_BACKFILL_CREATE)
def create(
    context: CliContext,
    values: Document,
    dag: Annotated[str, typer.Argument(metavar="DAG", help="The DAG's id, see `bfm dags list`.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Print what would run, and change nothing.")] = False,
    ignore_dependencies: Annotated[
        bool, typer.Option("--ignore-dependencies", "-i", help="Same as --no-upstream: run the tasks of --tasks alone.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Watch it until it ends; exit code 1 when it fails.")] = False,
    request_id: Annotated[
        str | None,
        typer.Option("--request-id", metavar="ID", help="An id of your own: sent twice, it creates one backfill."),
    ] = None,
) -> int:
    """Create a backfill. The manager plans and runs it; it keeps running when you close the terminal.

    Dates are in the DAG's own time zone, unless they carry an offset. A date alone is its whole day: --from begins with
    it, --to includes all of it (of an hourly DAG 24 intervals). With a time it is that instant.

    Examples:

    [cyan]bfm backfill create flights --from 2013-01-01 --to 2013-01-31 --wait[/]

    [cyan]bfm backfill create flights -s 2013-01-01 -e 2013-12-31 --dry-run --output json[/]

    [cyan]bfm backfill create flights --date 2013-01-05 --date 2013-02-07 --reprocess completed[/]

    [cyan]bfm backfill create flights -s 2013-01-01 -e 2013-12-31 --kind stale --batch 30 --downstream[/]

    [cyan]bfm backfill create flights -s 2013-01-01 -e 2013-01-31 --reprocess failed_tasks[/]

    [cyan]bfm backfill create flights -s 2013-01-01 -e 2013-01-31 -t '^delays$' --ignore-dependencies[/]

    [cyan]bfm backfill create billing --partition emea --partition apac --conf '{"full": true}'[/]
    """
    if ignore_dependencies:
        if values.get("with_upstream"):
            raise InvalidInput("--upstream and --ignore-dependencies contradict each other; use one of them.")
        values["with_upstream"] = False
    values = {"dag_id": dag, **values}
    if dry_run:
        from backfill_manager.cli.render.plan import print_plan

        print_plan(context.out, context.backend.preview(kinds.BACKFILL_CREATE, values))
        return 0
    from backfill_manager.queries.backfills import requested_view

    backfill = requested_view(context.backend.submit(kinds.BACKFILL_CREATE, values, request_id))
    backfill_id = backfill["backfill_id"]
    text = f"Backfill {backfill_id} of {backfill['dag_id']}: {format_config(backfill['config'])}."
    if wait:
        from backfill_manager.cli.commands.backfill_watch import watch_backfill

        if context.out.is_table:
            context.out.note(text)
        return watch_backfill(context, backfill_id, end_when_stuck=True)
    context.out.print_result(backfill, f"{text} Submitted; watch it: `bfm backfill watch {backfill_id}`")
    if not context.backend.has_active_manager():
        context.out.note(NO_ACTIVE_MANAGER)
    return 0


@group.command("list")
def list_(
    context: CliContext,
    dag: DagFilter = None,
    state: Annotated[list[str] | None, state_filter(BACKFILL_STATES)] = None,
    limit: Limit = None,
) -> None:
    """List backfills, newest first, with their number of items by state. One that still waits for the manager is
    `queued`.

    Example: [cyan]bfm backfill list --dag flights --state running --state paused[/]
    """
    from backfill_manager.queries.backfills import check_states

    states = check_states("backfill", state or (), BACKFILL_STATES, state_uri_hint("backfill list", state))
    limit = limit or (DEFAULT_LIMIT if context.out.is_table else None)
    rows = context.backend.backfills(dag_id=dag or None, states=states, limit=limit)
    if context.out.is_table:
        rows = [{**row, "items": format_item_counts(row)} for row in rows]
    columns = (
        "backfill_id", "dag_id", "state", "items", Column("config", "range", format_config, optional=True),
        Column("created_at", "created", optional=True), Column("reason", None, first_line, fold=True),
    )  # fmt: skip
    empty = "No such backfills." if states or dag else "No backfills yet: create one with `bfm backfill create`."
    context.out.print_rows(rows, columns, empty=empty)
    if context.out.is_table and len(rows) == limit:
        context.out.note(f"The newest {limit}; --limit shows more.")


@group.command("show")
def show(context: CliContext, id: IdArgument) -> None:
    """Show one backfill: its options, its progress, and why it is in its state.

    Example: [cyan]bfm backfill show latest[/]
    """
    backfill = context.backend.backfill(id, with_eta=True)
    left = backfill["time_left_s"]
    fields = [
        (name, value)
        for name, value in backfill.items()
        if name not in {"config", "time_left_s"} and value is not False
    ]
    fields.insert(2, ("range", format_config(backfill["config"])))
    fields.append(("time left", None if left is None else seconds(left)))
    context.out.print_fields(backfill, fields)


@group.command("items")
def items(
    context: CliContext,
    id: IdArgument,
    state: Annotated[list[str] | None, state_filter(ITEM_STATES)] = None,
    limit: Limit = None,
    offset: Annotated[int, typer.Option("--offset", min=0, metavar="N", help="Skip the first N.")] = 0,
) -> None:
    """List the planned intervals (or partitions) of a backfill in the order of creation, with the run of each.

    Example: [cyan]bfm backfill items latest --state failed[/]
    """
    from backfill_manager.queries.backfills import check_states

    states = check_states("backfill's item", state or (), ITEM_STATES, state_uri_hint("backfill items", state))
    backfill = context.backend.backfill(id)
    limit = limit or (DEFAULT_LIMIT if context.out.is_table else None)
    rows = context.backend.items(backfill["backfill_id"], states=states, limit=limit, offset=offset)
    context.out.print_rows(rows, item_columns(rows, "run_id"), empty="No such items.")
    if context.out.is_table and len(rows) == limit:
        total, end = sum(backfill[one] for one in states or ITEM_STATES), offset + len(rows)
        if total > end:
            context.out.note(f"{offset + 1} to {end} of {total}; then --offset {end}.")


@group.command("watch")
def watch(context: CliContext, id: IdArgument) -> int:
    """Watch a backfill until it has ended: items by state, rate, time left, running tasks, failures as they happen.
    Exit code 1 when it fails. Ctrl-C ends the watching, not the backfill.

    Example: [cyan]bfm backfill watch latest[/]
    """
    from backfill_manager.cli.commands.backfill_watch import watch_backfill

    return watch_backfill(context, context.backend.backfill(id)["backfill_id"], end_when_stuck=False)


@group.command("pause")
def pause(context: CliContext, id: IdArgument) -> None:
    """Pause a backfill: no new run starts; running ones continue.

    Example: [cyan]bfm backfill pause latest[/]
    """
    _submit(context, kinds.BACKFILL_PAUSE, "Pause", id)


@group.command("unpause")
def unpause(context: CliContext, id: IdArgument) -> None:
    """Resume a paused backfill.

    Example: [cyan]bfm backfill unpause latest[/]
    """
    _submit(context, kinds.BACKFILL_UNPAUSE, "Unpause", id)


@group.command("cancel", schema="CancelBackfill", without=("backfill_id",))
def cancel(context: CliContext, values: Document, id: IdArgument) -> None:
    """Cancel a backfill: pending items never run, running ones are stopped (their Spark jobs are cancelled).

    Example: [cyan]bfm backfill cancel latest --let-running-finish[/]
    """
    _submit(context, kinds.BACKFILL_CANCEL, "Cancel", id, **{"let_running_finish": False, **values})


@group.command("retry")
def retry(context: CliContext, id: IdArgument) -> None:
    """Run the failed items of a backfill that has ended once more, as part of the same backfill.

    Example: [cyan]bfm backfill retry latest[/]
    """
    _submit(context, kinds.BACKFILL_RETRY, "Retry", id)


@group.command("set", schema="BackfillSettings", show_defaults=False)
def set_(context: CliContext, values: Document, id: IdArgument) -> None:
    """Change a running backfill; options that are not named stay. Running tasks are not touched.

    Examples:

    [cyan]bfm backfill set latest --max-active-runs 4 --window 20:00-06:00[/]

    [cyan]bfm backfill set latest --set retries=3 --set clean.timeout=600[/]
    """
    if not values:
        raise InvalidInput(f"Nothing to change was named; the options are {', '.join(spellings('BackfillSettings'))}.")
    if "overrides" in values:  # those that were set before stay
        values["overrides"] = {**context.backend.backfill(id)["overrides"], **values["overrides"]}
    _submit(context, kinds.BACKFILL_SET, "Change", id, changes=values)


def _submit(context: CliContext, kind: str, verb: str, id: str, **values: Any) -> None:
    request = context.backend.submit(kind, {"backfill_id": id, **values})
    backfill_id = payload_of(request)["backfill_id"]
    print_response(context, request, f"{verb} backfill {backfill_id}", backfill_id=backfill_id)
