"""What a state in Spark's catalog costs: `./tests/run tests/bench/test_catalog_state.py --bench -s`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from datetime import datetime
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from support.state_changes import changes, request, run, takes_over, task, unique

from backfill_manager.clock import UTC
from backfill_manager.model.records import DagRun
from backfill_manager.store import open_store
from backfill_manager.store.base import Condition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS = 5


def measured(name: str, work: Callable[[], Any], rounds: int = ROUNDS) -> Any:
    took, given = list[float](), None
    for _ in range(rounds):
        begun = time.perf_counter()
        given = work()
        took.append(1000 * (time.perf_counter() - begun))
    print(f"{name}: {statistics.median(took):,.0f} ms, the first {took[0]:,.0f} ms")
    return given


@pytest.mark.bench
def test_ms_of_what_a_manager_does_with_its_state(spark: SparkSession) -> None:
    store, numbers = open_store(f"spark_catalog.{unique('state')}", spark=spark), count(1)
    print()
    measured("make the state ready", store.init, 1)
    leader = measured("become the leader", lambda: takes_over(store), 1)

    def commit(size: int) -> None:
        of = [next(numbers) for _ in range(size)]
        leader.commit(changes(*(row for n in of for row in (run("d", n), task("d", n)))))

    measured("commit a run and its task", lambda: commit(1))
    measured("commit 20 of each", lambda: commit(20))
    measured("heartbeat", lambda: leader.heartbeat(datetime.now(UTC)))
    measured("append a request", lambda: store.append_request(request(f"r{next(numbers)}")))
    measured("read the unanswered requests", store.unanswered)
    measured("read runs by state", lambda: store.read(DagRun, [Condition("state", "=", "running")]))
    assert store.count("dag_run")[()] == 21 * ROUNDS
