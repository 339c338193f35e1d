"""Measures what processes of their own cost Python tasks, and what tasks that burn Python without end cost everybody else.

All of it in one manager, one run, one machine; compare the ratios.
"""

from __future__ import annotations

import re
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from backfill_manager.api import server
from backfill_manager.api.app import create_app
from backfill_manager.clock import SystemClock
from backfill_manager.model import states as s
from backfill_manager.model.records import Manager, Pool, TaskInstance, TaskLog
from backfill_manager.requests.submit import submit
from backfill_manager.schemas import request_kinds
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.settings import Settings
from backfill_manager.store.base import Condition, Store
from support.bench_overhead import running_manager

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GETS = 100
DAG_FILE = """
from backfill_manager import dag, task

@dag(schedule=None, max_active_runs=64, max_active_tasks=64)
def idle():
    @task
    def job(ctx):
        ctx.log.info("first line")
    job()

@dag(schedule=None, max_active_runs=64, max_active_tasks=64)
def idle_reused():
    @task(reuse_process=True)
    def job(ctx):
        ctx.log.info("first line")
    job()

@dag(schedule=None, max_active_runs=64, max_active_tasks=64)
def burning():
    @task
    def job(ctx):
        while True:
            pass
    job()
"""


def measure_task_processes(tasks: int, burning: int, *, spark: SparkSession | None = None) -> dict[str, Any]:
    """No-op tasks: how many a second, sixteen at once, and the milliseconds from slot to first line, one after another. Then
    the seconds from a request to its task's start and the duration of ticks, first with nothing else, then beside `burning`
    tasks that burn Python without end; and the time in which 95 of 100 GETs of the list of backfills are answered by the API that
    runs beside the manager. And the memory of an idle process that is its own, in MB (Linux)."""
    clock, bound = SystemClock(), server.listen("127.0.0.1", 0)
    url = f"{server.url_of(bound)}/api/v1/backfills"

    @contextmanager
    def beside_it(store: Store) -> Iterator[None]:
        with server.served_beside(create_app(Settings(), store, clock=clock), bound):
            yield

    pools = [Pool(name=name, slots=16, weight=1, min_share=0) for name in (s.SCHEDULED_RUN, s.BACKFILL_RUN)]
    with running_manager({"processes.py": DAG_FILE}, pools, spark, beside_it) as (store, _):
        _run(store, clock, "idle", 16)  # warm-up
        rate = _run(store, clock, "idle", tasks)
        _run(store, clock, "idle_reused", 16)
        rate_reused = _run(store, clock, "idle_reused", tasks)
        alone = [_one(store, clock) for _ in range(12)]
        alone_tick_ms, alone_get_ms = _tick_ms(store), _get_ms_p95(url)
        burners = _submit(store, clock, "burning", burning)
        _wait(lambda: len(_tasks(store, burners, (s.RUNNING,))) == burning)
        beside = [_one(store, clock) for _ in range(12)]
        beside_tick_ms, beside_get_ms = _tick_ms(store), _get_ms_p95(url)
        memory = _memory_of_idle_processes()
        submit(store, clock, request_kinds.BACKFILL_CANCEL, {"backfill_id": burners, "let_running_finish": False})
        _wait(lambda: not _tasks(store, burners, s.TASK_STARTED))
    median = statistics.median
    return {
        "no_op_per_s_16_wide": round(rate, 1),
        "no_op_per_s_16_wide_reused": round(rate_reused, 1),
        "slot_to_first_line_ms_median": round(median(line for _, line in alone) * 1000, 1),
        "request_to_start_s_alone": round(median(start for start, _ in alone), 3),
        "request_to_start_s_beside": round(median(start for start, _ in beside), 3),
        "ratio_request_to_start": round(median(b for b, _ in beside) / median(a for a, _ in alone), 2),
        "tick_ms_alone": alone_tick_ms,
        "tick_ms_beside": beside_tick_ms,
        "get_ms_p95_alone": alone_get_ms,
        "get_ms_p95_beside": beside_get_ms,
        "private_mb_of_an_idle_process": memory,
    }


def _submit(store: Store, clock: SystemClock, dag_id: str, tasks: int) -> str:
    backfill_id = clock.new_id()
    partitions = tuple(f"{backfill_id}-{n}" for n in range(tasks))
    command = CreateBackfill(dag_id=dag_id, kind="partitions", partitions=partitions, max_active_runs=64)
    submit(store, clock, request_kinds.BACKFILL_CREATE, {"backfill_id": backfill_id, "ask": command.to_payload()})
    return backfill_id


def _tasks(store: Store, backfill_id: str, states: tuple[str, ...]) -> list[TaskInstance]:
    return store.read(
        TaskInstance, [Condition("run_id", "starts_with", f"backfill__{backfill_id}"), Condition("state", "in", states)]
    )


def _run(store: Store, clock: SystemClock, dag_id: str, tasks: int) -> float:
    """Tasks per second, from the first start to the last end."""
    backfill_id = _submit(store, clock, dag_id, tasks)
    _wait(lambda: len(_tasks(store, backfill_id, (s.SUCCESS,))) == tasks)
    done = _tasks(store, backfill_id, (s.SUCCESS,))
    starts, ends = [ti.started_at for ti in done if ti.started_at], [ti.ended_at for ti in done if ti.ended_at]
    return tasks / (max(ends) - min(starts)).total_seconds()


def _one(store: Store, clock: SystemClock) -> tuple[float, float]:
    """Seconds from the request to the start of its task, and from there to its first line."""
    requested_at = clock.now()
    backfill_id = _submit(store, clock, "idle", 1)
    _wait(lambda: bool(_tasks(store, backfill_id, (s.SUCCESS,))))
    (done,) = _tasks(store, backfill_id, (s.SUCCESS,))
    of_run = [Condition("dag_id", "=", "idle"), Condition("run_id", "=", done.run_id)]
    _wait(lambda: bool(store.read(TaskLog, of_run)))
    line = store.read(TaskLog, of_run)[0]
    assert done.started_at is not None and line.at is not None
    return (done.started_at - requested_at).total_seconds(), (line.at - done.started_at).total_seconds()


def _tick_ms(store: Store) -> float | None:
    return max(store.read(Manager), key=lambda row: row.term).tick_ms


def _get_ms_p95(url: str) -> float:
    took = []
    with httpx.Client() as client:
        for _ in range(GETS):
            began = time.perf_counter()
            client.get(url).raise_for_status()
            took.append((time.perf_counter() - began) * 1000)
    return round(statistics.quantiles(took, n=20)[-1], 1)


def _memory_of_idle_processes() -> float | None:
    """The largest, of those that have no task. None where /proc does not tell."""
    found = []
    for status in Path("/proc").glob("[0-9]*/comm"):
        try:
            if status.read_text().strip() == "bfm task":
                rollup = (status.parent / "smaps_rollup").read_text()
                sizes = re.findall(r"^Private_(?:Clean|Dirty):\s+(\d+) kB", rollup, re.MULTILINE)
                found.append(sum(map(int, sizes)) / 1024)
        except OSError:  # it has ended
            continue
    return round(max(found), 1) if found else None


def _wait(until: Any) -> None:
    sleeper = threading.Event()
    while not until():
        sleeper.wait(0.5)  # polling takes CPU from the manager
