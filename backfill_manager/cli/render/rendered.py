"""What the tasks of a run would see, for `bfm dags render` and the dry run of a backfill."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from backfill_manager.cli.render.printer import Output


def print_rendered(out: Output, run: Mapping[str, Any]) -> None:
    """Interval, params and parameters of SQL, then each task, with the text of SQL."""
    run = out.in_zone(run)
    if note := run.get("note"):  # a manager of an older release has none
        out.note(note)
    names = ("run_id", "logical_date", "interval_start", "interval_end", "partition_key")
    fields = [(name, run[name]) for name in names if run[name] is not None]
    out.print_fields(run, [*fields, ("params", json.dumps(run["params"], ensure_ascii=False))])
    if any(task["sql"] for task in run["tasks"]):
        out.print_line("")
        for name, value in run["sql_parameters"].items():
            out.print_line(f":{name} = {value}")
    for task in run["tasks"]:
        out.print_line("")
        into = f", into {task['into']}" if task["into"] else ""
        out.print_line(f"task {task['task_id']} ({task['kind']}{into})")
        for line in (task["sql"] or "").strip().splitlines():
            out.print_line(f"  {line}")
