"""Client side of a real manager: submits requests and waits for changes in the tables."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backfill_manager.clock import SystemClock
from backfill_manager.manager.manager import run_manager
from backfill_manager.model import states as s
from backfill_manager.model.records import Backfill
from backfill_manager.requests import submit
from backfill_manager.schemas import request_kinds
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.settings import Settings
from backfill_manager.store.base import Condition, Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


TIMEOUT_S = 300.0  # a machine may be slow and busy


class PatientClock(SystemClock):
    """For a command line beside a busy manager: it waits sixty times as long for an answer before it goes on without."""

    def monotonic(self) -> float:
        return super().monotonic() / 60


@contextlib.contextmanager
def manager_in_thread(settings: Settings, spark: SparkSession) -> Iterator[None]:
    """A real manager that leads in this process; it has ended at the end."""
    ready, stop = threading.Event(), threading.Event()
    leading = threading.Thread(
        target=run_manager, args=(settings,), kwargs={"state": settings.state, "ready": ready, "stop": stop, "spark": spark}
    )  # fmt: skip
    leading.start()
    try:
        assert ready.wait(TIMEOUT_S), "the manager answers requests"
        yield
    finally:
        stop.set()
        leading.join(TIMEOUT_S)
    assert not leading.is_alive()


def wait_for(look: Callable[[], Any], seconds: float = TIMEOUT_S) -> Any:
    """What `look` gives as soon as it is true: the tables are another process's as far as a client knows."""
    clock, never = SystemClock(), threading.Event()
    end = clock.monotonic() + seconds
    while not (found := look()):
        assert clock.monotonic() < end, "it did not come about"
        never.wait(0.1)
    return found


def kill(process: subprocess.Popen[bytes]) -> None:
    """-9, to the driver and its JVM alike: nothing of it may finish what it was doing."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(TIMEOUT_S)


def rows_of(path: Path | str) -> list[tuple[datetime, str]]:
    """Columns `at` and `run` of a table."""
    return rows_in(path, "t", "SELECT at, run FROM t")


def rows_in(path: Path | str, name: str, sql: str) -> list[tuple[Any, ...]]:
    """What a query gives over the Delta table at `path`, which has this name in it."""
    from deltalake import DeltaTable, QueryBuilder

    found = QueryBuilder().register(name, DeltaTable(str(path))).execute(sql).read_all()
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


def settled(spark: SparkSession) -> Any:
    """Spark's status store, when it has heard all that has happened so far."""
    sc = spark.sparkContext._jsc.sc()
    sc.listenerBus().waitUntilEmpty(round(TIMEOUT_S * 1000))
    return sc.statusStore()


def request(store: Store, ask: CreateBackfill, backfill_id: str) -> str:
    payload = {"backfill_id": backfill_id, "ask": ask.to_payload()}
    return submit.submit(store, SystemClock(), request_kinds.BACKFILL_CREATE, payload).request_id


def ended(store: Store, backfill_id: str, seconds: float = TIMEOUT_S) -> Backfill:
    def look() -> list[Backfill]:
        where = [Condition("backfill_id", "=", backfill_id), Condition("state", "in", sorted(s.BACKFILL_FINISHED))]
        return store.read(Backfill, where)

    return wait_for(look, seconds)[0]  # type: ignore[no-any-return]
