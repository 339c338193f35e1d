"""Task groups."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Final

from backfill_manager.importers.airflow.expressions import part_of_result, value_of
from backfill_manager.importers.airflow.facts import STATEMENT_NAMES, defaults_of
from backfill_manager.importers.airflow.order import settle, tasks_of_group
from backfill_manager.importers.airflow.symbols import Function, Group, Tasks, Value
from backfill_manager.importers.airflow.walk import Walk
from backfill_manager.importers.draft import Code
from backfill_manager.importers.source import with_positional
from backfill_manager.importers.writer import quoted, unparse

_LOOPS: Final = (ast.For, ast.While, ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)


def new_group(walk: Walk, made: ast.Call, name: str | None) -> Group:
    """Of `TaskGroup(...)`."""
    given = with_positional(made, "group_id")
    if "default_args" in given:
        walk.remark(made, "default_args of a task group", "Give its tasks the settings")
    prefixed = given.get("prefix_group_id")
    id_node = given.get("group_id")
    base = walk.text_of(id_node) or name or "group"
    has_prefix = not (isinstance(prefixed, ast.Constant) and prefixed.value is False)
    return Group(_group_prefix(walk, id_node) or quoted(base) if has_prefix else None, base)


def _group_prefix(walk: Walk, id_node: ast.expr | None) -> str | None:
    """Text of an id that is known when the file runs only."""
    is_known = id_node is None or walk.text_of(id_node) is not None
    return None if id_node is None or is_known or not walk.reader.is_plain(id_node) else unparse(id_node)


def fill_group(walk: Walk, node: ast.AST, group: Group, body: Sequence[ast.stmt]) -> Tasks:
    """Makes the tasks of a group."""
    has_loops = walk.in_loop or any(isinstance(one, _LOOPS) for statement in body for one in ast.walk(statement))
    if has_loops and group.collects is None:
        group.collects = walk.free_name(f"{walk.identifier(group.base)}_tasks")
        walk.sink.append(Code(f"{group.collects} = [{', '.join(str(one.variable) for one in group.symbols)}]"))
    walk.groups.append(group)
    for one in body:
        walk.body_statement(one)
    walk.groups.pop()
    has_order = any(one.upstream & set(group.symbols) for one in group.symbols) or _has_order(body)
    if group.collects and has_order:
        instead = "`a >> group >> b` is said of all its tasks here, in Airflow of its first and last ones: name these"
        walk.remark(node, f"the task group {group.base}, with a loop and an order of its tasks", instead)
    return tasks_of_group(group)


def group_call(walk: Walk, function: Function, node: ast.Call) -> Value:
    """A call of a `@task_group` function: its body stands here, with its parameters as variables."""
    base = walk.text_of(function.settings.get("group_id")) or function.node.name
    if "default_args" in function.settings:
        walk.remark(node, "default_args of a task group", "Give its tasks the settings")
    walk.target = None
    key = f"group {base} {id(walk.dag)}"
    count = walk.ids[key] = walk.ids.get(key, -1) + 1
    prefixed = function.settings.get("prefix_group_id")
    prefix = _group_prefix(walk, function.settings.get("group_id")) or quoted(f"{base}__{count}" if count else base)
    has_prefix = not (isinstance(prefixed, ast.Constant) and prefixed.value is False)
    parameters = [one.arg for one in [*function.node.args.args, *function.node.args.kwonlyargs]]
    outer = walk.known.copy()
    given = with_positional(node, *parameters)
    defaults = defaults_of(function.node)
    for parameter in parameters:
        argument = given.get(parameter)
        if argument is not None and (walk.is_part_of_result(argument) or walk.names_result(argument)):
            walk.known[parameter] = part_of_result(walk, argument)
            continue
        if argument is not None:
            text, tasks = value_of(walk, argument)
        else:
            text, tasks = unparse(defaults.get(parameter, ast.Constant(None))), None
        walk.known[parameter] = tasks
        walk.parameters.add(parameter)
        if text != parameter:
            walk.sink.append(Code(f"{parameter} = {text}"))
    body = list(function.node.body)
    if ast.get_docstring(function.node) is not None:
        body.pop(0)
    returned = body[-1].value if body and isinstance(body[-1], ast.Return) else None
    group = Group(prefix if has_prefix else None, base)
    tasks = fill_group(walk, node, group, [one for one in body if not isinstance(one, ast.Return)])
    text, result = tasks.last or "[]", None
    if returned is not None and walk.concerns_tasks(returned):
        walk.groups.append(group)
        made, result = value_of(walk, returned)
        text = settle(walk, made) if result else text
        walk.groups.pop()
    walk.known = outer | {name: value for name, value in walk.known.items() if isinstance(value, Function)}
    return text, result or tasks  # as in Airflow, an order to the group is one to what its function returns


def _has_order(body: Sequence[ast.stmt]) -> bool:
    return any(
        (isinstance(one, ast.BinOp) and isinstance(one.op, ast.RShift | ast.LShift))
        or (isinstance(one, ast.Attribute) and one.attr in ("set_upstream", "set_downstream"))
        or (isinstance(one, ast.Name) and one.id in STATEMENT_NAMES)
        for statement in body
        for one in ast.walk(statement)
    )
