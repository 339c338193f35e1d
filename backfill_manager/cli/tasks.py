"""`bfm tasks`: tasks of a DAG, their states in a run, what they logged."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from backfill_manager.cli.call import Call, command, group
from backfill_manager.cli.output import Column, seconds
from backfill_manager.cli.runs import TASK_COLUMNS
from backfill_manager.model.states import TASK_FINISHED

app = group("tasks", "Tasks of a DAG, their states in a run, their logs.")
DagArgument = Annotated[str, typer.Argument(metavar="DAG", help="The DAG's id.")]
RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="The run's id, a beginning of it, its logical date, or `latest`.")
]
LOG_COLOURS = {"error": "red", "critical": "red", "warning": "yellow", "debug": "bright_black"}


@command(app, "list")
def list_(call: Call, dag: DagArgument) -> None:
    """List the tasks of a DAG's current version, each after those it waits for.

    Example: [cyan]bfm tasks list flights[/]
    """
    from backfill_manager.views import dags

    found = dags.list_tasks(dags.current_dag(call.store, dag)[1])
    columns = (
        "task_id", "kind", Column("upstream", "waits for", ", ".join), "trigger_rule", Column("retries", right=True),
        Column("timeout_s", "timeout", seconds, right=True), "depends_on_past", Column("pool", "pool"),
        Column("priority", right=True),
    )  # fmt: skip
    call.out.rows(found, columns)


@command(app, "states")
def states(call: Call, dag: DagArgument, run: RunArgument) -> None:
    """Show how each task of one run stands. Times are UTC.

    Example: [cyan]bfm tasks states flights latest[/]
    """
    from backfill_manager.views import runs, tasks

    row = runs.find_run(call.store, run, dag_id=dag_of(call, dag))
    call.out.rows(tasks.list_task_instances(call.store, row), TASK_COLUMNS, empty=f"{row.run_id} has no tasks yet.")


@command(app, "logs")
def logs(
    call: Call,
    dag: DagArgument,
    run: RunArgument,
    task: Annotated[str, typer.Argument(metavar="TASK", help="The task's id.")],
    try_number: Annotated[int | None, typer.Option("--try", min=1, metavar="N", help="Only this try.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on printing until the task has ended.")] = False,
) -> None:
    """Print what a task logged, all its tries or one of them. Lines appear a moment after they were written.

    Example: [cyan]bfm tasks logs flights latest clean --follow[/]
    """
    from backfill_manager.views import runs, tasks

    row = runs.find_run(call.store, run, dag_id=dag_of(call, dag))
    seen: tuple[int, int] = (0, -1)
    lines: list[dict[str, Any]] = []
    while True:
        # The state first: lines that come between the two looks are then not lost.
        state = tasks.find_task_instance(call.store, row, task).state
        new = tasks.list_log_lines(call.store, row, task, try_number=try_number, after=seen)
        for line in new:
            _print(call, line)
            seen = (line["launch"], line["line"])
        lines += new
        if not follow or state in TASK_FINISHED:
            break
        call.pause(0.5)
    if not call.out.is_table:
        call.out.document(lines)
    elif not lines:
        of_try = f"try {try_number} of " if try_number else ""
        call.out.remark(f"{of_try}{task} in {row.run_id} ({state}) has logged nothing.")


def dag_of(call: Call, dag_id: str) -> str:
    """The DAG's id, if it is or ever was there: what ran can be read after its DAG is gone."""
    from backfill_manager.model.records import DagRun
    from backfill_manager.store.contract import Condition
    from backfill_manager.views import dags

    if not call.store.read(DagRun, [Condition("dag_id", "=", dag_id)], limit=1):
        dags.current_dag(call.store, dag_id)
    return dag_id


def _print(call: Call, line: dict[str, Any]) -> None:
    from rich.text import Text

    text = Text(f"{line['at']} ", style="bright_black")
    text.append(f"[{line['try_number']}] {line['level']:<7} ", style=LOG_COLOURS.get(line["level"].lower(), "cyan"))
    call.out.line(text.append(line["message"], style="default"))
