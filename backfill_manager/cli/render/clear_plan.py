"""The preview of `bfm tasks clear`: a line for each run, and what it adds up to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from backfill_manager.cli.render.output import Column, Output
from backfill_manager.humanise import plural

MAX_RUNS: Final = 50
_MAX_NAMES: Final = 5  # of tasks that stay as they are
_COLUMNS: Final = (
    "dag_id", "run_id", Column("run_type", "type", optional=True), "state", Column("version", optional=True),
    Column("tasks", fold=True),
)  # fmt: skip


def print_clear_plan(out: Output, plan: Mapping[str, Any]) -> None:
    rows = [
        {**run, "version": _version(run), "tasks": ", ".join(f"{t['task_id']} ({t['state']})" for t in run["tasks"])}
        for run in plan["runs"]
    ]
    out.print_rows(rows[:MAX_RUNS], _COLUMNS)
    if len(rows) > MAX_RUNS:
        out.print_line(f"… and {len(rows) - MAX_RUNS} more runs; `--dry-run --output json` lists them all.")
    out.print_line("")
    out.print_line(f"{clear_summary(plan['summary']).capitalize()}.")
    if running := plan["summary"]["running"]:
        out.print_line(f"{running:,} of them {'is' if running == 1 else 'are'} running or about to: stopped first.")
    if stay := plan["summary"].get("stay_upstream_failed", 0):  # not in the plan of an older server
        names = sorted({task_id for run in plan["runs"] for task_id in run["stays"]})
        shown = ", ".join(names[:_MAX_NAMES]) + (", …" if len(names) > _MAX_NAMES else "")
        out.print_line(
            f"{plural(stay, 'task')} downstream of them ({shown}) stay{'s' if stay == 1 else ''} upstream_failed, and so "
            "the runs failed; --downstream clears these, too."
        )


def clear_summary(summary: Mapping[str, int]) -> str:
    """`2 tasks of 1 run`"""
    return f"{plural(summary['tasks'], 'task')} of {plural(summary['runs'], 'run')}"


def _version(run: Mapping[str, Any]) -> str:
    return f"{run['dag_version']} → {run['to_version']}" if run["to_version"] else str(run["dag_version"])
