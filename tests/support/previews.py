"""Tasks of a preview, launched on an executor by hand."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from backfill_manager.execution.messages import Succeeded, TaskLaunch
from backfill_manager.execution.output.clones import Clones
from support.executor_fixture import TaskRunner, a_launch, day

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_numbers = itertools.count(1)


def in_preview(clones: Clones, n: int = 1, **how: Any) -> TaskLaunch:
    run_id = f"preview__{clones.preview_id}__{next(_numbers)}"
    launch = a_launch(run_id=run_id, run_type="preview", interval=(day(n), day(n + 1)), **how)
    return dataclasses.replace(launch, preview_id=clones.preview_id)


def result_of(runner: TaskRunner, launch: TaskLaunch, function: Callable[[Any], Any] | None = None) -> str | None:
    outcome = runner.run(launch, function)
    assert isinstance(outcome, Succeeded), (outcome, runner.log_of(launch))
    return outcome.result_json


def values(spark: SparkSession, table: str) -> list[float]:
    return sorted(row["v"] for row in spark.table(table).collect())
