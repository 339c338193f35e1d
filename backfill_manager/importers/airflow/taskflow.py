"""TaskFlow: calls of functions of `@task`."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Final

from backfill_manager.importers.airflow.callables import context_function
from backfill_manager.importers.airflow.expressions import at_runtime
from backfill_manager.importers.airflow.facts import defaults_of
from backfill_manager.importers.airflow.operators import Made, missing, returned_branch, shell, short_circuit
from backfill_manager.importers.airflow.symbols import Function, Tasks
from backfill_manager.importers.airflow.tasks import prefix_of_groups, write_task
from backfill_manager.importers.airflow.walk import Walk
from backfill_manager.importers.draft import Code, Item
from backfill_manager.importers.writer import call, quoted, unparse

OTHER_ENVIRONMENTS: Final = (
    "virtualenv", "external_python", "docker", "kubernetes", "branch_virtualenv", "branch_external_python",
)  # fmt: skip
OF_DECORATORS: Final = frozenset({
    "requirements", "system_site_packages", "python", "python_version", "use_dill", "expect_airflow", "image", "multiple_outputs",
    "env", "append_env", "ignore_downstream_trigger_rules", "show_return_value_in_logs", "conn_id", "config_kwargs", "serializer",
    "venv_cache_path", "pip_install_options", "index_urls", "name", "namespace", "in_cluster", "poke_interval", "timeout", "mode",
    "soft_fail",
})  # fmt: skip


def is_inlined(walk: Walk, function: Function) -> bool:
    """Whether the function of `@task` is called at one place, so that its body is the task's."""
    if function.kind not in ("python", "pyspark", *OTHER_ENVIRONMENTS[:4]) or function.node.args.vararg:
        return False
    name = function.node.name
    if name in walk.is_async or _yields(function.node):
        return False
    nodes = [*ast.walk(walk.source.tree)]
    names = [one for one in nodes if isinstance(one, ast.Name) and one.id == name]
    if len(names) != 1 or sum(isinstance(one, ast.FunctionDef) and one.name == name for one in nodes) != 1:
        return False
    call = next((one for one in nodes if isinstance(one, ast.Call) and _function_of(one) is names[0]), None)
    if call is None or any(isinstance(one, ast.Starred) for one in call.args) or any(not k.arg for k in call.keywords):
        return False
    groups = [
        one for one in nodes if any(walk.facts.last(d) == "task_group" for d in getattr(one, "decorator_list", []))
    ]
    return not any(call in ast.walk(group) for group in groups)


def _yields(node: ast.FunctionDef) -> bool:
    return any(isinstance(one, ast.Yield | ast.YieldFrom) for one in ast.walk(node))


def task_call(walk: Walk, function: Function, node: ast.Call) -> tuple[str, Tasks]:
    given = function.settings
    target, walk.target = walk.target, None
    with walk.of_one_task() as notes:
        walk.take_params(node, given)
        positional = [at_runtime(walk, one) for one in node.args]
        by_name = {one.arg or "**": at_runtime(walk, one.value) for one in node.keywords}
        made, name = _task_flow(walk, function, node, positional, by_name)
        settings = walk.reader.of_task(given, OF_DECORATORS)
        walk.target = target
        id_text = id_of_call(walk, function, node)
        return write_task(walk, node, None, settings, made, notes, function.node.name, name, id_text)


def id_of_call(walk: Walk, function: Function, node: ast.AST) -> str:
    id_node = function.settings.get("task_id")
    base = walk.text_of(id_node) if id_node is not None else function.node.name
    if base is None and id_node is not None:
        return unparse(id_node)
    prefix, dynamic = prefix_of_groups(walk)
    if walk.in_loop and not dynamic:
        counter = walk.free_name("numbers")
        _put_before_loop(walk, Code(f"{counter} = itertools.count(1)"))
        instead = f"Its ids are {base}__1, {base}__2, ... here; better give it one by the loop's variable"
        walk.remark(node, f"the task {base} in a loop", instead)
        return f'f"{base}__{{next({counter})}}"'
    key = f"{prefix}{id(walk.groups[-1]) if dynamic else ''}{base}{id(walk.dag)}"
    count = walk.ids[key] = walk.ids.get(key, -1) + 1
    return quoted(f"{base}__{count}" if count else str(base))


def _put_before_loop(walk: Walk, item: Item) -> None:
    """Before the outermost loop that is open, which is the last item of the DAG or of the file."""
    items = walk.dag.items if walk.dag is not None else walk.result.items
    items.insert(max(len(items) - 1, 0), item)


def _task_flow(
    walk: Walk, function: Function, node: ast.Call, positional: list[str], by_name: dict[str, str]
) -> tuple[Made, str | None]:
    """What the task does, and the name of its function where that is the task's own."""
    kind, given = function.kind, function.settings
    if kind in OTHER_ENVIRONMENTS:
        instead = "Packages of tasks are installed for their bundle: environment in docs/bundles.md"
        walk.remark(node, f"@task.{kind}", instead)
    elif kind == "sensor":
        instead = "waits_for=[rows(...)], [file(...)] or [condition(...)] waits; here it looks once, and fails if it is not there"
        walk.remark(node, "@task.sensor", instead)
    elif kind not in ("python", "branch", "short_circuit", "bash", "pyspark"):
        return missing(walk, node, f"@task.{kind}", "Write here what it did"), None
    context = context_function(walk, function.node, set(by_name), len(positional))
    walk.add_remarks(*context.remarks)
    if kind == "pyspark":
        of_spark = {"spark": "ctx.spark", "sc": "ctx.spark.sparkContext"}
        by_name |= {name: text for name, text in of_spark.items() if name in context.parameters}
    if is_inlined(walk, function):
        bound = dict(zip(context.parameters, positional, strict=False)) | by_name
        defaults = defaults_of(function.node)
        bound = {name: unparse(defaults[name]) for name in context.parameters if name in defaults} | bound
        lines = [f"{name} = {text}" for name, text in bound.items() if name != text and name != "**"]
        missing_names = [name for name in context.parameters if name not in bound]
        for name in missing_names:
            walk.remark(node, f"the parameter {name} of {function.node.name} is not given", "Give it a value")
            lines.append(f"{name} = None")
        return Made(after_docstring(context.body, [*lines, *context.preamble])), function.node.name
    arguments = [*(["ctx"] if context.uses_ctx else []), *positional]
    arguments += [f"**{text}" if name == "**" else f"{name}={text}" for name, text in by_name.items()]
    called = call(function.node.name, arguments)
    if function.node.name in walk.is_async:
        called = f"asyncio.run({called})"
    elif _yields(function.node):
        called = f"list({called})"
    if kind.startswith("branch"):
        return Made(returned_branch(called), is_branch=True), None
    if kind == "short_circuit":
        return short_circuit(called, given), None
    if kind == "bash":
        if any(isinstance(one, ast.Constant) and "{{" in str(one.value) for one in ast.walk(function.node)):
            what = f"a template in what {function.node.name} returns"
            walk.remark(function.node, what, "It is rendered in Airflow, and not here: write it with ctx")
        env = {"env": f"{{**os.environ, **{at_runtime(walk, given['env'])}}}"} if "env" in given else {}
        return Made(shell(called, env), with_result=shell(called, env, keeps_output=True)), None
    if kind == "sensor":
        return Made(f'done = {called}\nif not done:\n    raise RuntimeError("what it waits for is not there")'), None
    return Made(f"return {called}"), None


def _function_of(call: ast.Call) -> ast.expr | None:
    """The name of what is called, as in `f()` and `f.override(retries=2)()`."""
    match call.func:
        case ast.Call(func=ast.Attribute(value=owner, attr="override")):
            return owner
    return call.func


def after_docstring(body: str, lines: Sequence[str]) -> str:
    first = next(iter(ast.parse(body).body), None)
    end, texts = 0, body.splitlines()
    match first:
        case ast.Expr(value=ast.Constant(value=str()), end_lineno=int(line)):
            end = line
    return "\n".join([*texts[:end], *lines, *texts[end:]])
