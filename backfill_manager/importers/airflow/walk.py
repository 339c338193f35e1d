"""What all parts of the walk through a file share: what is known of its names, where remarks and statements go, free names."""

from __future__ import annotations

import ast
import builtins
import keyword
import re
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from backfill_manager.importers.airflow.functions import ContextFunction
from backfill_manager.importers.airflow.settings import SettingsReader
from backfill_manager.importers.draft import Draft, DraftDag, DraftTask, Item, Remark
from backfill_manager.importers.source import Source, called, is_airflow, keywords_of, names_in
from backfill_manager.importers.writer import OURS

_OUR_NAMES: Final = (  # that drafts are written with
    "ctx", "chosen", "done", "each", "before", "after", "asyncio", "shlex", "os", "subprocess", "timedelta", "datetime",
    "timezone", "itertools",
)  # fmt: skip
STATEMENT_NAMES: Final = ("chain", "chain_linear", "cross_downstream")


@dataclass(eq=False)
class Symbol:
    """A task as a statement makes it; several of them in a loop."""

    id_text: str  # text of Python
    is_static: bool
    task: DraftTask | None  # None: of SQL
    is_branch: bool = False
    skips_all: bool = False
    is_mapped: bool = False  # its result is those of its mapped tasks by key
    rule: str | None = None  # text of its trigger rule
    variable: str | None = None
    loop_names: frozenset[str] = frozenset()  # of the loops that it is made in
    dag: DraftDag | None = None
    line: int | None = None
    upstream: set[Symbol] = field(default_factory=set)
    downstream: set[Symbol] = field(default_factory=set)

    def put_before(self, others: Iterable[Symbol]) -> None:
        for one in others:
            self.downstream.add(one)
            one.upstream.add(self)


@dataclass
class Tasks:
    """What a name or an expression stands for. `first` and `last`: text for what is put before and after; None: its own."""

    symbols: list[Symbol]
    is_list: bool = False
    first: str | None = None
    last: str | None = None


@dataclass
class Function:
    """A function of `@task` or `@task_group`; `settings` are those of its decorator."""

    node: ast.FunctionDef
    kind: str
    settings: dict[str, ast.expr]


@dataclass
class DagParam:
    name: str


@dataclass
class Result:
    """A part of a task's result that has a name, as in `id_ = create.output["id"]`."""

    text: str
    deps: list[tuple[str, Tasks]]


@dataclass
class Group:
    """A task group that is open. `prefix`: text of Python, empty where it adds none; None: its tasks' ids have no prefix at all.
    `collects`: a variable with its tasks, where their number is not known."""

    prefix: str | None
    symbols: list[Symbol] = field(default_factory=list)
    collects: str | None = None


Known = Tasks | Function | DagParam | Result | DraftDag | None


def last_name(source: Source, node: ast.AST) -> str:
    dotted = source.dotted(called(node))
    return dotted.rpartition(".")[2] if is_airflow(dotted) else ""


def defaults_of(node: ast.FunctionDef) -> dict[str, ast.expr]:
    positional = [one.arg for one in [*node.args.posonlyargs, *node.args.args]]
    found = dict(zip(reversed(positional), reversed(node.args.defaults), strict=False))
    named = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
    return found | {one.arg: value for one, value in named if value}


class Walk:
    """The walk through a file. Its parts are classes that build upon each other, up to `translate`."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.result = Draft("Airflow")
        self.known: dict[str, Known] = {}
        self.sink: list[Item] = self.result.items
        self.notes: list[Remark] | None = None  # where remarks go in place of the sink
        self.dag: DraftDag | None = None
        self.opened: list[DraftDag] = []  # `with DAG(...)`
        self.assigned: list[DraftDag] = []  # `dag = DAG(...)`, without a body of their own
        self.groups: list[Group] = []
        self.loops: list[set[str]] = []
        # Of functions of task groups, which stand at their calls: each call has its own.
        self.parameters: set[str] = set()
        self.symbols: list[Symbol] = []
        self.ids: dict[str, int] = {}  # how often a task function was called, by its id
        self.deps: list[tuple[str, Tasks]] = []  # of the task whose arguments are read
        self.held: dict[str, str] = {}
        self.optional: dict[int, str] = {}  # of items: the constant that they define, needed or not
        self.is_async: set[str] = set()
        self.shells: list[tuple[Symbol, str]] = []  # tasks of commands, and what gives their last line as the result
        self.target: str | None = None  # the variable that the task to be made is assigned to
        tree = source.tree
        stored = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
        self.stored_once = {name for name in stored if stored.count(name) == 1}
        self.airflow_classes: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and any(self._is_airflow(base) for base in node.bases):
                self.airflow_classes.add(node.name)
        self.functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        self.reader = SettingsReader(source, self._constants(), self.remark)
        self.callables = self._callables()
        self.rewritten: dict[str, ContextFunction] = {}
        self.makers = self._makers()
        self.makers_of_lists: set[str] = set()
        self.taken = {*keyword.kwlist, *dir(builtins), *OURS, *source.origins, *_OUR_NAMES}
        for node in ast.walk(tree):
            match node:
                case ast.Name(id=name) | ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    self.taken.add(name)

    def _is_airflow(self, node: ast.AST) -> bool:
        dotted = self.source.dotted(called(node))
        return is_airflow(dotted) or dotted in self.airflow_classes

    def _last(self, node: ast.AST) -> str:
        return last_name(self.source, node)

    def _constants(self) -> dict[str, ast.expr]:
        """The values of names that are assigned once and changed nowhere."""
        found: dict[str, list[ast.expr]] = {}
        changed: set[str] = set()
        for node in ast.walk(self.source.tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.setdefault(node.id, [])
            match node:
                case (
                    ast.Assign(targets=[ast.Name(id=name)], value=value)
                    | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                ):
                    found.setdefault(name, []).append(value)
                case (
                    ast.AugAssign(target=ast.Name(id=name))
                    | ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del())
                    | ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="update" | "setdefault" | "pop"))
                ):
                    changed.add(name)
        return {
            name: values[0]
            for name, values in found.items()
            if len(values) == 1
            and name not in changed
            and isinstance(values[0], ast.Constant | ast.Dict | ast.Call | ast.List | ast.JoinedStr)
        }

    def _callables(self) -> dict[str, tuple[set[str], int]]:
        """Functions of the file that operators call: what they are given by name, and how many values without one."""
        found: dict[str, tuple[set[str], int]] = {}
        for node in ast.walk(self.source.tree):
            if not isinstance(node, ast.Call):
                continue
            given = keywords_of(node)
            function = given.get("python_callable")
            if isinstance(function, ast.Name) and function.id in self.functions:
                names, positional = found.get(function.id, (set(), 0))
                op_kwargs, op_args = given.get("op_kwargs"), given.get("op_args")
                names |= {str(key.value) for key in getattr(op_kwargs, "keys", []) if isinstance(key, ast.Constant)}
                names |= {"templates_dict"} if "templates_dict" in given else set()
                found[function.id] = (names, max(positional, len(getattr(op_args, "elts", []))))
        return found

    def _makers(self) -> set[str]:
        """Functions, not decorated, that make tasks."""
        return {
            name
            for name, node in self.functions.items()
            if not any(map(self._is_airflow, node.decorator_list))
            and name not in self.callables
            and any(
                isinstance(one, ast.Call) and (self._is_operator(one) or self._last(one) in ("DAG", "TaskGroup"))
                for one in ast.walk(node)
            )
        }

    def _is_operator(self, node: ast.Call) -> bool:
        name = self.source.dotted(node.func)
        if name in self.airflow_classes:
            return True
        last = name.rpartition(".")[2]
        looks_so = last.endswith(("Operator", "Sensor", "SensorAsync", "OperatorAsync")) or last == "ExternalTaskMarker"
        return looks_so and (is_airflow(name) or any(one.arg == "task_id" for one in node.keywords))

    def _is_operator_class(self, node: ast.expr) -> bool:
        """Whether it is one that is mapped: `BashOperator`, `BashOperator.partial(...)`."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "partial":
            return self._is_operator(ast.Call(node.func.value, [], node.keywords))
        return self._is_operator(ast.Call(node, [], []))

    def remark(self, node: ast.AST, what: str, instead: str) -> None:
        self._add_remarks(Remark.at(node, what, instead))

    def _add_remarks(self, *remarks: Remark) -> None:
        self.result.remark(self.sink if self.notes is None else self.notes, *remarks)

    @contextmanager
    def noting(self, notes: list[Remark]) -> Iterator[None]:
        outer, self.notes = self.notes, notes
        try:
            yield
        finally:
            self.notes = outer

    @contextmanager
    def of_one_task(self) -> Iterator[list[Remark]]:
        """While the arguments of one task are read: gives its remarks, and `deps` are its own."""
        notes: list[Remark] = []
        outer, self.deps = self.deps, []
        try:
            with self.noting(notes):
                yield notes
        finally:
            self.deps = outer

    @contextmanager
    def into(self, sink: list[Item]) -> Iterator[None]:
        outer, self.sink = self.sink, sink
        try:
            yield
        finally:
            self.sink = outer

    def settings_of(self, call: ast.Call) -> dict[str, ast.expr]:
        """Its keywords, with those of a dict (`**COMMON`), as far as that is written out."""
        found: dict[str, ast.expr] = {}
        for one in call.keywords:
            found |= {one.arg: one.value} if one.arg else self.reader.of_mapping(one.value)
        return found

    def _names_result(self, node: ast.AST) -> bool:
        return any(isinstance(self.known.get(name), Result) for name in names_in(node)) and not self._makes(node)

    def _concerns_tasks(self, node: ast.AST) -> bool:
        """Whether it makes tasks, or names some."""
        for one in ast.walk(node):
            match one:
                case ast.Call() if self._is_operator(one) or self._last(one) in (
                    *STATEMENT_NAMES,
                    "TaskGroup",
                    "Label",
                ):
                    return True
                case ast.Call(func=ast.Attribute(attr="expand" | "expand_kwargs", value=owner)) if (
                    self._is_operator_class(owner)
                ):
                    return True
                case ast.Name(id=name) if isinstance(self.known.get(name), Tasks | Function) or name in self.makers:
                    return True
                case ast.FunctionDef(decorator_list=decorators) if any(map(self._is_airflow, decorators)):
                    return True
        return False

    def _makes(self, node: ast.AST) -> bool:
        match node:
            case ast.Call() if self._is_operator(node):
                return True
            case ast.Call(func=ast.Attribute(attr="expand" | "expand_kwargs", value=owner)):
                return self._concerns_tasks(owner) or self._is_operator_class(owner)
            case (
                ast.Call(func=ast.Name(id=name))
                | ast.Call(func=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="override")))
            ):
                return isinstance(self.known.get(name), Function)
        return False

    def _is_part_of_result(self, node: ast.expr) -> bool:
        """Of a task that stands alone: a list of tasks has parts of its own."""
        if not isinstance(node, ast.Subscript):
            return isinstance(node, ast.Call) and self._last(node) in ("XComArg", "PlainXComArg")
        root: ast.expr = node
        while isinstance(root, ast.Subscript):
            root = root.value
        if isinstance(root, ast.Attribute) and root.attr == "output":
            return self._concerns_tasks(root.value)
        known = self.known.get(root.id) if isinstance(root, ast.Name) else None
        return isinstance(known, Tasks) and not known.is_list and len(known.symbols) == 1 and known.first is None

    def _loop_names(self) -> frozenset[str]:
        return frozenset().union(*self.loops, self.parameters)

    def text_of(self, node: ast.expr | None) -> str | None:
        match node:
            case ast.Call(func=called, args=[inner]) if self.source.dotted(called).rpartition(".")[2] == "dedent":
                text = self.text_of(inner)
                return textwrap.dedent(text) if text is not None else None
            case ast.Name() if isinstance(value := self.reader.constant(node), ast.Call):
                return self.text_of(value)
        return self.reader.text_of(node)

    @staticmethod
    def _identifier(text: str) -> str:
        name = re.sub(r"\W", "_", text.rpartition(".")[2], flags=re.ASCII).strip("_") or "task"
        return f"_{name}" if name[0].isdigit() else name

    def _name_of(self, text: str) -> str:
        """A function's name of an id."""
        name = re.sub(r"\W", "_", text, flags=re.ASCII).strip("_") or "made"
        name = f"dag_{name}" if name[0].isdigit() else name
        return self._free_name(name) if name in self.taken else self._take(name)

    def _function_name(self, task_id: str | None, kind: str) -> str:
        if task_id is not None and (name := self._identifier(task_id)) not in self.taken:
            return self._take(name)
        if task_id is None or task_id == kind:
            kind = re.sub(r"(Operator|Sensor)(Async)?$", "", kind) or kind
            kind = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind).lower()
        name = self._identifier(kind if task_id is None else task_id)
        return self._free_name(f"{name}_task" if name.startswith("run_") else f"run_{name}")

    def _free_name(self, name: str) -> str:
        name = name.lower() if name.isupper() else name
        number = 1
        while (free := name if number == 1 else f"{name}_{number}") in self.taken:
            number += 1
        return self._take(free)

    def _take(self, name: str) -> str:
        self.taken.add(name)
        return name

    if TYPE_CHECKING:  # what the later parts define

        def top(self, node: ast.stmt) -> None: ...
        def inner(self, node: ast.stmt) -> None: ...
        def _define(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None: ...
        def _import(self, node: ast.Import | ast.ImportFrom) -> None: ...
        def _with_dag(self, node: ast.With, made: ast.Call, name: ast.expr | None) -> None: ...
        def _makes_dags(self, node: ast.stmt) -> bool: ...
        def _made(self, node: ast.Call) -> tuple[str, Tasks | None] | None: ...
        def _task_call(self, function: Function, node: ast.Call) -> tuple[str, Tasks]: ...
        def _group_call(self, function: Function, node: ast.Call) -> tuple[str, Tasks | None]: ...
        def _expanded(self, node: ast.Call, owner: ast.expr) -> tuple[str, Tasks | None] | None: ...
