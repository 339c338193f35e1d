"""What the tasks of a run will see: its interval, its params, and the SQL of its tasks with the values of its parameters.

`sql_values` is what a `sql` task hands to Spark, too. Secrets are masked in what is shown.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from backfill_manager.clock import format_instant
from backfill_manager.dags.definition import DagSpec
from backfill_manager.masking import MASK, is_secret, mask_code, mask_values

Interval = tuple[datetime, datetime]


@dataclass(frozen=True)
class PlannedRun:
    """A run that is not made yet."""

    run_id: str
    interval: Interval | None
    partition_key: str | None
    conf: Mapping[str, Any]

    @property
    def logical_date(self) -> datetime | None:
        return self.interval[0] if self.interval else None


def sql_values(
    params: Mapping[str, Any], run_id: str, logical_date: datetime | None, interval: Interval | None,
    partition_key: str | None,
) -> dict[str, Any]:  # fmt: skip
    """The named parameters of SQL. Ours come after the run's params, and win."""
    values: dict[str, Any] = {name: value for name, value in params.items() if name.isidentifier()}
    values["run_id"] = run_id
    if partition_key is not None:
        values["partition_key"] = partition_key
    if logical_date is not None:
        values["logical_date"] = logical_date
    if interval is not None:
        values["interval_start"], values["interval_end"] = interval
    return values


def render(dag: DagSpec, run: PlannedRun, task_ids: Collection[str]) -> dict[str, Any]:
    """The document `resources.RenderedRun` of these tasks."""
    params = {**dag.params, **run.conf}
    values = sql_values(params, run.run_id, run.logical_date, run.interval, run.partition_key)
    start, end = run.interval or (None, None)
    return {
        "dag_id": dag.dag_id, "run_id": run.run_id, "logical_date": format_instant(run.logical_date),
        "interval_start": format_instant(start), "interval_end": format_instant(end),
        "partition_key": run.partition_key, "params": mask_values(params),
        "sql_parameters": {name: MASK if is_secret(name) else literal(mask_values(value)) for name, value in values.items()},
        "tasks": [
            {"task_id": task.task_id, "kind": task.kind, "sql": mask_code(task.sql) if task.sql else task.sql, "into": task.into}
            for task in dag.in_order
            if task.task_id in task_ids
        ],
    }  # fmt: skip


def literal(value: Any) -> str:
    """The value as Spark SQL writes it."""
    if isinstance(value, datetime):
        return f"TIMESTAMP '{format_instant(value)}'"
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if isinstance(value, float):
        return f"{value!r}D"
    if isinstance(value, dict):
        return f"map({', '.join(literal(part) for pair in value.items() for part in pair)})"
    if isinstance(value, list | tuple):
        return f"array({', '.join(map(literal, value))})"
    return (
        {None: "NULL", True: "true", False: "false"}[value] if value is None or isinstance(value, bool) else str(value)
    )
