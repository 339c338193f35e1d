"""What is read of a file of Dagster's: assets, ops, schedules of jobs, and the names in them."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from backfill_manager.importers.draft import Draft, Item, Remark
from backfill_manager.importers.source import Source, called, parameters_of, with_positional
from backfill_manager.importers.writer import identifier

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Node:
    """An asset or an op."""

    function: Function
    name: str
    given: dict[str, ast.expr]
    upstream: list[str] = field(default_factory=list)
    partitions: str = ""  # text of its definition; empty for none
    renamed: dict[str, str] = field(default_factory=dict)  # parameter: the asset that it stands for
    depends_on_past: bool = False  # on its own partition before

    def parameters(self) -> dict[str, str]:
        """Each with the name of the asset that it would stand for."""
        return {one.arg: self.renamed.get(one.arg, one.arg) for one in parameters_of(self.function)}


@dataclass
class Cron:
    """A schedule of a job."""

    job: str
    cron: str
    zone: str | None
    selected: set[str] | None  # the assets of the job; None: it does not list them
    has_dag: bool = False


class DagsterFile:
    """A file and its draft."""

    def __init__(self, source: Source) -> None:
        self.source, self.result = source, Draft("Dagster")
        self.values: dict[str, ast.expr] = {}  # of the names at its top

    def kind(self, node: ast.AST) -> str:
        """What is called, if it is Dagster's; else empty."""
        dotted = self.source.dotted(called(node))
        return dotted.rpartition(".")[2] if dotted.partition(".")[0] == "dagster" else ""

    def remark(self, items: list[Remark] | list[Item], node: ast.AST, what: str, instead: str) -> None:
        self.result.remark(items, Remark.at(node, what, instead))

    def partitions(self, text: str) -> tuple[str, dict[str, ast.expr]]:
        """The kind of a definition, and what it is given."""
        call = ast.parse(text or "None", mode="eval").body
        return self.kind(call), with_positional(call, "start_date") if isinstance(call, ast.Call) else {}


def key_of(node: ast.expr) -> str | None:
    """Of an asset that another names: as text, by its function, or as what is given to AssetKey and the like."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Call(args=[first, *_]):
            return text_of(node) or text_of(first)
    return text_of(node)


def listed(selection: ast.expr | None) -> set[str] | None:
    """The names of the assets of a selection; None for one that is no plain list of them."""
    nodes = selection.elts if isinstance(selection, ast.List | ast.Tuple) else [selection]
    names = {key_of(one) if isinstance(one, ast.Name | ast.Constant) else None for one in nodes if one is not None}
    return {name.rpartition("/")[2] for name in names if name} if names and None not in names else None


def text_of(node: ast.AST | None) -> str | None:
    match node:
        case ast.Constant(value=str() as text):
            return text
        case (
            ast.Call(args=[ast.Constant(value=str() as text)])
            | ast.Call(args=[ast.List(elts=[*_, ast.Constant(value=str() as text)])])
        ):
            return text  # AssetKey("a"), AssetKey(["a", "b"])
    return None


def identifier_of(name: str) -> str:
    return identifier(name, "a", "assets")
