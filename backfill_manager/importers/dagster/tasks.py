"""Assets and ops of Dagster's as tasks."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from backfill_manager.importers.dagster.nodes import DagsterFile, Function, Node, identifier_of, key_of, text_of
from backfill_manager.importers.dagster.partitions import PARTITIONS
from backfill_manager.importers.draft import Code, DraftDag, DraftTask, Remark
from backfill_manager.importers.source import keywords_of, parameters_of, with_positional
from backfill_manager.importers.writer import OURS, quoted, unparse

_CONTEXT: Final = {
    "log": "ctx.log", "run_id": "ctx.run_id", "retry_number": "ctx.try_number - 1", "partition_key_range": None,
    "op_config": "ctx.params",
}  # fmt: skip
_WINDOWS: Final = ("partition_time_window", "asset_partitions_time_window", "partition_window")
_IGNORED_ARGUMENTS: Final = frozenset({
    "name", "key", "key_prefix", "deps", "non_argument_deps", "partitions_def", "ins", "description", "group_name", "owners",
    "tags", "kinds", "compute_kind", "metadata", "retry_policy", "op_tags", "code_version", "dagster_type", "out",
    "output_required",
})  # fmt: skip
NO_EQUAL: Final = {
    "io_manager_key": "A task writes its table: ctx.write(rows, table, time_column=...)",
    "required_resource_keys": "Connect in the task; secrets: ctx.secret(name)",
    "config_schema": "params= of the DAG, ctx.params in the task",
    "automation_condition": "schedule=, or waits_for=[table]",
    "auto_materialize_policy": "schedule=, or waits_for=[table]",
    "freshness_policy": "expected_by= of the DAG: late runs are on the home page, and notified",
    "check_specs": 'checks=["rows > 0"] of the task',
    "backfill_policy": "batchable=True of the DAG lets a backfill run many intervals as one",
    "op_retry_policy": 'default_args={"retries": ...} of the DAG',
    "partitions_def": "schedule= and start_date= of the DAG",
    "config": "params= of the DAG, ctx.params in the task",
}  # fmt: skip


class TaskWriter:
    def __init__(self, file: DagsterFile) -> None:
        self._file = file

    def _partition_key(self, node: Node) -> str:
        """The local time at which a time partition begins, as Dagster writes it."""
        kind, given = self._file.partitions(node.partitions)
        if kind not in PARTITIONS:
            return "ctx.partition_key"
        form = text_of(given.get("fmt")) or ("%Y-%m-%d-%H:%M" if kind.startswith("Hourly") else "%Y-%m-%d")
        local = self._local(node, "ctx.logical_date")
        return f"{local}.strftime({quoted(form)})" if "(" in local else f'f"{{{local}:{form}}}"'

    def _local(self, node: Node, instant: str) -> str:
        """Of an instant of `ctx`, which is UTC's: the time in the zone of the partitions."""
        zone = text_of(self._file.partitions(node.partitions)[1].get("timezone")) or "UTC"
        if zone == "UTC":
            return instant
        if (text := "from zoneinfo import ZoneInfo") not in self._file.result.imports:
            self._file.result.imports.append(text)
        return f"{instant}.astimezone(ZoneInfo({quoted(zone)}))"

    def _as_plain(self, function: Function, body: str, remarks: list[Remark]) -> str:
        """The body of a function that gives its outputs by `yield`, or is `async`, as that of a plain one."""
        yields, is_async = _own_yields(function), isinstance(function, ast.AsyncFunctionDef)
        if not yields and not is_async:
            return body
        if yields > 1:
            self._file.remark(remarks, function, f"{function.name} yields its outputs", "All of them are a list here")
        inner = f"{'async ' if is_async else ''}def outputs():\n{textwrap.indent(body, '    ')}\n"
        given = f"[each {'async ' if is_async else ''}for each in outputs()]"
        if is_async and yields:
            inner, given = f"{inner}\nasync def gathered():\n    return {given}\n", "asyncio.run(gathered())"
        elif is_async:
            given = "asyncio.run(outputs())"
        if is_async and "import asyncio" not in self._file.result.imports:
            self._file.result.imports.append("import asyncio")
        return f"{inner}\nreturn {given}{'[-1]' if yields == 1 else ''}"

    def write(self, dag: DraftDag, node: Node, before: Sequence[str], results: dict[str, str]) -> None:
        """Writes a task, with each parameter as the result of the task that `results` names for it."""
        function = node.function
        remarks: list[Remark] = []
        settings: dict[str, str] = {}
        name = identifier_of(node.name)
        name = f"{name}_" if name in OURS else name
        if name != node.name:
            settings["task_id"] = quoted(re.sub(r"[^A-Za-z0-9_.-]", "_", node.name))
        if node.depends_on_past:
            settings["depends_on_past"] = "True"
        settings |= self._retries(node, remarks)
        for given, value in node.given.items():
            if given not in _IGNORED_ARGUMENTS:
                self._file.remark(
                    remarks, value, f"{given}= of {node.name}", NO_EQUAL.get(given, "It has no equal here")
                )
        contexts = {
            one.arg
            for one in parameters_of(function)
            if one.arg == "context" or "Context" in (unparse(one.annotation) if one.annotation else "")
        }
        lines = []
        for one in parameters_of(function):
            if one.arg in contexts:
                continue
            if one.arg in results:
                lines.append(f"{one.arg} = ctx.result({quoted(results[one.arg])})")
            else:
                instead = "Make it in the task; settings come from ctx.params, data from tables"
                self._file.remark(remarks, one, f"`{one.arg}`, given by Dagster", instead)
                lines.append(f"{one.arg} = None")
        for of, mapping in self._mapped(node):
            instead = "ctx.result is of the same run: read what other runs have written from its table"
            self._file.remark(remarks, mapping, f"partition_mapping= of {of}", instead)
        if before:
            instead = "A result is a JSON value; data goes into tables: ctx.write, ctx.spark.table"
            self._file.remark(remarks, function, f"what {node.name} takes of others", instead)
        translated = self._file.source.body(function, lambda part: self._translated(part, node, contexts, remarks))
        body = self._as_plain(function, "\n".join([*lines, translated]), remarks)
        dag.items.append(DraftTask(name, settings, body, remarks=remarks))
        variables = [f"{identifier_of(one)}_task" for one in before]
        first = variables[0] if len(variables) == 1 else f"[{', '.join(variables)}]"
        dag.items.append(Code(f"{identifier_of(node.name)}_task = {f'{first} >> ' if before else ''}{name}()"))

    def _mapped(self, node: Node) -> Iterator[tuple[str, ast.expr]]:
        """Assets of which it takes other partitions than its own."""
        for name in ("deps", "ins"):
            given = node.given.get(name)
            keys = [text_of(key) for key in given.keys] if isinstance(given, ast.Dict) else []
            for number, one in enumerate(getattr(given, "values", getattr(given, "elts", []))):
                if isinstance(one, ast.Call) and (mapping := keywords_of(one).get("partition_mapping")) is not None:
                    key = node.renamed[keys[number] or ""] if keys else key_of(one) or unparse(one)
                    if key != node.name:  # its own: depends_on_past
                        yield key, mapping

    def _retries(self, node: Node, remarks: list[Remark]) -> dict[str, str]:
        policy = node.given.get("retry_policy")
        policy = self._file.values.get(policy.id) if isinstance(policy, ast.Name) else policy
        if not isinstance(policy, ast.Call):
            return {}
        values = with_positional(policy, "max_retries", "delay", "backoff")
        settings = {"retries": unparse(values["max_retries"]) if "max_retries" in values else "1"}
        if "delay" in values:
            settings["retry_delay"] = unparse(values["delay"])
        if "backoff" in values and unparse(values["backoff"]).endswith(".EXPONENTIAL"):
            settings["retry_backoff"] = "2"
        elif "backoff" in values:
            self._file.remark(remarks, policy, f"backoff={unparse(values['backoff'])}", "retry_backoff= is a factor")
        return settings

    def _translated(self, part: ast.AST, node: Node, contexts: Collection[str], remarks: list[Remark]) -> str | None:
        """What a part of the body of a function becomes; None: it stays. `contexts`: parameters that are Dagster's context."""
        match part:
            case ast.Attribute(
                value=ast.Attribute(value=ast.Name(id=owner), attr=window), attr="start" | "end" as end
            ) if owner in contexts and window in _WINDOWS:
                return self._local(node, f"ctx.interval.{end}")
            case ast.Attribute(value=ast.Name(id=owner), attr=window) if owner in contexts and window in _WINDOWS:
                each = self._local(node, "each")  # both are a pair of start and end
                return "ctx.interval" if each == "each" else f"ctx.interval._make({each} for each in ctx.interval)"
            case ast.Attribute(value=ast.Name(id=owner), attr=attr) if owner in contexts:
                if attr == "partition_key":
                    return self._partition_key(node)
                if _CONTEXT.get(attr) is None:
                    self._file.remark(remarks, part, f"context.{attr}", "ctx has no equal; see docs/authoring.md")
                return _CONTEXT.get(attr)
            case (
                ast.Return(value=ast.Call(args=[value, *_]) as call)
                | ast.Yield(value=ast.Call(args=[value, *_]) as call)
            ) if self._file.kind(call) == "Output":
                return f"{'yield' if isinstance(part, ast.Yield) else 'return'} {unparse(value)}"
            case ast.Return(value=ast.Call() as call) if self._file.kind(call) in ("MaterializeResult", "Output"):
                self._file.remark(remarks, part, self._file.kind(call), "Metadata is what a task logs, or its result")
                return "return None"
            case ast.Name(id=used) if self._file.source.origins.get(used, "").startswith("dagster"):
                what = f"{self._file.source.origins[used]} is used"
                self._file.remark(remarks, part, what, "It is not here when the task runs; replace it")
        return None


def _own_yields(function: Function) -> int:
    found, waiting = 0, list[ast.AST](function.body)
    while waiting:
        one = waiting.pop()
        found += isinstance(one, ast.Yield | ast.YieldFrom)
        if not isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            waiting += ast.iter_child_nodes(one)
    return found
