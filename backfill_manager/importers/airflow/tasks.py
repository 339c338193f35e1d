"""Operators: the tasks that they make."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Mapping
from types import MappingProxyType

from backfill_manager.importers.airflow.expressions import Expressions
from backfill_manager.importers.airflow.functions import (
    CONTEXT,
    ONLY_THESE,
    ContextFunction,
    of_context,
    rewrite,
    whole_context,
)
from backfill_manager.importers.airflow.operators import READERS, Made, missing
from backfill_manager.importers.airflow.settings import AIRFLOWS_RETRY_DELAY
from backfill_manager.importers.airflow.walk import Function, Result, Symbol, Tasks
from backfill_manager.importers.draft import Code, DraftTask, Remark
from backfill_manager.importers.writer import call, keywords, quoted, unparse


class TaskMaker(Expressions):
    def _made(self, node: ast.Call) -> tuple[str, Tasks | None] | None:
        """A call that makes a task; None: it is another."""
        if self._is_operator(node):
            return self._operator(node)
        match node.func:
            case ast.Name(id=name) if isinstance(function := self.known.get(name), Function):
                return self._function_call(function, node)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="override")) as override if isinstance(
                function := self.known.get(name), Function
            ):
                return self._function_call(function, node, self.settings_of(override))
            case ast.Attribute(value=owner, attr="expand" | "expand_kwargs"):
                return self._expanded(node, owner)
            case ast.Call(func=decorator, args=[ast.Name(id=name)]) if (
                self._last(decorator) == "task" and name in self.functions
            ):
                settings = self.settings_of(decorator) if isinstance(decorator, ast.Call) else {}
                return self._function_call(Function(self.functions[name], "python", settings), node)
        return None

    def _function_call(
        self, function: Function, node: ast.Call, override: Mapping[str, ast.expr] = MappingProxyType({})
    ) -> tuple[str, Tasks | None]:
        function = Function(function.node, function.kind, {**function.settings, **override})
        return self._group_call(function, node) if function.kind == "group" else self._task_call(function, node)

    def _operator(self, node: ast.Call) -> tuple[str, Tasks]:
        name = self.source.dotted(node.func).rpartition(".")[2]
        target, self.target = self.target, None
        with self.of_one_task() as notes:
            given = dict(zip(("task_id",), node.args, strict=False)) | self.settings_of(node)
            reader = READERS.get(name)
            if reader is None:
                made = missing(
                    self, node, name, "Write here what it did, by the library of the service", frozenset(given)
                )
            else:
                made = reader(self, node, given)
            self._take_order_of(given, is_missing=made.is_missing)
            settings = self.reader.of_task(given, made.known) | made.settings
            self.target = target
            return self._task(node, given.get("task_id"), settings, made, notes, name)

    def _take_order_of(self, given: Mapping[str, ast.expr], *, is_missing: bool) -> None:
        """Arguments that have results of other tasks put the task after them, also where nothing here takes the value."""
        for name, value in given.items():
            if name in ("dag", "task_group"):
                continue
            if is_missing and any(isinstance(one, ast.Call) and self._makes(one) for one in ast.walk(value)):
                self.at_runtime(value)
                continue
            named = {
                id(one.value) for one in ast.walk(value) if isinstance(one, ast.Attribute) and one.attr != "output"
            }
            for one in ast.walk(value):
                found = self.known.get(one.id) if isinstance(one, ast.Name) and id(one) not in named else None
                deps = found.deps if isinstance(found, Result) else []
                if isinstance(found, Tasks) and isinstance(one, ast.Name):
                    deps = [(found.last or one.id, found)]
                self.deps += [
                    (text, tasks) for text, tasks in deps if all(each.dag is self.dag for each in tasks.symbols)
                ]

    def _task(
        self, node: ast.AST, id_node: ast.expr | None, settings: dict[str, str], made: Made, notes: list[Remark], kind: str,
        function: str | None = None, id_text: str | None = None,
    ) -> tuple[str, Tasks]:  # fmt: skip
        """Writes a task's function, where it has one; gives the expression that makes the task."""
        if id_node is None:
            id_node = ast.parse(id_text or quoted(kind), mode="eval").body
        task_id = self.reader.text_of(id_node)
        id_text = quoted(task_id) if task_id is not None else id_text or unparse(id_node)
        base = task_id or kind
        prefix, dynamic = self._prefix()
        if dynamic:
            id_text, task_id = f'{dynamic} + "." + {id_text}', None
        elif prefix:
            id_text = quoted(prefix + task_id) if task_id is not None else f"{quoted(prefix)} + {id_text}"
        if task_id is not None and not re.fullmatch(r"[A-Za-z0-9_.-]{1,200}", prefix + task_id):
            safe = re.sub(r"[^A-Za-z0-9_.-]+", "_", prefix + task_id)
            safe = safe.strip("_.") or f"task_{getattr(node, 'lineno', 0)}"
            self.remark(
                node, f"the task id {task_id!r}", f"It is {safe!r} here: ids have letters of ASCII, digits, _, . and -"
            )
            id_text = quoted(safe)
        dependencies = self._dependencies()
        of_all = self.dag.settings.get("default_args", "") if self.dag is not None else "retry_delay"
        if settings.get("retries", "0") != "0" and "retry_delay" not in {*settings, *re.findall(r"\w+", of_all)}:
            settings = {**settings, "retry_delay": AIRFLOWS_RETRY_DELAY}
        if made.sql is not None:
            symbol = Symbol(id_text, task_id is not None, None)
            self.sink += notes
            text = call("sql", [id_text, made.sql, *keywords(settings)])
        else:
            name = function or self._function_name(base if dynamic else task_id, kind)
            plain = {**({} if id_text == quoted(name) else {"task_id": id_text}), **settings}
            draft = DraftTask(name, plain, made.body, self._bound(made.body), remarks=list(notes))
            self.sink.append(draft)
            symbol = Symbol(id_text, task_id is not None, draft, made.is_branch, made.skips_all, bool(made.over))
            if made.with_result:
                self.shells.append((symbol, made.with_result))
            text = f"{name}.expand(over={made.over})" if made.over else f"{name}()"
        symbol.rule, symbol.loop_names = settings.get("trigger_rule"), self._loop_names()
        symbol.dag, symbol.line = self.dag, getattr(node, "lineno", None)
        self.symbols.append(symbol)
        for _, tasks in self.deps:
            for one in tasks.symbols:
                one.put_before([symbol])
        if dependencies:
            text = f"{dependencies} >> {text}"
        if self.groups or made.is_branch or made.sql is not None:
            text = self._named(text, symbol, base)
        for group in self.groups:
            group.symbols.append(symbol)
            if group.collects:
                self.sink.append(Code(f"{group.collects}.append({text})"))
        return text, Tasks([symbol])

    def _prefix(self) -> tuple[str, str]:
        """What groups that are open put before ids: as it is; or text of Python, where it is known only when the file runs."""
        texts: list[str] = []
        for group in self.groups:
            texts = [*texts, *([group.prefix] if group.prefix else [])] if group.prefix is not None else []
        if all(isinstance(ast.parse(text, mode="eval").body, ast.Constant) for text in texts):
            return "".join(f"{ast.literal_eval(text)}." for text in texts), ""
        return "", ' + "." + '.join(texts)

    def _dependencies(self) -> str:
        texts = list(dict.fromkeys(text for text, _ in self.deps))
        if len(texts) == 1:
            return texts[0]
        return f"[{', '.join(texts)}]" if texts else ""

    def _bound(self, body: str) -> str:
        """Of a loop's variables, those that the body uses: each task must keep its own."""
        used = {
            node.id
            for node in ast.walk(ast.parse(textwrap.dedent(f"def f():\n{textwrap.indent(body, '    ')}\n    pass")))
            if isinstance(node, ast.Name)
        }
        return ", ".join(f"{name}={name}" for name in sorted(self._loop_names() & used))

    def called(self, node: ast.expr, arguments: Mapping[str, ast.expr]) -> str:
        """A call of an operator's function, with the values that the operator has for it."""
        given = []
        op_args, op_kwargs = arguments.get("op_args"), arguments.get("op_kwargs")
        if isinstance(op_args, ast.List | ast.Tuple):
            given += [self.at_runtime(one) for one in op_args.elts]
        elif op_args is not None:
            given.append(f"*{self.at_runtime(op_args)}")
        if isinstance(op_kwargs, ast.Dict) and all(isinstance(key, ast.Constant) for key in op_kwargs.keys):
            given += [
                f"{key.value!s}={self.at_runtime(value)}"
                for key, value in zip(op_kwargs.keys, op_kwargs.values, strict=True)
                if isinstance(key, ast.Constant)
            ]
        elif op_kwargs is not None:
            given.append(f"**{self.at_runtime(op_kwargs)}")
        if "templates_dict" in arguments:
            given.append(f"templates_dict={self.at_runtime(arguments['templates_dict'])}")
        if isinstance(node, ast.Lambda):
            given += self._context_of(node, [one.partition("=")[0] for one in given if not one.startswith("*")])
            return unparse(node.body) if not given and not node.args.args else call(f"({unparse(node)})", given)
        if isinstance(node, ast.Name) and node.id in self.functions:
            function = self._context_function(self.functions[node.id])
            return call(node.id, [*(["ctx"] if function.uses_ctx else []), *given])
        if isinstance(node, ast.Name) and node.id in self.source.origins:
            instead = "It gets no context of Airflow: pass it what it needs of ctx"
            self.remark(node, f"{node.id} comes from another file", instead)
        return call(self._kept_text(node), given)

    def _context_of(self, node: ast.Lambda, given: list[str]) -> list[str]:
        """What a function without a name takes of the context; `given`: the names of its other arguments, or their values."""
        named = [one.arg for one in node.args.args if one.arg in CONTEXT and one.arg not in given]
        taken = [f"{name}={of_context(name) or 'None'}" for name in named]
        for name in named:
            if of_context(name) is None:
                self.remark(node, f"`{name}` of the context", "ctx has no equal; see docs/authoring.md")
        if node.args.kwarg is not None:
            self.remark(node, f"`{node.args.kwarg.arg}`, the whole context", ONLY_THESE)
            entries = [text for key, text in whole_context().items() if key not in (*named, *given)]
            taken.append(f"**{{{', '.join(entries)}}}")
        return taken

    def _context_function(
        self, node: ast.FunctionDef, given: set[str] | None = None, positional: int = 0
    ) -> ContextFunction:
        if node.name not in self.rewritten:
            names, count = self.callables.get(node.name, (set(), 0))
            self.rewritten[node.name] = rewrite(self.source, node, names | (given or set()), count or positional)
        return self.rewritten[node.name]
