"""A DAG as a plain value: what decisions are made from, what is stored as a version, what crosses processes as JSON.

`DagSpec` holds no code. `authoring` makes it (beside the functions) from `@dag` and `@task`; `loader` brings it from the
process that ran the file; `dag_version.definition_json` keeps it. Durations are seconds; instants are UTC.
"""

from __future__ import annotations

import dataclasses
import graphlib
import json
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Final, Literal

from backfill_manager.clock import format_instant, parse_instant
from backfill_manager.errors import InvalidDag, nearest

TriggerRule = Literal[
    "all_success", "all_failed", "all_done", "one_success", "one_failed",
    "none_failed", "none_failed_min_one_success", "none_skipped", "always",
]  # fmt: skip
TRIGGER_RULES: Final[tuple[str, ...]] = TriggerRule.__args__  # type: ignore[attr-defined]
TaskKind = Literal["python", "executor", "sql"]


@dataclass(frozen=True)
class TaskSpec:
    """One task. `python` runs in a driver thread, `executor` wholly on a Spark executor, `sql` is a Spark SQL text."""

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
    pool: str | None = None  # None: the pool of the run's kind (`scheduled`, `backfill`) or of its backfill
    priority: int = 0
    weight: int = 1  # slots of the pool it takes
    max_active_tis: int | None = None  # of this task, over all runs
    sql: str | None = None  # of a sql task: statements parted by `;`, with named parameters (execution/spark_sql.py)
    into: str | None = None  # a sql task's output table (or path): the last statement's rows go through ctx.write
    time_column: str | None = None  # of `into`: tells which rows are the interval's
    partition_column: str | None = None  # of `into`: holds the partition key

    def delay_before(self, failures: int) -> float:
        """Seconds to wait after the `failures`-th failed try."""
        return float(min(self.retry_delay * self.retry_backoff ** (failures - 1), self.max_retry_delay))


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
    catchup: bool = False
    max_active_runs: int = 16
    max_active_tasks: int = 16
    batchable: bool = False  # its tasks work on an interval of any length
    lookback: int = 0  # intervals before that each scheduled run re-does, for late data
    reads: tuple[TableRead, ...] = ()
    writes: tuple[str, ...] = ()
    params: dict[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    description: str = ""
    owner: str = ""
    file: str = ""  # within the bundle

    def task(self, task_id: str) -> TaskSpec:
        return self.by_id[task_id]

    @cached_property
    def by_id(self) -> dict[str, TaskSpec]:
        return {task.task_id: task for task in self.tasks}

    def downstream(self, task_id: str) -> tuple[str, ...]:
        return tuple(task.task_id for task in self.tasks if task_id in task.upstream)

    @cached_property
    def in_order(self) -> tuple[TaskSpec, ...]:
        """Tasks, each after those it waits for."""
        order = graphlib.TopologicalSorter({t.task_id: t.upstream for t in self.tasks}).static_order()
        return tuple(self.by_id[task_id] for task_id in order)

    @cached_property
    def leaves(self) -> tuple[str, ...]:
        """Tasks that no other waits for: they decide how a run ends."""
        waited_for = {up for task in self.tasks for up in task.upstream}
        return tuple(task.task_id for task in self.tasks if task.task_id not in waited_for)

    def check(self) -> None:
        """`InvalidDag` for a task id used twice, an unknown upstream or trigger rule, a cycle, or no task at all."""
        ids = [task.task_id for task in self.tasks]
        if not ids:
            raise InvalidDag(f"DAG {self.dag_id!r} has no task")
        for task in self.tasks:
            if ids.count(task.task_id) > 1:
                raise InvalidDag(f"DAG {self.dag_id!r} has two tasks with the id {task.task_id!r}")
            if task.trigger_rule not in TRIGGER_RULES:
                raise InvalidDag(
                    f"DAG {self.dag_id!r}, task {task.task_id!r}: unknown trigger rule {task.trigger_rule!r}"
                    f"{nearest(task.trigger_rule, TRIGGER_RULES) or '; one of ' + ', '.join(TRIGGER_RULES)}"
                )
            for up in task.upstream:
                if up not in ids:
                    raise InvalidDag(
                        f"DAG {self.dag_id!r}, task {task.task_id!r} waits for {up!r}, which does not exist"
                    )
        try:
            graphlib.TopologicalSorter({t.task_id: t.upstream for t in self.tasks}).prepare()
        except graphlib.CycleError as error:
            raise InvalidDag(f"DAG {self.dag_id!r} has a cycle: {' >> '.join(reversed(error.args[1]))}") from None

    def to_json(self) -> str:
        """Stable text: equal definitions give equal text, so that it can be hashed."""
        plain = dataclasses.asdict(self)
        plain["start_date"] = format_instant(self.start_date)
        plain["end_date"] = format_instant(self.end_date)
        return json.dumps(plain, sort_keys=True, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> DagSpec:
        plain = json.loads(text)
        plain["tasks"] = tuple(TaskSpec(**{**task, "upstream": tuple(task["upstream"])}) for task in plain["tasks"])
        plain["tags"] = tuple(plain["tags"])
        plain["reads"] = tuple(TableRead(**read) for read in plain.get("reads", ()))
        plain["writes"] = tuple(plain.get("writes", ()))
        for name in ("start_date", "end_date"):
            plain[name] = parse_instant(plain[name]) if plain[name] else None
        return cls(**plain)
