"""The planner's thread: a request waits for one at most of the plans that only warm it up."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from backfill_manager.clock import SystemClock
from backfill_manager.errors import StateError
from backfill_manager.manager.services.planner import ATTEMPTS, RETRY_INTERVAL_S, WARM_UPS, Planner, PlanResult
from backfill_manager.manager.tick_context import PlanRequest
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.schemas.request_kinds import BACKFILL_CREATE
from backfill_manager.testing import MemoryStore, dag_spec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST, LAST = datetime(2024, 1, 1, tzinfo=timezone.utc), datetime(2024, 1, 3, tzinfo=timezone.utc)


def test_a_request_is_planned_in_place_of_the_rest_of_the_warm_up(spark: SparkSession) -> None:
    store, planned = MemoryStore(), list[PlanResult]()
    store.init()
    planner = Planner(
        spark, store, SystemClock(), batch_target_s=600.0, on_planned=planned.append, on_spark_gone=lambda reason: None
    )  # fmt: skip
    assert WARM_UPS > 2
    request = PlanRequest(
        "q", BACKFILL_CREATE, "b", CreateBackfill(dag_id="d", start_date=FIRST, end_date=LAST), "tests"
    )

    def passes() -> list[tuple[float | None, int]]:
        planner.set_up()
        made = [(planner.run_once(), len(planned))]
        planner.plan(request, dag_spec("d", "t"), 1, {})
        while made[-1][0] is not None:
            made.append((planner.run_once(), len(planned)))
        return made

    with ThreadPoolExecutor(1) as thread:  # its jobs' properties are the thread's
        made = thread.submit(passes).result()

    assert made == [(0, 0), (0, 1), (None, 1)]
    assert planned[0].plan is not None and planned[0].plan.items.num_rows == 3


class _Away(MemoryStore):
    """Its storage is away for so many reads of runs."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def read_arrow(self, table: str, *args: Any, **how: Any) -> pa.Table:
        self.times -= 1
        if self.times >= 0:
            raise StateError(f"Table {table} can't be read")
        return super().read_arrow(table, *args, **how)


@pytest.mark.parametrize("times", [ATTEMPTS - 1, ATTEMPTS])
def test_a_plan_is_tried_again_while_the_state_can_not_be_read(spark: SparkSession, times: int) -> None:
    store, planned = _Away(times), list[PlanResult]()
    store.init()
    planner = Planner(
        spark, store, SystemClock(), batch_target_s=600.0, on_planned=planned.append, on_spark_gone=lambda reason: None
    )  # fmt: skip
    command = CreateBackfill(dag_id="d", start_date=FIRST, end_date=LAST)

    def passes() -> list[float | None]:
        planner.set_up()
        planner.plan(PlanRequest("q", BACKFILL_CREATE, "b", command, "tests"), dag_spec("d", "t"), 1, {})
        return [planner.run_once() for _ in range(ATTEMPTS)]

    with ThreadPoolExecutor(1) as thread:
        waits = thread.submit(passes).result()

    assert waits == [*[RETRY_INTERVAL_S] * (ATTEMPTS - 1), 0]
    assert len(planned) == 1
    assert (planned[0].plan is not None) == (times < ATTEMPTS)
    assert times < ATTEMPTS or "can't be read" in str(planned[0].refusal)


class _Busy(MemoryStore):
    """A read of runs goes on until the planner was stopped."""

    def __init__(self) -> None:
        super().__init__()
        self.is_reading, self.was_stopped, self.outlasted_stop = threading.Event(), threading.Event(), False

    def read_arrow(self, table: str, *args: Any, **how: Any) -> pa.Table:
        self.is_reading.set()
        self.outlasted_stop = self.was_stopped.wait(60)
        return super().read_arrow(table, *args, **how)


def test_the_end_of_a_manager_does_not_wait_for_a_plan(spark: SparkSession) -> None:
    store = _Busy()
    store.init()
    planner = Planner(
        spark, store, SystemClock(), batch_target_s=600.0, on_planned=lambda _: None, on_spark_gone=lambda reason: None
    )  # fmt: skip
    planner.start()
    store.is_reading.wait()
    planner.stop()
    store.was_stopped.set()
    planner._thread.join()
    assert store.outlasted_stop
