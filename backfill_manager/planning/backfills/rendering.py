"""What the tasks of a run will see: its interval, its params, and the SQL of its tasks with the values of its parameters.

`sql_values` is what a `sql` task hands to Spark, too, and `sql_text` its text. Secrets are masked in what is shown.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from backfill_manager.clock import format_instant
from backfill_manager.dags.definition import DagSpec, TaskSpec
from backfill_manager.errors import InvalidInput
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
    partition_key: str | None, task: TaskSpec | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The named parameters of SQL. Ours come after the run's params, and win. `task`: the mapped task whose value is wanted."""
    values: dict[str, Any] = {name: value for name, value in params.items() if name.isidentifier()}
    values["run_id"] = run_id
    if partition_key is not None:
        values["partition_key"] = partition_key
    if logical_date is not None:
        values["logical_date"] = logical_date
    if interval is not None:
        values["interval_start"], values["interval_end"] = interval
    if task is not None and task.mapped_from is not None:
        values["mapped_value"] = task.mapped_value
    return values


def sql_text(
    task: TaskSpec, dag: DagSpec, params: Mapping[str, Any], run_id: str, logical_date: datetime | None,
    interval: Interval | None, partition_key: str | None,
) -> str:  # fmt: skip
    """The SQL of a task with the values of its macros in it. `InvalidInput` for one that this run does not have."""
    if not task.has_macros:
        return task.sql or ""
    from backfill_manager.dags.sql_macros import MacroError, MacroInterval, render_macros

    values = {
        "dag_id": dag.dag_id, "task_id": task.task_id, "run_id": run_id, "params": dict(params), "logical_date": logical_date,
        "interval": None if interval is None else MacroInterval(*interval), "partition_key": partition_key,
        "mapped_value": task.mapped_value,
    }  # fmt: skip
    given = {name: value for name, value in values.items() if value is not None}
    try:
        return render_macros(task.sql or "", given, dag.timezone)
    except MacroError as error:
        raise InvalidInput(f"sql task {task.task_id!r}: {error}") from None


def _shown_sql(task: TaskSpec, dag: DagSpec, run: PlannedRun, params: Mapping[str, Any]) -> str | None:
    """With a comment in front, and its macros as they are, where these have no values in such a run."""
    if task.sql is None:
        return None
    try:
        text = sql_text(task, dag, mask_values(params), run.run_id, run.logical_date, run.interval, run.partition_key)
    except InvalidInput as error:
        text = f"-- {' '.join(str(error).split())}\n{task.sql}"
    return mask_code(text)


def render(dag: DagSpec, run: PlannedRun, task_ids: Collection[str], *, note: str | None = None) -> dict[str, Any]:
    """The document `resources.RenderedRun` of these tasks."""
    params = {**dag.params, **run.conf}
    values = sql_values(params, run.run_id, run.logical_date, run.interval, run.partition_key)
    start, end = run.interval or (None, None)
    return {
        "dag_id": dag.dag_id, "run_id": run.run_id, "logical_date": format_instant(run.logical_date),
        "interval_start": format_instant(start), "interval_end": format_instant(end),
        "partition_key": run.partition_key, "params": mask_values(params), "note": note,
        "sql_parameters": {name: MASK if is_secret(name) else literal(mask_values(value)) for name, value in values.items()},
        "tasks": [
            {
                "task_id": task.task_id, "kind": task.kind, "sql": _shown_sql(task, dag, run, params), "into": task.into,
                "mapped_value": mask_values(task.mapped_value),
            }
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
