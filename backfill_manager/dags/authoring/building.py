"""A DAG whose body is running: its tasks, their order and their callbacks; and the file for which it is made."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from backfill_manager.dags.definition import CALLBACK_TIMEOUT_S, CALLBACKS, DagSpec, TaskKind, TaskSpec
from backfill_manager.dags.mapping import MAX_ID
from backfill_manager.errors import InvalidDag
from backfill_manager.schemas.checks import Check, Condition, parse
from backfill_manager.schemas.waits import Wait

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from backfill_manager.schemas.dag_settings import TaskSettings

Function = Callable[..., Any]


@dataclass(frozen=True)
class Dag:
    """A DAG as its file made it: what it is (`spec`), and what its tasks and callbacks run (`functions`, by task id)."""

    spec: DagSpec
    functions: Mapping[str, Function]
    explicit: frozenset[str]  # settings that its author gave; the others are defaults
    line: int | None = None  # of its file, that made it

    @property
    def dag_id(self) -> str:
        return self.spec.dag_id

    def __call__(self, *args: Any, **kwargs: Any) -> Dag:
        if args or kwargs:
            raise InvalidDag(f"DAG {self.dag_id!r} takes no arguments; what differs from run to run are its params")
        return self


@dataclass
class DagBuilder:
    """A DAG whose body is running."""

    dag_id: str
    folder: Path  # where `sql` looks for files
    root: Path | None  # of the bundle; what is not in it would not be in its snapshot either
    default_args: dict[str, Any]
    params: tuple[str, ...] = ()  # their names
    takes_any_param: bool = False  # without params and schedule: those of each run are its own affair
    tasks: dict[str, TaskSpec] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    upstream: dict[str, dict[str, None]] = field(default_factory=dict)
    decorated: list[str] = field(default_factory=list)
    callbacks: list[TaskSpec] = field(default_factory=list)
    mapped: dict[str, tuple[str, ...]] = field(default_factory=dict)  # ids of mapped tasks, by the declared id

    def add(self, kind: TaskKind, task_id: str, settings: Mapping[str, Any], function: Function | None = None) -> Task:
        """`over` makes a task of each of its values, beside each other."""
        _refuse_wrong_checks(settings.get("checks", ()), task_in_errors(task_id))
        over = settings.get("over")
        common = {name: value for name, value in settings.items() if name != "over"}
        if over is None:
            if task_id in self.mapped:
                twice = f"a task with the id {task_id!r} and mapped tasks {task_id}.<key>"
                raise InvalidDag(f"DAG {self.dag_id!r} has {twice}; give one of them another with task_id=...")
            self._add(kind, task_id, settings, function)
            return Task(self, task_id)
        if not isinstance(over, dict):  # `dag_settings.ResultOf`
            self._add(kind, task_id, {**common, "over_result_of": over.task_id}, function)
            self.upstream[task_id][over.task_id] = None
            return Task(self, task_id)
        self._refuse_twice(task_id, {*self.tasks, *self.mapped})
        self.mapped[task_id] = ids = tuple(f"{task_id}.{key}" for key in over)
        if too_long := next((id_ for id_ in ids if len(id_) > MAX_ID), None):
            raise InvalidDag(
                f"{task_in_errors(task_id)}: over makes the id {too_long!r}, which has more than {MAX_ID} characters"
            )
        for id_, value in zip(ids, over.values(), strict=True):
            self._add(kind, id_, {**common, "mapped_from": task_id, "mapped_json": value}, function)
        return Task(self, task_id, ids)

    def _add(self, kind: TaskKind, task_id: str, settings: Mapping[str, Any], function: Function | None) -> None:
        self._refuse_twice(task_id, self.tasks)
        if kind == "executor" and settings.get("checks"):
            why = "are of ctx.write and ctx.merge, which a task on an executor does not have"
            raise InvalidDag(f"{task_in_errors(task_id)}: checks {why}")
        chosen = {**self.default_args, **settings, "task_id": task_id}
        callbacks = {name: chosen.pop(name, None) for name in CALLBACKS}
        self.tasks[task_id] = TaskSpec(kind=kind, **chosen)
        self.add_callbacks(callbacks, watches=task_id)
        self.upstream[task_id] = {}
        if function is not None:
            self.functions[task_id] = function

    def _refuse_twice(self, task_id: str, taken: Container[str]) -> None:
        if task_id in taken:
            twice = f"two tasks with the id {task_id!r}; give one of them another with task_id=..."
            raise InvalidDag(f"DAG {self.dag_id!r} has {twice}")

    def add_callbacks(self, callbacks: Mapping[str, Function | None], *, watches: str | None = None) -> None:
        """Each function becomes a task with the priority of what it `watches` (None: the whole run), but no other setting."""
        for name, function in callbacks.items():
            if function is None:
                continue
            task_id = name if watches is None else f"{watches}.{name}"
            priority = 0 if watches is None else self.tasks[watches].priority
            callback = TaskSpec(
                task_id, calls_back=CALLBACKS[name], watches=watches, timeout=CALLBACK_TIMEOUT_S, priority=priority
            )
            self.callbacks.append(callback)
            self.functions[callback.task_id] = function

    def specs(self, waits_for: tuple[Wait, ...]) -> tuple[TaskSpec, ...]:
        """`waits_for`: of each task that waits for no other."""

        def upstream(task_id: str) -> tuple[str, ...]:
            each = (self.mapped.get(up, (up,)) for up in self.upstream[task_id])  # `over` may name what comes later
            return tuple(dict.fromkeys(one for ids in each for one in ids))

        tasks = (dataclasses.replace(task, upstream=upstream(task_id)) for task_id, task in self.tasks.items())
        waiting = (
            task if task.upstream or task.waits_for else dataclasses.replace(task, waits_for=waits_for)
            for task in tasks
        )
        return (*waiting, *self.callbacks)


@dataclass(eq=False)
class Collection:
    """The DAGs that the top level of a bundle's file makes, itself or through functions of other files."""

    root: Path  # of the bundle
    file: Path
    is_for_task: bool = False  # only functions are needed; what the settings are was checked and stored before
    dags: list[Dag] = field(default_factory=list)


dag_being_made: ContextVar[DagBuilder | None] = ContextVar("building", default=None)
_collecting: ContextVar[Collection | None] = ContextVar("collecting", default=None)
_open: list[Collection] = []  # in the order in which they were begun


@contextmanager
def collecting(root: Path, file: Path, *, is_for_task: bool = False) -> Iterator[Collection]:
    """Collects every DAG that is made inside, while `file` runs. A file imported meanwhile has a collection of its own."""
    collection = Collection(root, file, is_for_task)
    token = _collecting.set(collection)
    _open.append(collection)
    try:
        yield collection
    finally:
        _open.remove(collection)
        _collecting.reset(token)


def current_collection() -> Collection | None:
    """That of the file which is running. A thread that a file has started has none of its own: it makes DAGs for the file that
    was begun last, as that is the one which waits for it."""
    return _collecting.get() or next(reversed(_open), None)


class Task:
    """A task in the DAG that is being made, to be put in order with `>>` and `<<`. With `over` it stands for all of its mapped
    tasks, `task_ids`."""

    def __init__(self, building: DagBuilder, task_id: str, task_ids: tuple[str, ...] = ()) -> None:
        self.dag_being_made, self.task_id, self.task_ids = building, task_id, task_ids or (task_id,)

    def __rshift__(self, after: Any) -> Any:
        self._order([self], self._tasks(after))
        return after

    def __lshift__(self, before: Any) -> Any:
        self._order(self._tasks(before), [self])
        return before

    def __rrshift__(self, before: Any) -> Task:
        self._order(self._tasks(before), [self])
        return self

    def __rlshift__(self, after: Any) -> Task:
        self._order([self], self._tasks(after))
        return self

    def expand(self, *_: Any, **__: Any) -> NoReturn:
        raise InvalidDag(
            f"{task_in_errors(self.task_id)} is made already; map its function, without calling it: function.expand(over=...)"
        )

    def __repr__(self) -> str:
        return f"<task {self.task_id!r} of DAG {self.dag_being_made.dag_id!r}>"

    def _tasks(self, other: Any) -> list[Task]:
        if isinstance(other, Task):
            if other.dag_being_made is not self.dag_being_made:
                raise InvalidDag(f"{self!r} can't be put in order with {other!r}: they are of different DAGs")
            return [other]
        if isinstance(other, set):  # its order is another one in each process, and would make another version
            return sorted((task for each in other for task in self._tasks(each)), key=lambda task: task.task_id)
        if isinstance(other, list | tuple):
            return [task for each in other for task in self._tasks(each)]
        if isinstance(other, TaskFunction):
            other.not_called()
        if inspect.isfunction(other):  # its repr has an address, so that the error would be a new one each time
            name = other.__name__
            raise InvalidDag(
                f"{self!r} can't be put in order with the function {name}: it is no task; decorate it with @task"
            )
        raise InvalidDag(f"{self!r} can be put in order with tasks and lists of tasks, not with {other!r}")

    def _order(self, before: Iterable[Task], after: Iterable[Task]) -> None:
        first = [task_id for task in before for task_id in task.task_ids]
        for task_id in [task_id for task in after for task_id in task.task_ids]:
            self.dag_being_made.upstream[task_id].update(dict.fromkeys(first))


class TaskFunction:
    """What `@task` leaves under the function's name."""

    def __init__(self, function: Function, kind: TaskKind, settings: dict[str, Any]) -> None:
        self.function, self.kind, self.settings = function, kind, settings
        self.task_id: str = settings.get("task_id", function.__name__)
        update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        building = dag_being_made.get()
        if building is None:
            return self.function(*args, **kwargs)
        if args or kwargs:
            raise InvalidDag(
                f"DAG {building.dag_id!r}, task {self.task_id!r}: call it without arguments here; it gets its `ctx` "
                "when it runs, reads what another task gave with ctx.result(task_id), and is put in order with >>"
            )
        return building.add(self.kind, self.task_id, self.settings, self.function)

    def override(self, **settings: Unpack[TaskSettings]) -> TaskFunction:
        """The same function as another task, with settings of its own: `copy.override(task_id="copy_eu")()`."""
        checked = check_settings("TaskSettings", settings, task_in_errors(self.task_id))
        return TaskFunction(self.function, self.kind, {**self.settings, **checked})

    def expand(self, over: list[str | int] | tuple[str | int, ...] | Mapping[str, Any] | Task) -> Task:
        """A task for each value: `load.expand(over=["de", "fr"])` makes `load.de` and `load.fr`, each with its own state and
        tries, and its value in `ctx.mapped_value`. Text and integers end the ids, too; other JSON values are given by key.
        Over another task it is mapped in each run, over what that one has returned."""
        made: Task = self.override(over=over)()
        return made

    def not_called(self, *_: Any) -> None:
        raise InvalidDag(
            f"{task_in_errors(self.task_id)} is put in order before it is made; call it: {self.function.__name__}()"
        )

    __rshift__ = __lshift__ = __rrshift__ = __rlshift__ = not_called


def _refuse_wrong_checks(checks: Iterable[Check], who: str) -> None:
    collection = current_collection()
    of_rows = [check.condition for check in checks if isinstance(parse(check.condition), Condition)]
    if not of_rows or (collection is not None and collection.is_for_task):
        return
    from backfill_manager.store.sql_guard import problem_of_condition  # more than most DAG files need

    for text in of_rows:
        if problem := problem_of_condition(text):
            raise InvalidDag(f"{who}: check {text!r}: {problem}")


def task_in_errors(task_id: str) -> str:
    building = dag_being_made.get()
    return f"task {task_id!r}" if building is None else f"DAG {building.dag_id!r}, task {task_id!r}"


def check_settings(kind: str, settings: Mapping[str, Any], who: str) -> dict[str, Any]:
    """The keywords of a decorator as specs hold them; `InvalidDag` for the first that is unknown or wrong. `kind` is a class
    of `schemas.dag_settings`, which is imported here: pydantic costs more than `import backfill_manager` may."""
    from backfill_manager.schemas import dag_settings

    checked, problems = dag_settings.validate(getattr(dag_settings, kind), dict(settings))
    if problems:
        raise InvalidDag(problems[0].describe(who))
    return checked
