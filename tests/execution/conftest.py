"""Fixtures of the executor's stories; what they are made of is in support/executor_fixture.py."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from support.executor_fixture import THIS_STATE, EventRecorder, TaskRunner, an_executor

from backfill_manager.execution.output.write_context import StateIdentity

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from backfill_manager.execution.output.clones import Clones

_seq = itertools.count(1)


@pytest.fixture
def runner_of(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., TaskRunner]]:
    """Opens a runner for a state of this identity; all are closed at the end."""
    with ExitStack() as opened:

        def open_one(state: StateIdentity = THIS_STATE, *, grace_s: float = 2.0) -> TaskRunner:
            recorder, leading = EventRecorder(), [True]
            executor = an_executor(spark, recorder, is_leader=lambda: leading[0], state=state, grace_s=grace_s)
            folder = tmp_path_factory.mktemp("work_dag")
            return TaskRunner(spark, opened.enter_context(executor), recorder, leading, folder)

        yield open_one


@pytest.fixture
def runner(runner_of: Callable[..., TaskRunner]) -> TaskRunner:
    return runner_of()


@pytest.fixture
def table(spark: SparkSession) -> Iterator[str]:
    """A name of a table that does not exist yet."""
    name = f"output_{next(_seq)}"
    yield name
    spark.sql(f"DROP TABLE IF EXISTS {name}")


@pytest.fixture
def schema(spark: SparkSession) -> Iterator[str]:
    name = f"preview_{next(_seq)}"
    spark.sql(f"CREATE SCHEMA {name}")
    yield name
    spark.sql(f"DROP SCHEMA {name} CASCADE")


@pytest.fixture
def clones(spark: SparkSession, schema: str) -> Iterator[Clones]:
    from backfill_manager.execution.output.clones import Clones

    of = Clones(spark, schema)
    yield of
    of.discard()


class _Commit(list[Any]):
    """Its actions; unlike a list, a `WeakSet` takes it."""

    __hash__ = object.__hash__


@pytest.fixture
def commits_in_memory(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many commits of logs are held whenever another one is read."""
    from backfill_manager.execution.output.table_state import TableState

    read, held, counts = TableState._actions, weakref.WeakSet[_Commit](), list[int]()

    def actions(self: TableState, version: int) -> list[dict[str, Any]]:
        counts.append(len(held))
        held.add(commit := _Commit(read(self, version)))
        return commit

    monkeypatch.setattr(TableState, "_actions", actions)
    return counts


@pytest.fixture
def events(spark: SparkSession, schema: str) -> str:
    """A table with two rows on each of the first three days of January 2013."""
    name = f"{schema}.events"
    spark.sql(f"CREATE TABLE {name} (at TIMESTAMP, id BIGINT, v DOUBLE) USING delta")
    spark.sql(f"INSERT INTO {name} SELECT make_timestamp(2013, 1, d, 12, 0, 0), d * 10 + id, id FROM range(2) JOIN (SELECT explode(array(1, 2, 3)) d)")  # fmt: skip  # noqa: E501
    return name
