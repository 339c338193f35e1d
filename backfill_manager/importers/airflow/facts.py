"""`Facts`: what is known of a file before its statements are read one by one."""

from __future__ import annotations

import ast

from backfill_manager.importers.airflow.symbols import Function
from backfill_manager.importers.source import Source, called, is_airflow, keywords_of

STATEMENT_NAMES = ("chain", "chain_linear", "cross_downstream")


def last_name(source: Source, node: ast.AST) -> str:
    dotted = source.dotted(called(node))
    return dotted.rpartition(".")[2] if is_airflow(dotted) else ""


def defaults_of(node: ast.FunctionDef) -> dict[str, ast.expr]:
    positional = [one.arg for one in [*node.args.posonlyargs, *node.args.args]]
    found = dict(zip(reversed(positional), reversed(node.args.defaults), strict=False))
    named = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
    return found | {one.arg: value for one, value in named if value}


class Facts:
    """`functions`: all of the file, by name. `callables`: those that operators call, see `_callables`. `makers`: those, not
    decorated, that make tasks. `constants`: see `_constants`."""

    def __init__(self, source: Source) -> None:
        self.source = source
        tree = source.tree
        stored = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
        self.stored_once = {name for name in stored if stored.count(name) == 1}
        self.airflow_classes: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and any(self.is_airflow(base) for base in node.bases):
                self.airflow_classes.add(node.name)
        self.functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        self.constants = self._constants()
        default_args = [
            one.value for one in ast.walk(tree) if isinstance(one, ast.keyword) and one.arg == "default_args"
        ]
        self.default_args = {one.id for one in default_args if isinstance(one, ast.Name)}
        calls = [one for one in ast.walk(tree) if isinstance(one, ast.Call) and self.last(one) in ("DAG", "dag")]
        given = [self._constant(keywords_of(one).get("params")) for one in calls]
        self.dag_params = {
            str(key.value) for one in given for key in getattr(one, "keys", []) if isinstance(key, ast.Constant)
        }
        self.callables = self._callables()
        self.makers = self._makers()

    def is_airflow(self, node: ast.AST) -> bool:
        dotted = self.source.dotted(called(node))
        return is_airflow(dotted) or dotted in self.airflow_classes

    def last(self, node: ast.AST) -> str:
        return last_name(self.source, node)

    def _constants(self) -> dict[str, ast.expr]:
        """The values of names that are assigned once and changed nowhere."""
        found: dict[str, list[ast.expr]] = {}
        changed: set[str] = set()
        for node in ast.walk(self.source.tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.setdefault(node.id, [])
            match node:
                case (
                    ast.Assign(targets=[ast.Name(id=name)], value=value)
                    | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                ):
                    found.setdefault(name, []).append(value)
                case (
                    ast.AugAssign(target=ast.Name(id=name))
                    | ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del())
                    | ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="update" | "setdefault" | "pop"))
                ):
                    changed.add(name)
        return {
            name: values[0]
            for name, values in found.items()
            if len(values) == 1
            and name not in changed
            and isinstance(values[0], ast.Constant | ast.Dict | ast.Call | ast.List | ast.JoinedStr | ast.BinOp)
        }

    def _callables(self) -> dict[str, tuple[set[str], int]]:
        """Functions of the file that operators call: what they are given by name, and how many values without one."""
        found: dict[str, tuple[set[str], int]] = {}
        for node in ast.walk(self.source.tree):
            if not isinstance(node, ast.Call):
                continue
            given = keywords_of(node)
            function = given.get("python_callable")
            if isinstance(function, ast.Name) and function.id in self.functions:
                names, positional = found.get(function.id, (set(), 0))
                names |= self._keys_of(given.get("op_kwargs")) | ({"templates_dict"} & given.keys())
                op_args = given.get("op_args")
                found[function.id] = (names, max(positional, len(getattr(op_args, "elts", []))))
            elif (wrapped := self.wrapped(node.func)) is not None:  # task(f)(...)
                names, positional = found.get(wrapped.node.name, (set(), 0))
                found[wrapped.node.name] = (names | given.keys(), max(positional, len(node.args)))
        return found

    def _keys_of(self, node: ast.expr | None) -> set[str]:
        """Of a dict, also of those in it (`{**COMMON, "x": 1}`); `**` stands for some that are not known."""
        match self._constant(node):
            case None:
                return set()
            case ast.Dict(keys=keys, values=values) if all(
                key is None or isinstance(key, ast.Constant) for key in keys
            ):
                pairs = zip(keys, values, strict=True)
                parts = [
                    {str(key.value)} if isinstance(key, ast.Constant) else self._keys_of(one) for key, one in pairs
                ]
                return set().union(*parts)
            case ast.Call(func=ast.Name(id="dict"), args=[], keywords=given):
                return set().union(*({one.arg} if one.arg else self._keys_of(one.value) for one in given))
        return {"**"}

    def _constant(self, node: ast.expr | None) -> ast.expr | None:
        return self.constants.get(node.id, node) if isinstance(node, ast.Name) else node

    def _makers(self) -> set[str]:
        """Functions, not decorated, that make tasks."""
        return {
            name
            for name, node in self.functions.items()
            if not any(map(self.is_airflow, node.decorator_list))
            and name not in self.callables
            and any(
                isinstance(one, ast.Call) and (self.is_operator(one) or self.last(one) in ("DAG", "TaskGroup"))
                for one in ast.walk(node)
            )
        }

    def wrapped(self, node: ast.expr) -> Function | None:
        """The function of `task(f, ...)` and of `task(...)(f)`."""
        settings: dict[str, ast.expr] = {}
        match node:
            case ast.Call(func=ast.Call() as inner, args=[ast.Name(id=name)], keywords=[]) if (
                self.last(inner) == "task"
            ):
                settings = keywords_of(inner)
            case ast.Call(func=decorator, args=[ast.Name(id=name)]) if self.last(decorator) == "task":
                settings = keywords_of(node)
            case _:
                return None
        return Function(self.functions[name], "python", settings) if name in self.functions else None

    def is_operator(self, node: ast.Call) -> bool:
        name = self.source.dotted(node.func)
        if name in self.airflow_classes:
            return True
        last = name.rpartition(".")[2]
        if any(one.arg == "task_id" for one in node.keywords) and self.is_of_other_file(node.func):
            return True
        looks_so = last.endswith(("Operator", "Sensor", "SensorAsync", "OperatorAsync")) or last == "ExternalTaskMarker"
        return looks_so and (is_airflow(name) or any(one.arg == "task_id" for one in node.keywords))

    def is_of_other_file(self, node: ast.expr) -> bool:
        """Whether it is imported, and not from Airflow: a function that is given a task_id or a DAG makes a task."""
        root = node
        while isinstance(root, ast.Attribute):
            root = root.value
        return isinstance(root, ast.Name) and root.id in self.source.origins and not self.is_airflow(node)

    def is_operator_class(self, node: ast.expr) -> bool:
        """Whether it is one that is mapped: `BashOperator`, `BashOperator.partial(...)`."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "partial":
            return self.is_operator(ast.Call(node.func.value, [], node.keywords))
        return self.is_operator(ast.Call(node, [], []))

    def makes_dags(self, node: ast.stmt) -> bool:
        return any(
            (isinstance(one, ast.Call) and self.last(one) == "DAG")
            or (isinstance(one, ast.FunctionDef) and any(self.last(each) == "dag" for each in one.decorator_list))
            for one in ast.walk(node)
        )
