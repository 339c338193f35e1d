"""`@task.executor`: the whole function runs on an executor, as a Spark job of one partition in the task's pool.

The function, the modules of its bundle that it uses and its context go there by value (cloudpickle), so neither the
bundle nor backfill_manager needs to be installed on executors; other imports (`requests`, a database driver) do. One
JSON text comes back. Spark may run the job again when it loses the executor under it: like any task, the function may
run twice.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from backfill_manager.errors import InvalidInput
from backfill_manager.execution import executor_runtime, interval
from backfill_manager.execution.executor_runtime import MAX_RESULT_CHARS, ExecutorTaskContext, TaskSkipped, run_function

if TYPE_CHECKING:
    from pyspark import SparkContext

_registry = threading.Lock()  # cloudpickle's list of modules that go by value is one for the process


class ExecutorTaskFailed(Exception):
    """The function raised on the executor; one line. Its traceback is in the task's log already."""


def run_on_executor(
    sc: SparkContext, function: Callable[[Any], Any], context: ExecutorTaskContext, *, snapshot: Path,
    log: Callable[[str, str], None],
) -> str | None:  # fmt: skip
    """Run `function(context)` on an executor; returns the JSON text of its result. Raises `TaskSkipped`,
    `ExecutorTaskFailed`, or what Spark raises. `snapshot` is the folder of the bundle's files."""
    from pickle import PicklingError

    from pyspark import cloudpickle

    try:
        with _by_value(_modules_of(function, snapshot)):
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
        raise ExecutorTaskFailed(value)
    if answer["outcome"] == "too large":
        raise InvalidInput(
            f"task {context.task_id!r} returned {value} characters of JSON from its executor; a result may have "
            f"{MAX_RESULT_CHARS:,}. Data goes into a table or a file."
        )
    return value


def _modules_of(function: Callable[[Any], Any], snapshot: Path) -> list[ModuleType]:
    """Modules to send: ours, the function's own, and every loaded module of its bundle."""
    modules = {interval.__name__: interval, executor_runtime.__name__: executor_runtime}
    own = sys.modules.get(getattr(function, "__module__", None) or "")
    if own is not None and own.__name__ != "__main__":  # what is in __main__ goes by value anyhow
        modules[own.__name__] = own
    folder = snapshot.resolve()
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and Path(file).resolve().is_relative_to(folder):
            modules[name] = module
    return list(modules.values())


@contextmanager
def _by_value(modules: list[ModuleType]) -> Iterator[None]:
    from pyspark import cloudpickle

    with _registry:
        registered = cloudpickle.list_registry_pickle_by_value()
        new = [module for module in modules if module.__name__ not in registered]
        for module in new:
            cloudpickle.register_pickle_by_value(module)
        try:
            yield
        finally:
            for module in new:
                cloudpickle.unregister_pickle_by_value(module)
