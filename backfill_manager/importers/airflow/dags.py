"""DAGs: their settings, and where the statements of their bodies go."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from backfill_manager.importers.airflow.facts import defaults_of
from backfill_manager.importers.airflow.symbols import DagParam
from backfill_manager.importers.airflow.walk import Walk
from backfill_manager.importers.draft import Block, Code, DraftDag, Item
from backfill_manager.importers.source import parameters_of
from backfill_manager.importers.writer import quoted, unparse


def in_dag(walk: Walk, dag: DraftDag, statements: Sequence[ast.stmt]) -> None:
    outer, walk.dag = (walk.dag, walk.loops_of_dag), dag
    walk.loops_of_dag = len(walk.loops)
    with walk.into(dag.items):
        for one in statements:
            walk.body_statement(one)
    walk.dag, walk.loops_of_dag = outer


def with_dag(walk: Walk, node: ast.With, made: ast.Call, name: ast.expr | None) -> None:
    dag = new_dag(walk, made, name.id if isinstance(name, ast.Name) else "dag_")
    walk.sink += [Code(text) for text in walk.source.comments_before(node)]
    walk.sink.append(dag)
    if walk.sink is walk.result.items:
        walk.opened.append(dag)
    if isinstance(name, ast.Name):
        walk.known[name.id] = dag
    in_dag(walk, dag, node.body)


def new_dag(walk: Walk, made: ast.Call, variable: str) -> DraftDag:
    given = walk.settings_of(made)
    given |= dict(zip(("dag_id", "description", "schedule"), made.args, strict=False))
    dag_id = given.get("dag_id")
    text = walk.reader.text_of(dag_id)
    name = (
        walk.name_of(text)
        if text
        else f"{variable.rstrip('_')}_{made.lineno}"
        if variable.startswith("dag")
        else variable
    )
    return _with_settings(walk, made, given, name, None if text == name else unparse(dag_id) if dag_id else None, text)


def _with_settings(
    walk: Walk, node: ast.AST, given: dict[str, ast.expr], name: str, id_text: str | None, dag_id: str | None = None
) -> DraftDag:
    dag = DraftDag(name, {})
    with walk.noting(dag.remarks):
        default_args = walk.reader.of_mapping(given.get("default_args"))
        settings = walk.reader.of_dag(given, default_args, node)
        dag.params = walk.reader.params(given.get("params"), default_args.get("params"))
    dag.settings = {**({"dag_id": id_text} if id_text else {}), **settings}
    if dag_id is not None and not re.fullmatch(r"[A-Za-z0-9_.-]{1,200}", dag_id):
        safe = re.sub(r"[^A-Za-z0-9_.-]+", "_", dag_id)[:200]
        dag.settings["dag_id"] = quoted(safe)
        with walk.noting(dag.remarks):
            instead = f"It is {safe!r} here: ids have letters of ASCII, digits, _, . and -"
            walk.remark(node, f"the DAG id {dag_id!r}", instead)
    if doc := walk.reader.text_of(given.get("doc_md")):
        dag.doc = doc.strip()
    return dag


def decorated_dag(walk: Walk, node: ast.FunctionDef, decorator: ast.expr, given: dict[str, ast.expr]) -> None:
    if isinstance(decorator, ast.Call):
        given = given | dict(zip(("dag_id", "description", "schedule"), decorator.args, strict=False))
    text = walk.reader.text_of(given.get("dag_id"))
    id_text = unparse(given["dag_id"]) if "dag_id" in given and text != node.name else None
    dag = _with_settings(walk, decorator, given, node.name, id_text, text)
    walk.known[node.name] = dag
    defaults = defaults_of(node)
    with walk.noting(dag.remarks):
        for name in (one.arg for one in parameters_of(node)):
            walk.known[name] = DagParam(name)
            default = walk.reader.param(defaults[name], name) if name in defaults else None
            dag.params[name] = default or "None"
    body = list(node.body)
    if (doc := ast.get_docstring(node)) is not None:
        dag.doc = doc.strip()
        body.pop(0)
    walk.sink += [Code(text) for text in walk.source.comments_before(node)]
    walk.sink.append(dag)
    outer = walk.known.copy()
    in_dag(walk, dag, [one for one in body if not isinstance(one, ast.Return)])
    walk.known |= {name: known for name, known in outer.items() if isinstance(known, DraftDag)}


def doc_of(walk: Walk, name: str, value: ast.expr) -> None:
    dag = walk.known[name]
    if isinstance(dag, DraftDag):
        if text := walk.text_of(value):
            dag.doc = text.strip()
        elif isinstance(value, ast.Name) and value.id == "__doc__":
            dag.doc = walk.result.doc


def open_dags(items: Sequence[Item]) -> Iterator[DraftDag]:
    for item in items:
        if isinstance(item, DraftDag):
            yield item
        elif isinstance(item, Block):
            yield from open_dags(item.items)
