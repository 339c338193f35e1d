"""What is known only when the whole file was read: what branches skip, whose output is a result, which constants are needed."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from typing import Final

from backfill_manager.importers.airflow.symbols import Symbol, Tasks
from backfill_manager.importers.airflow.walk import Walk
from backfill_manager.importers.draft import Block, Code, DraftDag, DraftTask, Item, Remark
from backfill_manager.importers.source import names_in
from backfill_manager.importers.writer import quoted, unparse, write

_SKIPPED_AFTER_SKIPS: Final = tuple(
    map(quoted, ("none_failed_min_one_success", "one_success", "none_skipped", "one_failed", "all_failed"))
)


def check_imports(walk: Walk) -> None:
    modules: set[str] = set()
    for node in ast.walk(ast.parse(write(walk.result))):
        match node:
            case ast.Import(names=names):
                modules |= {alias.name for alias in names}
            case ast.ImportFrom(module=str() as module, level=0):
                modules.add(module)
    imports = [one for one in ast.walk(walk.source.tree) if isinstance(one, ast.Import | ast.ImportFrom)]
    for lacks in sorted({lacks for module in modules if (lacks := _lacks(module))}):
        where = next((one for one in imports if lacks in unparse(one)), walk.source.tree)
        instead = "Install it for the bundle, or put it into the bundle if it is yours"
        walk.result.remarks.append(Remark.at(where, f"the module {lacks} is not installed here", instead))


def _lacks(module: str) -> str | None:
    """What of a module is not installed. No code of it is run: what a package with code has in it is not known."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or top in ("airflow", "backfill_manager"):
        return None
    spec = importlib.util.find_spec(top)
    if spec is None:
        return top
    try:
        return None if spec.origin is not None or importlib.util.find_spec(module) else module
    except ModuleNotFoundError as error:
        return error.name or module


def drop_unused(walk: Walk) -> None:
    """Takes out constants that only Airflow needed; those of operators that are not here become comments."""
    loaded = _loaded(walk.source.tree)
    while True:
        used = _loaded(ast.parse(write(walk.result)))
        unused = [number for number, name in walk.optional.items() if name in walk.reader.consumed - used]
        lost = [number for number, name in walk.optional.items() if name in loaded - used and number not in unused]
        if not unused and not lost:
            return
        _without(walk.result.items, set(unused))
        _commented(walk.result.items, set(lost))
        for number in (*unused, *lost):
            del walk.optional[number]


def _loaded(tree: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(tree) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}


def keep_outputs(walk: Walk) -> None:
    """Tasks whose result another task takes: the last line of a command, the condition of a short circuit."""
    taken = {found[1] for found in re.finditer(r"ctx\.result\(([^()]*)\)", write(walk.result))}
    for symbol, with_result in walk.with_results:
        known = [name for name, tasks in walk.known.items() if isinstance(tasks, Tasks) and symbol in tasks.symbols]
        names = {symbol.id_text, symbol.id_text.replace('"', "'"), *(f"{name}.task_id" for name in known)}
        if symbol.task is not None and names & taken:
            symbol.task.body = with_result


def guard_branches(walk: Walk) -> None:
    """Tasks directly after a branch skip themselves where it has not chosen them."""
    for branch in (one for one in walk.symbols if one.is_branch):
        if not branch.downstream:
            what = f"what comes after the branch {branch.id_text} is not known"
            _remark(walk, branch, what, "Call ctx.skip in what it has not chosen")
        for after in branch.downstream:
            if not any(after in _all_after(other) for other in branch.downstream - {after}):
                _guard(walk, branch, after)


def _guard(walk: Walk, branch: Symbol, after: Symbol) -> None:
    choice = f"(ctx.result({branch.id_text if branch.is_static else f'{branch.variable}.task_id'}) or [])"
    test = f"if {after.id_text} not in {choice}:"
    if after.is_static and "." in (id_ := str(ast.literal_eval(after.id_text))):  # its group may be chosen
        groups = [id_[: found.start()] for found in re.finditer(r"\.", id_)]
        test = f"if not {{{', '.join(map(quoted, [*groups, id_]))}}} & set{choice}:"
    guard = f'{test}\n    ctx.skip("not chosen by the branch before")'
    if after.task is not None:
        after.task.guards.append(guard)
        names = names_in(ast.parse(f"{after.id_text}, {choice}")) & (after.loop_names | branch.loop_names)
        bound = [one for one in after.task.parameters.split(", ") if one]
        after.task.parameters = ", ".join(dict.fromkeys([*bound, *(f"{name}={name}" for name in sorted(names))]))
    elif after.dag is not None and after.is_static and branch.variable and after.variable and not after.loop_names:
        name = walk.free_name(f"{walk.identifier(after.variable)}_chosen")
        id_text = quoted(f"{ast.literal_eval(after.id_text)}.chosen")
        after.dag.items.append(DraftTask(name, {"task_id": id_text}, guard))
        after.dag.items.append(Code(f"{branch.variable} >> {name}() >> {after.variable}"))
    else:
        what = f"the SQL task {after.id_text} comes after the branch {branch.id_text}"
        instead = "Put a Python task before it that skips itself, or make it one with ctx.spark.sql"
        _remark(walk, after, what, instead)


def say_short_circuits(walk: Walk) -> None:
    """Tasks that Airflow skips after a short circuit, whatever their rule is."""
    for gate in (one for one in walk.symbols if one.skips_all):
        skipped = _all_after(gate)
        for after in sorted(skipped, key=lambda one: (one.line or 0, one.id_text)):
            is_skipped_here = after.rule in _SKIPPED_AFTER_SKIPS and after.upstream <= {gate, *skipped}
            if after.rule is not None and not is_skipped_here:
                what = f"{after.id_text} comes after the short circuit {gate.id_text}, with the rule {after.rule}"
                instead = "Airflow skips it with the others, whatever its rule; here its rule decides"
                _remark(walk, after, what, instead)


def _remark(walk: Walk, symbol: Symbol, what: str, instead: str) -> None:
    walk.result.remarks.append(remark := Remark(symbol.line, what, instead))
    if symbol.task is not None:
        symbol.task.remarks.append(remark)


def _without(items: list[Item], numbers: set[int]) -> None:
    items[:] = [item for item in items if id(item) not in numbers]
    for item in items:
        if isinstance(item, Block | DraftDag):
            _without(item.items, numbers)


def _commented(items: list[Item], numbers: set[int]) -> None:
    for number, item in enumerate(items):
        if isinstance(item, Code) and id(item) in numbers:
            lines = item.text.splitlines()
            items[number] = Code("\n".join(line if line.startswith("#") else f"# {line}".rstrip() for line in lines))
        elif isinstance(item, Block | DraftDag):
            _commented(item.items, numbers)


def _all_after(symbol: Symbol) -> set[Symbol]:
    found: set[Symbol] = set()
    waiting = [symbol]
    while waiting:
        for one in waiting.pop().downstream - found:
            found.add(one)
            waiting.append(one)
    return found
