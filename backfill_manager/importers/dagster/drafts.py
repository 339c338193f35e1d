"""Dagster's assets and jobs as drafts, by `ast` alone: each asset or op a Python task, time partitions as the schedule."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Final

from backfill_manager.importers.dagster.nodes import (
    Cron,
    DagsterFile,
    Function,
    Node,
    identifier_of,
    key_of,
    listed,
    text_of,
)
from backfill_manager.importers.dagster.partitions import PARTITIONS, cron_of, date_of, days_of
from backfill_manager.importers.dagster.tasks import NO_EQUAL, TaskWriter
from backfill_manager.importers.draft import Code, Draft, DraftDag, DraftTask, in_order
from backfill_manager.importers.source import Source, keywords_of, names_in, with_positional
from backfill_manager.importers.writer import quoted, unparse

_IN_ORDER: Final = "Write it as tasks and their order"
_DECORATORS: Final = (
    "asset", "op", "job", "multi_asset", "graph", "graph_asset", "sensor", "schedule", "asset_check", "asset_sensor",
    "graph_multi_asset", "observable_source_asset", "resource", "repository", "run_failure_sensor",
)  # fmt: skip
_READ: Final = (
    *PARTITIONS, "Definitions", "ScheduleDefinition", "define_asset_job", "build_schedule_from_partitioned_job", "RetryPolicy",
    "StaticPartitionsDefinition", "AssetSelection", "load_assets_from_current_module", "load_assets_from_modules",
)  # fmt: skip


def translate(text: str, file: str) -> Draft:
    """`SyntaxError` for what is no Python."""
    return _File(Source(text, file), file).draft()


class _File(DagsterFile):
    def __init__(self, source: Source, file: str) -> None:
        super().__init__(source)
        self.stem = identifier_of(file.rpartition("/")[2].removesuffix(".py"))
        self.tasks = TaskWriter(self)
        self.assets: dict[str, Node] = {}
        self.ops: dict[str, Node] = {}
        self.jobs: list[tuple[ast.FunctionDef, dict[str, ast.expr]]] = []
        self.crons: list[Cron] = []

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
                self.remark(
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
                any(self.kind(one) in _DECORATORS for one in decorators)
            ):
                decorator = next(one for one in decorators if self.kind(one) in _DECORATORS)
                self._decorated(node, self.kind(decorator), decorator)
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
            self.remark(items, node, f"{self.source.origins[used[0]]} is used", "It has no equal here")

    def _is_odd(self, node: ast.stmt) -> bool:
        """What is not read elsewhere."""
        return not any(isinstance(one, ast.Call) and self.kind(one) in _READ for one in ast.walk(node))

    def _call(self, given: dict[str, ast.expr], node: ast.Call) -> None:
        """What is read of calls outside of functions: schedules, and jobs of assets."""
        kind = self.kind(node)
        if kind == "ScheduleDefinition":
            self._schedule(given)
        elif kind == "build_schedule_from_partitioned_job":
            for name in ("minute_of_hour", "hour_of_day", "day_of_week", "day_of_month"):
                if (value := given.get(name)) is not None and unparse(value) != "0":
                    self.remark(
                        self.result.items, node, f"{name}={unparse(value)} of a schedule",
                        "A run starts when its interval has ended: a schedule= in cron moves the interval with it",
                    )  # fmt: skip
        elif kind == "define_asset_job" and (selection := given.get("selection") or next(iter(node.args[1:]), None)):
            text = unparse(selection)
            if text not in ("'*'", '"*"') and not text.endswith("AssetSelection.all()"):
                self.remark(
                    self.result.items, node, f"selection={text[:60]} of a job",
                    "A DAG has all assets with the same partitions: move the others into a DAG of their own",
                )  # fmt: skip

    def _schedule(self, given: dict[str, ast.expr]) -> None:
        cron, zone = (text_of(given.get(name)) for name in ("cron_schedule", "execution_timezone"))
        job = given.get("job")
        name = job.id if isinstance(job, ast.Name) else text_of(given.get("job_name")) or ""
        made = self.values.get(name, job)
        of_job = with_positional(made, "name", "selection") if isinstance(made, ast.Call) else {}
        if cron:
            self.crons.append(
                Cron(name or text_of(of_job.get("name")) or "", cron, zone, listed(of_job.get("selection")))
            )
        elif node := given.get("cron_schedule"):
            self.remark(self.result.items, node, f"cron_schedule={unparse(node)[:60]}", "Set schedule= of the DAG")

    def _decorated(self, node: Function, kind: str, decorator: ast.expr) -> None:
        given = keywords_of(decorator)
        if kind == "schedule":
            self._schedule(given)
            instead = "Its cron is that of the DAG where no other is taken; what its function computes is for params="
            self.remark(self.result.items, node, f"the schedule {node.name}", instead)
        elif kind == "job" and isinstance(node, ast.FunctionDef):
            self.jobs.append((node, given))
        elif kind in ("asset", "op"):
            name = text_of(given.get("name")) or (text_of(given.get("key")) or node.name).rpartition("/")[2]
            if kind == "asset" and name in self.assets:
                instead = f"It is {node.name} here, its key has another prefix"
                self.remark(self.result.items, node, f"another asset {name}", instead)
                name = node.name
            partitions = given.get("partitions_def")
            if isinstance(partitions, ast.Name) and partitions.id in self.values:
                partitions = self.values[partitions.id]
            text = unparse(partitions) if partitions is not None else ""
            made = Node(node, name, given, partitions=text)
            if kind == "asset":
                self.assets[name] = made
            else:
                self.ops[node.name] = made
        else:
            of_writer = 'checks=["rows > 0"] of the task that writes it'
            instead = of_writer if kind == "asset_check" else "Write it as tasks of a DAG"
            self.remark(self.result.items, node, f"@{kind} {node.name}", instead)

    def _asset_dags(self) -> None:
        """A DAG for each definition of partitions, as it is their schedule."""
        for asset in self.assets.values():
            self._find_upstream(asset)
        groups: dict[str, list[Node]] = {}
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
                        self.remark(dag.items, asset.function, f"the asset {asset.name} needs {upstream}, of another DAG",
                                     'Wait for its table: waits_for=["..."]')  # fmt: skip
                before = [one for one in asset.upstream if one in inside]
                self.tasks.write(
                    dag, asset, before, {one: of for one, of in asset.parameters().items() if of in before}
                )

    def _find_upstream(self, asset: Node) -> None:
        """By its arguments and its parameters; itself means its own partition before."""
        for name in ("deps", "non_argument_deps"):
            for one in getattr(asset.given.get(name), "elts", []):
                asset.upstream.append((key_of(one) or unparse(one)).rpartition("/")[2])
        ins = asset.given.get("ins")
        if isinstance(ins, ast.Dict):
            for key, value in zip(ins.keys, ins.values, strict=True):
                own = text_of(with_positional(value, "key").get("key")) if isinstance(value, ast.Call) else None
                asset.renamed[text_of(key) or ""] = (own or text_of(key) or "").rpartition("/")[2]
        asset.upstream += [name for name in asset.parameters().values() if name in self.assets]
        asset.depends_on_past = asset.name in asset.upstream
        asset.upstream = [one for one in dict.fromkeys(asset.upstream) if one != asset.name]

    def _settings(self, dag: DraftDag, partitions: str, assets: Sequence[Node]) -> None:
        dag.settings["schedule"] = "None"
        first = assets[0]
        if partitions:
            self._schedule_of_partitions(dag, partitions, first)
        else:
            self._schedule_by_cron(dag, assets)
        owners = first.given.get("owners")
        if isinstance(owners, ast.List) and owners.elts and (owner := text_of(owners.elts[0])):
            dag.settings["owner"] = quoted(owner)
        groups = {text for asset in assets if (text := text_of(asset.given.get("group_name")))}
        if groups:
            dag.settings["tags"] = "[" + ", ".join(map(quoted, sorted(groups))) + "]"

    def _schedule_of_partitions(self, dag: DraftDag, partitions: str, first: Node) -> None:
        kind, given = self.partitions(partitions)
        if kind not in PARTITIONS:
            self.remark(dag.remarks, first.function, f"partitions {partitions[:60]}",
                         "Each is a run: `bfm backfill create DAG --partition KEY`, ctx.partition_key")  # fmt: skip
            return
        dag.settings["schedule"] = quoted(PARTITIONS[kind])
        for name in ("start_date", "end_date", "timezone"):
            value = given.get(name)
            text = text_of(value)
            if text is not None and name != "timezone":
                text = date_of(text, is_end=name == "end_date")
            if text:
                dag.settings[name] = quoted(text)
            elif value is not None:
                self.remark(dag.remarks, first.function, f"{name}={unparse(value)}", "Write it out")
        if cron := cron_of(kind, given):
            dag.settings["schedule"] = quoted(cron)
        elif cron is None:
            self.remark(dag.remarks, first.function, "an offset of the partitions", "Write the schedule as cron")
        if "end_offset" in given and unparse(given["end_offset"]) != "0":
            what = f"end_offset={unparse(given['end_offset'])}"
            self.remark(dag.remarks, first.function, what, "A run starts when its interval has ended")
        if (excluded := given.get("exclusions")) is not None:
            days = None if kind.startswith("Hourly") else days_of(excluded)
            if days:
                dag.settings["exclude_dates"] = f"[{', '.join(map(quoted, days))}]"
            instead = (
                "With exclude_dates= the interval before is longer; ctx.skip() in a task leaves the data out"
                if days
                else "exclude_dates= takes dates; a cron expression leaves out weekdays"
            )
            self.remark(dag.remarks, first.function, f"exclusions={unparse(excluded)[:60]}", instead)

    def _crons_of_assets(self) -> list[Cron]:
        of_ops = {one for job, given in self.jobs for one in (job.name, text_of(given.get("name")))}
        return [one for one in self.crons if one.job not in of_ops]

    def _schedule_by_cron(self, dag: DraftDag, assets: Sequence[Node]) -> None:
        """The first of the schedules of these assets: of no job of ops, and of none that selects other assets only."""
        first, names = assets[0].function, {asset.name for asset in assets}
        crons = [
            one for one in self._crons_of_assets()
            if one.selected is None or one.selected & names or not one.selected <= self.assets.keys()
        ]  # fmt: skip
        for one in crons:
            one.has_dag = True
        for other in crons[1:]:
            self.remark(dag.remarks, first, f"the schedule {other.cron}", "Move its assets into a DAG of their own")
        self._schedule_by_first(dag, crons, first)

    def _schedule_by_first(self, dag: DraftDag, crons: Sequence[Cron], node: ast.AST) -> None:
        for one in crons[:1]:
            dag.settings |= {"schedule": quoted(one.cron), **({"timezone": quoted(one.zone)} if one.zone else {})}
            self.remark(dag.remarks, node, "start_date is not known", "Set start_date=, where its intervals begin")

    def _job_dag(self, job: ast.FunctionDef, given: dict[str, ast.expr]) -> None:
        own_name = text_of(given.get("name")) or job.name
        dag = DraftDag(identifier_of(own_name), {"schedule": "None"}, ast.get_docstring(job) or "")
        for key, value in given.items():
            if key not in ("name", "description", "tags", "metadata"):
                self.remark(dag.remarks, value, f"{key}= of {own_name}", NO_EQUAL.get(key, "It has no equal here"))
        own = [one for one in self.crons if one.job in (job.name, own_name)]
        self._schedule_by_first(dag, own, job)
        for other in own[1:]:
            what = f"another schedule of {own_name}: {other.cron}{f' in {other.zone}' if other.zone else ''}"
            self.remark(dag.remarks, job, what, "A DAG has one: make another DAG of the same tasks, in a loop")
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
                    node_ = Node(op.function, task_id, op.given)
                    self.tasks.write(dag, node_, list(dict.fromkeys(upstream.values())), upstream)
                    return task_id
            self.remark(dag.items, node, f"`{unparse(node)[:60]}` in the job", _IN_ORDER)
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
                    self.remark(dag.items, statement, f"`{unparse(statement)[:60]}` in the job", _IN_ORDER)
        if any(isinstance(item, DraftTask) for item in dag.items):
            self.result.items.append(dag)
