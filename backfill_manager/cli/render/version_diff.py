"""What differs between two versions of a DAG, for people: settings, tasks, then code as a unified diff."""

from __future__ import annotations

import json
from typing import Any

from rich.text import Text

from backfill_manager.cli.context import CliContext

_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def tell_difference(call: CliContext, found: dict[str, Any]) -> None:
    if not call.out.is_table:
        call.out.document(found)
        return
    call.out.line(f"{found['dag_id']}: version {found['before']} -> {found['after']}")
    for setting in found["settings"]:
        call.out.line(f"  {_setting(setting)}")
    for task in found["tasks"]:
        call.out.line(f"  task {task['task_id']}: {task['change']}")
        for setting in task["settings"]:
            call.out.line(f"    {_setting(setting)}")
    if found["files"] is None:
        call.out.remark("The files of these versions can't be seen from here: they are kept where the manager runs.")
        return
    for file in found["files"]:
        call.out.line("")
        for line in file["diff"].splitlines():
            call.out.line(Text(line, style=_STYLES.get(line[:1], "")))
    if not (found["settings"] or found["tasks"] or found["files"]):
        call.out.line("  no difference in what it runs")


def _setting(setting: dict[str, Any]) -> str:
    before, after = (json.dumps(setting[side], ensure_ascii=False) for side in ("before", "after"))
    return f"{setting['name']}: {before} -> {after}"
