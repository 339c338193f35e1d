"""Expressions of a DAG's body: tasks in order, and what stands for them; values within a task (`at_runtime`)."""

from __future__ import annotations

import ast
import copy
import itertools
import re
from collections.abc import Callable, Sequence
from typing import Final

from backfill_manager.importers.airflow import templates
from backfill_manager.importers.airflow.functions import instead_of_class
from backfill_manager.importers.airflow.settings import RULES
from backfill_manager.importers.airflow.walk import DagParam, Result, Symbol, Tasks, Walk
from backfill_manager.importers.draft import Block, Code
from backfill_manager.importers.source import bound_by
from backfill_manager.importers.writer import quoted, unparse

SETUP: Final = "It is a plain task here; a teardown has the rule all_done, so its run fails only if the teardown does"


class Expressions(Walk):
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
        is_list = held.found or (isinstance(node, ast.Call) and self.source.dotted(node.func) in self.makers_of_lists)
        return self._filled(text), Tasks([], is_list=True) if is_list else None

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
            # One of a list or dict of tasks.
            case ast.Subscript(value=ast.Name(id=name)) if isinstance(
                found := self.known.get(name), Tasks
            ) and not self._is_part_of_result(node):
                return self._result(unparse(node), Tasks(found.symbols))
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
            if not _is_template(node):
                return unparse(node)
            written, problems = templates.with_values(node)
            for problem in problems:
                self.remark(node, problem, "Write it with ctx")
            return written
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("map", "zip", "concat")
            and self._concerns_tasks(node.func.value)
        ):
            self.remark(node, f".{node.func.attr}() of a result", "A result is a plain value here: use Python's own")
        held = _Hold(self, at_runtime=True)
        text = self._filled(unparse(held.generic_visit(copy.deepcopy(node))))
        if self.source.names_from("airflow", ast.parse(text, mode="eval")):
            return self._kept_text(node)
        return text

    def _part_of_result(self, node: ast.expr) -> Result:
        outer, self.deps = self.deps, []
        found = Result(self.at_runtime(node), self.deps)
        self.deps = outer
        return found

    def _result(self, text: str, tasks: Tasks) -> str:
        self.deps.append((text, tasks))
        if tasks.is_list:
            return f"[ctx.result(each.task_id) for each in {tail_of(text)}]"
        if len(tasks.symbols) == 1 and tasks.symbols[0].is_static:
            result = f"ctx.result({tasks.symbols[0].id_text})"
            return f"[*{result}.values()]" if tasks.symbols[0].is_mapped else result
        if not isinstance(ast.parse(text, mode="eval").body, ast.Name | ast.Subscript) and tasks.symbols:
            self.deps.pop()
            text = self._named(text, tasks.symbols[0], "first")
            self.deps.append((text, tasks))
        return f"ctx.result({text}.task_id)"

    def _plain(self, node: ast.expr) -> str:
        return self.value(node)[0]

    def _kept_text(self, node: ast.expr) -> str:
        if names := self.source.names_from("airflow", node):
            self.remark(node, f"`{unparse(node)[:60]}`", instead_of_class(self.source.origins[names[0]]))
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

    def _named(self, text: str, symbol: Symbol, base: str) -> str:
        target, self.target = self.target, None
        symbol.variable = target or self._free_name(f"{self._identifier(base)}_task")
        if self.loops:
            self.loops[-1].add(symbol.variable)
        self.sink.append(Code(f"{symbol.variable} = {text}"))
        return symbol.variable

    def _ordered(self, before: tuple[str, Tasks | None], after: tuple[str, Tasks | None]) -> tuple[str, Tasks | None]:
        """`before >> after`; what is left to be put before others is given."""
        (left, one), (right, other) = before, after
        first = other.first if other and other.first else right
        for symbol in _outer(one, lambda each: each.downstream):
            symbol.put_before(_outer(other, lambda each: each.upstream))
        if self._is_list((tail_of(left), one)) and self._is_list((first, other)):
            left, settled = self._settled(left), self._settled(first)
            self.sink.append(Block(f"for before in {left}:", [Code(f"before >> {settled}")]))
            return settled if first == right else right, other
        text = f"{left} >> {_atom(first)}"
        if first != right:
            self.sink.append(Code(text))
            return right, other
        return text, other

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
        self.remark(node, f".{method}()", SETUP)
        for symbol in tasks.symbols if tasks and method == "as_teardown" else []:
            if symbol.task is not None:
                symbol.task.settings["trigger_rule"] = '"all_done"'
        setups = next((one.value for one in node.keywords if one.arg == "setups"), None)
        return self._ordered(self.value(setups), (text, tasks)) if setups is not None else (text, tasks)

    def _chain(self, kind: str, node: ast.Call, arguments: Sequence[ast.expr]) -> None:
        if len(arguments) == 1 and isinstance(arguments[0], ast.Starred):
            text, _ = self.value(arguments[0].value)
            self.sink.append(Block(f"for before, after in zip({text}, {text}[1:]):", [Code("before >> after")]))
            return
        if any(isinstance(one, ast.Starred) for one in arguments):
            self._chain_with_star(kind, node, arguments)
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
                        one.put_before([other])
                before = after
            else:
                before = self._ordered(before, after)
        self._flush(before[0])

    def _chain_with_star(self, kind: str, node: ast.Call, arguments: Sequence[ast.expr]) -> None:
        """How many there are is known when the file runs: a loop puts each before the next."""
        links: list[tuple[str, Tasks | None]] = []
        for one in arguments:
            if isinstance(one, ast.Call) and self._last(one) == "Label":
                continue
            text, tasks = self._settled_list(self.value(one.value if isinstance(one, ast.Starred) else one))
            links.append((f"*{text}" if isinstance(one, ast.Starred) else text, tasks))
        pairs = [*itertools.pairwise(links)]
        are_lists = any(
            all(not text.startswith("*") and self._is_list((text, tasks)) for text, tasks in pair) for pair in pairs
        )
        symbols = [symbol for _, tasks in links if tasks for symbol in tasks.symbols]
        has_groups = any(tasks and tasks.first and not tasks.is_list for _, tasks in links)
        if kind != "chain" or are_lists or has_groups or any(symbol.is_branch for symbol in symbols):
            self.remark(node, f"{kind} with *", "Put the tasks in order with >>")
            return
        for (_, left), (_, right) in pairs:
            for symbol in left.symbols if left else []:
                symbol.put_before(right.symbols if right else [])
        name = self._free_name("chained")
        self.sink.append(Code(f"{name} = [{', '.join(text for text, _ in links)}]"))
        self.sink.append(Block(f"for before, after in zip({name}, {name}[1:]):", [Code("before >> after")]))

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


class _Hold(ast.NodeTransformer):
    """Takes what makes tasks, or stands for some, out of an expression: each becomes a name, to be filled in."""

    def __init__(self, walk: Expressions, *, at_runtime: bool = False) -> None:
        self.walk, self.at_runtime, self.found = walk, at_runtime, False

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.JoinedStr):
            return self.walk._hold(self.walk.at_runtime(node)) if self.at_runtime and _is_template(node) else node
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


def _is_template(node: ast.JoinedStr) -> bool:
    return any(isinstance(one, ast.Constant) and templates.has_template(str(one.value)) for one in node.values)


def _outer(tasks: Tasks | None, neighbours: Callable[[Symbol], set[Symbol]]) -> list[Symbol]:
    """Of a group those without such a neighbour in it; of others all."""
    symbols = tasks.symbols if tasks else []
    return [one for one in symbols if tasks is None or tasks.first is None or not neighbours(one) & {*symbols}]


def _atom(text: str) -> str:
    return f"({text})" if isinstance(ast.parse(text, mode="eval").body, ast.BinOp) else text


def tail_of(text: str) -> str:
    """What a chain of `>>` gives: its last part."""
    tree = ast.parse(text, mode="eval").body
    return unparse(tree.right) if isinstance(tree, ast.BinOp) else text
