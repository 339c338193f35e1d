"""Measures what a user waits for: from the request of a backfill of one day to the start of its task.

Right after the manager's start, some seconds after it, then again and again while nothing else runs, and beside a backfill whose
Spark jobs take both cores and all slots of their pool. The DAG that is asked for has a pool of its own.
"""

from __future__ import annotations

import statistics
import threading
from functools import partial
from pathlib import Path
from typing import Any

from backfill_manager.clock import parse_instant
from backfill_manager.model import states as s
from backfill_manager.model.records import Backfill, DagRun
from backfill_manager.store.base import matching
from support.manager_process import wait_for
from support.measured_manager import MeasuredManager, measured_manager

SLOTS = 16
DAY = parse_instant("2024-03-01T00:00:00Z")
DAG_FILE = """
from backfill_manager import dag, task

@dag(schedule="@daily", start_date="2024-01-01", end_date="2024-12-31", max_active_runs=64)
def quick():
    @task(pool="quick")
    def job(ctx):
        pass
    job()

@dag(schedule=None, max_active_runs=64, max_active_tasks=64)
def load():
    @task
    def job(ctx):
        ctx.spark.range(0, 400_000_000, 1, 64).selectExpr("sum(id * id % 7)").collect()
    job()
"""
POOLS = [
    {"name": name, "slots": SLOTS, "weight": weight, "min_share": share}
    for name, weight, share in (("scheduled", 4, 2), ("backfill", 1, 0), ("quick", 1, 0))
]


def measure_first_task(root: Path, requests: int, *, starts: int = 2, rest_s: float = 20.0) -> dict[str, Any]:
    """Seconds. `at_once`: requested when the DAG is first there; `after_rest`: `rest_s` later, of other starts. Of the last start
    also `idle` and `beside`, `requests` each one after another, with the parts of the median one."""
    at_once, after_rest = [], []
    for n in range(starts):
        with measured_manager(root / f"at once {n}", {"quick.py": DAG_FILE}, pools=POOLS) as manager:
            at_once.append(_one(manager)["in_all"])
    for n in range(starts):
        with measured_manager(root / f"rested {n}", {"quick.py": DAG_FILE}, pools=POOLS) as manager:
            threading.Event().wait(rest_s)  # what the manager does by itself meanwhile is what is measured
            after_rest.append(_one(manager)["in_all"])
            if n == starts - 1:
                idle = [_one(manager) for _ in range(requests)]
                load = manager.backfill(
                    dag_id="load", kind="partitions", partitions=tuple(map(str, range(10_000))), max_active_runs=64
                )
                wait_for(partial(_has_ended, manager, load, SLOTS))
                beside = [_one(manager) for _ in range(requests)]
                manager.process.kill()  # nothing to drain
    return {"at_once": at_once, "after_rest": after_rest, "idle": _summary(idle), "beside": _summary(beside)}


def _one(manager: MeasuredManager) -> dict[str, float]:
    """From the request on."""
    requested_at = manager.clock.now()
    backfill_id = manager.backfill(dag_id="quick", start_date=DAY, end_date=DAY, reprocess="completed")
    manager.ended(backfill_id)
    (task,), (row,) = manager.tasks(backfill_id), manager.store.read(Backfill, matching(backfill_id=backfill_id))
    (run,) = manager.store.read(DagRun, matching(backfill_id=backfill_id))
    assert task.queued_at is not None and task.started_at is not None
    parts = {"backfill": row.created_at, "run": run.created_at, "queued": task.queued_at, "in_all": task.started_at}
    return {name: round((at - requested_at).total_seconds(), 3) for name, at in parts.items()}


def _has_ended(manager: MeasuredManager, backfill_id: str, tasks: int) -> bool:
    return len(manager.tasks(backfill_id, s.SUCCESS)) >= tasks


def _summary(measured: list[dict[str, float]]) -> dict[str, Any]:
    in_all = sorted(one["in_all"] for one in measured)
    median = min(measured, key=lambda one: abs(one["in_all"] - statistics.median(in_all)))
    return {"median": statistics.median(in_all), "least": in_all[0], "most": in_all[-1], "until": median}
