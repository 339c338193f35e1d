"""Whether a task whose try has failed is tried again, and when. Pure.

A start that was lost (the manager's process or its JVM ended) is no failed try: `manager.crash_loops`.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta

from backfill_manager.dags.definition import TaskSpec
from backfill_manager.model import transitions as c
from backfill_manager.model.records import TaskInstance


def after_failure(ti: TaskInstance, at: datetime, error: str, task: TaskSpec, *, retryable: bool) -> TaskInstance:
    """The task after a try that failed at `at`."""
    if not retryable or ti.failures >= task.retries:
        return c.failed(ti, at, error)
    return c.up_for_retry(ti, at, error, at + timedelta(seconds=retry_delay_s(task, ti.failures + 1)))


def retry_delay_s(task: TaskSpec, failures: int) -> float:
    """Seconds to wait after the `failures`-th failed try."""
    try:
        delay = task.retry_delay * task.retry_backoff ** (failures - 1)
    except OverflowError:  # the thousandth try, say
        delay = math.inf if task.retry_delay else 0.0
    return float(min(delay, task.max_retry_delay))
