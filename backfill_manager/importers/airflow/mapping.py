"""Mapped tasks: `.partial(...).expand(...)`."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Final

from backfill_manager.importers.airflow.callables import context_function
from backfill_manager.importers.airflow.expressions import at_runtime, name_task
from backfill_manager.importers.airflow.operators import Made, missing
from backfill_manager.importers.airflow.symbols import Function, Symbol, Tasks, Value
from backfill_manager.importers.airflow.taskflow import OF_DECORATORS, id_of_call
from backfill_manager.importers.airflow.tasks import prefix_of_groups, write_task
from backfill_manager.importers.airflow.walk import Walk
from backfill_manager.importers.source import keywords_of
from backfill_manager.importers.writer import call, quoted

_ONE_BY_ONE: Final = (
    "Here one task does all of them, one after another; `.expand(over=[...])` with `ctx.mapped_value` gives each a state of its "
    "own where the values are known when the file is read, `.expand(over=list_them())` where one task returns them"
)


def expanded(walk: Walk, node: ast.Call, owner: ast.expr) -> Value | None:
    """`f.partial(...).expand(...)`: a task for each value where one task returns them, else one that does all of them."""
    partial: ast.Call | None = None
    if isinstance(owner, ast.Call) and isinstance(owner.func, ast.Attribute) and owner.func.attr == "partial":
        partial, owner = owner, owner.func.value
    fixed = walk.settings_of(partial) if partial else {}
    function = walk.task_function(owner)
    if function is None:
        if not (walk.facts.is_operator(ast.Call(owner, [], [])) or walk.facts.is_airflow(owner)):
            return None
        with walk.of_one_task() as notes:
            walk.take_params(node, fixed)
            name = walk.source.dotted(owner).rpartition(".")[2]
            for one in [*node.keywords, *(ast.keyword(None, each) for each in node.args)]:
                at_runtime(walk, one.value)
            instead = "Loop over its values in one task, or make a task of each in a loop"
            made = missing(walk, node, f"{name}.expand", instead, frozenset(fixed))
            settings = walk.reader.of_task(fixed, made.known)
            return write_task(walk, node, fixed.get("task_id"), settings, made, notes, name)
    if function.kind == "group":
        walk.remark(node, f"the mapped task group {function.node.name}", _ONE_BY_ONE)
        why = f"the mapped task group {function.node.name} of Airflow: loop over its values in one task"
        made, name = Made(f"raise NotImplementedError({quoted(why)})"), function.node.name
        with walk.of_one_task() as notes:
            for one in node.keywords:
                at_runtime(walk, one.value)
            own_name = walk.function_name(None, name)
            return write_task(walk, node, None, {}, made, notes, name, own_name, quoted(name))
    return _mapped(walk, node, function, fixed)


def _mapped(walk: Walk, node: ast.Call, function: Function, fixed: Mapping[str, ast.expr]) -> tuple[str, Tasks]:
    """`fixed`: the arguments of `partial`."""
    name, target, walk.target = function.node.name, walk.target, None
    takes_mappings = isinstance(node.func, ast.Attribute) and node.func.attr == "expand_kwargs"
    with walk.of_one_task() as notes:
        walk.take_params(node, function.settings)
        values = {"each": node.args[0]} if takes_mappings else walk.settings_of(node)
        texts = {parameter: at_runtime(walk, value) for parameter, value in values.items()}
        of_values, walk.deps = walk.deps, []
        context = context_function(walk, function.node, {*fixed, *keywords_of(node)})
        walk.add_remarks(*context.remarks)
        arguments = [
            *(["ctx"] if context.uses_ctx else []),
            *(f"{parameter}={at_runtime(walk, value)}" for parameter, value in fixed.items()),
        ]
        of_fixed, walk.deps = walk.deps, of_values
        id_text = id_of_call(walk, function, node)
        over = _task_over(walk, node, id_text, texts) if function.kind == "python" else None
        walk.deps += of_fixed
        if over is None:
            walk.remark(node, f"the mapped task {name}", _ONE_BY_ONE)
            loops = " ".join(f"for {parameter} in {text}" for parameter, text in texts.items())
            texts = {parameter: parameter for parameter in texts}
        else:
            texts = {parameter: "ctx.mapped_value" for parameter in texts}
        arguments += [f"**{text}" if takes_mappings else f"{parameter}={text}" for parameter, text in texts.items()]
        called = call(name, arguments)
        made = Made(f"return [{called} {loops}]") if over is None else Made(f"return {called}", over=over[0])
        settings = walk.reader.of_task(function.settings, OF_DECORATORS)
        walk.target = target
        text, tasks = write_task(walk, node, None, settings, made, notes, name, walk.function_name(None, name), id_text)
        if over is not None:
            over[1].put_before(tasks.symbols)
        return text, tasks


def _task_over(walk: Walk, node: ast.Call, id_text: str, texts: Mapping[str, str]) -> tuple[str, Symbol] | None:
    """The variable of a task over which it can be mapped: its values are all that another task of the run returns. That
    returns a list of anything, so a task between them gives each value a name: its number, as in Airflow. None elsewhere,
    as where other tasks read the results of the mapped ones by `xcom_pull`: they take them for a list."""
    symbols = {symbol for _, tasks in walk.deps for symbol in tasks.symbols}
    if len(symbols) != 1 or len(texts) != 1 or "xcom_pull" in walk.source.text:
        return None
    [of], [text] = symbols, texts.values()
    result, id_ = f"ctx.result({of.id_text})", ast.parse(id_text, mode="eval").body
    is_one = not (walk.in_loop or of.loop_names or any(group.collects for group in walk.groups))
    is_known = isinstance(id_, ast.Constant) and of.is_static and not prefix_of_groups(walk)[1]
    if not is_one or not is_known or of.task is None or of.dag is not walk.dag:
        return None
    if of.is_mapped and text == f"[*{result}.values()]":
        (made, tasks), walk.deps = walk.deps[0], []
    elif text == result:
        body = f"return {{str(number): value for number, value in enumerate({result})}}"
        named = f"{ast.literal_eval(id_text)}_values"
        while named in walk.taken:
            named += "_"
        made, tasks = write_task(walk, node, ast.Constant(named), {}, Made(body), [], "values")
        walk.deps = []
    else:
        return None
    [symbol] = tasks.symbols
    return (made if made.isidentifier() else name_task(walk, made, symbol, symbol.id_text.strip('"'))), symbol
