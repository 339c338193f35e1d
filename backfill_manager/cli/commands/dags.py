"""`bfm dags`: DAGs, their next intervals, versions and import errors."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, Final, Literal
from zoneinfo import ZoneInfo

from rich.text import Text

from backfill_manager.cli.backend.base import Document
from backfill_manager.cli.command import Group
from backfill_manager.cli.commands.runs import task_columns
from backfill_manager.cli.context import CliContext
from backfill_manager.cli.options import CONF, Dag, argument, flag, option
from backfill_manager.cli.render.errors import option_of
from backfill_manager.cli.render.plan import note_unknown_pools, print_mark_plan
from backfill_manager.cli.render.printer import COMMIT, ERROR_COLUMNS, Column, Output, seconds
from backfill_manager.cli.render.rendered import print_rendered
from backfill_manager.cli.render.response import carry_out_plan, outcome_of, submit, wait_for_response
from backfill_manager.clock import parse_instant
from backfill_manager.errors import InvalidInput, NotFound
from backfill_manager.humanise import duration, name_list, plural
from backfill_manager.schemas.params import list_params
from backfill_manager.schemas.request_kinds import DAG_DEACTIVATE, DAG_PAUSE, DAG_TRIGGER, DAG_UNPAUSE, RUNS_MARK

group = Group(
    "dags", "DAGs: list, trigger and pause them; their next intervals, versions, files that could not be read."
)
_DIFF_STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}


def _format_schedule(dag: Document) -> str:
    value = dag["schedule"]
    if isinstance(value, dict):
        return f"every {seconds(value['seconds'])}"
    return "manual" if value is None else str(value)


def _waits_for(task: Document) -> str:
    """The upstream tasks and the data; of a callback, the event that it is called on."""
    if task["calls_back"] is None:
        return ", ".join([*task["upstream"], *task.get("waits_for", ())])
    event = {"success": "success", "failed": "failure"}[task["calls_back"]]
    return f"callback: {event} of {task['watches'] or 'the run'}"


NEXT_WAITS: Final = Column("waits_for", "waits for", ", ".join, fold=True)
WAITS_FOR: Final = Column("waits_for", "waits for", of=_waits_for)


@group.command("list")
def list_(
    context: CliContext, all_: bool = flag("--all -a", "Also list inactive DAGs, which no file defines any more.")
) -> None:
    """List the DAGs: schedule, zone, version, file, and when the next scheduled run is due.

    Example: [cyan]bfm dags list --output json[/]
    """
    columns = (
        "dag_id", Column("schedule", of=_format_schedule), "timezone", Column("is_paused", "paused"),
        Column("version", right=True, optional=True), Column("file", optional=True), Column("next_due_at", "next due"),
        Column("inactive_reason", "not active", fold=True),
    )  # fmt: skip
    empty = "No DAGs yet: a manager loads them from its bundles, in its first seconds (`bfm manager start`)."
    context.out.print_rows(context.backend.dags(active=None if all_ else True), columns, empty=empty)
    if broken := len(context.backend.import_errors()):
        context.out.note(f"{plural(broken, 'file')} could not be read: see `bfm dags import-errors`.")


@group.command("show")
def show(context: CliContext, dag: Dag) -> None:
    """Show one DAG: its schedule in words, its tasks and what they wait for, its number of runs by state.

    Example: [cyan]bfm dags show flights[/]
    """
    document = context.out.in_zone(context.backend.dag(dag))
    other = {
        "tasks", "schedule", "schedule_in_words", "runs", "is_active", "inactive_since", "inactive_reason", "declared_params",
        "expected_by_s", "notify", "unknown_pools", "exclude_dates",
    }  # fmt: skip
    fields = [(name, value) for name, value in document.items() if name not in other]
    schedule, in_words = _format_schedule(document), document["schedule_in_words"]
    fields.insert(1, ("not active", document["inactive_reason"]))
    fields.insert(2, ("schedule", schedule if in_words in (None, schedule) else f"{schedule}: {in_words}"))
    if document["exclude_dates"]:
        fields.append(("excluded dates", name_list(document["exclude_dates"])))
    if (expected := document["expected_by_s"]) is not None:
        fields.append(("expected by", f"{duration(expected)} after the end of an interval"))
    fields.append(("notifies", ", ".join(document["notify"])))
    runs = ", ".join(f"{number} {state}" for state, number in document["runs"].items())
    context.out.print_fields(document, [*fields, ("runs", runs or "none yet")])
    note_unknown_pools(context, dag, document.get("unknown_pools", {}))
    columns = ("task_id", "kind", WAITS_FOR, "trigger_rule", Column("retries", right=True), "depends_on_past")
    if context.out.is_table:
        context.out.print_line("")
        context.out.print_rows(document["tasks"], columns)
        if params := list_params(document["params"], document["declared_params"]):
            context.out.print_line("")
            context.out.print_rows(params, ("param", "default", "type", "choices", Column("description", fold=True)))


@group.command("next")
def next_(
    context: CliContext,
    dag: Dag,
    n: int = option("-n", "Number of intervals.", min=1, max=10_000, metavar="N", default=1),
) -> None:
    """Show the next scheduled intervals of a DAG, and when each is due. An interval is due at its end. The schedule
    continues from the latest scheduled or backfill run of the timeline; manual runs and runs in the future don't move it.
    Times are UTC, or as --timezone says; `start in` is the start in the DAG's zone. What its tasks will wait for before
    they start is listed, too.

    Example: [cyan]bfm dags next flights -n 5[/]
    """
    spec = context.backend.dag(dag)
    intervals = context.backend.next_intervals(dag, n)
    zone = spec["timezone"]

    def local(instant: str) -> str:
        return parse_instant(instant).astimezone(ZoneInfo(zone)).isoformat(sep=" ")

    columns = (
        "interval_start", "interval_end", Column("due_at", "due"),
        Column("interval_start", f"start in {zone}", local),
        *([NEXT_WAITS] if any(one.get("waits_for") for one in intervals) else ()),
    )  # fmt: skip
    empty = (
        f"{dag} is not active: {spec['inactive_reason']}."
        if not spec["is_active"]
        else f"{dag} has no schedule: it runs when it is triggered."
        if spec["schedule"] is None
        else f"{dag} has no interval left: its end_date is {local(spec['end_date'])}."
        if spec["end_date"] is not None
        else f"{dag} has no interval left."
    )
    context.out.print_rows(intervals, columns, empty=empty, dag_id=dag)
    if context.out.is_table and spec["is_paused"] and intervals:
        context.out.note(f"{dag} is paused: none of these will run until it is unpaused.")


@group.command("trigger", schema="commands.TriggerInput")
def trigger(
    context: CliContext, values: Document, dag: Dag,
    wait: bool = flag("--wait", "Watch the run until it ends. Exit code 1 if it fails."),
) -> int:  # fmt: skip
    """Trigger one run of a DAG: for the interval that starts at T, or for the one that the manager chooses.

    It does not move the schedule. When the schedule reaches the date, it skips it if the run was triggered after its
    interval had ended, and runs it again if it was triggered before.

    Example: [cyan]bfm dags trigger flights --logical-date 2013-01-05 --conf '{"full": true}' --wait[/]
    """
    request = context.backend.submit(DAG_TRIGGER, {"dag_id": dag, **values})
    response = wait_for_response(context, request)
    run_id = response.object_id if response else None
    run, code = None, 0
    if wait and response is not None and run_id is not None:
        from backfill_manager.cli.commands.run_watch import run_summary, watch_run  # costs more than a light command

        context.out.note(f"Triggered: {response.message}.")
        code, run = watch_run(context, dag, run_id)
        if context.out.is_table:
            if run is not None:
                context.out.print_line(run_summary(run))
            return code
    elif wait:
        code = 1  # nobody has answered, which is said above; there is no run to watch yet
    elif run_id is not None and not context.out.is_table:
        with suppress(NotFound):  # created, and not committed yet
            run = context.backend.run(run_id, dag_id=dag)
    text = (
        f"Triggered: {response.message}." if response else f"Trigger {dag}: submitted (request {request.request_id})."
    )
    context.out.print_result({**outcome_of(request, response, dag_id=dag), "run_id": run_id, "run": run}, text)
    return code


def _add(name: str, kind: str, help: str) -> None:
    """A command with no options of its own."""

    def run(context: CliContext, dag: Dag) -> None:
        submit(context, kind, {"dag_id": dag}, f"{name.capitalize()} {{dag_id}}", "dag_id")

    run.__doc__ = f"{help}\n\nExample: [cyan]bfm dags {name} flights[/]"
    group.command(name)(run)


_add("pause", DAG_PAUSE, "Pause a DAG: no scheduled run of it is created. Its backfills have a pause of their own.")
_add("unpause", DAG_UNPAUSE, "Unpause a DAG: its scheduled runs start again.")
_add(
    "deactivate", DAG_DEACTIVATE,
    "Make a DAG inactive: nothing more is scheduled, triggered or backfilled; running runs continue. It becomes active "
    "again with new content, or when its file is parsed with `bfm bundles parse`.",
)  # fmt: skip


@group.command("mark", schema="commands.MarkRuns", without=("dag_id", "state"))
def mark(
    context: CliContext,
    values: Document,
    dag: Dag,
    state: Literal["success", "failed"] = argument("success|failed", "State to set."),
    dry_run: bool = flag("--dry-run -n", "Print what would be marked, and change nothing."),
    yes: bool = flag("--yes -y", "Don't ask for confirmation."),
) -> int:
    """Set several runs of a DAG to success or failed. Choose them by date, by id, or as the items of a backfill; it prints
    which, and asks. Runs that have the state already stay as they are; running tasks are stopped first.

    Examples:

    [cyan]bfm dags mark flights success -s 2013-01-05 -e 2013-01-07[/]

    [cyan]bfm dags mark flights failed --backfill latest --item 3 --item 7-12 --dry-run[/]
    """
    values = {"dag_id": dag, "state": state, **values}

    def action(plan: Document) -> str:
        return f"Mark {plural(plan['summary']['runs'], 'run')} {state}"

    return carry_out_plan(context, RUNS_MARK, values, print_mark_plan, action, dry_run=dry_run, yes=yes)


@group.command("test")
def test(
    context: CliContext,
    dag: Dag,
    logical_date: str | None = option(
        "--logical-date", "Logical date, in the DAG's zone unless it has an offset.", metavar="T"
    ),
    partition: str | None = option(
        "--partition", "Partition key that is not a date. Such a run has no date and no interval.", metavar="KEY"
    ),
    conf: str | None = CONF,
) -> int:
    """Run a DAG once in this process, with a Spark session of its own and without a manager. Nothing of the run is kept in
    the state. Its output tables are the real ones, and each test writes them again. A task that fails is retried at once,
    whatever its `retry_delay`. Exit code 1 if the run fails.

    Example: [cyan]bfm dags test flights --logical-date 2013-01-05 --conf '{"full": true}'[/]
    """
    # Not a command of the backend: nothing is submitted, the run exists in this process alone.
    context.local_backend(f"have the server's manager run it: `bfm dags trigger {dag}`")
    from backfill_manager.manager.dag_test_run import run_dag_once
    from backfill_manager.requests.json_input import parse_conf

    out = context.out
    how: dict[str, Any] = {"partition_key": partition, "conf": parse_conf(conf)}
    if out.is_table:
        how["on_line"] = out.print_line
    result = run_dag_once(context.settings, dag, logical_date, **how)
    if out.is_table:
        out.print_line("")
        out.print_fields(result["run"])
        out.print_line("")
        out.print_rows(result["tasks"], task_columns(context.clock.now()))
    else:
        out.print_document(result)
    return 0 if result["run"]["state"] == "success" else 1


@group.command("render")
def render(
    context: CliContext,
    dag: Dag,
    date: str | None = argument("DATE", "Logical date, in the DAG's zone unless it has an offset.", None),
    task: str | None = argument("TASK", "Only this task.", None),
    partition: str | None = option(
        "--partition", "Partition key, instead of DATE. TASK then comes after DAG.", metavar="KEY"
    ),
    conf: str | None = CONF,
) -> None:
    """Show what the tasks of a run would see: SQL with its parameters, params, interval. Nothing runs. Without DATE, it is
    the latest complete interval.

    Example: [cyan]bfm dags render flights 2013-01-05[/]
    """
    from backfill_manager.requests.json_input import parse_conf

    if partition is not None and task is None:
        date, task = None, date
    try:
        shown = context.backend.render(dag, date, task_id=task, partition_key=partition, conf=parse_conf(conf))
    except InvalidInput as error:
        # The date is an argument here, not an option.
        text = error.worded(lambda field: "DATE" if field == "logical_date" else option_of(field))
        raise InvalidInput(text) from None
    if context.out.is_table:
        print_rendered(context.out, shown)
    else:
        context.out.print_document(shown)


@group.command("schema")
def schema(context: CliContext) -> None:
    """Print the JSON Schema of `*.dag.yaml` files, for editors.

    Example: [cyan]bfm dags schema > dag.schema.json[/]
    """
    from backfill_manager.dags.yaml import json_schema

    context.out.print_document(json_schema.schema())


@group.command("import-errors")
def import_errors(context: CliContext) -> None:
    """List the files that could not be read: where, and what is wrong. The last good version of their DAGs stays active.

    Example: [cyan]bfm dags import-errors --output json[/] (with tracebacks)
    """
    columns = ("bundle", *ERROR_COLUMNS, Column("first_seen_at", "since"))
    empty = "No import errors in the files that a manager has read."
    context.out.print_rows(context.backend.import_errors(), columns, empty=empty)


@group.command("versions")
def versions(
    context: CliContext,
    dag: Dag,
    diff: tuple[int, int] | None = option(
        "--diff", "Print the differences between two versions: settings, tasks and code.", metavar="OLD NEW"
    ),
) -> None:
    """List the versions of a DAG, newest first. A new one is created when the definition changes, or the code that it may
    run; a run keeps the version that it was created with.

    Example: [cyan]bfm dags versions flights --diff 1 2[/]
    """
    if diff is not None:
        _print_version_diff(context.out, context.backend.version_diff(dag, *diff))
        return
    columns = (
        Column("version", right=True), Column("is_current", "current"), "created_at", "bundle", "file", COMMIT,
        Column("content_hash", "content", lambda digest: digest[:12]),
    )  # fmt: skip
    context.out.print_rows(context.backend.versions(dag), columns)


def _print_version_diff(out: Output, diff: Document) -> None:
    """For people: settings, tasks, then code as a unified diff."""
    if not out.is_table:
        out.print_document(diff)
        return
    out.print_line(f"{diff['dag_id']}: version {diff['before']} -> {diff['after']}")
    for setting in diff["settings"]:
        out.print_line(f"  {_changed(setting)}")
    for task in diff["tasks"]:
        out.print_line(f"  task {task['task_id']}: {task['change']}")
        for setting in task["settings"]:
            out.print_line(f"    {_changed(setting)}")
    if diff["files"] is None:
        out.note("The files of these versions are not on this machine: they are kept where the manager runs.")
        return
    for file in diff["files"]:
        out.print_line("")
        for line in file["diff"].splitlines():
            out.print_line(Text(line, style=_DIFF_STYLES.get(line[:1], "")))
    if not (diff["settings"] or diff["tasks"] or diff["files"]):
        out.print_line("  no difference in what it runs")


def _changed(setting: Document) -> str:
    before, after = (json.dumps(setting[side], ensure_ascii=False) for side in ("before", "after"))
    return f"{setting['name']}: {before} -> {after}"
