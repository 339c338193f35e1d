"""Fixtures of the executor's stories; what they are made of is in support/executor_fixture.py."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from support.executor_fixture import THIS_STATE, Audience, Stage, an_executor

from backfill_manager.execution.write_context import StateIdentity

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_seq = itertools.count(1)


@pytest.fixture
def stage_of(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Stage]]:
    """Opens a stage for a state of this identity; all are closed at the end."""
    with ExitStack() as opened:

        def open_one(state: StateIdentity = THIS_STATE, *, grace_s: float = 2.0) -> Stage:
            audience, leading = Audience(), [True]
            executor = an_executor(spark, audience, is_leader=lambda: leading[0], state=state, grace_s=grace_s)
            folder = tmp_path_factory.mktemp("stage")
            return Stage(spark, opened.enter_context(executor), audience, leading, folder)

        yield open_one


@pytest.fixture
def stage(stage_of: Callable[..., Stage]) -> Stage:
    return stage_of()


@pytest.fixture
def table(spark: SparkSession) -> Iterator[str]:
    """A name of a table that does not exist yet."""
    name = f"output_{next(_seq)}"
    yield name
    spark.sql(f"DROP TABLE IF EXISTS {name}")
