"""`bfm tasks clear`: what it would touch, a question, and the request. The preview and the deed are the same plan."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

from backfill_manager.cli.context import CliContext
from backfill_manager.cli.render.output import Column
from backfill_manager.cli.render.response import print_response
from backfill_manager.errors import InvalidInput
from backfill_manager.schemas.commands import ClearTasks

SHOWN: Final = 50  # runs
_NAMED: Final = 5  # tasks that stay as they are
_COLUMNS: Final = (
    "dag_id", "run_id", Column("run_type", "type", optional=True), "state", Column("version", optional=True),
    Column("tasks", fold=True),
)  # fmt: skip


def clear_tasks(call: CliContext, ask: ClearTasks, *, dry_run: bool, yes: bool) -> int:
    """The exit code: 0, also for whoever says no."""
    ask.check()
    plan = call.source.plan_clear(ask)
    if dry_run and not call.out.is_table:
        call.out.document(plan)
        return 0
    print_preview(call, plan)
    if dry_run:
        return 0
    if not yes and not _agreed(plan["summary"]):
        call.out.remark("Nothing was cleared.")
        return 0
    request = call.source.clear(ask)
    print_response(call, request, f"Clear {in_words(plan['summary'])}", summary=plan["summary"])
    return 0


def print_preview(call: CliContext, plan: Mapping[str, Any]) -> None:
    """A line for each run, for people."""
    if not call.out.is_table:
        return
    rows = [
        {
            **run,
            "version": _version(run),
            "tasks": ", ".join(f"{one['task_id']} ({one['state']})" for one in run["tasks"]),
        }
        for run in plan["runs"]
    ]
    call.out.rows(rows[:SHOWN], _COLUMNS)
    if len(rows) > SHOWN:
        call.out.line(f"… and {len(rows) - SHOWN} more runs; `--dry-run --output json` lists them all.")
    call.out.line("")
    call.out.line(f"{in_words(plan['summary']).capitalize()}.")
    if running := plan["summary"]["running"]:
        call.out.line(f"{running:,} of them {'is' if running == 1 else 'are'} running or about to: stopped first.")
    if stay := plan["summary"].get("stay_upstream_failed", 0):  # a server of an older release does not tell
        after = sorted({task_id for run in plan["runs"] for task_id in run["stays"]})
        named = ", ".join(after[:_NAMED]) + (", …" if len(after) > _NAMED else "")
        call.out.line(
            f"{_tasks(stay)} after them ({named}) stay{'s' if stay == 1 else ''} upstream_failed, and so the runs failed; "
            "--downstream clears these, too."
        )


def in_words(summary: Mapping[str, int]) -> str:
    runs = "1 run" if summary["runs"] == 1 else f"{summary['runs']:,} runs"
    return f"{_tasks(summary['tasks'])} of {runs}"


def _tasks(n: int) -> str:
    return "1 task" if n == 1 else f"{n:,} tasks"


def _version(run: Mapping[str, Any]) -> str:
    return f"{run['dag_version']} → {run['to_version']}" if run["to_version"] else str(run["dag_version"])


def _agreed(summary: Mapping[str, int]) -> bool:
    sys.stderr.write(f"Clear {in_words(summary)}? [y/N] ")
    sys.stderr.flush()
    said = sys.stdin.readline()
    if not said:
        sys.stderr.write("\n")
        raise InvalidInput("Nothing was cleared, as nobody answered; -y clears without asking.")
    return said.strip().lower() in ("y", "yes")
