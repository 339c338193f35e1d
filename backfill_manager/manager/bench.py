"""`bfm bench overhead`: what the manager costs, against a bare thread pool on the same Spark session in the same run.

N tiny Spark jobs, `width` at a time: once as plain function calls in a ThreadPoolExecutor (a session of its own for each, as
the manager gives to each task), once as N runs of a one-task DAG asked for as one backfill, with real Delta state, commits,
logs and planning. Rounds alternate, so that a noisy machine is noisy for both; ratios are what to trust.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backfill_manager.clock import SystemClock
from backfill_manager.execution.session import build_session
from backfill_manager.manager.manager import run_manager
from backfill_manager.model import states as s
from backfill_manager.model.records import Backfill, Pool, TaskInstance
from backfill_manager.requests import command_types
from backfill_manager.requests.backfills import CreateBackfill
from backfill_manager.requests.submit import submit
from backfill_manager.settings import BundleSettings, PoolSettings, Settings, SparkSettings
from backfill_manager.store import open_store
from backfill_manager.store.base import Condition, Store

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
"""


@contextmanager
def running_manager(
    dag_files: Mapping[str, str], pools: Sequence[Pool], spark: SparkSession | None = None
) -> Iterator[tuple[Store, SparkSession]]:
    """A real manager in this process, on a state that is thrown away: its store, as a client has it, and its Spark.
    `spark` is left running; without one, a session on two cores is built and stopped again."""
    session = spark or build_session(pools=pools, app_name="bfm bench", master="local[2]")
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
                kwargs={"state": settings.state, "ready": ready, "stop": stop, "spark": session},
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


def overhead(tasks: int, width: int, *, rounds: int = 3, spark: SparkSession | None = None) -> dict[str, Any]:
    """Jobs per second of both ways, and their ratio (managed / bare), each the median of `rounds`."""
    pools = [Pool(name=name, slots=width, weight=1, min_share=0) for name in (s.SCHEDULED_RUN, s.BACKFILL_RUN)]
    clock = SystemClock()
    with running_manager({"tiny.py": DAG_FILE.format(runs=width * 4)}, pools, spark) as (store, session):
        bare, managed, latency = [], [], []
        _bare(session, width * 4, width, clock)  # warm: the JVM compiles the job's path
        _managed(store, width * 4, width, clock)
        for _ in range(rounds):
            bare.append(_bare(session, tasks, width, clock))
            rate, first = _managed(store, tasks, width, clock)
            managed.append(rate)
            latency.append(first)
    return {
        "tasks": tasks,
        "width": width,
        "rounds": rounds,
        "bare_per_s": _figure(statistics.median(bare)),
        "managed_per_s": _figure(statistics.median(managed)),
        "ratio": _figure(statistics.median(m / b for m, b in zip(managed, bare, strict=True))),
        "ratios": [_figure(m / b) for m, b in zip(managed, bare, strict=True)],
        "request_to_first_start_s": round(statistics.median(latency), 3),
    }


def _figure(value: float) -> float:
    """Three digits, however slow the machine."""
    return float(f"{value:.3g}")


def _bare(spark: SparkSession, tasks: int, width: int, clock: SystemClock) -> float:
    def job(_: int) -> None:
        spark.newSession().range(1000).selectExpr("sum(id)").collect()

    began = clock.monotonic()
    with ThreadPoolExecutor(width) as pool:
        list(pool.map(job, range(tasks)))
    return tasks / (clock.monotonic() - began)


def _managed(store: Store, tasks: int, width: int, clock: SystemClock) -> tuple[float, float]:
    """Jobs per second from the first task's start to the last one's end; and seconds from the request to that start."""
    backfill_id = clock.new_id()
    wanted = CreateBackfill(
        dag_id="tiny", kind="partitions", partitions=tuple(f"{backfill_id}-{n}" for n in range(tasks)),
        max_active_runs=width * 4,
    )  # fmt: skip
    asked_at = clock.now()
    submit(
        store,
        clock,
        command_types.BACKFILL_CREATE,
        {"backfill_id": backfill_id, "ask": json.loads(wanted.to_payload())},
    )
    never = threading.Event()
    mine = [Condition("backfill_id", "=", backfill_id)]
    while not any(row.state in s.BACKFILL_FINISHED for row in store.read(Backfill, mine)):
        never.wait(1.0)  # looking costs the manager its share of the machine
    done = store.read(TaskInstance, [Condition("run_id", "starts_with", f"backfill__{backfill_id}")])
    starts = [ti.started_at for ti in done if ti.started_at is not None]
    ends = [ti.ended_at for ti in done if ti.ended_at is not None and ti.state == s.SUCCESS]
    if len(ends) != tasks:
        raise RuntimeError(f"{len(ends)} of {tasks} tasks succeeded")
    return tasks / (max(ends) - min(starts)).total_seconds(), (min(starts) - asked_at).total_seconds()
