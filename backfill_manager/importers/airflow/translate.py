"""`translate`: a DAG file of Airflow as a `Draft`.

It keeps the shape of the file. A DAG's body becomes the body of a `@dag` function, statement by statement, loops and conditions
included; where a task is made, the function of ours that does the same is written and called. What is passed from task to task
becomes `ctx.result(...)` in the later one, and their order. Nothing is executed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Final

from backfill_manager.importers.airflow.body import body_statement, compound, nested, opens_several
from backfill_manager.importers.airflow.calls import make_tasks
from backfill_manager.importers.airflow.dags import doc_of, in_dag, new_dag, with_dag
from backfill_manager.importers.airflow.definitions import define, keep, keep_import
from backfill_manager.importers.airflow.facts import last_name
from backfill_manager.importers.airflow.finish import (
    check_imports,
    drop_unused,
    guard_branches,
    keep_outputs,
    say_short_circuits,
)
from backfill_manager.importers.airflow.walk import Walk
from backfill_manager.importers.draft import Draft, DraftDag
from backfill_manager.importers.source import Source, bound_by, names_in, parameters_of, with_positional
from backfill_manager.importers.writer import OURS, unparse

_WRITTEN_WITH: Final = {  # what drafts are written with; the writer leaves out what one does not use
    **{name: f"import {name}" for name in ("asyncio", "itertools", "os", "shlex", "subprocess")},
    **{name: f"from datetime import {name}" for name in ("datetime", "timedelta", "timezone")},
    "ZoneInfo": "from zoneinfo import ZoneInfo",
}
_IMPORTS: Final = (ast.Import, ast.ImportFrom)
_DAG_METHODS: Final = ("test", "cli", "run", "clear", "doc_md")


def translate(text: str, file: str, read: Callable[[str], str | None] = lambda name: None) -> Draft:
    """`SyntaxError` for what is no Python. `read` gives the text of another file that it names."""
    source = Source(_renamed(Source(text, file)), file)
    walk = Walk(source, read, file_statement=file_statement, body_statement=body_statement, make_tasks=make_tasks)
    return _draft(walk)


def _renamed(source: Source) -> str:
    """The file, with another name for each variable that has a name which ours need."""
    bound = {name for name in bound_by(source.tree) if name in OURS} - source.origins.keys()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef) and node.name in OURS:
            bound.add(node.name)
        if isinstance(node, ast.FunctionDef) and any(last_name(source, one) == "dag" for one in node.decorator_list):
            bound |= {name for name in bound_by(node) if name in OURS} - source.origins.keys()
    if not bound:
        return source.text
    local = {
        id(one)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef | ast.Lambda)
        for one in ast.walk(node)
        if isinstance(one, ast.Name) and one.id in {arg.arg for arg in [*node.args.args, *node.args.kwonlyargs]}
    }

    def rename(node: ast.AST) -> str | None:
        return f"{node.id}_" if isinstance(node, ast.Name) and node.id in bound and id(node) not in local else None

    module = ast.Module(source.tree.body, [])
    text = source.text_with(module, rename)
    return re.sub(rf"^(\s*(?:async )?def )({'|'.join(bound)})\(", r"\1\2_(", text, flags=re.MULTILINE)


def _draft(walk: Walk) -> Draft:
    body = list(walk.source.tree.body)
    if (doc := ast.get_docstring(walk.source.tree, clean=False)) is not None:
        walk.result.doc = doc.strip()
        body.pop(0)
    for statement in body:
        file_statement(walk, statement)
    walk.result.items += walk.assigned
    say_short_circuits(walk)
    guard_branches(walk)
    keep_outputs(walk)
    drop_unused(walk)
    bound = {name for text in walk.result.imports for name in re.findall(r"\w+", text.partition("import ")[2])}
    walk.result.imports += [text for name, text in _WRITTEN_WITH.items() if name not in bound]
    check_imports(walk)
    return walk.result.finished("no DAG was found")


def file_statement(walk: Walk, node: ast.stmt) -> None:
    """A statement outside of all DAGs."""
    match node:
        case ast.Pass():
            return
        case ast.Import() | ast.ImportFrom():
            keep_import(walk, node)
        case ast.Try() | ast.If() if all(isinstance(one, (*_IMPORTS, ast.Pass)) for one in _all_of(node)):
            for one in _all_of(node):
                file_statement(walk, one)
        case ast.If(test=test) if "__name__" in names_in(test) or "TYPE_CHECKING" in names_in(test):
            return
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            define(walk, node)
        case ast.With(items=[_, _, *_]) if opens_several(walk, node):
            file_statement(walk, nested(node))
        case ast.With(items=[ast.withitem(context_expr=ast.Call() as made, optional_vars=name)]) if (
            walk.facts.last(made) == "DAG"
        ):
            with_dag(walk, node, made, name)
        case ast.With(items=[ast.withitem(context_expr=ast.Name(id=name))]) if isinstance(
            dag := walk.known.get(name), DraftDag
        ):
            in_dag(walk, dag, node.body)
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as made) if walk.facts.last(made) == "DAG":
            walk.known[name] = dag = new_dag(walk, made, name)
            if walk.loops or walk.sink is not walk.result.items:
                walk.sink.append(dag)
            else:
                walk.assigned.append(dag)
        case (
            ast.Assign(value=ast.Call(func=ast.Name(id=name)) as made)
            | ast.Expr(value=ast.Call(func=ast.Name(id=name)) as made)
        ) if isinstance(dag := walk.known.get(name), DraftDag):
            function = walk.facts.functions.get(name)
            parameters = [one.arg for one in parameters_of(function)] if function else []
            for parameter, value in with_positional(made, *parameters).items():
                dag.params[parameter] = walk.reader.param(value, parameter) or "None"
            for target in getattr(node, "targets", []):
                if isinstance(target, ast.Name):
                    walk.known[target.id] = dag
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method))) if (
            isinstance(walk.known.get(name), DraftDag) and method in _DAG_METHODS
        ):
            return
        case ast.Assign(targets=[ast.Attribute(value=ast.Name(id=name), attr="doc_md")], value=value) if (
            name in walk.known
        ):
            doc_of(walk, name, value)
        case ast.If(test=test) if walk.facts.makes_dags(node) and walk.source.names_from("airflow", test):
            walk.remark(node, f"if {unparse(test)}", "It is taken to hold for the DAGs below")
            for one in _all_of(node):
                if walk.facts.makes_dags(one) or walk.concerns_tasks(one):
                    file_statement(walk, one)
        case ast.For() | ast.While() | ast.If() if walk.facts.makes_dags(node):
            compound(walk, node, walk.file_statement)
        case _ if (dag := _dag_of(walk, node)) is not None:
            in_dag(walk, dag, [node])
        case _:
            keep(walk, node)


def _all_of(node: ast.stmt) -> list[ast.stmt]:
    parts = [*(getattr(node, name, []) for name in ("body", "orelse", "finalbody"))]
    return [one for part in (*parts, *(each.body for each in getattr(node, "handlers", []))) for one in part]


def _dag_of(walk: Walk, node: ast.stmt) -> DraftDag | None:
    """Of a statement beside `dag = DAG(...)`: the DAG whose tasks it makes or puts in order."""
    for one in ast.walk(node):
        match one:
            case ast.keyword(arg="dag", value=ast.Name(id=name)) if isinstance(dag := walk.known.get(name), DraftDag):
                return dag
            case ast.Call() if dag := walk.dag_of_call(one):
                return dag
    open_dags = walk.assigned or walk.opened
    makers = names_in(node) & walk.facts.makers
    if any(walk.facts.makes_dags(walk.facts.functions[name]) for name in makers):
        return None
    return open_dags[-1] if open_dags and walk.concerns_tasks(node) and (walk.assigned or not makers) else None
