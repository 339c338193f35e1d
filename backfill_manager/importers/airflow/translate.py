"""`translate`: a DAG file of Airflow as a `Draft`.

It keeps the shape of the file. A DAG's body becomes the body of a `@dag` function, statement by statement, loops and conditions
included; where a task is made, the function of ours that does the same is written and called. What is passed from task to task
becomes `ctx.result(...)` in the later one, and their order. Nothing is executed.
"""

from __future__ import annotations

import ast
import builtins
import copy
import importlib.util
import keyword
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from backfill_manager.importers.airflow import templates
from backfill_manager.importers.airflow.functions import ContextFunction, instead_of_class, rewrite
from backfill_manager.importers.airflow.operators import READERS, Made, missing, returned_branch, shell
from backfill_manager.importers.airflow.settings import RULES, SettingsReader
from backfill_manager.importers.draft import Block, Code, Draft, DraftDag, DraftTask, Item, Remark
from backfill_manager.importers.source import Source, bound_by, names_in
from backfill_manager.importers.writer import OURS, call, keywords, quoted, shifted, unparse, write

_STATEMENT_NAMES: Final = ("chain", "chain_linear", "cross_downstream")
_LOOPS: Final = (ast.For, ast.While, ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)
_OTHER_ENVIRONMENTS: Final = (
    "virtualenv",
    "external_python",
    "docker",
    "kubernetes",
    "branch_virtualenv",
    "branch_external_python",
)
_ONE_BY_ONE: Final = (
    "Here one task does all of them, one after another; a partition or a param per run gives each a state of its own"
)
_DAG_METHODS: Final = ("test", "cli", "run", "clear", "doc_md")


def translate(text: str, file: str) -> Draft:
    """`SyntaxError` for what is no Python."""
    return _File(Source(_renamed(Source(text, file)), file)).draft()


def is_airflow(dotted: str) -> bool:
    return dotted.partition(".")[0] == "airflow"


@dataclass(eq=False)
class Symbol:
    """A task as a statement makes it; several of them in a loop."""

    id_text: str  # text of Python
    is_static: bool
    task: DraftTask | None  # None: of SQL
    is_branch: bool = False
    variable: str | None = None
    loop_names: frozenset[str] = frozenset()  # of the loops that it is made in
    dag: DraftDag | None = None
    line: int | None = None
    upstream: set[Symbol] = field(default_factory=set)
    downstream: set[Symbol] = field(default_factory=set)


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
    """A task group that is open. `collects`: a variable with its tasks, where their number is not known."""

    prefix: str
    symbols: list[Symbol] = field(default_factory=list)
    collects: str | None = None


Known = Tasks | Function | DagParam | Result | DraftDag | None


def _renamed(source: Source) -> str:
    """The file, with another name for each variable that has a name which ours need."""
    bound = {name for name in bound_by(source.tree) if name in OURS} - source.origins.keys()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef) and node.name in OURS:
            bound.add(node.name)
        if isinstance(node, ast.FunctionDef) and any(_last(source, one) == "dag" for one in node.decorator_list):
            bound |= {name for name in bound_by(node) if name in OURS} - source.origins.keys()
    if not bound:
        return source.text
    local = {
        id(one)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef | ast.Lambda)
        for one in ast.walk(node)
        if isinstance(one, ast.Name) and one.id in {arg.arg for arg in [*node.args.args, *node.args.kwonlyargs]}
    }

    def rename(node: ast.AST) -> str | None:
        return f"{node.id}_" if isinstance(node, ast.Name) and node.id in bound and id(node) not in local else None

    module = ast.Module(source.tree.body, [])
    text = source.text_with(module, rename)
    return re.sub(rf"^(\s*(?:async )?def )({'|'.join(bound)})\(", r"\1\2_(", text, flags=re.MULTILINE)


def _last(source: Source, node: ast.AST) -> str:
    dotted = source.dotted(node.func if isinstance(node, ast.Call) else node)
    return dotted.rpartition(".")[2] if is_airflow(dotted) else ""


class _File:
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
        self.parameters: set[str] = (
            set()
        )  # of functions of task groups, which stand at their calls: each call has its own
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
        self.reader = SettingsReader(source, is_airflow, self._constants())
        self.callables = self._callables()
        self.rewritten: dict[str, ContextFunction] = {}
        self.makers = self._makers()
        self.taken = {
            *keyword.kwlist,
            *dir(builtins),
            *OURS,
            "ctx",
            "chosen",
            "done",
            "asyncio",
            "each",
            "before",
            "after",
        }
        for node in ast.walk(tree):
            match node:
                case ast.Name(id=name) | ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    self.taken.add(name)
        self.taken |= {"shlex", "os", "subprocess", "timedelta", "datetime", "timezone", "itertools", *source.origins}

    # -- what is known before ----------------------------------------------------------------------------------------
    def _is_airflow(self, node: ast.AST) -> bool:
        dotted = self.source.dotted(node)
        return is_airflow(dotted) or dotted in self.airflow_classes

    def _last(self, node: ast.AST) -> str:
        return _last(self.source, node)

    def _constants(self) -> dict[str, ast.expr]:
        found: dict[str, list[ast.expr]] = {}
        for node in ast.walk(self.source.tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.setdefault(node.id, [])
            match node:
                case (
                    ast.Assign(targets=[ast.Name(id=name)], value=value)
                    | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                ):
                    found.setdefault(name, []).append(value)
        return {
            name: values[0]
            for name, values in found.items()
            if len(values) == 1 and isinstance(values[0], ast.Constant | ast.Dict | ast.Call | ast.List | ast.JoinedStr)
        }

    def _callables(self) -> dict[str, tuple[set[str], int]]:
        """Functions of the file that operators call: what they are given by name, and how many values without one."""
        found: dict[str, tuple[set[str], int]] = {}
        for node in ast.walk(self.source.tree):
            if not isinstance(node, ast.Call):
                continue
            given = {one.arg: one.value for one in node.keywords if one.arg}
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
            if not any(self._is_airflow(one.func if isinstance(one, ast.Call) else one) for one in node.decorator_list)
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

    # -- remarks -----------------------------------------------------------------------------------------------------
    def remark(self, node: ast.AST, what: str, instead: str) -> None:
        one = Remark(getattr(node, "lineno", None), " ".join(what.split()), instead)
        if one in self.result.remarks:
            return
        self.result.remarks.append(one)
        (self.sink if self.notes is None else self.notes).append(one)

    @contextmanager
    def noting(self, notes: list[Remark]) -> Iterator[None]:
        outer, self.notes = self.notes, notes
        try:
            yield
        finally:
            self.notes = outer

    @contextmanager
    def into(self, sink: list[Item]) -> Iterator[None]:
        outer, self.sink = self.sink, sink
        try:
            yield
        finally:
            self.sink = outer

    # -- the file ----------------------------------------------------------------------------------------------------
    def draft(self) -> Draft:
        body = list(self.source.tree.body)
        if (
            body
            and isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
            and isinstance(body[0].value.value, str)
        ):
            self.result.doc = body.pop(0).value.value.strip()  # type: ignore[attr-defined]
        for statement in body:
            self.top(statement)
        for dag in self.assigned:
            self.result.items.append(dag)
        self._guard()
        self._keep_outputs()
        self._check_imports()
        extra = [
            "import asyncio",
            "import itertools",
            "import os",
            "import shlex",
            "import subprocess",
            "from datetime import datetime, timedelta, timezone",
        ]
        bound = {name for text in self.result.imports for name in re.findall(r"\w+", text.partition("import ")[2])}
        for text in extra:
            names = [name for name in re.findall(r"\w+", text.partition("import ")[2]) if name not in bound]
            if text.startswith("from datetime"):
                self.result.imports += [f"from datetime import {name}" for name in names]
            elif names:
                self.result.imports.append(text)
        self._drop_unused()
        if not self.result.dags:
            self.result.remarks.append(Remark(None, "no DAG was found", "Nothing to import in this file"))
        self.result.remarks.sort(key=lambda one: one.line or 0)
        return self.result

    def top(self, node: ast.stmt) -> None:
        """A statement outside of all DAGs."""
        match node:
            case ast.Import() | ast.ImportFrom():
                self._import(node)
            case ast.Try() | ast.If() if all(
                isinstance(one, ast.Import | ast.ImportFrom | ast.Pass) for one in self._all_of(node)
            ):
                for one in self._all_of(node):
                    if isinstance(one, ast.Import | ast.ImportFrom):
                        self._import(one)
            case ast.If(test=test) if "__name__" in names_in(test) or "TYPE_CHECKING" in names_in(test):
                return
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self._define(node)
            case ast.With(items=[ast.withitem(context_expr=ast.Call() as made, optional_vars=name)]) if (
                self._last(made) == "DAG"
            ):
                self._with_dag(node, made, name)
            case ast.With(items=[ast.withitem(context_expr=ast.Name(id=name))]) if isinstance(
                dag := self.known.get(name), DraftDag
            ):
                self._in_dag(dag, node.body)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as made) if self._last(made) == "DAG":
                self.known[name] = dag = self._new_dag(made, name)
                if self.loops or self.sink is not self.result.items:
                    self.sink.append(dag)
                else:
                    self.assigned.append(dag)
            case (
                ast.Assign(value=ast.Call(func=ast.Name(id=name))) | ast.Expr(value=ast.Call(func=ast.Name(id=name)))
            ) if isinstance(self.known.get(name), DraftDag):
                for target in getattr(node, "targets", []):
                    if isinstance(target, ast.Name):
                        self.known[target.id] = self.known[name]
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method))) if (
                isinstance(self.known.get(name), DraftDag) and method in _DAG_METHODS
            ):
                return
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id=name), attr="doc_md")], value=value) if (
                name in self.known
            ):
                self._doc_of(name, value)
            case ast.If(test=test) if self._makes_dags(node) and any(
                is_airflow(self.source.origins.get(name, "")) for name in names_in(test)
            ):
                self.remark(node, f"if {unparse(test)}", "It is taken to hold for the DAGs below")
                for one in self._all_of(node):
                    if self._makes_dags(one) or self._concerns_tasks(one):
                        self.top(one)
            case ast.For() | ast.While() | ast.If() if self._makes_dags(node):
                self._block(node, self.top)
            case _ if (dag := self._dag_of(node)) is not None:
                self._in_dag(dag, [node])
            case _:
                self._keep(node)

    def _all_of(self, node: ast.stmt) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for name in ("body", "orelse", "finalbody"):
            found += getattr(node, name, [])
        for handler in getattr(node, "handlers", []):
            found += handler.body
        return found

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
        if is_airflow(module):
            return
        if isinstance(node, ast.Import):
            names = [alias for alias in node.names if not is_airflow(alias.name)]
            self.result.imports += [unparse(ast.Import([alias])) for alias in names]
        else:
            self.result.imports.append(unparse(node))

    def _check_imports(self) -> None:
        text = write(self.result)
        for node in ast.walk(ast.parse(text)):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []
            for top in {module.partition(".")[0] for module in modules}:
                if top in sys.stdlib_module_names or is_airflow(top) or top == "backfill_manager":
                    continue
                if importlib.util.find_spec(top) is None:
                    where = next((one for one in ast.walk(self.source.tree) if isinstance(one, ast.Import | ast.ImportFrom)
                                  and top in unparse(one)), self.source.tree)  # fmt: skip
                    what = "Install it for the bundle, or put it into the bundle if it is yours"
                    self.result.remarks.append(
                        Remark(getattr(where, "lineno", None), f"the module {top} is not installed here", what)
                    )

    def _drop_unused(self) -> None:
        """Constants that only Airflow needed."""
        while True:
            used = {
                node.id
                for node in ast.walk(ast.parse(write(self.result)))
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
            }
            unused = [number for number, name in self.optional.items() if name in self.reader.consumed - used]
            if not unused:
                return
            _without(self.result.items, set(unused))
            for number in unused:
                del self.optional[number]

    def _makes_dags(self, node: ast.stmt) -> bool:
        return any(
            (isinstance(one, ast.Call) and self._last(one) == "DAG")
            or (isinstance(one, ast.FunctionDef) and any(self._last(each) == "dag" for each in one.decorator_list))
            for one in ast.walk(node)
        )

    def _dag_of(self, node: ast.stmt) -> DraftDag | None:
        """Of a statement beside `dag = DAG(...)`: the DAG whose tasks it makes or puts in order."""
        makes = False
        for one in ast.walk(node):
            match one:
                case ast.keyword(arg="dag", value=ast.Name(id=name)) if isinstance(
                    dag := self.known.get(name), DraftDag
                ):
                    return dag
                case ast.Call() if self._is_operator(one) or self._last(one) in (*_STATEMENT_NAMES, "TaskGroup"):
                    makes = True
                case ast.Name(id=name) if isinstance(self.known.get(name), Tasks):
                    makes = True
                case ast.Call(func=ast.Name(id=name)) if isinstance(self.known.get(name), Function) or (
                    name in self.makers and self.assigned
                ):
                    makes = True
        open_dags = self.assigned or self.opened
        return open_dags[-1] if makes and open_dags else None

    def _in_dag(self, dag: DraftDag, statements: Sequence[ast.stmt]) -> None:
        outer, self.dag = self.dag, dag
        with self.into(dag.items):
            for one in statements:
                self.inner(one)
        self.dag = outer

    def _define(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        """A function or class."""
        if isinstance(node, ast.ClassDef):
            if node.name in self.airflow_classes or any(
                self._is_airflow(one) for base in node.bases for one in ast.walk(base)
            ):
                self._comment_out(
                    node, f"the class {node.name} of Airflow", "Write what it does as a function that a task calls"
                )
            else:
                self._keep(node)
            return
        decorator = next(
            (one for one in node.decorator_list if self._is_airflow(one.func if isinstance(one, ast.Call) else one)),
            None,
        )
        if decorator is None:
            self._keep_function(node)
            return
        dotted = self.source.dotted(decorator.func if isinstance(decorator, ast.Call) else decorator)
        settings = (
            {one.arg: one.value for one in decorator.keywords if one.arg} if isinstance(decorator, ast.Call) else {}
        )
        last = dotted.rpartition(".")[2]
        if isinstance(node, ast.AsyncFunctionDef):
            self.is_async.add(node.name)
            node = ast.copy_location(ast.FunctionDef(**{name: getattr(node, name) for name in node._fields}), node)
            self.functions[node.name] = node
        if last == "dag":
            self._decorated_dag(node, decorator, settings)
        elif last == "task_group":
            self.known[node.name] = Function(node, "group", settings)
        elif ".task" in f".{dotted}" or last in ("setup", "teardown"):
            kind = dotted.rpartition("task.")[2] if "task." in dotted else "python" if last == "task" else last
            others = [one for one in node.decorator_list if one is not decorator]
            if last in ("setup", "teardown") or any(self._last(one) in ("setup", "teardown") for one in others):
                is_teardown = "teardown" in (last, *(self._last(one) for one in others))
                self.remark(node, f"{'teardown' if is_teardown else 'setup'} task {node.name}", _SETUP)
                kind = "python" if kind in ("setup", "teardown") else kind
                settings |= {"trigger_rule": ast.Constant("all_done")} if is_teardown else {}
            for one in others:
                if self._last(one) in ("run_if", "skip_if"):
                    self.remark(one, f"@task.{self._last(one)}", "Begin the task with `if ...: ctx.skip(reason)`")
                elif self._last(one) not in ("setup", "teardown") and self._is_airflow(
                    one.func if isinstance(one, ast.Call) else one
                ):
                    settings |= (
                        {each.arg: each.value for each in one.keywords if each.arg} if isinstance(one, ast.Call) else {}
                    )
            self.known[node.name] = function = Function(node, kind, settings)
            if not self._is_inlined(function):
                self._keep_function(node)
        else:
            self._comment_out(
                node, f"{node.name}, decorated by @{last}", "Make a DAG with a task that writes the table"
            )

    # -- DAGs --------------------------------------------------------------------------------------------------------
    def _with_dag(self, node: ast.With, made: ast.Call, name: ast.expr | None) -> None:
        dag = self._new_dag(made, name.id if isinstance(name, ast.Name) else "dag_")
        self.sink += [Code(text) for text in self.source.comments_before(node)]
        self.sink.append(dag)
        if self.sink is self.result.items:
            self.opened.append(dag)
        if isinstance(name, ast.Name):
            self.known[name.id] = dag
        self._in_dag(dag, node.body)

    def _new_dag(self, made: ast.Call, variable: str) -> DraftDag:
        given = {one.arg: one.value for one in made.keywords if one.arg}
        given |= dict(zip(("dag_id", "description", "schedule"), made.args, strict=False))
        dag_id = given.get("dag_id")
        text = self.reader.text_of(dag_id)
        name = (
            self._name_of(text)
            if text
            else f"{variable.rstrip('_')}_{made.lineno}"
            if variable.startswith("dag")
            else variable
        )
        return self._dag(made, given, name, None if text == name else unparse(dag_id) if dag_id else None, text)

    def _dag(
        self, node: ast.AST, given: dict[str, ast.expr], name: str, id_text: str | None, dag_id: str | None = None
    ) -> DraftDag:
        dag = DraftDag(name, {})
        with self.noting(dag.remarks):
            if any(one.arg is None for one in getattr(node, "keywords", [])):
                self.remark(node, "settings from a dict (**)", "Write them out")
            default_args = self.reader.of_mapping(given.get("default_args"), self.remark)
            settings = self.reader.of_dag(given, default_args, self.remark, node)
        dag.settings = {**({"dag_id": id_text} if id_text else {}), **settings}
        if dag_id is not None and not re.fullmatch(r"[A-Za-z0-9_.-]{1,200}", dag_id):
            dag.settings["dag_id"] = quoted(re.sub(r"[^A-Za-z0-9_.-]+", "_", dag_id))
        if doc := self.reader.text_of(given.get("doc_md")):
            dag.doc = doc.strip()
        return dag

    def _decorated_dag(self, node: ast.FunctionDef, decorator: ast.expr, given: dict[str, ast.expr]) -> None:
        if isinstance(decorator, ast.Call):
            given = given | dict(zip(("dag_id", "description", "schedule"), decorator.args, strict=False))
        text = self.reader.text_of(given.get("dag_id"))
        id_text = unparse(given["dag_id"]) if "dag_id" in given and text != node.name else None
        dag = self._dag(decorator, given, node.name, id_text, text)
        self.known[node.name] = dag
        arguments = [*node.args.args, *node.args.kwonlyargs]
        defaults = dict(zip((one.arg for one in reversed(node.args.args)), reversed(node.args.defaults), strict=False))
        defaults |= {
            one.arg: value for one, value in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if value
        }
        params = []
        with self.noting(dag.remarks):
            for one in arguments:
                self.known[one.arg] = DagParam(one.arg)
                default = defaults.get(one.arg)
                params.append(
                    f"{quoted(one.arg)}: {(self.reader.param(default, one.arg, self.remark) if default else None) or 'None'}"
                )
        if params:
            dag.settings["params"] = "{" + ", ".join(params) + "}"
        body = list(node.body)
        if (doc := ast.get_docstring(node)) is not None:
            dag.doc = doc.strip()
            body.pop(0)
        self.sink += [Code(text) for text in self.source.comments_before(node)]
        self.sink.append(dag)
        outer = self.known.copy()
        self._in_dag(dag, [one for one in body if not isinstance(one, ast.Return)])
        self.known = {**self.known, **{name: outer[name] for name in outer if isinstance(outer[name], DraftDag)}}

    def _doc_of(self, name: str, value: ast.expr) -> None:
        dag = self.known[name]
        if isinstance(dag, DraftDag):
            if text := self.text_of(value):
                dag.doc = text.strip()
            elif isinstance(value, ast.Name) and value.id == "__doc__":
                dag.doc = self.result.doc

    # -- statements of a DAG's body ----------------------------------------------------------------------------------
    def inner(self, node: ast.stmt) -> None:
        comments = [Code(text) for text in self.source.comments_before(node)]
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self._define(node)
            case ast.Import() | ast.ImportFrom():
                before = len(self.result.imports)
                self._import(node)
                self.sink += [Code(text) for text in self.result.imports[before:]]
                del self.result.imports[before:]
            case ast.With(items=[ast.withitem(context_expr=ast.Call() as made, optional_vars=name)]) if (
                self._last(made) == "TaskGroup"
            ):
                self.sink += comments
                self._with_group(made, name, node.body)
            case ast.With(items=[ast.withitem(context_expr=ast.Name(id=name))]) if isinstance(
                self.known.get(name), DraftDag
            ):
                for one in node.body:
                    self.inner(one)
            case ast.With(items=[ast.withitem(context_expr=ast.Call() as made, optional_vars=name)]) if (
                self._last(made) == "DAG"
            ):
                self._with_dag(node, made, name)
            case ast.With(items=[ast.withitem(context_expr=made_)]) if self._concerns_tasks(made_):
                self.sink += comments
                text, teardown = self.value(made_)
                text = self._settled(text)
                inner_tasks, _ = self._group("", "within", node.body)
                if teardown is not None and inner_tasks.symbols:
                    setups = sorted(
                        {str(up.variable) for one in teardown.symbols for up in one.upstream if up.variable}
                    )
                    self._flush(self._ordered((inner_tasks.last or "[]", inner_tasks), (text, teardown))[0])
                    for setup in setups:
                        self._flush(f"{setup} >> {inner_tasks.first}")
            case ast.With() if any(
                self._is_airflow(one.context_expr.func) for one in node.items if isinstance(one.context_expr, ast.Call)
            ):
                for item in node.items:
                    self.remark(node, unparse(item.context_expr)[:60], "It has no equal here")
                for inner in node.body:
                    self.inner(inner)
            case ast.For() | ast.While() | ast.If() | ast.With() | ast.Try() if self._concerns_tasks(node):
                self.sink += comments
                self._block(node, self.inner)
            case ast.Expr(value=ast.Constant()):
                return
            case ast.Return(value=value) if value is not None and self._concerns_tasks(node):
                text, _ = self.value(value)
                self.sink.append(Code(f"return {text}"))
            case ast.Assign(targets=[ast.Attribute(attr=attr) as target]) if (
                attr.startswith("doc") or attr == "trigger_rule"
            ):
                if not attr.startswith("doc"):
                    self.remark(node, unparse(target), "Set it where the task is made")
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if self._names_result(value):
                self.deps, outer = [], self.deps
                self.known[name] = Result(self.at_runtime(value), self.deps)
                self.deps = outer
            case ast.Assign() | ast.AugAssign() | ast.Expr(value=ast.Call(func=ast.Attribute())) if self._names_result(
                node
            ) and not self._concerns_tasks(node):
                self._comment_out(
                    node, "a result that the DAG's body uses", "It is known when a task runs: use it there"
                )
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign() | ast.Expr() if self._concerns_tasks(node):
                self.sink += comments
                self._assign(node)
            case _:
                self._keep(node)

    def _names_result(self, node: ast.AST) -> bool:
        return any(isinstance(self.known.get(name), Result) for name in names_in(node)) and not self._makes(node)

    def _concerns_tasks(self, node: ast.AST) -> bool:
        """Whether it makes tasks, or names some."""
        for one in ast.walk(node):
            match one:
                case ast.Call() if self._is_operator(one) or self._last(one) in (
                    *_STATEMENT_NAMES,
                    "TaskGroup",
                    "Label",
                ):
                    return True
                case ast.Name(id=name) if isinstance(self.known.get(name), Tasks | Function) or name in self.makers:
                    return True
                case ast.FunctionDef(decorator_list=[_, *_]) if any(
                    self._is_airflow(each.func if isinstance(each, ast.Call) else each) for each in one.decorator_list
                ):
                    return True
        return False

    def _block(self, node: ast.stmt, inner: Callable[[ast.stmt], None]) -> None:
        """A compound statement, whose statements are handled one by one."""
        is_loop = isinstance(node, ast.For | ast.While)
        if is_loop:
            self.loops.append({*bound_by(node)})
        match node:
            case ast.For(target=target, iter=values):
                header = f"for {unparse(target)} in {self._plain(values)}:"
                tasks = self.known.get(values.id) if isinstance(values, ast.Name) else None
                if isinstance(tasks, Tasks) and isinstance(target, ast.Name):
                    self.known[target.id] = Tasks(tasks.symbols)
            case ast.While(test=test):
                header = f"while {unparse(test)}:"
            case ast.If(test=test):
                header = f"if {self._plain(test)}:"
            case ast.With(items=items):
                header = f"with {', '.join(map(unparse, items))}:"
            case _:
                header = "try:"
        parts: list[tuple[str, list[ast.stmt]]] = [(header, node.body)]  # type: ignore[attr-defined]
        parts += [
            (f"except{' ' + unparse(one.type) if one.type else ''}{' as ' + one.name if one.name else ''}:", one.body)
            for one in getattr(node, "handlers", [])
        ]
        parts += [
            (head, rest)
            for head, name in (("else:", "orelse"), ("finally:", "finalbody"))
            if (rest := getattr(node, name, None))
        ]
        for head, statements in parts:
            block = Block(head, [])
            self.sink.append(block)
            with self.into(block.items):
                for one in statements:
                    inner(one)
        if is_loop:
            self.loops.pop()

    def _plain(self, node: ast.expr) -> str:
        return self.value(node)[0]

    def _assign(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Expr) -> None:
        if isinstance(node, ast.Expr):
            self._expression(node.value)
            return
        value = node.value
        assert value is not None
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if len(targets) == 1 and isinstance(targets[0], ast.Name) and self._is_part_of_result(value):
            self.deps, outer = [], self.deps
            self.known[targets[0].id] = Result(self.at_runtime(value), self.deps)
            self.deps = outer
            return
        if (
            len(targets) == 1
            and isinstance(targets[0], ast.Name)
            and targets[0].id in self.stored_once
            and self._makes(value)
        ):
            self.target = targets[0].id
        text, found = self.value(value)
        self.target = None
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in self.makers:
            found = found or Tasks([])
        for target in targets:
            match target, found:
                case ast.Name(id=name), Tasks(symbols=symbols, is_list=is_list, first=first):
                    self.known[name] = found if not is_list or first else Tasks(symbols, is_list=True)
                    if len(symbols) == 1 and not is_list and not self.loops and first is None:
                        symbols[0].variable = symbols[0].variable or name
                case ast.Tuple(elts=elements), Tasks(symbols=symbols) if len(elements) == len(symbols):
                    for one, symbol in zip(elements, symbols, strict=True):
                        if isinstance(one, ast.Name):
                            self.known[one.id] = Tasks([symbol])
                case ast.Subscript(value=ast.Name(id=name)), Tasks(symbols=symbols):
                    before = self.known.get(name)
                    self.known[name] = Tasks(
                        [*(before.symbols if isinstance(before, Tasks) else []), *symbols], is_list=True
                    )
        written = " = ".join(map(unparse, targets))
        if text == written:
            return
        if isinstance(found, Tasks) and found.first is not None and text == found.last:
            return  # a group's names stand for it
        self.sink.append(Code(f"{written} {'+' if isinstance(node, ast.AugAssign) else ''}= {text}"))

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

    def _expression(self, node: ast.expr) -> None:
        match node:
            case ast.Call(args=arguments) if self._last(node) in _STATEMENT_NAMES:
                self._chain(self._last(node), node, arguments)
                return
            case ast.Call(
                func=ast.Attribute(value=owner, attr="set_downstream" | "set_upstream" as method), args=[other, *_]
            ):
                before, after = (owner, other) if method == "set_downstream" else (other, owner)
                text, _ = self._ordered(self.value(before), self.value(after))
                self.sink.append(Code(text))
                return
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append" | "extend"), args=[added]):
                text, found = self.value(added)
                before_ = self.known.get(name)
                if isinstance(found, Tasks):
                    self.known[name] = Tasks(
                        [*(before_.symbols if isinstance(before_, Tasks) else []), *found.symbols], is_list=True
                    )
                self.sink.append(Code(f"{name}.{node.func.attr}({text})"))  # type: ignore[attr-defined]
                return
        text, _ = self.value(node)
        tree = ast.parse(text, mode="eval").body
        if not isinstance(tree, ast.Name | ast.Constant) and not (
            isinstance(tree, ast.List) and all(isinstance(one, ast.Name) for one in tree.elts)
        ):
            self.sink.append(Code(text))

    def _chain(self, kind: str, node: ast.Call, arguments: Sequence[ast.expr]) -> None:
        if len(arguments) == 1 and isinstance(arguments[0], ast.Starred):
            text, _ = self.value(arguments[0].value)
            self.sink.append(Block(f"for before, after in zip({text}, {text}[1:]):", [Code("before >> after")]))
            return
        if any(isinstance(one, ast.Starred) for one in arguments):
            self.remark(node, f"{kind} with *", "Put the tasks in order with >>")
            return
        values = [
            self.value(one) for one in arguments if not (isinstance(one, ast.Call) and self._last(one) == "Label")
        ]
        before = values[0]
        for after in values[1:]:
            if kind == "chain" and self._is_list(before) and self._is_list(after):
                before, after = (self._settled_list(before), self._settled_list(after))
                lists = [ast.parse(one[0], mode="eval").body for one in (before, after)]
                if all(isinstance(one, ast.List) for one in lists):
                    for left, right in zip(lists[0].elts, lists[1].elts, strict=False):  # type: ignore[attr-defined]
                        self.sink.append(Code(f"{unparse(left)} >> {unparse(right)}"))
                else:
                    self.sink.append(
                        Block(f"for before, after in zip({before[0]}, {after[0]}):", [Code("before >> after")])
                    )
                if before[1] and after[1]:
                    for one, other in zip(before[1].symbols, after[1].symbols, strict=False):
                        one.downstream.add(other)
                        other.upstream.add(one)
                before = after
            else:
                before = self._ordered(before, after)
        self._flush(before[0])

    def _settled_list(self, value: tuple[str, Tasks | None]) -> tuple[str, Tasks | None]:
        tree = ast.parse(value[0], mode="eval").body
        if isinstance(tree, ast.List):
            return f"[{', '.join(self._settled(unparse(one)) for one in tree.elts)}]", value[1]
        return self._settled(value[0]), value[1]

    def _flush(self, text: str) -> None:
        if isinstance(ast.parse(text, mode="eval").body, ast.BinOp | ast.Call):
            self.sink.append(Code(text))

    @staticmethod
    def _is_list(value: tuple[str, Tasks | None]) -> bool:
        return isinstance(ast.parse(value[0], mode="eval").body, ast.List) or (
            value[1] is not None and value[1].is_list
        )

    # -- expressions -------------------------------------------------------------------------------------------------
    def value(self, node: ast.expr) -> tuple[str, Tasks | None]:
        """Text of Python for the DAG's body, and the tasks that it stands for."""
        match node:
            case ast.Name(id=name):
                found = self.known.get(name)
                tasks = found if isinstance(found, Tasks) else None
                return (tasks.last if tasks and tasks.last else name), tasks
            case ast.Call() if (made := self._made(node)) is not None:
                return made
            case ast.Call(func=ast.Attribute(value=owner, attr="as_setup" | "as_teardown" as method)):
                return self._setup(node, owner, method)
            case ast.BinOp(left=left, op=ast.RShift() | ast.LShift() as op, right=right):
                if isinstance(right, ast.Call) and self._last(right) == "Label":
                    return self.value(left)
                if isinstance(left, ast.Call) and self._last(left) == "Label":
                    return self.value(right)
                one, other = self.value(left), self.value(right)
                return self._ordered(one, other) if isinstance(op, ast.RShift) else self._ordered_back(one, other)
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                parts = [self.value(one.value if isinstance(one, ast.Starred) else one) for one in elements]
                stars = ["*" if isinstance(one, ast.Starred) else "" for one in elements]
                symbols = [symbol for _, tasks in parts if tasks for symbol in tasks.symbols]
                texts = [f"{star}{text}" for star, (text, _) in zip(stars, parts, strict=True)]
                if isinstance(node, ast.Tuple):
                    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})", Tasks(symbols) if symbols else None
                first = [
                    f"{star}{tasks.first if tasks and tasks.first else text}"
                    for star, (text, tasks) in zip(stars, parts, strict=True)
                ]
                last = f"[{', '.join(texts)}]"
                return last, Tasks(symbols, True, f"[{', '.join(first)}]", last) if symbols else None
            case ast.Attribute(value=owner, attr="output"):
                return self.value(owner)
            case ast.Call(args=[inner, *_]) if self._last(node) in ("XComArg", "PlainXComArg"):
                return self.value(inner)
            case ast.Attribute(attr=rule) if ".TriggerRule." in self.source.dotted(node):
                return quoted(RULES.get(rule.lower(), rule.lower())), None
            case ast.Subscript(value=ast.Name(id=name)) if isinstance(known := self.known.get(name), Tasks):
                return unparse(node), Tasks(known.symbols)
            case ast.ListComp(generators=[generator], elt=element) if self._concerns_tasks(element):
                return self._comprehension(generator, element)
        if not self._concerns_tasks(node):
            return self._kept_text(node), None
        held = _Hold(self)
        text = unparse(held.visit(copy.deepcopy(node)))
        return self._filled(text), Tasks([], is_list=True) if held.found else None

    def _kept_text(self, node: ast.expr) -> str:
        if any(is_airflow(self.source.origins.get(name, "")) for name in names_in(node)):
            self.remark(node, f"`{unparse(node)[:60]}`", instead_of_class(next(
                self.source.origins[name] for name in names_in(node) if is_airflow(self.source.origins.get(name, ""))
            )))  # fmt: skip
            return "None"
        return unparse(node)

    def _hold(self, text: str) -> ast.Name:
        name = f"_held_{len(self.held)}_"
        self.held[name] = text
        return ast.Name(name, ast.Load())

    def _filled(self, text: str) -> str:
        while (found := re.search(r"_held_\d+_", text)) is not None:
            text = text[: found.start()] + self.held[found[0]] + text[found.end() :]
        return text

    def _comprehension(self, generator: ast.comprehension, element: ast.expr) -> tuple[str, Tasks | None]:
        """A loop in place of a list comprehension whose elements are tasks."""
        name = self._free_name("tasks")
        self.sink.append(Code(f"{name} = []"))
        block = Block(f"for {unparse(generator.target)} in {self._plain(generator.iter)}:", [])
        self.sink.append(block)
        self.loops.append(bound_by(generator))
        with self.into(block.items):
            text, found = self.value(element)
            added = Code(f"{name}.append({text})")
            tests = " and ".join(unparse(one) for one in generator.ifs)
            if tests:
                block.items[:] = [Block(f"if {tests}:", [*block.items, added])]
            else:
                self.sink.append(added)
        self.loops.pop()
        return name, Tasks(found.symbols if found else [], is_list=True)

    def _ordered(self, before: tuple[str, Tasks | None], after: tuple[str, Tasks | None]) -> tuple[str, Tasks | None]:
        """`before >> after`; what is left to be put before others is given."""
        (left, one), (right, other) = before, after
        first = other.first if other and other.first else right
        for symbol in _ends(one):
            for following in _beginnings(other):
                symbol.downstream.add(following)
                following.upstream.add(symbol)
        if self._is_list((_tail(left), one)) and self._is_list((first, other)):
            left, settled = self._settled(left), self._settled(first)
            self.sink.append(Block(f"for before in {left}:", [Code(f"before >> {settled}")]))
            return settled if first == right else right, other
        text = f"{left} >> {_atom(first)}"
        if first != right:
            self.sink.append(Code(text))
            return right, other
        return text, other

    def _settled(self, text: str) -> str:
        """An expression that can be repeated: what makes tasks, or puts them in order, becomes a variable."""
        tree = ast.parse(text, mode="eval").body
        if not any(isinstance(one, ast.Call | ast.BinOp) for one in ast.walk(tree)):
            return text
        if isinstance(tree, ast.BinOp) and not any(isinstance(one, ast.Call) for one in ast.walk(tree.right)):
            self.sink.append(Code(text))
            return unparse(tree.right)
        name = self._free_name("first")
        self.sink.append(Code(f"{name} = {text}"))
        return name

    def _ordered_back(
        self, after: tuple[str, Tasks | None], before: tuple[str, Tasks | None]
    ) -> tuple[str, Tasks | None]:
        left, right = after[0], before[0]
        if isinstance(ast.parse(left, mode="eval").body, ast.BinOp):
            left = self._settled(left)
        done, _ = self._ordered(before, (left, after[1]))
        if done == f"{right} >> {_atom(left)}":
            return f"{left} << {_atom(right)}", before[1]
        self._flush(done)
        return right, before[1]

    def _setup(self, node: ast.Call, owner: ast.expr, method: str) -> tuple[str, Tasks | None]:
        text, tasks = self.value(owner)
        self.remark(node, f".{method}()", _SETUP)
        for symbol in tasks.symbols if tasks and method == "as_teardown" else []:
            if symbol.task is not None:
                symbol.task.settings["trigger_rule"] = '"all_done"'
        setups = next((one.value for one in node.keywords if one.arg == "setups"), None)
        return self._ordered(self.value(setups), (text, tasks)) if setups is not None else (text, tasks)

    # -- tasks -------------------------------------------------------------------------------------------------------
    def _made(self, node: ast.Call) -> tuple[str, Tasks | None] | None:
        """A call that makes a task; None: it is another."""
        if self._is_operator(node):
            return self._operator(node)
        match node.func:
            case ast.Name(id=name) if isinstance(function := self.known.get(name), Function):
                return (
                    self._group_call(function, node)
                    if function.kind == "group"
                    else self._task_call(function, node, {})
                )
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="override")) as override if isinstance(
                function := self.known.get(name), Function
            ):
                more = {one.arg: one.value for one in override.keywords if one.arg}
                if function.kind == "group":
                    return self._group_call(Function(function.node, "group", {**function.settings, **more}), node)
                return self._task_call(function, node, more)
            case ast.Attribute(value=owner, attr="expand" | "expand_kwargs"):
                return self._expanded(node, owner)
            case ast.Call(func=called, args=[ast.Name(id=name)]) if (
                self._last(called) == "task" and name in self.functions
            ):
                return self._task_call(Function(self.functions[name], "python", {}), node, {})
            case ast.Call(func=ast.Call(func=called) as decorator, args=[ast.Name(id=name)]) if (
                self._last(called) == "task" and name in self.functions
            ):
                settings = {one.arg: one.value for one in decorator.keywords if one.arg}
                return self._task_call(Function(self.functions[name], "python", settings), node, {})
        return None

    def _operator(self, node: ast.Call) -> tuple[str, Tasks]:
        given = {one.arg: one.value for one in node.keywords if one.arg}
        name = self.source.dotted(node.func).rpartition(".")[2]
        if node.args:
            given |= dict(zip(("task_id",), node.args, strict=False)) if "task_id" not in given else {}
        notes: list[Remark] = []
        self.deps, outer = [], self.deps
        target, self.target = self.target, None
        with self.noting(notes):
            reader = READERS.get(name)
            if reader is None:
                made = missing(
                    self, node, name, "Write here what it did, by the library of the service", frozenset(given)
                )
            else:
                made = reader(self, node, given)
            settings = self.reader.of_task(given, self.remark, made.known) | made.settings
            self.target = target
            text, tasks = self._task(node, given.get("task_id"), settings, made, notes, name)
        self.deps = outer
        return text, tasks

    def _task(
        self, node: ast.AST, id_node: ast.expr | None, settings: dict[str, str], made: Made, notes: list[Remark], kind: str,
        function: str | None = None, id_text: str | None = None,
    ) -> tuple[str, Tasks]:  # fmt: skip
        """Writes a task's function, where it has one; gives the expression that makes the task."""
        task_id = self.reader.text_of(id_node)
        if id_text is None:
            id_text = (
                quoted(task_id) if task_id is not None else unparse(id_node) if id_node is not None else quoted(kind)
            )
        elif isinstance(parsed := ast.parse(id_text, mode="eval").body, ast.Constant):
            task_id = str(parsed.value)
        if task_id is None and id_node is None and id_text == quoted(kind):
            task_id = kind
        prefix = "".join(f"{group.prefix}." for group in self.groups if group.prefix)
        if prefix:
            id_text = quoted(prefix + task_id) if task_id is not None else f"{quoted(prefix)} + {id_text}"
        if task_id is not None and not re.fullmatch(r"[A-Za-z0-9_.-]{1,200}", prefix + task_id):
            safe = re.sub(r"[^A-Za-z0-9_.-]+", "_", prefix + task_id)
            safe = safe.strip("_.") or f"task_{getattr(node, 'lineno', 0)}"
            self.remark(
                node, f"the task id {task_id!r}", f"It is {safe!r} here: ids have letters of ASCII, digits, _, . and -"
            )
            id_text = quoted(safe)
        dependencies = self._dependencies()
        if made.sql is not None:
            symbol = Symbol(
                id_text,
                task_id is not None,
                None,
                False,
                None,
                self._loop_names(),
                self.dag,
                getattr(node, "lineno", None),
            )
            self.sink += notes
            text = call("sql", [id_text, made.sql, *keywords(settings)])
        else:
            name = function or self._function_name(task_id, kind)
            plain = {**({} if id_text == quoted(name) else {"task_id": id_text}), **settings}
            draft = DraftTask(name, plain, made.body, self._bound(made.body), remarks=list(notes))
            self.sink.append(draft)
            symbol = Symbol(id_text, task_id is not None, draft, made.is_branch, None, self._loop_names(), self.dag)
            if made.with_result:
                self.shells.append((symbol, made.with_result))
            text = f"{name}()"
        self.symbols.append(symbol)
        for _, tasks in self.deps:
            for one in tasks.symbols:
                one.downstream.add(symbol)
                symbol.upstream.add(one)
        if dependencies:
            text = f"{dependencies} >> {text}"
        if self.groups or made.is_branch or made.sql is not None:
            text = self._named(text, symbol, task_id or kind)
        for group in self.groups:
            group.symbols.append(symbol)
            if group.collects:
                self.sink.append(Code(f"{group.collects}.append({text})"))
        return text, Tasks([symbol])

    def _named(self, text: str, symbol: Symbol, base: str) -> str:
        target, self.target = self.target, None
        symbol.variable = target or self._free_name(f"{self._identifier(base)}_task")
        if self.loops:
            self.loops[-1].add(symbol.variable)
        self.sink.append(Code(f"{symbol.variable} = {text}"))
        return symbol.variable

    def _dependencies(self) -> str:
        texts = list(dict.fromkeys(text for text, _ in self.deps))
        if len(texts) == 1:
            return texts[0]
        return f"[{', '.join(texts)}]" if texts else ""

    def _bound(self, body: str) -> str:
        """Of a loop's variables, those that the body uses: each task must keep its own."""
        used = {
            node.id
            for node in ast.walk(ast.parse(textwrap.dedent(f"def f():\n{textwrap.indent(body, '    ')}\n    pass")))
            if isinstance(node, ast.Name)
        }
        return ", ".join(f"{name}={name}" for name in sorted(self._loop_names() & used))

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

    def at_runtime(self, node: ast.expr) -> str:
        """Text of Python for within a task: results of other tasks come from `ctx`, and templates are written as Python."""
        text = self.text_of(node)
        if text is not None and ("{{" in text or "{%" in text):
            written, problems = templates.as_python(text)
            for problem in problems:
                self.remark(node, problem, "Write it with ctx")
            return written
        match node:
            case ast.Constant() | ast.Lambda():
                return (
                    quoted(node.value)
                    if isinstance(node, ast.Constant) and isinstance(node.value, str)
                    else unparse(node)
                )
            case ast.Name(id=name) if isinstance(found := self.known.get(name), DagParam):
                return f"ctx.params[{quoted(found.name)}]"
            case ast.Name(id=name) if isinstance(found := self.known.get(name), Result):
                self.deps += found.deps
                return found.text
            case ast.Name(id=name) if isinstance(found := self.known.get(name), Tasks):
                return self._result(found.last or name, found)
            case ast.Call(args=[inner, *more]) if self._last(node) in ("XComArg", "PlainXComArg"):
                key = self.text_of(
                    next((one.value for one in node.keywords if one.arg == "key"), more[0] if more else None)
                )
                suffix = f"[{quoted(key)}]" if key not in (None, "return_value") and key is not None else ""
                value, tasks = self.value(inner)
                return self._result(value, tasks or Tasks([])) + suffix
            case ast.Attribute(attr="output") | ast.Call() if isinstance(node, ast.Attribute) or self._makes(node):
                value, tasks = self.value(node)
                return self._result(value, tasks or Tasks([]))
        if isinstance(node, ast.JoinedStr):
            return unparse(node)
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("map", "zip", "concat")
            and self._concerns_tasks(node.func.value)
        ):
            self.remark(node, f".{node.func.attr}() of a result", "A result is a plain value here: use Python's own")
        held = _Hold(self, at_runtime=True)
        text = self._filled(unparse(held.generic_visit(copy.deepcopy(node))))
        if any(is_airflow(self.source.origins.get(name, "")) for name in names_in(ast.parse(text, mode="eval"))):
            return self._kept_text(node)
        return text

    def _makes(self, node: ast.AST) -> bool:
        match node:
            case ast.Call() if self._is_operator(node):
                return True
            case ast.Call(func=ast.Attribute(attr="expand" | "expand_kwargs", value=owner)):
                return self._concerns_tasks(owner)
            case (
                ast.Call(func=ast.Name(id=name))
                | ast.Call(func=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="override")))
            ):
                return isinstance(self.known.get(name), Function)
        return False

    def _result(self, text: str, tasks: Tasks) -> str:
        self.deps.append((text, tasks))
        if tasks.is_list:
            return f"[ctx.result(each.task_id) for each in {_tail(text)}]"
        if len(tasks.symbols) == 1 and tasks.symbols[0].is_static:
            return f"ctx.result({tasks.symbols[0].id_text})"
        if not isinstance(ast.parse(text, mode="eval").body, ast.Name | ast.Subscript) and tasks.symbols:
            self.deps.pop()
            text = self._named(text, tasks.symbols[0], "first")
            self.deps.append((text, tasks))
        return f"ctx.result({text}.task_id)"

    def called(self, node: ast.expr, arguments: Mapping[str, ast.expr]) -> str:
        """A call of an operator's function, with the values that the operator has for it."""
        given = []
        op_args, op_kwargs = arguments.get("op_args"), arguments.get("op_kwargs")
        if isinstance(op_args, ast.List | ast.Tuple):
            given += [self.at_runtime(one) for one in op_args.elts]
        elif op_args is not None:
            given.append(f"*{self.at_runtime(op_args)}")
        if isinstance(op_kwargs, ast.Dict) and all(isinstance(key, ast.Constant) for key in op_kwargs.keys):
            given += [
                f"{key.value!s}={self.at_runtime(value)}"
                for key, value in zip(op_kwargs.keys, op_kwargs.values, strict=True)
                if isinstance(key, ast.Constant)
            ]
        elif op_kwargs is not None:
            given.append(f"**{self.at_runtime(op_kwargs)}")
        if "templates_dict" in arguments:
            given.append(f"templates_dict={self.at_runtime(arguments['templates_dict'])}")
        if isinstance(node, ast.Lambda):
            return unparse(node.body) if not given and not node.args.args else call(f"({unparse(node)})", given)
        if isinstance(node, ast.Name) and node.id in self.functions:
            function = self._context_function(self.functions[node.id])
            return call(node.id, [*(["ctx"] if function.uses_ctx else []), *given])
        if isinstance(node, ast.Name) and node.id in self.source.origins:
            self.remark(
                node,
                f"{node.id} comes from another file",
                "It gets no context of Airflow: pass it what it needs of ctx",
            )
        return call(self._kept_text(node), given)

    def _context_function(
        self, node: ast.FunctionDef, given: set[str] | None = None, positional: int = 0
    ) -> ContextFunction:
        if node.name not in self.rewritten:
            names, count = self.callables.get(node.name, (set(), 0))
            self.rewritten[node.name] = rewrite(
                self.source, node, names | (given or set()), self._is_airflow_name, count or positional
            )
        return self.rewritten[node.name]

    def _is_airflow_name(self, dotted: str) -> bool:
        return is_airflow(dotted)

    # -- TaskFlow ----------------------------------------------------------------------------------------------------
    def _is_inlined(self, function: Function) -> bool:
        """Whether the function of `@task` is called at one place, so that its body is the task's."""
        if function.kind not in ("python", "pyspark", *_OTHER_ENVIRONMENTS[:4]) or function.node.args.vararg:
            return False
        name = function.node.name
        if name in self.is_async or any(isinstance(one, ast.Yield | ast.YieldFrom) for one in ast.walk(function.node)):
            return False
        uses = [
            one
            for one in ast.walk(self.source.tree)
            if isinstance(one, ast.Name) and one.id == name and isinstance(one.ctx, ast.Load)
        ]
        calls = [
            one
            for one in ast.walk(self.source.tree)
            if isinstance(one, ast.Call)
            and (one.func in uses or (isinstance(one.func, ast.Call) and isinstance(one.func.func, ast.Attribute)
                                      and one.func.func.attr == "override" and one.func.func.value in uses))
        ]  # fmt: skip
        same_name = sum(isinstance(one, ast.FunctionDef) and one.name == name for one in ast.walk(self.source.tree))
        stored = any(
            isinstance(one, ast.Name) and one.id == name and isinstance(one.ctx, ast.Store)
            for one in ast.walk(self.source.tree)
        )
        in_group = any(
            calls and calls[0] in set(ast.walk(one))
            for one in ast.walk(self.source.tree)
            if isinstance(one, ast.FunctionDef) and any(self._last(each) == "task_group" for each in one.decorator_list)
        )
        is_plain = (
            calls
            and not any(isinstance(one, ast.Starred) for one in calls[0].args)
            and not any(k.arg is None for k in calls[0].keywords)
        )
        return len(uses) == len(calls) == 1 and same_name == 1 and not stored and not in_group and bool(is_plain)

    def _task_call(self, function: Function, node: ast.Call, more: dict[str, ast.expr]) -> tuple[str, Tasks]:
        given = {**function.settings, **more}
        notes: list[Remark] = []
        self.deps, outer = [], self.deps
        target, self.target = self.target, None
        with self.noting(notes):
            positional = [
                f"*{self.at_runtime(one.value)}" if isinstance(one, ast.Starred) else self.at_runtime(one)
                for one in node.args
            ]
            by_name = {one.arg or "**": self.at_runtime(one.value) for one in node.keywords}
            made, name = self._task_flow(function, node, positional, by_name, given)
            settings = self.reader.of_task(given, self.remark, _OF_DECORATORS) | made.settings
            made.settings = {}
            self.target = target
            id_text = self._id_of_call(function, given, node)
            text, tasks = self._task(node, None, settings, made, notes, function.node.name, name, id_text)
        self.deps = outer
        return text, tasks

    def _id_of_call(self, function: Function, given: Mapping[str, ast.expr], node: ast.AST) -> str:
        id_node = given.get("task_id")
        base = self.text_of(id_node) if id_node is not None else function.node.name
        if base is None and id_node is not None:
            return unparse(id_node)
        if self.loops:
            counter = self._free_name("numbers")
            self.sink_before_loop(Code(f"{counter} = itertools.count(1)"))
            self.remark(
                node,
                f"the task {base} in a loop",
                f"Its ids are {base}__1, {base}__2, ... here; better give it one by the loop's variable",
            )
            return f'f"{base}__{{next({counter})}}"'
        key = "".join(f"{group.prefix}." for group in self.groups) + str(base) + str(id(self.dag))
        count = self.ids[key] = self.ids.get(key, -1) + 1
        return quoted(f"{base}__{count}" if count else str(base))

    def sink_before_loop(self, item: Item) -> None:
        """Before the outermost loop that is open, which is the last item of the DAG or of the file."""
        items = self.dag.items if self.dag is not None else self.result.items
        items.insert(max(len(items) - 1, 0), item)

    def _task_flow(
        self,
        function: Function,
        node: ast.Call,
        positional: list[str],
        by_name: dict[str, str],
        given: Mapping[str, ast.expr],
    ) -> tuple[Made, str | None]:
        kind = function.kind
        if kind in _OTHER_ENVIRONMENTS:
            self.remark(
                node,
                f"@task.{kind}",
                "Packages of tasks are installed for their bundle: environment in docs/bundles.md",
            )
        elif kind == "sensor":
            self.remark(
                node,
                "@task.sensor",
                "waits_for=[rows(...)], [file(...)] or [condition(...)] waits; here it looks once, and fails if it is not there",
            )
        elif kind not in ("python", "branch", "short_circuit", "bash", "pyspark"):
            return missing(self, node, f"@task.{kind}", "Write here what it did"), None
        context = self._context_function(function.node, set(by_name), len(positional))
        self._take_remarks(context)
        if kind == "pyspark":
            by_name |= {
                name: text
                for name, text in (("spark", "ctx.spark"), ("sc", "ctx.spark.sparkContext"))
                if name in context.parameters
            }
        if self._is_inlined(function):
            bound = dict(zip(context.parameters, positional, strict=False)) | by_name
            bound = {**_defaults(function.node, context.parameters), **bound}
            lines = [f"{name} = {text}" for name, text in bound.items() if name != text and name != "**"]
            missing_names = [name for name in context.parameters if name not in bound]
            for name in missing_names:
                self.remark(node, f"the parameter {name} of {function.node.name} is not given", "Give it a value")
                lines.append(f"{name} = None")
            return Made(_after_docstring(context.body, [*lines, *context.preamble])), function.node.name
        arguments = [*(["ctx"] if context.uses_ctx else []), *positional]
        arguments += [f"**{text}" if name == "**" else f"{name}={text}" for name, text in by_name.items()]
        called = call(function.node.name, arguments)
        if function.node.name in self.is_async:
            called = f"asyncio.run({called})"
        elif any(isinstance(one, ast.Yield | ast.YieldFrom) for one in ast.walk(function.node)):
            called = f"list({called})"
        if kind.startswith("branch"):
            return Made(returned_branch(called), is_branch=True), None
        if kind == "short_circuit":
            return Made(f'if not {called}:\n    ctx.skip("its condition does not hold")'), None
        if kind == "bash":
            env = {"env": f"{{**os.environ, **{self.at_runtime(given['env'])}}}"} if "env" in given else {}
            return Made(shell(called, env), with_result=shell(called, env, keeps_output=True)), None
        if kind == "sensor":
            return Made(
                f'done = {called}\nif not done:\n    raise RuntimeError("what it waits for is not there")'
            ), None
        return Made(f"return {called}"), None

    def _take_remarks(self, context: ContextFunction) -> None:
        for one in context.remarks:
            if one not in self.result.remarks:
                self.result.remarks.append(one)
                (self.sink if self.notes is None else self.notes).append(one)

    def _expanded(self, node: ast.Call, owner: ast.expr) -> tuple[str, Tasks | None] | None:
        """`f.partial(...).expand(...)`: one task that does all of them."""
        partial: ast.Call | None = None
        if isinstance(owner, ast.Call) and isinstance(owner.func, ast.Attribute) and owner.func.attr == "partial":
            partial, owner = owner, owner.func.value
        override: dict[str, ast.expr] = {}
        if isinstance(owner, ast.Call) and isinstance(owner.func, ast.Attribute) and owner.func.attr == "override":
            override, owner = {one.arg: one.value for one in owner.keywords if one.arg}, owner.func.value
        fixed = {one.arg: one.value for one in partial.keywords if one.arg} if partial else {}
        function = self.known.get(owner.id) if isinstance(owner, ast.Name) else None
        operator = ast.Call(owner, [], [])
        notes: list[Remark] = []
        if not isinstance(function, Function):
            if not (self._is_operator(operator) or self._is_airflow(owner)):
                return None
            self.deps, outer = [], self.deps
            with self.noting(notes):
                name = self.source.dotted(owner).rpartition(".")[2]
                for one in [*node.keywords, *(ast.keyword(None, each) for each in node.args)]:
                    self.at_runtime(one.value)
                made = missing(
                    self,
                    node,
                    f"{name}.expand",
                    "Loop over its values in one task, or make a task of each in a loop",
                    frozenset(fixed),
                )
                settings = self.reader.of_task(
                    fixed, self.remark, frozenset(fixed) - {"retries", "retry_delay", "trigger_rule", "pool"}
                )
                found = self._task(node, fixed.get("task_id"), settings, made, notes, name)
            self.deps = outer
            return found
        if function.kind == "group":
            self.remark(node, f"the mapped task group {function.node.name}", _ONE_BY_ONE)
            why = f"the mapped task group {function.node.name} of Airflow: loop over its values in one task"
            made = Made(f"raise NotImplementedError({quoted(why)})")
            self.deps, outer = [], self.deps
            for one in node.keywords:
                self.at_runtime(one.value)
            found = self._task(
                node,
                None,
                {},
                made,
                notes,
                function.node.name,
                self._function_name(None, function.node.name),
                quoted(function.node.name),
            )
            self.deps = outer
            return found
        self.deps, outer = [], self.deps
        with self.noting(notes):
            context = self._context_function(function.node, set(fixed) | {one.arg for one in node.keywords if one.arg})
            self._take_remarks(context)
            self.remark(node, f"the mapped task {function.node.name}", _ONE_BY_ONE)
            arguments = [
                *(["ctx"] if context.uses_ctx else []),
                *(f"{name}={self.at_runtime(value)}" for name, value in fixed.items()),
            ]
            if isinstance(node.func, ast.Attribute) and node.func.attr == "expand_kwargs":
                loops = f"for each in {self.at_runtime(node.args[0])}"
                arguments.append("**each")
            else:
                loops = " ".join(f"for {one.arg} in {self.at_runtime(one.value)}" for one in node.keywords)
                arguments += [f"{one.arg}={one.arg}" for one in node.keywords]
            body = f"return [{call(function.node.name, arguments)} {loops}]"
            given = {**function.settings, **override}
            settings = self.reader.of_task(given, self.remark, _OF_DECORATORS)
            id_text = self._id_of_call(function, given, node)
            found = self._task(
                node,
                None,
                settings,
                Made(body),
                notes,
                function.node.name,
                self._function_name(None, function.node.name),
                id_text,
            )
        self.deps = outer
        return found

    # -- task groups -------------------------------------------------------------------------------------------------
    def _with_group(self, made: ast.Call, name: ast.expr | None, body: Sequence[ast.stmt]) -> None:
        given = {one.arg: one.value for one in made.keywords if one.arg} | dict(
            zip(("group_id",), made.args, strict=False)
        )
        if "default_args" in given:
            self.remark(made, "default_args of a task group", "Give its tasks the settings")
        prefixed = given.get("prefix_group_id")
        group_id = self.text_of(given.get("group_id")) or (name.id if isinstance(name, ast.Name) else "group")
        has_prefix = not (isinstance(prefixed, ast.Constant) and prefixed.value is False)
        tasks, _ = self._group(group_id if has_prefix else "", group_id, body)
        if isinstance(name, ast.Name):
            self.known[name.id] = tasks

    def _group(
        self, prefix: str, base: str, body: Sequence[ast.stmt], returned: ast.expr | None = None
    ) -> tuple[Tasks, Tasks | None]:
        """The tasks of a group, and those that its function returns."""
        has_loops = bool(self.loops) or any(
            isinstance(one, _LOOPS) for statement in body for one in ast.walk(statement)
        )
        group = Group(prefix, collects=self._free_name(f"{self._identifier(base)}_tasks") if has_loops else None)
        if group.collects:
            self.sink.append(Code(f"{group.collects} = []"))
        self.groups.append(group)
        for one in body:
            self.inner(one)
        result = self.value(returned)[1] if returned is not None and self._concerns_tasks(returned) else None
        self.groups.pop()
        if group.collects:
            return Tasks(group.symbols, True, group.collects, group.collects), result
        members = set(group.symbols)
        first = [one for one in group.symbols if not one.upstream & members]
        last = [one for one in group.symbols if not one.downstream & members]
        return Tasks(group.symbols, False, _names(first), _names(last)), result

    def _group_call(self, function: Function, node: ast.Call) -> tuple[str, Tasks | None]:
        """A call of a `@task_group` function: its body stands here, with its parameters as variables."""
        base = self.text_of(function.settings.get("group_id")) or function.node.name
        self.target = None
        key = f"group {base} {id(self.dag)}"
        count = self.ids[key] = self.ids.get(key, -1) + 1
        prefixed = function.settings.get("prefix_group_id")
        prefix = (
            ""
            if isinstance(prefixed, ast.Constant) and prefixed.value is False
            else f"{base}__{count}"
            if count
            else base
        )
        parameters = [one.arg for one in [*function.node.args.args, *function.node.args.kwonlyargs]]
        outer = self.known.copy()
        given = dict(zip(parameters, node.args, strict=False)) | {
            one.arg: one.value for one in node.keywords if one.arg
        }
        defaults = _defaults(function.node, parameters)
        for parameter in parameters:
            if parameter in given:
                text, tasks = self.value(given[parameter])
            else:
                text, tasks = defaults.get(parameter, "None"), None
            self.known[parameter] = tasks
            self.parameters.add(parameter)
            if text != parameter:
                self.sink.append(Code(f"{parameter} = {text}"))
        body = list(function.node.body)
        if ast.get_docstring(function.node) is not None:
            body.pop(0)
        returned = body[-1].value if body and isinstance(body[-1], ast.Return) else None
        tasks, result = self._group(prefix, base, [one for one in body if not isinstance(one, ast.Return)], returned)
        self.known = outer | {name: value for name, value in self.known.items() if isinstance(value, Function)}
        if isinstance(result, Tasks) and len(result.symbols) == 1 and result.symbols[0].variable:
            return result.symbols[0].variable, Tasks(result.symbols, False, tasks.first, result.symbols[0].variable)
        return tasks.last or "[]", tasks

    # -- what stays as it is -----------------------------------------------------------------------------------------
    def _keep(self, node: ast.stmt) -> None:
        airflow = [
            name for name in names_in(node)
            if is_airflow(self.source.origins.get(name, "")) or name in self.airflow_classes
        ]  # fmt: skip
        if isinstance(node, ast.ClassDef):
            airflow = []  # in its methods, at run time
        match node:
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))) if isinstance(
                self.known.get(name), DraftDag
            ):
                airflow.append(name)
            case _ if any(isinstance(self.known.get(name), DraftDag) for name in names_in(node)):
                airflow += [name for name in names_in(node) if isinstance(self.known.get(name), DraftDag)]
        consumed = (
            node.targets[0].id if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) else None
        )
        if airflow and consumed and not isinstance(node.value, ast.Call):  # type: ignore[attr-defined]
            written = unparse(node)
            if consumed in self.reader.constants and "default" in written:
                self.reader.consumed.add(consumed)
                return
        if airflow:
            origin = self.source.origins.get(airflow[0], airflow[0])
            self._comment_out(node, f"{origin} is used", instead_of_class(origin))
            return
        item = Code("\n".join([*self.source.comments_before(node), self.source.segment(node)]))
        self.sink.append(item)
        if consumed is not None and consumed in self.reader.constants:
            self.optional[id(item)] = consumed

    def _keep_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name in self.makers and isinstance(node, ast.FunctionDef):
            self._keep_maker(node)
            return
        comments = self.source.comments_before(node)
        if isinstance(node, ast.AsyncFunctionDef):
            self._keep(node)
            return
        known = self.known.get(node.name)
        is_task = isinstance(known, Function) or node.name in self.callables
        calls = [
            one for one in ast.walk(self.source.tree) if isinstance(one, ast.Call) and node.name in names_in(one.func)
        ]
        given = (
            {each.arg for one in calls for each in one.keywords if each.arg} if isinstance(known, Function) else None
        )
        positional = max((len(one.args) for one in calls if isinstance(one.func, ast.Name)), default=0)
        if is_task:
            context = self._context_function(node, given, positional)
        else:
            context = ContextFunction(node, [one.arg for one in node.args.args], body=self.source.body(node))
            used = sorted(name for name in names_in(node) if is_airflow(self.source.origins.get(name, "")))
            for name in used:
                origin = self.source.origins[name]
                context.remarks.append(
                    Remark(node.lineno, f"{origin} is used in {node.name}", instead_of_class(origin))
                )
        self._take_remarks(context)
        header = self._header(node, context) if is_task or context.remarks or node.decorator_list else None
        if header is None:
            self.sink.append(Code("\n".join([*comments, self.source.segment(node)])))
            return
        text = f"{header}\n{shifted(_after_docstring(context.body, context.preamble), 4)}"
        self.sink.append(Code("\n".join([*comments, text])))

    def _header(self, node: ast.FunctionDef, context: ContextFunction) -> str:
        arguments = ast.parse(f"def f({unparse(node.args)}): pass").body[0].args  # type: ignore[attr-defined]
        kept = set(context.parameters)
        defaults = _defaults(node, [one.arg for one in [*arguments.posonlyargs, *arguments.args]])
        parts = ["ctx"] if context.uses_ctx else []
        for one in [*arguments.posonlyargs, *arguments.args]:
            if one.arg in kept:
                parts.append(self._parameter(one, defaults.get(one.arg)))
        if arguments.vararg:
            parts.append(f"*{arguments.vararg.arg}")
        named = [
            (one, value)
            for one, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
            if one.arg in kept
        ]
        if named and not arguments.vararg:
            parts.append("*")
        parts += [self._parameter(one, unparse(value) if value else None) for one, value in named]
        if (
            arguments.kwarg
            and re.search(rf"\b{arguments.kwarg.arg}\b", context.body)
            and f"{arguments.kwarg.arg} = " not in "\n".join(context.preamble)
        ) or (arguments.kwarg and (self.callables.get(node.name, (set(), 0))[0] - kept)):
            parts.append(f"**{arguments.kwarg.arg}")
        decorators = [f"@{unparse(one)}\n" for one in node.decorator_list
                      if not self._is_airflow(one.func if isinstance(one, ast.Call) else one)]  # fmt: skip
        return f"{''.join(decorators)}{'async ' * (node.name in self.is_async)}def {node.name}({', '.join(parts)}):"

    def _parameter(self, one: ast.arg, default: str | None) -> str:
        is_known = one.annotation is not None and not any(
            is_airflow(origin) or origin.startswith("pendulum") or origin.startswith("typing")
            for name in names_in(one.annotation)
            if (origin := self.source.origins.get(name, ""))
        )
        annotation = f": {unparse(one.annotation)}" if is_known and one.annotation else ""
        return f"{one.arg}{annotation}" + (f"{' = ' if annotation else '='}{default}" if default is not None else "")

    def _keep_maker(self, node: ast.FunctionDef) -> None:
        """A helper that makes tasks or DAGs when it is called."""
        if len(node.args.args) and any(one.arg == "dag" for one in node.args.args):
            self.remark(node, f"{node.name} takes a DAG", "Call it in the body of the @dag function, without the DAG")
        block = Block(f"def {node.name}({unparse(node.args)}):", [])
        self.sink.append(block)
        outer, before = self.known.copy(), self.dag
        self.dag = None
        makes_dags = self._makes_dags(node)
        with self.into(block.items):
            for one in node.body:
                if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant):
                    continue
                if isinstance(one, ast.Return) and one.value is not None and isinstance(one.value, ast.Name):
                    found = self.known.get(one.value.id)
                    if isinstance(found, DraftDag):
                        block.items.append(Code(f"return {found.function}"))
                        continue
                    block.items.append(
                        Code(f"return {found.last if isinstance(found, Tasks) and found.last else one.value.id}")
                    )
                    continue
                (self.top if makes_dags else self.inner)(one)
        self.dag = before
        self.known = outer
        for dag in _open_dags(block.items):  # `dag = DAG(...)` in a function
            if dag in self.assigned:
                self.assigned.remove(dag)

    def _comment_out(self, node: ast.stmt, what: str, instead: str) -> None:
        self.remark(node, what, instead)
        lines = [f"# {line}".rstrip() for line in self.source.segment(node).splitlines()]
        names = (
            [] if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) else sorted(bound_by(node))
        )
        nothing = "None" if self.dag is None else "[]"  # which can be put in order with tasks
        self.sink.append(Code("\n".join([*lines, *(f"{name} = {nothing}" for name in names)])))

    # -- names -------------------------------------------------------------------------------------------------------
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

    def _keep_outputs(self) -> None:
        """Commands whose last line another task takes as their result."""
        taken = {found[1] for found in re.finditer(r"ctx\.result\(([^()]*)\)", write(self.result))}
        for symbol, with_result in self.shells:
            variables = {
                f"{name}.task_id"
                for name, known in self.known.items()
                if isinstance(known, Tasks) and symbol in known.symbols
            }
            if symbol.task is not None and (
                symbol.id_text in taken or symbol.id_text.replace('"', "'") in taken or variables & taken
            ):
                symbol.task.body = with_result

    # -- branches ----------------------------------------------------------------------------------------------------
    def _guard(self) -> None:
        """Tasks directly after a branch skip themselves where it has not chosen them."""
        for branch in (one for one in self.symbols if one.is_branch):
            for after in branch.downstream:
                others = branch.downstream - {after}
                if any(after in _all_after(other) for other in others):
                    continue
                choice = (
                    f"(ctx.result({branch.id_text}) or [])"
                    if branch.is_static
                    else f"(ctx.result({branch.variable}.task_id) or [])"
                )
                if after.task is not None:
                    test = f"if {after.id_text} not in {choice}:"
                    after.task.guards.append(f'{test}\n    ctx.skip("not chosen by the branch before")')
                    names = names_in(ast.parse(f"{after.id_text}, {choice}")) & (after.loop_names | branch.loop_names)
                    bound = [one for one in after.task.parameters.split(", ") if one]
                    after.task.parameters = ", ".join(
                        dict.fromkeys([*bound, *(f"{name}={name}" for name in sorted(names))])
                    )
                elif (
                    after.dag is not None
                    and after.is_static
                    and branch.variable
                    and after.variable
                    and not after.loop_names
                ):
                    body = f'if {after.id_text} not in {choice}:\n    ctx.skip("not chosen by the branch before")'
                    name = self._free_name(f"{self._identifier(after.variable)}_chosen")
                    id_text = quoted(f"{ast.literal_eval(after.id_text)}.chosen")
                    after.dag.items += [
                        DraftTask(name, {"task_id": id_text}, body),
                        Code(f"{branch.variable} >> {name}() >> {after.variable}"),
                    ]
                else:
                    instead = "Put a Python task before it that skips itself, or make it one with ctx.spark.sql"
                    remark = Remark(
                        after.line, f"the SQL task {after.id_text} comes after the branch {branch.id_text}", instead
                    )
                    self.result.remarks.append(remark)


_SETUP: Final = "It is a plain task here; a teardown has the rule all_done, so its run fails only if the teardown does"
_OF_DECORATORS: Final = frozenset({
    "requirements", "system_site_packages", "python", "python_version", "use_dill", "expect_airflow", "image", "multiple_outputs",
    "env", "append_env", "ignore_downstream_trigger_rules", "show_return_value_in_logs", "conn_id", "config_kwargs", "serializer",
    "venv_cache_path", "pip_install_options", "index_urls", "name", "namespace", "in_cluster", "poke_interval", "timeout", "mode",
    "soft_fail",
})  # fmt: skip


class _Hold(ast.NodeTransformer):
    """Takes what makes tasks, or stands for some, out of an expression: each becomes a name, to be filled in."""

    def __init__(self, walk: _File, *, at_runtime: bool = False) -> None:
        self.walk, self.at_runtime, self.found = walk, at_runtime, False

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.JoinedStr):
            return node
        if isinstance(node, ast.expr) and self._is_one(node):
            self.found = True
            return self.walk._hold(self.walk.at_runtime(node) if self.at_runtime else self.walk.value(node)[0])
        return self.generic_visit(node)

    def _is_one(self, node: ast.expr) -> bool:
        known = self.walk.known.get(node.id) if isinstance(node, ast.Name) else None
        if self.at_runtime and (
            isinstance(known, DagParam | Result | Tasks) or (isinstance(node, ast.Constant) and "{{" in str(node.value))
        ):
            return True
        if isinstance(node, ast.Attribute) and node.attr == "output":
            return self.walk._concerns_tasks(node.value)
        if ".TriggerRule." in self.walk.source.dotted(node) or (
            isinstance(node, ast.Call) and self.walk._last(node) in ("XComArg", "PlainXComArg")
        ):
            return True
        return self.walk._makes(node)


def _without(items: list[Item], numbers: set[int]) -> None:
    items[:] = [item for item in items if id(item) not in numbers]
    for item in items:
        if isinstance(item, Block | DraftDag):
            _without(item.items, numbers)


def _open_dags(items: Sequence[Item]) -> Iterator[DraftDag]:
    for item in items:
        if isinstance(item, DraftDag):
            yield item
        elif isinstance(item, Block):
            yield from _open_dags(item.items)


def _defaults(node: ast.FunctionDef, parameters: Sequence[str]) -> dict[str, str]:
    positional = [one.arg for one in [*node.args.posonlyargs, *node.args.args]]
    found = dict(zip(reversed(positional), map(unparse, reversed(node.args.defaults)), strict=False))
    found |= {
        one.arg: unparse(value) for one, value in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if value
    }
    return {name: found[name] for name in parameters if name in found}


def _ends(tasks: Tasks | None) -> list[Symbol]:
    members = set(tasks.symbols) if tasks else set()
    return [one for one in tasks.symbols if tasks.first is None or not one.downstream & members] if tasks else []


def _beginnings(tasks: Tasks | None) -> list[Symbol]:
    members = set(tasks.symbols) if tasks else set()
    return [one for one in tasks.symbols if tasks.first is None or not one.upstream & members] if tasks else []


def _all_after(symbol: Symbol) -> set[Symbol]:
    found: set[Symbol] = set()
    waiting = [symbol]
    while waiting:
        for one in waiting.pop().downstream - found:
            found.add(one)
            waiting.append(one)
    return found


def _names(symbols: Sequence[Symbol]) -> str:
    names = list(dict.fromkeys(str(one.variable) for one in symbols))
    return names[0] if len(names) == 1 else f"[{', '.join(names)}]"


def _atom(text: str) -> str:
    return f"({text})" if isinstance(ast.parse(text, mode="eval").body, ast.BinOp) else text


def _tail(text: str) -> str:
    """What a chain of `>>` gives: its last part."""
    tree = ast.parse(text, mode="eval").body
    return unparse(tree.right) if isinstance(tree, ast.BinOp) else text


def _after_docstring(body: str, lines: Sequence[str]) -> str:
    first = next(iter(ast.parse(body).body), None)
    is_doc = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    )
    end = (first.end_lineno or 0) if first is not None and is_doc else 0
    texts = body.splitlines()
    return "\n".join([*texts[:end], *lines, *texts[end:]])
