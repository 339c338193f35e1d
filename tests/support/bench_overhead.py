"""Measures the throughput of the manager against a bare thread pool on the same Spark session.

N tiny Spark jobs, `width` at a time: once as plain function calls in a ThreadPoolExecutor (each with a session of its own, as
in the manager), once as N runs of a one-task DAG in one backfill, with real Delta state, commits, logs and planning, each in
a process of its own and then in reused ones. Rounds alternate, so that other load on the machine slows both; compare the ratios.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backfill_manager.clock import SystemClock
from backfill_manager.execution.spark.session import build_session
from backfill_manager.manager.manager import run_manager
from backfill_manager.model import states as s
from backfill_manager.model.records import Backfill, Pool, TaskInstance
from backfill_manager.requests.submit import submit
from backfill_manager.schemas import request_kinds
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.settings import BundleSettings, PoolSettings, Settings, SparkSettings
from backfill_manager.store import open_store
from backfill_manager.store.base import Condition, Store
from support.bench_tries import cpu_of_processes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAG_FILE = """
from backfill_manager import dag, task

@dag(schedule=None, max_active_runs={runs}, max_active_tasks={runs})
def tiny():
    @task
    def job(ctx):
        ctx.spark.range(1000).selectExpr("sum(id)").collect()
    job()

@dag(schedule=None, max_active_runs={runs}, max_active_tasks={runs})
def tiny_reused():
    @task(reuse_process=True)
    def job(ctx):
        ctx.spark.range(1000).selectExpr("sum(id)").collect()
    job()
"""


@contextmanager
def running_manager(
    dag_files: Mapping[str, str], pools: Sequence[Pool], spark: SparkSession | None = None,
    beside: Callable[[Store], AbstractContextManager[None]] | None = None,
) -> Iterator[tuple[Store, SparkSession]]:  # fmt: skip
    """Runs a manager in this process on a temporary state and yields a client's store and the Spark session. A session that
    is passed in stays open; without one, a session on two cores is built and stopped. `beside` as for `run_manager`."""
    session = spark or build_session(pools=pools, app_name="benchmark", master="local[2]")
    try:
        with tempfile.TemporaryDirectory(prefix="bfm-bench-") as scratch:
            root = Path(scratch)
            (root / "bundle").mkdir()
            for name, text in dag_files.items():
                (root / "bundle" / name).write_text(text)
            settings = Settings(
                state=str(root / "state"),
                bundles=[BundleSettings(name="bench", path=str(root / "bundle"))],
                pools=[
                    PoolSettings(name=pool.name, slots=pool.slots, weight=pool.weight, min_share=pool.min_share)
                    for pool in pools
                ],
                spark=SparkSettings(),
            )
            ready, stop = threading.Event(), threading.Event()
            manager = threading.Thread(
                target=run_manager, args=(settings,), name="manager",
                kwargs={"state": settings.state, "ready": ready, "stop": stop, "spark": session, "beside": beside},
            )  # fmt: skip
            manager.start()
            try:
                ready.wait()
                with closing(open_store(settings.state)) as store:
                    yield store, session
            finally:
                stop.set()
                manager.join()
    finally:
        if spark is None:
            session.stop()


def measure_overhead(tasks: int, width: int, *, rounds: int = 3, spark: SparkSession | None = None) -> dict[str, Any]:
    """Returns jobs per second of all ways, their ratios (managed / bare) and the milliseconds of CPU that a job takes in each
    process, each the median of `rounds`."""
    pools = [Pool(name=name, slots=width, weight=1, min_share=0) for name in (s.SCHEDULED_RUN, s.BACKFILL_RUN)]
    clock = SystemClock()
    with running_manager({"tiny.py": DAG_FILE.format(runs=width * 4)}, pools, spark) as (store, session):
        bare, managed, reused, latency = [], [], [], []
        cpu: dict[str, list[dict[str, float]]] = {}

        @contextmanager
        def counting_cpu(way: str) -> Iterator[None]:
            before = cpu_of_processes(session)
            yield
            after = cpu_of_processes(session)
            cpu.setdefault(way, []).append({name: (after[name] - before[name]) / tasks * 1000 for name in before})

        _bare(session, width * 4, width, clock)  # warm-up: the JVM compiles the code
        _managed("tiny", store, width * 4, width, clock)
        _managed("tiny_reused", store, width * 4, width, clock)
        for _ in range(rounds):
            with counting_cpu("bare"):
                bare.append(_bare(session, tasks, width, clock))
            with counting_cpu("managed"):
                rate, first = _managed("tiny", store, tasks, width, clock)
            managed.append(rate)
            latency.append(first)
            with counting_cpu("reused"):
                reused.append(_managed("tiny_reused", store, tasks, width, clock)[0])
    return {
        "tasks": tasks,
        "width": width,
        "rounds": rounds,
        "bare_per_s": _rounded(statistics.median(bare)),
        "managed_per_s": _rounded(statistics.median(managed)),
        "ratio": _rounded(statistics.median(m / b for m, b in zip(managed, bare, strict=True))),
        "ratios": [_rounded(m / b) for m, b in zip(managed, bare, strict=True)],
        "reused_per_s": _rounded(statistics.median(reused)),
        "reused_ratios": [_rounded(m / b) for m, b in zip(reused, bare, strict=True)],
        "request_to_first_start_s": round(statistics.median(latency), 3),
        "cpu_ms_a_job": {
            way: {name: round(statistics.median(one[name] for one in ones), 1) for name in ones[0]}
            for way, ones in cpu.items()
        },
    }


def _rounded(value: float) -> float:
    """Rounds to three significant digits."""
    return float(f"{value:.3g}")


def _bare(spark: SparkSession, tasks: int, width: int, clock: SystemClock) -> float:
    def job(_: int) -> None:
        spark.newSession().range(1000).selectExpr("sum(id)").collect()

    began = clock.monotonic()
    with ThreadPoolExecutor(width) as pool:
        list(pool.map(job, range(tasks)))
    return tasks / (clock.monotonic() - began)


def _managed(dag_id: str, store: Store, tasks: int, width: int, clock: SystemClock) -> tuple[float, float]:
    """Returns jobs per second (first start to last end), and seconds from the request to the first start."""
    backfill_id = clock.new_id()
    command = CreateBackfill(
        dag_id=dag_id, kind="partitions", partitions=tuple(f"{backfill_id}-{n}" for n in range(tasks)),
        max_active_runs=width * 4,
    )  # fmt: skip
    requested_at = clock.now()
    submit(
        store,
        clock,
        request_kinds.BACKFILL_CREATE,
        {"backfill_id": backfill_id, "ask": command.to_payload()},
    )
    sleeper = threading.Event()
    filters = [Condition("backfill_id", "=", backfill_id)]
    while not any(row.state in s.BACKFILL_FINISHED for row in store.read(Backfill, filters)):
        sleeper.wait(1.0)  # polling takes CPU from the manager
    done = store.read(TaskInstance, [Condition("run_id", "starts_with", f"backfill__{backfill_id}")])
    starts = [ti.started_at for ti in done if ti.started_at is not None]
    ends = [ti.ended_at for ti in done if ti.ended_at is not None and ti.state == s.SUCCESS]
    if len(ends) != tasks:
        raise RuntimeError(f"{len(ends)} of {tasks} tasks succeeded")
    return tasks / (max(ends) - min(starts)).total_seconds(), (min(starts) - requested_at).total_seconds()
