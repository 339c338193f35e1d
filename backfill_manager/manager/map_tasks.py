"""A task that is mapped over the result of another comes to its turn: its mapped tasks are made, in the same tick."""

from __future__ import annotations

import json
from typing import Any, Final

from backfill_manager.dags.definition import TaskSpec
from backfill_manager.dags.mapping import values_of, with_mapped, without_mapped
from backfill_manager.errors import InvalidInput, shorten
from backfill_manager.execution.spark_executor_runtime import MAX_RESULT_CHARS
from backfill_manager.manager.create_run import fit_tasks
from backfill_manager.manager.state import ActiveRun
from backfill_manager.manager.tick_context import Tick
from backfill_manager.model import states as s
from backfill_manager.model import transitions as c
from backfill_manager.model.records import TaskInstance

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
    ended = {
        key: ti for key, ti in found.items() if ti.state == s.SUCCESS and (is_mapped or ti.result_json is not None)
    }
    if not ended:
        raise InvalidInput(f"it is mapped over the result of {over!r}, which has none in this run")
    if secret := next((ti.task_id for ti in ended.values() if ti.result_shown_json is not None), None):
        raise InvalidInput(f"the result of {secret!r} holds a secret, which would be seen in ids")
    results = {key: json.loads(ti.result_json or "null") for key, ti in ended.items()}
    total = sum(len(ti.result_json or "") for ti in ended.values())
    if total > MAX_RESULT_CHARS:
        raise InvalidInput(
            f"the results of {over!r} have {total:,} characters of JSON together; "
            f"a task is mapped over {MAX_RESULT_CHARS:,} at most"
        )
    return results if is_mapped else results[over]


def map_tasks(tick: Tick, run: ActiveRun, task: TaskSpec) -> bool:
    """Whether the run has other tasks now. `task` is `success` then, `skipped` where there is nothing to map over, or failed.
    False as long as tasks that it has no more are being stopped."""
    ti, values = run.tasks[task.task_id], dict[str, Any]()
    spec, error = without_mapped(run.spec, task.task_id), None
    try:
        values = values_of(task, _result(run, task))
        spec = with_mapped(spec, {task.task_id: values})
    except InvalidInput as refused:
        error = shorten(str(refused), MAX_ERROR)
    begins = f"{task.task_id}."
    gone = [one for one in run.tasks.values() if one.task_id.startswith(begins) and one.task_id not in spec.by_id]
    if tick.cancel(gone, f"stopped, as {task.task_id} is mapped again"):
        return False
    if error is not None:
        tick.put(c.failed(ti, tick.now, error))
    elif values:
        tick.put(c.succeeded(ti, tick.now, json.dumps(values, ensure_ascii=False)))
    else:
        tick.put(c.skipped(ti, tick.now, f"the result of {task.over_result_of} is empty"))
    run.spec = spec
    mapped = frozenset(spec.mapped.get(task.task_id, {}).values())
    selected = run.selected | mapped | {callback.task_id for callback in spec.callbacks if callback.watches in mapped}
    fit_tasks(tick.state, run, selected, tick.now, only=begins)
    return True
