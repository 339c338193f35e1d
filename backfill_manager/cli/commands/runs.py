"""`bfm runs`: DAG runs of any type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final, Literal, cast

from backfill_manager.cli import options as o
from backfill_manager.cli.backend.base import Document
from backfill_manager.cli.command import Group
from backfill_manager.cli.context import CliContext
from backfill_manager.cli.render.printer import DEFAULT_LIMIT, NOTE, Column, first_line, seconds, shortened
from backfill_manager.cli.render.response import submit
from backfill_manager.clock import parse_instant
from backfill_manager.model import states as s
from backfill_manager.schemas.request_kinds import RUN_CANCEL, RUN_MARK, RUN_NOTE, RUN_REVERT

group = Group("runs", "DAG runs of any type: list, draw the timeline, cancel, mark, revert, write notes.")
_GLYPHS: Final = {
    s.QUEUED: "◌", s.RUNNING: "◐", s.SUCCESS: "●", s.FAILED: "✗", s.CANCELLED: "⊘", s.OVERRIDDEN: "○",
}  # fmt: skip
_TASKS = Column("is_partial", "tasks", lambda is_partial: "partial" if is_partial else "all", optional=True)


_REVERTED = Column("reverted_at", "reverted", optional=True)


def task_columns(now: datetime) -> tuple[Column | str, ...]:
    return (
        "task_id", "state", Column("try_number", "try", right=True), Column("pool", optional=True),
        Column("started_at", "started"), _duration(now), Column("spark_jobs", "spark jobs", shortened, optional=True),
        Column("error", None, first_line, fold=True),
    )  # fmt: skip


def _run_columns(now: datetime) -> tuple[Column | str, ...]:
    return (
        "run_id", "dag_id", Column("run_type", "type", optional=True), "state", _TASKS, _REVERTED,
        Column("started_at", "started", optional=True), _duration(now), Column("backfill_id", "backfill", optional=True),
        Column("dag_version", "version", right=True, optional=True), Column("reason", None, first_line, fold=True),
        NOTE,
    )  # fmt: skip


def _duration(now: datetime) -> Column:
    return Column("duration_s", "duration", seconds, right=True, of=partial(_seconds_so_far, now=now))


def _seconds_so_far(row: Document, now: datetime) -> float | None:
    """How long a run or task took; of one that runs, until `now`."""
    if row["state"] != s.RUNNING or row["started_at"] is None:
        return cast("float | None", row["duration_s"])
    started = row["started_at"]
    return max(0.0, (now - (parse_instant(started) if isinstance(started, str) else started)).total_seconds())


@group.command("list")
def list_(
    context: CliContext,
    dag: str | None = o.DAG_FILTER,
    backfill: str | None = o.option("--backfill", "Only runs of this backfill (id or prefix of it).", metavar="ID"),
    state: list[str] | None = o.RUN_STATE,
    run_type: Literal["scheduled", "backfill", "manual", "external", "preview"] | None = o.option(
        "--type", "Only runs of this type.", show_default=False
    ),
    limit: int | None = o.LIMIT,
) -> None:
    """List runs, newest first. Times are UTC, or as --timezone says.

    Example: [cyan]bfm runs list --backfill latest --state failed[/]
    """
    states = o.chosen_states("runs list", "run", state, s.RUN_STATES)
    limit = context.out.limit(limit)
    rows = context.backend.runs(
        dag_id=dag or None, backfill_id=backfill or None, state=states, run_type=run_type, limit=limit
    )
    some_are_partial = any(run["is_partial"] for run in rows)
    left_out = [
        *([] if some_are_partial else [_TASKS]),
        *([] if any(run["reverted_at"] for run in rows) else [_REVERTED]),
        *([] if any(run["note"] for run in rows) else [NOTE]),
    ]
    columns = [one for one in _run_columns(context.clock.now()) if one not in left_out]
    context.out.print_rows(rows, columns, empty="No runs.", limit=limit)


@group.command("show")
def show(context: CliContext, run: o.Run, dag: str | None = o.DAG_OF_RUN) -> None:
    """Show one run: its interval, its place in the timeline, its tasks and their tries.

    Example: [cyan]bfm runs show 2013-01-05 --dag flights[/]
    """
    document = context.backend.run(run, dag_id=dag)
    run_tasks = context.backend.run_tasks(document)
    tasks = with_spark_jobs(run_tasks)
    if not context.out.is_table:
        context.out.print_document({**document, **run_tasks, "tasks": tasks})
        return
    now = context.clock.now()
    took = _seconds_so_far(document, now)
    context.out.print_fields({**document, "duration_s": None if took is None else seconds(took)})
    context.out.print_line("")
    context.out.print_rows(tasks, task_columns(now), empty="It has no tasks yet.")


def with_spark_jobs(run_tasks: Document) -> list[Document]:
    """The tasks of a run, each with the `spark_jobs` of its last try that has ended."""
    by_task = {one["task_id"]: one["spark_jobs"] for one in run_tasks["tries"]}  # by task, then in their order
    return [{**task, "spark_jobs": by_task.get(task["task_id"], [])} for task in run_tasks["tasks"]]


@group.command("timeline")
def timeline(
    context: CliContext,
    dag: o.Dag,
    n: int | None = o.option(
        "-n", f"Show the newest N runs. \\[default: {DEFAULT_LIMIT}, all for JSON]", min=1, metavar="N"
    ),
) -> None:
    """Draw a DAG's timeline: its runs by logical date, each with an arrow to the run before it and, beneath it, the runs
    that it overrode. Times are UTC, or as --timezone says.

    Example: [cyan]bfm runs timeline flights -n 10[/]
    """
    limit = context.out.limit(n)
    runs = context.backend.timeline(dag, limit=limit)
    columns = (
        Column("drawn", ""), "logical_date", "state", Column("run_type", "type"), Column("interval_end", "until"),
        Column("dag_version", "version", right=True), Column("run_id", optional=True), Column("about", "", fold=True),
    )  # fmt: skip
    empty = f"{dag} has no run with a logical date yet."
    context.out.print_rows(list(_timeline_rows(runs)), columns, empty=empty, document=runs)
    if context.out.is_table and len(runs) == limit:
        context.out.note(f"The newest {limit}; -n shows more.")


@group.command("cancel")
def cancel(context: CliContext, run: o.Run, dag: str | None = o.DAG_OF_RUN) -> None:
    """Cancel a run: running tasks are stopped (their Spark jobs are cancelled), the others never start.

    Example: [cyan]bfm runs cancel 2013-01-05 --dag flights[/]
    """
    _submit(context, RUN_CANCEL, run, dag, "Cancel run {run_id}")


@group.command("mark")
def mark(
    context: CliContext,
    run: o.Run,
    state: Literal["success", "failed"] = o.argument("success|failed", "State to set."),
    dag: str | None = o.DAG_OF_RUN,
) -> None:
    """Set a run to success or failed, whatever its state is; its running tasks are stopped.

    Example: [cyan]bfm runs mark 2013-01-05 success --dag flights[/]
    """
    _submit(context, RUN_MARK, run, dag, "Mark run {run_id} {state}", state=state)


@group.command("note")
def note(context: CliContext, run: o.Run, text: o.NoteText, dag: str | None = o.DAG_OF_RUN) -> None:
    """Write a note on a run, in any state. It replaces the note that is there.

    Example: [cyan]bfm runs note 2013-01-05 "Late data, see ticket 12" --dag flights[/]
    """
    verb = "Write" if text.strip() else "Remove"
    _submit(context, RUN_NOTE, run, dag, f"{verb} the note on run {{run_id}}", text=text)


@group.command("revert", schema="commands.RevertRun", without=("dag_id", "run_id"))
def revert(
    context: CliContext,
    values: Document,
    run: o.Run,
    dag: str | None = o.DAG_OF_RUN,
    yes: bool = o.flag("--yes -y", "Don't ask for confirmation."),
) -> int:
    """Undo what a run has written, from Delta's history. Prints what will be restored, and asks. Refused if others have
    written the same interval since, or if the history is gone. The run stays in the timeline, but no longer counts.

    Examples:

    [cyan]bfm runs revert 2013-01-05 --dag flights --dry-run[/]

    [cyan]bfm runs revert 2013-01-05 --dag flights --yes[/]
    """
    from backfill_manager.cli.commands.revert import ask_and_revert

    found = context.backend.run(run, dag_id=dag)
    of_run = {"dag_id": found["dag_id"], "run_id": found["run_id"]}
    dry_run, what = bool(values.get("dry_run")), f"run {found['run_id']} of {found['dag_id']}"
    return ask_and_revert(context, RUN_REVERT, of_run, what, dry_run=dry_run, yes=yes)


def _submit(context: CliContext, kind: str, run: str, dag: str | None, action: str, **values: Any) -> None:
    found = context.backend.run(run, dag_id=dag)
    submit(context, kind, {**values, "dag_id": found["dag_id"], "run_id": found["run_id"]}, action)


def _timeline_rows(runs: Sequence[Document]) -> Iterator[Document]:
    """`drawn` is the drawing, `about` what it can't show."""
    above: str | None = None
    for run in runs:
        previous = run["previous_run_id"]
        arrow = "╷" if previous is None else "↑" if previous == above else "⇡"
        waits = [run["reason"]] if run["state"] in s.RUN_LIVE and run["reason"] else []
        shown = [*_kind(run), *waits, *([f"after {previous}"] if arrow == "⇡" else ())]
        yield {**run, "drawn": f"{arrow} {_GLYPHS[run['state']]}", "about": "; ".join(shown) or None}
        yield from _overridden_rows(run["overridden"], "  ")
        above = run["run_id"]


def _overridden_rows(overridden: Sequence[Document], indent: str) -> Iterator[Document]:
    for run in overridden:
        yield {**run, "drawn": f"{indent}╰{_GLYPHS[run['state']]}", "about": "; ".join(_kind(run)) or None}
        yield from _overridden_rows(run["overridden"], indent + "  ")


def _kind(run: Document) -> Iterator[str]:
    if run["reverted_at"]:
        yield "reverted" if run["restored_run_id"] is None else f"reverted: as after {run['restored_run_id']}"
    if run["items"] > 1:
        yield f"{run['items']} intervals"
    if run["is_partial"]:
        yield "partial: only selected tasks ran"
    if run["note"]:
        yield f"note: {first_line(run['note'])}"
