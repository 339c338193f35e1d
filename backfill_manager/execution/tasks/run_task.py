"""One try of one task, where its code runs: from a `TaskLaunch` to an `Outcome`. SQL tasks run in a thread of the manager
(`run_sql_task`), all others in a process of their own (`run_python_task`, called by `task_main`)."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from backfill_manager.dags.importing.task_code import load_dag, snapshot_folder
from backfill_manager.errors import AbandonedTry, InvalidInput, LostLease
from backfill_manager.execution.error_format import one_line, traceback_text
from backfill_manager.execution.lineage.table_access import record_reads
from backfill_manager.execution.messages import Failed, Outcome, Postponed, Skipped, Succeeded, TaskLaunch
from backfill_manager.execution.output.preview import redirect
from backfill_manager.execution.output.write_context import WriteContext
from backfill_manager.execution.tasks.bash_task import BashFailed, run_bash
from backfill_manager.execution.tasks.context import TaskContext, executor_task_context
from backfill_manager.execution.tasks.spark_executor_runtime import MAX_RESULT_CHARS, TaskSkipped, call
from backfill_manager.execution.tasks.spark_executor_task import ExecutorTaskFailed, run_on_executor
from backfill_manager.execution.tasks.spark_sql import run_sql
from backfill_manager.masking import mask_text, masked_json
from backfill_manager.model.records import DagVersion
from backfill_manager.processes.limits import lift_memory_limit, went_over

MAX_RESULT_DEPTH: Final = 100
_NO_RETRY_MENDS: Final = (InvalidInput, NotImplementedError)  # the latter of drafts of other tools, too
_to_json = json.dumps  # as it is before the task may put something else in its place
Log = Callable[[str, str], None]  # (level, message): a line into the try's log


def run_sql_task(this: WriteContext, log: Log) -> Outcome:
    """Run its statements. Whatever happens comes back as a value; the traceback goes into the try's log."""

    def run() -> Succeeded:
        from pyspark.errors import ParseException

        ctx = TaskContext(this)
        try:
            run_sql(this, ctx)
        except ParseException as error:  # no retry mends it
            raise InvalidInput(f"sql task {ctx.task_id!r}: {one_line(error, this.launch.secrets)}") from error
        return Succeeded(None, ctx.rows_written)

    def is_stopped() -> bool:
        try:
            this.refuse_if_abandoned()
        except (AbandonedTry, LostLease):
            return True
        return False

    return _outcome_of(this.launch, run, log, is_stopped=is_stopped)


def run_python_task(this: WriteContext, log: Log, snapshots: Path | None, on_loaded: Callable[[], None]) -> Outcome:
    """Load the code of its version into this process, call `on_loaded`, and run it, or run its command."""
    launch = this.launch

    def run() -> Succeeded:
        if launch.task.kind == "bash":
            printed = run_bash(launch, log, this.find_secret, snapshot_folder(launch.version, snapshots))
            result = to_result_json(launch.task.task_id, printed)
            return Succeeded(result, None, masked_json(result))
        function = _function(launch, snapshots)
        on_loaded()
        if launch.task.kind == "executor":
            answer = run_on_executor(this.spark.sparkContext, function, executor_task_context(launch), log)
            return Succeeded(_not_too_deep(launch.task.task_id, answer))
        if this.preview is None:
            record_reads(this.accesses)
        else:
            redirect(this.preview)
        ctx = TaskContext(this)
        returned = call(function, ctx)
        # nobody reads what a callback returns
        result = None if launch.task.is_callback else to_result_json(launch.task.task_id, returned)
        return Succeeded(result, ctx.rows_written, masked_json(result))  # its environment ends with this process

    return _outcome_of(launch, run, log)


def _outcome_of(
    launch: TaskLaunch, run: Callable[[], Succeeded], log: Log, is_stopped: Callable[[], bool] = lambda: False
) -> Outcome:
    """`is_stopped`: then an error is how Spark ends the jobs, and its traceback says nothing."""
    known = launch.secrets  # no part of one may be left where an error is cut
    try:
        return run()
    except TaskSkipped as skipped:
        return Skipped(mask_text(skipped.reason))
    except AbandonedTry as refused:
        log("WARNING", str(refused))
        return Failed(one_line(refused), retryable=False)
    except LostLease as unsure:  # if it does lead, the task runs again; if not, its outcome is not committed
        log("WARNING", str(unsure))
        return Postponed(one_line(unsure))
    except (BashFailed, ExecutorTaskFailed) as failed:
        return Failed(one_line(failed, known))
    except MemoryError as error:
        lift_memory_limit()
        log("ERROR", traceback_text(error))
        memory_mb = None if launch.task.kind == "sql" else launch.memory_mb  # that is of a process
        return Failed(one_line(error, known) if memory_mb is None else went_over(memory_mb))
    except BaseException as error:  # noqa: BLE001 - users' code raises anything, SystemExit too; it is reported
        log("ERROR", one_line(error, known) if is_stopped() else traceback_text(error))
        return Failed(one_line(error, known), retryable=not isinstance(error, _NO_RETRY_MENDS))


def _function(launch: TaskLaunch, snapshots: Path | None) -> Callable[..., Any]:
    functions = _functions(launch.version, snapshots)
    found = functions.get(launch.task.task_id) or functions.get(launch.task.mapped_from or "")
    if found is None:
        raise InvalidInput(
            f"version {launch.version.version} of DAG {launch.dag.dag_id!r} has no function "
            f"for task {launch.task.task_id!r}"
        )
    return found


@functools.lru_cache(maxsize=1)
def _functions(version: DagVersion, snapshots: Path | None) -> Mapping[str, Callable[..., Any]]:
    """Of the version's tasks. Kept, as all tries of a process are of one version."""
    return load_dag(version, snapshots).functions


def to_result_json(task_id: str, value: Any) -> str | None:
    """The JSON text of a return value, None for None. `InvalidInput` if it is no JSON value or too large."""
    if value is None:
        return None
    try:
        text = _to_json(value, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"task {task_id!r} returned {type(value).__name__}, which is not a JSON value ({error}). A result is small: "
            "text, numbers, booleans, None, lists and dicts of them; data goes into a table (ctx.write)."
        ) from None
    if len(text) > MAX_RESULT_CHARS:
        raise InvalidInput(
            f"task {task_id!r} returned {len(text):,} characters of JSON; a result may have {MAX_RESULT_CHARS:,}. "
            "Data goes into a table (ctx.write)."
        )
    return _not_too_deep(task_id, text)


def _not_too_deep(task_id: str, text: str | None) -> str | None:
    """The text: the manager could not read what is nested without end."""
    if text is not None and _is_deeper(json.loads(text), MAX_RESULT_DEPTH):
        raise InvalidInput(f"task {task_id!r} returned JSON that is nested more than {MAX_RESULT_DEPTH} levels deep")
    return text


def _is_deeper(value: Any, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    items = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_is_deeper(item, levels - 1) for item in items)
