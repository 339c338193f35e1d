"""Snapshots whose DAG runs functions of a test, so that tasks reach them in the way in which they reach any bundle's code.

The functions go into a file by value, with the modules of the tests that they use: the process that loads them needs none of
these, and shares nothing with the test but files.
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

from backfill_manager.execution.messages import TaskLaunch

TESTS = str(Path(__file__).parents[1])
DAG_FILE = """
import pickle
from pathlib import Path

from backfill_manager import dag, task

functions = pickle.loads(Path(__file__).with_name("functions.pickle").read_bytes())


@dag({dag_id!r}, schedule=None)
def work_dag():
    for task_id, function in functions.items():
        {decorator}(task_id=task_id)(function)()
"""
_numbers = itertools.count(1)


def with_function(launch: TaskLaunch, function: Callable[[Any], Any], folder: Path) -> TaskLaunch:
    """The launch, whose task runs this function. `folder`: where its snapshot is made."""
    functions = {task.task_id: _of_another_task for task in launch.dag.tasks if task.kind in ("python", "executor")}
    functions[launch.task.task_id] = function
    snapshot = folder / f"snapshot {next(_numbers)}"
    snapshot.mkdir(parents=True)
    decorator = "task.executor" if launch.task.kind == "executor" else "task"
    (snapshot / "work_dag.py").write_text(DAG_FILE.format(dag_id=launch.dag.dag_id, decorator=decorator))
    (snapshot / "functions.pickle").write_bytes(pickled_by_value(functions))
    return of_snapshot(launch, snapshot, "work_dag.py")


def _of_another_task(ctx: Any) -> None:
    raise AssertionError(f"{ctx} runs in no test")


def of_snapshot(launch: TaskLaunch, snapshot: Path, file: str) -> TaskLaunch:
    """The launch, whose DAG is defined in this file of the snapshot."""
    version = launch.version.evolve(file=file, snapshot=str(snapshot), definition_json=launch.dag.to_json())
    return dataclasses.replace(launch, version=version)


def pickled_by_value(value: Any) -> bytes:
    """For a process that has none of the tests' modules; it needs `pickle` and PySpark."""
    registered = cloudpickle.list_registry_pickle_by_value()
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file.startswith(TESTS) and name != "__main__" and name not in registered:
            cloudpickle.register_pickle_by_value(module)  # and stays so: nothing else depends on it
    pickled: bytes = cloudpickle.dumps(value)
    return pickled
