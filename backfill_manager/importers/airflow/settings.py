"""Settings of Airflow's DAGs and operators as ours, as text of Python by keyword."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final, cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from backfill_manager.importers.airflow.templates import has_template
from backfill_manager.importers.source import Source, keywords_of, names_in
from backfill_manager.importers.writer import call, keywords, quoted, unparse
from backfill_manager.model.states import TRIGGER_RULES
from backfill_manager.schemas.params import PARAM_TYPES

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
_OUR_MAX_RETRY_DELAY: Final = 3600  # seconds; Airflow's is a day, and is of `retry_exponential_backoff` alone
_LOGICAL_DATE: Final = (
    "A run's logical date is the start of its interval here, not the instant at which it starts, "
    "which is the end of its interval"
)
_LITERALS: Final = (ast.Constant, ast.Dict, ast.List, ast.JoinedStr)
_TIMETABLES: Final = (
    "CronDataIntervalTimetable", "CronTriggerTimetable", "DeltaDataIntervalTimetable", "DeltaTriggerTimetable",
)  # fmt: skip
_UNITS_OF_DATES: Final = ("year", "month", "day", "hour", "minute", "second")
_UNITS_OF_DURATIONS: Final = frozenset({"weeks", "days", "hours", "minutes", "seconds"})
_PARAM_SILENT: Final = ("title", "section", "values_display", "description_md", "schema", "source", "custom_html_form")


def _has_template(node: ast.expr) -> bool:
    return any(isinstance(one, ast.Constant) and has_template(str(one.value)) for one in ast.walk(node))


def _is_none(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_zone(name: str | None) -> bool:
    try:
        return name is not None and ZoneInfo(name) is not None
    except (ZoneInfoNotFoundError, ValueError):
        return False


def _max_retry_delay(settings: Settings) -> str | None:
    """What Airflow waits at most, where our default is less: a day, and without `retry_exponential_backoff` there is no limit."""
    delay = settings.get("retry_delay", "0")
    seconds = float(delay) if re.fullmatch(r"[\d.]+", delay) else 0
    return f"{max(seconds, 86400):g}" if "retry_backoff" in settings or seconds > _OUR_MAX_RETRY_DELAY else None


class SettingsReader:
    def __init__(self, source: Source, constants: Mapping[str, ast.expr], report: Report) -> None:
        self.source, self.constants, self._report = source, constants, report
        self.consumed: set[str] = set()  # constants whose value was read
        self._templates: dict[str, ast.expr] = {}  # constants with templates, also by the name of another
        literals = {name: value for name, value in constants.items() if isinstance(value, _LITERALS)}
        while more := {n: v for n, v in literals.items() if _has_template(v) or names_in(v) & self._templates.keys()}:
            self._templates |= more
            literals = {name: value for name, value in literals.items() if name not in more}

    def constant(self, node: ast.expr | None) -> ast.expr | None:
        """The value of a name that the file assigns once, at its top."""
        if isinstance(node, ast.Name) and node.id in self.constants:
            self.consumed.add(node.id)
            return self.constants[node.id]
        return node

    def inlined(self, node: ast.expr) -> ast.expr:
        """With the values of constants that hold templates: what a template means is known only where it is used."""
        if not names_in(node) & self._templates.keys():
            return node
        reader = self

        class Inline(ast.NodeTransformer):
            def visit_Name(self, name: ast.Name) -> ast.expr:
                return reader.inlined(reader._templates[name.id]) if name.id in reader._templates else name

        self.consumed |= names_in(node) & self._templates.keys()
        return cast("ast.expr", Inline().visit(copy.deepcopy(node)))

    def text_of(self, node: ast.expr | None) -> str | None:
        node = self.constant(node)
        return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None

    def is_plain(self, node: ast.AST) -> bool:
        """Whether it means the same without Airflow, and without pendulum."""
        return not any(self.source.names_from(package, node) for package in ("airflow", "pendulum"))

    def of_mapping(self, node: ast.expr | None) -> dict[str, ast.expr]:
        """A dict that is written out, such as `default_args`."""
        match self.constant(node):
            case None | ast.Constant(value=None):
                return {}
            case ast.Dict(keys=keys, values=values) if all(isinstance(key, ast.Constant | None) for key in keys):
                return self._merged((getattr(key, "value", None), one) for key, one in zip(keys, values, strict=True))
            case ast.Call(func=ast.Name(id="dict"), args=args, keywords=given):
                return self._merged([*((None, one) for one in args), *((one.arg, one.value) for one in given)])
            case ast.BinOp(op=ast.BitOr(), left=left, right=right):
                return self._merged([(None, left), (None, right)])
            case other:
                what = f"`{unparse(other)[:60]}`"
                self._report(other, what, "Its settings are not known before it runs; write them out")
                return {}

    def _merged(self, items: Iterable[tuple[object, ast.expr]]) -> dict[str, ast.expr]:
        """Items of a dict; one without a key is a dict that is merged into it."""
        found: dict[str, ast.expr] = {}
        for key, value in items:
            found |= self.of_mapping(value) if key is None else {str(key): value}
        return found

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
            elif name in ("start_date", "end_date") and not _is_none(node):
                self._report(node, f"{name} of a task", "A task has the dates of its DAG")
            elif name in known or name in _SILENT or _is_none(node):
                continue
            elif name in _CALLBACKS:
                instead = f"Use {_CALLBACKS[name]}, a function of ctx (docs/callbacks.md)"
                self._report(node, f"{name}={unparse(node)[:60]}", instead)
            else:
                self._report(node, f"{name}={unparse(node)[:60]}", _NO_EQUAL.get(name, "It has no equal here"))
        for name in ("retries", "priority", "weight", "max_active_tis", "retry_delay", "max_retry_delay"):
            if settings.get(name) == "None":
                del settings[name]
        if "max_retry_delay" not in settings and (longest := _max_retry_delay(settings)):
            settings["max_retry_delay"] = longest
        return settings

    def _duration(self, node: ast.expr) -> str | None:
        """Of a `pendulum.duration` or a `datetime.timedelta`, seconds if they are plain numbers."""
        if not isinstance(node, ast.Call) or node.args or self._kind(node) not in ("timedelta", "duration"):
            return None
        given = {name: value.value for name, value in keywords_of(node).items() if isinstance(value, ast.Constant)}
        if len(given) < len(node.keywords) or not given.keys() <= _UNITS_OF_DURATIONS:
            return None
        total = timedelta(**given).total_seconds()  # type: ignore[arg-type]
        return f"{total:g}" if total < 1e6 else str(int(total))

    def _kind(self, node: ast.Call) -> str:
        return self.source.dotted(node.func).rpartition(".")[2]

    def _rule(self, node: ast.expr) -> str | None:
        text = node.attr.lower() if isinstance(node, ast.Attribute) else self.text_of(node)
        if text is None and isinstance(node, ast.Name) and self.is_plain(node):
            return node.id
        text = RULES.get(text or "", text)
        if text not in TRIGGER_RULES:
            what = f"trigger_rule={unparse(node)}" if text is None else f"the trigger rule {text}"
            self._report(node, what, "Set one of the rules in docs/authoring.md")
            return None
        return None if text == "all_success" else quoted(text)

    def of_dag(self, given: Mapping[str, ast.expr], default_args: Mapping[str, ast.expr], node: ast.AST) -> Settings:
        settings: Settings = {}
        both = {**{name: default_args[name] for name in ("start_date", "end_date") if name in default_args}, **given}
        schedule = next((given[name] for name in ("schedule", "schedule_interval", "timetable") if name in given), None)
        zone: list[str] = []
        if schedule is None:
            instead = "Airflow 2 runs it once a day then, Airflow 3 only when triggered, as here"
            self._report(node, "no schedule", instead)
        elif text := self._schedule(schedule, zone):
            settings["schedule"] = text
        is_of_3 = any(origin.startswith("airflow.sdk.") for origin in self.source.origins.values())
        if settings.get("schedule", '"@once"') != '"@once"' and "catchup" not in given and not is_of_3:
            instead = "Airflow 2 makes up for all intervals since start_date then; Airflow 3 and this do not"
            self._report(node, "catchup is not set", instead)
        if settings.get("schedule") and getattr(given.get("catchup"), "value", None) is True:
            instead = (
                "It repeats what Airflow has run: set start_date= to where Airflow ends; a backfill may begin before it"
            )
            self._report(node, "catchup=True", instead)
        if settings.get("schedule") and is_of_3 and isinstance(self.constant(schedule), ast.Constant):
            instead = f"{_LOGICAL_DATE}, unless create_cron_data_intervals is set there"
            self._report(node, f"schedule={settings['schedule']} of Airflow 3", instead)
        for name in ("start_date", "end_date"):
            if name in both and (text := self._date(both[name], name, zone)):
                settings[name] = text
        if zone and zone[0] != "UTC":
            settings["timezone"] = quoted(zone[0])
        settings.setdefault("schedule", "None")
        settings = {"schedule": settings.pop("schedule"), **settings}
        for name, value in given.items():
            if name in _DAG_RENAMED:
                if _is_none(value):
                    continue
                if self.is_plain(value):
                    settings[_DAG_RENAMED[name]] = unparse(value)
                else:
                    self._report(value, f"{name}={unparse(value)[:60]}", "Set it to a plain value")
            elif name in _CALLBACKS:
                instead = f"Use {_CALLBACKS[name]}, a function of ctx (docs/callbacks.md)"
                self._report(value, f"{name} of the DAG", instead)
            elif name not in _SILENT and not (isinstance(value, ast.Constant) and not value.value):
                self._report(value, f"{name} of the DAG", _NO_EQUAL.get(name, "It has no equal here"))
        if (owner := default_args.get("owner")) is not None and not _is_none(owner):
            if (text := self.text_of(owner)) is not None or self._is_own(owner):
                settings["owner"] = unparse(owner) if text is None else quoted(text)
            else:
                self._report(owner, f"owner={unparse(owner)[:60]}", "Set owner= of the DAG to a plain value")
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
            case ast.Constant(value="@continuous"):
                self._report(node, "schedule='@continuous'", 'Use a short one, such as schedule={"seconds": 60}')
                return None
            case ast.Constant(value=str() as text):
                return quoted(text)
            case ast.Constant(value=None):
                return None
            case ast.Call(func=called) if self.source.dotted(called) in ("os.getenv", "os.environ.get"):
                return unparse(node)
            case ast.Call() if seconds := self._duration(node):
                return f'{{"seconds": {int(float(seconds))}}}'
            case ast.Call(args=args) if self._kind(node) in _TIMETABLES:
                given = dict(zip(("cron", "timezone"), args, strict=False)) | keywords_of(node)
                if self._kind(node).endswith("TriggerTimetable"):
                    self._report(node, self._kind(node), _LOGICAL_DATE)
                if "timezone" in given and (name := self._zone(given["timezone"])):
                    zone.append(name)
                if (first := given.get("cron", given.get("delta"))) is not None:
                    return self._schedule(first, zone)
            case ast.Name() | ast.Subscript() | ast.Attribute() | ast.JoinedStr() | ast.IfExp() if self._is_own(node):
                return unparse(node)
        instead = 'Use cron, a preset, seconds or None; for data schedule=on("a table", every="@daily")'
        self._report(node, f"schedule={unparse(node)[:60]}", instead)
        return None

    def _is_own(self, node: ast.expr) -> bool:
        """Whether it takes nothing from another file."""
        return self.is_plain(node) and not (names_in(node) & self.source.origins.keys())

    def _zone(self, node: ast.expr) -> str | None:
        """The name of a time zone; None for one that is reported, or for `None`."""
        match self.constant(node):
            case ast.Call(args=[inner]) if name := self.text_of(inner):
                pass
            case ast.Attribute(attr="utc" | "UTC"):
                return "UTC"
            case other:
                name = self.text_of(other)
        if name in ("utc", "Etc/UTC"):
            return "UTC"
        if not _is_zone(name) and not _is_none(node):
            what = f"the time zone {unparse(node)[:60]}"
            self._report(node, what, "Set timezone= of the DAG, such as 'Europe/Berlin'")
            return None
        return name

    def _instant(self, node: ast.expr, text: str, tz: ast.expr | None, zone: list[str]) -> str:
        """A date as it is written: as it is in the DAG's time zone, else with its own offset. The first one's is the DAG's."""
        try:
            at = datetime.fromisoformat(re.sub("Z$", "+00:00", text))
        except ValueError:  # in another form
            return quoted(text)
        if at.tzinfo is not None:
            if not zone and at.utcoffset():
                what = f"the time zone {at.isoformat()[-6:]}"
                self._report(node, what, "Set timezone= of the DAG, such as 'Europe/Berlin'")
            return quoted(text)
        own = "UTC" if tz is None else self._zone(tz)
        if own is None or not zone:
            zone += [own] if own else []
        elif own != zone[0]:
            return quoted(at.replace(tzinfo=ZoneInfo(own)).isoformat())
        return quoted(text)

    def _date(self, node: ast.expr, name: str, zone: list[str]) -> str | None:
        match self.constant(node) or node:
            case ast.Constant(value=None):
                return None
            case ast.Constant(value=str() as text):
                return quoted(text)
            case ast.Call(args=args) as value:
                kind, given = self._kind(value), keywords_of(value)
                tz = given.get("tz", given.get("tzinfo"))
                nodes = dict(zip(_UNITS_OF_DATES, args, strict=False)) | {
                    unit: given[unit] for unit in _UNITS_OF_DATES if unit in given
                }
                parts = {unit: one.value for unit, one in nodes.items() if isinstance(one, ast.Constant)}
                is_whole = len(nodes) == len(parts) >= 3 and len(args) <= len(_UNITS_OF_DATES)
                if (
                    kind in ("datetime", "date", "local")
                    and is_whole
                    and all(type(one) is int for one in parts.values())
                ):
                    at = datetime(**parts)  # type: ignore[arg-type]
                    has_clock = name == "end_date" or at != datetime(at.year, at.month, at.day)
                    clock = at.isoformat(timespec="seconds" if at.second else "minutes")
                    return self._instant(node, clock if has_clock else clock[:10], tz, zone)
                if kind == "parse" and (text_ := self.text_of(args[0] if args else None)):
                    return self._instant(node, text_, tz, zone)
            case _ if self._is_own(node):
                return unparse(node)
        instead = "Write a fixed date: one that moves would move the intervals"
        self._report(node, f"{name}={unparse(node)[:60]}", instead)
        return None

    def params(self, *nodes: ast.expr | None) -> dict[str, str]:
        """Params as texts of Python; later nodes win."""
        given = {name: value for node in nodes for name, value in self.of_mapping(node).items()}
        written = {name: self.param(value, name) for name, value in given.items()}
        return {name: text for name, text in written.items() if text is not None}

    def param(self, node: ast.expr, name: str) -> str | None:
        if not (isinstance(node, ast.Call) and self._kind(node) == "Param"):
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
                if len(kinds) == 1 and kinds[0] in PARAM_TYPES:
                    settings["type"] = quoted(str(kinds[0]))
                elif kinds:
                    self._report(value, f"{key}= of the param {name}", "A param has one type: it may be any here")
            elif key == "enum":
                choices = [one for one in getattr(value, "elts", []) if not _is_none(one)]
                if choices:
                    settings["choices"] = "[" + ", ".join(map(unparse, choices)) + "]"
                elif self.is_plain(value):
                    settings["choices"] = unparse(value)
            elif key == "description" and self.is_plain(value):
                settings["description"] = unparse(value)
            elif key not in _PARAM_SILENT:
                self._report(value, f"{key}= of the param {name}", "Check it in a task; a param has a type and choices")
        if _is_none(default) and not nullable:
            default = None
        elif nullable and default is not None and not _is_none(default):
            self._report(node, f"the param {name} may be null", "Here only one whose default is None may be null")
        if default is None or not self.is_plain(default) or names_in(default):
            if default is not None:
                self._report(default, f"the default of the param {name}", "Give it a plain default")
            instead = "Every run must set it, so a DAG with a schedule needs a default"
            self._report(node, f"the param {name} has no default", instead)
            return call("Param", keywords({"default": "None", **settings}))
        return call("Param", [unparse(default), *keywords(settings)]) if settings else unparse(default)
