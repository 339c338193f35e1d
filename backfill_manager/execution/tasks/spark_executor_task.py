"""`@task.executor`: the whole function runs on an executor, as a Spark job of one partition in the task's pool.

The function, the modules of its bundle that it uses and its context go there by value (cloudpickle), so neither the
bundle nor backfill_manager needs to be installed on executors; other imports (`requests`, a database driver) do. One
JSON text comes back. Spark may run the job again when it loses the executor under it: like any task, the function may
run twice.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from backfill_manager.errors import BackfillManagerError, InvalidInput
from backfill_manager.execution import interval
from backfill_manager.execution.tasks import spark_executor_runtime
from backfill_manager.execution.tasks.spark_executor_runtime import (
    MAX_RESULT_CHARS,
    ExecutorTaskContext,
    TaskSkipped,
    run_function,
)

if TYPE_CHECKING:
    from pyspark import SparkContext


class ExecutorTaskFailed(BackfillManagerError):
    """The function raised on the executor; one line. Its traceback is in the task's log already."""


def run_on_executor(
    sc: SparkContext, function: Callable[[Any], Any], context: ExecutorTaskContext, log: Callable[[str, str], None]
) -> str | None:
    """Run `function(context)` on an executor; returns the JSON text of its result. Raises `TaskSkipped`,
    `ExecutorTaskFailed`, or what Spark raises."""
    from pickle import PicklingError

    from pyspark import cloudpickle

    try:
        for module in (interval, spark_executor_runtime, sys.modules.get(getattr(function, "__module__", None) or "")):
            if module is not None and module.__name__ != "__main__":  # what is in __main__ goes by value anyhow
                cloudpickle.register_pickle_by_value(module)  # as all modules of its bundle are
        payload: bytes = cloudpickle.dumps((run_function, function, context))
    except (TypeError, AttributeError, PicklingError) as error:
        raise InvalidInput(
            f"task {context.task_id!r} can't be sent to an executor: {error}. What the function uses from outside "
            "of itself must be picklable; open connections and locks inside the function."
        ) from error

    def on_executor(_: int) -> str:
        import pickle

        run, *args = pickle.loads(payload)
        answer: str = run(*args)
        return answer

    answer = json.loads(sc.parallelize([0], 1).map(on_executor).collect()[0])
    for _, level, message in answer["lines"]:
        log(level, message)
    value: str | None = answer["value"]
    if answer["outcome"] == "skipped":
        raise TaskSkipped(str(value))
    if answer["outcome"] == "failed":
        raise ExecutorTaskFailed(str(value))
    if answer["outcome"] == "too large":
        raise InvalidInput(
            f"task {context.task_id!r} returned {value} characters of JSON from its executor; a result may have "
            f"{MAX_RESULT_CHARS:,}. Data goes into a table or a file."
        )
    return value
