"""Operators: the tasks that they make. `write_task` writes every task, whatever it is made by."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Mapping

from backfill_manager.importers.airflow.expressions import at_runtime, name_task
from backfill_manager.importers.airflow.operators import READERS, UNTRANSLATED, Made, missing
from backfill_manager.importers.airflow.settings import AIRFLOWS_RETRY_DELAY
from backfill_manager.importers.airflow.symbols import Group, Result, Symbol, Tasks
from backfill_manager.importers.airflow.walk import Walk
from backfill_manager.importers.draft import Code, DraftTask, Remark
from backfill_manager.importers.source import names_in
from backfill_manager.importers.writer import call, keywords, quoted, unparse


def operator_task(walk: Walk, node: ast.Call) -> tuple[str, Tasks]:
    name = walk.source.dotted(node.func).rpartition(".")[2]
    target, walk.target = walk.target, None
    by_dag = walk.dag_of_call(node) is not None  # its id is not known
    with walk.of_one_task() as notes:
        given = dict(zip(() if by_dag else ("task_id",), node.args, strict=False)) | walk.settings_of(node)
        walk.take_params(node, given)
        reader = READERS.get(name)
        if reader is None:
            made = missing(walk, node, name, "Write here what it did, by the library of the service", frozenset(given))
        else:
            made = reader(walk, node, given)
        _take_order_of(walk, given, is_missing=made.is_missing)
        settings = walk.reader.of_task(given, made.known) | made.settings
        walk.target = target
        id_node = given.get("task_id") or (ast.Constant(target) if by_dag and target else None)
        named = given.get("task_group")
        group = walk.known.get(named.id) if isinstance(named, ast.Name) else None
        was_open = group in walk.groups
        walk.groups += [group] if isinstance(group, Group) and not was_open else []
        task = write_task(walk, node, id_node, settings, made, notes, name)
        walk.groups[:] = [one for one in walk.groups if one is not group or was_open]
        return task


def _take_order_of(walk: Walk, given: Mapping[str, ast.expr], *, is_missing: bool) -> None:
    """Arguments that have results of other tasks put the task after them, also where nothing here takes the value."""
    for name, value in given.items():
        if name in ("dag", "task_group"):
            continue
        if is_missing and any(isinstance(one, ast.Call) and walk.makes(one) for one in ast.walk(value)):
            at_runtime(walk, value)
            continue
        named = {id(one.value) for one in ast.walk(value) if isinstance(one, ast.Attribute) and one.attr != "output"}
        for one in ast.walk(value):
            found = walk.known.get(one.id) if isinstance(one, ast.Name) and id(one) not in named else None
            deps = found.deps if isinstance(found, Result) else []
            if isinstance(found, Tasks) and isinstance(one, ast.Name):
                deps = [(found.last or one.id, found)]
            walk.deps += [(text, tasks) for text, tasks in deps if all(each.dag is walk.dag for each in tasks.symbols)]


def write_task(
    walk: Walk, node: ast.AST, id_node: ast.expr | None, settings: dict[str, str], made: Made, notes: list[Remark],
    kind: str, function: str | None = None, id_text: str | None = None,
) -> tuple[str, Tasks]:  # fmt: skip
    """Writes a task's function, where it has one; gives the expression that makes the task."""
    if id_node is None:
        id_node = ast.parse(id_text or quoted(kind), mode="eval").body
    task_id = walk.reader.text_of(id_node)
    id_text = quoted(task_id) if task_id is not None else id_text or unparse(id_node)
    base = task_id or kind
    prefix, dynamic = prefix_of_groups(walk)
    if dynamic:
        id_text, task_id = f'{dynamic} + "." + {id_text}', None
    elif prefix:
        id_text = quoted(prefix + task_id) if task_id is not None else f"{quoted(prefix)} + {id_text}"
    if task_id is not None and not re.fullmatch(r"[A-Za-z0-9_.-]{1,200}", prefix + task_id):
        safe = re.sub(r"[^A-Za-z0-9_.-]+", "_", prefix + task_id).strip("_.") or f"task_{getattr(node, 'lineno', 0)}"
        instead = f"It is {safe!r} here: ids have letters of ASCII, digits, _, . and -"
        walk.remark(node, f"the task id {task_id!r}", instead)
        id_text = quoted(safe)
    dependencies = _upstream(walk)
    of_all = walk.dag.settings.get("default_args", "") if walk.dag is not None else "retry_delay"
    if settings.get("retries", "0") != "0" and "retry_delay" not in {*settings, *re.findall(r"\w+", of_all)}:
        settings = {**settings, "retry_delay": AIRFLOWS_RETRY_DELAY}
    if made.sql is not None:
        symbol = Symbol(id_text, task_id is not None, None)
        walk.sink += notes
        text = call("sql", [id_text, made.sql, *keywords(settings)])
    else:
        name = function or walk.function_name(base if dynamic else task_id, kind)
        if walk.untranslated and not made.is_missing:  # with the template as a text it would do something else
            refused = f"raise NotImplementedError({quoted(UNTRANSLATED)})\n"
            made.body, made.with_result = refused + made.body, made.with_result and refused + made.with_result
        plain = {**({} if id_text == quoted(name) else {"task_id": id_text}), **settings}
        draft = DraftTask(name, plain, made.body, _bound_by_loops(walk, made.body), remarks=list(notes))
        walk.sink.append(draft)
        symbol = Symbol(id_text, task_id is not None, draft, made.is_branch, made.skips_all, bool(made.over))
        if made.with_result:
            walk.with_results.append((symbol, made.with_result))
        text = f"{name}.expand(over={made.over})" if made.over else f"{name}()"
    symbol.rule, symbol.loop_names = settings.get("trigger_rule"), walk.names_of_loops()
    symbol.dag, symbol.line = walk.dag, getattr(node, "lineno", None)
    walk.symbols.append(symbol)
    for _, tasks in walk.deps:
        for one in tasks.symbols:
            one.put_before([symbol])
    if dependencies:
        text = f"{dependencies} >> {text}"
    if walk.groups or made.is_branch or made.sql is not None:
        text = name_task(walk, text, symbol, base)
    for group in walk.groups:
        group.symbols.append(symbol)
        if group.collects:
            walk.sink.append(Code(f"{group.collects}.append({text})"))
    return text, Tasks([symbol])


def prefix_of_groups(walk: Walk) -> tuple[str, str]:
    """What groups that are open put before ids: as it is; or text of Python, where it is known only when the file runs."""
    texts: list[str] = []
    for group in walk.groups:
        texts = [*texts, *([group.prefix] if group.prefix else [])] if group.prefix is not None else []
    if all(isinstance(ast.parse(text, mode="eval").body, ast.Constant) for text in texts):
        return "".join(f"{ast.literal_eval(text)}." for text in texts), ""
    return "", ' + "." + '.join(texts)


def _upstream(walk: Walk) -> str:
    texts = list(dict.fromkeys(text for text, _ in walk.deps))
    return f"[{', '.join(texts)}]" if len(texts) > 1 else "".join(texts)


def _bound_by_loops(walk: Walk, body: str) -> str:
    """Of a loop's variables, those that the body uses: each task must keep its own."""
    used = names_in(ast.parse(f"def f():\n{textwrap.indent(body, '    ')}\n    pass"))
    return ", ".join(f"{name}={name}" for name in sorted(walk.names_of_loops() & used))
