"""What names of the file stand for while a draft is made: tasks, functions that make tasks, groups, parts of results."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field

from backfill_manager.importers.draft import DraftDag, DraftTask


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
    of_lists: bool = False  # its items are lists, as those of groups are


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


@dataclass(eq=False)
class Group:
    """A task group. `prefix`: text of Python, empty where it adds none; None: its tasks' ids have no prefix at all.
    `collects`: a variable with its tasks, where their number is not known."""

    prefix: str | None
    base: str  # its name
    symbols: list[Symbol] = field(default_factory=list)
    collects: str | None = None


Value = tuple[str, Tasks | None]  # text of Python for the body of the DAG, and the tasks that it stands for
Known = Tasks | Function | DagParam | Result | Group | DraftDag | None
