"""`body_statement`: the statements of a DAG's body, one by one."""

from __future__ import annotations

import ast
from collections.abc import Callable

from backfill_manager.importers.airflow.chains import chain
from backfill_manager.importers.airflow.dags import with_dag
from backfill_manager.importers.airflow.definitions import comment_out, define, keep, keep_import
from backfill_manager.importers.airflow.expressions import part_of_result, plain_text, value_of
from backfill_manager.importers.airflow.facts import STATEMENT_NAMES
from backfill_manager.importers.airflow.groups import fill_group, new_group
from backfill_manager.importers.airflow.order import put_in_order
from backfill_manager.importers.airflow.symbols import Group, Tasks
from backfill_manager.importers.airflow.walk import Walk
from backfill_manager.importers.draft import Block, Code, DraftDag
from backfill_manager.importers.source import bound_by
from backfill_manager.importers.writer import unparse


def body_statement(walk: Walk, node: ast.stmt) -> None:
    comments = [Code(text) for text in walk.source.comments_before(node)]
    match node:
        case ast.With(items=[_, _, *_]) if opens_several(walk, node):
            body_statement(walk, nested(node))
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            define(walk, node)
        case ast.Import() | ast.ImportFrom():
            before = len(walk.result.imports)
            keep_import(walk, node)
            walk.sink += [Code(text) for text in walk.result.imports[before:]]
            del walk.result.imports[before:]
        case ast.With(items=[ast.withitem(context_expr=ast.Call() as made, optional_vars=name)]) if (
            walk.facts.last(made) == "TaskGroup"
        ):
            walk.sink += comments
            variable = name.id if isinstance(name, ast.Name) else None
            opened = new_group(walk, made, variable)
            walk.known |= {variable: opened} if variable else {}
            tasks = fill_group(walk, made, opened, node.body)
            if isinstance(name, ast.Subscript):
                walk.sink.append(Code(f"{unparse(name)} = {tasks.last}"))
                _set_item(walk, name, tasks)
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as made) if walk.facts.last(made) == "TaskGroup":
            walk.known[name] = new_group(walk, made, name)
        case ast.With(items=[ast.withitem(context_expr=ast.Name(id=name))]) if isinstance(
            group := walk.known.get(name), Group
        ):
            fill_group(walk, node, group, node.body)
        case ast.With(items=[ast.withitem(context_expr=ast.Name(id=name))]) if isinstance(
            walk.known.get(name), DraftDag
        ):
            for one in node.body:
                body_statement(walk, one)
        case ast.With(items=[ast.withitem(context_expr=ast.Call() as made, optional_vars=name)]) if (
            walk.facts.last(made) == "DAG"
        ):
            with_dag(walk, node, made, name)
        case ast.With(items=[ast.withitem(context_expr=made_)]) if walk.concerns_tasks(made_):
            walk.sink += comments
            walk.remark(
                node, f"with {unparse(made_)[:60]}", "Put the tasks in it between the setup and the teardown with >>"
            )
            for one in (ast.copy_location(ast.Expr(made_), node), *node.body):
                body_statement(walk, one)
        case ast.With() if any(
            walk.facts.is_airflow(one.context_expr.func) for one in node.items if isinstance(one.context_expr, ast.Call)
        ):
            for item in node.items:
                walk.remark(node, unparse(item.context_expr)[:60], "It has no equal here")
            for inner in node.body:
                body_statement(walk, inner)
        case ast.For() | ast.While() | ast.If() | ast.With() | ast.Try() if walk.concerns_tasks(node):
            walk.sink += comments
            compound(walk, node, walk.body_statement)
        case ast.Expr(value=ast.Constant()):
            return
        case ast.Return(value=value) if value is not None and walk.concerns_tasks(node):
            text, found = value_of(walk, value)
            if walk.maker and found and (found.is_list or found.first != found.last):
                walk.makers_of_lists.add(walk.maker)
            walk.sink.append(Code(f"return {text}"))
        case ast.Assign(targets=[ast.Attribute(attr=attr) as target]) if attr.startswith("doc") or (
            walk.concerns_tasks(target.value)
        ):
            if not attr.startswith("doc"):
                walk.remark(node, unparse(target), "Set it where the task is made")
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if walk.names_result(value):
            walk.known[name] = part_of_result(walk, value)
        case ast.Assign() | ast.AugAssign() | ast.Expr(value=ast.Call(func=ast.Attribute())) if walk.names_result(
            node
        ) and not walk.concerns_tasks(node):
            comment_out(walk, node, "a result that the DAG's body uses", "It is known when a task runs: use it there")
        case ast.Assign() | ast.AnnAssign() | ast.AugAssign() | ast.Expr() if walk.concerns_tasks(node):
            walk.sink += comments
            _assign(walk, node)
        case _:
            keep(walk, node)


def opens_several(walk: Walk, node: ast.With) -> bool:
    return any(walk.facts.last(one.context_expr) in ("DAG", "TaskGroup") for one in node.items)


def compound(walk: Walk, node: ast.stmt, inner: Callable[[ast.stmt], None]) -> None:
    """A compound statement, whose statements are handled one by one."""
    match node:
        case ast.For(target=target, iter=values):
            header = f"for {unparse(target)} in {plain_text(walk, values)}:"
            tasks = walk.known.get(values.id) if isinstance(values, ast.Name) else None
            if isinstance(tasks, Tasks) and isinstance(target, ast.Name):
                walk.known[target.id] = Tasks(tasks.symbols, tasks.of_lists)
        case ast.While(test=test):
            header = f"while {unparse(test)}:"
        case ast.If(test=test):
            header = f"if {plain_text(walk, test)}:"
        case ast.With(items=items):
            header = f"with {', '.join(map(unparse, items))}:"
        case _:
            header = "try:"
    is_loop = isinstance(node, ast.For | ast.While)
    if is_loop:
        walk.loops.append({*bound_by(node)})
    parts: list[tuple[str, list[ast.stmt]]] = [(header, node.body)]  # type: ignore[attr-defined]
    for one in getattr(node, "handlers", []):
        kind = f" {unparse(one.type)}" if one.type else ""
        parts.append((f"except{kind}{f' as {one.name}' if one.name else ''}:", one.body))
    parts += [("else:", getattr(node, "orelse", [])), ("finally:", getattr(node, "finalbody", []))]
    for head, statements in parts:
        if statements:
            walk.sink.append(block := Block(head, []))
            with walk.into(block.items):
                for one in statements:
                    inner(one)
    if is_loop:
        walk.loops.pop()


def _assign(walk: Walk, node: ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Expr) -> None:
    if isinstance(node, ast.Expr):
        _expression(walk, node.value)
        return
    value = node.value
    assert value is not None
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    match targets:
        case [ast.Name(id=name)] if walk.is_part_of_result(value):
            walk.known[name] = part_of_result(walk, value)
            return
        case [ast.Name(id=name)] if name in walk.facts.stored_once and walk.makes(value):
            walk.target = name
    text, found = value_of(walk, value)
    walk.target = None
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in walk.facts.makers:
        found = found or Tasks([], is_list=value.func.id in walk.makers_of_lists)
    for target in targets:
        match target, found:
            case ast.Name(id=name), Tasks() if isinstance(node, ast.AugAssign):
                _add_to(walk, name, found, as_item=False)
            case ast.Name(id=name), Tasks(symbols=symbols, is_list=is_list, first=first):
                walk.known[name] = found if not is_list or first else Tasks(symbols, is_list=True)
                if len(symbols) == 1 and not is_list and not walk.in_loop and first is None:
                    symbols[0].variable = symbols[0].variable or name
            case ast.Tuple(elts=elements), Tasks(symbols=[_, *_] as symbols):
                is_each = len(elements) == len(symbols)
                for number, one in enumerate(elements):
                    if isinstance(one, ast.Name):
                        walk.known[one.id] = Tasks([symbols[number]] if is_each else symbols)
            case ast.Subscript(), Tasks():
                _set_item(walk, target, found)
    written = " = ".join(map(unparse, targets))
    if text == written:
        return
    if isinstance(found, Tasks) and found.first is not None and text == found.last:
        return  # a group's names stand for it
    walk.sink.append(Code(f"{written} {'+' if isinstance(node, ast.AugAssign) else ''}= {text}"))


def _add_to(walk: Walk, name: str, tasks: Tasks, *, as_item: bool = True) -> None:
    """To a variable that is a list or dict of tasks."""
    before = walk.known.get(name)
    symbols = [*(before.symbols if isinstance(before, Tasks) else []), *tasks.symbols]
    walk.known[name] = Tasks(symbols, is_list=True, of_lists=as_item and (tasks.is_list or tasks.first is not None))


def _set_item(walk: Walk, target: ast.Subscript, tasks: Tasks) -> None:
    if isinstance(target.value, ast.Name):
        _add_to(walk, target.value.id, tasks)


def _expression(walk: Walk, node: ast.expr) -> None:
    match node:
        case ast.Call(args=arguments) if walk.facts.last(node) in STATEMENT_NAMES:
            chain(walk, walk.facts.last(node), node, arguments)
            return
        case ast.Call(
            func=ast.Attribute(value=owner, attr="set_downstream" | "set_upstream" as method), args=[other, *_]
        ):
            before, after = (owner, other) if method == "set_downstream" else (other, owner)
            text, _ = put_in_order(walk, value_of(walk, before), value_of(walk, after))
            walk.sink.append(Code(text))
            return
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append" | "extend"), args=[added]):
            text, found = value_of(walk, added)
            if isinstance(found, Tasks):
                _add_to(walk, name, found, as_item=node.func.attr == "append")  # type: ignore[attr-defined]
            walk.sink.append(Code(f"{name}.{node.func.attr}({text})"))  # type: ignore[attr-defined]
            return
    text, _ = value_of(walk, node)
    tree = ast.parse(text, mode="eval").body
    if not isinstance(tree, ast.Name | ast.Constant) and not (
        isinstance(tree, ast.List) and all(isinstance(one, ast.Name) for one in tree.elts)
    ):
        walk.sink.append(Code(text))


def nested(node: ast.With) -> ast.With:
    """`with a, b:` as `with a:` and within it `with b:`."""
    first, *others = node.items
    return ast.copy_location(ast.With([first], [ast.copy_location(ast.With(others, node.body), node)]), node)
