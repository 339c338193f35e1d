"""`Source`: a Python file as text and tree, where its names come from, and text that is changed at some places, so that comments
and layout stay."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from backfill_manager.importers.writer import shifted, unparse

Replace = Callable[[ast.AST], str | None]  # the text that a node becomes; None: it stays


class Source:
    def __init__(self, text: str, file: str) -> None:
        self.text, self.tree = text, ast.parse(text, file)
        self._bytes = text.encode()
        lines = text.encode().splitlines(keepends=True)
        self._starts = [0]
        for line in lines:
            self._starts.append(self._starts[-1] + len(line))
        self.lines = text.splitlines()
        self.origins: dict[str, str] = {}  # a name that an import binds: what it is of, dotted
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    name = alias.asname or alias.name.partition(".")[0]
                    self.origins[name] = alias.name if alias.asname else name
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    self.origins[alias.asname or alias.name] = f"{'.' * node.level}{node.module or ''}.{alias.name}"

    def dotted(self, node: ast.AST) -> str:
        """Where a name comes from: `airflow.decorators.task.branch` of `task.branch`; empty for what is no name."""
        if isinstance(node, ast.Name):
            return self.origins.get(node.id, node.id)
        if isinstance(node, ast.Attribute) and (owner := self.dotted(node.value)):
            return f"{owner}.{node.attr}"
        return ""

    def names_from(self, package: str, node: ast.AST) -> list[str]:
        """The names in it that are imported from a package."""
        return sorted(name for name in names_in(node) if _package(self.origins.get(name, "")) == package)

    def segment(self, node: ast.AST, replace: Replace | None = None) -> str:
        """The text of a statement or expression, not indented, with nodes replaced."""
        first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])  # type: ignore[attr-defined]
        begin = self._starts[first - 1] if isinstance(node, ast.stmt) else self._at(node.lineno, node.col_offset)  # type: ignore[attr-defined]
        end = self._at(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
        if (
            isinstance(node, ast.stmt)
            and self._bytes[begin : self._at(node.lineno, node.col_offset)].strip()
            and first == node.lineno
        ):
            begin = self._at(node.lineno, node.col_offset)  # after a `;`, or behind a header
            return self._changed(node, begin, end, replace)
        return shifted(self._changed(node, begin, end, replace), -node.col_offset)  # type: ignore[attr-defined]

    def body(self, function: ast.FunctionDef | ast.AsyncFunctionDef, replace: Replace | None = None) -> str:
        """The statements of a function, with comments before the first, not indented."""
        statements = function.body
        first = statements[0]
        if first.lineno == function.lineno:
            return "\n".join(self.segment(one, replace) for one in statements)
        at = first.lineno - 1
        while at > function.lineno and self.lines[at - 1].strip().startswith("#"):
            at -= 1
        begin, end = self._starts[at], self._at(statements[-1].end_lineno or 0, statements[-1].end_col_offset or 0)
        return shifted(self._changed(ast.Module(statements, []), begin, end, replace), -first.col_offset)

    def comments_before(self, node: ast.stmt) -> list[str]:
        """Lines of comments directly above a statement."""
        line = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))]) - 1
        found: list[str] = []
        while line and (text := self.lines[line - 1].strip()).startswith("#"):
            found.insert(0, text)
            line -= 1
        # Marks of Airflow's own documentation.
        return [text for text in found if not re.match(r"# \[(START|END) |# \[DOC", text)]

    def text_with(self, node: ast.AST, replace: Replace) -> str:
        """All of the file, with nodes replaced."""
        return self._changed(node, 0, len(self._bytes), replace)

    def _at(self, line: int | None, column: int | None) -> int:
        return self._starts[(line or 1) - 1] + (column or 0)

    def _changed(self, node: ast.AST, begin: int, end: int, replace: Replace | None) -> str:
        changes = sorted(_changes(node, replace)) if replace else []
        text, at = b"", begin
        for first, last, new in ((self._at(*a), self._at(*b), new) for a, b, new in changes):
            if at <= first and last <= end:
                text += self._bytes[at:first] + new.encode()
                at = last
        return (text + self._bytes[at:end]).decode()


def _changes(node: ast.AST, replace: Replace) -> Iterator[tuple[tuple[int, int], tuple[int, int], str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.JoinedStr):  # what is in it has no right position before Python 3.12
            changed = _Replacer(replace)
            new: str | None = unparse(changed.visit(copy.deepcopy(child)))
            new = new if changed.count else None
        else:
            new = replace(child)
        if new is not None and hasattr(child, "end_lineno"):
            yield (child.lineno, child.col_offset), (child.end_lineno, child.end_col_offset), new  # type: ignore[attr-defined]
        else:
            yield from () if isinstance(child, ast.JoinedStr) else _changes(child, replace)


@dataclass
class _Replacer(ast.NodeTransformer):
    replace: Replace
    count: int = field(default=0)

    def visit(self, node: ast.AST) -> ast.AST:
        new = self.replace(node) if isinstance(node, ast.expr) and not isinstance(node, ast.JoinedStr) else None
        if new is None:
            return super().generic_visit(node)
        self.count += 1
        return ast.parse(new, mode="eval").body


def is_airflow(dotted: str) -> bool:
    return _package(dotted) == "airflow"


def _package(dotted: str) -> str:
    return dotted.partition(".")[0]


def called(node: ast.AST) -> ast.AST:
    """Of a call what is called, of a decorator what decorates."""
    return node.func if isinstance(node, ast.Call) else node


def keywords_of(node: ast.AST) -> dict[str, ast.expr]:
    """What a call is given by name; nothing of what is no call."""
    return {one.arg: one.value for one in getattr(node, "keywords", ()) if one.arg}


def with_positional(node: ast.Call, *names: str) -> dict[str, ast.expr]:
    """What a call is given by name, and by position under these names."""
    return keywords_of(node) | dict(zip(names, node.args, strict=False))


def parameters_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    return [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]


def names_in(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def bound_by(node: ast.AST) -> set[str]:
    """Names that statements within `node` assign, its own functions' bodies left out."""
    found: set[str] = set()
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
            found.add(one.id)
        elif isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and one is not node:
            found.add(one.name)
            continue
        waiting += ast.iter_child_nodes(one)
    return found
