"""The statements of a DAG's body, one by one, and what of a file stays as it is."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence

from backfill_manager.importers.airflow.functions import ContextFunction, instead_of_class
from backfill_manager.importers.airflow.taskflow import TaskFlow, after_docstring, names_of
from backfill_manager.importers.airflow.walk import STATEMENT_NAMES, Function, Tasks, defaults_of
from backfill_manager.importers.draft import Block, Code, DraftDag, Item, Remark
from backfill_manager.importers.source import bound_by, keywords_of, names_in
from backfill_manager.importers.writer import shifted, unparse


class Body(TaskFlow):
    def inner(self, node: ast.stmt) -> None:
        comments = [Code(text) for text in self.source.comments_before(node)]
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self._define(node)
            case ast.Import() | ast.ImportFrom():
                before = len(self.result.imports)
                self._import(node)
                self.sink += [Code(text) for text in self.result.imports[before:]]
                del self.result.imports[before:]
            case ast.With(items=[ast.withitem(context_expr=ast.Call() as made, optional_vars=name)]) if (
                self._last(made) == "TaskGroup"
            ):
                self.sink += comments
                self._with_group(made, name, node.body)
            case ast.With(items=[ast.withitem(context_expr=ast.Name(id=name))]) if isinstance(
                self.known.get(name), DraftDag
            ):
                for one in node.body:
                    self.inner(one)
            case ast.With(items=[ast.withitem(context_expr=ast.Call() as made, optional_vars=name)]) if (
                self._last(made) == "DAG"
            ):
                self._with_dag(node, made, name)
            case ast.With(items=[ast.withitem(context_expr=made_)]) if self._concerns_tasks(made_):
                self.sink += comments
                text, teardown = self.value(self._with_names(made_))
                text = self._settled(text)
                inner_tasks, _ = self._group(node, "", "within", node.body)
                if teardown is not None and inner_tasks.symbols:
                    setups = sorted(
                        {str(up.variable) for one in teardown.symbols for up in one.upstream if up.variable}
                    )
                    self._flush(self._ordered((inner_tasks.last or "[]", inner_tasks), (text, teardown))[0])
                    for setup in setups:
                        self._flush(f"{setup} >> {inner_tasks.first}")
            case ast.With() if any(
                self._is_airflow(one.context_expr.func) for one in node.items if isinstance(one.context_expr, ast.Call)
            ):
                for item in node.items:
                    self.remark(node, unparse(item.context_expr)[:60], "It has no equal here")
                for inner in node.body:
                    self.inner(inner)
            case ast.For() | ast.While() | ast.If() | ast.With() | ast.Try() if self._concerns_tasks(node):
                self.sink += comments
                self._block(node, self.inner)
            case ast.Expr(value=ast.Constant()):
                return
            case ast.Return(value=value) if value is not None and self._concerns_tasks(node):
                text, _ = self.value(value)
                self.sink.append(Code(f"return {text}"))
            case ast.Assign(targets=[ast.Attribute(attr=attr) as target]) if (
                attr.startswith("doc") or attr == "trigger_rule"
            ):
                if not attr.startswith("doc"):
                    self.remark(node, unparse(target), "Set it where the task is made")
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if self._names_result(value):
                self.known[name] = self._part_of_result(value)
            case ast.Assign() | ast.AugAssign() | ast.Expr(value=ast.Call(func=ast.Attribute())) if self._names_result(
                node
            ) and not self._concerns_tasks(node):
                self._comment_out(
                    node, "a result that the DAG's body uses", "It is known when a task runs: use it there"
                )
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign() | ast.Expr() if self._concerns_tasks(node):
                self.sink += comments
                self._assign(node)
            case _:
                self._keep(node)

    def _block(self, node: ast.stmt, inner: Callable[[ast.stmt], None]) -> None:
        """A compound statement, whose statements are handled one by one."""
        is_loop = isinstance(node, ast.For | ast.While)
        if is_loop:
            self.loops.append({*bound_by(node)})
        match node:
            case ast.For(target=target, iter=values):
                header = f"for {unparse(target)} in {self._plain(values)}:"
                tasks = self.known.get(values.id) if isinstance(values, ast.Name) else None
                if isinstance(tasks, Tasks) and isinstance(target, ast.Name):
                    self.known[target.id] = Tasks(tasks.symbols)
            case ast.While(test=test):
                header = f"while {unparse(test)}:"
            case ast.If(test=test):
                header = f"if {self._plain(test)}:"
            case ast.With(items=items):
                header = f"with {', '.join(map(unparse, items))}:"
            case _:
                header = "try:"
        parts: list[tuple[str, list[ast.stmt]]] = [(header, node.body)]  # type: ignore[attr-defined]
        parts += [
            (f"except{' ' + unparse(one.type) if one.type else ''}{' as ' + one.name if one.name else ''}:", one.body)
            for one in getattr(node, "handlers", [])
        ]
        parts += [
            (head, rest)
            for head, name in (("else:", "orelse"), ("finally:", "finalbody"))
            if (rest := getattr(node, name, None))
        ]
        for head, statements in parts:
            block = Block(head, [])
            self.sink.append(block)
            with self.into(block.items):
                for one in statements:
                    inner(one)
        if is_loop:
            self.loops.pop()

    def _with_names(self, node: ast.expr) -> ast.expr:
        """A call with a variable for each argument that makes a task."""
        if not isinstance(node, ast.Call):
            return node
        arguments = list(node.args)
        for number, one in enumerate(arguments):
            text, tasks = self.value(one) if self._makes(one) else ("", None)
            if tasks and len(tasks.symbols) == 1:
                name = tasks.symbols[0].variable or self._named(text, tasks.symbols[0], text.partition("(")[0])
                self.known[name] = tasks
                arguments[number] = ast.copy_location(ast.Name(name, ast.Load()), one)
        return ast.copy_location(ast.Call(node.func, arguments, node.keywords), node)

    def _assign(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Expr) -> None:
        if isinstance(node, ast.Expr):
            self._expression(node.value)
            return
        value = node.value
        assert value is not None
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if len(targets) == 1 and isinstance(targets[0], ast.Name) and self._is_part_of_result(value):
            self.known[targets[0].id] = self._part_of_result(value)
            return
        if (
            len(targets) == 1
            and isinstance(targets[0], ast.Name)
            and targets[0].id in self.stored_once
            and self._makes(value)
        ):
            self.target = targets[0].id
        text, found = self.value(value)
        self.target = None
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in self.makers:
            found = found or Tasks([], is_list=value.func.id in self.makers_of_lists)
        for target in targets:
            match target, found:
                case ast.Name(id=name), Tasks(symbols=symbols, is_list=is_list, first=first):
                    self.known[name] = found if not is_list or first else Tasks(symbols, is_list=True)
                    if len(symbols) == 1 and not is_list and not self.loops and first is None:
                        symbols[0].variable = symbols[0].variable or name
                case ast.Tuple(elts=elements), Tasks(symbols=symbols) if len(elements) == len(symbols):
                    for one, symbol in zip(elements, symbols, strict=True):
                        if isinstance(one, ast.Name):
                            self.known[one.id] = Tasks([symbol])
                case ast.Subscript(value=ast.Name(id=name)), Tasks(symbols=symbols):
                    before = self.known.get(name)
                    self.known[name] = Tasks(
                        [*(before.symbols if isinstance(before, Tasks) else []), *symbols], is_list=True
                    )
        written = " = ".join(map(unparse, targets))
        if text == written:
            return
        if isinstance(found, Tasks) and found.first is not None and text == found.last:
            return  # a group's names stand for it
        self.sink.append(Code(f"{written} {'+' if isinstance(node, ast.AugAssign) else ''}= {text}"))

    def _expression(self, node: ast.expr) -> None:
        match node:
            case ast.Call(args=arguments) if self._last(node) in STATEMENT_NAMES:
                self._chain(self._last(node), node, arguments)
                return
            case ast.Call(
                func=ast.Attribute(value=owner, attr="set_downstream" | "set_upstream" as method), args=[other, *_]
            ):
                before, after = (owner, other) if method == "set_downstream" else (other, owner)
                text, _ = self._ordered(self.value(before), self.value(after))
                self.sink.append(Code(text))
                return
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append" | "extend"), args=[added]):
                text, found = self.value(added)
                before_ = self.known.get(name)
                if isinstance(found, Tasks):
                    self.known[name] = Tasks(
                        [*(before_.symbols if isinstance(before_, Tasks) else []), *found.symbols], is_list=True
                    )
                self.sink.append(Code(f"{name}.{node.func.attr}({text})"))  # type: ignore[attr-defined]
                return
        text, _ = self.value(node)
        tree = ast.parse(text, mode="eval").body
        if not isinstance(tree, ast.Name | ast.Constant) and not (
            isinstance(tree, ast.List) and all(isinstance(one, ast.Name) for one in tree.elts)
        ):
            self.sink.append(Code(text))

    def _keep(self, node: ast.stmt) -> None:
        airflow = [*self.source.names_from("airflow", node), *sorted(names_in(node) & self.airflow_classes)]
        if isinstance(node, ast.ClassDef):  # in its methods, at run time
            for origin in sorted({self.source.origins[name] for name in airflow if name in self.source.origins}):
                self.remark(node, f"{origin} is used in {node.name}", instead_of_class(origin))
            airflow = []
        airflow += sorted(name for name in names_in(node) if isinstance(self.known.get(name), DraftDag))
        consumed = (
            node.targets[0].id if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) else None
        )
        if airflow and consumed and not isinstance(node.value, ast.Call):  # type: ignore[attr-defined]
            written = unparse(node)
            if consumed in self.reader.constants and "default" in written:
                self.reader.consumed.add(consumed)
                return
        if airflow:
            origin = self.source.origins.get(airflow[0], airflow[0])
            self._comment_out(node, f"{origin} is used", instead_of_class(origin))
            return
        item = Code("\n".join([*self.source.comments_before(node), self.source.segment(node)]))
        self.sink.append(item)
        if consumed is not None and consumed in self.reader.constants:
            self.optional[id(item)] = consumed

    def _keep_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name in self.makers and isinstance(node, ast.FunctionDef):
            self._keep_maker(node)
            return
        comments = self.source.comments_before(node)
        if isinstance(node, ast.AsyncFunctionDef):
            self._keep(node)
            return
        known = self.known.get(node.name)
        is_task = isinstance(known, Function) or node.name in self.callables
        calls = [
            one for one in ast.walk(self.source.tree) if isinstance(one, ast.Call) and node.name in names_in(one.func)
        ]
        given = {name for one in calls for name in keywords_of(one)} if isinstance(known, Function) else None
        positional = max((len(one.args) for one in calls if isinstance(one.func, ast.Name)), default=0)
        if is_task:
            context = self._context_function(node, given, positional)
        else:
            context = ContextFunction(node, [one.arg for one in node.args.args], body=self.source.body(node))
            for name in self.source.names_from("airflow", node):
                origin = self.source.origins[name]
                context.remarks.append(
                    Remark(node.lineno, f"{origin} is used in {node.name}", instead_of_class(origin))
                )
        self._add_remarks(*context.remarks)
        header = self._header(node, context) if is_task or context.remarks or node.decorator_list else None
        if header is None:
            self.sink.append(Code("\n".join([*comments, self.source.segment(node)])))
            return
        text = f"{header}\n{shifted(after_docstring(context.body, context.preamble), 4)}"
        self.sink.append(Code("\n".join([*comments, text])))

    def _header(self, node: ast.FunctionDef, context: ContextFunction) -> str:
        arguments, kept, defaults = node.args, set(context.parameters), defaults_of(node)

        def written(parameters: Sequence[ast.arg]) -> list[str]:
            return [self._parameter(one, defaults.get(one.arg)) for one in parameters if one.arg in kept]

        named = written(arguments.kwonlyargs)
        parts = ["ctx"] if context.uses_ctx else []
        parts += written([*arguments.posonlyargs, *arguments.args])
        parts += [f"*{arguments.vararg.arg}"] if arguments.vararg else ["*"] if named else []
        parts += named
        if (
            arguments.kwarg
            and re.search(rf"\b{arguments.kwarg.arg}\b", context.body)
            and f"{arguments.kwarg.arg} = " not in "\n".join(context.preamble)
        ) or (arguments.kwarg and (self.callables.get(node.name, (set(), 0))[0] - kept)):
            parts.append(f"**{arguments.kwarg.arg}")
        decorators = [f"@{unparse(one)}\n" for one in node.decorator_list if not self._is_airflow(one)]
        return f"{''.join(decorators)}{'async ' * (node.name in self.is_async)}def {node.name}({', '.join(parts)}):"

    def _parameter(self, one: ast.arg, default: ast.expr | None) -> str:
        is_known = one.annotation is not None and not any(
            self.source.names_from(package, one.annotation) for package in ("airflow", "pendulum", "typing")
        )
        annotation = f": {unparse(one.annotation)}" if is_known and one.annotation else ""
        return f"{one.arg}{annotation}" + (
            f"{' = ' if annotation else '='}{unparse(default)}" if default is not None else ""
        )

    def _keep_maker(self, node: ast.FunctionDef) -> None:
        """A helper that makes tasks or DAGs when it is called."""
        if len(node.args.args) and any(one.arg == "dag" for one in node.args.args):
            self.remark(node, f"{node.name} takes a DAG", "Call it in the body of the @dag function, without the DAG")
        block = Block(f"def {node.name}({unparse(node.args)}):", [])
        self.sink.append(block)
        outer, before = self.known.copy(), self.dag
        self.dag = None
        makes_dags = self._makes_dags(node)
        with self.into(block.items):
            for one in node.body:
                if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant):
                    continue
                returned = one.value if isinstance(one, ast.Return) else None
                if isinstance(returned, ast.Call) and isinstance(returned.func, ast.Name):
                    called = self.known.get(returned.func.id)
                    returned = returned.func if isinstance(called, DraftDag) else returned  # its function is the DAG
                if isinstance(returned, ast.Name):
                    found = self.known.get(returned.id)
                    if isinstance(found, DraftDag):
                        block.items.append(Code(f"return {found.function}"))
                        continue
                    text = returned.id
                    if isinstance(found, Tasks):
                        if found.is_list or found.first != found.last:
                            self.makers_of_lists.add(node.name)
                        # a group: all of it is put before and after others
                        text = (found.last if found.first == found.last else names_of(found.symbols)) or text
                    block.items.append(Code(f"return {text}"))
                    continue
                (self.top if makes_dags else self.inner)(one)
        self.dag = before
        self.known = outer
        for dag in open_dags(block.items):  # `dag = DAG(...)` in a function
            if dag in self.assigned:
                self.assigned.remove(dag)

    def _comment_out(self, node: ast.stmt, what: str, instead: str) -> None:
        self.remark(node, what, instead)
        lines = [f"# {line}".rstrip() for line in self.source.segment(node).splitlines()]
        names = (
            [] if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) else sorted(bound_by(node))
        )
        nothing = "None" if self.dag is None else "[]"  # which can be put in order with tasks
        self.sink.append(Code("\n".join([*lines, *(f"{name} = {nothing}" for name in names)])))


def open_dags(items: Sequence[Item]) -> Iterator[DraftDag]:
    for item in items:
        if isinstance(item, DraftDag):
            yield item
        elif isinstance(item, Block):
            yield from open_dags(item.items)
