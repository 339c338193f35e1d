"""`watch_backfill`: polls a backfill twice a second; draws it live on a terminal, prints lines elsewhere.

Watching changes nothing: Ctrl-C, or a closed laptop, ends only the watching.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from rich.console import Group
from rich.text import Text

from backfill_manager.cli.backend.base import Document
from backfill_manager.cli.backend.watched import SLOW_POLL_INTERVAL_S, WatchedBackend
from backfill_manager.cli.context import CliContext
from backfill_manager.cli.render.plan import why
from backfill_manager.cli.render.printer import COLOURS, Console, first_line, seconds
from backfill_manager.clock import parse_instant
from backfill_manager.errors import NotFound
from backfill_manager.humanise import estimate, not_succeeded, plural
from backfill_manager.model import states
from backfill_manager.queries.eta import ObservedPace, items_ended, items_left

POLL_INTERVAL_S: Final = 0.5
MIN_LINE_INTERVAL_S: Final = 2.0  # where every line stays, fewer of them
MAX_FAILURES_PRINTED: Final = 10  # of one poll
MAX_SKIPPED_READ: Final = 10_000
INTERRUPTED: Final = 130
_BAR_STATES: Final = (states.SUCCESS, states.SKIPPED, states.FAILED, states.CANCELLED, states.RUNNING, states.PENDING)
_BAR_CHARACTERS: Final = {states.RUNNING: "▓", states.PENDING: "░"}
_MAX_TASKS: Final = 8

Draw = Callable[[Document, list[Document], ObservedPace], None]
Print = Callable[[Text], None]


def watch_backfill(context: CliContext, backfill_id: str, *, end_when_stuck: bool) -> int:
    """Until it has ended; returns the exit code: 0 for success, else 1; also 1 where items were left to
    runs of others. `end_when_stuck`: also when the backfill has
    paused itself after failures and needs a person, who may not be there (`create --wait` in a script)."""
    try:
        with _screen(context) as (draw, print_line):
            backfill = follow(context, backfill_id, end_when_stuck=end_when_stuck, draw=draw, print_line=print_line)
    except KeyboardInterrupt:
        context.out.note(
            f"The backfill keeps running. Watch it again: `bfm backfill watch {backfill_id}`; "
            f"cancel it: `bfm backfill cancel {backfill_id}`."
        )
        return INTERRUPTED
    context.out.print_result(backfill, summary_line(backfill))
    left = _left_to_others(context, backfill)
    if left:
        context.out.note(
            f"{plural(left, 'item')} left to runs of others, which were in flight, and may not be done: "
            f"`bfm backfill items {backfill_id} --state skipped`."
        )
    elif backfill["planned"] and backfill["skipped"] == backfill["planned"]:
        context.out.note(f"Nothing had to run: `bfm backfill items {backfill_id}` shows why.")
    if backfill["state"] == states.PAUSED:
        context.out.note(f"It has paused itself: fix what failed, then `bfm backfill unpause {backfill_id}`.")
    return 0 if backfill["state"] == states.SUCCESS and not left else 1


def _left_to_others(context: CliContext, backfill: Document) -> int:
    """How many items were skipped as their dates had active runs, which may end in any way."""
    if not backfill["skipped"]:
        return 0
    skipped = context.backend.items(backfill["backfill_id"], state=[states.SKIPPED], limit=MAX_SKIPPED_READ)
    return sum(item["reason"] == "in flight" for item in skipped)


def follow(context: CliContext, backfill_id: str, *, end_when_stuck: bool, draw: Draw, print_line: Print) -> Document:
    """Draws the backfill until it has ended, and returns it; each new failure is a line of its own."""
    backend = WatchedBackend(context, "backfill", lambda text: print_line(Text(text, style="yellow")))
    clock = context.clock
    pace = ObservedPace()
    printed_failures: set[int] = set()
    last_slow_poll = float("-inf")
    eta: Document = {}
    while True:
        backfill: Document = backend.backfill(backfill_id)
        has_ended = backfill["state"] in states.BACKFILL_FINISHED or (end_when_stuck and _is_stuck(backfill))
        at = clock.monotonic()
        if backfill["planned"]:
            pace.observe(at, items_ended(backfill))
        if backfill["failed"] != len(printed_failures):  # fewer: some run again
            for line in _new_failures(context, backend, backfill, printed_failures):
                print_line(line)
        shown = context.out.in_zone(backfill)
        if has_ended:
            draw(shown, [], pace)
            return backfill
        backend.look_for_manager()
        if at - last_slow_poll >= SLOW_POLL_INTERVAL_S:
            last_slow_poll = at
            latest = backend.backfill(backfill_id, with_eta=True)
            eta = {name: latest[name] for name in ("time_left_s", "finishes_at")}
        draw({**shown, **eta}, backend.running_tasks(backfill), pace)
        context.pause(POLL_INTERVAL_S)


def _new_failures(
    context: CliContext, backend: WatchedBackend, backfill: Document, printed: set[int]
) -> Iterator[Text]:
    items = backend.items(backfill["backfill_id"], state=(states.FAILED,))
    new = [item for item in items if item["ordinal"] not in printed]
    dag_id = backfill["dag_id"]
    for item in new[:MAX_FAILURES_PRINTED]:
        run_id = item["run_id"]
        task = None if run_id is None else _failed_task(backend, dag_id, run_id)
        yield failure_line(context.out.in_zone(item, dag_id), task)
    if len(new) > MAX_FAILURES_PRINTED:
        yield Text(f"and {len(new) - MAX_FAILURES_PRINTED} more failed", style="red")
    printed.clear()
    printed.update(item["ordinal"] for item in items)


def _failed_task(backend: WatchedBackend, dag_id: str, run_id: str) -> Document | None:
    try:
        run = backend.run(run_id, dag_id=dag_id)
    except NotFound:
        return None
    failed = [task for task in backend.run_tasks(run)["tasks"] if task["state"] == states.FAILED]
    in_reason = (run["reason"] or "").removeprefix("failed: ").split(", ")  # a callback never is
    return next((task for task in failed if task["task_id"] in in_reason), failed[0] if failed else None)


def _is_stuck(backfill: Document) -> bool:
    """It has paused itself (`stop_on_failure`), and nothing runs until a person unpauses it."""
    limit = backfill["stop_on_failure"]
    has_stopped = limit is not None and backfill["failed"] >= limit
    return bool(backfill["state"] == states.PAUSED and has_stopped and not backfill["running"])


@contextmanager
def _screen(context: CliContext) -> Iterator[tuple[Draw, Print]]:
    """A live view on a terminal that can draw; elsewhere a line whenever something has changed. Beside a JSON document the lines
    go to standard error, as standard output is the document's."""
    console = Console(stderr=not context.out.is_table, highlight=False)
    if console.is_screen and not console.is_dumb_terminal and context.out.is_table:
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
        now = (backfill["state"], why(backfill), *(backfill[state] for state in states.ITEM_STATES))
        at = context.clock.monotonic()
        has_ended = backfill["state"] in states.BACKFILL_FINISHED  # the summary says it
        if now != last and not has_ended and (now[:2] != last[:2] or at - last_at >= MIN_LINE_INTERVAL_S):
            console.print(status_line(backfill, pace), soft_wrap=True)
            last, last_at = now, at

    yield draw, lambda text: console.print(text, soft_wrap=True)


def status_line(backfill: Mapping[str, Any], pace: ObservedPace) -> Text:
    """`running  12/31  11 success, 1 failed, 4 running, 15 pending  38.2/min  30 s left`. Until items have ended while
    watching, the time left is the backfill's `time_left_s`."""
    text = Text(backfill["state"], style=COLOURS.get(backfill["state"], ""))
    if backfill["planned"]:
        text.append(f"  {backfill['planned'] - items_left(backfill)}/{backfill['planned']}", style="bold")
        text.append("  ").append_text(_counts(backfill))
    if pace.per_minute and backfill["state"] not in states.BACKFILL_FINISHED and not backfill.get("waits_until"):
        text.append(f"  {pace.per_minute:.1f}/min")
        text.append(f"  {seconds(pace.seconds_left(items_left(backfill)) or 0)} left")
    elif backfill["state"] == states.RUNNING and backfill.get("time_left_s") is not None:
        text.append(f"  {estimate(backfill['time_left_s'], padded=True)} left")
    if reason := why(backfill):
        text.append(f"  ({reason})", style="yellow")
    return text


def bar(backfill: Mapping[str, Any], width: int) -> Text:
    """A segment for each state, as long as its share of the plan; a state with any item gets at least one cell."""
    planned = sum(backfill[state] for state in _BAR_STATES)
    if not planned:
        return Text("░" * width, style="bright_black")
    drawn = [state for state in _BAR_STATES if backfill[state]]
    cells = {state: max(1, backfill[state] * width // planned) for state in drawn}
    longest = max(drawn, key=lambda state: cells[state])
    cells[longest] = max(1, cells[longest] + width - sum(cells.values()))
    text = Text()
    for state in drawn:
        text.append(_BAR_CHARACTERS.get(state, "█") * cells[state], style=COLOURS[state])
    return text


def live_view(width: int, backfill: Mapping[str, Any], tasks: Sequence[Mapping[str, Any]], pace: ObservedPace) -> Group:
    """What `watch` shows on a terminal: title, bar, numbers, running tasks."""
    title = Text.assemble("Backfill ", (backfill["backfill_id"], "bold"), " of ", (backfill["dag_id"], "bold"))
    lines: list[Text] = [title, bar(backfill, max(10, min(width - 2, 100))), status_line(backfill, pace)]
    for task in tasks[:_MAX_TASKS]:
        duration = "" if task.get("for_s") is None else f"  {seconds(task['for_s'])}"
        retry = f"  try {task['try_number']}" if task["try_number"] > 1 else ""
        text = f"  {task['task_id']}  {task['run_id']}{duration}{retry}"
        lines.append(Text(text, style="cyan", overflow="ellipsis", no_wrap=True))
    if len(tasks) > _MAX_TASKS:
        lines.append(Text(f"  and {len(tasks) - _MAX_TASKS} more", style="bright_black"))
    return Group(*lines)


def failure_line(item: Mapping[str, Any], task: Mapping[str, Any] | None) -> Text:
    """A failed item: which, by which task, why."""
    which = item["logical_date"] or item["partition_key"] or f"item {item['ordinal']}"
    text = Text.assemble(("failed ", "red"), str(which))
    if task is not None:
        text.append(f"  {task['task_id']}: {first_line(task['error'] or 'no message')}")
    elif item["reason"]:
        text.append(f"  {first_line(item['reason'])}")
    return text


def summary_line(backfill: Mapping[str, Any]) -> Text:
    state = backfill["state"]
    text = Text.assemble(
        f"Backfill {backfill['backfill_id']} of {backfill['dag_id']}: ", (state, COLOURS.get(state, ""))
    )
    text.append(f", {plural(backfill['planned'], 'item')}")
    if counts := _counts(backfill):
        text.append(": ").append_text(counts)
    if backfill["started_at"] and backfill["completed_at"]:
        taken = parse_instant(backfill["completed_at"]) - parse_instant(backfill["started_at"])
        text.append(f", in {seconds(taken.total_seconds())}")
    text.append(".")
    reason = backfill["reason"]
    if reason and reason != not_succeeded(backfill, backfill["planned"]):  # the counts say it
        text.append(f" {reason}", style="yellow")
    return text


def _counts(backfill: Mapping[str, Any]) -> Text:
    counts = (Text(f"{backfill[state]} {state}", style=COLOURS[state]) for state in _BAR_STATES if backfill[state])
    return Text(", ").join(counts)
