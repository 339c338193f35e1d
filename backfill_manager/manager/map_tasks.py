"""A task that is mapped over the result of another comes to its turn: its mapped tasks are made, in the same tick."""

from __future__ import annotations

import json
from typing import Any, Final

from backfill_manager.dags.definition import TaskSpec
from backfill_manager.dags.mapping import values_of, with_mapped, without_mapped
from backfill_manager.errors import InvalidInput, shorten
from backfill_manager.manager.create_run import fit_tasks
from backfill_manager.manager.state import ActiveRun
from backfill_manager.manager.tick_context import Tick
from backfill_manager.model import states as s
from backfill_manager.model import transitions as c

MAX_ERROR: Final = 1000  # characters


def map_tasks(tick: Tick, run: ActiveRun, task: TaskSpec) -> bool:
    """Whether the run has other tasks now. `task` is `success` then, `skipped` where there is nothing to map over, or failed.
    False as long as tasks that it has no more are being stopped."""
    ti, over = run.tasks[task.task_id], run.tasks.get(task.over_result_of or "")
    values: dict[str, Any] = {}
    spec, error = without_mapped(run.spec, task.task_id), None
    try:
        if over is None or over.state != s.SUCCESS or over.result_json is None:
            raise InvalidInput(f"it is mapped over the result of {task.over_result_of!r}, which has none in this run")
        if over.result_shown_json is not None:
            raise InvalidInput(f"the result of {task.over_result_of!r} holds a secret, which would be seen in ids")
        values = values_of(task, json.loads(over.result_json))
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
