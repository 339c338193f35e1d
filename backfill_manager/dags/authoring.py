"""How people write a DAG: `@dag`, `@task`, `@task.executor`, `sql(...)`, `>>` and `<<`.

    @dag(schedule="@daily", start_date="2013-01-01", timezone="America/New_York")
    def flights():
        @task(retries=2)
        def clean(ctx): ...

        clean() >> sql("delays", "delays.sql", into="delays")

Decorating runs the body, once, and gives a `Dag`: the plain value that is stored and decided from (`spec`), beside
the functions that run. Airflow's habit of calling `flights()` at the end of the file does no harm: it gives the same
`Dag`. The body runs at decoration, not at the end of the file, because a DAG made in a loop (`for region in regions:
@dag(...)`) must see the loop's variable as it is then; a helper that the *body* needs is defined above it, one that a
task needs anywhere.

Inside a DAG's body a task function that is called makes a task; anywhere else it is the plain function that it was, so
that a unit test calls it with a `ctx` of its own. Every mistake is an `InvalidDag` that names DAG, task and keyword.

`on_success` and `on_failure` are plain functions `def notify(ctx)`: each becomes a task of its own, `clean.on_failure`,
or `on_failure` for the whole DAG, that runs when its outcome has come about (manager/decisions/callbacks.py).
"""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, overload

from backfill_manager.dags.definition import (
    CALLBACK_TIMEOUT_S,
    CALLBACKS,
    VALUES_OF_CONDITIONS,
    DagSpec,
    TableRead,
    TaskKind,
    TaskSpec,
    has_macros,
    hint_of_parameter,
)
from backfill_manager.dags.mapping import MAX_ID
from backfill_manager.errors import InvalidDag, InvalidInput
from backfill_manager.schemas.checks import Check as Check
from backfill_manager.schemas.checks import Condition, in_code, parse
from backfill_manager.schemas.params import Param as Param
from backfill_manager.schemas.params import split_params
from backfill_manager.schemas.waits import On, Wait
from backfill_manager.schemas.waits import condition as condition
from backfill_manager.schemas.waits import file as file
from backfill_manager.schemas.waits import on as on
from backfill_manager.schemas.waits import rows as rows

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from backfill_manager.schemas.dag_settings import BashSettings, DagSettings, SqlSettings, TaskSettings

Function = Callable[..., Any]
_INTERVALS_ROWS: Final = "tells which rows of a table are the interval's; name the table with into=..."
_HOW_ROWS_GO: Final = "says how rows go into a table; name the table with into=..."
_OF_INTO: Final = {  # settings of SQL that need `into`, and why
    "time_column": _INTERVALS_ROWS, "partition_column": _INTERVALS_ROWS,
    "mode": _HOW_ROWS_GO, "merge_on": _HOW_ROWS_GO, "schema": _HOW_ROWS_GO,
    "checks": "check rows before they go into a table, and these statements write by themselves; name the table with into=..., "
    "which takes the rows of the last one",
}  # fmt: skip
_OF_SQL: Final = (*VALUES_OF_CONDITIONS, "run_id")  # named parameters of SQL in all tasks, beside the params
ONLY_SHOWN: Final = ("tags", "owner", "description")
MAX_COMMAND: Final = 100_000  # bytes; Linux takes no argument of more than 131,072


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
class _DagBuilder:
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
        _refuse_wrong_checks(settings.get("checks", ()), _who(task_id))
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
                f"{_who(task_id)}: over makes the id {too_long!r}, which has more than {MAX_ID} characters"
            )
        for id_, value in zip(ids, over.values(), strict=True):
            self._add(kind, id_, {**common, "mapped_from": task_id, "mapped_json": value}, function)
        return Task(self, task_id, ids)

    def _add(self, kind: TaskKind, task_id: str, settings: Mapping[str, Any], function: Function | None) -> None:
        self._refuse_twice(task_id, self.tasks)
        if kind == "executor" and settings.get("checks"):
            why = "are of ctx.write and ctx.merge, which a task on an executor does not have"
            raise InvalidDag(f"{_who(task_id)}: checks {why}")
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


_building: ContextVar[_DagBuilder | None] = ContextVar("building", default=None)
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


def _collection() -> Collection | None:
    """That of the file which is running. A thread that a file has started has none of its own: it makes DAGs for the file that
    was begun last, as that is the one which waits for it."""
    return _collecting.get() or next(reversed(_open), None)


class Task:
    """A task in the DAG that is being made, to be put in order with `>>` and `<<`. With `over` it stands for all of its mapped
    tasks, `task_ids`."""

    def __init__(self, building: _DagBuilder, task_id: str, task_ids: tuple[str, ...] = ()) -> None:
        self._building, self.task_id, self.task_ids = building, task_id, task_ids or (task_id,)

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
            f"{_who(self.task_id)} is made already; map its function, without calling it: function.expand(over=...)"
        )

    def __repr__(self) -> str:
        return f"<task {self.task_id!r} of DAG {self._building.dag_id!r}>"

    def _tasks(self, other: Any) -> list[Task]:
        if isinstance(other, Task):
            if other._building is not self._building:
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
            self._building.upstream[task_id].update(dict.fromkeys(first))


class TaskFunction:
    """What `@task` leaves under the function's name."""

    def __init__(self, function: Function, kind: TaskKind, settings: dict[str, Any]) -> None:
        self.function, self.kind, self.settings = function, kind, settings
        self.task_id: str = settings.get("task_id", function.__name__)
        update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        building = _building.get()
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
        checked = check_settings("TaskSettings", settings, _who(self.task_id))
        return TaskFunction(self.function, self.kind, {**self.settings, **checked})

    def expand(self, over: list[str | int] | tuple[str | int, ...] | Mapping[str, Any] | Task) -> Task:
        """A task for each value: `load.expand(over=["de", "fr"])` makes `load.de` and `load.fr`, each with its own state and
        tries, and its value in `ctx.mapped_value`. Text and integers end the ids, too; other JSON values are given by key.
        Over another task it is mapped in each run, over what that one has returned."""
        made: Task = self.override(over=over)()
        return made

    def not_called(self, *_: Any) -> None:
        raise InvalidDag(f"{_who(self.task_id)} is put in order before it is made; call it: {self.function.__name__}()")

    __rshift__ = __lshift__ = __rrshift__ = __rlshift__ = not_called


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
        who = _who(name)
        _refuse_unrun_body(function, who)
        try:
            inspect.signature(function).bind(object())
        except TypeError:
            raise InvalidDag(f"{who} must take one argument, as in `def {function.__name__}(ctx)`") from None
        checked = check_settings("TaskSettings", {"task_id": name, **settings}, who)
        building = _building.get()
        if building is not None:
            building.decorated.append(name)
        return TaskFunction(function, self._kind, checked)


class _Task(_TaskDecorator):
    executor = _TaskDecorator("executor")


task = _Task("python")


def sql(name: str, text: str, **settings: Unpack[SqlSettings]) -> Task:
    """A Spark SQL task: `text` is the statement, or a `.sql` file beside the DAG's file. The interval comes as named
    parameters (`:interval_start`, `:interval_end`, ...); `into` is the table that the rows of the interval go to. Without it
    the statements write by themselves (MERGE, INSERT, ...), each once, and in turn with others that write the same tables. What
    they read makes the DAG downstream of those that write it, if the DAG declares no `reads`."""
    building = _building.get()
    if building is None:
        raise InvalidDag(f"sql({name!r}, ...) makes a task: call it in the body of a @dag function")
    who = _who(name)
    checked = check_settings("SqlSettings", {**settings, "task_id": name}, who)
    for option, why in _OF_INTO.items():
        if checked.get(option) and not checked.get("into"):
            raise InvalidDag(f"{who}: {option} {why}")
    if (code := in_code(checked.get("checks", ()))) is not None:
        raise InvalidDag(f"{who}: check {code!r} is code of the bundle, which a sql task does not run; use a @task")
    overwrites = checked.get("mode") == "overwrite"
    for option in ("mode", "time_column", "partition_column"):
        if checked.get(option) and checked.get("merge_on"):
            raise InvalidDag(f"{who}: merge_on updates rows by their key, wherever they are, so it takes no {option}")
        if checked.get(option) and overwrites and option != "mode":
            raise InvalidDag(f"{who}: mode='overwrite' replaces the whole table, so it takes no {option}")
    statement = _text(text, building, who, ".sql", "a statement")
    is_mapped = checked.get("over") is not None
    has_output = checked.get("into") is not None
    _check_statement(
        statement, None if statement == text else text, building, who, is_mapped=is_mapped, has_output=has_output
    )
    return building.add("sql", name, {**checked, "sql": statement})


def _refuse_wrong_checks(checks: Iterable[Check], who: str) -> None:
    collection = _collection()
    of_rows = [check.condition for check in checks if isinstance(parse(check.condition), Condition)]
    if not of_rows or (collection is not None and collection.is_for_task):
        return
    from backfill_manager.store.sql_guard import problem_of_condition  # more than most DAG files need

    for text in of_rows:
        if problem := problem_of_condition(text):
            raise InvalidDag(f"{who}: check {text!r}: {problem}")


def _check_statement(
    statement: str, file: str | None, building: _DagBuilder, who: str, *, is_mapped: bool, has_output: bool
) -> None:
    """`InvalidDag` for macros that are wrong, for what can be no statement, and for a named parameter that no run has; it names
    the line in the file, or in the text."""
    collection = _collection()
    if collection is not None and collection.is_for_task:
        return

    def wrong(message: object, line: int | None) -> NoReturn:
        place = "" if line is None else f"line {line}" if file else f"line {line} of its text"
        where = ", ".join(part for part in (file, place) if part)
        raise InvalidDag(f"{who}: {where}: {message}" if where else f"{who}: {message}") from None

    text = statement
    if has_macros(statement):
        from backfill_manager.dags.sql_macros import MacroError, check_macros

        try:
            text = check_macros(statement, building.params)
        except MacroError as error:
            wrong(error, error.line)
    from backfill_manager.store.sql_guard import named_parameters, problem_of_statements

    if problem := problem_of_statements(text, has_output=has_output):
        wrong(problem, None)
    if building.takes_any_param:
        return
    known = (*building.params, *_OF_SQL, *(["mapped_value"] if is_mapped else []))
    for name, line in named_parameters(text, known).items():
        hint = hint_of_parameter(name, known)
        if name == "mapped_value":
            hint = "; only a mapped task, one with over=..., has it"
        wrong(f":{name} is no param of the DAG, and no value that every run has{hint}", line)


def bash_task(name: str, command: str, **settings: Unpack[BashSettings]) -> Task:
    """A command of bash, or a `.sh` file beside the DAG's file: it runs as `bash -euo pipefail` would, and what it prints is its
    log. Values of the run are variables of its environment (`BFM_INTERVAL_START`, `BFM_PARAM_REGION`, ...), `env` adds others,
    `secrets` those with values of secrets. An exit code that is not 0 is a failure, `skip_exit_code` (99) skips the task. The
    last line that it prints is its result."""
    building = _building.get()
    if building is None:
        raise InvalidDag(f"bash_task({name!r}, ...) makes a task: call it in the body of a @dag function")
    who = _who(name)
    checked = check_settings("BashSettings", {**settings, "task_id": name}, who)
    text = _text(command, building, who, ".sh", "a command")
    if len(text.encode("utf-8", "surrogatepass")) > MAX_COMMAND:
        more = "put what it does into a script, and call that"
        raise InvalidDag(f"{who}: its command has more than {MAX_COMMAND:,} bytes; {more}")
    cwd = checked.get("cwd")
    if cwd is not None and not Path(cwd).is_absolute() and os.path.normpath(cwd).split("/")[0] == "..":
        raise InvalidDag(f"{who}: cwd must lie in the bundle, or be an absolute path, not {cwd!r}")
    return building.add("bash", name, {**checked, "bash": text})


def _text(text: Any, building: _DagBuilder, who: str, suffix: str, what: str) -> str:
    """The text itself, or the content of the file that it names."""
    if not isinstance(text, str) or not text.strip():
        raise InvalidDag(f"{who}: needs {what}, or the name of a {suffix} file, not {text!r}")
    if not text.endswith(suffix) or len(text.split()) > 1:
        return text
    path = Path(os.path.normpath(building.folder / text))
    root = building.root
    if Path(text).is_absolute() or (root is not None and root not in path.parents):
        raise InvalidDag(f"{who}: {text} must lie in the bundle, and be named from the DAG file's folder")
    try:
        statement = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise InvalidDag(f"{who}: {text} can't be read from the DAG file's folder: {why}") from None
    if not statement.strip():
        raise InvalidDag(f"{who}: {text} is empty")
    return statement


def _refuse_unrun_body(function: Function, who: str) -> None:
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    if any(is_one(function) for is_one in kinds):
        raise InvalidDag(f"{who} is an async function or a generator; its body would never run. Write a plain one")


def _who(task_id: str) -> str:
    building = _building.get()
    return f"task {task_id!r}" if building is None else f"DAG {building.dag_id!r}, task {task_id!r}"


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
    collection = _collection()
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
    building = _DagBuilder(dag_id, file.parent, root, default_args, names, takes_any)
    token = _building.set(building)
    try:
        function()
    finally:
        _building.reset(token)
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
    if _building.get() is not None:
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


def check_settings(kind: str, settings: Mapping[str, Any], who: str) -> dict[str, Any]:
    """The keywords of a decorator as specs hold them; `InvalidDag` for the first that is unknown or wrong. `kind` is a class
    of `schemas.dag_settings`, which is imported here: pydantic costs more than `import backfill_manager` may."""
    from backfill_manager.schemas import dag_settings

    checked, problems = dag_settings.validate(getattr(dag_settings, kind), dict(settings))
    if problems:
        raise InvalidDag(problems[0].describe(who))
    return checked


def parse_times(settings: dict[str, Any], who: str) -> None:
    """Schedule, zone and dates in the form in which `DagSpec` holds them."""
    from backfill_manager.dags.schedule.timetable import Timetable, parse_last, parse_schedule, parse_start
    from backfill_manager.dags.schedule.timezones import check_timezone

    try:
        if "schedule" in settings:
            settings["schedule"] = parse_schedule(_every(settings))
        timezone = settings.get("timezone", DagSpec.timezone)
        check_timezone(timezone)
        # A datetime without an offset is the DAG's wall clock, as its text is.
        times = {name: settings.get(name) for name in ("start_date", "end_date")}
        times = {name: value.isoformat() if isinstance(value, date) else value for name, value in times.items()}
        if times["start_date"] is not None:
            settings["start_date"] = parse_start(times["start_date"], timezone, name="start_date")
        if times["end_date"] is not None:
            timetable = Timetable(settings.get("schedule"), timezone, settings.get("start_date"))
            settings["end_date"] = parse_last(times["end_date"], timetable)
    except InvalidInput as error:
        raise InvalidDag(f"{who}: {error}") from None
    start, end = settings.get("start_date"), settings.get("end_date")
    if isinstance(start, datetime) and isinstance(end, datetime) and start > end:
        raise InvalidDag(f"{who}: start_date {times['start_date']} is after end_date {times['end_date']}")


def _every(settings: Mapping[str, Any]) -> Any:
    """The schedule; of `on(...)` that of its intervals: its `every`, else the one by which DAGs further up in the file write all
    of its tables. A duration is not taken from them: it counts from each DAG's own `start_date`."""
    from backfill_manager.dags.schedule.timetable import Timetable, parse_schedule

    data = settings["schedule"]
    if not isinstance(data, On):
        return data
    if data.every is not None:
        if not Timetable(every := parse_schedule(data.every, where="schedule: every")).repeats:
            raise InvalidInput(f"schedule: every must be a schedule that repeats, such as '@daily', not {every!r}")
        return every
    tables = {wait for wait in data.waits if isinstance(wait, str)}
    collection = _collection()
    grids, written = [], set[str]()
    for spec in [made.spec for made in collection.dags] if collection else []:
        if found := tables.intersection(spec.output_tables):
            grids.append((spec.schedule, spec.timezone))
            written |= found
    if grids and written == tables and all(grid == grids[0] for grid in grids):
        schedule, timezone = grids[0]
        is_same_zone = timezone == settings.get("timezone", DagSpec.timezone)
        if is_same_zone and isinstance(schedule, str) and Timetable(schedule).repeats:
            return schedule
    example = f"on({data.waits[0]!r}, every='@daily')" if tables else "on(..., every='@daily')"
    unless = "DAGs further up in this file write all of its tables (`writes=`, `into=`), by one cron schedule in its time zone"
    raise InvalidInput(f"schedule needs `every`, which gives its runs their intervals: {example}; unless {unless}")
