"""Watching a backfill: a look at the state twice a second, drawn live on a screen, as lines where there is none.

Watching changes nothing: whoever stops watching, by Ctrl-C or by closing the laptop, stops only that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from backfill_manager.cli.backend.base import Backend
from backfill_manager.cli.context import CliContext
from backfill_manager.cli.render.progress import failure_line, picture, status_line, summary_line
from backfill_manager.clock import parse_instant
from backfill_manager.errors import NotFound
from backfill_manager.model import states
from backfill_manager.queries.eta import ObservedPace, items_ended
from backfill_manager.queries.managers import START_ONE

EVERY_S: Final = 0.5
LINES_APART_S: Final = 2.0  # where every line stays, fewer of them
LOOK_FOR_LEADER_S: Final = 5.0
MOST_FAILURES_AT_ONCE: Final = 10
INTERRUPTED: Final = 130

Draw = Callable[[dict[str, Any], list[dict[str, Any]], ObservedPace], None]
Say = Callable[[Text], None]


def watch(call: CliContext, backfill_id: str, *, end_when_stuck: bool) -> int:
    """Until it has ended; returns the exit code: 0 for success, else 1. `end_when_stuck`: also when the backfill has
    paused itself after failures and waits for a person, who may not be there (`create --wait` in a script)."""
    try:
        backfill = _follow(call, backfill_id, end_when_stuck=end_when_stuck)
    except KeyboardInterrupt:
        call.out.remark(
            f"The backfill goes on without this screen. Look again: `bfm backfill watch {backfill_id}`; "
            f"end it: `bfm backfill cancel {backfill_id}`."
        )
        return INTERRUPTED
    call.out.told(backfill, summary_line(backfill, _took_s(backfill)))
    if backfill["planned"] and backfill["skipped"] == backfill["planned"]:
        call.out.remark(f"Nothing had to run: `bfm backfill items {backfill_id}` tells why.")
    if backfill["state"] == states.PAUSED:
        call.out.remark(f"It waits for you: mend what failed, then `bfm backfill unpause {backfill_id}`.")
    return 0 if backfill["state"] == states.SUCCESS else 1


def _follow(call: CliContext, backfill_id: str, *, end_when_stuck: bool) -> dict[str, Any]:
    source, clock = call.source, call.clock
    pace = ObservedPace()
    told_failures: set[int] = set()
    looked_for_leader = float("-inf")
    time_left: dict[str, Any] = {}
    with _screen(call) as (draw, say):
        while True:
            backfill = source.backfill(backfill_id)
            over = backfill["state"] in states.BACKFILL_FINISHED or (end_when_stuck and _stuck(backfill))
            at = clock.monotonic()
            if backfill["planned"]:
                pace.observe(at, items_ended(backfill))
            if backfill["failed"] > len(told_failures):
                for line in _new_failures(source, backfill, told_failures):
                    say(line)
            if not over and at - looked_for_leader >= LOOK_FOR_LEADER_S:
                if looked_for_leader == float("-inf") and not source.has_active_manager():
                    say(Text(f"No manager is leading; the backfill waits for one: {START_ONE}.", style="yellow"))
                looked_for_leader = at
                told = source.backfill(backfill_id, time_left=True)
                time_left = {name: told[name] for name in ("time_left_s", "finishes_at")}
            if not over:
                backfill = {**backfill, **time_left}
            draw(backfill, [] if over else source.running_tasks(backfill), pace)
            if over:
                return backfill
            call.pause(EVERY_S)


def _new_failures(source: Backend, backfill: dict[str, Any], told: set[int]) -> Iterator[Text]:
    items = source.items(backfill["backfill_id"], in_states=(states.FAILED,))
    new = [item for item in items if item["ordinal"] not in told]
    for item in new[:MOST_FAILURES_AT_ONCE]:
        yield failure_line(item, _failed_task(source, backfill["dag_id"], item["run_id"]))
    if len(new) > MOST_FAILURES_AT_ONCE:
        yield Text(f"and {len(new) - MOST_FAILURES_AT_ONCE} more failed", style="red")
    told.update(item["ordinal"] for item in new)


def _failed_task(source: Backend, dag_id: str, run_id: str | None) -> dict[str, Any] | None:
    if run_id is None:
        return None
    try:
        run = source.run(run_id, dag_id)
    except NotFound:
        return None
    failed = [task for task in source.tasks_of(run)["tasks"] if task["state"] == states.FAILED]
    named = (run["reason"] or "").removeprefix("failed: ").split(", ")  # a callback never is
    return next((task for task in failed if task["task_id"] in named), failed[0] if failed else None)


def _stuck(backfill: dict[str, Any]) -> bool:
    """It has paused itself (`stop_on_failure`): nothing runs any more, and nothing will before a person comes."""
    enough = backfill["stop_on_failure"] is not None and backfill["failed"] >= backfill["stop_on_failure"]
    return bool(backfill["state"] == states.PAUSED and enough and not backfill["running"])


def _took_s(backfill: dict[str, Any]) -> float | None:
    if not backfill["started_at"] or not backfill["completed_at"]:
        return None
    return (parse_instant(backfill["completed_at"]) - parse_instant(backfill["started_at"])).total_seconds()


@contextmanager
def _screen(call: CliContext) -> Iterator[tuple[Draw, Say]]:
    """A live picture on a terminal; elsewhere a line whenever something has changed. Beside a JSON document the lines
    go to standard error, as standard output is the document's."""
    console = Console(stderr=not call.out.is_table, highlight=False)
    if console.is_terminal and call.out.is_table:
        from rich.live import Live

        with Live(console=console, auto_refresh=False, transient=True) as live:
            yield (
                lambda backfill, tasks, pace: live.update(picture(backfill, tasks, pace, console.width), refresh=True),
                lambda text: live.console.print(text, soft_wrap=True),
            )
        return
    last: tuple[Any, ...] = ()
    last_at = float("-inf")

    def draw(backfill: dict[str, Any], tasks: list[dict[str, Any]], pace: ObservedPace) -> None:
        nonlocal last, last_at
        now = (backfill["state"], backfill["reason"], *(backfill[state] for state in states.ITEM_STATES))
        at = call.clock.monotonic()
        turned = now[:2] != last[:2]
        over = backfill["state"] in states.BACKFILL_FINISHED  # the summary says it
        if now != last and not over and (turned or at - last_at >= LINES_APART_S):
            console.print(status_line(backfill, pace), soft_wrap=True)
            last, last_at = now, at

    yield draw, lambda text: console.print(text, soft_wrap=True)
