"""A DAG as a plain value: what decisions are made from, what is stored as a version, what crosses processes as JSON.

`DagSpec` holds no code. `authoring` makes it (beside the functions) from `@dag` and `@task`; `loader` receives it from the
process that imported the file; `dag_version.definition_json` keeps it. Durations are seconds; instants are UTC.
"""

from __future__ import annotations

import dataclasses
import graphlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Final, Literal, get_args

from backfill_manager.clock import format_instant, parse_instant
from backfill_manager.errors import InvalidDag, nearest, shorten
from backfill_manager.model.states import TRIGGER_RULES, WriteMode
from backfill_manager.schemas.checks import Check
from backfill_manager.schemas.params import ParamSpec
from backfill_manager.schemas.waits import ConditionWait, Wait, of_json

TaskKind = Literal["python", "executor", "sql", "bash"]
CallsBack = Literal["success", "failed"]
CALLBACKS: Final[dict[str, CallsBack]] = {"on_success": "success", "on_failure": "failed"}  # setting -> what it reports
CALLBACK_TIMEOUT_S: Final = 600.0
VALUES_OF_CONDITIONS: Final = ("interval_end", "interval_start", "logical_date", "partition_key")  # named parameters


@dataclass(frozen=True)
class TaskSpec:
    """One task. `python` runs in a process of its own on the driver's machine, `executor` wholly on a Spark executor, `sql` is a
    Spark SQL text, `bash` a command in such a process.

    A task with `calls_back` is a callback: it runs once what it `watches` has ended so, and does not decide how the run ends."""

    task_id: str
    kind: TaskKind = "python"
    upstream: tuple[str, ...] = ()
    trigger_rule: str = "all_success"
    retries: int = 0
    retry_delay: float = 60.0  # seconds before the second try
    retry_backoff: float = 1.0  # each further delay is this many times the one before
    max_retry_delay: float = 3600.0
    timeout: float | None = None  # seconds a try may take
    depends_on_past: bool = False
    wait_for_downstream: bool = (
        False  # ... and on what is directly downstream of it there: `depends_on_past` is true then
    )
    waits_for: tuple[Wait, ...] = ()  # what must be there for the run's interval (or partition)
    wait_limit: float | None = None  # seconds that it waits for them; None: for ever
    after_wait_limit: Literal["fail", "skip"] = "fail"  # what it does then
    pool: str | None = None  # None: the pool of the run's kind (`scheduled`, `backfill`) or of its backfill
    priority: int = 0
    weight: int = 1  # slots of the pool it takes
    max_active_tis: int | None = None  # of this task, over all runs
    memory: int | None = None  # MB that its process may take; None: as its pool says
    nice: int | None = None  # added to the manager's; None: as its pool says
    reuse_process: bool = False  # its process may serve other tries of the version that say the same
    sql: str | None = (
        None  # of a sql task: statements parted by `;`, with named parameters (execution/tasks/spark_sql.py)
    )
    into: str | None = None  # a sql task's output table (or path): the last statement's rows go through ctx.write
    time_column: str | None = None  # of `into`: tells which rows are the interval's
    partition_column: str | None = None  # of `into`: holds the partition key
    mode: WriteMode = "replace"  # of `into`: as of `ctx.write`
    merge_on: tuple[str, ...] = ()  # of `into`: rows with the same values in these columns are updated; as `ctx.merge`
    schema: Literal["merge"] | None = None  # of `into`: adds columns that the table lacks
    checks: tuple[Check, ...] = ()  # of the rows of every table that it writes, before they are committed
    bash: str | None = None  # of a bash task: its command (execution/tasks/bash_task.py)
    env: tuple[tuple[str, str], ...] = ()  # of `bash`: further variables
    secrets: tuple[tuple[str, str], ...] = ()  # of `bash`: variables, each with the name of the secret that it gets
    cwd: str | None = None  # of `bash`: its folder, absolute or in the bundle; None: one of its own, which is empty
    skip_exit_code: int | None = 99  # of `bash`: skips the task
    mapped_from: str | None = None  # of a mapped task (`over=`): the declared id, with which its own begins
    mapped_json: str | None = None  # ... and the value that this one is for
    over_result_of: str | None = None  # the task whose result it is mapped over, in each run (dags/mapping.py)
    of_mapped: tuple[tuple[str, str, Any], ...] = ()  # of such a task: key, setting, value of one of its mapped tasks
    calls_back: CallsBack | None = None  # of a callback: the outcome that it reports
    watches: str | None = None  # of a callback: the task that it reports on; None: the whole run

    def __post_init__(self) -> None:
        if self.wait_for_downstream:
            object.__setattr__(self, "depends_on_past", True)

    @property
    def has_macros(self) -> bool:
        """Its SQL is a template, see `sql_macros`."""
        return self.sql is not None and has_macros(self.sql)

    @property
    def is_callback(self) -> bool:
        return self.calls_back is not None

    @property
    def mapped_value(self) -> Any:
        """The value that a mapped task is for; None for every other task."""
        return None if self.mapped_json is None else json.loads(self.mapped_json)

    @property
    def limited_as(self) -> str:
        """What `max_active_tis` counts: all tasks that are mapped from one are one task there."""
        return self.mapped_from or self.task_id


# Settings that came later than the first releases: a definition has them only where they are not what they are by default.
_LATER: Final = {
    field.name: field.default
    for field in dataclasses.fields(TaskSpec)
    if field.name in {
        "memory", "nice", "reuse_process", "wait_for_downstream", "mode", "merge_on", "schema", "waits_for", "wait_limit",
        "after_wait_limit", "checks", "mapped_from", "mapped_json", "over_result_of", "of_mapped",
    }
}  # fmt: skip


@dataclass(frozen=True)
class TableRead:
    """A table that a DAG reads. `time_column` tells which of its rows belong to an interval; None: it is read whole."""

    table: str
    time_column: str | None = None


@dataclass(frozen=True)
class DagSpec:
    """One DAG. `schedule` is its JSON form: a cron expression or preset, `{"seconds": n}` for a duration, or None."""

    dag_id: str
    tasks: tuple[TaskSpec, ...]
    schedule: str | dict[str, float] | None = None
    start_date: datetime | None = None
    end_date: datetime | None = None
    timezone: str = "UTC"
    exclude_dates: tuple[str, ...] = ()  # YYYY-MM-DD in that zone, rising: a cron schedule does not fire on them
    catchup: bool = False
    max_active_runs: int = 16
    max_active_tasks: int = 16
    batchable: bool = False  # its tasks work on an interval of any length
    lookback: int = 0  # intervals before that each scheduled run re-does, for late data
    expected_by: float | None = None  # seconds after its interval's end in which a scheduled run must have succeeded
    notify: tuple[str, ...] = ()  # targets of the configuration's `notifications` that hear of it
    reads: tuple[TableRead, ...] = ()
    writes: tuple[str, ...] = ()
    params: dict[str, Any] = field(default_factory=dict)  # the defaults; a required param has none
    declared_params: dict[str, ParamSpec] = field(default_factory=dict)  # those that are more than a default
    tags: tuple[str, ...] = ()
    description: str = ""
    owner: str = ""
    file: str = ""  # within the bundle

    def task(self, task_id: str) -> TaskSpec:
        return self.by_id[task_id]

    @cached_property
    def work(self) -> tuple[TaskSpec, ...]:
        """The tasks that are no callbacks: those that decide how a run ends."""
        return tuple(task for task in self.tasks if not task.is_callback)

    @cached_property
    def callbacks(self) -> tuple[TaskSpec, ...]:
        """Those of tasks first, those of the whole run last: the order in which they are called."""
        callbacks = (task for task in self.tasks if task.is_callback)
        return tuple(sorted(callbacks, key=lambda task: task.watches is None))

    @property
    def has_functions(self) -> bool:
        """It runs code of its bundle, or in its interpreter's process; one of SQL tasks alone is all in its definition."""
        return any(task.kind != "sql" or task.is_callback for task in self.tasks)

    def is_callback(self, task_id: str) -> bool:
        """False for a task that this version does not have."""
        return task_id in self.by_id and self.by_id[task_id].is_callback

    def callbacks_of(self, task_ids: Collection[str]) -> frozenset[str]:
        """The callbacks that go with these tasks: their own, and those of the whole run if there is any task."""
        if not any(task_id in self.by_id and not self.is_callback(task_id) for task_id in task_ids):
            return frozenset()
        return frozenset(task.task_id for task in self.callbacks if task.watches is None or task.watches in task_ids)

    @cached_property
    def output_tables(self) -> tuple[str, ...]:
        """Those that it declares to write: by `writes`, and by `into` of SQL tasks."""
        return tuple(dict.fromkeys((*self.writes, *(task.into for task in self.tasks if task.into))))

    @cached_property
    def depends_on_past(self) -> bool:
        return any(task.depends_on_past for task in self.tasks)

    @cached_property
    def is_serial(self) -> bool:
        """Whether its runs come one after another: all of its tasks depend on the past."""
        return all(task.depends_on_past for task in self.work)

    @cached_property
    def by_id(self) -> dict[str, TaskSpec]:
        return {task.task_id: task for task in self.tasks}

    @cached_property
    def mapped(self) -> dict[str, dict[str, str]]:
        """Of tasks with `over`, by the id that they were declared with: the ids of the mapped tasks, by their keys."""
        found: dict[str, dict[str, str]] = {}
        for task in self.work:
            if task.mapped_from is not None:
                found.setdefault(task.mapped_from, {})[task.task_id[len(task.mapped_from) + 1 :]] = task.task_id
        return found

    @cached_property
    def mapped_over_results(self) -> tuple[str, ...]:
        """The tasks that are mapped in each run, over the result of another."""
        return tuple(task.task_id for task in self.work if task.over_result_of is not None)

    def downstream(self, task_id: str) -> tuple[str, ...]:
        return self._downstream.get(task_id, ())

    @cached_property
    def _downstream(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, dict[str, None]] = {}
        for task in self.tasks:
            for up in task.upstream:
                found.setdefault(up, {})[task.task_id] = None
        return {up: tuple(after) for up, after in found.items()}

    def all_upstream(self, task_ids: Collection[str]) -> frozenset[str]:
        """Every task that these wait for, however far up; the tasks themselves only where they wait for each other."""
        return _transitive(task_ids, lambda task_id: self.task(task_id).upstream)

    def readable_by(self, task_id: str) -> frozenset[str]:
        """The tasks whose results it may read: every one upstream of it; of a callback, also those that it watches. Where all
        tasks that are mapped from one are among them, so is that one."""
        task = self.task(task_id)
        found = self.all_upstream([task_id])
        if task.is_callback:
            watched = frozenset(other.task_id for other in self.work if task.watches in (None, other.task_id))
            found = watched | self.all_upstream(watched)
        whole = {name for name, mapped in self.mapped.items() if found.issuperset(mapped.values())}
        return (found | whole) - {task.mapped_from}

    def all_downstream(self, task_ids: Collection[str]) -> frozenset[str]:
        return _transitive(task_ids, self.downstream)

    def unknown_pools(self, known: Collection[str]) -> dict[str, list[str]]:
        """The pools that its tasks name and that do not exist, each with these tasks, which fail when they start. Nothing while
        no pool is known: no manager has made them yet."""
        found: dict[str, list[str]] = {}
        for task in self.tasks:
            if known and task.pool is not None and task.pool not in known:
                found.setdefault(task.pool, []).append(task.task_id)
        return found

    @cached_property
    def in_order(self) -> tuple[TaskSpec, ...]:
        """Tasks, each after those it waits for; callbacks come last."""
        order = graphlib.TopologicalSorter({t.task_id: t.upstream for t in self.work}).static_order()
        return (*(self.by_id[task_id] for task_id in order), *self.callbacks)

    def leaves_of(self, task_ids: Collection[str]) -> tuple[str, ...]:
        """Those of these tasks that no other of them waits for: they decide how a run of them ends. Callbacks decide nothing."""
        chosen = [task for task in self.work if task.task_id in task_ids]
        waited_for = {up for task in chosen for up in task.upstream}
        return tuple(task.task_id for task in chosen if task.task_id not in waited_for)

    def check(self) -> None:
        """`InvalidDag` for a task id used twice, an unknown upstream or trigger rule, a cycle, no task at all, or a schedule
        whose runs would lack a param."""
        dag, ids = f"DAG {self.dag_id!r}", Counter(task.task_id for task in self.tasks)
        if not self.work:
            raise InvalidDag(f"{dag} has no task")
        required = [name for name, declared in self.declared_params.items() if declared.is_required]
        if required and self.schedule is not None:
            raise InvalidDag(f"{dag} has a schedule, whose runs set no params: give {', '.join(required)} a default")
        self._check_callbacks()
        self._check_text()
        for task in self.tasks:
            who = f"{dag}, task {task.task_id!r}"
            if ids[task.task_id] > 1:
                raise InvalidDag(f"{dag} has two tasks with the id {task.task_id!r}")
            if task.trigger_rule not in TRIGGER_RULES:
                hint = nearest(task.trigger_rule, TRIGGER_RULES) or "; one of " + ", ".join(TRIGGER_RULES)
                raise InvalidDag(f"{who}: unknown trigger rule {task.trigger_rule!r}{hint}")
            check_conditions(task.waits_for, who)
            for up in task.upstream:
                if up not in ids or self.is_callback(up):
                    why = "is a callback: nothing can wait for it" if up in ids else "does not exist"
                    raise InvalidDag(f"{who} waits for {up!r}, which {why}")
        try:
            graphlib.TopologicalSorter({t.task_id: t.upstream for t in self.tasks}).prepare()
        except graphlib.CycleError as error:
            raise InvalidDag(f"{dag} has a cycle: {' >> '.join(reversed(error.args[1]))}") from None

    def _check_text(self) -> None:
        """`InvalidDag` for half a character anywhere: no table and no hash could hold it."""
        text = self.to_json()
        try:
            text.encode()
        except UnicodeEncodeError as error:
            where = text[max(0, error.start - 30) : error.end + 10].encode("utf-8", "backslashreplace").decode()
            what = f"half a character (a lone surrogate), in ...{where}...; write whole ones"
            raise InvalidDag(f"DAG {self.dag_id!r} holds {what}") from None

    def _check_callbacks(self) -> None:
        """`InvalidDag` for one that has a task's id, watches what is not there, or has what only other tasks can have."""
        work = {task.task_id for task in self.work}
        for callback in self.callbacks:
            who = f"DAG {self.dag_id!r}, callback {callback.task_id!r}"
            if callback.task_id in work:
                raise InvalidDag(f"{who} has the id of a task; give the task another with task_id=...")
            if callback.calls_back not in get_args(CallsBack):
                raise InvalidDag(f"{who} reports {callback.calls_back!r}; there are {', '.join(CALLBACKS.values())}")
            if callback.watches is not None and callback.watches not in work:
                raise InvalidDag(f"{who} watches {callback.watches!r}, which does not exist")
            if callback.upstream or callback.depends_on_past or callback.kind != "python":
                raise InvalidDag(f"{who} is a plain function that waits only for what it reports on")

    def to_json(self) -> str:
        """Stable text: equal definitions give equal text, so that it can be hashed. Fields that came later are left out where
        they say nothing, as those of callbacks and limits: such a DAG has the text that it had before there were any."""
        plain = dataclasses.asdict(self)
        for task in plain["tasks"]:
            if task["calls_back"] is None:
                del task["calls_back"], task["watches"]
            if task["kind"] != "bash":
                del task["bash"], task["env"], task["secrets"], task["cwd"], task["skip_exit_code"]
            for name, default in _LATER.items():
                if task[name] == default:
                    del task[name]
        for name in ("declared_params", "exclude_dates", "expected_by", "notify"):
            if not plain[name]:
                del plain[name]
        plain["start_date"] = format_instant(self.start_date)
        plain["end_date"] = format_instant(self.end_date)
        return json.dumps(plain, sort_keys=True, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> DagSpec:
        plain = json.loads(text)
        for task in plain["tasks"]:
            task["waits_for"] = tuple(map(of_json, task.get("waits_for", ())))
            for name in ("upstream", "merge_on"):
                task[name] = tuple(task.get(name, ()))
            for name in ("of_mapped", "env", "secrets"):
                task[name] = tuple(map(tuple, task.get(name, ())))
            task["checks"] = tuple(Check(**check) for check in task.get("checks", ()))
        plain["tasks"] = tuple(TaskSpec(**task) for task in plain["tasks"])
        plain["reads"] = tuple(TableRead(**read) for read in plain.get("reads", ()))
        for name in ("tags", "writes", "notify", "exclude_dates"):
            plain[name] = tuple(plain.get(name, ()))
        declared = plain.get("declared_params", {})
        plain["declared_params"] = {
            name: ParamSpec(**{**spec, "choices": tuple(spec["choices"])}) for name, spec in declared.items()
        }
        for name in ("start_date", "end_date"):
            plain[name] = parse_instant(plain[name]) if plain[name] else None
        return cls(**plain)


def has_macros(sql: str) -> bool:
    return "{{" in sql or "{%" in sql


def check_conditions(waits: Iterable[Wait], who: str) -> None:
    """`InvalidDag` for one that is no query, or has a value that no interval has."""
    for wait in waits:
        if isinstance(wait, ConditionWait) and (problem := problem_of_condition(wait.condition)):
            raise InvalidDag(f"{who}: waits_for: {problem}")


def hint_of_parameter(unknown: str, known: Iterable[str]) -> str:
    """`; did you mean ':interval_start'?`, else those that there are: as SQL writes them."""
    written = [f":{name}" for name in known]
    return nearest(f":{unknown}", written, n=1) or f"; there are {', '.join(written)}"


def problem_of_condition(text: str) -> str | None:
    """As far as the text tells; Spark's parser takes nothing else when it is run (execution/inputs/wait_checks.py)."""
    from backfill_manager.store.sql_guard import named_parameters, split_statements  # more than most DAG files need

    found = split_statements(text, "spark")
    if len(found) != 1 or found[0][0] not in ("SELECT", "WITH", "VALUES"):
        shown, example = shorten(" ".join(text.split()), 100), "SELECT count(*) > 0 FROM t"
        return f"a condition is one query, such as {example}, not {shown!r}"
    if unknown := next(iter(named_parameters(text, VALUES_OF_CONDITIONS)), None):
        return f"a condition has no value :{unknown}{hint_of_parameter(unknown, VALUES_OF_CONDITIONS)}"
    return None


def _transitive(task_ids: Collection[str], neighbours: Callable[[str], Collection[str]]) -> frozenset[str]:
    reached, following = set[str](), list(task_ids)
    while following:
        new = set(neighbours(following.pop())) - reached
        reached |= new
        following += new
    return frozenset(reached)
