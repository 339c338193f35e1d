"""The progress of a backfill as a live view and as a line. Pure: nothing here reads a state or a clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Group
from rich.text import Text

from backfill_manager.cli.render.output import COLOURS, first_line, seconds
from backfill_manager.clock import parse_instant
from backfill_manager.model import states
from backfill_manager.queries.eta import ObservedPace, items_left

_BAR_STATES: Final = (states.SUCCESS, states.SKIPPED, states.FAILED, states.CANCELLED, states.RUNNING, states.PENDING)
_BAR_CHARACTERS: Final = {states.RUNNING: "▓", states.PENDING: "░"}
_MAX_TASKS: Final = 8


def status_line(backfill: Mapping[str, Any], pace: ObservedPace) -> Text:
    """`running  12/31  11 success, 1 failed, 4 running, 15 pending  38.2/min  30 s left`. Until items have ended while
    watching, the time left is the backfill's `time_left_s`."""
    text = Text(backfill["state"], style=COLOURS.get(backfill["state"], ""))
    if backfill["planned"]:
        text.append(f"  {backfill['planned'] - items_left(backfill)}/{backfill['planned']}", style="bold")
        text.append("  ").append_text(_counts(backfill))
    if pace.per_minute and backfill["state"] not in states.BACKFILL_FINISHED:
        text.append(f"  {pace.per_minute:.1f}/min")
        text.append(f"  {seconds(pace.seconds_left(items_left(backfill)) or 0)} left")
    elif backfill["state"] == states.RUNNING and backfill.get("time_left_s") is not None:
        text.append(f"  about {seconds(backfill['time_left_s'])} left")
    if backfill["reason"]:
        text.append(f"  ({backfill['reason']})", style="yellow")
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
    text.append(f", {backfill['planned']} items")
    if counts := _counts(backfill):
        text.append(": ").append_text(counts)
    if backfill["started_at"] and backfill["completed_at"]:
        taken = parse_instant(backfill["completed_at"]) - parse_instant(backfill["started_at"])
        text.append(f", in {seconds(taken.total_seconds())}")
    text.append(".")
    return text.append(f" {backfill['reason']}", style="yellow") if backfill["reason"] else text


def _counts(backfill: Mapping[str, Any]) -> Text:
    counts = (Text(f"{backfill[state]} {state}", style=COLOURS[state]) for state in _BAR_STATES if backfill[state])
    return Text(", ").join(counts)
