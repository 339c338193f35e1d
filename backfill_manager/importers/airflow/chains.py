"""`chain`, `chain_linear` and `cross_downstream`."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Sequence

from backfill_manager.importers.airflow.expressions import value_of
from backfill_manager.importers.airflow.order import flush, is_list_of_tasks, put_in_order, settle, settle_list
from backfill_manager.importers.airflow.symbols import Value
from backfill_manager.importers.airflow.walk import Walk
from backfill_manager.importers.draft import Block, Code
from backfill_manager.importers.writer import unparse


def chain(walk: Walk, kind: str, node: ast.Call, arguments: Sequence[ast.expr]) -> None:
    if len(arguments) == 1 and isinstance(arguments[0], ast.Starred) and kind != "cross_downstream":
        text = settle(walk, value_of(walk, arguments[0].value)[0])
        walk.sink.append(Block(f"for before, after in zip({text}, {text}[1:]):", [Code("before >> after")]))
        return
    if any(isinstance(one, ast.Starred) for one in arguments):
        _chain_with_star(walk, kind, node, arguments)
        return
    values = [
        value_of(walk, one) for one in arguments if not (isinstance(one, ast.Call) and walk.facts.last(one) == "Label")
    ]
    before = values[0]
    for after in values[1:]:
        if kind == "chain" and is_list_of_tasks(before) and is_list_of_tasks(after):
            before, after = (settle_list(walk, before), settle_list(walk, after))
            lists = [ast.parse(one[0], mode="eval").body for one in (before, after)]
            if all(isinstance(one, ast.List) for one in lists):
                for left, right in zip(lists[0].elts, lists[1].elts, strict=False):  # type: ignore[attr-defined]
                    walk.sink.append(Code(f"{unparse(left)} >> {unparse(right)}"))
            else:
                walk.sink.append(
                    Block(f"for before, after in zip({before[0]}, {after[0]}):", [Code("before >> after")])
                )
            if before[1] and after[1]:
                for one, other in zip(before[1].symbols, after[1].symbols, strict=False):
                    one.put_before([other])
            before = after
        else:
            before = put_in_order(walk, before, after)
    flush(walk, before[0])


def _chain_with_star(walk: Walk, kind: str, node: ast.Call, arguments: Sequence[ast.expr]) -> None:
    """How many there are is known when the file runs: a loop puts each before the next."""
    links: list[Value] = []
    for one in arguments:
        if isinstance(one, ast.Call) and walk.facts.last(one) == "Label":
            continue
        text, tasks = settle_list(walk, value_of(walk, one.value if isinstance(one, ast.Starred) else one))
        links.append((f"*{text}" if isinstance(one, ast.Starred) else text, tasks))
    pairs = [*itertools.pairwise(links)]
    are_lists = any(
        all(not text.startswith("*") and is_list_of_tasks((text, tasks)) for text, tasks in pair) for pair in pairs
    )
    symbols = [symbol for _, tasks in links if tasks for symbol in tasks.symbols]
    has_groups = any(tasks and tasks.first and not tasks.is_list for _, tasks in links)
    if kind != "chain" or are_lists or has_groups or any(symbol.is_branch for symbol in symbols):
        walk.remark(node, f"{kind} with *", "Put the tasks in order with >>")
        return
    for (_, left), (_, right) in pairs:
        for symbol in left.symbols if left else []:
            symbol.put_before(right.symbols if right else [])
    name = walk.free_name("chained")
    walk.sink.append(Code(f"{name} = [{', '.join(text for text, _ in links)}]"))
    walk.sink.append(Block(f"for before, after in zip({name}, {name}[1:]):", [Code("before >> after")]))
