"""What an importer makes of a file: `Draft`, its DAGs and their tasks as text of Python, and remarks. `writer` writes it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Literal

from backfill_manager.errors import InvalidInput
from backfill_manager.humanise import visible


@dataclass(frozen=True)
class Remark:
    """Something of the file that has no equal here. `at` makes one of a place in the file."""

    line: int | None
    what: str
    instead: str

    @classmethod
    def at(cls, node: ast.AST, what: str, instead: str) -> Remark:
        return cls(getattr(node, "lineno", None), " ".join(what.split()), instead)

    def todo(self, origin: str) -> str:
        where = f"from {origin}" if self.line is None else f"from {origin}, line {self.line}"
        said = visible(" ".join(f"{self.what}: {self.instead}".split()))  # on one line, whatever the file holds
        return f"# TODO ({where}): {said}"


@dataclass
class Code:
    """Statements as they are, without indentation."""

    text: str


@dataclass
class Block:
    """`for name in names:` and what is in it."""

    header: str
    items: list[Item]


@dataclass
class DraftTask:
    """A Python task: `settings` are texts of Python by keyword. Calling `function()` makes it, which is another item."""

    function: str
    settings: dict[str, str]
    body: str
    parameters: str = ""  # after `ctx`, such as `name=name` in a loop
    guards: list[str] = field(default_factory=list)  # statements before the body
    remarks: list[Remark] = field(default_factory=list)


@dataclass
class DraftDag:
    """A DAG, in the order in which its function makes its tasks. `params`: texts of Python, beside its `settings`."""

    function: str
    settings: dict[str, str]
    doc: str = ""
    items: list[Item] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    params: dict[str, str] = field(default_factory=dict)


Item = Code | Block | DraftTask | DraftDag | Remark


@dataclass
class Draft:
    """A DAG file of ours. `remarks`: all of them, also those of its DAGs and tasks, by line."""

    origin: Literal["Airflow", "dbt", "Dagster"]
    items: list[Item] = field(default_factory=list)
    doc: str = ""
    imports: list[str] = field(default_factory=list)  # those of the file that may still be needed
    remarks: list[Remark] = field(default_factory=list)

    def remark(self, items: list[Remark] | list[Item], *remarks: Remark) -> None:
        """Adds those that are new, to its own and to `items`, where they stand in the file."""
        for one in remarks:
            if one not in self.remarks:
                self.remarks.append(one)
                items.append(one)

    def finished(self, nothing: str) -> Draft:
        """With its remarks by line; `nothing` says that it has no DAG."""
        if not self.dags:
            self.remarks.append(Remark(None, nothing, "Nothing to import in this file"))
        self.remarks.sort(key=lambda one: one.line or 0)
        return self

    @property
    def dags(self) -> list[DraftDag]:
        return list(_dags(self.items))


def in_order(upstream: Mapping[str, Iterable[str]], what: str) -> list[str]:
    """The names, each after those of them that it needs; `InvalidInput` for a circle."""
    graph = {name: [one for one in needed if one in upstream] for name, needed in upstream.items()}
    try:
        return [*TopologicalSorter(graph).static_order()]
    except CycleError as error:
        circle = " -> ".join(reversed(error.args[1]))
        raise InvalidInput(f"The {what} {circle} refer to each other in a circle.") from None


def _dags(items: Iterable[Item]) -> Iterable[DraftDag]:
    for item in items:
        if isinstance(item, DraftDag):
            yield item
        if isinstance(item, Block | DraftDag):
            yield from _dags(item.items)
