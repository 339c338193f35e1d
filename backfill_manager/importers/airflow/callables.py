"""Functions of the file that operators call."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from backfill_manager.importers.airflow.expressions import at_runtime, kept_text
from backfill_manager.importers.airflow.functions import (
    CONTEXT,
    ONLY_THESE,
    ContextFunction,
    of_context,
    rewrite,
    whole_context,
)
from backfill_manager.importers.airflow.walk import Walk
from backfill_manager.importers.writer import call, unparse


def call_of(walk: Walk, node: ast.expr, arguments: Mapping[str, ast.expr]) -> str:
    """A call of an operator's function, with the values that the operator has for it."""
    given = []
    op_args, op_kwargs = arguments.get("op_args"), arguments.get("op_kwargs")
    if isinstance(op_args, ast.List | ast.Tuple):
        given += [at_runtime(walk, one) for one in op_args.elts]
    elif op_args is not None:
        given.append(f"*{at_runtime(walk, op_args)}")
    if isinstance(op_kwargs, ast.Dict) and all(isinstance(key, ast.Constant) for key in op_kwargs.keys):
        given += [
            f"{key.value!s}={at_runtime(walk, value)}"
            for key, value in zip(op_kwargs.keys, op_kwargs.values, strict=True)
            if isinstance(key, ast.Constant)
        ]
    elif op_kwargs is not None:
        given.append(f"**{at_runtime(walk, op_kwargs)}")
    if "templates_dict" in arguments:
        given.append(f"templates_dict={at_runtime(walk, arguments['templates_dict'])}")
    if isinstance(node, ast.Lambda):
        given += _context_of(walk, node, [one.partition("=")[0] for one in given if not one.startswith("*")])
        return unparse(node.body) if not given and not node.args.args else call(f"({unparse(node)})", given)
    if isinstance(node, ast.Name) and node.id in walk.facts.functions:
        function = context_function(walk, walk.facts.functions[node.id])
        return call(node.id, [*(["ctx"] if function.uses_ctx else []), *given])
    if isinstance(node, ast.Name) and node.id in walk.source.origins:
        instead = "It gets no context of Airflow: pass it what it needs of ctx"
        walk.remark(node, f"{node.id} comes from another file", instead)
    return call(kept_text(walk, node), given)


def _context_of(walk: Walk, node: ast.Lambda, given: list[str]) -> list[str]:
    """What a function without a name takes of the context; `given`: the names of its other arguments, or their values."""
    named = [one.arg for one in node.args.args if one.arg in CONTEXT and one.arg not in given]
    taken = [f"{name}={of_context(name) or 'None'}" for name in named]
    for name in named:
        if of_context(name) is None:
            walk.remark(node, f"`{name}` of the context", "ctx has no equal; see docs/authoring.md")
    if node.args.kwarg is not None:
        walk.remark(node, f"`{node.args.kwarg.arg}`, the whole context", ONLY_THESE)
        entries = [text for key, text in whole_context().items() if key not in (*named, *given)]
        taken.append(f"**{{{', '.join(entries)}}}")
    return taken


def context_function(
    walk: Walk, node: ast.FunctionDef, given: set[str] | None = None, positional: int = 0
) -> ContextFunction:
    if node.name not in walk.rewritten:
        names, count = walk.facts.callables.get(node.name, (set(), 0))
        walk.rewritten[node.name] = rewrite(walk.source, node, names | (given or set()), count or positional)
    return walk.rewritten[node.name]
