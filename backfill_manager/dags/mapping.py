"""Tasks that are mapped over the result of another: their values are known in a run only. Pure.

    load.expand(over=list_files()) ─► in the definition: `load`, after `list_files`
                                      in a run, once `list_files` has succeeded: `load.a`, `load.b` after `load`

`load` itself runs nothing. In a run it is `success` when its mapped tasks are there, and its own result is their values by key,
so the definition of a run follows from its version and its task instances alone. Over a task that is mapped itself it is mapped
over the results of those that are mapped from it, by their keys.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from backfill_manager.dags.definition import DagSpec, TaskSpec
from backfill_manager.errors import InvalidInput
from backfill_manager.model import states as s
from backfill_manager.model.records import TaskInstance
from backfill_manager.model.stored_json import is_readable, shown_column

MAX_ID: Final = 200  # characters, as of every name


def values_of(task: TaskSpec, result: Any) -> dict[str, Any]:
    """By key what `task` is mapped over, of the result of the other one. Empty: it has no mapped task. `InvalidInput` else."""
    from backfill_manager.schemas.dag_settings import values_by_key  # costs more than a light command

    try:
        values = values_by_key(result, at_least=0)
    except ValueError as error:
        raise InvalidInput(f"it is mapped over the result of {task.over_result_of!r}, which {error}") from None
    return {key: json.loads(value) for key, value in values.items()}


def with_mapped(spec: DagSpec, made: Mapping[str, Mapping[str, Any]]) -> DagSpec:
    """The definition with the mapped tasks of those whose values are known, `made`: what waits for such a task waits for all
    that are mapped from it. `InvalidInput` where an id is too long or there already."""
    spec, refused = with_mapped_or_refused(spec, made)
    for error in refused.values():
        raise error
    return spec


def with_mapped_or_refused(
    spec: DagSpec, made: Mapping[str, Mapping[str, Any]]
) -> tuple[DagSpec, dict[str, InvalidInput]]:  # fmt: skip
    """As `with_mapped`, for many at once; those that are refused are as they were, each with the reason."""
    of_each: dict[str, list[TaskSpec]] = {}
    called: list[TaskSpec] = []
    refused: dict[str, InvalidInput] = {}
    taken = set(spec.by_id)
    callbacks: dict[str | None, list[TaskSpec]] = {}
    for callback in spec.callbacks:
        callbacks.setdefault(callback.watches, []).append(callback)
    for mapped_from, values in made.items():
        if not values:
            continue
        tasks = _mapped_tasks(spec.task(mapped_from), values)
        of_tasks = [
            dataclasses.replace(
                callback, task_id=f"{task.task_id}{callback.task_id[len(mapped_from) :]}", watches=task.task_id,
                mapped_from=callback.task_id, mapped_json=task.mapped_json,
            )
            for callback in callbacks.get(mapped_from, ())
            for task in tasks
        ]  # fmt: skip
        if error := _refusal(mapped_from, tasks, of_tasks, taken):
            refused[mapped_from] = error
            continue
        taken |= {task.task_id for task in (*tasks, *of_tasks)}
        of_each[mapped_from] = tasks
        called += of_tasks
    if not of_each:
        return spec, refused
    ids = {mapped_from: tuple(task.task_id for task in tasks) for mapped_from, tasks in of_each.items()}

    def after_all(task: TaskSpec) -> TaskSpec:
        if not any(up in ids for up in task.upstream):
            return task
        upstream = tuple(up for one in task.upstream for up in ids.get(one, (one,)))
        return dataclasses.replace(task, upstream=upstream)

    mapped = (task for tasks in of_each.values() for task in tasks)
    return dataclasses.replace(spec, tasks=(*map(after_all, spec.tasks), *mapped, *called)), refused


def _refusal(
    mapped_from: str, tasks: Sequence[TaskSpec], callbacks: Sequence[TaskSpec], taken: Collection[str]
) -> InvalidInput | None:
    """Why these can't be: `taken` are the ids of others."""
    for task in tasks:
        if len(task.task_id) > MAX_ID:
            return InvalidInput(
                f"mapping {mapped_from!r} makes the id {task.task_id!r}, which has more than {MAX_ID} characters"
            )
        if task.task_id in taken:
            return InvalidInput(f"mapping {mapped_from!r} makes the id {task.task_id!r}, which another task has")
    for callback in callbacks:
        if len(callback.task_id) > MAX_ID or callback.task_id in taken:
            return InvalidInput(
                f"mapping {callback.watches!r} makes the id {callback.task_id!r}, which is too long or another task's"
            )
    return None


def without_mapped(spec: DagSpec, mapped_from: Iterable[str]) -> DagSpec:
    """The definition as it was before `with_mapped` for these."""
    declared = {task_id: one for one in mapped_from for task_id in spec.mapped.get(one, {}).values()}
    if not declared:
        return spec

    def after_one(task: TaskSpec) -> TaskSpec:
        upstream = tuple(dict.fromkeys(declared.get(up, up) for up in task.upstream))
        return task if upstream == task.upstream else dataclasses.replace(task, upstream=upstream)

    left = (task for task in spec.tasks if task.task_id not in declared and task.watches not in declared)
    return dataclasses.replace(spec, tasks=tuple(map(after_one, left)))


def values_in(spec: DagSpec) -> dict[str, dict[str, Any]]:
    """By key what is mapped over results in this definition of a run, as `with_mapped` takes it."""
    return {
        task_id: {key: spec.task(of_key).mapped_value for key, of_key in spec.mapped.get(task_id, {}).items()}
        for task_id in spec.mapped_over_results
    }


def made_of(ti: TaskInstance, *, shown: bool = False) -> dict[str, Any]:
    """By key what was mapped from this task in its run; empty: nothing. One that has started was a task like any other, in the
    version that the run had before: its result is its own."""
    if ti.state != s.SUCCESS or ti.result_json is None or ti.started_at is not None:
        return {}
    values = shown_column(ti, "result_shown_json" if shown and ti.result_shown_json else "result_json")
    return values if isinstance(values, dict) else {}


def is_damaged(ti: TaskInstance) -> bool:
    """Whether somebody else has written its result so that what was mapped from it can't be known."""
    if not is_readable("result_json", ti.result_json):
        return True
    was_mapped = ti.state == s.SUCCESS and ti.result_json is not None and ti.started_at is None
    return was_mapped and not isinstance(shown_column(ti, "result_json"), dict)


def spec_with_tasks(spec: DagSpec, tasks: Mapping[str, TaskInstance], *, shown: bool = False) -> DagSpec:
    """The definition of a run with these task instances, of that of its version. Without the mapped tasks whose ids another task
    has: the version to which the run was moved. `shown`: with values as people may see them."""
    there = [tasks[task_id] for task_id in spec.mapped_over_results if task_id in tasks]
    return with_mapped_or_refused(spec, {ti.task_id: made_of(ti, shown=shown) for ti in there})[0]


def _mapped_tasks(task: TaskSpec, values: Mapping[str, Any]) -> list[TaskSpec]:
    settings: dict[str, dict[str, Any]] = {}  # of its own, by key
    for key, setting, value in task.of_mapped:
        settings.setdefault(key, {})[setting] = value
    common: dict[str, Any] = dict(
        upstream=(task.task_id,), trigger_rule="all_success", waits_for=(), over_result_of=None, of_mapped=(),
        mapped_from=task.task_id,
    )  # fmt: skip
    return [
        dataclasses.replace(
            task, task_id=f"{task.task_id}.{key}", mapped_json=json.dumps(value, ensure_ascii=False, sort_keys=True),
            **{**common, **settings.get(key, {})},
        )
        for key, value in values.items()
    ]  # fmt: skip
