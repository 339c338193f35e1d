"""Fixtures of the executor's stories; what they are made of is in `execution_stage`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from execution_stage import THIS_STATE, Audience, LoadedForTest, OneDag, Stage

from backfill_manager.clock import SystemClock
from backfill_manager.dags.definition import DagSpec, TaskSpec
from backfill_manager.execution.executor import Executor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_seq = itertools.count(1)


@pytest.fixture
def stage(spark: SparkSession) -> Iterator[Stage]:
    functions: dict[str, Callable[..., Any]] = {}
    audience, leading = Audience(), [True]
    executor = Executor(
        spark,
        library=OneDag(LoadedForTest(DagSpec("stage", (TaskSpec("work"),)), functions)),
        on_event=audience,
        clock=SystemClock(),
        term=1,
        leads=lambda: leading[0],
        state=THIS_STATE,
        slots={"backfill": 16, "scheduled": 16, "narrow": 2},
        grace_s=2.0,
    )
    yield Stage(spark, executor, audience, functions, leading)
    executor.close(0.0)


@pytest.fixture
def table(spark: SparkSession) -> Iterator[str]:
    """A name of a table that does not exist yet."""
    name = f"output_{next(_seq)}"
    yield name
    spark.sql(f"DROP TABLE IF EXISTS {name}")
