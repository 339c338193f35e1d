"""`bfm tasks`: tasks of a DAG, their states in a run, their logs; mark them, clear them, run one by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

from rich.text import Text

from backfill_manager.cli.airflow_aliases import OF_TASKS_CLEAR
from backfill_manager.cli.backend.base import Document, accepted
from backfill_manager.cli.backend.watched import WatchedBackend
from backfill_manager.cli.command import Group
from backfill_manager.cli.commands.dags import WAITS_FOR
from backfill_manager.cli.commands.runs import task_columns, with_spark_jobs
from backfill_manager.cli.context import CliContext
from backfill_manager.cli.options import CONF, Dag, RunOfDag, Task, argument, flag, option
from backfill_manager.cli.render.plan import clear_summary, print_clear_plan
from backfill_manager.cli.render.printer import Column, first_line, seconds
from backfill_manager.cli.render.response import carry_out_plan, submit, wait_for_response
from backfill_manager.errors import BackfillManagerError, NotFound
from backfill_manager.humanise import size, visible
from backfill_manager.model.states import SKIPPED, SUCCESS, TASK_FINISHED
from backfill_manager.schemas.request_kinds import TASK_MARK, TASK_RUN, TASKS_CLEAR

RUN_TIMEOUT_S: Final = 60.0
LOG_POLL_INTERVAL_S: Final = 0.5
_LOG_COLOURS: Final = {"error": "red", "critical": "red", "warning": "yellow", "debug": "bright_black"}

group = Group("tasks", "Tasks of a DAG, their states in a run, their logs; clear and mark them.")


@group.command("list")
def list_(context: CliContext, dag: Dag) -> None:
    """List the tasks of a DAG's current version in topological order.

    Example: [cyan]bfm tasks list flights[/]
    """
    columns = (
        "task_id", "kind", WAITS_FOR, "trigger_rule", Column("retries", right=True),
        Column("timeout_s", "timeout", seconds, right=True), "depends_on_past", "pool", Column("priority", right=True),
    )  # fmt: skip
    context.out.print_rows(context.backend.dag(dag)["tasks"], columns)


@group.command("states")
def states(context: CliContext, dag: Dag, run: RunOfDag) -> None:
    """Show the state of each task of one run, and which Spark jobs its last try ran. Times are UTC, or as
    --timezone says.

    Example: [cyan]bfm tasks states flights latest[/]
    """
    document = _run(context, dag, run)
    tasks = with_spark_jobs(context.backend.run_tasks(document))
    context.out.print_rows(tasks, task_columns(context.clock.now()), empty=f"{document['run_id']} has no tasks yet.")


@group.command("logs")
def logs(
    context: CliContext,
    dag: Dag,
    run: RunOfDag,
    task: Task,
    try_number: int | None = option("--try", "Only this try.", min=1, metavar="N"),
    follow: bool = flag("--follow -f", "Keep printing new lines until the task has ended."),
) -> None:
    """Print what a task logged, in all its tries or one of them. Lines appear a moment after they were written.

    Example: [cyan]bfm tasks logs flights latest clean --follow[/]
    """
    document = _run(context, dag, run)
    lines, state = _print_log(context, document, task, try_number=try_number, follow=follow)
    if try_number is not None and not lines:
        _check_try(document, task, try_number, context.backend.run_tasks(document, task))
    if not context.out.is_table:
        context.out.print_document(lines)
    elif not lines:
        of_try = f"try {try_number} of " if try_number else ""
        yet = "" if state in TASK_FINISHED else " yet"
        context.out.note(f"{of_try}{task} in {document['run_id']} ({state}) has logged nothing{yet}.")


@group.command("checks")
def checks(
    context: CliContext,
    dag: Dag,
    run: RunOfDag,
    task: str | None = argument("[TASK]", "Id of the task. Without it: all tasks.", default=None, show_default=False),
) -> None:
    """Show what the checks of a run's tasks found in the rows that were about to be published, in each try.

    Example: [cyan]bfm tasks checks flights latest clean[/]
    """
    columns = (
        Column("task_id", "task"), Column("try_number", "try", right=True), Column("table", fold=True), "outcome",
        Column("name", optional=True), Column("condition", "check", first_line, fold=True),
        Column("failing_rows", "failing", right=True), Column("rows", right=True),
        Column("message", "found", first_line, fold=True),
    )  # fmt: skip
    document = _run(context, dag, run)
    empty = f"No rows were checked in {document['run_id']}; `checks=[...]` of a task declares what must hold of them."
    context.out.print_rows(context.backend.checks(document, task), columns, empty=empty)


@group.command("stages")
def stages(
    context: CliContext,
    dag: Dag,
    run: RunOfDag,
    task: Task,
    try_number: int | None = option("--try", "Only this try.", min=1, metavar="N"),
) -> None:
    """Show what the Spark stages of a task did, in each try that has ended. First all of them added up, then the longest
    ones. `skew` is a stage's longest task divided by its median.

    Example: [cyan]bfm tasks stages flights latest clean[/]
    """
    columns = (
        Column("try_number", "try", right=True), Column("stage_id", "stage", right=True), Column("name", fold=True),
        Column("status", optional=True), Column("duration_s", "duration", seconds, right=True), Column("tasks", right=True),
        Column("skew", right=True), Column("input_rows", "rows read", right=True, optional=True),
        Column("input_bytes", "read", size, right=True), Column("output_rows", "rows written", right=True, optional=True),
        Column("output_bytes", "written", size, right=True),
        Column("shuffle_read_bytes", "shuffle read", size, right=True),
        Column("shuffle_write_bytes", "shuffle written", size, right=True),
        Column("spilled_bytes", "spilled", size, right=True),
    )  # fmt: skip
    document = _run(context, dag, run)
    found = context.backend.run_tasks(document, task)
    if try_number is not None:
        _check_try(document, task, try_number, found)
    tries = [
        {name: one[name] for name in ("try_number", "launch", "term", "state", "spark_jobs", "spark_stages")}
        for one in found["tries"]
        if try_number in (None, one["try_number"])
    ]
    empty = f"No Spark stages of {task} in {document['run_id']} are known."
    context.out.print_rows([*_stage_rows(tries)], columns, empty=empty, document=tries)


def _stage_rows(tries: list[Document]) -> Iterator[Document]:
    for one in tries:
        if (found := one["spark_stages"]) is not None:
            alone = {"stage_id": None, "status": None, "duration_s": None, "skew": None}
            yield {"try_number": one["try_number"], **alone, **found, "name": f"all {found['stages']:,} stages"}
            for stage in found["longest"]:
                yield {"try_number": one["try_number"], **stage}


@group.command("mark")
def mark(
    context: CliContext,
    dag: Dag,
    run: RunOfDag,
    task: Task,
    state: Literal["success", "failed", "skipped"] = argument("success|failed|skipped", "State to set."),
) -> None:
    """Set one task of a run to success, failed or skipped, whatever its state is; if it runs, it is stopped.

    Example: [cyan]bfm tasks mark flights 2013-01-05 clean success[/]
    """
    values = {"dag_id": dag, "run_id": _run(context, dag, run)["run_id"], "task_id": task, "state": state}
    submit(context, TASK_MARK, values, "Mark {task_id} of {run_id} {state}")


@group.command("clear", schema="commands.ClearTasks", without=("dag_id",), aliases=OF_TASKS_CLEAR)
def clear(
    context: CliContext,
    values: Document,
    dag: str = argument("DAG", "Id of the DAG. With -R: a regular expression that is searched for in ids."),
    dry_run: bool = flag("--dry-run -n", "Print what would be cleared, and change nothing."),
    yes: bool = flag("--yes -y", "Don't ask for confirmation."),
) -> int:
    """Clear tasks that have run, so that they run again in place, in runs of any type. Prints which, and asks. Dates are in
    each DAG's own time zone unless they carry an offset.

    Examples:

    [cyan]bfm tasks clear flights -s 2013-01-05 -e 2013-01-07 --only-failed[/]

    [cyan]bfm tasks clear flights -s 2013-01-05 -t '^clean$' --downstream --dry-run[/]
    """
    values = {"dag_id": dag, **values}

    def action(plan: Document) -> str:
        return f"Clear {clear_summary(plan['summary'])}"

    return carry_out_plan(context, TASKS_CLEAR, values, print_clear_plan, action, dry_run=dry_run, yes=yes)


@group.command("run")
def run(
    context: CliContext,
    dag: Dag,
    task: Task,
    logical_date: str = argument("T", "Logical date, in the DAG's zone unless it has an offset."),
    conf: str | None = CONF,
) -> int:
    """Run one task by hand for the interval that starts at T, outside the schedule, and show its log. Exit code 1 if it
    fails. With no manager running, one is started here until there is nothing left to do.

    Example: [cyan]bfm tasks run flights clean 2013-01-05[/]
    """
    from backfill_manager.queries.dags import current_dag
    from backfill_manager.queries.named_run import find_run
    from backfill_manager.queries.runs import run_details
    from backfill_manager.queries.tasks import list_task_instances
    from backfill_manager.requests.checked_payloads import task_by_hand
    from backfill_manager.requests.json_input import parse_conf

    # Not for a server: REST has no route for it.
    backend = context.local_backend(
        f"have it run again in an existing run: `bfm tasks clear {dag} --run RUN -t '^{task}$'`"
    )
    _, spec = current_dag(backend.store, dag)
    ids = [one.task_id for one in spec.work]
    if task not in ids:
        why = f"; {task} is a callback: clear it to have it called again." if spec.is_callback(task) else ""
        raise NotFound(f"task of {dag!r}", task, () if why else ids, more=why or f"; it has {', '.join(ids)}.")
    values = task_by_hand(spec, task, logical_date, parse_conf(conf))
    has_manager = backend.has_active_manager()
    request = backend.submit(TASK_RUN, values)
    if has_manager:
        response = wait_for_response(context, request, RUN_TIMEOUT_S)
        problem = f"The manager has not begun it within {RUN_TIMEOUT_S:g} s; it continues:"
    else:
        from backfill_manager.manager.manager import run_manager

        if context.out.is_table:
            context.out.note("No manager is running: one is started here, which starts Spark and takes some seconds.")
        run_manager(context.settings, state=context.settings.state, until_idle=True)
        response = backend.wait(request, 0)
        problem = "The manager ended without an answer; see"
    if response is None:
        raise BackfillManagerError(f"{problem} `bfm requests show {request.request_id}`.")
    row = find_run(backend.store, str(accepted(response).object_id), dag_id=dag)
    if context.out.is_table:
        context.out.note(f"{task} of {dag} runs as {row.run_id}.")
    lines, state = _print_log(context, run_details(row), task, follow=has_manager)
    [result] = list_task_instances(backend.store, row, task)
    error = f": {result['error']}" if result["error"] else ""
    context.out.print_result({**result, "logs": lines}, f"{task} of {dag} for {logical_date}: {state}{error}")
    return 0 if state in (SUCCESS, SKIPPED) else 1


def _print_log(
    context: CliContext, run: Document, task: str, *, try_number: int | None = None, follow: bool = False
) -> tuple[list[Document], str]:
    """Prints what a task logged (for people), with `follow` until it has ended. Returns the lines, and its state."""
    last: tuple[int, int] | None = None
    lines: list[Document] = []
    has_ended = False
    backend = WatchedBackend(context, "task", lambda text: context.out.note(text, style="yellow"))
    read = backend.log if follow else context.backend.log
    while True:
        # A tick commits a task's end before its log, and its run's end after it: a run that has ended has its whole log,
        # a task alone is read once more.
        had_ended = has_ended
        new, state, is_whole = read(run, task, try_number=try_number, after=last)
        for line in new:
            at = context.out.in_zone(line, run["dag_id"])["at"]
            style = _LOG_COLOURS.get(line["level"].lower(), "cyan")
            level = (f"[{line['try_number']}] {line['level']:<7} ", style)
            context.out.print_line(
                Text.assemble((f"{at} ", "bright_black"), level, (visible(line["message"]), "default"))
            )
        lines += new
        last = (lines[-1]["launch"], lines[-1]["line"]) if lines else None
        has_ended = state in TASK_FINISHED
        if not follow or (has_ended and (had_ended or is_whole)):
            return lines, state
        if not has_ended:
            backend.look_for_manager()
        context.pause(LOG_POLL_INTERVAL_S)


def _check_try(run: Document, task: str, try_number: int, found: Document) -> None:
    """`NotFound` for one that there never was, by what `run_tasks` found. (Older ones may have been deleted.)"""
    last = max((one["try_number"] for one in (*found["tasks"], *found["tries"])), default=0)
    if try_number > last:
        more = f"; the last one is {last}." if last else "; it has not been started yet."
        raise NotFound(f"try of {task!r} in {run['run_id']} with the number", str(try_number), more=more)


def _run(context: CliContext, dag_id: str, run: str) -> Document:
    """The run; of a DAG that is or ever was there: what ran can be read after its DAG is gone."""
    try:
        return context.backend.run(run, dag_id=dag_id)
    except NotFound:
        if not context.backend.timeline(dag_id, limit=1):
            context.backend.dag(dag_id)
        raise
