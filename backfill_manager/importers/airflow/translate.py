"""`translate`: a DAG file of Airflow as a `Draft`.

It keeps the shape of the file. A DAG's body becomes the body of a `@dag` function, statement by statement, loops and conditions
included; where a task is made, the function of ours that does the same is written and called. What is passed from task to task
becomes `ctx.result(...)` in the later one, and their order. Nothing is executed.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections.abc import Sequence
from typing import Final

from backfill_manager.importers.airflow.body import Body
from backfill_manager.importers.airflow.expressions import SETUP
from backfill_manager.importers.airflow.walk import (
    STATEMENT_NAMES,
    DagParam,
    Function,
    Symbol,
    Tasks,
    defaults_of,
    last_name,
)
from backfill_manager.importers.draft import Block, Code, Draft, DraftDag, DraftTask, Item, Remark
from backfill_manager.importers.source import Source, bound_by, called, is_airflow, names_in, parameters_of
from backfill_manager.importers.writer import OURS, quoted, unparse, write

_SKIPPED_AFTER_SKIPS: Final = tuple(
    map(quoted, ("none_failed_min_one_success", "one_success", "none_skipped", "one_failed", "all_failed"))
)
_WRITTEN_WITH: Final = {  # what drafts are written with; the writer leaves out what one does not use
    **{name: f"import {name}" for name in ("asyncio", "itertools", "os", "shlex", "subprocess")},
    **{name: f"from datetime import {name}" for name in ("datetime", "timedelta", "timezone")},
}
_DAG_METHODS: Final = ("test", "cli", "run", "clear", "doc_md")


def translate(text: str, file: str) -> Draft:
    """`SyntaxError` for what is no Python."""
    return _File(Source(_renamed(Source(text, file)), file)).draft()


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


class _File(Body):
    def draft(self) -> Draft:
        body = list(self.source.tree.body)
        if (doc := ast.get_docstring(self.source.tree, clean=False)) is not None:
            self.result.doc = doc.strip()
            body.pop(0)
        for statement in body:
            self.top(statement)
        for dag in self.assigned:
            self.result.items.append(dag)
        self._guard()
        self._keep_outputs()
        self._check_imports()
        bound = {name for text in self.result.imports for name in re.findall(r"\w+", text.partition("import ")[2])}
        self.result.imports += [text for name, text in _WRITTEN_WITH.items() if name not in bound]
        self._drop_unused()
        return self.result.finished("no DAG was found")

    def top(self, node: ast.stmt) -> None:
        """A statement outside of all DAGs."""
        match node:
            case ast.Import() | ast.ImportFrom():
                self._import(node)
            case ast.Try() | ast.If() if all(
                isinstance(one, ast.Import | ast.ImportFrom | ast.Pass) for one in self._all_of(node)
            ):
                for one in self._all_of(node):
                    if isinstance(one, ast.Import | ast.ImportFrom):
                        self._import(one)
            case ast.If(test=test) if "__name__" in names_in(test) or "TYPE_CHECKING" in names_in(test):
                return
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self._define(node)
            case ast.With(items=[ast.withitem(context_expr=ast.Call() as made, optional_vars=name)]) if (
                self._last(made) == "DAG"
            ):
                self._with_dag(node, made, name)
            case ast.With(items=[ast.withitem(context_expr=ast.Name(id=name))]) if isinstance(
                dag := self.known.get(name), DraftDag
            ):
                self._in_dag(dag, node.body)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as made) if self._last(made) == "DAG":
                self.known[name] = dag = self._new_dag(made, name)
                if self.loops or self.sink is not self.result.items:
                    self.sink.append(dag)
                else:
                    self.assigned.append(dag)
            case (
                ast.Assign(value=ast.Call(func=ast.Name(id=name))) | ast.Expr(value=ast.Call(func=ast.Name(id=name)))
            ) if isinstance(self.known.get(name), DraftDag):
                for target in getattr(node, "targets", []):
                    if isinstance(target, ast.Name):
                        self.known[target.id] = self.known[name]
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method))) if (
                isinstance(self.known.get(name), DraftDag) and method in _DAG_METHODS
            ):
                return
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id=name), attr="doc_md")], value=value) if (
                name in self.known
            ):
                self._doc_of(name, value)
            case ast.If(test=test) if self._makes_dags(node) and self.source.names_from("airflow", test):
                self.remark(node, f"if {unparse(test)}", "It is taken to hold for the DAGs below")
                for one in self._all_of(node):
                    if self._makes_dags(one) or self._concerns_tasks(one):
                        self.top(one)
            case ast.For() | ast.While() | ast.If() if self._makes_dags(node):
                self._block(node, self.top)
            case _ if (dag := self._dag_of(node)) is not None:
                self._in_dag(dag, [node])
            case _:
                self._keep(node)

    def _all_of(self, node: ast.stmt) -> list[ast.stmt]:
        parts = [*(getattr(node, name, []) for name in ("body", "orelse", "finalbody"))]
        return [one for part in (*parts, *(each.body for each in getattr(node, "handlers", []))) for one in part]

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
        if is_airflow(module):
            return
        if isinstance(node, ast.Import):
            names = [alias for alias in node.names if not is_airflow(alias.name)]
            self.result.imports += [unparse(ast.Import([alias])) for alias in names]
        else:
            self.result.imports.append(unparse(node))

    def _check_imports(self) -> None:
        text = write(self.result)
        for node in ast.walk(ast.parse(text)):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []
            for top in {module.partition(".")[0] for module in modules}:
                if top in sys.stdlib_module_names or is_airflow(top) or top == "backfill_manager":
                    continue
                if importlib.util.find_spec(top) is None:
                    where = next((one for one in ast.walk(self.source.tree) if isinstance(one, ast.Import | ast.ImportFrom)
                                  and top in unparse(one)), self.source.tree)  # fmt: skip
                    instead = "Install it for the bundle, or put it into the bundle if it is yours"
                    self.result.remarks.append(Remark.at(where, f"the module {top} is not installed here", instead))

    def _drop_unused(self) -> None:
        """Constants that only Airflow needed."""
        while True:
            used = {
                node.id
                for node in ast.walk(ast.parse(write(self.result)))
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
            }
            unused = [number for number, name in self.optional.items() if name in self.reader.consumed - used]
            if not unused:
                return
            _without(self.result.items, set(unused))
            for number in unused:
                del self.optional[number]

    def _makes_dags(self, node: ast.stmt) -> bool:
        return any(
            (isinstance(one, ast.Call) and self._last(one) == "DAG")
            or (isinstance(one, ast.FunctionDef) and any(self._last(each) == "dag" for each in one.decorator_list))
            for one in ast.walk(node)
        )

    def _dag_of(self, node: ast.stmt) -> DraftDag | None:
        """Of a statement beside `dag = DAG(...)`: the DAG whose tasks it makes or puts in order."""
        makes = False
        for one in ast.walk(node):
            match one:
                case ast.keyword(arg="dag", value=ast.Name(id=name)) if isinstance(
                    dag := self.known.get(name), DraftDag
                ):
                    return dag
                case ast.Call() if self._is_operator(one) or self._last(one) in (*STATEMENT_NAMES, "TaskGroup"):
                    makes = True
                case ast.Name(id=name) if isinstance(self.known.get(name), Tasks):
                    makes = True
                case ast.Call(func=ast.Name(id=name)) if isinstance(self.known.get(name), Function) or (
                    name in self.makers and self.assigned
                ):
                    makes = True
        open_dags = self.assigned or self.opened
        return open_dags[-1] if makes and open_dags else None

    def _in_dag(self, dag: DraftDag, statements: Sequence[ast.stmt]) -> None:
        outer, self.dag = self.dag, dag
        with self.into(dag.items):
            for one in statements:
                self.inner(one)
        self.dag = outer

    def _define(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        """A function or class."""
        if isinstance(node, ast.ClassDef):
            if node.name in self.airflow_classes or any(
                self._is_airflow(one) for base in node.bases for one in ast.walk(base)
            ):
                self._comment_out(
                    node, f"the class {node.name} of Airflow", "Write what it does as a function that a task calls"
                )
            else:
                self._keep(node)
            return
        decorator = next(filter(self._is_airflow, node.decorator_list), None)
        if decorator is None:
            self._keep_function(node)
            return
        dotted = self.source.dotted(called(decorator))
        settings = self.settings_of(decorator) if isinstance(decorator, ast.Call) else {}
        last = dotted.rpartition(".")[2]
        if isinstance(node, ast.AsyncFunctionDef):
            self.is_async.add(node.name)
            node = ast.copy_location(ast.FunctionDef(**{name: getattr(node, name) for name in node._fields}), node)
            self.functions[node.name] = node
        if last == "dag":
            self._decorated_dag(node, decorator, settings)
        elif last == "task_group":
            self.known[node.name] = Function(node, "group", settings)
        elif ".task" in f".{dotted}" or last in ("setup", "teardown"):
            kind = dotted.rpartition("task.")[2] if "task." in dotted else "python" if last == "task" else last
            others = [one for one in node.decorator_list if one is not decorator]
            if last in ("setup", "teardown") or any(self._last(one) in ("setup", "teardown") for one in others):
                is_teardown = "teardown" in (last, *(self._last(one) for one in others))
                self.remark(node, f"{'teardown' if is_teardown else 'setup'} task {node.name}", SETUP)
                kind = "python" if kind in ("setup", "teardown") else kind
                settings |= {"trigger_rule": ast.Constant("all_done")} if is_teardown else {}
            for one in others:
                if self._last(one) in ("run_if", "skip_if"):
                    self.remark(one, f"@task.{self._last(one)}", "Begin the task with `if ...: ctx.skip(reason)`")
                elif self._last(one) not in ("setup", "teardown") and self._is_airflow(one):
                    settings |= self.settings_of(one) if isinstance(one, ast.Call) else {}
            self.known[node.name] = function = Function(node, kind, settings)
            if not self._is_inlined(function):
                self._keep_function(node)
        else:
            self._comment_out(
                node, f"{node.name}, decorated by @{last}", "Make a DAG with a task that writes the table"
            )

    def _with_dag(self, node: ast.With, made: ast.Call, name: ast.expr | None) -> None:
        dag = self._new_dag(made, name.id if isinstance(name, ast.Name) else "dag_")
        self.sink += [Code(text) for text in self.source.comments_before(node)]
        self.sink.append(dag)
        if self.sink is self.result.items:
            self.opened.append(dag)
        if isinstance(name, ast.Name):
            self.known[name.id] = dag
        self._in_dag(dag, node.body)

    def _new_dag(self, made: ast.Call, variable: str) -> DraftDag:
        given = self.settings_of(made)
        given |= dict(zip(("dag_id", "description", "schedule"), made.args, strict=False))
        dag_id = given.get("dag_id")
        text = self.reader.text_of(dag_id)
        name = (
            self._name_of(text)
            if text
            else f"{variable.rstrip('_')}_{made.lineno}"
            if variable.startswith("dag")
            else variable
        )
        return self._dag(made, given, name, None if text == name else unparse(dag_id) if dag_id else None, text)

    def _dag(
        self, node: ast.AST, given: dict[str, ast.expr], name: str, id_text: str | None, dag_id: str | None = None
    ) -> DraftDag:
        dag = DraftDag(name, {})
        with self.noting(dag.remarks):
            default_args = self.reader.of_mapping(given.get("default_args"))
            settings = self.reader.of_dag(given, default_args, node)
        dag.settings = {**({"dag_id": id_text} if id_text else {}), **settings}
        if dag_id is not None and not re.fullmatch(r"[A-Za-z0-9_.-]{1,200}", dag_id):
            dag.settings["dag_id"] = quoted(re.sub(r"[^A-Za-z0-9_.-]+", "_", dag_id))
        if doc := self.reader.text_of(given.get("doc_md")):
            dag.doc = doc.strip()
        return dag

    def _decorated_dag(self, node: ast.FunctionDef, decorator: ast.expr, given: dict[str, ast.expr]) -> None:
        if isinstance(decorator, ast.Call):
            given = given | dict(zip(("dag_id", "description", "schedule"), decorator.args, strict=False))
        text = self.reader.text_of(given.get("dag_id"))
        id_text = unparse(given["dag_id"]) if "dag_id" in given and text != node.name else None
        dag = self._dag(decorator, given, node.name, id_text, text)
        self.known[node.name] = dag
        defaults, params = defaults_of(node), []
        with self.noting(dag.remarks):
            for name in (one.arg for one in parameters_of(node)):
                self.known[name] = DagParam(name)
                default = self.reader.param(defaults[name], name) if name in defaults else None
                params.append(f"{quoted(name)}: {default or 'None'}")
        if params:
            dag.settings["params"] = "{" + ", ".join(params) + "}"
        body = list(node.body)
        if (doc := ast.get_docstring(node)) is not None:
            dag.doc = doc.strip()
            body.pop(0)
        self.sink += [Code(text) for text in self.source.comments_before(node)]
        self.sink.append(dag)
        outer = self.known.copy()
        self._in_dag(dag, [one for one in body if not isinstance(one, ast.Return)])
        self.known |= {name: known for name, known in outer.items() if isinstance(known, DraftDag)}

    def _doc_of(self, name: str, value: ast.expr) -> None:
        dag = self.known[name]
        if isinstance(dag, DraftDag):
            if text := self.text_of(value):
                dag.doc = text.strip()
            elif isinstance(value, ast.Name) and value.id == "__doc__":
                dag.doc = self.result.doc

    def _keep_outputs(self) -> None:
        """Commands whose last line another task takes as their result."""
        taken = {found[1] for found in re.finditer(r"ctx\.result\(([^()]*)\)", write(self.result))}
        for symbol, with_result in self.shells:
            variables = {
                f"{name}.task_id"
                for name, known in self.known.items()
                if isinstance(known, Tasks) and symbol in known.symbols
            }
            if symbol.task is not None and (
                symbol.id_text in taken or symbol.id_text.replace('"', "'") in taken or variables & taken
            ):
                symbol.task.body = with_result

    def _guard(self) -> None:
        """Tasks directly after a branch skip themselves where it has not chosen them."""
        for gate in (one for one in self.symbols if one.skips_all):
            skipped = _all_after(gate)
            for after in sorted(skipped, key=lambda one: (one.line or 0, one.id_text)):
                is_skipped_here = after.rule in _SKIPPED_AFTER_SKIPS and after.upstream <= {gate, *skipped}
                if after.rule is not None and not is_skipped_here:
                    what = f"{after.id_text} comes after the short circuit {gate.id_text}, with the rule {after.rule}"
                    instead = "Airflow skips it with the others, whatever its rule; here its rule decides"
                    self.result.remarks.append(remark := Remark(after.line, what, instead))
                    if after.task is not None:
                        after.task.remarks.append(remark)
        for branch in (one for one in self.symbols if one.is_branch):
            for after in branch.downstream:
                others = branch.downstream - {after}
                if any(after in _all_after(other) for other in others):
                    continue
                choice = (
                    f"(ctx.result({branch.id_text}) or [])"
                    if branch.is_static
                    else f"(ctx.result({branch.variable}.task_id) or [])"
                )
                test = f"if {after.id_text} not in {choice}:"
                if after.is_static and "." in (id_ := str(ast.literal_eval(after.id_text))):  # its group may be chosen
                    groups = [id_[: found.start()] for found in re.finditer(r"\.", id_)]
                    test = f"if not {{{', '.join(map(quoted, [*groups, id_]))}}} & set{choice}:"
                if after.task is not None:
                    after.task.guards.append(f'{test}\n    ctx.skip("not chosen by the branch before")')
                    names = names_in(ast.parse(f"{after.id_text}, {choice}")) & (after.loop_names | branch.loop_names)
                    bound = [one for one in after.task.parameters.split(", ") if one]
                    after.task.parameters = ", ".join(
                        dict.fromkeys([*bound, *(f"{name}={name}" for name in sorted(names))])
                    )
                elif (
                    after.dag is not None
                    and after.is_static
                    and branch.variable
                    and after.variable
                    and not after.loop_names
                ):
                    body = f'{test}\n    ctx.skip("not chosen by the branch before")'
                    name = self._free_name(f"{self._identifier(after.variable)}_chosen")
                    id_text = quoted(f"{ast.literal_eval(after.id_text)}.chosen")
                    after.dag.items += [
                        DraftTask(name, {"task_id": id_text}, body),
                        Code(f"{branch.variable} >> {name}() >> {after.variable}"),
                    ]
                else:
                    instead = "Put a Python task before it that skips itself, or make it one with ctx.spark.sql"
                    what = f"the SQL task {after.id_text} comes after the branch {branch.id_text}"
                    self.result.remarks.append(Remark(after.line, what, instead))


def _without(items: list[Item], numbers: set[int]) -> None:
    items[:] = [item for item in items if id(item) not in numbers]
    for item in items:
        if isinstance(item, Block | DraftDag):
            _without(item.items, numbers)


def _all_after(symbol: Symbol) -> set[Symbol]:
    found: set[Symbol] = set()
    waiting = [symbol]
    while waiting:
        for one in waiting.pop().downstream - found:
            found.add(one)
            waiting.append(one)
    return found
