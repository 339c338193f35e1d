"""Tasks that are mapped over the result of another come to their turn: their mapped tasks are made, in the same tick, of all of
them at once."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from backfill_manager.dags.definition import DagSpec, TaskSpec
from backfill_manager.dags.mapping import values_of, with_mapped_or_refused, without_mapped
from backfill_manager.errors import InvalidInput, shorten
from backfill_manager.execution.tasks.spark_executor_runtime import MAX_RESULT_CHARS
from backfill_manager.manager.decisions.create_run import fit_tasks, names_before_dots
from backfill_manager.manager.state import ActiveRun
from backfill_manager.manager.tick_context import Tick
from backfill_manager.model import states as s
from backfill_manager.model import transitions as c
from backfill_manager.model.records import TaskInstance
from backfill_manager.model.stored_json import read_column

MAX_ERROR: Final = 1000  # characters


def over_tasks(run: ActiveRun, task: TaskSpec) -> dict[str, TaskInstance]:
    """What `task` is mapped over in this run: the one task, or, by key, all that are mapped from it."""
    over = task.over_result_of or ""
    ids = run.spec.mapped.get(over) or {over: over}
    return {key: run.tasks[task_id] for key, task_id in ids.items() if task_id in run.tasks}


def _result(run: ActiveRun, task: TaskSpec) -> Any:
    """What `task` is mapped over; `InvalidInput` where there is nothing, or nothing that may be seen."""
    over, found = task.over_result_of or "", over_tasks(run, task)
    is_mapped = bool(run.spec.mapped.get(over))
    ended = {key: ti for key, ti in found.items() if ti.state == s.SUCCESS}
    if not ended or (not is_mapped and ended[over].result_json is None):
        raise InvalidInput(f"it is mapped over the result of {over!r}, which has none in this run")
    if secret := next((ti.task_id for ti in ended.values() if ti.result_shown_json is not None), None):
        raise InvalidInput(f"the result of {secret!r} holds a secret, which would be seen in ids")
    results = {key: read_column(ti, "result_json") for key, ti in ended.items()}
    total = sum(len(ti.result_json or "") for ti in ended.values())
    if total > MAX_RESULT_CHARS:
        raise InvalidInput(
            f"the results of {over!r} have {total:,} characters of JSON together; "
            f"a task is mapped over {MAX_RESULT_CHARS:,} at most"
        )
    return results if is_mapped else results[over]


def map_tasks(tick: Tick, run: ActiveRun, tasks: Sequence[TaskSpec]) -> bool:
    """Whether the run has other tasks now. Each of `tasks` is `success` then, `skipped` where there is nothing to map over, or
    failed; it stays as it is as long as tasks that the run has no more are being stopped."""
    values: dict[str, dict[str, Any]] = {}
    errors: dict[str, InvalidInput] = {}
    for task in tasks:
        try:
            values[task.task_id] = values_of(task, _result(run, task))
        except InvalidInput as refused:
            values[task.task_id], errors[task.task_id] = {}, refused
    spec, refusals = _mapped_again(run, values)
    waiting = {
        task_id for task_id, gone in _gone(run, spec, values).items()
        if tick.cancel(gone, f"stopped, as {task_id} is mapped again")
    }  # fmt: skip
    if waiting:
        values = {task_id: of_task for task_id, of_task in values.items() if task_id not in waiting}
        spec, refusals = _mapped_again(run, values)
    errors |= refusals
    for task_id, of_task in values.items():
        ti = run.tasks[task_id]
        if task_id in errors:
            tick.put(c.failed(ti, tick.now, shorten(str(errors[task_id]), MAX_ERROR)))
        elif of_task:
            tick.put(c.succeeded(ti, tick.now, json.dumps(of_task, ensure_ascii=False)))
        else:
            over = run.spec.task(task_id).over_result_of
            tick.put(c.skipped(ti, tick.now, f"the result of {over} is empty"))
    run.spec = spec
    mapped = frozenset(task_id for one in values for task_id in spec.mapped.get(one, {}).values())
    selected = run.selected | mapped | {callback.task_id for callback in spec.callbacks if callback.watches in mapped}
    fit_tasks(tick.state, run, selected, tick.now, only=values)
    _clear_held(tick, run, mapped)
    return bool(values)


def _clear_held(tick: Tick, run: ActiveRun, mapped: Collection[str]) -> None:
    """Those that were there before and could not start, as what they are mapped from had not succeeded in between: they run now,
    and may have something to report."""
    held = {task_id for task_id in mapped if _was_held(run.tasks[task_id])}
    callbacks = (callback.task_id for callback in run.spec.callbacks if callback.watches in held)
    for ti in [run.tasks[task_id] for task_id in (*sorted(held), *callbacks)]:
        if ti.state in s.TASK_FINISHED:
            tick.put(c.cleared(ti, ti.cleared_by))


def _was_held(ti: TaskInstance) -> bool:
    return ti.state == s.UPSTREAM_FAILED or (ti.state == s.SKIPPED and ti.error == c.SKIPPED_BY_UPSTREAM)


def _mapped_again(
    run: ActiveRun, values: Mapping[str, Mapping[str, Any]]
) -> tuple[DagSpec, dict[str, InvalidInput]]:  # fmt: skip
    return with_mapped_or_refused(without_mapped(run.spec, values), values)


def _gone(run: ActiveRun, spec: DagSpec, mapped_from: Iterable[str]) -> dict[str, list[TaskInstance]]:
    """What was mapped from each of these, and is not in `spec`."""
    gone: dict[str, list[TaskInstance]] = {one: [] for one in mapped_from}
    for ti in run.tasks.values():
        if ti.task_id not in spec.by_id:
            for one in names_before_dots(ti.task_id):
                if one in gone:
                    gone[one].append(ti)
    return gone
