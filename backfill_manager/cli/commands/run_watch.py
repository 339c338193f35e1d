"""`watch_run`: polls a run twice a second and prints a line for each task that has ended.

Watching changes nothing: Ctrl-C ends only the watching.
"""

from __future__ import annotations

from rich.text import Text

from backfill_manager.cli.backend.base import Document
from backfill_manager.cli.backend.watched import WatchedBackend
from backfill_manager.cli.commands.backfill_watch import INTERRUPTED, POLL_INTERVAL_S
from backfill_manager.cli.context import CliContext
from backfill_manager.cli.render.printer import COLOURS, Console, first_line, seconds
from backfill_manager.errors import NotFound
from backfill_manager.model import states


def watch_run(context: CliContext, dag_id: str, run_id: str) -> tuple[int, Document | None]:
    """Until it has ended; returns the exit code, 0 for success, else 1, and the run."""
    console = Console(stderr=not context.out.is_table, highlight=False)  # standard output is the JSON document's
    printed: dict[str, tuple[str, int]] = {}
    backend = WatchedBackend(context, "run", lambda text: console.print(Text(text, style="yellow"), soft_wrap=True))
    try:
        while True:
            run = _run(backend, dag_id, run_id)
            if run is not None:
                for task in backend.run_tasks(run)["tasks"]:
                    now = (task["state"], task["try_number"])
                    if now[0] in states.TASK_FINISHED and printed.get(task["task_id"]) != now:
                        printed[task["task_id"]] = now
                        console.print(_task_line(task), soft_wrap=True)
                if run["state"] in states.RUN_FINISHED:
                    return (0 if run["state"] == states.SUCCESS else 1), run
            backend.look_for_manager()
            context.pause(POLL_INTERVAL_S)
    except KeyboardInterrupt:
        context.out.note(
            f"The run goes on: `bfm runs show {run_id} --dag {dag_id}`; end it: `bfm runs cancel {run_id} --dag {dag_id}`."
        )
        return INTERRUPTED, None


def run_summary(run: Document) -> Text:
    """`Run R of flights: success, in 12 s.`"""
    state = run["state"]
    line = Text.assemble(f"Run {run['run_id']} of {run['dag_id']}: ", (state, COLOURS.get(state, "")))
    if run["duration_s"] is not None:
        line.append(f", in {seconds(run['duration_s'])}")
    line.append(".")
    return line.append(f" {run['reason']}", style="yellow") if run["reason"] else line


def _run(backend: WatchedBackend, dag_id: str, run_id: str) -> Document | None:
    try:
        run: Document = backend.run(run_id, dag_id=dag_id)
        return run
    except NotFound:
        return None  # created, and not committed yet


def _task_line(task: Document) -> Text:
    line = Text.assemble((task["state"], COLOURS.get(task["state"], "")), f"  {task['task_id']}")
    if task["error"]:
        line.append(f"  {first_line(task['error'])}")
    return line
