"""What differs between two versions of a DAG, for people: settings, tasks, then code as a unified diff."""

from __future__ import annotations

import json
from typing import Any

from rich.text import Text

from backfill_manager.cli.render.output import Output

_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def print_version_diff(out: Output, diff: dict[str, Any]) -> None:
    if not out.is_table:
        out.print_document(diff)
        return
    out.print_line(f"{diff['dag_id']}: version {diff['before']} -> {diff['after']}")
    for setting in diff["settings"]:
        out.print_line(f"  {_setting(setting)}")
    for task in diff["tasks"]:
        out.print_line(f"  task {task['task_id']}: {task['change']}")
        for setting in task["settings"]:
            out.print_line(f"    {_setting(setting)}")
    if diff["files"] is None:
        out.note("The files of these versions are not on this machine: they are kept where the manager runs.")
        return
    for file in diff["files"]:
        out.print_line("")
        for line in file["diff"].splitlines():
            out.print_line(Text(line, style=_STYLES.get(line[:1], "")))
    if not (diff["settings"] or diff["tasks"] or diff["files"]):
        out.print_line("  no difference in what it runs")


def _setting(setting: dict[str, Any]) -> str:
    before, after = (json.dumps(setting[side], ensure_ascii=False) for side in ("before", "after"))
    return f"{setting['name']}: {before} -> {after}"
