"""One try of one task, in the thread and for the scope that the executor gives it: from a `TaskLaunch` to an `Outcome`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from backfill_manager.errors import AbandonedTry, InvalidInput, LostLease
from backfill_manager.execution.context import TaskContext, executor_task_context
from backfill_manager.execution.error_format import one_line, traceback_text
from backfill_manager.execution.executor_runtime import MAX_RESULT_CHARS, TaskSkipped
from backfill_manager.execution.executor_task import ExecutorTaskFailed, run_on_executor
from backfill_manager.execution.messages import Failed, Lost, Outcome, Postponed, Skipped, Succeeded, TaskLaunch
from backfill_manager.execution.spark_health import spark_gone_reason
from backfill_manager.execution.spark_properties import SparkJobGroup
from backfill_manager.execution.spark_sql import run_sql
from backfill_manager.execution.table_turns import Turns
from backfill_manager.execution.task_log import TaskLogger
from backfill_manager.execution.write_context import StateIdentity, WriteContext
from backfill_manager.masking import mask_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from backfill_manager.dags.importing.code_cache import CodeCache


def run_task(
    launch: TaskLaunch, scope: SparkJobGroup, *, spark: SparkSession, code_cache: CodeCache,
    refuse_if_abandoned: Callable[[], None], state: StateIdentity, turns: Turns,
) -> Outcome:  # fmt: skip
    """Run the task. Whatever happens in it comes back as a value; the traceback goes into the try's log."""
    task = launch.task
    try:
        with scope.entered(), code_cache.using(launch.version):
            function = None if task.kind == "sql" else _function(launch, code_cache)
            if task.kind == "executor":
                assert function is not None
                snapshot, context = code_cache.folder(launch.version), executor_task_context(launch)
                return Succeeded(
                    run_on_executor(spark.sparkContext, function, context, snapshot=snapshot, log=scope.log)
                )
            session = spark.newSession()
            session.conf.set("spark.scheduler.pool", launch.pool)
            log = TaskLogger(f"{launch.ti.dag_id}.{task.task_id}", scope.log)
            this = WriteContext(launch, session, log, refuse_if_abandoned, state, turns)
            ctx = TaskContext(this)
            if function is None:
                run_sql(this, ctx)
                return Succeeded(None, ctx.rows_written)
            returned = function(ctx)
            # nobody reads what a callback returns
            result = None if task.is_callback else to_result_json(task.task_id, returned)
            return Succeeded(result, ctx.rows_written)
    except TaskSkipped as skipped:
        return Skipped(mask_environment(skipped.reason))
    except AbandonedTry as refused:
        scope.log("WARNING", str(refused))
        return Failed(one_line(refused), retryable=False)
    except LostLease as unsure:  # if it does lead, the task runs again; if not, its outcome is not committed
        scope.log("WARNING", str(unsure))
        return Postponed(one_line(unsure))
    except ExecutorTaskFailed as failed:
        return Failed(mask_environment(str(failed)))
    except BaseException as error:  # noqa: BLE001 - users' code raises anything, SystemExit too; it is reported
        if why := spark_gone_reason(spark):
            return Lost(why)
        scope.log("ERROR", traceback_text(error))
        return Failed(one_line(error), retryable=not isinstance(error, InvalidInput))


def _function(launch: TaskLaunch, code_cache: CodeCache) -> Callable[..., Any]:
    functions = code_cache.dag(launch.version).functions
    if launch.task.task_id not in functions:
        raise InvalidInput(
            f"version {launch.version.version} of DAG {launch.dag.dag_id!r} has no function "
            f"for task {launch.task.task_id!r}"
        )
    return functions[launch.task.task_id]


def to_result_json(task_id: str, value: Any) -> str | None:
    """The JSON text of a return value, None for None. `InvalidInput` if it is no JSON value or too large."""
    if value is None:
        return None
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"task {task_id!r} returned a {type(value).__name__} that is no JSON value ({error}). A result is small: "
            "text, numbers, booleans, None, lists and dicts of them; data goes into a table (ctx.write)."
        ) from None
    if len(text) > MAX_RESULT_CHARS:
        raise InvalidInput(
            f"task {task_id!r} returned {len(text):,} characters of JSON; a result may have {MAX_RESULT_CHARS:,}. "
            "Data goes into a table (ctx.write)."
        )
    return text
