"""DAGs without Python: a `*.dag.yaml` file of a bundle, one DAG per document.

    dag_id: airport_day
    schedule: "@daily"
    start_date: 2013-01-01
    tasks:
      check:
        python: checks:flights_are_there
      count:
        sql: count.sql
        into: airport_day
        time_column: day
        after: check

Keys are the keywords of `@dag`, and below `tasks` those of `@task`, `sql` and `bash_task`, declared in `schemas.dag_settings`.
The DAG is then made by `authoring` itself, so a file gives the very DAG that Python would have given. What is wrong is raised at
its line.
"""

from __future__ import annotations

import graphlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NoReturn

from backfill_manager.dags import authoring
from backfill_manager.dags.definition import CALLBACKS, check_conditions
from backfill_manager.dags.yaml.text import T, at_line, documents_of, fail_at
from backfill_manager.errors import InvalidDag, nearest
from backfill_manager.schemas.dag_settings import (
    KINDS,
    BashSettings,
    SqlSettings,
    TaskSettings,
    YamlDag,
    settings_of,
    validate,
)
from backfill_manager.schemas.waits import On
from backfill_manager.yaml_reader import Document, Loc

ImportModule = Callable[[str], ModuleType]


def dags_of_yaml(
    path: Path, root: Path, import_module: ImportModule, *, is_for_task: bool = False
) -> list[authoring.Dag]:
    """The DAGs of a file of the bundle at `root`. `import_module` imports a module of that bundle by its name there
    (`ModuleNotFoundError` with that name if there is none). `InvalidDag` for mistakes of the file; what a module
    raises when it is imported comes out as it is. Both have the file's line in their traceback."""
    with authoring.collecting(root, path, is_for_task=is_for_task) as collection:
        lines: dict[str, int] = {}
        for document in documents_of(path):
            if is_for_task and isinstance(document.value, dict):
                for name in authoring.ONLY_SHOWN:
                    document.value.pop(name, None)
            reader = _Reader(path, document, import_module)
            made, line = reader.dag(), document.line(("dag_id",))
            if (first := lines.setdefault(made.dag_id, line)) != line:
                again = f"is here twice, first on line {first}; give one of them another dag_id"
                reader.wrong(("dag_id",), f"DAG {made.dag_id!r} {again}")
    return collection.dags


def find_function(reference: str, import_module: ImportModule, who: str = "") -> FunctionType:
    """The function of the bundle that `module:function` names. `InvalidDag`, beginning with `who`, when there is none."""
    module, _, name = reference.partition(":")
    try:
        loaded = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # it is there, and imports something that is not
        raise InvalidDag(f"{who}{reference} names the module {module}, which is not in the bundle") from None
    function = getattr(loaded, name, None)
    if isinstance(function, authoring.TaskFunction):
        raise InvalidDag(f"{who}{reference} is a @task; name a plain function, its settings stand here")
    if not isinstance(function, FunctionType):
        functions = [name for name, value in vars(loaded).items() if isinstance(value, FunctionType)]
        what = f"but a value of type {type(function).__name__}"
        if function is None:
            what = f"of {module}{nearest(name, functions, n=1)}"
        raise InvalidDag(f"{who}{reference} names no function {what}")
    return function


@dataclass(frozen=True)
class _Task:
    """An entry of `tasks`: what it runs (a text, or the function), its settings, the ids it comes after."""

    task_id: str
    kind: str
    runs: Any
    settings: dict[str, Any]
    after: list[str]

    @property
    def place(self) -> Loc:
        return ("tasks", self.task_id)

    def make(self) -> authoring.Task:
        if self.kind == "sql":
            return authoring.sql(self.task_id, self.runs, **self.settings)
        if self.kind == "bash":
            return authoring.bash_task(self.task_id, self.runs, **self.settings)
        decorator = authoring.task if self.kind == "python" else authoring.task.executor
        made: authoring.Task = decorator(task_id=self.task_id, **self.settings)(self.runs)()
        return made


class _Reader:
    """Makes one document a DAG."""

    def __init__(self, path: Path, document: Document, import_module: ImportModule) -> None:
        self._path, self._document, self._import_module = path, document, import_module

    def wrong(self, place: Loc, message: str) -> NoReturn:
        fail_at(self._path, self._document.line(place), message)

    def _at(self, place: Loc, do: Callable[[], T]) -> T:
        return at_line(self._path, self._document.line(place), do)

    def dag(self) -> authoring.Dag:
        value = self._document.value
        if not isinstance(value, dict):
            self.wrong((), "a DAG is written as keys and values, beginning with `dag_id: its_name`")
        who = f"DAG {value['dag_id']!r}" if isinstance(value.get("dag_id"), str) else "DAG"
        valid = self._validated(value, who)
        # All functions are imported before the DAG is begun: a module may make DAGs of its own when it is imported.
        settings = self._with_callbacks(value, (), who)
        if "params" in value:
            settings["params"] = valid["params"]  # declarations as `Param`
        if "default_args" in value:
            at: Loc = ("default_args",)
            settings["default_args"] = self._with_callbacks(value["default_args"], at, f"{who}: default_args")
        times: dict[str, Any] = {}
        for name in ("timezone", "schedule", "start_date", "end_date"):
            if name in value:  # each with those before it, so that the one that doesn't fit is reported at its line
                times[name] = valid[name]
                self._at((name,), partial(authoring.parse_times, dict(times), who))
        if isinstance(schedule := valid.get("schedule"), On):
            self._at(("schedule",), partial(check_conditions, schedule.waits, who))
        self._check_waits(valid, (), who)
        self._check_waits(valid.get("default_args", {}), ("default_args",), f"{who}: default_args")
        tasks = [self._task(task_id, each, valid["tasks"][task_id], who) for task_id, each in value["tasks"].items()]
        self._check_order(tasks, who)

        def body() -> None:
            made = {task.task_id: self._at((*task.place, task.kind), task.make) for task in tasks}
            for task in tasks:
                made[task.task_id] << [made[name] for name in task.after]

        del settings["tasks"]
        make = authoring.dag(settings.pop("dag_id"), **settings)
        dag: authoring.Dag = self._at((), lambda: make(body))
        return dag

    def _validated(self, value: dict[str, Any], who: str) -> dict[str, Any]:
        """The settings as they are declared; `InvalidDag` for the first line that is wrong."""
        valid, problems = validate(YamlDag, value)
        if problems:
            first = min(problems, key=lambda problem: self._document.line(problem.place))
            self.wrong(first.place, first.describe(who))
        for name in ("dag_id", "tasks"):
            if name not in value:
                self.wrong((), f"{who} needs `{name}`")
        return valid

    def _task(self, task_id: str, value: dict[str, Any], valid: dict[str, Any], of: str) -> _Task:
        place, who = ("tasks", task_id), f"{of}, task {task_id!r}"
        kinds = [name for name in KINDS if name in value]
        if len(kinds) != 1:
            given = f"not {' and '.join(kinds)}" if kinds else "and has none"
            self.wrong(place, f"{who} needs exactly one of {', '.join(KINDS)}, {given}")
        (kind,) = kinds
        settings = {name: each for name, each in value.items() if name not in {*KINDS, "after"}}
        of_kinds = {"sql": SqlSettings, "bash": BashSettings}
        for name in settings:
            if name not in settings_of(of_kinds.get(kind, TaskSettings)):
                owners = [one for one in KINDS if name in settings_of(of_kinds.get(one, TaskSettings))]
                self.wrong(
                    (*place, name), f"{who}: {name} is a setting of {' and '.join(owners)} tasks; this one is {kind}"
                )
        settings = self._with_callbacks(settings, place, who)
        self._check_waits(valid, place, who)
        runs = (
            value[kind] if kind in ("sql", "bash") else self._function(value[kind], (*place, kind), f"{who}: {kind} ")
        )
        return _Task(task_id, kind, runs, settings, valid.get("after", []))

    def _check_waits(self, valid: Mapping[str, Any], place: Loc, who: str) -> None:
        if waits := valid.get("waits_for"):
            self._at((*place, "waits_for"), partial(check_conditions, waits, who))

    def _check_order(self, tasks: list[_Task], who: str) -> None:
        by_id = {task.task_id: task for task in tasks}

        def wrong(task: _Task, message: str) -> NoReturn:
            self.wrong((*task.place, "after"), f"{who}, task {task.task_id!r} comes after {message}")

        for task in tasks:
            for name in task.after:
                if name not in by_id:
                    wrong(task, f"{name!r}, which does not exist{nearest(name, by_id, n=1)}")
        try:
            graphlib.TopologicalSorter({task.task_id: task.after for task in tasks}).prepare()
        except graphlib.CycleError as error:
            cycle: list[str] = error.args[1]
            wrong(by_id[cycle[-1]], f"itself: {' >> '.join(cycle)}")

    def _with_callbacks(self, settings: Mapping[str, Any], place: Loc, who: str) -> dict[str, Any]:
        """The settings with functions for callbacks, instead of their names."""
        functions: dict[str, Any] = {}
        for name in CALLBACKS:
            if settings.get(name) is not None:
                at = (*place, name)
                function = {name: self._function(settings[name], at, f"{who}: {name} ")}
                functions |= self._at(at, partial(authoring.check_settings, "DefaultArgs", function, who))
        return {**settings, **functions}

    def _function(self, reference: str, place: Loc, who: str) -> FunctionType:
        return self._at(place, partial(find_function, reference, self._import_module, who))
