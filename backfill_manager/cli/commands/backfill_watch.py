"""`watch_backfill`: polls a backfill twice a second; draws it live on a terminal, prints lines elsewhere.

Watching changes nothing: Ctrl-C, or a closed laptop, ends only the watching.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from backfill_manager.cli.backend.base import Document
from backfill_manager.cli.context import CliContext
from backfill_manager.cli.render.errors import HINTS
from backfill_manager.cli.render.progress import failure_line, live_view, status_line, summary_line
from backfill_manager.errors import NotFound
from backfill_manager.model import states
from backfill_manager.queries.eta import ObservedPace, items_ended

POLL_INTERVAL_S: Final = 0.5
MIN_LINE_INTERVAL_S: Final = 2.0  # where every line stays, fewer of them
SLOW_POLL_INTERVAL_S: Final = 5.0  # of what is expensive to read or changes slowly
MAX_FAILURES_PRINTED: Final = 10  # of one poll
INTERRUPTED: Final = 130

Draw = Callable[[Document, list[Document], ObservedPace], None]
Print = Callable[[Text], None]


def watch_backfill(context: CliContext, backfill_id: str, *, end_when_stuck: bool) -> int:
    """Until it has ended; returns the exit code: 0 for success, else 1. `end_when_stuck`: also when the backfill has
    paused itself after failures and needs a person, who may not be there (`create --wait` in a script)."""
    try:
        backfill = _follow(context, backfill_id, end_when_stuck)
    except KeyboardInterrupt:
        context.out.note(
            f"The backfill keeps running. Watch it again: `bfm backfill watch {backfill_id}`; "
            f"cancel it: `bfm backfill cancel {backfill_id}`."
        )
        return INTERRUPTED
    context.out.print_result(backfill, summary_line(backfill))
    if backfill["planned"] and backfill["skipped"] == backfill["planned"]:
        context.out.note(f"Nothing had to run: `bfm backfill items {backfill_id}` shows why.")
    if backfill["state"] == states.PAUSED:
        context.out.note(f"It has paused itself: fix what failed, then `bfm backfill unpause {backfill_id}`.")
    return 0 if backfill["state"] == states.SUCCESS else 1


def _follow(context: CliContext, backfill_id: str, end_when_stuck: bool) -> Document:
    backend, clock = context.backend, context.clock
    pace = ObservedPace()
    printed_failures: set[int] = set()
    last_slow_poll = float("-inf")
    eta: Document = {}
    with _screen(context) as (draw, print_line):
        while True:
            backfill = backend.backfill(backfill_id)
            has_ended = backfill["state"] in states.BACKFILL_FINISHED or (end_when_stuck and _is_stuck(backfill))
            at = clock.monotonic()
            if backfill["planned"]:
                pace.observe(at, items_ended(backfill))
            if backfill["failed"] > len(printed_failures):
                for line in _new_failures(context, backfill, printed_failures):
                    print_line(line)
            if has_ended:
                draw(backfill, [], pace)
                return backfill
            if at - last_slow_poll >= SLOW_POLL_INTERVAL_S:
                if last_slow_poll == float("-inf") and not backend.has_active_manager():
                    nobody = f"No manager is running; the backfill waits for one: {HINTS['start_manager']}."
                    print_line(Text(nobody, style="yellow"))
                last_slow_poll = at
                latest = backend.backfill(backfill_id, with_eta=True)
                eta = {name: latest[name] for name in ("time_left_s", "finishes_at")}
            draw({**backfill, **eta}, backend.running_tasks(backfill), pace)
            context.pause(POLL_INTERVAL_S)


def _new_failures(context: CliContext, backfill: Document, printed: set[int]) -> Iterator[Text]:
    items = context.backend.items(backfill["backfill_id"], state=(states.FAILED,))
    new = [item for item in items if item["ordinal"] not in printed]
    for item in new[:MAX_FAILURES_PRINTED]:
        yield failure_line(item, _failed_task(context, backfill["dag_id"], item["run_id"]))
    if len(new) > MAX_FAILURES_PRINTED:
        yield Text(f"and {len(new) - MAX_FAILURES_PRINTED} more failed", style="red")
    printed.update(item["ordinal"] for item in new)


def _failed_task(context: CliContext, dag_id: str, run_id: str | None) -> Document | None:
    if run_id is None:
        return None
    try:
        run = context.backend.run(run_id, dag_id=dag_id)
    except NotFound:
        return None
    failed = [task for task in context.backend.run_tasks(run)["tasks"] if task["state"] == states.FAILED]
    in_reason = (run["reason"] or "").removeprefix("failed: ").split(", ")  # a callback never is
    return next((task for task in failed if task["task_id"] in in_reason), failed[0] if failed else None)


def _is_stuck(backfill: Document) -> bool:
    """It has paused itself (`stop_on_failure`), and nothing runs until a person unpauses it."""
    limit = backfill["stop_on_failure"]
    has_stopped = limit is not None and backfill["failed"] >= limit
    return bool(backfill["state"] == states.PAUSED and has_stopped and not backfill["running"])


@contextmanager
def _screen(context: CliContext) -> Iterator[tuple[Draw, Print]]:
    """A live view on a terminal; elsewhere a line whenever something has changed. Beside a JSON document the lines
    go to standard error, as standard output is the document's."""
    console = Console(stderr=not context.out.is_table, highlight=False)
    if console.is_terminal and context.out.is_table:
        from rich.live import Live

        with Live(console=console, auto_refresh=False, transient=True) as live:
            yield (
                lambda *shown: live.update(live_view(console.width, *shown), refresh=True),
                lambda text: live.console.print(text, soft_wrap=True),
            )
        return
    last: tuple[Any, ...] = ()
    last_at = float("-inf")

    def draw(backfill: Document, tasks: list[Document], pace: ObservedPace) -> None:
        nonlocal last, last_at
        now = (backfill["state"], backfill["reason"], *(backfill[state] for state in states.ITEM_STATES))
        at = context.clock.monotonic()
        has_ended = backfill["state"] in states.BACKFILL_FINISHED  # the summary says it
        if now != last and not has_ended and (now[:2] != last[:2] or at - last_at >= MIN_LINE_INTERVAL_S):
            console.print(status_line(backfill, pace), soft_wrap=True)
            last, last_at = now, at

    yield draw, lambda text: console.print(text, soft_wrap=True)
