"""TaskFlow: functions of `@task` and `@task_group`, and mapped tasks."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Final

from backfill_manager.importers.airflow.operators import Made, missing, returned_branch, shell, skips_all
from backfill_manager.importers.airflow.tasks import TaskMaker
from backfill_manager.importers.airflow.walk import STATEMENT_NAMES, Function, Group, Symbol, Tasks, defaults_of
from backfill_manager.importers.draft import Code, Item
from backfill_manager.importers.source import keywords_of, with_positional
from backfill_manager.importers.writer import call, quoted, unparse

_LOOPS: Final = (ast.For, ast.While, ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)


OTHER_ENVIRONMENTS: Final = (
    "virtualenv", "external_python", "docker", "kubernetes", "branch_virtualenv", "branch_external_python",
)  # fmt: skip


_ONE_BY_ONE: Final = (
    "Here one task does all of them, one after another; `.expand(over=[...])` with `ctx.mapped_value` gives each a state of its "
    "own where the values are known when the file is read, `.expand(over=list_them())` where one task returns them"
)


_OF_DECORATORS: Final = frozenset({
    "requirements", "system_site_packages", "python", "python_version", "use_dill", "expect_airflow", "image", "multiple_outputs",
    "env", "append_env", "ignore_downstream_trigger_rules", "show_return_value_in_logs", "conn_id", "config_kwargs", "serializer",
    "venv_cache_path", "pip_install_options", "index_urls", "name", "namespace", "in_cluster", "poke_interval", "timeout", "mode",
    "soft_fail",
})  # fmt: skip


class TaskFlow(TaskMaker):
    def _is_inlined(self, function: Function) -> bool:
        """Whether the function of `@task` is called at one place, so that its body is the task's."""
        if function.kind not in ("python", "pyspark", *OTHER_ENVIRONMENTS[:4]) or function.node.args.vararg:
            return False
        name = function.node.name
        if name in self.is_async or any(isinstance(one, ast.Yield | ast.YieldFrom) for one in ast.walk(function.node)):
            return False
        nodes = [*ast.walk(self.source.tree)]
        names = [one for one in nodes if isinstance(one, ast.Name) and one.id == name]
        if len(names) != 1 or sum(isinstance(one, ast.FunctionDef) and one.name == name for one in nodes) != 1:
            return False
        call = next((one for one in nodes if isinstance(one, ast.Call) and _function_of(one) is names[0]), None)
        if (
            call is None
            or any(isinstance(one, ast.Starred) for one in call.args)
            or any(not k.arg for k in call.keywords)
        ):
            return False
        groups = (one for one in nodes if isinstance(one, ast.FunctionDef) and self._is_group(one))
        return not any(call in ast.walk(group) for group in groups)

    def _is_group(self, node: ast.FunctionDef) -> bool:
        return any(self._last(one) == "task_group" for one in node.decorator_list)

    def _task_call(self, function: Function, node: ast.Call) -> tuple[str, Tasks]:
        given = function.settings
        target, self.target = self.target, None
        with self.of_one_task() as notes:
            positional = [
                f"*{self.at_runtime(one.value)}" if isinstance(one, ast.Starred) else self.at_runtime(one)
                for one in node.args
            ]
            by_name = {one.arg or "**": self.at_runtime(one.value) for one in node.keywords}
            made, name = self._task_flow(function, node, positional, by_name, given)
            settings = self.reader.of_task(given, _OF_DECORATORS) | made.settings
            made.settings = {}
            self.target = target
            id_text = self._id_of_call(function, given, node)
            return self._task(node, None, settings, made, notes, function.node.name, name, id_text)

    def _id_of_call(self, function: Function, given: Mapping[str, ast.expr], node: ast.AST) -> str:
        id_node = given.get("task_id")
        base = self.text_of(id_node) if id_node is not None else function.node.name
        if base is None and id_node is not None:
            return unparse(id_node)
        prefix, dynamic = self._prefix()
        if self.loops and not dynamic:
            counter = self._free_name("numbers")
            self.sink_before_loop(Code(f"{counter} = itertools.count(1)"))
            instead = f"Its ids are {base}__1, {base}__2, ... here; better give it one by the loop's variable"
            self.remark(node, f"the task {base} in a loop", instead)
            return f'f"{base}__{{next({counter})}}"'
        key = f"{prefix}{id(self.groups[-1]) if dynamic else ''}{base}{id(self.dag)}"
        count = self.ids[key] = self.ids.get(key, -1) + 1
        return quoted(f"{base}__{count}" if count else str(base))

    def sink_before_loop(self, item: Item) -> None:
        """Before the outermost loop that is open, which is the last item of the DAG or of the file."""
        items = self.dag.items if self.dag is not None else self.result.items
        items.insert(max(len(items) - 1, 0), item)

    def _task_flow(
        self,
        function: Function,
        node: ast.Call,
        positional: list[str],
        by_name: dict[str, str],
        given: Mapping[str, ast.expr],
    ) -> tuple[Made, str | None]:
        kind = function.kind
        if kind in OTHER_ENVIRONMENTS:
            instead = "Packages of tasks are installed for their bundle: environment in docs/bundles.md"
            self.remark(node, f"@task.{kind}", instead)
        elif kind == "sensor":
            self.remark(
                node,
                "@task.sensor",
                "waits_for=[rows(...)], [file(...)] or [condition(...)] waits; here it looks once, and fails if it is not there",
            )
        elif kind not in ("python", "branch", "short_circuit", "bash", "pyspark"):
            return missing(self, node, f"@task.{kind}", "Write here what it did"), None
        context = self._context_function(function.node, set(by_name), len(positional))
        self._add_remarks(*context.remarks)
        if kind == "pyspark":
            by_name |= {
                name: text
                for name, text in (("spark", "ctx.spark"), ("sc", "ctx.spark.sparkContext"))
                if name in context.parameters
            }
        if self._is_inlined(function):
            bound = dict(zip(context.parameters, positional, strict=False)) | by_name
            defaults = defaults_of(function.node)
            bound = {name: unparse(defaults[name]) for name in context.parameters if name in defaults} | bound
            lines = [f"{name} = {text}" for name, text in bound.items() if name != text and name != "**"]
            missing_names = [name for name in context.parameters if name not in bound]
            for name in missing_names:
                self.remark(node, f"the parameter {name} of {function.node.name} is not given", "Give it a value")
                lines.append(f"{name} = None")
            return Made(after_docstring(context.body, [*lines, *context.preamble])), function.node.name
        arguments = [*(["ctx"] if context.uses_ctx else []), *positional]
        arguments += [f"**{text}" if name == "**" else f"{name}={text}" for name, text in by_name.items()]
        called = call(function.node.name, arguments)
        if function.node.name in self.is_async:
            called = f"asyncio.run({called})"
        elif any(isinstance(one, ast.Yield | ast.YieldFrom) for one in ast.walk(function.node)):
            called = f"list({called})"
        if kind.startswith("branch"):
            return Made(returned_branch(called), is_branch=True), None
        if kind == "short_circuit":
            body = f'if not {called}:\n    ctx.skip("its condition does not hold")'
            return Made(body, skips_all=skips_all(given)), None
        if kind == "bash":
            if any(isinstance(one, ast.Constant) and "{{" in str(one.value) for one in ast.walk(function.node)):
                what = f"a template in what {function.node.name} returns"
                self.remark(function.node, what, "It is rendered in Airflow, and not here: write it with ctx")
            env = {"env": f"{{**os.environ, **{self.at_runtime(given['env'])}}}"} if "env" in given else {}
            return Made(shell(called, env), with_result=shell(called, env, keeps_output=True)), None
        if kind == "sensor":
            return Made(
                f'done = {called}\nif not done:\n    raise RuntimeError("what it waits for is not there")'
            ), None
        return Made(f"return {called}"), None

    def _expanded(self, node: ast.Call, owner: ast.expr) -> tuple[str, Tasks | None] | None:
        """`f.partial(...).expand(...)`: a task for each value where one task returns them, else one that does all of them."""
        partial: ast.Call | None = None
        if isinstance(owner, ast.Call) and isinstance(owner.func, ast.Attribute) and owner.func.attr == "partial":
            partial, owner = owner, owner.func.value
        override: dict[str, ast.expr] = {}
        if isinstance(owner, ast.Call) and isinstance(owner.func, ast.Attribute) and owner.func.attr == "override":
            override, owner = self.settings_of(owner), owner.func.value
        fixed = self.settings_of(partial) if partial else {}
        function = self.known.get(owner.id) if isinstance(owner, ast.Name) else None
        if not isinstance(function, Function):
            if not (self._is_operator(ast.Call(owner, [], [])) or self._is_airflow(owner)):
                return None
            with self.of_one_task() as notes:
                name = self.source.dotted(owner).rpartition(".")[2]
                for one in [*node.keywords, *(ast.keyword(None, each) for each in node.args)]:
                    self.at_runtime(one.value)
                made = missing(
                    self,
                    node,
                    f"{name}.expand",
                    "Loop over its values in one task, or make a task of each in a loop",
                    frozenset(fixed),
                )
                settings = self.reader.of_task(
                    fixed, frozenset(fixed) - {"retries", "retry_delay", "trigger_rule", "pool"}
                )
                return self._task(node, fixed.get("task_id"), settings, made, notes, name)
        if function.kind == "group":
            self.remark(node, f"the mapped task group {function.node.name}", _ONE_BY_ONE)
            why = f"the mapped task group {function.node.name} of Airflow: loop over its values in one task"
            made, name = Made(f"raise NotImplementedError({quoted(why)})"), function.node.name
            with self.of_one_task() as notes:
                for one in node.keywords:
                    self.at_runtime(one.value)
                own_name = self._function_name(None, name)
                return self._task(node, None, {}, made, notes, name, own_name, quoted(name))
        return self._mapped(node, Function(function.node, function.kind, {**function.settings, **override}), fixed)

    def _mapped(self, node: ast.Call, function: Function, fixed: Mapping[str, ast.expr]) -> tuple[str, Tasks]:
        """`fixed`: the arguments of `partial`."""
        name, target, self.target = function.node.name, self.target, None
        takes_mappings = isinstance(node.func, ast.Attribute) and node.func.attr == "expand_kwargs"
        with self.of_one_task() as notes:
            values = {"each": node.args[0]} if takes_mappings else self.settings_of(node)
            texts = {parameter: self.at_runtime(value) for parameter, value in values.items()}
            of_values, self.deps = self.deps, []
            context = self._context_function(function.node, {*fixed, *keywords_of(node)})
            self._add_remarks(*context.remarks)
            arguments = [
                *(["ctx"] if context.uses_ctx else []),
                *(f"{parameter}={self.at_runtime(value)}" for parameter, value in fixed.items()),
            ]
            of_fixed, self.deps = self.deps, of_values
            id_text = self._id_of_call(function, function.settings, node)
            over = self._task_over(node, id_text, texts) if function.kind == "python" else None
            self.deps += of_fixed
            if over is None:
                self.remark(node, f"the mapped task {name}", _ONE_BY_ONE)
                loops = " ".join(f"for {parameter} in {text}" for parameter, text in texts.items())
                texts = {parameter: parameter for parameter in texts}
            else:
                texts = {parameter: "ctx.mapped_value" for parameter in texts}
            arguments += [f"**{text}" if takes_mappings else f"{parameter}={text}" for parameter, text in texts.items()]
            called = call(name, arguments)
            made = Made(f"return [{called} {loops}]") if over is None else Made(f"return {called}", over=over[0])
            settings = self.reader.of_task(function.settings, _OF_DECORATORS)
            self.target = target
            text, tasks = self._task(node, None, settings, made, notes, name, self._function_name(None, name), id_text)
            if over is not None:
                over[1].put_before(tasks.symbols)
            return text, tasks

    def _task_over(self, node: ast.Call, id_text: str, texts: Mapping[str, str]) -> tuple[str, Symbol] | None:
        """The variable of a task over which it can be mapped: its values are all that another task of the run returns. That
        returns a list of anything, so a task between them gives each value a name: its number, as in Airflow. None elsewhere,
        as where other tasks read the results of the mapped ones by `xcom_pull`: they take them for a list."""
        symbols = {symbol for _, tasks in self.deps for symbol in tasks.symbols}
        if len(symbols) != 1 or len(texts) != 1 or "xcom_pull" in self.source.text:
            return None
        [of], [text] = symbols, texts.values()
        result, id_ = f"ctx.result({of.id_text})", ast.parse(id_text, mode="eval").body
        is_one = not (self.loops or of.loop_names or any(group.collects for group in self.groups))
        is_known = isinstance(id_, ast.Constant) and of.is_static and not self._prefix()[1]
        if not is_one or not is_known or of.task is None or of.dag is not self.dag:
            return None
        if of.is_mapped and text == f"[*{result}.values()]":
            (made, tasks), self.deps = self.deps[0], []
        elif text == result:
            body = f"return {{str(number): value for number, value in enumerate({result})}}"
            named = f"{ast.literal_eval(id_text)}_values"
            while named in self.taken:
                named += "_"
            made, tasks = self._task(node, ast.Constant(named), {}, Made(body), [], "values")
            self.deps = []
        else:
            return None
        [symbol] = tasks.symbols
        return (made if made.isidentifier() else self._named(made, symbol, symbol.id_text.strip('"'))), symbol

    def _with_group(self, made: ast.Call, name: ast.expr | None, body: Sequence[ast.stmt]) -> None:
        given = with_positional(made, "group_id")
        if "default_args" in given:
            self.remark(made, "default_args of a task group", "Give its tasks the settings")
        prefixed = given.get("prefix_group_id")
        id_node = given.get("group_id")
        group_id = self.text_of(id_node) or (name.id if isinstance(name, ast.Name) else "group")
        has_prefix = not (isinstance(prefixed, ast.Constant) and prefixed.value is False)
        prefix = self._group_prefix(id_node) or quoted(group_id)
        tasks, _ = self._group(made, prefix if has_prefix else None, group_id, body)
        if isinstance(name, ast.Name):
            self.known[name.id] = tasks

    def _group_prefix(self, id_node: ast.expr | None) -> str | None:
        """Text of an id that is known when the file runs only."""
        is_known = id_node is None or self.text_of(id_node) is not None
        return None if id_node is None or is_known or not self.reader.is_plain(id_node) else unparse(id_node)

    def _group(
        self, node: ast.AST, prefix: str | None, base: str, body: Sequence[ast.stmt], returned: ast.expr | None = None
    ) -> tuple[Tasks, Tasks | None]:
        """The tasks of a group, and those that its function returns."""
        has_loops = bool(self.loops) or any(
            isinstance(one, _LOOPS) for statement in body for one in ast.walk(statement)
        )
        group = Group(prefix, collects=self._free_name(f"{self._identifier(base)}_tasks") if has_loops else None)
        if group.collects:
            self.sink.append(Code(f"{group.collects} = []"))
        self.groups.append(group)
        for one in body:
            self.inner(one)
        result = self.value(returned)[1] if returned is not None and self._concerns_tasks(returned) else None
        self.groups.pop()
        if group.collects:
            if any(one.upstream & set(group.symbols) for one in group.symbols) or _has_order(body):
                self.remark(
                    node,
                    f"the task group {base}, with a loop and an order of its tasks",
                    "`a >> group >> b` is said of all its tasks here, in Airflow of its first and last ones: name these",
                )
            return Tasks(group.symbols, True, group.collects, group.collects), result
        members = set(group.symbols)
        first = [one for one in group.symbols if not one.upstream & members]
        last = [one for one in group.symbols if not one.downstream & members]
        return Tasks(group.symbols, False, names_of(first), names_of(last)), result

    def _group_call(self, function: Function, node: ast.Call) -> tuple[str, Tasks | None]:
        """A call of a `@task_group` function: its body stands here, with its parameters as variables."""
        base = self.text_of(function.settings.get("group_id")) or function.node.name
        if "default_args" in function.settings:
            self.remark(node, "default_args of a task group", "Give its tasks the settings")
        self.target = None
        key = f"group {base} {id(self.dag)}"
        count = self.ids[key] = self.ids.get(key, -1) + 1
        prefixed = function.settings.get("prefix_group_id")
        prefix = self._group_prefix(function.settings.get("group_id")) or quoted(f"{base}__{count}" if count else base)
        has_prefix = not (isinstance(prefixed, ast.Constant) and prefixed.value is False)
        parameters = [one.arg for one in [*function.node.args.args, *function.node.args.kwonlyargs]]
        outer = self.known.copy()
        given = with_positional(node, *parameters)
        defaults = defaults_of(function.node)
        for parameter in parameters:
            argument = given.get(parameter)
            if argument is not None and (self._is_part_of_result(argument) or self._names_result(argument)):
                self.known[parameter] = self._part_of_result(argument)
                continue
            if argument is not None:
                text, tasks = self.value(argument)
            else:
                text, tasks = unparse(defaults.get(parameter, ast.Constant(None))), None
            self.known[parameter] = tasks
            self.parameters.add(parameter)
            if text != parameter:
                self.sink.append(Code(f"{parameter} = {text}"))
        body = list(function.node.body)
        if ast.get_docstring(function.node) is not None:
            body.pop(0)
        returned = body[-1].value if body and isinstance(body[-1], ast.Return) else None
        tasks, result = self._group(
            node,
            prefix if has_prefix else None,
            base,
            [one for one in body if not isinstance(one, ast.Return)],
            returned,
        )
        self.known = outer | {name: value for name, value in self.known.items() if isinstance(value, Function)}
        if isinstance(result, Tasks) and len(result.symbols) == 1 and result.symbols[0].variable:
            return result.symbols[0].variable, Tasks(result.symbols, False, tasks.first, result.symbols[0].variable)
        return tasks.last or "[]", tasks


def _function_of(call: ast.Call) -> ast.expr | None:
    """The name of what is called, as in `f()` and `f.override(retries=2)()`."""
    match call.func:
        case ast.Call(func=ast.Attribute(value=owner, attr="override")):
            return owner
    return call.func


def _has_order(body: Sequence[ast.stmt]) -> bool:
    return any(
        (isinstance(one, ast.BinOp) and isinstance(one.op, ast.RShift | ast.LShift))
        or (isinstance(one, ast.Attribute) and one.attr in ("set_upstream", "set_downstream"))
        or (isinstance(one, ast.Name) and one.id in STATEMENT_NAMES)
        for statement in body
        for one in ast.walk(statement)
    )


def names_of(symbols: Sequence[Symbol]) -> str:
    names = list(dict.fromkeys(str(one.variable) for one in symbols))
    return names[0] if len(names) == 1 else f"[{', '.join(names)}]"


def after_docstring(body: str, lines: Sequence[str]) -> str:
    first = next(iter(ast.parse(body).body), None)
    is_doc = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    )
    end = (first.end_lineno or 0) if first is not None and is_doc else 0
    texts = body.splitlines()
    return "\n".join([*texts[:end], *lines, *texts[end:]])
