"""`bfm backfill`: create backfills, list, watch, change and end them."""

from __future__ import annotations

from typing import Any

from backfill_manager import humanise
from backfill_manager.cli import options as o
from backfill_manager.cli.airflow_aliases import OF_BACKFILL_CREATE
from backfill_manager.cli.backend.base import Document
from backfill_manager.cli.command import Group
from backfill_manager.cli.commands.backfill_gaps import gaps
from backfill_manager.cli.context import CliContext
from backfill_manager.cli.render.plan import format_config, format_item_counts, item_columns, print_plan, remark
from backfill_manager.cli.render.printer import NOTE, Column, first_line, seconds
from backfill_manager.cli.render.response import (
    NO_ACTIVE_MANAGER,
    RESPONSE_TIMEOUT_S,
    RESULT_TIMEOUT_S,
    outcome_of,
    payload_of,
    result_of,
    submit,
    wait_for_response,
)  # fmt: skip
from backfill_manager.errors import InvalidInput
from backfill_manager.model.states import BACKFILL_FINISHED, BACKFILL_STATES, ITEM_STATES
from backfill_manager.schemas import request_kinds

group = Group("backfill", "Backfills: create, watch, change, pause and cancel them.")


@group.command("create", schema="backfill_options.BackfillInput", without=("dag_id",), aliases=OF_BACKFILL_CREATE)
def create(
    context: CliContext,
    values: Document,
    dag: o.Dag,
    dry_run: bool = o.flag("--dry-run -n", "Print what would run, and change nothing."),
    ignore_dependencies: bool = o.flag(
        "--ignore-dependencies -i", "Same as --no-upstream: run only the tasks that --tasks selects."
    ),
    wait: bool = o.flag(
        "--wait", "Watch the backfill until it ends, but not those downstream. Exit code 1 if it fails."
    ),
    request_id: str | None = o.option(
        "--request-id", "Id chosen by you. If the request is sent twice, one backfill is created.", metavar="ID"
    ),
) -> int:
    """Create a backfill. The manager plans and runs it; it keeps running when you close the terminal.

    Dates are in the DAG's own time zone unless they carry an offset. A date without a time is the whole day: --from starts
    at its beginning, --to includes all of it (24 intervals of an hourly DAG). A date with a time is that instant. Without
    --from, the range starts at the DAG's start_date; without --to, it ends with the last complete interval, which is
    printed first.

    Examples:

    [cyan]bfm backfill create flights --from 2013-01-01 --to 2013-01-31 --wait[/]

    [cyan]bfm backfill create flights -s 2013-01-01 -e 2013-12-31 --dry-run --output json[/]

    [cyan]bfm backfill create flights --date 2013-01-05 --date 2013-02-07 --reprocess completed[/]

    [cyan]bfm backfill create flights -s 2013-01-01 -e 2013-12-31 --kind stale --batch 30 --downstream[/]

    [cyan]bfm backfill create flights -s 2013-01-01 -e 2013-01-31 --reprocess failed_tasks[/]

    [cyan]bfm backfill create flights -s 2013-01-01 -e 2013-01-31 -t '^delays$' --ignore-dependencies[/]

    [cyan]bfm backfill create flights -s 2013-01-01 -e 2013-03-31 --preview --wait[/]

    [cyan]bfm backfill create billing --partition emea --partition apac --conf '{"full": true}'[/]
    """
    if ignore_dependencies:
        if values.get("with_upstream"):
            raise InvalidInput("--upstream and --ignore-dependencies contradict each other; use one of them.")
        values["with_upstream"] = False
    from backfill_manager.cli.render.default_range import ends_left_out, may_leave_ends_out

    values = {"dag_id": dag, **values}
    if may_leave_ends_out(values):  # said before anything is created: it may be more than was meant
        text = ends_left_out(values, context.backend.dag(dag), context.clock.now())
        if text is not None:
            context.out.note(text)
    if dry_run:
        print_plan(context, context.backend.dry_run(request_kinds.BACKFILL_CREATE, values))
        return 0
    from backfill_manager.queries.backfills import requested_view

    request = context.backend.submit(request_kinds.BACKFILL_CREATE, values, request_id)
    backfill = requested_view(request)
    has_downstream = payload_of(request)["ask"].get("downstream")  # also that of a copy
    backfill_id = backfill["backfill_id"]
    typed = {name: values[name] for name in ("start_date", "end_date") if values.get(name)}
    text = f"Backfill {backfill_id} of {backfill['dag_id']}: {format_config({**backfill['config'], **typed})}."
    if wait:
        from backfill_manager.cli.commands.backfill_watch import INTERRUPTED, watch_backfill

        if context.out.is_table:
            context.out.note(text)
        code = watch_backfill(context, backfill_id, end_when_stuck=True)
        if has_downstream and code != INTERRUPTED:
            _note_downstream(context, backfill_id)
        return code
    if not context.out.is_table:  # the request does not say it
        backfill["timezone"] = context.backend.dag(dag)["timezone"]
    context.out.print_result(backfill, f"{text} Submitted; watch it: `bfm backfill watch {backfill_id}`")
    if backfill["preview_id"]:
        context.out.note(
            f"A preview: when it has ended, `bfm backfill diff {backfill_id}`, then promote or discard it."
        )
    if has_downstream:
        context.out.note(
            f"Downstream: `bfm requests show {request.request_id}` shows which backfills were planned, or why none was."
        )
    if not context.backend.has_active_manager():
        context.out.note(NO_ACTIVE_MANAGER)
    return 0


def _note_downstream(context: CliContext, backfill_id: str) -> None:
    """They are not waited for, and have no other place in what the command prints."""
    request_id = context.backend.backfill(backfill_id)["request_id"]
    created = [
        one for one in context.backend.backfills(dag_id=None, state=(), limit=1000) if one["request_id"] == request_id
    ]
    below = [one for one in created if one["backfill_id"] != backfill_id]
    for one in below:
        context.out.note(
            f"Downstream: backfill {one['backfill_id']} of {one['dag_id']} is {one['state']}; "
            f"watch it: `bfm backfill watch {one['backfill_id']}`"
        )
    if not below:
        context.out.note(f"Downstream: nothing was planned; `bfm requests show {request_id}` shows why.")


@group.command("list")
def list_(
    context: CliContext,
    dag: str | None = o.DAG_FILTER,
    state: list[str] | None = o.BACKFILL_STATE,
    limit: int | None = o.LIMIT,
) -> None:
    """List backfills, newest first, with their number of items by state. One that still waits for the manager is `queued`.

    Example: [cyan]bfm backfill list --dag flights --state running --state paused[/]
    """
    states = o.chosen_states("backfill list", "backfill", state, BACKFILL_STATES)
    limit = context.out.limit(limit)
    rows = context.backend.backfills(dag_id=dag or None, state=states, limit=limit)
    columns: tuple[Column | str, ...] = (
        "backfill_id", "dag_id", "state", Column("items", of=format_item_counts),
        Column("config", "range", format_config, optional=True), Column("created_at", "created", optional=True),
        Column("reason", None, first_line, fold=True, of=remark),
        *([NOTE] if any(row["note"] for row in rows) else []),
    )  # fmt: skip
    empty = "No such backfills." if states or dag else "No backfills yet: create one with `bfm backfill create`."
    context.out.print_rows(rows, columns, empty=empty, limit=limit)


@group.command("show")
def show(context: CliContext, id: o.Backfill) -> None:
    """Show one backfill: its options, its progress, and why it is in its state.

    Example: [cyan]bfm backfill show latest[/]
    """
    backfill = context.out.in_zone(context.backend.backfill(id, with_eta=True))
    left = backfill["time_left_s"]
    own = {"config", "time_left_s", "timezone"}
    zone = backfill.get("timezone")  # a server of an older release does not say it
    shown = {**backfill, "window": humanise.window(backfill["window"], zone)}
    fields = [(name, value) for name, value in shown.items() if name not in own and value is not False]
    fields.insert(2, ("range", format_config(backfill["config"])))
    fields.append(("time left", None if left is None else seconds(left)))
    context.out.print_fields(backfill, fields)


group.command("gaps")(gaps)


@group.command("items")
def items(
    context: CliContext,
    id: o.Backfill,
    state: list[str] | None = o.ITEM_STATE,
    limit: int | None = o.LIMIT,
    offset: int = o.option("--offset", "Skip the first N.", min=0, metavar="N", default=0),
) -> None:
    """List the planned intervals (or partitions) of a backfill in the order of creation, with the run of each.

    Example: [cyan]bfm backfill items latest --state failed[/]
    """
    states = o.chosen_states("backfill items", "backfill's item", state, ITEM_STATES)
    backfill = context.backend.backfill(id)
    limit = context.out.limit(limit)
    rows = context.backend.items(backfill["backfill_id"], state=states, limit=limit, offset=offset)
    columns = item_columns(rows, "run_id", "reverted_at")
    context.out.print_rows(rows, columns, empty="No such items.", dag_id=backfill["dag_id"])
    if context.out.is_table and len(rows) == limit:
        total, end = sum(backfill[one] for one in states or ITEM_STATES), offset + len(rows)
        if total > end:
            context.out.note(f"{offset + 1} to {end} of {total}; then --offset {end}.")


@group.command("watch")
def watch(context: CliContext, id: o.Backfill) -> int:
    """Watch a backfill until it ends: items by state, rate, time left, running tasks, failures as they happen. Exit code 1
    if it fails. Ctrl-C stops the watching, not the backfill.

    Example: [cyan]bfm backfill watch latest[/]
    """
    from backfill_manager.cli.commands.backfill_watch import watch_backfill

    return watch_backfill(context, context.backend.backfill(id)["backfill_id"], end_when_stuck=False)


def _add(name: str, kind: str, help: str) -> None:
    """A command with no options of its own."""

    def run(context: CliContext, id: o.Backfill) -> None:
        _submit(context, kind, name.capitalize(), id)

    run.__doc__ = f"{help}\n\nExample: [cyan]bfm backfill {name} latest[/]"
    group.command(name)(run)


_add("pause", request_kinds.BACKFILL_PAUSE, "Pause a backfill: no new run starts; running ones continue.")
_add("unpause", request_kinds.BACKFILL_UNPAUSE, "Unpause a backfill: its pending items start again.")


@group.command("retry", schema="commands.RetryBackfill", without=("backfill_id",))
def retry(
    context: CliContext, values: Document, id: o.Backfill,
    wait: bool = o.flag("--wait", "Watch the backfill until it ends again. Exit code 1 if it fails."),
) -> int:  # fmt: skip
    """Run the failed items of an ended backfill again, as part of the same backfill. They run the backfill's version of the
    DAG, whatever has changed since, or the current version with --latest-version. Cancelled items stay cancelled; the
    command prints how many there are, and which command runs their dates.

    Examples:

    [cyan]bfm backfill retry latest[/]

    [cyan]bfm backfill retry latest --latest-version --wait[/]

    [cyan]bfm backfill retry latest --downstream[/]

    [cyan]bfm backfill retry latest --item 3 --item 7-12[/]
    """
    found = context.backend.backfill(id)
    if how := _how_to_run_cancelled(found):  # before, as the manager refuses where nothing but cancelled items is left
        context.out.note(how)
    backfill_id = found["backfill_id"]
    if not wait:
        _submit(context, request_kinds.BACKFILL_RETRY, "Retry", backfill_id, **values)
        return 0
    from backfill_manager.cli.commands.backfill_watch import watch_backfill

    request = context.backend.submit(request_kinds.BACKFILL_RETRY, {"backfill_id": backfill_id, **values})
    response = wait_for_response(context, request)
    if response is None:  # nobody has answered, which is said above; it is not running again yet
        text = f"Retry backfill {backfill_id}: submitted (request {request.request_id})."
        context.out.print_result(outcome_of(request, response, backfill_id=backfill_id), text)
        return 1
    if context.out.is_table:
        context.out.note(response.message)
    return watch_backfill(context, backfill_id, end_when_stuck=True)


def _how_to_run_cancelled(backfill: Document) -> str | None:
    """A copy plans the range anew, with what has no run and, by `--reprocess`, what was cancelled while it ran. Until the retry
    has ended, it would take the dates that are to be retried, too. `stale` and `outdated` would leave out what was cancelled."""
    if backfill["state"] not in BACKFILL_FINISHED or not backfill["cancelled"]:
        return None
    its = f"Its {humanise.plural(backfill['cancelled'], 'cancelled item')}"
    if backfill["config"]["type"] in ("stale", "outdated"):
        return f"{its} can't be retried."
    command = f"bfm backfill create {backfill['dag_id']} --copy-of {backfill['backfill_id']}"
    if backfill["reprocess"] == "completed":
        return f"{its} can't be retried; when it has ended, `{command}` does its whole range again."
    return f"{its} can't be retried; when it has ended, `{command} --reprocess failed` runs what has not succeeded."


@group.command("cancel", schema="commands.CancelBackfill", without=("backfill_id",))
def cancel(context: CliContext, values: Document, id: o.Backfill) -> None:
    """Cancel a backfill: pending items never run, running ones are stopped (their Spark jobs are cancelled).

    Example: [cyan]bfm backfill cancel latest --let-running-finish[/]
    """
    _submit(context, request_kinds.BACKFILL_CANCEL, "Cancel", id, **{"let_running_finish": False, **values})


@group.command("diff", schema="commands.DiffBackfill", without=("backfill_id",))
def diff(context: CliContext, values: Document, id: o.Backfill) -> None:
    """Show how the tables would change if a preview were promoted now. Counts the rows added, removed and changed by table
    and interval, and the rows in which each column differs. Rows are matched by --key, else by the key of ctx.merge;
    without either, whole rows are compared.

    Examples:

    [cyan]bfm backfill diff latest --key flight_id[/]

    [cyan]bfm backfill diff latest --table silver.flights --output json[/]
    """
    from backfill_manager.cli.render.diff import print_diff

    asked = {"backfill_id": id, **values}
    found = result_of(context, request_kinds.BACKFILL_DIFF, asked, "compares the tables")
    print_diff(context.out, found, context.backend.backfill(id)["dag_id"] if context.out.is_table else None)


@group.command("promote", schema="commands.PromoteBackfill", without=("backfill_id",))
def promote(context: CliContext, values: Document, id: o.Backfill) -> None:
    """Replace the intervals of the tables with what a preview has written. One commit for each table replaces the intervals
    of all its successful runs; the runs then count as if they had run on the tables. Refused if others have written these
    intervals since.

    Examples:

    [cyan]bfm backfill promote latest[/]

    [cyan]bfm backfill promote latest --partial --rebase[/]
    """
    _submit(context, request_kinds.BACKFILL_PROMOTE, "Promote", id, timeout_s=RESULT_TIMEOUT_S, **values)


_add("discard", request_kinds.BACKFILL_DISCARD, "Delete what a preview has written; the tables stay as they are.")


@group.command("revert", schema="commands.RevertBackfill", without=("backfill_id",))
def revert(
    context: CliContext, values: Document, id: o.Backfill, yes: bool = o.flag("--yes -y", "Don't ask for confirmation.")
) -> int:
    """Undo what the runs of a backfill have written, from Delta's history. Prints what will be restored, interval by
    interval, and asks. Refused if others have written these intervals since, or if the history is gone. The runs stay in
    the timeline, but no longer count.

    Examples:

    [cyan]bfm backfill revert latest --dry-run[/]

    [cyan]bfm backfill revert latest --yes[/]
    """
    from backfill_manager.cli.commands.revert import ask_and_revert

    backfill_id = context.backend.backfill(id)["backfill_id"]
    dry_run, what = bool(values.get("dry_run")), f"backfill {backfill_id}"
    return ask_and_revert(
        context, request_kinds.BACKFILL_REVERT, {"backfill_id": backfill_id}, what, dry_run=dry_run, yes=yes
    )


@group.command("note")
def note(context: CliContext, id: o.Backfill, text: o.NoteText) -> None:
    """Write a note on a backfill, in any state. It replaces the note that is there.

    Example: [cyan]bfm backfill note latest "New tariff: approved by Ann"[/]
    """
    verb = "Write" if text.strip() else "Remove"
    _submit(context, request_kinds.BACKFILL_NOTE, f"{verb} the note on", id, text=text)


@group.command("set", schema="backfill_options.BackfillSettings", is_update=True)
def set_(context: CliContext, values: Document, id: o.Backfill) -> None:
    """Change a running backfill; options that are not named stay. Running tasks are not touched.

    Examples:

    [cyan]bfm backfill set latest --max-active-runs 4 --window 20:00-06:00[/]

    [cyan]bfm backfill set latest --no-window[/]

    [cyan]bfm backfill set latest --set retries=3 --set clean.timeout=600[/]
    """
    if values.get("tasks", "given") is None:  # these go with --tasks
        values = {"with_upstream": True, "with_downstream": False, **values}
    if not values:
        raise InvalidInput(
            f"Nothing to change was named; the options are {', '.join(o.spellings('backfill_options.BackfillSettings'))}."
        )
    seen: Document = {}
    if "overrides" in values:  # those that were set before stay; who changes them meanwhile is not undone
        before = context.backend.overrides(id)
        values["overrides"], seen = {**before, **values["overrides"]}, {"was": {"overrides": before}}
    _submit(context, request_kinds.BACKFILL_SET, "Change", id, changes=values, **seen)


def _submit(
    context: CliContext, kind: str, verb: str, id: str, *, timeout_s: float = RESPONSE_TIMEOUT_S, **values: Any
) -> None:
    action, fields = f"{verb} backfill {{backfill_id}}", {"backfill_id": id, **values}
    submit(context, kind, fields, action, "backfill_id", timeout_s=timeout_s)
