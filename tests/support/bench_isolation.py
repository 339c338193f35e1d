"""Measures how much a backfill that saturates its own pool slows scheduled runs.

One DAG runs every few seconds in the pool `scheduled`: first alone, then beside a backfill that takes every slot of
`backfill`: runs of one item each, or batches that size themselves, whose Spark jobs grow with their items. Measured are the
time from a run's due time to its task's end, and the task alone (from its launch), in one run on one machine; compare the
ratios of p95.
"""

from __future__ import annotations

import statistics
import threading
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from backfill_manager.clock import SystemClock, parse_instant
from backfill_manager.model import states as s
from backfill_manager.model.records import DagRun, Pool, TaskInstance
from backfill_manager.requests.submit import submit
from backfill_manager.schemas import request_kinds
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.store.base import Condition, Store
from support.bench_overhead import running_manager

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERVAL_S = 4
WARM_UP_RUNS = 4  # not counted, in each phase
DAG_FILE = f"""
from datetime import timedelta
from backfill_manager import dag, task

@dag(schedule=timedelta(seconds={INTERVAL_S}), max_active_runs=4)
def steady():
    @task
    def job(ctx):
        ctx.spark.range(0, 150_000_000, 1, 16).selectExpr("sum(id * id % 7)").collect()
    job()

@dag(schedule=None, max_active_runs=64, max_active_tasks=64)
def load():
    @task
    def job(ctx):
        ctx.spark.range(0, 400_000_000, 1, 64).selectExpr("sum(id * id % 7)").collect()
    job()

@dag(schedule="@daily", max_active_runs=64, max_active_tasks=64, batchable=True)
def batches():
    @task
    def job(ctx):
        days = (ctx.interval[1] - ctx.interval[0]).days
        ctx.spark.range(0, 400_000_000 * days, 1, 64 * min(days, 16)).selectExpr("sum(id * id % 7)").collect()
    job()
"""


def measure_isolation(
    runs: int, width: int, *, spark: SparkSession | None = None, auto_batches: bool = False
) -> dict[str, Any]:
    """Returns latencies in seconds, alone and beside the backfill, of `runs` scheduled runs each, and the ratios of p95."""
    dag_id = "batches" if auto_batches else "load"
    pools = [
        Pool(name=s.SCHEDULED_RUN, slots=16, weight=4, min_share=2),
        Pool(name=s.BACKFILL_RUN, slots=width, weight=1, min_share=0),
    ]
    clock = SystemClock()
    with running_manager({"isolation.py": DAG_FILE}, pools, spark) as (store, _):
        alone = _measure(store, clock, runs)
        backfill_id = clock.new_id()
        if auto_batches:  # more than can end; a run should take about 20 s
            begins, ends = parse_instant("1990-01-01T00:00:00Z"), parse_instant("2019-12-31T00:00:00Z")
            command = CreateBackfill(
                dag_id=dag_id, start_date=begins, end_date=ends, batch="auto", batch_target=20.0, max_active_runs=width * 4
            )  # fmt: skip
        else:
            partitions = tuple(str(n) for n in range(100_000))
            command = CreateBackfill(
                dag_id=dag_id, kind="partitions", partitions=partitions, max_active_runs=width * 4
            )  # fmt: skip
        submit(
            store,
            clock,
            request_kinds.BACKFILL_CREATE,
            {"backfill_id": backfill_id, "ask": command.to_payload()},
        )
        _wait(lambda: len(_tasks(store, dag_id, (s.SUCCESS,))) >= width)
        beside = _measure(store, clock, runs)
        loaded = len(_tasks(store, dag_id, (s.SUCCESS,)))
        sizes = [run.items for run in store.read(DagRun, [Condition("dag_id", "=", dag_id)])]
        submit(store, clock, request_kinds.BACKFILL_CANCEL, {"backfill_id": backfill_id, "let_running_finish": False})
    return {
        "runs": runs,
        "width": width,
        **{f"alone_{name}": value for name, value in _summary(alone).items()},
        **{f"beside_{name}": value for name, value in _summary(beside).items()},
        "ratio_due_to_end_p95": round(_p95(beside, 0) / _p95(alone, 0), 3),
        "ratio_task_p95": round(_p95(beside, 1) / _p95(alone, 1), 3),
        "intervals_left_out_alone": runs - len(alone),
        "intervals_left_out_beside": runs - len(beside),
        "backfill_tasks_meanwhile": loaded,
        "largest_batch": max(sizes),
    }


def _measure(store: Store, clock: SystemClock, runs: int) -> list[tuple[float, float]]:
    """Returns (due time to end, launch to end) in seconds for runs that come due from now on: `runs` of them, and fewer where the
    manager comes so late that the schedule, which does not catch up, leaves intervals out."""
    begin = clock.now() + timedelta(seconds=INTERVAL_S * WARM_UP_RUNS)
    until = begin + timedelta(seconds=INTERVAL_S * runs)
    _wait(lambda: clock.now() > until + timedelta(seconds=INTERVAL_S) and not _active(store, begin, until))
    found = _latencies(store, begin, until)
    if len(found) < 2:
        raise RuntimeError(f"{len(found)} of {runs} scheduled runs succeeded")
    return found


def _active(store: Store, begin: datetime, until: datetime) -> list[DagRun]:
    in_window = [Condition("interval_end", ">=", begin), Condition("interval_end", "<", until)]
    runs = store.read(DagRun, [Condition("dag_id", "=", "steady"), *in_window])
    return [run for run in runs if run.state not in s.RUN_FINISHED]


def _latencies(store: Store, begin: datetime, until: datetime) -> list[tuple[float, float]]:
    in_window = [Condition("interval_end", ">=", begin), Condition("interval_end", "<", until)]
    due_at = {
        run.run_id: run.interval_end
        for run in store.read(
            DagRun, [Condition("dag_id", "=", "steady"), Condition("run_type", "=", s.SCHEDULED_RUN), *in_window]
        )
    }
    return [
        ((ti.ended_at - due).total_seconds(), (ti.ended_at - ti.queued_at).total_seconds())
        for ti in _tasks(store, "steady", (s.SUCCESS,))
        if (due := due_at.get(ti.run_id)) is not None and ti.ended_at is not None and ti.queued_at is not None
    ]


def _tasks(store: Store, dag_id: str, states: tuple[str, ...]) -> list[TaskInstance]:
    return store.read(TaskInstance, [Condition("dag_id", "=", dag_id), Condition("state", "in", states)])


def _wait(until: Any) -> None:
    sleeper = threading.Event()
    while not until():
        sleeper.wait(1.0)  # polling takes CPU from the manager


def _p95(latencies: list[tuple[float, float]], which: int) -> float:
    return statistics.quantiles([one[which] for one in latencies], n=20, method="inclusive")[-1]


def _summary(latencies: list[tuple[float, float]]) -> dict[str, float]:
    return {
        "due_to_end_median_s": round(statistics.median(one[0] for one in latencies), 3),
        "due_to_end_p95_s": round(_p95(latencies, 0), 3),
        "task_median_s": round(statistics.median(one[1] for one in latencies), 3),
        "task_p95_s": round(_p95(latencies, 1), 3),
    }
