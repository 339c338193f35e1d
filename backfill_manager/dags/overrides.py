"""Settings of a DAG and its tasks that one backfill sets for itself: `retries=3`, `clean.timeout=600`.

A name alone is a setting of the DAG, or of every one of its tasks; `task.setting` is that task's, and a callback is set by
its own id only: `clean.on_failure.retries=2`. Values are what
`@dag` and `@task` would take, as JSON. The definition that comes out is used for this backfill's runs and nothing else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from backfill_manager.dags import validation
from backfill_manager.dags.definition import DagSpec
from backfill_manager.errors import BackfillManagerError, nearest
from backfill_manager.schemas import errors

OF_DAG: Final = ("max_active_tasks",)
OF_TASK: Final = (
    "retries", "retry_delay", "retry_backoff", "max_retry_delay", "timeout", "depends_on_past", "trigger_rule", "pool",
    "priority", "weight", "max_active_tis",
)  # fmt: skip
_NOT_OF_CALLBACKS: Final = ("depends_on_past", "trigger_rule")  # they wait for nothing but what they tell of
_INSTEAD: Final = {
    "max_active_runs": "a backfill has its own max_active_runs",
    "params": "run parameters are given by themselves, as conf",
    "schedule": "which intervals are run is said by the range",
}


def with_overrides(spec: DagSpec, overrides: Mapping[str, Any]) -> DagSpec:
    """The definition with these settings; `InvalidInput` in one line for one that is unknown or wrong."""
    if not overrides:
        return spec
    of_dag: dict[str, Any] = {}
    of_tasks: dict[str, dict[str, Any]] = {task.task_id: {} for task in spec.tasks}
    for name in sorted(overrides, key=lambda name: "." in name):  # one task's own come after every task's
        value = overrides[name]
        if name in OF_DAG:
            of_dag[name] = _checked(name, name, value, validation.DAG)
            continue
        task_id, dot, setting = name.rpartition(".")
        if setting in OF_DAG:
            raise _invalid(name, f"{setting} is a setting of the whole DAG; write {setting}=...")
        if setting not in OF_TASK:
            raise _unknown(name, setting)
        if dot and task_id not in of_tasks:
            near = _ended(nearest(task_id, of_tasks))
            raise _invalid(name, f"DAG {spec.dag_id!r} has no task {task_id!r}{near} It has {', '.join(of_tasks)}.")
        if dot and spec.is_callback(task_id) and setting in _NOT_OF_CALLBACKS:
            raise _invalid(name, f"a callback waits for nothing but what it tells of; it has no {setting}")
        checked = _checked(name, setting, value, validation.TASK)
        for chosen in [task_id] if task_id else [task.task_id for task in spec.work]:
            of_tasks[chosen][setting] = checked
    tasks = tuple(dataclasses.replace(task, **of_tasks[task.task_id]) for task in spec.tasks)
    return dataclasses.replace(spec, tasks=tasks, **of_dag)


def _checked(name: str, setting: str, value: Any, checks: Mapping[str, validation.Check]) -> Any:
    try:
        return checks[setting](value)
    except ValueError as error:
        raise _invalid(name, f"{setting} {error}") from None


def _unknown(name: str, setting: str) -> BackfillManagerError:
    known = (*OF_DAG, *OF_TASK)
    why = _INSTEAD.get(setting)
    told = _ended(f"; {why}" if why else nearest(setting, known))
    return _invalid(name, f"{setting!r} is not a setting that a backfill can set{told} There are {', '.join(known)}.")


def _invalid(name: str, problem: str) -> BackfillManagerError:
    return errors.INVALID_VALUE(field="overrides", problem=f"{name}: {problem}")


def _ended(told: str) -> str:
    """What may follow a sentence, with the sentence's end."""
    return told if told.endswith("?") else f"{told}."
