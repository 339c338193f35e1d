"""Expressions: `value_of` in the body of a DAG, where they may make tasks; `at_runtime` in a task, where results come from
`ctx`."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Sequence
from typing import Final

from backfill_manager.importers.airflow import templates
from backfill_manager.importers.airflow.functions import instead_of_class
from backfill_manager.importers.airflow.order import put_in_order, put_in_order_back, settle, tail_of, tasks_of_group
from backfill_manager.importers.airflow.settings import RULES
from backfill_manager.importers.airflow.symbols import DagParam, Group, Result, Symbol, Tasks, Value
from backfill_manager.importers.airflow.walk import Walk
from backfill_manager.importers.draft import Block, Code, DraftDag
from backfill_manager.importers.source import bound_by, names_in
from backfill_manager.importers.writer import quoted, unparse

SETUP: Final = "It is a plain task here; a teardown has the rule all_done, so its run fails only if the teardown does"


def value_of(walk: Walk, node: ast.expr) -> Value:
    """Text of Python for the DAG's body, and the tasks that it stands for."""
    match node:
        case ast.Name(id=name):
            found = walk.known.get(name)
            found = tasks_of_group(found) if isinstance(found, Group) else found
            tasks = found if isinstance(found, Tasks) else None
            return (tasks.last if tasks and tasks.last else name), tasks
        case ast.Call() if (made := walk.make_tasks(node)) is not None:
            return made
        case ast.Call(func=ast.Attribute(value=owner, attr="as_setup" | "as_teardown" as method)):
            return _setup(walk, node, owner, method)
        case ast.BinOp(left=left, op=ast.RShift() | ast.LShift() as op, right=right):
            if isinstance(right, ast.Call) and walk.facts.last(right) == "Label":
                return value_of(walk, left)
            if isinstance(left, ast.Call) and walk.facts.last(left) == "Label":
                return value_of(walk, right)
            one, other = value_of(walk, left), value_of(walk, right)
            return put_in_order(walk, one, other) if isinstance(op, ast.RShift) else put_in_order_back(walk, one, other)
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return _list_of(walk, node, elements)
        case ast.Attribute(value=owner, attr="output"):
            return value_of(walk, owner)
        case ast.Call(args=[inner, *_]) if walk.facts.last(node) in ("XComArg", "PlainXComArg"):
            return value_of(walk, inner)
        case ast.Attribute(attr=rule) if ".TriggerRule." in walk.source.dotted(node):
            return quoted(RULES.get(rule.lower(), rule.lower())), None
        case ast.Subscript(value=ast.Name(id=name)) if isinstance(known := walk.known.get(name), Tasks):
            return unparse(node), Tasks(known.symbols, known.of_lists)
        case ast.ListComp() | ast.GeneratorExp() | ast.SetComp() if walk.concerns_tasks(node.elt):
            return _comprehension(walk, node.generators, node.elt)
        case ast.DictComp() if walk.concerns_tasks(node.value):
            return _comprehension(walk, node.generators, node.value, node.key)
    if not walk.concerns_tasks(node):
        return kept_text(walk, node), None
    held = _Hold(walk)
    text = unparse(held.visit(copy.deepcopy(node)))
    is_list = held.found or (isinstance(node, ast.Call) and walk.source.dotted(node.func) in walk.makers_of_lists)
    return _filled(walk, text), Tasks([], is_list=True) if is_list else None


def _list_of(walk: Walk, node: ast.List | ast.Tuple, elements: Sequence[ast.expr]) -> Value:
    parts = [value_of(walk, one.value if isinstance(one, ast.Starred) else one) for one in elements]
    symbols = [symbol for _, tasks in parts if tasks for symbol in tasks.symbols]
    stars = ["*" * isinstance(one, ast.Starred) for one in elements]
    texts = [f"{star}{text}" for star, (text, _) in zip(stars, parts, strict=True)]
    if isinstance(node, ast.Tuple):
        return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})", Tasks(symbols) if symbols else None
    if not any(tasks and tasks.first for _, tasks in parts):
        return f"[{', '.join(texts)}]", Tasks(symbols, True) if symbols else None
    firsts, lasts = [], []
    for star, (text, tasks) in zip(stars, parts, strict=True):  # with groups: others get names, as both lists have them
        settled = settle(walk, text)
        is_group = tasks is not None and tasks.first is not None and not tasks.is_list
        pair = [(tasks and tasks.first) or settled, settled]
        first, last = (one[1:-1] if is_group and one.startswith("[") else f"{star}{one}" for one in pair)
        firsts.append(first)
        lasts.append(last)
    last = f"[{', '.join(filter(None, lasts))}]"
    return last, Tasks(symbols, True, f"[{', '.join(filter(None, firsts))}]", last)


def at_runtime(walk: Walk, node: ast.expr, *, shell: bool = False) -> str:
    """Text of Python for within a task: results of other tasks come from `ctx`, and templates are written as Python; in
    a `shell` command, what a run may set is quoted."""
    node = walk.reader.inlined(node)
    text = walk.text_of(node)
    if text is not None and templates.has_template(text):
        return walk.translated(node, text, templates.as_python, shell=shell)
    match node:
        case ast.Starred(value=inner):
            return f"*{at_runtime(walk, inner)}"
        case ast.Constant(value=str() as plain):
            return quoted(plain)
        case ast.Constant() | ast.Lambda():
            return unparse(node)
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, (at_runtime(walk, one, shell=shell) for one in values), strict=True)
            return f"{{{', '.join(f'{at_runtime(walk, key)}: {text}' if key else f'**{text}' for key, text in pairs)}}}"
        case ast.Name(id=name) if isinstance(found := walk.known.get(name), DagParam):
            return f"ctx.params[{quoted(found.name)}]"
        case ast.Name(id=name) if isinstance(found := walk.known.get(name), Result):
            walk.deps += found.deps
            return found.text
        case ast.Name(id=name) if isinstance(found := walk.known.get(name), Tasks):
            return _result_of(walk, found.last or name, found)
        # One of a list or dict of tasks.
        case ast.Subscript(value=ast.Name(id=name)) if isinstance(
            found := walk.known.get(name), Tasks
        ) and not walk.is_part_of_result(node):
            return _result_of(walk, unparse(node), Tasks(found.symbols))
        case ast.Call(args=[inner]) if walk.facts.last(node) in ("XComArg", "PlainXComArg"):
            suffix = "".join(f"[{unparse(one.value)}]" for one in node.keywords if one.arg == "key")
            return at_runtime(walk, inner) + suffix
        case ast.Attribute(attr="output") | ast.Call() if isinstance(node, ast.Attribute) or walk.makes(node):
            value, tasks = value_of(walk, node)
            return _result_of(walk, value, tasks or Tasks([]))
    if isinstance(node, ast.JoinedStr):
        if not _is_template(node):
            return unparse(node)
        return walk.translated(node, node, templates.with_values, shell=shell)
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("map", "zip", "concat")
        and walk.concerns_tasks(node.func.value)
    ):
        walk.remark(node, f".{node.func.attr}() of a result", "A result is a plain value here: use Python's own")
    held = _Hold(walk, at_runtime=True, shell=shell)
    text = _filled(walk, unparse(held.generic_visit(copy.deepcopy(node))))
    if walk.source.names_from("airflow", ast.parse(text, mode="eval")):
        return kept_text(walk, node)
    return text


def part_of_result(walk: Walk, node: ast.expr) -> Result:
    outer, walk.deps = walk.deps, []
    found = Result(at_runtime(walk, node), walk.deps)
    walk.deps = outer
    return found


def _result_of(walk: Walk, text: str, tasks: Tasks) -> str:
    walk.deps.append((text, tasks))
    if tasks.is_list:
        return f"[ctx.result(each.task_id) for each in {tail_of(text)}]"
    if len(tasks.symbols) == 1 and tasks.symbols[0].is_static:
        result = f"ctx.result({tasks.symbols[0].id_text})"
        return f"[*{result}.values()]" if tasks.symbols[0].is_mapped else result
    if not isinstance(ast.parse(text, mode="eval").body, ast.Name | ast.Subscript) and tasks.symbols:
        walk.deps.pop()
        text = name_task(walk, text, tasks.symbols[0], "first")
        walk.deps.append((text, tasks))
    return f"ctx.result({text}.task_id)"


def plain_text(walk: Walk, node: ast.expr) -> str:
    return value_of(walk, node)[0]


def kept_text(walk: Walk, node: ast.expr) -> str:
    if names := walk.source.names_from("airflow", node):
        walk.remark(node, f"`{unparse(node)[:60]}`", instead_of_class(walk.source.origins[names[0]]))
        return "None"
    if dags := sorted(name for name in names_in(node) if isinstance(walk.known.get(name), DraftDag)):
        walk.remark(node, f"`{unparse(node)[:60]}`", f"The DAG {dags[0]} is no value in its body")
        return "None"
    return unparse(node)


def _hold(walk: Walk, text: str) -> ast.Name:
    name = f"_held_{len(walk.held)}_"
    walk.held[name] = text
    return ast.Name(name, ast.Load())


def _filled(walk: Walk, text: str) -> str:
    while (found := re.search(r"_held_\d+_", text)) is not None:
        text = text[: found.start()] + walk.held[found[0]] + text[found.end() :]
    return text


def _comprehension(
    walk: Walk, generators: Sequence[ast.comprehension], element: ast.expr, key: ast.expr | None = None
) -> Value:
    """Loops in place of a comprehension whose elements are tasks."""
    name = walk.free_name("tasks")
    walk.sink.append(Code(f"{name} = {'[]' if key is None else '{}'}"))
    inner = walk.sink
    for one in generators:
        headers = [f"for {unparse(one.target)} in {plain_text(walk, one.iter)}:"]
        for header in [*headers, *(f"if {unparse(test)}:" for test in one.ifs)]:
            inner.append(block := Block(header, []))
            inner = block.items
        walk.loops.append(bound_by(one))
    with walk.into(inner):
        text, found = value_of(walk, element)
        added = f"{name}.append({text})" if key is None else f"{name}[{unparse(key)}] = {text}"
        walk.sink.append(Code(added))
    del walk.loops[len(walk.loops) - len(generators) :]
    return name, Tasks(found.symbols if found else [], is_list=True)


def name_task(walk: Walk, text: str, symbol: Symbol, base: str) -> str:
    target, walk.target = walk.target, None
    symbol.variable = target or walk.free_name(f"{walk.identifier(base)}_task")
    if walk.loops:
        walk.loops[-1].add(symbol.variable)
    walk.sink.append(Code(f"{symbol.variable} = {text}"))
    return symbol.variable


def _setup(walk: Walk, node: ast.Call, owner: ast.expr, method: str) -> Value:
    text, tasks = value_of(walk, owner)
    walk.remark(node, f".{method}()", SETUP)
    for symbol in tasks.symbols if tasks and method == "as_teardown" else []:
        if symbol.task is not None:
            symbol.task.settings["trigger_rule"] = '"all_done"'
    setups = next((one.value for one in node.keywords if one.arg == "setups"), None)
    return put_in_order(walk, value_of(walk, setups), (text, tasks)) if setups is not None else (text, tasks)


class _Hold(ast.NodeTransformer):
    """Takes what makes tasks, or stands for some, out of an expression: each becomes a name, to be filled in."""

    def __init__(self, walk: Walk, *, at_runtime: bool = False, shell: bool = False) -> None:
        self.walk, self.at_runtime, self.shell, self.found = walk, at_runtime, shell, False

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.JoinedStr):
            return (
                _hold(self.walk, at_runtime(self.walk, node, shell=self.shell))
                if self.at_runtime and _is_template(node)
                else node
            )
        if isinstance(node, ast.expr) and self._is_one(node):
            self.found = True
            return _hold(
                self.walk,
                at_runtime(self.walk, node, shell=self.shell) if self.at_runtime else value_of(self.walk, node)[0],
            )
        return self.generic_visit(node)

    def _is_one(self, node: ast.expr) -> bool:
        known = self.walk.known.get(node.id) if isinstance(node, ast.Name) else None
        if self.at_runtime and (
            isinstance(known, DagParam | Result | Tasks) or (isinstance(node, ast.Constant) and "{{" in str(node.value))
        ):
            return True
        if isinstance(node, ast.Attribute) and node.attr == "output":
            return self.walk.concerns_tasks(node.value)
        if ".TriggerRule." in self.walk.source.dotted(node) or (
            isinstance(node, ast.Call) and self.walk.facts.last(node) in ("XComArg", "PlainXComArg")
        ):
            return True
        return self.walk.makes(node)


def _is_template(node: ast.JoinedStr) -> bool:
    return any(isinstance(one, ast.Constant) and templates.has_template(str(one.value)) for one in ast.walk(node))
