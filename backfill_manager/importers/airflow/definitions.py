"""Functions and classes of the file, and statements that stay as they are."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from backfill_manager.importers.airflow.callables import context_function
from backfill_manager.importers.airflow.dags import decorated_dag, open_dags
from backfill_manager.importers.airflow.expressions import SETUP
from backfill_manager.importers.airflow.facts import defaults_of
from backfill_manager.importers.airflow.functions import ContextFunction, instead_of_class
from backfill_manager.importers.airflow.order import names_of, tasks_of_group
from backfill_manager.importers.airflow.symbols import Function, Group, Tasks
from backfill_manager.importers.airflow.taskflow import after_docstring, is_inlined
from backfill_manager.importers.airflow.walk import Walk
from backfill_manager.importers.draft import Block, Code, DraftDag, Remark
from backfill_manager.importers.source import bound_by, called, is_airflow, keywords_of, names_in
from backfill_manager.importers.writer import shifted, unparse


def keep(walk: Walk, node: ast.stmt) -> None:
    airflow = [*walk.source.names_from("airflow", node), *sorted(names_in(node) & walk.facts.airflow_classes)]
    if isinstance(node, ast.ClassDef):  # in its methods, at run time
        for origin in sorted({walk.source.origins[name] for name in airflow if name in walk.source.origins}):
            walk.remark(node, f"{origin} is used in {node.name}", instead_of_class(origin))
        airflow = []
    airflow += sorted(name for name in names_in(node) if isinstance(walk.known.get(name), DraftDag))
    consumed = node.targets[0].id if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) else None
    if airflow and consumed in walk.facts.default_args and consumed in walk.reader.constants:
        return  # the DAG has what it says
    if airflow:
        origin = walk.source.origins.get(airflow[0], airflow[0])
        comment_out(walk, node, f"{origin} is used", instead_of_class(origin))
        return
    item = Code("\n".join([*walk.source.comments_before(node), walk.source.segment(node)]))
    walk.sink.append(item)
    if consumed is not None and consumed in walk.reader.constants:
        walk.optional[id(item)] = consumed


def _keep_function(walk: Walk, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    if node.name in walk.facts.makers and isinstance(node, ast.FunctionDef):
        _keep_maker(walk, node)
        return
    comments = walk.source.comments_before(node)
    if isinstance(node, ast.AsyncFunctionDef):
        keep(walk, node)
        return
    known = walk.known.get(node.name)
    is_task = isinstance(known, Function) or node.name in walk.facts.callables
    calls = [one for one in ast.walk(walk.source.tree) if isinstance(one, ast.Call) and node.name in names_in(one.func)]
    given = {name for one in calls for name in keywords_of(one)} if isinstance(known, Function) else None
    positional = max((len(one.args) for one in calls if isinstance(one.func, ast.Name)), default=0)
    if is_task:
        context = context_function(walk, node, given, positional)
    else:
        context = ContextFunction(node, [one.arg for one in node.args.args], body=walk.source.body(node))
        for name in walk.source.names_from("airflow", node):
            origin = walk.source.origins[name]
            context.remarks.append(Remark(node.lineno, f"{origin} is used in {node.name}", instead_of_class(origin)))
    walk.add_remarks(*context.remarks)
    header = _header(walk, node, context) if is_task or context.remarks or node.decorator_list else None
    if header is None:
        walk.sink.append(Code("\n".join([*comments, walk.source.segment(node)])))
        return
    text = f"{header}\n{shifted(after_docstring(context.body, context.preamble), 4)}"
    walk.sink.append(Code("\n".join([*comments, text])))


def _header(walk: Walk, node: ast.FunctionDef, context: ContextFunction) -> str:
    arguments, kept, defaults = node.args, set(context.parameters), defaults_of(node)

    def written(parameters: Sequence[ast.arg]) -> list[str]:
        return [_parameter(walk, one, defaults.get(one.arg)) for one in parameters if one.arg in kept]

    named = written(arguments.kwonlyargs)
    parts = ["ctx"] if context.uses_ctx else []
    parts += written([*arguments.posonlyargs, *arguments.args])
    parts += [f"*{arguments.vararg.arg}"] if arguments.vararg else ["*"] if named else []
    parts += named
    if (
        arguments.kwarg
        and re.search(rf"\b{arguments.kwarg.arg}\b", context.body)
        and f"{arguments.kwarg.arg} = " not in "\n".join(context.preamble)
    ) or (arguments.kwarg and (walk.facts.callables.get(node.name, (set(), 0))[0] - kept)):
        parts.append(f"**{arguments.kwarg.arg}")
    decorators = [f"@{unparse(one)}\n" for one in node.decorator_list if not walk.facts.is_airflow(one)]
    return f"{''.join(decorators)}{'async ' * (node.name in walk.is_async)}def {node.name}({', '.join(parts)}):"


def _parameter(walk: Walk, one: ast.arg, default: ast.expr | None) -> str:
    is_known = one.annotation is not None and not any(
        walk.source.names_from(package, one.annotation) for package in ("airflow", "pendulum", "typing")
    )
    annotation = f": {unparse(one.annotation)}" if is_known and one.annotation else ""
    return f"{one.arg}{annotation}" + (
        f"{' = ' if annotation else '='}{unparse(default)}" if default is not None else ""
    )


def _keep_maker(walk: Walk, node: ast.FunctionDef) -> None:
    """A helper that makes tasks or DAGs when it is called."""
    if len(node.args.args) and any(one.arg == "dag" for one in node.args.args):
        walk.remark(node, f"{node.name} takes a DAG", "Call it in the body of the @dag function, without the DAG")
    block = Block(f"def {node.name}({unparse(node.args)}):", [])
    walk.sink.append(block)
    outer, before = walk.known.copy(), walk.dag
    walk.dag, walk.maker = None, node.name
    makes_dags = walk.facts.makes_dags(node)
    with walk.into(block.items):
        for one in node.body:
            match one:
                case ast.Expr(value=ast.Constant()):
                    continue
                case (
                    ast.Return(value=ast.Name(id=name)) | ast.Return(value=ast.Call(func=ast.Name(id=name), args=[]))
                ) if isinstance(dag := walk.known.get(name), DraftDag):  # its function is the DAG
                    block.items.append(Code(f"return {dag.function}"))
                case ast.Return(value=ast.Name(id=name)):
                    block.items.append(Code(f"return {_returned(walk, name)}"))
                case _:
                    (walk.file_statement if makes_dags else walk.body_statement)(one)
    walk.dag, walk.maker = before, ""
    walk.known = outer
    for dag in open_dags(block.items):  # `dag = DAG(...)` in a function
        if dag in walk.assigned:
            walk.assigned.remove(dag)


def _returned(walk: Walk, name: str) -> str:
    """What a function that makes tasks returns; of a group all of it, which is put before and after others."""
    found = walk.known.get(name)
    found = tasks_of_group(found) if isinstance(found, Group) else found
    if not isinstance(found, Tasks):
        return name
    if found.is_list or found.first != found.last:
        walk.makers_of_lists.add(walk.maker)
    return (found.last if found.first == found.last else names_of(found.symbols)) or name


def comment_out(walk: Walk, node: ast.stmt, what: str, instead: str) -> None:
    walk.remark(node, what, instead)
    lines = [f"# {line}".rstrip() for line in walk.source.segment(node).splitlines()]
    names = [] if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) else sorted(bound_by(node))
    nothing = "None" if walk.dag is None else "[]"  # which can be put in order with tasks
    walk.sink.append(Code("\n".join([*lines, *(f"{name} = {nothing}" for name in names)])))


def keep_import(walk: Walk, node: ast.Import | ast.ImportFrom) -> None:
    module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
    if is_airflow(module):
        return
    if isinstance(node, ast.Import):
        names = [alias for alias in node.names if not is_airflow(alias.name)]
        walk.result.imports += [unparse(ast.Import([alias])) for alias in names]
    else:
        walk.result.imports.append(unparse(node))


def define(walk: Walk, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
    """A function or class."""
    if isinstance(node, ast.ClassDef):
        is_of_airflow = any(walk.facts.is_airflow(one) for base in node.bases for one in ast.walk(base))
        if node.name in walk.facts.airflow_classes or is_of_airflow:
            instead = "Write what it does as a function that a task calls"
            comment_out(walk, node, f"the class {node.name} of Airflow", instead)
        else:
            keep(walk, node)
        return
    decorator = next(filter(walk.facts.is_airflow, node.decorator_list), None)
    if decorator is None:
        _keep_function(walk, node)
        return
    dotted = walk.source.dotted(called(decorator))
    settings = walk.settings_of(decorator) if isinstance(decorator, ast.Call) else {}
    last = dotted.rpartition(".")[2]
    if isinstance(node, ast.AsyncFunctionDef):
        walk.is_async.add(node.name)
        node = ast.copy_location(ast.FunctionDef(**{name: getattr(node, name) for name in node._fields}), node)
        walk.facts.functions[node.name] = node
    if last == "dag":
        decorated_dag(walk, node, decorator, settings)
    elif last == "task_group":
        walk.known[node.name] = Function(node, "group", settings)
    elif ".task" in f".{dotted}" or last in ("setup", "teardown"):
        kind = dotted.rpartition("task.")[2] if "task." in dotted else "python" if last == "task" else last
        others = [one for one in node.decorator_list if one is not decorator]
        names = {last, *map(walk.facts.last, others)}
        if names & {"setup", "teardown"}:
            walk.remark(node, f"{'teardown' if 'teardown' in names else 'setup'} task {node.name}", SETUP)
            kind = "python" if kind in ("setup", "teardown") else kind
            settings |= {"trigger_rule": ast.Constant("all_done")} if "teardown" in names else {}
        for one in filter(walk.facts.is_airflow, others):
            if walk.facts.last(one) in ("run_if", "skip_if"):
                walk.remark(one, f"@task.{walk.facts.last(one)}", "Begin the task with `if ...: ctx.skip(reason)`")
            elif isinstance(one, ast.Call):
                settings |= walk.settings_of(one)
        walk.known[node.name] = function = Function(node, kind, settings)
        if not is_inlined(walk, function):
            _keep_function(walk, node)
    else:
        comment_out(walk, node, f"{node.name}, decorated by @{last}", "Make a DAG with a task that writes the table")
