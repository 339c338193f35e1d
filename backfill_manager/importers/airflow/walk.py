"""`Walk`: the state of the walk through a file, which all parts of the conversion share.

Its parts are functions of a `Walk`, from `translate` (statements of the file) by `body` (statements of a DAG), `calls` (which
tasks a call makes) and `expressions` down to here. Three of them are needed further down than they stand; they are given to
the `Walk` when it is made: `file_statement`, `body_statement`, `make_tasks`.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from backfill_manager.importers.airflow import templates
from backfill_manager.importers.airflow.facts import STATEMENT_NAMES, Facts
from backfill_manager.importers.airflow.functions import ContextFunction
from backfill_manager.importers.airflow.settings import SettingsReader
from backfill_manager.importers.airflow.symbols import Function, Group, Known, Result, Symbol, Tasks, Value
from backfill_manager.importers.draft import Draft, DraftDag, Item, Remark
from backfill_manager.importers.source import Source, keywords_of, names_in
from backfill_manager.importers.writer import OURS

_OUR_NAMES: Final = (  # that drafts are written with
    "ctx", "chosen", "done", "each", "before", "after", "asyncio", "shlex", "os", "subprocess", "timedelta", "datetime",
    "timezone", "itertools", "ZoneInfo",
)  # fmt: skip


class Walk:
    def __init__(
        self,
        source: Source,
        read: Callable[[str], str | None],
        *,
        file_statement: Callable[[Walk, ast.stmt], None],
        body_statement: Callable[[Walk, ast.stmt], None],
        make_tasks: Callable[[Walk, ast.Call], Value | None],
    ) -> None:
        self.source, self.facts, self.read = source, Facts(source), read
        self._file_statement, self._body_statement, self._make_tasks = file_statement, body_statement, make_tasks
        self.result = Draft("Airflow")
        self.reader = SettingsReader(source, self.facts.constants, self.remark)
        self.known: dict[str, Known] = {}
        self.sink: list[Item] = self.result.items
        self.notes: list[Remark] | None = None  # where remarks go in place of the sink
        self.dag: DraftDag | None = None
        self.opened: list[DraftDag] = []  # `with DAG(...)`
        self.assigned: list[DraftDag] = []  # `dag = DAG(...)`, without a body of their own
        self.groups: list[Group] = []
        self.loops: list[set[str]] = []  # that are open, the names that each binds
        self.loops_of_dag = 0  # how many of them are outside of the DAG
        # Of functions of task groups, which stand at their calls: each call has its own.
        self.parameters: set[str] = set()
        self.symbols: list[Symbol] = []
        self.ids: dict[str, int] = {}  # how often a task function was called, by its id
        self.deps: list[tuple[str, Tasks]] = []  # of the task whose arguments are read
        self.untranslated = False  # whether they have a template without an equal
        self.held: dict[str, str] = {}
        self.optional: dict[int, str] = {}  # of items: the constant that they define, needed or not
        self.is_async: set[str] = set()
        self.with_results: list[tuple[Symbol, str]] = []  # tasks, and their body if another one takes their result
        self.target: str | None = None  # the variable that the task to be made is assigned to
        self.rewritten: dict[str, ContextFunction] = {}
        self.maker = ""  # the function that is read, if it makes tasks
        self.makers_of_lists: set[str] = set()
        self.taken = {*keyword.kwlist, *dir(builtins), *OURS, *source.origins, *_OUR_NAMES}
        for node in ast.walk(source.tree):
            match node:
                case ast.Name(id=name) | ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    self.taken.add(name)

    def file_statement(self, node: ast.stmt) -> None:
        """A statement outside of all DAGs."""
        self._file_statement(self, node)

    def body_statement(self, node: ast.stmt) -> None:
        """A statement of a DAG's body."""
        self._body_statement(self, node)

    def make_tasks(self, node: ast.Call) -> Value | None:
        """A call that makes tasks; None: it is another."""
        return self._make_tasks(self, node)

    def task_function(self, node: ast.expr) -> Function | None:
        """The function of `@task` or `@task_group` that an expression is, with what `override` sets."""
        match node:
            case ast.Name(id=name):
                known = self.known.get(name)
                return known if isinstance(known, Function) else None
            case ast.Call(func=ast.Attribute(value=owner, attr="override")) if function := self.task_function(owner):
                return Function(function.node, function.kind, {**function.settings, **self.settings_of(node)})
        return self.facts.wrapped(node)

    def remark(self, node: ast.AST, what: str, instead: str) -> None:
        self.add_remarks(Remark.at(node, what, instead))

    def add_remarks(self, *remarks: Remark) -> None:
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
        """While the arguments of one task are read: gives its remarks; `deps` and `untranslated` are its own."""
        notes: list[Remark] = []
        outer, self.deps, self.untranslated = (self.deps, self.untranslated), [], False
        try:
            with self.noting(notes):
                yield notes
        finally:
            self.deps, self.untranslated = outer

    @contextmanager
    def into(self, sink: list[Item]) -> Iterator[None]:
        outer, self.sink = self.sink, sink
        try:
            yield
        finally:
            self.sink = outer

    def translated(
        self, node: ast.AST, source: str | ast.JoinedStr, write: Callable[..., templates.Translated], **how: bool
    ) -> str:
        """A template as `write` makes it, with remarks on what has no equal. Params that it names are declared."""
        text = (
            source
            if isinstance(source, str)
            else "".join(str(one.value) for one in ast.walk(source) if isinstance(one, ast.Constant))
        )
        written, problems = write(source, **how)
        instead = "Write it with ctx in Python, with `:interval_start`, params or macros in SQL"
        for problem in dict.fromkeys(problems):
            self.remark(node, problem, instead)
            self.untranslated |= not problem.endswith(templates.WITHIN_QUOTES)
        for name, default in templates.params_of(text).items():
            if self.dag is not None and name not in self.dag.params:
                self.dag.params[name] = default
                self.remark(
                    node,
                    f"the param {name} of a template",
                    f"It is declared with the default {default} here, so that a run may set it",
                )
        return written

    def take_params(self, node: ast.AST, given: Mapping[str, ast.expr]) -> None:
        """Params of a task become the DAG's."""
        if self.dag is None and "params" in given:  # in a function that makes tasks
            self.remark(node, "params= of a task", "Declare them in params= of the DAG")
        elif self.dag is not None:
            for name, text in self.reader.params(given.get("params")).items():
                if self.dag.params.setdefault(name, text) != text:
                    instead = "The DAG has one with another value; params are the DAG's here"
                    self.remark(node, f"the param {name} of a task", instead)

    def settings_of(self, call: ast.Call) -> dict[str, ast.expr]:
        """Its keywords, with those of a dict (`**COMMON`), as far as that is written out."""
        found: dict[str, ast.expr] = {}
        for one in call.keywords:
            found |= {one.arg: one.value} if one.arg else self.reader.of_mapping(one.value)
        return found

    def names_result(self, node: ast.AST) -> bool:
        return any(isinstance(self.known.get(name), Result) for name in names_in(node)) and not self.makes(node)

    def dag_of_call(self, node: ast.AST) -> DraftDag | None:
        """The DAG that a function of another file is given, to make a task in it."""
        if not isinstance(node, ast.Call) or not self.facts.is_of_other_file(node.func):
            return None
        given = [one.id for one in [*node.args, *keywords_of(node).values()] if isinstance(one, ast.Name)]
        return next((dag for name in given if isinstance(dag := self.known.get(name), DraftDag)), None)

    def concerns_tasks(self, node: ast.AST) -> bool:
        """Whether it makes tasks, or names some."""
        for one in ast.walk(node):
            match one:
                case ast.Call() if self.makes(one) or self.facts.wrapped(one):
                    return True
                case ast.Call() if self.facts.last(one) in (*STATEMENT_NAMES, "TaskGroup", "Label"):
                    return True
                case ast.Name(id=name) if name in self.facts.makers or (
                    isinstance(self.known.get(name), Tasks | Function | Group)
                ):
                    return True
                case ast.FunctionDef(decorator_list=decorators) if any(map(self.facts.is_airflow, decorators)):
                    return True
        return False

    def makes(self, node: ast.AST) -> bool:
        """Whether it is a call that makes tasks, see `calls`."""
        match node:
            case ast.Call() if self.facts.is_operator(node) or self.dag_of_call(node):
                return True
            case ast.Call(func=ast.Attribute(attr="expand" | "expand_kwargs", value=owner)):
                return self.concerns_tasks(owner) or self.facts.is_operator_class(owner)
            case ast.Call(func=function):
                return self.task_function(function) is not None
        return False

    def is_part_of_result(self, node: ast.expr) -> bool:
        """Of a task that stands alone: a list of tasks has parts of its own."""
        if not isinstance(node, ast.Subscript):
            return isinstance(node, ast.Call) and self.facts.last(node) in ("XComArg", "PlainXComArg")
        root: ast.expr = node
        while isinstance(root, ast.Subscript):
            root = root.value
        if isinstance(root, ast.Attribute) and root.attr == "output":
            return self.concerns_tasks(root.value)
        known = self.known.get(root.id) if isinstance(root, ast.Name) else None
        return isinstance(known, Tasks) and not known.is_list and len(known.symbols) == 1 and known.first is None

    @property
    def in_loop(self) -> bool:
        """Whether the DAG makes what is read any number of times."""
        return len(self.loops) > self.loops_of_dag

    def names_of_loops(self) -> frozenset[str]:
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
    def identifier(text: str) -> str:
        name = re.sub(r"\W", "_", text.rpartition(".")[2], flags=re.ASCII).strip("_") or "task"
        return f"_{name}" if name[0].isdigit() else name

    def name_of(self, text: str) -> str:
        """A function's name of an id."""
        name = re.sub(r"\W", "_", text, flags=re.ASCII).strip("_") or "made"
        name = f"dag_{name}" if name[0].isdigit() else name
        return self.free_name(name) if name in self.taken else self.take(name)

    def function_name(self, task_id: str | None, kind: str) -> str:
        if task_id is not None and (name := self.identifier(task_id)) not in self.taken:
            return self.take(name)
        if task_id is None or task_id == kind:
            kind = re.sub(r"(Operator|Sensor)(Async)?$", "", kind) or kind
            kind = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind).lower()
        name = self.identifier(kind if task_id is None else task_id)
        return self.free_name(f"{name}_task" if name.startswith("run_") else f"run_{name}")

    def free_name(self, name: str) -> str:
        name = name.lower() if name.isupper() else name
        number = 1
        while (free := name if number == 1 else f"{name}_{number}") in self.taken:
            number += 1
        return self.take(free)

    def take(self, name: str) -> str:
        self.taken.add(name)
        return name
