"""Fixtures of the executor's stories; what they are made of is in `execution_stage`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from support.executor_fixture import THIS_STATE, Audience, LoadedForTest, OneDag, Stage

from backfill_manager.clock import SystemClock
from backfill_manager.dags.definition import DagSpec, TaskSpec
from backfill_manager.execution.executor import Executor
from backfill_manager.execution.write_context import StateIdentity

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_seq = itertools.count(1)


@pytest.fixture
def stage_of(spark: SparkSession) -> Iterator[Callable[[StateIdentity], Stage]]:
    """Opens a stage for a state of this identity; all are closed at the end."""
    opened: list[Executor] = []

    def open_one(state: StateIdentity) -> Stage:
        functions: dict[str, Callable[..., Any]] = {}
        audience, leading = Audience(), [True]
        executor = Executor(
            spark,
            code_cache=OneDag(LoadedForTest(DagSpec("stage", (TaskSpec("work"),)), functions)),
            on_event=audience,
            clock=SystemClock(),
            term=1,
            is_leader=lambda: leading[0],
            state=state,
            slots={"backfill": 16, "scheduled": 16, "narrow": 2},
            grace_s=2.0,
        )
        opened.append(executor)
        return Stage(spark, executor, audience, functions, leading)

    yield open_one
    for executor in opened:
        executor.close(0.0)


@pytest.fixture
def stage(stage_of: Callable[[StateIdentity], Stage]) -> Stage:
    return stage_of(THIS_STATE)


@pytest.fixture
def table(spark: SparkSession) -> Iterator[str]:
    """A name of a table that does not exist yet."""
    name = f"output_{next(_seq)}"
    yield name
    spark.sql(f"DROP TABLE IF EXISTS {name}")
