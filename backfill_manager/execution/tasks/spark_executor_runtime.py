"""What is sent to an executor with the function of an `@task.executor`: its context, and the code that calls it.

Pickled by value, for executors have no backfill_manager: standard library only here, and nothing of ours but
`interval`.
"""

from __future__ import annotations

import json
import logging
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from backfill_manager.execution.interval import Interval

MAX_RESULT_CHARS: Final = 1_000_000  # of a task's result as JSON


class TaskSkipped(BaseException):
    """`ctx.skip(reason)`; not an Exception, so that a task's own `except Exception` does not catch it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = str(reason)  # whatever a task has given


@dataclass
class ExecutorTaskContext:
    """The `ctx` of an `@task.executor`: as in any task, but there is no Spark and no writing where it runs."""

    dag_id: str
    task_id: str
    run_id: str
    run_type: str
    logical_date: datetime | None
    interval: Interval | None
    partition_key: str | None
    params: dict[str, Any]
    try_number: int
    results: dict[str, Any] = field(default_factory=dict)  # of each task that it may read
    mapped_value: Any = None  # of a mapped task
    ended: None = None  # only callbacks have it, and they run in the driver
    log: Any = None  # a logging.Logger, made where the function runs: loggers can't be pickled

    def skip(self, reason: str) -> None:
        raise TaskSkipped(reason)

    def secret(self, name: str) -> str:
        raise RuntimeError(
            f"ctx.secret({name!r}) is for tasks on the driver's machine: what an executor is sent, others can read there. "
            "Call the service from a @task, or let the executors' own machines hold what they need"
        )

    def result(self, task_id: str) -> Any:
        """What an upstream task returned; None if it returned nothing or was skipped."""
        if task_id not in self.results:
            raise LookupError(f"task {self.task_id!r} does not come after {task_id!r}, so it has no result of it")
        return self.results[task_id]


def call(function: Callable[[Any], Any], context: object) -> Any:
    """What the function returns. It may end as a script does that has succeeded, by `sys.exit(0)`."""
    try:
        return function(context)
    except SystemExit as ended:
        if ended.code not in (None, 0):
            raise
        return None


def run_function(function: Callable[[Any], Any], context: ExecutorTaskContext) -> str:
    """Run the function in this process; returns {outcome, value, lines} as JSON text: all that crosses the wire."""
    lines: list[tuple[float, str, str]] = []
    handler = logging.Handler()

    def collect(record: logging.LogRecord) -> None:
        lines.append((time.time(), record.levelname, handler.format(record)))

    handler.emit = collect  # type: ignore[method-assign]
    context.log = logging.Logger("task", logging.INFO)
    context.log.addHandler(handler)
    value: str | None
    try:
        returned = call(function, context)
        value = None if returned is None else json.dumps(returned, allow_nan=False, ensure_ascii=False)
        outcome = "success"
        if value is not None and len(value) > MAX_RESULT_CHARS:
            outcome, value = "too large", f"{len(value):,}"
    except TaskSkipped as skipped:
        outcome, value = "skipped", skipped.reason
    except BaseException as error:  # noqa: BLE001 - whatever it is, it goes back as a value, with the lines before it
        message = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        outcome, value = "failed", f"{type(error).__name__}: {message}" if message else type(error).__name__
        lines.append((time.time(), "ERROR", traceback.format_exc().rstrip()))
    return json.dumps({"outcome": outcome, "value": value, "lines": lines}, ensure_ascii=False)
