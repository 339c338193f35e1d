"""Dagster's assets and jobs as drafts, by `ast` alone: each asset or op a Python task, time partitions as the schedule."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, time, timedelta
from typing import Final

from backfill_manager.importers.draft import Code, Draft, DraftDag, DraftTask, Item, Remark, in_order
from backfill_manager.importers.source import Source, called, keywords_of, names_in, parameters_of, with_positional
from backfill_manager.importers.writer import OURS, identifier, quoted, unparse

_PARTITIONS: Final = {
    "HourlyPartitionsDefinition": "@hourly", "DailyPartitionsDefinition": "@daily", "WeeklyPartitionsDefinition": "@weekly",
    "MonthlyPartitionsDefinition": "@monthly",
}  # fmt: skip
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
_NO_EQUAL: Final = {
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
_IN_ORDER: Final = "Write it as tasks and their order"
_DECORATORS: Final = (
    "asset", "op", "job", "multi_asset", "graph", "graph_asset", "sensor", "schedule", "asset_check", "asset_sensor",
    "graph_multi_asset", "observable_source_asset", "resource", "repository", "run_failure_sensor",
)  # fmt: skip
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_READ: Final = (
    *_PARTITIONS, "Definitions", "ScheduleDefinition", "define_asset_job", "build_schedule_from_partitioned_job", "RetryPolicy",
    "StaticPartitionsDefinition", "AssetSelection", "load_assets_from_current_module", "load_assets_from_modules",
)  # fmt: skip


@dataclass
class _Node:
    """An asset or an op."""

    function: _Function
    name: str
    given: dict[str, ast.expr]
    upstream: list[str] = field(default_factory=list)
    partitions: str = ""  # text of its definition; empty for none
    renamed: dict[str, str] = field(default_factory=dict)  # parameter: the asset that it stands for
    depends_on_past: bool = False  # on its own partition before

    def parameters(self) -> dict[str, str]:
        """Each with the name of the asset that it would stand for."""
        return {one.arg: self.renamed.get(one.arg, one.arg) for one in parameters_of(self.function)}


@dataclass
class _Cron:
    """A schedule of a job."""

    job: str
    cron: str
    zone: str | None
    selected: set[str] | None  # the assets of the job; None: it does not list them
    has_dag: bool = False


def translate(text: str, file: str) -> Draft:
    """`SyntaxError` for what is no Python."""
    return _File(Source(text, file), file).draft()


class _File:
    def __init__(self, source: Source, file: str) -> None:
        self.source, self.stem = source, _identifier(file.rpartition("/")[2].removesuffix(".py"))
        self.result = Draft("Dagster")
        self.assets: dict[str, _Node] = {}
        self.ops: dict[str, _Node] = {}
        self.jobs: list[tuple[ast.FunctionDef, dict[str, ast.expr]]] = []
        self.values: dict[str, ast.expr] = {}
        self.crons: list[_Cron] = []

    def _kind(self, node: ast.AST) -> str:
        dotted = self.source.dotted(called(node))
        return dotted.rpartition(".")[2] if dotted.partition(".")[0] == "dagster" else ""

    def _remark(self, items: list[Remark] | list[Item], node: ast.AST, what: str, instead: str) -> None:
        self.result.remark(items, Remark.at(node, what, instead))

    def draft(self) -> Draft:
        body = list(self.source.tree.body)
        if (doc := ast.get_docstring(self.source.tree)) is not None:
            self.result.doc = doc.strip()
            body.pop(0)
        for statement in body:
            self._statement(statement)
        self._asset_dags()
        for one in self._crons_of_assets():
            if not one.has_dag:
                self._remark(
                    self.result.items, self.source.tree, f"the schedule {one.cron} of {one.job or 'a job'}",
                    "schedule= of the DAG is that of the partitions",
                )  # fmt: skip
        for job, given in self.jobs:
            self._job_dag(job, given)
        return self.result.finished("no asset and no job was found")

    def _statement(self, node: ast.stmt) -> None:
        items = self.result.items
        match node:
            case ast.Import() | ast.ImportFrom():
                module = node.module or "" if isinstance(node, ast.ImportFrom) else node.names[0].name
                if not module.startswith("dagster"):
                    self.result.imports.append(unparse(node))
                return
            case ast.FunctionDef(decorator_list=[*decorators]) | ast.AsyncFunctionDef(decorator_list=[*decorators]) if (
                any(self._kind(one) in _DECORATORS for one in decorators)
            ):
                decorator = next(one for one in decorators if self._kind(one) in _DECORATORS)
                self._decorated(node, self._kind(decorator), decorator)
                return
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self.values[name] = value
        for one in ast.walk(node):
            if isinstance(one, ast.Call):
                self._call(keywords_of(one), one)
        used = [name for name in sorted(names_in(node)) if self.source.origins.get(name, "").startswith("dagster")]
        if not used:
            items.append(Code("\n".join([*self.source.comments_before(node), self.source.segment(node)])))
        elif self._is_odd(node):
            self._remark(items, node, f"{self.source.origins[used[0]]} is used", "It has no equal here")

    def _is_odd(self, node: ast.stmt) -> bool:
        """What is not read elsewhere."""
        return not any(isinstance(one, ast.Call) and self._kind(one) in _READ for one in ast.walk(node))

    def _call(self, given: dict[str, ast.expr], node: ast.Call) -> None:
        """What is read of calls outside of functions: schedules, and jobs of assets."""
        kind = self._kind(node)
        if kind == "ScheduleDefinition":
            self._schedule(given)
        elif kind == "build_schedule_from_partitioned_job":
            for name in ("minute_of_hour", "hour_of_day", "day_of_week", "day_of_month"):
                if (value := given.get(name)) is not None and unparse(value) != "0":
                    self._remark(
                        self.result.items, node, f"{name}={unparse(value)} of a schedule",
                        "A run starts when its interval has ended: a schedule= in cron moves the interval with it",
                    )  # fmt: skip
        elif kind == "define_asset_job" and (selection := given.get("selection") or next(iter(node.args[1:]), None)):
            text = unparse(selection)
            if text not in ("'*'", '"*"') and not text.endswith("AssetSelection.all()"):
                self._remark(
                    self.result.items, node, f"selection={text[:60]} of a job",
                    "A DAG has all assets with the same partitions: move the others into a DAG of their own",
                )  # fmt: skip

    def _schedule(self, given: dict[str, ast.expr]) -> None:
        cron, zone = (_text(given.get(name)) for name in ("cron_schedule", "execution_timezone"))
        job = given.get("job")
        name = job.id if isinstance(job, ast.Name) else _text(given.get("job_name")) or ""
        made = self.values.get(name, job)
        of_job = with_positional(made, "name", "selection") if isinstance(made, ast.Call) else {}
        if cron:
            self.crons.append(
                _Cron(name or _text(of_job.get("name")) or "", cron, zone, _listed(of_job.get("selection")))
            )
        elif node := given.get("cron_schedule"):
            self._remark(self.result.items, node, f"cron_schedule={unparse(node)[:60]}", "Set schedule= of the DAG")

    def _decorated(self, node: _Function, kind: str, decorator: ast.expr) -> None:
        given = keywords_of(decorator)
        if kind == "schedule":
            self._schedule(given)
            instead = "Its cron is that of the DAG where no other is taken; what its function computes is for params="
            self._remark(self.result.items, node, f"the schedule {node.name}", instead)
        elif kind == "job" and isinstance(node, ast.FunctionDef):
            self.jobs.append((node, given))
        elif kind in ("asset", "op"):
            name = _text(given.get("name")) or (_text(given.get("key")) or node.name).rpartition("/")[2]
            if kind == "asset" and name in self.assets:
                instead = f"It is {node.name} here, its key has another prefix"
                self._remark(self.result.items, node, f"another asset {name}", instead)
                name = node.name
            partitions = given.get("partitions_def")
            if isinstance(partitions, ast.Name) and partitions.id in self.values:
                partitions = self.values[partitions.id]
            text = unparse(partitions) if partitions is not None else ""
            made = _Node(node, name, given, partitions=text)
            if kind == "asset":
                self.assets[name] = made
            else:
                self.ops[node.name] = made
        else:
            of_writer = 'checks=["rows > 0"] of the task that writes it'
            instead = of_writer if kind == "asset_check" else "Write it as tasks of a DAG"
            self._remark(self.result.items, node, f"@{kind} {node.name}", instead)

    # -- assets ------------------------------------------------------------------------------------------------------
    def _asset_dags(self) -> None:
        """A DAG for each definition of partitions, as it is their schedule."""
        for asset in self.assets.values():
            self._find_upstream(asset)
        groups: dict[str, list[_Node]] = {}
        in_their_order = in_order({name: asset.upstream for name, asset in self.assets.items()}, "assets")
        for asset in map(self.assets.__getitem__, in_their_order):
            groups.setdefault(asset.partitions, []).append(asset)
        for number, (partitions, assets) in enumerate(groups.items()):
            dag = DraftDag(self.stem if number == 0 else f"{self.stem}_{number + 1}", {})
            self._settings(dag, partitions, assets)
            self.result.items.append(dag)
            inside = {asset.name for asset in assets}
            for asset in assets:
                for upstream in asset.upstream:
                    if upstream not in inside:
                        self._remark(dag.items, asset.function, f"the asset {asset.name} needs {upstream}, of another DAG",
                                     'Wait for its table: waits_for=["..."]')  # fmt: skip
                before = [one for one in asset.upstream if one in inside]
                self._task(dag, asset, before, {one: of for one, of in asset.parameters().items() if of in before})

    def _find_upstream(self, asset: _Node) -> None:
        """By its arguments and its parameters; itself means its own partition before."""
        for name in ("deps", "non_argument_deps"):
            for one in getattr(asset.given.get(name), "elts", []):
                asset.upstream.append((_key_of(one) or unparse(one)).rpartition("/")[2])
        ins = asset.given.get("ins")
        if isinstance(ins, ast.Dict):
            for key, value in zip(ins.keys, ins.values, strict=True):
                own = _text(with_positional(value, "key").get("key")) if isinstance(value, ast.Call) else None
                asset.renamed[_text(key) or ""] = (own or _text(key) or "").rpartition("/")[2]
        asset.upstream += [name for name in asset.parameters().values() if name in self.assets]
        asset.depends_on_past = asset.name in asset.upstream
        asset.upstream = [one for one in dict.fromkeys(asset.upstream) if one != asset.name]

    def _settings(self, dag: DraftDag, partitions: str, assets: Sequence[_Node]) -> None:
        dag.settings["schedule"] = "None"
        first = assets[0]
        if partitions:
            self._schedule_of_partitions(dag, partitions, first)
        else:
            self._schedule_by_cron(dag, assets)
        owners = first.given.get("owners")
        if isinstance(owners, ast.List) and owners.elts and (owner := _text(owners.elts[0])):
            dag.settings["owner"] = quoted(owner)
        groups = {text for asset in assets if (text := _text(asset.given.get("group_name")))}
        if groups:
            dag.settings["tags"] = "[" + ", ".join(map(quoted, sorted(groups))) + "]"

    def _schedule_of_partitions(self, dag: DraftDag, partitions: str, first: _Node) -> None:
        kind, given = self._partitions(partitions)
        if kind not in _PARTITIONS:
            self._remark(dag.remarks, first.function, f"partitions {partitions[:60]}",
                         "Each is a run: `bfm backfill create DAG --partition KEY`, ctx.partition_key")  # fmt: skip
            return
        dag.settings["schedule"] = quoted(_PARTITIONS[kind])
        for name in ("start_date", "end_date", "timezone"):
            value = given.get(name)
            text = _text(value)
            if text is not None and name != "timezone":
                text = _date(text, is_end=name == "end_date")
            if text:
                dag.settings[name] = quoted(text)
            elif value is not None:
                self._remark(dag.remarks, first.function, f"{name}={unparse(value)}", "Write it out")
        if cron := _cron(kind, given):
            dag.settings["schedule"] = quoted(cron)
        elif cron is None:
            self._remark(dag.remarks, first.function, "an offset of the partitions", "Write the schedule as cron")
        if "end_offset" in given and unparse(given["end_offset"]) != "0":
            what = f"end_offset={unparse(given['end_offset'])}"
            self._remark(dag.remarks, first.function, what, "A run starts when its interval has ended")
        if (excluded := given.get("exclusions")) is not None:
            days = None if kind.startswith("Hourly") else _days(excluded)
            if days:
                dag.settings["exclude_dates"] = f"[{', '.join(map(quoted, days))}]"
            instead = (
                "With exclude_dates= the interval before is longer; ctx.skip() in a task leaves the data out"
                if days
                else "exclude_dates= takes dates; a cron expression leaves out weekdays"
            )
            self._remark(dag.remarks, first.function, f"exclusions={unparse(excluded)[:60]}", instead)

    def _crons_of_assets(self) -> list[_Cron]:
        of_ops = {one for job, given in self.jobs for one in (job.name, _text(given.get("name")))}
        return [one for one in self.crons if one.job not in of_ops]

    def _schedule_by_cron(self, dag: DraftDag, assets: Sequence[_Node]) -> None:
        """The first of the schedules of these assets: of no job of ops, and of none that selects other assets only."""
        first, names = assets[0].function, {asset.name for asset in assets}
        crons = [
            one for one in self._crons_of_assets()
            if one.selected is None or one.selected & names or not one.selected <= self.assets.keys()
        ]  # fmt: skip
        for one in crons:
            one.has_dag = True
        for other in crons[1:]:
            self._remark(dag.remarks, first, f"the schedule {other.cron}", "Move its assets into a DAG of their own")
        self._schedule_by_first(dag, crons, first)

    def _schedule_by_first(self, dag: DraftDag, crons: Sequence[_Cron], node: ast.AST) -> None:
        for one in crons[:1]:
            dag.settings |= {"schedule": quoted(one.cron), **({"timezone": quoted(one.zone)} if one.zone else {})}
            self._remark(dag.remarks, node, "start_date is not known", "Set start_date=, where its intervals begin")

    # -- jobs of ops -------------------------------------------------------------------------------------------------
    def _job_dag(self, job: ast.FunctionDef, given: dict[str, ast.expr]) -> None:
        own_name = _text(given.get("name")) or job.name
        dag = DraftDag(_identifier(own_name), {"schedule": "None"}, ast.get_docstring(job) or "")
        for key, value in given.items():
            if key not in ("name", "description", "tags", "metadata"):
                self._remark(dag.remarks, value, f"{key}= of {own_name}", _NO_EQUAL.get(key, "It has no equal here"))
        own = [one for one in self.crons if one.job in (job.name, own_name)]
        self._schedule_by_first(dag, own, job)
        for other in own[1:]:
            what = f"another schedule of {own_name}: {other.cron}{f' in {other.zone}' if other.zone else ''}"
            self._remark(dag.remarks, job, what, "A DAG has one: make another DAG of the same tasks, in a loop")
        known: dict[str, str] = {}
        counts: dict[str, int] = {}

        def made(node: ast.expr) -> str | None:
            match node:
                case ast.Name(id=name):
                    return known.get(name)
                case ast.Call(func=ast.Name(id=name)) if name in self.ops:
                    op = self.ops[name]
                    values = with_positional(node, *(name for name in op.parameters() if name != "context"))
                    upstream = {parameter: task for parameter, value in values.items() if (task := made(value))}
                    counts[name] = counts.get(name, 0) + 1
                    task_id = op.name if counts[name] == 1 else f"{op.name}_{counts[name]}"
                    node_ = _Node(op.function, task_id, op.given)
                    self._task(dag, node_, list(dict.fromkeys(upstream.values())), upstream)
                    return task_id
            self._remark(dag.items, node, f"`{unparse(node)[:60]}` in the job", _IN_ORDER)
            return None

        for statement in job.body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    if task := made(value):
                        known[name] = task
                case ast.Expr(value=ast.Constant()):
                    continue
                case ast.Expr(value=value):
                    made(value)
                case _:
                    self._remark(dag.items, statement, f"`{unparse(statement)[:60]}` in the job", _IN_ORDER)
        if any(isinstance(item, DraftTask) for item in dag.items):
            self.result.items.append(dag)

    def _partitions(self, text: str) -> tuple[str, dict[str, ast.expr]]:
        """The kind of a definition, and what it is given."""
        call = ast.parse(text or "None", mode="eval").body
        return self._kind(call), with_positional(call, "start_date") if isinstance(call, ast.Call) else {}

    def _partition_key(self, node: _Node) -> str:
        """The local time at which a time partition begins, as Dagster writes it."""
        kind, given = self._partitions(node.partitions)
        if kind not in _PARTITIONS:
            return "ctx.partition_key"
        form = _text(given.get("fmt")) or ("%Y-%m-%d-%H:%M" if kind.startswith("Hourly") else "%Y-%m-%d")
        local = self._local(node, "ctx.logical_date")
        return f"{local}.strftime({quoted(form)})" if "(" in local else f'f"{{{local}:{form}}}"'

    def _local(self, node: _Node, instant: str) -> str:
        """Of an instant of `ctx`, which is UTC's: the time in the zone of the partitions."""
        zone = _text(self._partitions(node.partitions)[1].get("timezone")) or "UTC"
        if zone == "UTC":
            return instant
        if (text := "from zoneinfo import ZoneInfo") not in self.result.imports:
            self.result.imports.append(text)
        return f"{instant}.astimezone(ZoneInfo({quoted(zone)}))"

    def _as_plain(self, function: _Function, body: str, remarks: list[Remark]) -> str:
        """The body of a function that gives its outputs by `yield`, or is `async`, as that of a plain one."""
        yields, is_async = _own_yields(function), isinstance(function, ast.AsyncFunctionDef)
        if not yields and not is_async:
            return body
        if yields > 1:
            self._remark(remarks, function, f"{function.name} yields its outputs", "All of them are a list here")
        inner = f"{'async ' if is_async else ''}def outputs():\n{textwrap.indent(body, '    ')}\n"
        given = f"[each {'async ' if is_async else ''}for each in outputs()]"
        if is_async and yields:
            inner, given = f"{inner}\nasync def gathered():\n    return {given}\n", "asyncio.run(gathered())"
        elif is_async:
            given = "asyncio.run(outputs())"
        if is_async and "import asyncio" not in self.result.imports:
            self.result.imports.append("import asyncio")
        return f"{inner}\nreturn {given}{'[-1]' if yields == 1 else ''}"

    # -- tasks -------------------------------------------------------------------------------------------------------
    def _task(self, dag: DraftDag, node: _Node, before: Sequence[str], results: dict[str, str]) -> None:
        """Writes a task, with each parameter as the result of the task that `results` names for it."""
        function = node.function
        remarks: list[Remark] = []
        settings: dict[str, str] = {}
        name = _identifier(node.name)
        name = f"{name}_" if name in OURS else name
        if name != node.name:
            settings["task_id"] = quoted(re.sub(r"[^A-Za-z0-9_.-]", "_", node.name))
        if node.depends_on_past:
            settings["depends_on_past"] = "True"
        settings |= self._retries(node, remarks)
        for given, value in node.given.items():
            if given not in _IGNORED_ARGUMENTS:
                self._remark(remarks, value, f"{given}= of {node.name}", _NO_EQUAL.get(given, "It has no equal here"))
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
                self._remark(remarks, one, f"`{one.arg}`, given by Dagster", instead)
                lines.append(f"{one.arg} = None")
        for of, mapping in self._mapped(node):
            instead = "ctx.result is of the same run: read what other runs have written from its table"
            self._remark(remarks, mapping, f"partition_mapping= of {of}", instead)
        if before:
            instead = "A result is a JSON value; data goes into tables: ctx.write, ctx.spark.table"
            self._remark(remarks, function, f"what {node.name} takes of others", instead)
        translated = self.source.body(function, lambda part: self._translated(part, node, contexts, remarks))
        body = self._as_plain(function, "\n".join([*lines, translated]), remarks)
        dag.items.append(DraftTask(name, settings, body, remarks=remarks))
        variables = [f"{_identifier(one)}_task" for one in before]
        first = variables[0] if len(variables) == 1 else f"[{', '.join(variables)}]"
        dag.items.append(Code(f"{_identifier(node.name)}_task = {f'{first} >> ' if before else ''}{name}()"))

    def _mapped(self, node: _Node) -> Iterator[tuple[str, ast.expr]]:
        """Assets of which it takes other partitions than its own."""
        for name in ("deps", "ins"):
            given = node.given.get(name)
            keys = [_text(key) for key in given.keys] if isinstance(given, ast.Dict) else []
            for number, one in enumerate(getattr(given, "values", getattr(given, "elts", []))):
                if isinstance(one, ast.Call) and (mapping := keywords_of(one).get("partition_mapping")) is not None:
                    key = node.renamed[keys[number] or ""] if keys else _key_of(one) or unparse(one)
                    if key != node.name:  # its own: depends_on_past
                        yield key, mapping

    def _retries(self, node: _Node, remarks: list[Remark]) -> dict[str, str]:
        policy = node.given.get("retry_policy")
        policy = self.values.get(policy.id) if isinstance(policy, ast.Name) else policy
        if not isinstance(policy, ast.Call):
            return {}
        values = with_positional(policy, "max_retries", "delay", "backoff")
        settings = {"retries": unparse(values["max_retries"]) if "max_retries" in values else "1"}
        if "delay" in values:
            settings["retry_delay"] = unparse(values["delay"])
        if "backoff" in values and unparse(values["backoff"]).endswith(".EXPONENTIAL"):
            settings["retry_backoff"] = "2"
        elif "backoff" in values:
            self._remark(remarks, policy, f"backoff={unparse(values['backoff'])}", "retry_backoff= is a factor")
        return settings

    def _translated(self, part: ast.AST, node: _Node, contexts: Collection[str], remarks: list[Remark]) -> str | None:
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
                    self._remark(remarks, part, f"context.{attr}", "ctx has no equal; see docs/authoring.md")
                return _CONTEXT.get(attr)
            case (
                ast.Return(value=ast.Call(args=[value, *_]) as call)
                | ast.Yield(value=ast.Call(args=[value, *_]) as call)
            ) if self._kind(call) == "Output":
                return f"{'yield' if isinstance(part, ast.Yield) else 'return'} {unparse(value)}"
            case ast.Return(value=ast.Call() as call) if self._kind(call) in ("MaterializeResult", "Output"):
                self._remark(remarks, part, self._kind(call), "Metadata is what a task logs, or its result")
                return "return None"
            case ast.Name(id=used) if self.source.origins.get(used, "").startswith("dagster"):
                what = f"{self.source.origins[used]} is used"
                self._remark(remarks, part, what, "It is not here when the task runs; replace it")
        return None


def _key_of(node: ast.expr) -> str | None:
    """Of an asset that another names: as text, by its function, or as what is given to AssetKey and the like."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Call(args=[first, *_]):
            return _text(node) or _text(first)
    return _text(node)


def _listed(selection: ast.expr | None) -> set[str] | None:
    """The names of the assets of a selection; None for one that is no plain list of them."""
    nodes = selection.elts if isinstance(selection, ast.List | ast.Tuple) else [selection]
    names = {_key_of(one) if isinstance(one, ast.Name | ast.Constant) else None for one in nodes if one is not None}
    return {name.rpartition("/")[2] for name in names if name} if names and None not in names else None


def _own_yields(function: _Function) -> int:
    found, waiting = 0, list[ast.AST](function.body)
    while waiting:
        one = waiting.pop()
        found += isinstance(one, ast.Yield | ast.YieldFrom)
        if not isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            waiting += ast.iter_child_nodes(one)
    return found


def _cron(kind: str, given: dict[str, ast.expr]) -> str | None:
    """The schedule of partitions that begin later than the preset's; empty if they don't, None if it is not written out."""
    first_day = 1 if kind.startswith("Monthly") else 0
    values = []
    for name, default in (("minute_offset", 0), ("hour_offset", 0), ("day_offset", first_day)):
        match given.get(name):
            case None:
                values.append(default)
            case ast.Constant(value=int() as value):
                values.append(value)
            case _:
                return None
    minute, hour, day = values
    if values == [0, 0, first_day]:
        return ""
    if kind.startswith("Hourly"):
        return f"{minute} * * * *"
    if kind.startswith("Monthly"):
        return f"{minute} {hour} {day} * *"
    return f"{minute} {hour} * * {day if kind.startswith('Weekly') else '*'}"


def _days(excluded: ast.expr) -> list[str] | None:
    """The dates of a list of `datetime(2025, 12, 25)`; None if anything else is in it."""
    days = []
    for one in excluded.elts if isinstance(excluded, ast.List | ast.Tuple) else [excluded]:
        if not isinstance(one, ast.Call) or unparse(one.func).rpartition(".")[2] != "datetime":
            return None
        try:
            at = datetime(*(ast.literal_eval(part) for part in one.args))
        except (TypeError, ValueError):
            return None
        if at.time() != time() or any(word.arg not in ("tz", "tzinfo") for word in one.keywords):
            return None
        days.append(f"{at:%Y-%m-%d}")
    return days


def _date(text: str, *, is_end: bool) -> str | None:
    """A date or hour (`2024-05-01-06:00`) as ours. Dagster's end is the first that has no partition, ours the last that has."""
    found = re.fullmatch(r"(\d{4}-\d\d-\d\d)(?:[-T ](\d\d:\d\d)(?::00)?)?", text)
    if found is None:
        return None
    at = datetime.fromisoformat(f"{found[1]}T{found[2] or '00:00'}") - timedelta(minutes=is_end)
    return at.isoformat(timespec="minutes") if found[2] else f"{at:%Y-%m-%d}"


def _text(node: ast.AST | None) -> str | None:
    match node:
        case ast.Constant(value=str() as text):
            return text
        case (
            ast.Call(args=[ast.Constant(value=str() as text)])
            | ast.Call(args=[ast.List(elts=[*_, ast.Constant(value=str() as text)])])
        ):
            return text  # AssetKey("a"), AssetKey(["a", "b"])
    return None


def _identifier(name: str) -> str:
    return identifier(name, "a", "assets")
