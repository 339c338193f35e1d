"""Settings of Airflow's DAGs and operators as ours, as text of Python by keyword."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from backfill_manager.importers.source import Source, keywords_of, names_in
from backfill_manager.importers.writer import call, keywords, quoted, unparse
from backfill_manager.model.states import TRIGGER_RULES

Report = Callable[[ast.AST, str, str], None]  # where, what, what instead
Settings = dict[str, str]

_RENAMED: Final = {
    "retries": "retries", "retry_delay": "retry_delay", "max_retry_delay": "max_retry_delay", "execution_timeout": "timeout",
    "depends_on_past": "depends_on_past", "wait_for_downstream": "wait_for_downstream", "pool": "pool", "pool_slots": "weight",
    "priority_weight": "priority", "max_active_tis_per_dag": "max_active_tis", "task_concurrency": "max_active_tis",
}  # fmt: skip
_DAG_RENAMED: Final = {
    "catchup": "catchup", "max_active_runs": "max_active_runs", "max_active_tasks": "max_active_tasks",
    "concurrency": "max_active_tasks", "tags": "tags", "description": "description",
}  # fmt: skip
RULES: Final = {"none_failed_or_skipped": "none_failed_min_one_success", "dummy": "always"}
_CALLBACKS: Final = {
    "on_success_callback": "on_success=", "on_failure_callback": "on_failure=", "on_execute_callback": "the task itself",
    "on_retry_callback": "on_failure=, which is called after the last try", "on_skipped_callback": "a task after it",
    "pre_execute": "the task itself", "post_execute": "the task itself",
}  # fmt: skip
_SILENT: Final = frozenset({  # without a meaning here, or looked at elsewhere
    "task_id", "dag", "dag_id", "task_group", "owner", "start_date", "end_date", "schedule", "schedule_interval", "timetable",
    "default_args", "params", "doc_md", "doc", "doc_json", "doc_yaml", "doc_rst", "task_display_name", "dag_display_name",
    "default_view", "orientation", "owner_links", "auto_register", "provide_context", "do_xcom_push", "ui_color",
    "email_on_failure", "email_on_retry", "trigger_rule", "retry_exponential_backoff", "multiple_outputs",
    "show_return_value_in_logs", "render_template_as_native_obj", "group_id", "prefix_group_id", "tooltip",
    "ignore_first_depends_on_past", "deferrable", "map_index_template", "inlets", "resources",
})  # fmt: skip
_NO_EQUAL: Final = {
    "email": "Write it in on_failure=, a function of ctx (docs/callbacks.md)",
    "queue": "Tasks take slots of pools: pool=",
    "weight_rule": "priority= of a task is taken as it is, whatever is after it",
    "fail_stop": "trigger_rule= of the tasks; a task whose upstream failed does not start",
    "fail_fast": "trigger_rule= of the tasks; a task whose upstream failed does not start",
    "is_paused_upon_creation": "`bfm dags pause DAG`",
    "access_control": "Roles are of the whole server: docs/how-to/secure-it.md",
    "sla": "expected_by= of the DAG: late runs are on the home page, and notified",
    "sla_miss_callback": "expected_by= and notify= of the DAG",
    "outlets": "Say what the DAG writes: writes=[table]; others wait with waits_for=[table]",
    "executor_config": "Limits of a task: memory=, nice=",
    "run_as_user": "Tasks run as the manager's user; see docs/isolation.md",
    "dagrun_timeout": "timeout= of the tasks",
    "template_searchpath": "A .sql file lies beside the DAG file",
    "user_defined_macros": "Write them as Python functions",
    "user_defined_filters": "Write them as Python functions",
    "jinja_environment_kwargs": "Write templates as Python or SQL parameters",
    "retry_policy": "retries=, retry_delay=, retry_backoff=",
    "max_active_tis_per_dagrun": "max_active_tis=, over all runs",
    "on_kill": "A task that is stopped gets SIGTERM; see docs/isolation.md",
    "executor": "Every task runs on the manager's machine or, with @task.executor, on a Spark executor",
    "env_vars": "os.environ in the task",
}  # fmt: skip
# Of every operator.
COMMON: Final = frozenset({*_RENAMED, *_CALLBACKS, *_NO_EQUAL, "trigger_rule", "retry_exponential_backoff"})
AIRFLOWS_RETRY_DELAY: Final = "300"  # where none is set; ours is 60
_PARAM_SILENT: Final = ("title", "section", "values_display", "description_md", "schema", "source", "custom_html_form")


class SettingsReader:
    def __init__(self, source: Source, constants: Mapping[str, ast.expr], report: Report) -> None:
        self.source, self.constants, self._report = source, constants, report
        self.consumed: set[str] = set()  # constants whose value was read

    def constant(self, node: ast.expr | None) -> ast.expr | None:
        """The value of a name that the file assigns once, at its top."""
        if isinstance(node, ast.Name) and node.id in self.constants:
            self.consumed.add(node.id)
            return self.constants[node.id]
        return node

    def text_of(self, node: ast.expr | None) -> str | None:
        node = self.constant(node)
        return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None

    def is_plain(self, node: ast.AST) -> bool:
        """Whether it means the same without Airflow, and without pendulum."""
        return not any(self.source.names_from(package, node) for package in ("airflow", "pendulum"))

    def of_mapping(self, node: ast.expr | None) -> dict[str, ast.expr]:
        """A dict that is written out, such as `default_args`."""
        node = self.constant(node)
        match node:
            case None | ast.Constant(value=None):
                return {}
            case ast.Dict(keys=keys, values=values):
                found: dict[str, ast.expr] = {}
                for key, value in zip(keys, values, strict=True):
                    if isinstance(key, ast.Constant):
                        found[str(key.value)] = value
                    elif key is None:
                        found |= self.of_mapping(value)
                return found
            case ast.Call(func=ast.Name(id="dict"), args=[]):
                return keywords_of(node)
        self._report(node, f"`{unparse(node)[:60]}`", "Its settings are not known before it runs; write them out")
        return {}

    def of_task(self, given: Mapping[str, ast.expr], known: frozenset[str] = frozenset()) -> Settings:
        """Settings of a task. `known`: arguments of its operator that the caller reads."""
        settings: Settings = {}
        for name, node in given.items():
            if name in _RENAMED:
                if self.is_plain(node) or self._duration(node):
                    settings[_RENAMED[name]] = self._duration(node) or unparse(node)
                    if name == "pool":
                        instead = "Declare it in conf/manager.yaml: pools: [{name: ..., slots: N}]"
                        self._report(node, f"the pool {unparse(node)}", instead)
                else:
                    self._report(node, f"{name}={unparse(node)}", f"Set {_RENAMED[name]}= to a plain value")
            elif name == "trigger_rule":
                if rule := self._rule(node):
                    settings["trigger_rule"] = rule
            elif name == "retry_exponential_backoff":
                if not (isinstance(node, ast.Constant) and not node.value):
                    is_number = isinstance(node, ast.Constant) and not isinstance(node.value, bool)
                    settings["retry_backoff"] = unparse(node) if is_number else "2"
            elif name in known or name in _SILENT or (isinstance(node, ast.Constant) and node.value is None):
                continue
            elif name in _CALLBACKS:
                instead = f"Use {_CALLBACKS[name]}, a function of ctx (docs/callbacks.md)"
                self._report(node, f"{name}={unparse(node)[:60]}", instead)
            else:
                self._report(node, f"{name}={unparse(node)[:60]}", _NO_EQUAL.get(name, "It has no equal here"))
        for name in ("retries", "priority", "weight", "max_active_tis"):
            if settings.get(name) == "None":
                del settings[name]
        return settings

    def _duration(self, node: ast.expr) -> str | None:
        """Of a `pendulum.duration` or a `datetime.timedelta`, seconds if they are plain numbers."""
        factors = {"days": 86400, "hours": 3600, "minutes": 60, "seconds": 1, "weeks": 604800}
        match node:
            case ast.Call(func=called, args=[], keywords=given) if self.source.dotted(called).rpartition(".")[2] in (
                "timedelta",
                "duration",
            ):
                total = 0.0
                for one in given:
                    if one.arg not in factors or not isinstance(one.value, ast.Constant):
                        return None
                    total += factors[one.arg] * float(str(one.value.value))
                return f"{total:g}" if total < 1e6 else str(int(total))
        return None

    def _rule(self, node: ast.expr) -> str | None:
        text = self.text_of(node)
        if text is None and isinstance(node, ast.Attribute):
            text = node.attr.lower()
        elif text is None and isinstance(node, ast.Name) and self.is_plain(node):
            return node.id
        elif text is None:
            self._report(node, f"trigger_rule={unparse(node)}", "Set one of the rules in docs/authoring.md")
            return None
        text = RULES.get(str(text), str(text))
        if text not in TRIGGER_RULES:
            self._report(node, f"the trigger rule {text}", "Set one of the rules in docs/authoring.md")
            return None
        return None if text == "all_success" else quoted(text)

    def of_dag(self, given: Mapping[str, ast.expr], default_args: Mapping[str, ast.expr], node: ast.AST) -> Settings:
        settings: Settings = {}
        both = {**{name: default_args[name] for name in ("start_date", "end_date") if name in default_args}, **given}
        schedule = next((given[name] for name in ("schedule", "schedule_interval", "timetable") if name in given), None)
        zone: list[str] = []
        if schedule is None:
            self._report(
                node, "no schedule", "Airflow 2 runs it once a day then, Airflow 3 only when triggered, as here"
            )
        elif text := self._schedule(schedule, zone):
            settings["schedule"] = text
        if settings.get("schedule") and "catchup" not in given:
            instead = "Airflow 2 makes up for all intervals since start_date then; Airflow 3 and this do not"
            self._report(node, "catchup is not set", instead)
        for name in ("start_date", "end_date"):
            if name in both and (text := self._date(both[name], name, zone)):
                settings[name] = text
        if zone and zone[0] not in ("UTC", "utc", "Etc/UTC"):
            settings["timezone"] = quoted(zone[0])
        settings.setdefault("schedule", "None")
        settings = {"schedule": settings.pop("schedule"), **settings}
        for name, value in given.items():
            if name in _DAG_RENAMED:
                if isinstance(value, ast.Constant) and value.value is None:
                    continue
                if self.is_plain(value):
                    settings[_DAG_RENAMED[name]] = unparse(value)
                else:
                    self._report(value, f"{name}={unparse(value)[:60]}", "Set it to a plain value")
            elif name in _CALLBACKS:
                self._report(
                    value, f"{name} of the DAG", f"Use {_CALLBACKS[name]}, a function of ctx (docs/callbacks.md)"
                )
            elif name not in _SILENT and not (isinstance(value, ast.Constant) and not value.value):
                self._report(value, f"{name} of the DAG", _NO_EQUAL.get(name, "It has no equal here"))
        if owner := self.text_of(default_args.get("owner")):
            settings["owner"] = quoted(owner)
        params = [one["params"] for one in (given, default_args) if "params" in one]  # the latter win in Airflow
        if params and (written := self._params(params)):
            settings["params"] = written
        args = {name: value for name, value in default_args.items() if name not in ("params", "start_date", "end_date")}
        of_tasks = self.of_task(args)
        if of_tasks.get("retries", "0") != "0":
            of_tasks.setdefault("retry_delay", AIRFLOWS_RETRY_DELAY)
        if of_tasks:
            settings["default_args"] = "{" + ", ".join(f'"{name}": {text}' for name, text in of_tasks.items()) + "}"
        return settings

    def _schedule(self, node: ast.expr, zone: list[str]) -> str | None:
        node = self.constant(node) or node
        match node:
            case ast.Constant(value=str() as text) if text in ("@continuous",):
                self._report(node, "schedule='@continuous'", 'Use a short one, such as schedule={"seconds": 60}')
                return None
            case ast.Constant(value=str() as text):
                return quoted(text)
            case ast.Constant(value=None):
                return None
            case ast.Call(func=called) if self.source.dotted(called).rpartition(".")[2] in (
                "timedelta",
                "relativedelta",
                "duration",
            ):
                if seconds := self._duration(node):
                    return f'{{"seconds": {int(float(seconds))}}}'
            case ast.Call(func=called, args=args, keywords=given):
                kind = self.source.dotted(called).rpartition(".")[2]
                for one in given:
                    if one.arg == "timezone":
                        self._add_zone(one.value, zone)
                first = args[0] if args else next((one.value for one in given if one.arg in ("cron", "delta")), None)
                if first is not None and kind in (
                    "CronDataIntervalTimetable",
                    "CronTriggerTimetable",
                    "DeltaDataIntervalTimetable",
                    "DeltaTriggerTimetable",
                ):
                    if kind.endswith("TriggerTimetable"):
                        self._report(
                            node,
                            kind,
                            "A run's logical date is the start of its interval here, not the instant at which it starts",
                        )
                    if len(args) > 1:
                        self._add_zone(args[1], zone)
                    return self._schedule(first, zone)
            case ast.Name() | ast.Subscript() | ast.Attribute() | ast.JoinedStr() | ast.IfExp() if self.is_plain(
                node
            ) and not (names_in(node) & self.source.origins.keys()):
                return unparse(node)
        what = unparse(node)
        instead = "Use cron, a preset, seconds or None; a DAG that waits for tables has waits_for=[table]"
        self._report(node, f"schedule={what[:60]}", instead)
        return None

    def _add_zone(self, node: ast.expr, zone: list[str]) -> None:
        if name := self._zone(node):
            zone.append(name)
        elif not (isinstance(node, ast.Constant) and node.value is None):
            self._report(
                node, f"the time zone {unparse(node)[:60]}", "Set timezone= of the DAG, such as 'Europe/Berlin'"
            )

    def _zone(self, node: ast.expr | None) -> str | None:
        match node:
            case ast.Call(args=[ast.Constant(value=str() as name)]):
                return name
            case ast.Attribute(attr="utc" | "UTC"):
                return "UTC"
            case ast.Name() if isinstance(value := self.constant(node), ast.Call):
                return self._zone(value)
        return self.text_of(node)

    def _date(self, node: ast.expr, name: str, zone: list[str]) -> str | None:
        value = self.constant(node) or node
        match value:
            case ast.Constant(value=None):
                return None
            case ast.Constant(value=str() as text):
                return quoted(text)
            case ast.Call(func=called, args=args, keywords=given):
                kind = self.source.dotted(called).rpartition(".")[2]
                zones = [one.value for one in given if one.arg in ("tz", "tzinfo")]
                numbers = [one.value for one in args if isinstance(one, ast.Constant) and isinstance(one.value, int)]
                by_name = {
                    one.arg: one.value.value
                    for one in given
                    if isinstance(one.value, ast.Constant) and isinstance(one.value.value, int)
                }
                units = ("year", "month", "day", "hour", "minute", "second")
                parts = dict(zip(units, numbers, strict=False)) | {u: by_name[u] for u in units if u in by_name}
                if (
                    kind in ("datetime", "date", "local")
                    and {"year", "month", "day"} <= parts.keys()
                    and len(numbers) == len(args)
                ):
                    if zones:
                        self._add_zone(zones[0], zone)
                    day = "{year:04d}-{month:02d}-{day:02d}".format(**parts)
                    hour, minute, second = (parts.get(unit, 0) for unit in units[3:])
                    clock = f"T{hour:02d}:{minute:02d}" + (f":{second:02d}" if second else "")
                    return quoted(day + (clock if hour or minute or second or name == "end_date" else ""))
                if kind == "parse" and (text_ := self.text_of(args[0] if args else None)):
                    if zones:
                        self._add_zone(zones[0], zone)
                    return quoted(text_)
        if (
            self.is_plain(node)
            and not isinstance(value, ast.Call)
            and not (names_in(node) & self.source.origins.keys())
        ):
            return unparse(node)
        self._report(
            node, f"{name}={unparse(node)[:60]}", "Write a fixed date: one that moves would move the intervals"
        )
        return None

    def _params(self, nodes: Sequence[ast.expr]) -> str | None:
        given = {name: value for node in nodes for name, value in self.of_mapping(node).items()}
        written = {name: self.param(value, name) for name, value in given.items()}
        kept = [f"{quoted(name)}: {text}" for name, text in written.items() if text is not None]
        if not kept:
            return None
        line = "{" + ", ".join(kept) + "}"
        return line if len(line) < 80 else "{\n" + "".join(f"    {one},\n" for one in kept) + "}"

    def param(self, node: ast.expr, name: str) -> str | None:
        if not (isinstance(node, ast.Call) and self.source.dotted(node.func).rpartition(".")[2] == "Param"):
            if self.is_plain(node) and not names_in(node):
                return unparse(node)
            self._report(node, f"the param {name} = {unparse(node)[:60]}", "Give it a plain default")
            return None
        given = keywords_of(node)
        default = node.args[0] if node.args else given.pop("default", None)
        settings: Settings = {}
        nullable = False
        for key, value in given.items():
            if key == "type":
                kinds = [one.value for one in getattr(value, "elts", [value]) if isinstance(one, ast.Constant)]
                nullable = "null" in kinds
                kinds = [kind for kind in kinds if kind != "null"]
                if len(kinds) == 1 and kinds[0] in ("string", "integer", "number", "boolean", "array", "object"):
                    settings["type"] = quoted(str(kinds[0]))
            elif key == "enum":
                choices = [
                    one
                    for one in getattr(value, "elts", [])
                    if not (isinstance(one, ast.Constant) and one.value is None)
                ]
                if choices:
                    settings["choices"] = "[" + ", ".join(map(unparse, choices)) + "]"
                elif self.is_plain(value):
                    settings["choices"] = unparse(value)
            elif key == "description" and self.is_plain(value):
                settings["description"] = unparse(value)
            elif key not in _PARAM_SILENT:
                self._report(value, f"{key}= of the param {name}", "Check it in a task; a param has a type and choices")
        if isinstance(default, ast.Constant) and default.value is None and not nullable:
            default = None
        if default is None or not self.is_plain(default) or names_in(default):
            if default is not None:
                self._report(default, f"the default of the param {name}", "Give it a plain default")
            instead = "Every run must set it, so a DAG with a schedule needs a default"
            self._report(node, f"the param {name} has no default", instead)
            return call("Param", keywords({"default": "None", **settings}))
        return call("Param", [unparse(default), *keywords(settings)]) if settings else unparse(default)
