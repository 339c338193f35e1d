"""`bfm backfill`: ask for one, watch it, steer it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import typer

from backfill_manager.cli import options as options
from backfill_manager.cli.airflow_aliases import OF_BACKFILL_CREATE
from backfill_manager.cli.backend.base import BackfillAction
from backfill_manager.cli.command import Group
from backfill_manager.cli.context import CliContext
from backfill_manager.cli.render.output import Column, first_line, seconds
from backfill_manager.model.states import BACKFILL_STATES, ITEM_STATES

group = Group("backfill", "Ask for a backfill, watch it, pause it, cancel it.")
IdArgument = Annotated[
    str, typer.Argument(metavar="ID", help="The backfill's id, a beginning of it, or `latest`.", show_default=False)
]
DEFAULT_PAGE = 50
LAST_COMPLETE = "the last complete interval"  # an end that was left out, until the manager has planned it


@group.command("create", aliases=OF_BACKFILL_CREATE)
def create(
    context: CliContext,
    dag: Annotated[str, typer.Argument(metavar="DAG", help="The DAG's id, see `bfm dags list`.")],
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            "-s",
            metavar="T",
            help="The first interval starts here or after. \\[default: the DAG's start_date]",
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            "-e",
            metavar="T",
            help="The last interval starts here or before (inclusive); a date alone is its whole day in the DAG's zone. "
            "\\[default: the last interval that is complete now, none after the DAG's end_date]",
        ),
    ] = None,
    kind: Annotated[
        Literal["schedule", "single", "dates", "partitions", "missing", "stale"] | None,
        typer.Option(
            "--kind",
            help="schedule: each interval of the schedule; single: one run over the whole range; dates, partitions: "
            "as listed; missing: intervals without a successful run; stale: those whose success is of an older version "
            "of the DAG. \\[default: schedule, or what --date or --partition says]",
        ),
    ] = None,
    date: Annotated[
        list[str] | None, typer.Option("--date", metavar="T", help="A logical date; may be repeated.")
    ] = None,
    partition: Annotated[
        list[str] | None,
        typer.Option("--partition", metavar="KEY", help="A partition (a region, a customer); may be repeated."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Print what would run, and change nothing.")] = False,
    reprocess: Annotated[
        Literal["none", "failed", "failed_tasks", "completed"],
        typer.Option(
            "--reprocess",
            help="Dates that have a run already: leave them; failed: re-do those that failed, as new runs; failed_tasks: "
            "re-run their failed tasks, and what depends on them, in the same runs; completed: re-do what succeeded, too.",
        ),
    ] = "none",
    run_backwards: Annotated[bool, typer.Option("--run-backwards", "-B", help="Newest first.")] = False,
    max_active_runs: options.MaxActiveRuns = None,
    batch: options.Batch = None,
    conf: options.Conf = None,
    set_: options.Set = None,
    tasks: options.Tasks = None,
    upstream: options.Upstream = None,
    ignore_dependencies: options.IgnoreDependencies = False,
    downstream_tasks: options.DownstreamTasks = None,
    mark_success: Annotated[
        bool, typer.Option("--mark-success", "-m", help="Run no task: the runs are set to success.")
    ] = False,
    stop_on_failure: options.StopOnFailure = None,
    pool: Annotated[str, typer.Option("--pool", metavar="P", help="The pool whose slots it uses.")] = "backfill",
    priority: Annotated[int, typer.Option("--priority", metavar="N", help="Higher goes first.")] = 0,
    window: options.Window = None,
    polite: Annotated[
        bool, typer.Option("--polite", help="Start nothing while a scheduled task waits for a slot.")
    ] = False,
    downstream: Annotated[
        bool,
        typer.Option(
            "--downstream",
            "--downstream-dags",
            help="And backfill every DAG that reads what this one writes, and so on. (Tasks: --downstream-tasks.)",
        ),
    ] = False,
    allow_future: Annotated[
        bool,
        typer.Option(
            "--allow-future",
            help="Also run intervals that have not ended yet, up to --to. Without it they are skipped: not complete yet.",
        ),
    ] = False,
    ignore_first_depends_on_past: Annotated[
        bool,
        typer.Option(
            "--ignore-first-depends-on-past/--no-ignore-first-depends-on-past",
            "-I",
            help="The first item does not wait for the run before it; the others wait for theirs, as depends_on_past says.",
        ),
    ] = True,
    wait: Annotated[bool, typer.Option("--wait", help="Stay and watch; exit code 1 when it fails.")] = False,
    request_id: Annotated[
        str | None,
        typer.Option(
            "--request-id", metavar="ID", help="An id of your own: sent twice, it makes one backfill all the same."
        ),
    ] = None,
) -> int:
    """Ask for a backfill. The manager plans and runs it; it goes on when you close the laptop.

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
    from backfill_manager.cli.commands.creating import Wish, create_backfill, with_upstream

    wish = Wish(
        dag_id=dag, from_=from_, to=to, kind=kind, dates=tuple(date or ()), partitions=tuple(partition or ()),
        reprocess=reprocess, run_backwards=run_backwards, max_active_runs=max_active_runs, batch=batch, conf=conf,
        settings=tuple(set_ or ()), tasks=tasks, with_upstream=with_upstream(upstream, ignore_dependencies),
        with_downstream=bool(downstream_tasks), mark_success=mark_success, stop_on_failure=stop_on_failure, pool=pool,
        priority=priority, window=window, is_polite=polite, downstream=downstream,
        allow_future=allow_future, ignore_first_depends_on_past=ignore_first_depends_on_past,
    )  # fmt: skip
    return create_backfill(context, wish, dry_run=dry_run, wait=wait, request_id=request_id)


@group.command("list")
def list_(
    context: CliContext,
    dag: Annotated[str | None, typer.Option("--dag", metavar="DAG", help="Only of this DAG.")] = None,
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state", "-S", metavar="S", help=f"Only in this state ({', '.join(BACKFILL_STATES)}); may be repeated."
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, metavar="N", help=f"How many. \\[default: {DEFAULT_PAGE}, all for JSON]"),
    ] = None,
) -> None:
    """List backfills, newest first, with their items counted by state. One that still waits for the manager's answer is
    `queued`.

    Example: [cyan]bfm backfill list --dag flights --state running --state paused[/]
    """
    from backfill_manager.queries.backfills import check_states

    chosen = check_states("backfill", state or (), BACKFILL_STATES, elsewhere("backfill list", state))
    limit = limit or (DEFAULT_PAGE if context.out.is_table else None)
    found = context.backend.backfills(dag_id=dag or None, in_states=chosen, limit=limit)
    if context.out.is_table:
        found = [{**one, "items": items_in_words(one)} for one in found]
    columns = (
        "backfill_id", "dag_id", "state", "items", Column("config", "what", config_in_words, optional=True),
        Column("created_at", "created", optional=True), Column("reason", None, first_line, fold=True),
    )  # fmt: skip
    empty = "No such backfills." if chosen or dag else "No backfills yet: ask for one with `bfm backfill create`."
    context.out.print_rows(found, columns, empty=empty)
    if context.out.is_table and len(found) == limit:
        context.out.note(f"The newest {limit}; --limit shows more.")


@group.command("show")
def show(context: CliContext, id: IdArgument) -> None:
    """Show one backfill: what was asked, how far it is, why it stands where it stands.

    Example: [cyan]bfm backfill show latest[/]
    """
    found = context.backend.backfill(id, time_left=True)
    if not context.out.is_table:
        context.out.print_document(found)
        return
    left = found["time_left_s"]
    fields = [(name, value) for name, value in found.items() if name not in {"config", "time_left_s"}]
    fields.insert(2, ("what", config_in_words(found["config"])))
    fields.append(("time left", None if left is None else seconds(left)))
    context.out.print_fields(found, [(name, value) for name, value in fields if value is not False])


@group.command("items")
def items(
    context: CliContext,
    id: IdArgument,
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state", "-S", metavar="S", help=f"Only in this state ({', '.join(ITEM_STATES)}); may be repeated."
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, metavar="N", help=f"How many. \\[default: {DEFAULT_PAGE}, all for JSON]"),
    ] = None,
    offset: Annotated[int, typer.Option("--offset", min=0, metavar="N", help="Leave out the first N.")] = 0,
) -> None:
    """List the planned intervals (or partitions) of a backfill in the order of making, with the run each became.

    Example: [cyan]bfm backfill items latest --state failed[/]
    """
    from backfill_manager.queries.backfills import check_states

    chosen = check_states("backfill's item", state or (), ITEM_STATES, elsewhere("backfill items", state))
    backfill = context.backend.backfill(id)
    limit = limit or (DEFAULT_PAGE if context.out.is_table else None)
    found = context.backend.items(backfill["backfill_id"], in_states=chosen, limit=limit, offset=offset)
    context.out.print_rows(found, item_columns(found, "run_id"), empty="No such items.")
    if context.out.is_table and len(found) == limit:
        total = sum(backfill[one] for one in chosen or ITEM_STATES)
        if total > offset + len(found):
            context.out.note(f"{offset + 1} to {offset + len(found)} of {total}; then --offset {offset + len(found)}.")


@group.command("watch")
def watch(context: CliContext, id: IdArgument) -> int:
    """Watch a backfill until it has ended: items by state, rate, time left, the tasks that run, failures as they come.
    Exit code 1 when it fails. Ctrl-C ends the watching, not the backfill.

    Example: [cyan]bfm backfill watch latest[/]
    """
    from backfill_manager.cli.commands.watching import watch as watch_backfill

    return watch_backfill(context, context.backend.backfill(id)["backfill_id"], end_when_stuck=False)


@group.command("pause")
def pause(context: CliContext, id: IdArgument) -> None:
    """Pause a backfill: no new run starts; what runs goes on.

    Example: [cyan]bfm backfill pause latest[/]
    """
    _steer(context, id, "pause")


@group.command("unpause")
def unpause(context: CliContext, id: IdArgument) -> None:
    """Let a paused backfill go on.

    Example: [cyan]bfm backfill unpause latest[/]
    """
    _steer(context, id, "unpause")


@group.command("cancel")
def cancel(
    context: CliContext,
    id: IdArgument,
    let_running_finish: Annotated[
        bool, typer.Option("--let-running-finish", help="Don't stop the tasks that run; only start no more.")
    ] = False,
) -> None:
    """Cancel a backfill: what is pending never runs, what runs is stopped (its Spark jobs are cancelled).

    Example: [cyan]bfm backfill cancel latest --let-running-finish[/]
    """
    _steer(context, id, "cancel", let_running_finish=let_running_finish)


@group.command("retry")
def retry(context: CliContext, id: IdArgument) -> None:
    """Run the failed items of a backfill that has ended once more, as part of the same backfill.

    Example: [cyan]bfm backfill retry latest[/]
    """
    _steer(context, id, "retry")


@group.command("set")
def set_(
    context: CliContext,
    id: IdArgument,
    max_active_runs: options.MaxActiveRuns = None,
    priority: Annotated[int | None, typer.Option("--priority", metavar="N", help="Higher goes first.")] = None,
    pool: Annotated[str | None, typer.Option("--pool", metavar="P", help="The pool whose slots it uses.")] = None,
    batch: options.Batch = None,
    stop_on_failure: options.StopOnFailure = None,
    window: options.Window = None,
    polite: Annotated[
        bool | None, typer.Option("--polite/--no-polite", help="Start nothing while a scheduled task waits for a slot.")
    ] = None,
    tasks: options.Tasks = None,
    upstream: options.Upstream = None,
    downstream_tasks: options.DownstreamTasks = None,
    mark_success: Annotated[
        bool | None, typer.Option("--mark-success/--no-mark-success", help="Run no task: the runs are set to success.")
    ] = None,
    set_: options.Set = None,
    conf: options.Conf = None,
) -> None:
    """Change a backfill while it goes on; what is not named stays. What runs already is not touched.

    Examples:

    [cyan]bfm backfill set latest --max-active-runs 4 --window 20:00-06:00[/]

    [cyan]bfm backfill set latest --set retries=3 --set clean.timeout=600[/]
    """
    from backfill_manager.cli.commands.changing import change_backfill

    said = {
        "max_active_runs": max_active_runs, "priority": priority, "pool": pool, "batch": batch,
        "stop_on_failure": stop_on_failure, "window": window, "is_polite": polite, "tasks": tasks,
        "with_upstream": upstream, "with_downstream": downstream_tasks, "mark_success": mark_success,
    }  # fmt: skip
    changes = {name: value for name, value in said.items() if value is not None}
    change_backfill(context, id, changes, settings=tuple(set_ or ()), conf=conf)


def _steer(context: CliContext, id: str, verb: BackfillAction, **more: Any) -> None:
    from backfill_manager.cli.render.response import print_response, what_of

    request = context.backend.steer_backfill(id, verb, **more)
    backfill_id = what_of(request)["backfill_id"]
    print_response(context, request, f"{verb.capitalize()} backfill {backfill_id}", backfill_id=backfill_id)


def config_in_words(config: Any) -> str:
    """`schedule 2013-01-01T05:00:00Z .. 2013-01-31T05:00:00Z`, `3 dates`, `2 partitions`."""
    kind = config.get("type", "?")
    backwards = ", newest first" if config.get("run_backwards") else ""
    future = ", also what has not ended" if config.get("allow_future") else ""
    if kind in {"dates", "partitions"}:
        number = config.get("total", len(config.get(kind, ())))
        return f"{number} {kind if number != 1 else kind[:-1]}{backwards}{future}"
    return f"{kind} {config.get('start_date') or ''} .. {config.get('end_date') or LAST_COMPLETE}{backwards}{future}"


def items_in_words(backfill: dict[str, Any]) -> str:
    """`31: 4 success, 1 failed, 26 pending`"""
    told = [f"{backfill[state]} {state}" for state in ITEM_STATES if backfill[state]]
    return f"{backfill['planned']}: {', '.join(told)}" if told else ""


def item_columns(items: Sequence[Mapping[str, Any]], *more: str) -> list[Column | str]:
    """Dates or partitions: only the columns that say something."""
    wanted = ["logical_date", "interval_start", "interval_end", "partition_key", "batch", "state", "reason", *more]
    if all(item.get("interval_start") == item.get("logical_date") for item in items):
        wanted.remove("interval_start")
    return [
        Column("ordinal", "#", right=True),
        *(
            Column(name, fold=name == "reason", optional=name == "interval_end")
            for name in wanted
            if name == "state" or any(item.get(name) is not None for item in items)
        ),
    ]


def elsewhere(path: str, said: Sequence[str] | None) -> str:
    """A word to those who meant the global option: here `--state` is a filter."""
    meant = next((one for one in said or () if any(sign in one for sign in "/.\\:")), None)
    return f". (Where the state is comes before the command: `bfm --state {meant} {path}`)" if meant else ""
