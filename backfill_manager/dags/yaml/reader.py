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

Keys are the keywords of `@dag`, and below `tasks` those of `@task` and `sql`, with the same checks. The DAG is then made
by `authoring` itself, so a file gives the very DAG that Python would have given. What is wrong is raised at its line
(`yaml_dag_text.at_line`). `yaml_schema` says the same to editors.
"""

from __future__ import annotations

import graphlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final, NoReturn

from backfill_manager.dags import authoring, validation
from backfill_manager.dags.definition import CALLBACKS
from backfill_manager.dags.validation import Check, check_keywords
from backfill_manager.dags.yaml.text import Document, documents_of
from backfill_manager.errors import nearest
from backfill_manager.yaml_reader import Place

ImportModule = Callable[[str], ModuleType]
KINDS: Final = ("sql", "python", "executor")  # what a task runs; exactly one of them


def dags_of_yaml(path: Path, *, root: Path, import_module: ImportModule) -> list[authoring.Dag]:
    """The DAGs of a file of the bundle at `root`. `import_module` imports a module of that bundle by its name there
    (`ModuleNotFoundError` with that name if there is none). `InvalidDag` for what the file says wrong; what a module
    raises when it is imported comes out as it is. Both have the file's line in their traceback."""
    with authoring.collecting(root, path) as collection:
        for document in documents_of(path):
            made = _Reader(document, import_module).dag()
            if any(dag.dag_id == made.dag_id for dag in collection.dags if dag is not made):
                document.wrong(("dag_id",), f"DAG {made.dag_id!r} is here twice; give one of them another dag_id")
    return collection.dags


def _tasks(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not value:
        raise ValueError(f"must be the tasks by their ids, each with its settings, not {value!r}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"must be text, not {value!r}")
    return value


def _reference(value: Any) -> str:
    """`module:function`, the module with its dots."""
    module, _, function = value.partition(":") if isinstance(value, str) else ("", "", "")
    if not all(part.isidentifier() for part in (*module.split("."), function)):
        raise ValueError(f"must be module:function, such as helpers:clean, not {value!r}")
    return str(value)


def _reference_or_none(value: Any) -> str | None:
    return None if value is None else _reference(value)


def _names(value: Any) -> list[str]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"must be a task's id or a list of them, not {value!r}")
    return names


_CALLBACKS: Final[Mapping[str, Check]] = dict.fromkeys(CALLBACKS, _reference_or_none)
DEFAULT_ARGS: Final[Mapping[str, Check]] = {**validation.DEFAULT_ARGS, **_CALLBACKS}
DAG: Final[Mapping[str, Check]] = {**validation.DAG, **_CALLBACKS, "tasks": _tasks}
TASK: Final[Mapping[str, Check]] = {
    "sql": _text,
    "python": _reference,
    "executor": _reference,
    "after": _names,
    **{name: check for name, check in validation.SQL.items() if name != "task_id"},
    **_CALLBACKS,
}


@dataclass(frozen=True)
class _Task:
    """One entry of `tasks`: what it runs (`sql`: the text, else the function), its settings, the ids it comes after."""

    task_id: str
    kind: str
    runs: Any
    settings: dict[str, Any]
    after: list[str]

    @property
    def place(self) -> Place:
        return ("tasks", self.task_id)


class _Reader:
    """One document being made a DAG."""

    def __init__(self, document: Document, import_module: ImportModule) -> None:
        self._document, self._import_module = document, import_module

    def dag(self) -> authoring.Dag:
        said = self._document.content.value
        if not isinstance(said, dict):
            self._document.wrong((), "a DAG is written as keys and values, beginning with `dag_id: its_name`")
        who = "DAG"
        for name in ("dag_id", "tasks"):
            if name not in said:
                self._check_names(said, DAG, (), who)
                self._document.wrong((), f"{who} needs `{name}`")
            self._check({name: said[name]}, DAG, (), who)
            who = f"DAG {said['dag_id']!r}"
        # All functions are found before the DAG is begun: a module may make DAGs of its own when it is imported.
        settings = self._settings(said, who)
        tasks = [self._task(task_id, value, who) for task_id, value in said["tasks"].items()]
        self._check_order(tasks, who)

        def body() -> None:
            made = {task.task_id: self._document.at((*task.place, task.kind), partial(_make, task)) for task in tasks}
            for task in tasks:
                made[task.task_id] << [made[name] for name in task.after]

        make = authoring.dag(said["dag_id"], **settings)
        return self._document.at((), lambda: make(body))

    # -- the DAG ------------------------------------------------------------------------------------------------------

    def _settings(self, said: dict[str, Any], who: str) -> dict[str, Any]:
        """The keywords of `@dag`, each checked."""
        self._check(said, DAG, (), who)
        settings = self._with_callbacks(said, validation.DAG, (), who)
        if "default_args" in said:
            place, of_tasks = ("default_args",), f"{who}: default_args"
            self._check(said["default_args"], DEFAULT_ARGS, place, of_tasks)
            settings["default_args"] = self._with_callbacks(
                said["default_args"], validation.DEFAULT_ARGS, place, of_tasks
            )
        self._check_times(said, who)
        return {name: value for name, value in settings.items() if name not in {"dag_id", "tasks"}}

    def _check_times(self, said: dict[str, Any], who: str) -> None:
        """Each with those before it, so that the one that doesn't fit is told at its line."""
        known: dict[str, Any] = {}
        for name in ("timezone", "schedule", "start_date", "end_date"):
            if name in said:
                known[name] = said[name]
                self._document.at((name,), partial(authoring.read_times, dict(known), who))

    # -- its tasks ----------------------------------------------------------------------------------------------------

    def _task(self, task_id: str, said: Any, of: str) -> _Task:
        place: Place = ("tasks", task_id)
        self._document.at(place, partial(check_keywords, {"task_id": task_id}, validation.TASK, of))
        who = f"{of}, task {task_id!r}"
        if not isinstance(said, dict):
            self._document.wrong(place, f"{who} needs settings, such as `sql: SELECT 1`, not {said!r}")
        self._check_names(said, TASK, place, who)
        kinds = [name for name in KINDS if name in said]
        if len(kinds) != 1:
            given = f"not {' and '.join(kinds)}" if kinds else "and has none"
            self._document.wrong(place, f"{who} needs exactly one of {', '.join(KINDS)}, {given}")
        (kind,) = kinds
        self._check(said, TASK, place, who)
        known = validation.SQL if kind == "sql" else validation.TASK
        settings = {name: value for name, value in said.items() if name not in {*KINDS, "after"}}
        for name in settings:
            if name not in known:
                self._document.wrong((*place, name), f"{who}: {name} is a setting of sql tasks; this one is {kind}")
        settings = self._with_callbacks(settings, known, place, who)
        runs = said[kind] if kind == "sql" else self._function(said[kind], (*place, kind), f"{who}: {kind}")
        return _Task(task_id, kind, runs, settings, _names(said.get("after", [])))

    def _check_order(self, tasks: list[_Task], who: str) -> None:
        known = {task.task_id: task for task in tasks}

        def wrong(task: _Task, message: str) -> NoReturn:
            self._document.wrong((*task.place, "after"), f"{who}, task {task.task_id!r} comes after {message}")

        for task in tasks:
            for name in task.after:
                if name not in known:
                    wrong(task, f"{name!r}, which does not exist{nearest(name, known, n=1)}")
        try:
            graphlib.TopologicalSorter({task.task_id: task.after for task in tasks}).prepare()
        except graphlib.CycleError as error:
            around: list[str] = error.args[1]
            wrong(known[around[-1]], f"itself: {' >> '.join(around)}")

    # -- functions ----------------------------------------------------------------------------------------------------

    def _with_callbacks(
        self, said: Mapping[str, Any], known: Mapping[str, Check], place: Place, who: str
    ) -> dict[str, Any]:
        """The settings with functions for callbacks, instead of their names."""
        found = {
            name: self._function(said[name], (*place, name), f"{who}: {name}")
            for name in CALLBACKS
            if said.get(name) is not None
        }
        self._check(found, known, place, who)
        return {**said, **found}

    def _function(self, reference: str, place: Place, who: str) -> authoring.Function:
        """What `module:function` names, in the bundle's own package."""
        name, _, attribute = reference.partition(":")
        try:
            module = self._document.at(place, partial(self._import_module, name))
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise  # it is there, and imports something that is not
            self._document.wrong(place, f"{who} names the module {name}, which is not in the bundle")
        found = getattr(module, attribute, None)
        if isinstance(found, authoring.TaskFunction):
            self._document.wrong(place, f"{who} names a @task; name a plain function, its settings stand here")
        if not isinstance(found, FunctionType):
            functions = [name for name, value in vars(module).items() if isinstance(value, FunctionType)]
            told = nearest(attribute, functions, n=1)
            what = f"is not in {name}{told}" if found is None else f"is no function but of type {type(found).__name__}"
            self._document.wrong(place, f"{who} names {reference}, but {attribute} {what}")
        return found

    # -- all of them --------------------------------------------------------------------------------------------------

    def _check(self, said: Mapping[str, Any], known: Mapping[str, Check], place: Place, who: str) -> None:
        """Each key by itself, so that what is wrong is told at its line."""
        for name, value in said.items():
            self._document.at((*place, name), partial(check_keywords, {name: value}, known, who))

    def _check_names(self, said: Mapping[str, Any], known: Mapping[str, Check], place: Place, who: str) -> None:
        self._check({name: None for name in said if name not in known}, known, place, who)


def _make(task: _Task) -> authoring.Task:
    if task.kind == "sql":
        return authoring.sql(task.task_id, task.runs, **task.settings)
    decorator = authoring.task if task.kind == "python" else authoring.task.executor
    made: authoring.Task = decorator(task_id=task.task_id, **task.settings)(task.runs)()
    return made
