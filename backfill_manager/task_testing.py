"""Tools to test what the tasks of your DAGs do: with a real `ctx`, on a Spark of this process.

    from backfill_manager.task_testing import local_spark, run_task
    from backfill_manager.testing import load_file

    spark = local_spark("/tmp/warehouse")
    (flights,) = load_file("dags/flights.py")
    done = run_task(spark, flights, "clean", logical_date="2013-01-05")
    assert done.rows_written == 842

Each call is a run of its own: what it writes is written. Retries, time-outs, pools and the order of tasks are the manager's, and
`testing.InMemoryManager` has them.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from backfill_manager.clock import SystemClock
from backfill_manager.dags.authoring import Dag
from backfill_manager.dags.run_params import check_conf
from backfill_manager.dags.schedule.timetable import parse_date
from backfill_manager.errors import InvalidInput
from backfill_manager.execution.messages import TaskLaunch
from backfill_manager.execution.output.table_turns import PROCESS_TURNS, TurnHolder
from backfill_manager.execution.output.write_context import StateIdentity, WriteContext
from backfill_manager.execution.secrets import NoSecret, check_secret_name
from backfill_manager.execution.spark.session import build_session
from backfill_manager.execution.tasks.bash_task import run_bash
from backfill_manager.execution.tasks.context import TaskContext, executor_task_context
from backfill_manager.execution.tasks.run_task import to_result_json
from backfill_manager.execution.tasks.spark_executor_runtime import TaskSkipped, call
from backfill_manager.execution.tasks.spark_executor_task import run_on_executor
from backfill_manager.execution.tasks.spark_sql import run_sql
from backfill_manager.model import states as s
from backfill_manager.model.pools import BACKFILL_POOL
from backfill_manager.model.records import DagRun, DagVersion, TaskInstance
from backfill_manager.planning.runs.next_run import manual_interval

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["TaskRun", "local_spark", "run_task", "task_context"]


@dataclass(frozen=True)
class TaskRun:
    """How a task has ended; one that fails raises its error."""

    result: Any = None  # what `ctx.result(task_id)` gives to the tasks downstream
    rows_written: int | None = None
    skipped: str | None = None  # the reason that it gave to `ctx.skip`


def local_spark(warehouse: str | Path) -> SparkSession:
    """A Spark with Delta on two cores of this machine, whose tables are in this folder. A process has one: call it once."""
    return build_session(pools=(), master="local[2]", warehouse=str(Path(warehouse).absolute()))


def run_task(spark: SparkSession, dag: Dag, task_id: str, **run: Any) -> TaskRun:
    """Runs a task to its end; `run` is as in `task_context`. The bundle of a bash task is the current folder."""
    this = _write_context(spark, dag, task_id, **run)
    ctx, launch = TaskContext(this), this.launch
    try:
        if launch.task.kind == "sql":
            run_sql(this, ctx)
            result = None
        elif launch.task.kind == "bash":
            printed = run_bash(launch, lambda _, line: this.log.info("%s", line), this.find_secret, Path.cwd())
            result = to_result_json(task_id, printed)
        elif launch.task.kind == "executor":
            context = executor_task_context(launch)
            result = run_on_executor(
                spark.sparkContext, dag.functions[task_id], context, lambda _, text: this.log.info(text)
            )
        else:
            result = to_result_json(task_id, call(dag.functions[task_id], ctx))
    except TaskSkipped as skipped:
        return TaskRun(skipped=skipped.reason)
    return TaskRun(None if result is None else json.loads(result), ctx.rows_written)


def task_context(spark: SparkSession, dag: Dag, task_id: str, **run: Any) -> TaskContext:
    """The `ctx` of a task. `run` has what its run has: `logical_date` (text in the DAG's zone, or a datetime) of an interval, or
    `partition_key`; `params` over the DAG's; `results` of tasks upstream, by task id; `secrets`, by name, for `ctx.secret`."""
    return TaskContext(_write_context(spark, dag, task_id, **run))


def _write_context(
    spark: SparkSession, dag: Dag, task_id: str, *, logical_date: str | datetime | None = None,
    partition_key: str | None = None, params: Mapping[str, Any] | None = None, results: Mapping[str, Any] | None = None,
    secrets: Mapping[str, str] | None = None,
) -> WriteContext:  # fmt: skip
    spec, now = dag.spec, SystemClock().now()
    known = [task.task_id for task in spec.tasks]
    if task_id not in known:
        raise InvalidInput(f"DAG {spec.dag_id!r} has no task {task_id!r}; it has {', '.join(known)}")
    check_conf(params or {}, spec)
    start = end = None
    if logical_date is not None:
        at = logical_date.isoformat() if isinstance(logical_date, datetime) else logical_date
        start, end = manual_interval(spec, parse_date(at, spec.timezone, name="logical_date"), now)
    run = DagRun(
        spec.dag_id, f"test__{logical_date or partition_key or now:}", "manual", s.RUNNING, 1, 1, now, start, start, end,
        partition_key,
    )  # fmt: skip
    ti = TaskInstance(spec.dag_id, run.run_id, task_id, s.RUNNING, 1, try_number=1, launch=1)
    version = DagVersion(spec.dag_id, 1, "", spec.to_json(), "tests", spec.file or "", "", now)
    launch = TaskLaunch(
        ti,
        run,
        dataclasses.replace(spec, tasks=(spec.task(task_id),)),
        spec.task(task_id),
        version,
        BACKFILL_POOL,
        {**spec.params, **(params or {})},
        {of: (results or {}).get(of) for of in spec.readable_by(task_id)},
    )
    log = logging.getLogger(f"{spec.dag_id}.{task_id}")
    identity = StateIdentity(token_hex(6))

    def find_secret(name: str) -> str:
        if check_secret_name(name) not in (secrets or {}):
            raise NoSecret(f"{name} is not among the secrets of this test; give it with secrets={{{name!r}: ...}}")
        return (secrets or {})[name]

    turns = TurnHolder(PROCESS_TURNS)
    return WriteContext(launch, lambda: spark, log, lambda: None, identity, turns, find_secret=find_secret)
