"""`bfm dags`: what can run."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import typer

from backfill_manager.cli.commands.runs import TASK_COLUMNS
from backfill_manager.cli.context import CliContext, command, group
from backfill_manager.cli.render.output import Column, seconds
from backfill_manager.errors import InvalidInput, NotFound

app = group("dags", "What can run.")
DagArgument = Annotated[str, typer.Argument(metavar="DAG", help="The DAG's id, see `bfm dags list`.")]


def schedule(value: Any) -> str:
    if isinstance(value, dict):
        return f"every {seconds(value['seconds'])}"
    return "by hand" if value is None else str(value)


def waits_for(task: dict[str, Any]) -> str:
    """What a task of a DAG waits for; of a callback, what it tells of."""
    if task["calls_back"] is None:
        return ", ".join(task["upstream"])
    ended = {"success": "when it succeeded", "failed": "when it failed"}[task["calls_back"]]
    return f"tells of {task['watches'] or 'the run'}, {ended}"


@command(app, "list")
def list_(
    call: CliContext,
    all_: Annotated[
        bool, typer.Option("--all", "-a", help="And those that are not active: no file defines them any more.")
    ] = False,
) -> None:
    """List the DAGs: schedule, zone, version, file, and when the next scheduled run is due (UTC).

    Example: [cyan]bfm dags list --output json[/]
    """
    found = call.source.dags(active=None if all_ else True)
    if call.out.is_table:
        found = [{**one, "schedule": schedule(one["schedule"])} for one in found]
    columns = (
        "dag_id", "schedule", "timezone", Column("is_paused", "paused"), Column("version", right=True), "file",
        Column("next_due_at", "next due"), Column("inactive_reason", "not active", fold=True),
    )  # fmt: skip
    call.out.rows(found, columns, empty="No DAGs yet: a manager loads them from its bundles (`bfm manager start`).")
    if broken := len(call.source.import_errors()):
        files = "1 file" if broken == 1 else f"{broken} files"
        call.out.remark(f"{files} could not be read: see `bfm dags import-errors`.")


@command(app, "show")
def show(call: CliContext, dag: DagArgument) -> None:
    """Show one DAG: its schedule in words, its tasks and what they wait for, how many runs it has by state.

    Example: [cyan]bfm dags show flights[/]
    """
    found = call.source.dag(dag)
    if not call.out.is_table:
        call.out.document(found)
        return
    fields = [
        (name, value)
        for name, value in found.items()
        if name
        not in {"tasks", "schedule", "schedule_in_words", "runs", "is_active", "inactive_since", "inactive_reason"}
    ]
    runs = ", ".join(f"{number} {state}" for state, number in found["runs"].items())
    words = found["schedule_in_words"]
    plain = schedule(found["schedule"])
    fields.insert(1, ("not active", found["inactive_reason"]))
    fields.insert(2, ("schedule", plain if words in (None, plain) else f"{plain}: {words}"))
    call.out.thing(found, [*fields, ("runs", runs or "none yet")])
    call.out.line("")
    columns = (
        "task_id", "kind", Column("waits_for", "waits for"), "trigger_rule", Column("retries", right=True),
        "depends_on_past",
    )  # fmt: skip
    call.out.rows([{**one, "waits_for": waits_for(one)} for one in found["tasks"]], columns)


@command(app, "next")
def next_(
    call: CliContext,
    dag: DagArgument,
    n: Annotated[int, typer.Option("-n", min=1, max=10_000, metavar="N", help="How many.")] = 1,
) -> None:
    """Show the next intervals that the scheduler makes runs of, and when each is due: at its end. It goes on from the
    latest scheduled or backfill run of the timeline; runs by hand and of the future don't move it. Instants are UTC; the
    last column is the start as a clock in the DAG's zone shows it.

    Example: [cyan]bfm dags next flights -n 5[/]
    """
    about = call.source.dag(dag)
    found = call.source.next_intervals(dag, n)
    if call.out.is_table:
        found = [{**one, "local": local(one["interval_start"], about["timezone"])} for one in found]
    columns = (
        "interval_start", "interval_end", Column("due_at", "due"), Column("local", f"start in {about['timezone']}"),
    )  # fmt: skip
    empty = (
        f"{dag} is not active: {about['inactive_reason']}."
        if not about["is_active"]
        else f"{dag} has no schedule: it runs when it is asked for."
        if about["schedule"] is None
        else f"{dag} has no interval left: its end_date is {about['end_date']}."
        if about["end_date"] is not None
        else f"{dag} has no interval left."
    )
    call.out.rows(found, columns, empty=empty)
    if call.out.is_table and about["is_paused"] and found:
        call.out.remark(f"{dag} is paused: none of these will run until it is unpaused.")


@command(app, "trigger")
def trigger(
    call: CliContext,
    dag: DagArgument,
    logical_date: Annotated[
        str | None,
        typer.Option(
            "--logical-date",
            metavar="T",
            help="In the DAG's zone, unless it has an offset. \\[default: the latest complete interval]",
        ),
    ] = None,
    conf: Annotated[
        str | None,
        typer.Option("--conf", "-c", metavar="JSON", help="Parameters of the run, as a JSON object (64 kB at most)."),
    ] = None,
    allow_future: Annotated[
        bool, typer.Option("--allow-future", help="Take a date in the future, too; else it is refused.")
    ] = False,
) -> None:
    """Have a DAG run once, by hand: for the interval that starts at T, or for the one that the manager chooses.

    It moves the schedule nowhere. When the schedule comes to the date, it passes it over if the run was made after its
    interval had ended, and does it over if it was made before.

    Example: [cyan]bfm dags trigger flights --logical-date 2013-01-05 --conf '{"full": true}'[/]
    """
    from backfill_manager.cli.commands.triggering import trigger_dag

    trigger_dag(call, dag, logical_date, conf, allow_future=allow_future)


@command(app, "pause")
def pause(call: CliContext, dag: DagArgument) -> None:
    """Pause a DAG: no scheduled run of it is made. Its backfills have a pause of their own.

    Example: [cyan]bfm dags pause flights[/]
    """
    _steer(call, dag, "pause")


@command(app, "unpause")
def unpause(call: CliContext, dag: DagArgument) -> None:
    """Let a paused DAG's scheduled runs go on.

    Example: [cyan]bfm dags unpause flights[/]
    """
    _steer(call, dag, "unpause")


@command(app, "test")
def test(
    call: CliContext,
    dag: DagArgument,
    logical_date: Annotated[
        str | None, typer.Option("--logical-date", metavar="T", help="In the DAG's zone, unless it has an offset.")
    ] = None,
) -> int:
    """Run a DAG once, here, with a Spark session of this process, and without a manager; nothing of the run is kept in
    the state. Its output tables are the real ones, and each test writes them anew. Exit code 1 when it failed.

    Example: [cyan]bfm dags test flights --logical-date 2013-01-05[/]
    """
    call.needs_tables(f"have the server's manager run it: `bfm dags trigger {dag}`")
    at = None if logical_date is None else instant_for(call, dag, logical_date)
    from backfill_manager.manager.single_run import run_dag_once

    found = run_dag_once(call.settings, dag, at)
    if call.out.is_table:
        call.out.thing(found["run"])
        call.out.line("")
        call.out.rows(found["tasks"], TASK_COLUMNS)
        for line in found.get("logs", ()):
            call.out.line(line)
    else:
        call.out.document(found)
    return 0 if found["run"]["state"] == "success" else 1


@command(app, "schema")
def schema(call: CliContext) -> None:
    """Print the JSON Schema of `*.dag.yaml` files, for editors.

    Example: [cyan]bfm dags schema > dag.schema.json[/]
    """
    from backfill_manager.dags.yaml import json_schema

    call.out.document(json_schema.shipped())


@command(app, "import-errors")
def import_errors(call: CliContext) -> None:
    """List the files that could not be read: where, and what is wrong. The last good version of their DAGs stays.

    Example: [cyan]bfm dags import-errors --output json[/] (with tracebacks)
    """
    columns = (
        "bundle", "file", Column("line", right=True), Column("message", fold=True), Column("first_seen_at", "since"),
    )  # fmt: skip
    call.out.rows(call.source.import_errors(), columns, empty="Every file could be read.")


@command(app, "versions")
def versions(
    call: CliContext,
    dag: DagArgument,
    diff: Annotated[
        tuple[int, int] | None,
        typer.Option("--diff", metavar="OLD NEW", help="What differs between two: settings, tasks and code."),
    ] = None,
) -> None:
    """List the versions of a DAG, newest first. One is made when the definition changes, or the code that it may run; a
    run keeps the version it was made with.

    Example: [cyan]bfm dags versions flights --diff 1 2[/]
    """
    from backfill_manager.cli.render.version_diff import tell_difference

    if diff is not None:
        tell_difference(call, call.source.version_diff(dag, *diff))
        return
    columns = (
        Column("version", right=True), Column("is_current", "current"), "created_at", "bundle", "file",
        Column("commit_id", "commit", lambda commit: commit[:12] if commit else ""),
        Column("content_hash", "content", lambda digest: digest[:12]),
    )  # fmt: skip
    call.out.rows(call.source.versions(dag), columns)


@command(app, "deactivate")
def deactivate(call: CliContext, dag: DagArgument) -> None:
    """Make a DAG inactive: nothing more is scheduled or can be asked for. What runs of it goes on. It comes back with new
    content, or when its file is parsed with `bfm bundles parse`.

    Example: [cyan]bfm dags deactivate flights[/]
    """
    _steer(call, dag, "deactivate")


def _steer(call: CliContext, dag: str, verb: Literal["pause", "unpause", "deactivate"]) -> None:
    from backfill_manager.cli.render.response import print_response, what_of

    request = call.source.steer_dag(dag, verb)
    dag_id = what_of(request)["dag_id"]
    print_response(call, request, f"{verb.capitalize()} {dag_id}", dag_id=dag_id)


def local(instant: str | None, timezone: str) -> str | None:
    from zoneinfo import ZoneInfo

    from backfill_manager.clock import parse_instant

    return None if instant is None else parse_instant(instant).astimezone(ZoneInfo(timezone)).isoformat(sep=" ")


def instant_for(call: CliContext, dag_id: str, text: str) -> datetime:
    """A date as typed, in the DAG's zone. A DAG that is being written may be unknown to the state, and its zone with
    it: then the date must tell its offset itself."""
    from backfill_manager.dags.schedule.timetable import parse_date
    from backfill_manager.queries import dags

    store = call.any_store
    if store.exists():
        try:
            return parse_date(text, dags.known_dag(store, dag_id)[1].timezone, name="--logical-date")
        except NotFound:
            pass
    here, there = (parse_date(text, zone, name="--logical-date") for zone in ("UTC", "Asia/Tokyo"))
    if here != there:
        raise InvalidInput(
            f"--logical-date {text!r} needs an offset, such as {text[:10]}T00:00:00-05:00: the state doesn't know "
            f"{dag_id!r} yet, nor its time zone."
        )
    return here
