"""`bfm tasks`: tasks of a DAG, their states in a run, what they logged."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from backfill_manager.cli.airflow_aliases import OF_TASKS_CLEAR
from backfill_manager.cli.backend.base import Document
from backfill_manager.cli.commands.dags import waits_for
from backfill_manager.cli.commands.runs import TASK_COLUMNS, with_spark_jobs
from backfill_manager.cli.context import CliContext, command, group
from backfill_manager.cli.render.output import Column, seconds
from backfill_manager.errors import NotFound
from backfill_manager.model.states import TASK_FINISHED

app = group("tasks", "Tasks of a DAG, their states in a run, their logs.")
DagArgument = Annotated[str, typer.Argument(metavar="DAG", help="The DAG's id.")]
RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="The run's id, a beginning of it, its logical date, or `latest`.")
]
TaskArgument = Annotated[str, typer.Argument(metavar="TASK", help="The task's id.")]
LOG_COLOURS = {"error": "red", "critical": "red", "warning": "yellow", "debug": "bright_black"}


@command(app, "list")
def list_(call: CliContext, dag: DagArgument) -> None:
    """List the tasks of a DAG's current version, each after those it waits for.

    Example: [cyan]bfm tasks list flights[/]
    """
    found = call.source.dag(dag)["tasks"]
    if call.out.is_table:
        found = [{**one, "waits_for": waits_for(one)} for one in found]
    columns = (
        "task_id", "kind", Column("waits_for", "waits for"), "trigger_rule", Column("retries", right=True),
        Column("timeout_s", "timeout", seconds, right=True), "depends_on_past", Column("pool", "pool"),
        Column("priority", right=True),
    )  # fmt: skip
    call.out.rows(found, columns)


@command(app, "states")
def states(call: CliContext, dag: DagArgument, run: RunArgument) -> None:
    """Show how each task of one run stands, and which Spark jobs its last try ran. Times are UTC.

    Example: [cyan]bfm tasks states flights latest[/]
    """
    found = run_of(call, dag, run)
    tasks = with_spark_jobs(call.source.tasks_of(found))
    call.out.rows(tasks, TASK_COLUMNS, empty=f"{found['run_id']} has no tasks yet.")


@command(app, "logs")
def logs(
    call: CliContext,
    dag: DagArgument,
    run: RunArgument,
    task: TaskArgument,
    try_number: Annotated[int | None, typer.Option("--try", min=1, metavar="N", help="Only this try.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on printing until the task has ended.")] = False,
) -> None:
    """Print what a task logged, all its tries or one of them. Lines appear a moment after they were written.

    Example: [cyan]bfm tasks logs flights latest clean --follow[/]
    """
    found = run_of(call, dag, run)
    lines, state = print_log(call, found, task, try_number=try_number, follow=follow)
    if not call.out.is_table:
        call.out.document(lines)
    elif not lines:
        of_try = f"try {try_number} of " if try_number else ""
        call.out.remark(f"{of_try}{task} in {found['run_id']} ({state}) has logged nothing.")


@command(app, "run")
def run(
    call: CliContext,
    dag: DagArgument,
    task: TaskArgument,
    logical_date: Annotated[str, typer.Argument(metavar="T", help="In the DAG's zone, unless it has an offset.")],
) -> int:
    """Run one task by hand for the interval that starts at T, outside any run of the schedule, and show its log. Exit
    code 1 when it fails. With no manager leading, one is started here for as long as there is something to do.

    Example: [cyan]bfm tasks run flights clean 2013-01-05[/]
    """
    from backfill_manager.cli.commands.run_one_task import run_one_task

    return run_one_task(call, dag, task, logical_date)


@command(app, "mark")
def mark(
    call: CliContext,
    dag: DagArgument,
    run: RunArgument,
    task: TaskArgument,
    state: Annotated[
        Literal["success", "failed", "skipped"],
        typer.Argument(metavar="success|failed|skipped", help="What it shall be."),
    ],
) -> None:
    """Set one task of a run to success, failed or skipped, whatever became of it; if it runs, it is stopped.

    Example: [cyan]bfm tasks mark flights 2013-01-05 clean success[/]
    """
    from backfill_manager.cli.render.response import print_response, what_of

    found = run_of(call, dag, run)
    request = call.source.mark_task(found, task, state)
    print_response(call, request, f"Mark {task} of {found['run_id']} {state}", **what_of(request))


@command(app, "clear", old=OF_TASKS_CLEAR)
def clear(
    call: CliContext,
    dag: Annotated[str, typer.Argument(metavar="DAG", help="The DAG's id, or with -R an expression found in it.")],
    dag_regex: Annotated[bool, typer.Option("--dag-regex", "-R", help="DAG is a regular expression.")] = False,
    from_: Annotated[
        str | None, typer.Option("--from", "-s", metavar="T", help="Runs of this logical date or later.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            "-e",
            metavar="T",
            help="Runs of this logical date or earlier (inclusive); a date alone is its whole day.",
        ),
    ] = None,
    run: Annotated[
        list[str] | None, typer.Option("--run", metavar="RUN", help="Only this run, of any kind; may be repeated.")
    ] = None,
    tasks: Annotated[
        str | None, typer.Option("--tasks", "-t", metavar="REGEX", help="Only tasks whose id matches.")
    ] = None,
    upstream: Annotated[bool, typer.Option("--upstream", "-u", help="And the tasks before them.")] = False,
    downstream: Annotated[bool, typer.Option("--downstream", "-d", help="And the tasks after them.")] = False,
    only_failed: Annotated[bool, typer.Option("--only-failed", "-f", help="Only those that failed.")] = False,
    only_running: Annotated[
        bool, typer.Option("--only-running", "-r", help="Only those that run; they are stopped first.")
    ] = False,
    latest_version: Annotated[
        bool, typer.Option("--latest-version", help="Run them with the DAG's current version, not the one they had.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Print what would be cleared, and no more.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
) -> int:
    """Have tasks that ran run again, in place, in runs of any kind. Prints what it will touch, and asks. Dates are in
    each DAG's own time zone, unless they carry an offset.

    Examples:

    [cyan]bfm tasks clear flights -s 2013-01-05 -e 2013-01-07 --only-failed[/]

    [cyan]bfm tasks clear flights -s 2013-01-05 -t '^clean$' --downstream --dry-run[/]
    """
    from backfill_manager.cli.commands.clearing import clear_tasks
    from backfill_manager.schemas.commands import ClearTasks

    ask = ClearTasks(
        dag_id=dag, is_regex=dag_regex, start_date=from_, end_date=to, run_ids=tuple(run or ()), tasks=tasks, upstream=upstream,
        downstream=downstream, only_failed=only_failed, only_running=only_running, latest_version=latest_version,
    )  # fmt: skip
    return clear_tasks(call, ask, dry_run=dry_run, yes=yes)


def print_log(
    call: CliContext, run: Document, task: str, *, try_number: int | None = None, follow: bool = False
) -> tuple[list[Document], str]:
    """Print what a task logged (for people), with `follow` until it has ended. Returns the lines, and its state."""
    seen: tuple[int, int] | None = None
    lines: list[Document] = []
    over = False
    while True:
        # A tick commits a task's end before its log, and its run's end after it: a run that has ended has its whole log,
        # a task alone gets one more look.
        was_over = over
        log = call.source.log(run, task, try_number=try_number, after=seen)
        for line in log.lines:
            _print(call, line)
        lines, seen = lines + log.lines, log.seen or seen
        over = log.state in TASK_FINISHED
        if not follow or (over and (was_over or log.is_whole)):
            return lines, log.state
        call.pause(0.5)


def run_of(call: CliContext, dag_id: str, run: str) -> Document:
    """The run; of a DAG that is or ever was there: what ran can be read after its DAG is gone."""
    try:
        return call.source.run(run, dag_id)
    except NotFound:
        if not call.source.timeline(dag_id, 1):
            call.source.dag(dag_id)
        raise


def _print(call: CliContext, line: dict[str, Any]) -> None:
    from rich.text import Text

    text = Text(f"{line['at']} ", style="bright_black")
    text.append(f"[{line['try_number']}] {line['level']:<7} ", style=LOG_COLOURS.get(line["level"].lower(), "cyan"))
    call.out.line(text.append(line["message"], style="default"))
