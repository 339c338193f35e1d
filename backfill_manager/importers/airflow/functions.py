"""Functions that tasks of Airflow call, as functions over `ctx`: what they take of the context (`ds`, `ti`, `**kwargs`) is read
from it, at the places where they use it. Comments and layout stay."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from backfill_manager.importers.airflow import templates
from backfill_manager.importers.draft import Remark
from backfill_manager.importers.source import Source, is_airflow, keywords_of, parameters_of, with_positional
from backfill_manager.importers.writer import quoted, unparse

_TI: Final = ("ti", "task_instance")
CONTEXT: Final = frozenset({
    *templates.PLAIN, *_TI, "dag_run", "dag", "task", "conf", "macros", "var", "conn", "templates_dict", "test_mode", "prev_ds",
    "prev_ds_nodash", "prev_execution_date", "prev_logical_date", "prev_start_date_success", "prev_data_interval_start_success",
    "prev_data_interval_end_success", "task_instance_key_str", "outlet_events", "inlet_events", "triggering_asset_events",
    "triggering_dataset_events", "inlets", "outlets", "exception", "start_date", "end_date",
})  # fmt: skip
_ERRORS: Final = {"AirflowException", "AirflowFailException", "AirflowNotFoundException", "AirflowConfigException"}
_PULL_ARGUMENTS: Final = ("task_ids", "dag_id", "key", "include_prior_dates")  # in their order
ONLY_THESE: Final = "These are the keys that have an equal"
PUSHED: Final = "pushed"  # the variable of a draft with what a function pushes by key
NO_XCOM_KEY: Final = "Return one value, a dict for several, and read it with ctx.result(task_id)[key]"


@dataclass
class ContextFunction:
    """A function whose context is taken from `ctx`. `parameters`: those that its caller gives."""

    node: ast.FunctionDef
    parameters: list[str]
    preamble: list[str] = field(default_factory=list)
    body: str = ""
    uses_ctx: bool = False
    remarks: list[Remark] = field(default_factory=list)


def of_context(name: str) -> str | None:
    """What a name of Airflow's context is over `ctx`."""
    value = templates.PLAIN.get(name)
    if isinstance(value, templates.Moment):
        written, _ = templates.as_python(f"{{{{ {name} }}}}") if value.form else (value.python, [])
        return written
    return value.python if value else None


def whole_context() -> dict[str, str]:
    """The entries of a dict, by their keys."""
    known = ("ds", "logical_date", "data_interval_start", "data_interval_end", "params", "run_id")
    return {key: f'"{key}": {of_context(key)}' for key in known}


def rewrite(
    source: Source,
    node: ast.FunctionDef,
    given: Collection[str],
    positional: int = 0,
) -> ContextFunction:
    """`given`: parameters that the caller passes by name; `positional`: how many it passes without."""
    arguments = node.args
    named = parameters_of(node)
    from_context = [one.arg for one in named[positional:] if one.arg in CONTEXT and one.arg not in given]
    function = ContextFunction(node, [one.arg for one in named if one.arg not in from_context])
    editor = _Editor(source, function, from_context, arguments.kwarg.arg if arguments.kwarg else None)
    editor.takes_more = bool(set(given) - {one.arg for one in named})
    function.body = source.body(node, editor.replace)
    if editor.pushed:
        function.preamble.append(f"{PUSHED} = {{}}")
        function.body += f"\nreturn {PUSHED}"
    editor.finish()
    text = "\n".join([*function.preamble, function.body])
    function.uses_ctx = re.search(r"\bctx\b", text) is not None
    return function


class _Editor:
    def __init__(self, source: Source, function: ContextFunction, from_context: list[str], kwargs: str | None) -> None:
        self.source, self.function = source, function
        self.from_context = from_context
        self.kwargs, self.takes_more = kwargs, False  # whether the caller has values for it
        self.contexts = {kwargs} if kwargs else set()
        self.instances = {name for name in from_context if name in _TI}
        self.runs = {name for name in from_context if name == "dag_run"}
        self.airflow_names: dict[str, int] = {}
        for one in ast.walk(function.node):
            match one:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=called)) if self._is(
                    called, "get_current_context"
                ):
                    self.contexts.add(name)
        for one in ast.walk(function.node):
            match one:
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if self._context_key(value) in _TI:
                    self.instances.add(name)
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if self._context_key(value) == "dag_run":
                    self.runs.add(name)
        self.instants: set[str] = set()  # variables
        for one in ast.walk(function.node):
            match one:
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if self._is_instant(value):
                    self.instants.add(name)
        self.pushed = self._returns_only_what_it_pushes()
        self.whole: set[str] = set()  # contexts that are used as they are

    def _returns_only_what_it_pushes(self) -> bool:
        """Whether it pushes values by keys that are written out, and returns nothing else."""
        nodes = [*ast.walk(self.function.node)]
        pushes = [one for one in nodes if isinstance(one, ast.Expr) and self._pushed(one.value) is not None]
        own = [one for one in nodes if one is not self.function.node]
        return (
            sum(isinstance(one, ast.Attribute) and one.attr == "xcom_push" for one in nodes) == len(pushes) > 0
            and not any(isinstance(one, ast.Return) and one.value is not None for one in nodes)
            and not any(isinstance(one, ast.FunctionDef | ast.Lambda | ast.Yield | ast.YieldFrom) for one in own)
            and not any(isinstance(one, ast.Name) and one.id == PUSHED for one in nodes)
        )

    def _pushed(self, node: ast.AST) -> tuple[str, ast.expr] | None:
        """The key and the value of `ti.xcom_push(key="...", value=...)`."""
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr="xcom_push")) if self._is_instance(owner):
                given = with_positional(node, "key", "value")
                key = given.get("key")
                if given.keys() == {"key", "value"} and isinstance(key, ast.Constant) and isinstance(key.value, str):
                    return key.value, given["value"]
        return None

    def _is(self, node: ast.AST, name: str) -> bool:
        dotted = self.source.dotted(node)
        return is_airflow(dotted) and dotted.rpartition(".")[2] == name

    def remark(self, node: ast.AST, what: str, instead: str) -> None:
        self.function.remarks.append(Remark(getattr(node, "lineno", None), what, instead))

    def _context_key(self, node: ast.AST) -> str | None:
        """`x` of `kwargs["x"]` and `context.get("x")`."""
        match node:
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str() as key)) if (
                name in self.contexts
            ):
                return key
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=name), attr="get"), args=[ast.Constant(value=str() as key), *_]
            ) if name in self.contexts:
                return key
        return None

    def _is_instance(self, node: ast.AST) -> bool:
        return (isinstance(node, ast.Name) and node.id in self.instances) or self._context_key(node) in _TI

    def _is_run(self, node: ast.AST) -> bool:
        return (isinstance(node, ast.Name) and node.id in self.runs) or self._context_key(node) == "dag_run"

    def _is_instant(self, node: ast.AST) -> bool:
        match node:
            case ast.Name(id=name) if name in self.instants:
                return True
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
                return self._is_instant(left) and not self._is_instant(right)
        key = node.id if isinstance(node, ast.Name) and node.id in self.from_context else self._context_key(node)
        if isinstance(node, ast.Attribute) and (self._is_instance(node.value) or self._is_run(node.value)):
            key = node.attr
        value = templates.PLAIN.get(key or "")
        return isinstance(value, templates.Moment) and value.form is None

    def replace(self, node: ast.AST) -> str | None:
        if isinstance(node, ast.Attribute) and not hasattr(datetime, node.attr) and self._is_instant(node.value):
            self.remark(
                node,
                f"`.{node.attr}` of pendulum",
                "Instants of ctx are Python's: timedelta, strftime, astimezone; pendulum.instance(...) makes one of pendulum",
            )
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]) if name in self.contexts | self.instances | self.runs:
                return f"# {name} of Airflow is ctx here"
            case ast.Call(func=ast.Attribute(value=owner, attr="xcom_pull")) if self._is_instance(owner):
                return self._pull(node)
            case ast.Return() if self.pushed:
                return f"return {PUSHED}"
            case ast.Expr(value=called) if self.pushed and (found := self._pushed(called)) is not None:
                whole = ast.copy_location(
                    ast.Starred(found[1], ast.Load()), found[1]
                )  # so that the value itself is replaced, too
                text = self.source.segment(whole, self.replace)
                return f"{PUSHED}[{quoted(found[0])}] = {f'({text})' if chr(10) in text else text}"
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=owner, attr="xcom_push"))) if self._is_instance(
                owner
            ):
                self.remark(node, "xcom_push", NO_XCOM_KEY)
                return 'raise NotImplementedError("xcom_push of Airflow: return the value")'
            case ast.Attribute(value=owner, attr="conf") if self._is_run(owner):
                self.remark(
                    node, "dag_run.conf", "Declare each of its keys in params= of the DAG; a run sets no others"
                )
                return "ctx.params"
            case ast.Attribute(value=owner, attr=attr) if self._is_instance(owner) or self._is_run(owner):
                return self._attribute(node, "ti" if self._is_instance(owner) else "dag_run", attr)
            case ast.Raise(exc=ast.Call(func=called, args=args)) if self._is(called, "AirflowSkipException"):
                reason = unparse(args[0]) if args else '"skipped"'
                return f"ctx.skip({reason})"
            case ast.Raise(exc=called) if called is not None and self._is(called, "AirflowSkipException"):
                return 'ctx.skip("skipped")'
            case ast.Name() | ast.Attribute() if any(self._is(node, name) for name in _ERRORS):
                if self._is(node, "AirflowFailException"):
                    self.remark(node, "AirflowFailException", "This fails the try; with retries set it is tried again")
                return "RuntimeError"
            case ast.Name(id=name) if name in self.contexts and isinstance(node.ctx, ast.Load):
                self.whole.add(name)
            case ast.Name(id=name) if is_airflow(self.source.origins.get(name, "")):
                self.airflow_names.setdefault(name, node.lineno)
        if (key := self._context_key(node)) is not None:
            return self._key(node, key)
        return None

    def _key(self, node: ast.AST, key: str) -> str | None:
        if key in self.function.parameters:
            return None
        if (python := of_context(key)) is not None:
            return python
        if key in CONTEXT and key not in ("templates_dict", "dag_run", *_TI):
            self.remark(node, f"`{key}` of the context", "ctx has no equal; see what ctx has in docs/authoring.md")
        return None

    def _attribute(self, node: ast.AST, owner: str, attr: str) -> str | None:
        value = templates.ATTRIBUTES.get((owner, attr))
        if value is not None:
            return value.python
        if attr == "log":
            return "ctx.log"
        if (python := of_context(attr)) is not None:
            return python
        self.remark(node, f"`{owner}.{attr}`", "ctx has no equal; see what ctx has in docs/authoring.md")
        return None

    def _pull(self, node: ast.Call) -> str:
        given = keywords_of(node) | dict(zip(_PULL_ARGUMENTS, node.args, strict=False))
        others = [one for one in ("dag_id", "include_prior_dates", "run_id", "map_indexes", "default") if one in given]
        if others:
            instead = "A result is of a task of the same run; other runs are read from tables"
            self.remark(node, f"xcom_pull with {others[0]}", instead)
            return 'ctx.result("TODO")'
        tasks, key = given.get("task_ids"), given.get("key")
        plain_key = key.value if isinstance(key, ast.Constant) else None
        if tasks is None or (key is not None and plain_key is None):
            self.remark(node, "xcom_pull without task_ids", "Name the task: ctx.result(task_id)")
            return 'ctx.result("TODO")'
        suffix = ""
        if plain_key not in (None, "return_value"):
            self.remark(node, f"xcom_pull of key {plain_key!r}", NO_XCOM_KEY)
            suffix = f"[{quoted(str(plain_key))}]"
        if isinstance(tasks, ast.List | ast.Tuple):
            return "[" + ", ".join(f"ctx.result({unparse(one)}){suffix}" for one in tasks.elts) + "]"
        return f"ctx.result({unparse(tasks)}){suffix}"

    def finish(self) -> None:
        for name in self.from_context:
            if name in _TI or name == "dag_run":
                if re.search(rf"\b{name}\b", self.function.body):
                    self.remark(self.function.node, f"`{name}` as a value", "Take what you need of it from ctx")
                    self.function.preamble.append(f"{name} = ctx")
            elif (python := of_context(name)) is not None:
                if python != name and re.search(rf"\b{name}\b", self.function.body):
                    self.function.preamble.append(f"{name} = {python}")
            else:
                self.remark(self.function.node, f"`{name}` of the context", "ctx has no equal; see docs/authoring.md")
                if re.search(rf"\b{name}\b", self.function.body):  # Airflow gives None, too, but not always
                    self.function.preamble.append(
                        f'{name} = None\nraise NotImplementedError("{name} of Airflow: write it with ctx")'
                    )
        for name in sorted(self.whole):
            self.remark(self.function.node, f"`{name}`, the whole context", ONLY_THESE)
            more = f", **{name}" if name == self.kwargs and self.takes_more else ""
            self.function.preamble.append(f"{name} = {{{', '.join(whole_context().values())}{more}}}")
        for name, line in self.airflow_names.items():
            origin = self.source.origins[name]
            self.function.remarks.append(Remark(line, f"{origin} is used", instead_of_class(origin)))


def instead_of_class(dotted: str) -> str:
    last = dotted.rpartition(".")[2]
    if last == "Variable":
        return "Use a param of the DAG, or os.environ of the manager"
    if last in ("Connection", "BaseHook") or last.endswith("Hook"):
        return "Connect by the service's own library; secrets come from the manager's environment"
    return "It is not here when the task runs; replace it"
