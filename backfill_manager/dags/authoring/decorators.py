"""`@dag`, `@task`, `@task.executor`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, overload

from backfill_manager.dags.authoring.building import (
    Dag,
    DagBuilder,
    Function,
    TaskFunction,
    check_settings,
    current_collection,
    dag_being_made,
    task_in_errors,
)
from backfill_manager.dags.authoring.times import parse_times
from backfill_manager.dags.definition import CALLBACKS, DagSpec, TableRead, TaskKind
from backfill_manager.errors import InvalidDag
from backfill_manager.schemas.params import split_params
from backfill_manager.schemas.waits import On

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from backfill_manager.schemas.dag_settings import DagSettings, TaskSettings

ONLY_SHOWN: Final = ("tags", "owner", "description")


class _TaskDecorator:
    """`@task`, `@task(...)`: a process on the driver's machine. `@task.executor`, `@task.executor(...)`: all on an executor."""

    def __init__(self, kind: TaskKind) -> None:
        self._kind = kind

    @overload
    def __call__(self, function: Function, /) -> TaskFunction: ...
    @overload
    def __call__(self, **settings: Unpack[TaskSettings]) -> Callable[[Function], TaskFunction]: ...
    def __call__(self, *function: Any, **settings: Any) -> Any:
        if not function:
            return lambda decorated: self._decorate(decorated, settings)
        return self._decorate(function[0], settings)

    def _decorate(self, function: Any, settings: Mapping[str, Any]) -> TaskFunction:
        if not inspect.isfunction(function):
            keywords = "its settings are keywords: @task(retries=2)"
            raise InvalidDag(f"@task decorates a function, not {function!r}; {keywords}")
        name = settings.get("task_id", function.__name__)
        who = task_in_errors(name)
        _refuse_unrun_body(function, who)
        try:
            inspect.signature(function).bind(object())
        except TypeError:
            raise InvalidDag(f"{who} must take one argument, as in `def {function.__name__}(ctx)`") from None
        checked = check_settings("TaskSettings", {"task_id": name, **settings}, who)
        building = dag_being_made.get()
        if building is not None:
            building.decorated.append(name)
        return TaskFunction(function, self._kind, checked)


class _Task(_TaskDecorator):
    executor = _TaskDecorator("executor")


task = _Task("python")


def _refuse_unrun_body(function: Function, who: str) -> None:
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    if any(is_one(function) for is_one in kinds):
        raise InvalidDag(f"{who} is an async function or a generator; its body would never run. Write a plain one")


@overload
def dag(function: Function, /) -> Dag: ...


@overload
def dag(dag_id: str, /, **settings: Unpack[DagSettings]) -> Callable[[Function], Dag]: ...


@overload
def dag(**settings: Unpack[DagSettings]) -> Callable[[Function], Dag]: ...


def dag(function: Any = None, /, **settings: Any) -> Any:
    """Makes a DAG of a function: `@dag`, `@dag(schedule="@daily", ...)`, `@dag("another_id", ...)`."""
    if isinstance(function, str):
        settings, function = {"dag_id": function, **settings}, None
    if function is None:
        return lambda decorated: _make(decorated, settings)
    return _make(function, settings)


def _make(function: Any, settings: Mapping[str, Any]) -> Dag:
    if not inspect.isfunction(function):
        keywords = "its settings are keywords: @dag(schedule='@daily')"
        raise InvalidDag(f"@dag decorates a function, not {function!r}; {keywords}")
    dag_id = settings.get("dag_id", function.__name__)
    who = f"DAG {dag_id!r}"
    _check_function(function, who)
    collection = current_collection()
    is_for_task = collection is not None and collection.is_for_task
    checked = _settings_of_dag(function, {"dag_id": dag_id, **settings}, who, is_for_task=is_for_task)
    of_every_task = {name: checked.pop(name) for name in ("depends_on_past", "wait_for_downstream") if name in checked}
    default_args = of_every_task | checked.pop("default_args", {})
    waits_for = checked.pop("waits_for", ())
    callbacks = {name: checked.pop(name, None) for name in CALLBACKS}

    file = collection.file if collection else Path(function.__code__.co_filename)
    names = (*checked.get("params", {}), *checked.get("declared_params", {}))
    takes_any = not names and checked.get("schedule") is None
    root = collection.root if collection else None
    building = DagBuilder(dag_id, file.parent, root, default_args, names, takes_any)
    token = dag_being_made.set(building)
    try:
        function()
    finally:
        dag_being_made.reset(token)
    if not building.tasks and building.decorated:
        never = f"{', '.join(building.decorated)} {'is' if len(building.decorated) == 1 else 'are'} never called"
        raise InvalidDag(f"DAG {building.dag_id!r} has no task: {never}")
    building.add_callbacks(callbacks)
    spec = DagSpec(tasks=building.specs(waits_for), **checked)
    if not is_for_task:
        spec.check()
    made = Dag(spec, building.functions, frozenset(settings), _line_of(file))
    if collection is not None:
        collection.dags.append(made)
    return made


def _check_function(function: Any, who: str) -> None:
    _refuse_unrun_body(function, who)
    if dag_being_made.get() is not None:
        raise InvalidDag(f"{who} is made inside another DAG; put them beside each other")
    try:
        inspect.signature(function).bind()
    except TypeError:
        params = "what differs from run to run are its params"
        raise InvalidDag(f"{who}: its function must take no arguments; {params}") from None


def _settings_of_dag(function: Any, given: Mapping[str, Any], who: str, *, is_for_task: bool) -> dict[str, Any]:
    """Checked, as `DagSpec` has them, and beside those what is meant for the tasks. `is_for_task`: the DAG was checked before,
    by a release that may have taken any length of what is only shown."""
    if is_for_task:
        given = {name: value for name, value in given.items() if name not in ONLY_SHOWN}
    elif "description" not in given and function.__doc__:
        given = {**given, "description": inspect.cleandoc(function.__doc__).partition("\n")[0]}
    checked = check_settings("DagSettings", given, who)
    if isinstance(schedule := checked.get("schedule"), On):
        if "waits_for" in checked:
            raise InvalidDag(f"{who}: waits_for and schedule=on(...) say the same; give all of it to on(...)")
        checked["waits_for"] = schedule.waits
    if "reads" in checked:
        checked["reads"] = tuple(TableRead(table, column) for table, column in checked["reads"].items())
    checked |= split_params(checked.pop("params", {}))
    if not is_for_task:
        parse_times(checked, who)
    return checked


def _line_of(file: Path) -> int | None:
    """The line of the file that runs now; None where it does not."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename != str(file):
        frame = frame.f_back
    return None if frame is None else frame.f_lineno
