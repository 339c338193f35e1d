"""Which tasks come before which: `a >> b`, and the first and last tasks of a group."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from backfill_manager.importers.airflow.symbols import Group, Symbol, Tasks, Value
from backfill_manager.importers.airflow.walk import Walk
from backfill_manager.importers.draft import Block, Code
from backfill_manager.importers.writer import unparse


def put_in_order(walk: Walk, before: Value, after: Value) -> Value:
    """`before >> after`; what is left to be put before others is given."""
    (left, one), (right, other) = before, after
    first = other.first if other and other.first else right
    for symbol in _outer(one, lambda each: each.downstream):
        symbol.put_before(_outer(other, lambda each: each.upstream))
    if is_list_of_tasks((tail_of(left), one)) and is_list_of_tasks((first, other)):
        left, settled = settle(walk, left), settle(walk, first)
        walk.sink.append(Block(f"for before in {left}:", [Code(f"before >> {settled}")]))
        return settled if first == right else right, other
    text = f"{left} >> {_atom(first)}"
    if first != right:
        walk.sink.append(Code(text))
        return right, other
    return text, other


def put_in_order_back(walk: Walk, after: Value, before: Value) -> Value:
    left, right = after[0], before[0]
    if isinstance(ast.parse(left, mode="eval").body, ast.BinOp):
        left = settle(walk, left)
    done, _ = put_in_order(walk, before, (left, after[1]))
    if done == f"{right} >> {_atom(left)}":
        return f"{left} << {_atom(right)}", before[1]
    flush(walk, done)
    return right, before[1]


def settle(walk: Walk, text: str) -> str:
    """An expression that can be repeated: what makes tasks, or puts them in order, becomes a variable."""
    tree = ast.parse(text, mode="eval").body
    if not any(isinstance(one, ast.Call | ast.BinOp) for one in ast.walk(tree)):
        return text
    if isinstance(tree, ast.BinOp) and not any(isinstance(one, ast.Call) for one in ast.walk(tree.right)):
        walk.sink.append(Code(text))
        return unparse(tree.right)
    name = walk.free_name("first")
    walk.sink.append(Code(f"{name} = {text}"))
    return name


def settle_list(walk: Walk, value: Value) -> Value:
    tree = ast.parse(value[0], mode="eval").body
    if isinstance(tree, ast.List):
        return f"[{', '.join(settle(walk, unparse(one)) for one in tree.elts)}]", value[1]
    return settle(walk, value[0]), value[1]


def flush(walk: Walk, text: str) -> None:
    if isinstance(ast.parse(text, mode="eval").body, ast.BinOp | ast.Call):
        walk.sink.append(Code(text))


def is_list_of_tasks(value: Value) -> bool:
    return isinstance(ast.parse(value[0], mode="eval").body, ast.List) or (value[1] is not None and value[1].is_list)


def tasks_of_group(group: Group) -> Tasks:
    if group.collects:
        return Tasks(group.symbols, True, group.collects, group.collects)
    members = set(group.symbols)
    first = [one for one in group.symbols if not one.upstream & members]
    last = [one for one in group.symbols if not one.downstream & members]
    return Tasks(group.symbols, False, names_of(first), names_of(last))


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


def names_of(symbols: Sequence[Symbol]) -> str:
    names = list(dict.fromkeys(str(one.variable) for one in symbols))
    return names[0] if len(names) == 1 else f"[{', '.join(names)}]"
