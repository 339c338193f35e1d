"""Settings of a DAG and its tasks that one backfill sets for its own runs: `retries=3`, `clean.timeout=600`.

A name alone is a setting of the DAG, or of every one of its tasks; `task.setting` is that task's, and a callback is set by
its own id only: `clean.on_failure.retries=2`. Values are what `@dag` and `@task` would take, as JSON. Which settings may be
overridden is declared with them, in `schemas.dag_settings`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from backfill_manager.dags.definition import DagSpec
from backfill_manager.errors import BackfillManagerError, nearest
from backfill_manager.schemas import errors


def with_overrides(spec: DagSpec, overrides: Mapping[str, Any]) -> DagSpec:
    """The definition with these settings; `InvalidInput` in one line for one that is unknown or wrong."""
    if not overrides:
        return spec
    from backfill_manager.schemas.dag_settings import (  # costs more than a light command
        DagSettings,
        TaskSettings,
        overridable,
    )

    settings_of_dag, settings_of_task = overridable(DagSettings), overridable(TaskSettings)
    settings_of_callback = overridable(TaskSettings, of_callbacks=True)
    of_dag: dict[str, Any] = {}
    of_tasks: dict[str, dict[str, Any]] = {task.task_id: {} for task in spec.tasks}
    for name in sorted(overrides, key=lambda name: "." in name):  # one task's own come after every task's
        value = overrides[name]
        if name in settings_of_dag:
            of_dag |= _checked(DagSettings, name, name, value)
            continue
        task_id, dot, setting = name.rpartition(".")
        if setting in settings_of_dag:
            raise errors.OVERRIDE_OF_DAG(name=name, setting=setting)
        if setting not in settings_of_task:
            raise _unknown(name, setting, (*settings_of_dag, *settings_of_task))
        if dot and task_id not in of_tasks:
            near = _ended(nearest(task_id, of_tasks))
            raise errors.OVERRIDE_UNKNOWN_TASK(
                name=name, dag_id=spec.dag_id, task_id=task_id, nearest=near, known=", ".join(of_tasks)
            )
        if dot and spec.is_callback(task_id) and setting not in settings_of_callback:
            raise errors.OVERRIDE_OF_CALLBACK(name=name, setting=setting)
        checked = _checked(TaskSettings, name, setting, value)
        for chosen in [task_id] if task_id else [task.task_id for task in spec.work]:
            of_tasks[chosen] |= checked
    tasks = tuple(dataclasses.replace(task, **of_tasks[task.task_id]) for task in spec.tasks)
    return dataclasses.replace(spec, tasks=tasks, **of_dag)


def _checked(settings: Any, name: str, setting: str, value: Any) -> dict[str, Any]:
    from backfill_manager.schemas.dag_settings import validate

    checked, problems = validate(settings, {setting: value})
    if problems:
        raise errors.INVALID_OVERRIDE(problem=problems[0].describe(name))
    return checked


def _unknown(name: str, setting: str, known: Collection[str]) -> BackfillManagerError:
    if setting in errors.OVERRIDE_HAS_A_FIELD:
        return errors.OVERRIDE_HAS_A_FIELD[setting](name=name, setting=setting, known=", ".join(known))
    return errors.UNKNOWN_OVERRIDE(
        name=name, setting=setting, nearest=_ended(nearest(setting, known)), known=", ".join(known)
    )


def _ended(hint: str) -> str:
    """What may follow a sentence, with the sentence's end."""
    return hint if hint.endswith("?") else f"{hint}."
