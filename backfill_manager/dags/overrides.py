"""Settings of a DAG and its tasks that one backfill sets for its own runs: `retries=3`, `clean.timeout=600`.

A name alone is a setting of the DAG, or of every one of its tasks; `task.setting` is that task's, of one with `over` all of its
mapped tasks'. A callback is set by its own id only: `clean.on_failure.retries=2`. A mapped task that is known in a run only gets
its own when it is made there. Values are what `@dag` and `@task` would take, as JSON. Which settings may be overridden is
declared with them, in `schemas.dag_settings`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from backfill_manager.dags.definition import DagSpec
from backfill_manager.errors import nearest
from backfill_manager.schemas import errors


def with_overrides(spec: DagSpec, overrides: Mapping[str, Any]) -> DagSpec:
    """The definition with these settings; `InvalidInput` in one line for one that is unknown or wrong."""
    if not overrides:
        return spec
    from backfill_manager.schemas import dag_settings as declared  # costs more than a light command

    settings_of_dag, settings_of_task = map(declared.overridable, (declared.DagSettings, declared.TaskSettings))
    settings_of_callback = declared.overridable(declared.TaskSettings, of_callbacks=True)
    of_dag: dict[str, Any] = {}
    of_tasks: dict[str, dict[str, Any]] = {task.task_id: {} for task in spec.tasks}
    # one task's own come after every task's, those of a mapped task after those of all that are mapped with it
    for name in sorted(overrides, key=lambda name: name.count(".")):
        value = overrides[name]
        if name in settings_of_dag:
            of_dag |= _checked(declared.DagSettings, name, name, value)
            continue
        task_id, dot, setting = name.rpartition(".")
        if setting in settings_of_dag:
            raise errors.OVERRIDE_OF_DAG(name=name, setting=setting)
        if setting not in settings_of_task:
            known = (*settings_of_dag, *settings_of_task)
            about = {"name": name, "setting": setting, "known": ", ".join(known)}
            if setting in errors.OVERRIDE_HAS_A_FIELD:
                raise errors.OVERRIDE_HAS_A_FIELD[setting](**about)
            raise errors.UNKNOWN_OVERRIDE(**about, nearest=_ended(nearest(setting, known)))
        mapped_from, _, key = task_id.rpartition(".")
        is_mapped_in_runs = mapped_from in spec.mapped_over_results and task_id not in of_tasks
        if dot and not is_mapped_in_runs and task_id not in of_tasks and task_id not in spec.mapped:
            about = {"dag_id": spec.dag_id, "task_id": task_id, "known": ", ".join(of_tasks)}
            raise errors.OVERRIDE_UNKNOWN_TASK(name=name, nearest=_ended(nearest(task_id, of_tasks)), **about)
        if dot and spec.is_callback(task_id) and setting not in settings_of_callback:
            raise errors.OVERRIDE_OF_CALLBACK(name=name, setting=setting)
        checked = _checked(declared.TaskSettings, name, setting, value)
        if is_mapped_in_runs:
            triples = ((key, field, one) for field, one in checked.items())
            of_tasks[mapped_from]["of_mapped"] = (*of_tasks[mapped_from].get("of_mapped", ()), *triples)
            continue
        of_all = [task.task_id for task in spec.work]
        for chosen in spec.mapped.get(task_id, {task_id: task_id}).values() if task_id else of_all:
            of_tasks[chosen] |= checked
    tasks = tuple(dataclasses.replace(task, **of_tasks[task.task_id]) for task in spec.tasks)
    return dataclasses.replace(spec, tasks=tasks, **of_dag)


def known_overrides(spec: DagSpec, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Those that this version takes, which may lack a task that they name."""
    known = {"", *spec.by_id, *spec.mapped}

    def is_known(task_id: str) -> bool:
        return task_id in known or task_id.rpartition(".")[0] in spec.mapped_over_results

    return {name: value for name, value in overrides.items() if is_known(name.rpartition(".")[0])}


def _checked(settings: Any, name: str, setting: str, value: Any) -> dict[str, Any]:
    from backfill_manager.schemas.dag_settings import validate

    checked, problems = validate(settings, {setting: value})
    if problems:
        raise errors.INVALID_OVERRIDE(problem=problems[0].describe(name))
    return checked


def _ended(hint: str) -> str:
    """What may follow a sentence, with the sentence's end."""
    return hint if hint.endswith("?") else f"{hint}."
