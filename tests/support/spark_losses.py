"""DAGs whose tasks end their process or the JVM, and those that run beside them; a manager's folder with them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

from backfill_manager.clock import UTC
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.store import open_store
from backfill_manager.store.base import Store
from support.manager_process import request, wait_for
from support.process_tree import processes_below

FIRST, DAYS = datetime(2024, 1, 1, tzinfo=UTC), 6
DAG_FILE = """
import os
from backfill_manager import dag, task

daily = {"schedule": "@daily", "start_date": "2024-01-01", "end_date": "2024-12-31", "max_active_runs": 3}


def append(ctx):
    from pyspark.sql import functions as f
    one = ctx.spark.range(1).select(f.lit(ctx.interval.start).alias("at"), f.lit(ctx.run_id).alias("run"))
    ctx.write(one, f"ROOT/{ctx.dag_id}", mode="append")


def with_others_beside(ctx):
    # returns when three of `held` run beside it; from its third start on at once
    import glob, time
    starts = len(glob.glob("ROOT/start.*")) + 1
    while starts < 3 and os.path.exists("ROOT/beside") and len(glob.glob("ROOT/*.has_written")) < 3:
        time.sleep(0.05)
    for file in glob.glob("ROOT/*.has_written"):
        os.remove(file)
    open(f"ROOT/start.{starts}", "w").close()


@dag(**daily)
def steady():
    @task
    def work(ctx):
        append(ctx)

    work()


@dag(**daily)
def held():
    @task
    def work(ctx):
        import time
        append(ctx)
        open(f"ROOT/{ctx.run_id}.has_written", "w").close()
        while not os.path.exists("ROOT/go on"):
            time.sleep(0.05)

    work()


@dag(**daily)
def ends_the_process():
    @task(retries=1, retry_delay=0)
    def work(ctx):
        os._exit(7)

    work()


@dag(**daily)
def halts_the_jvm():
    @task(retries=5, retry_delay=0)
    def work(ctx):
        with_others_beside(ctx)
        ctx.spark.sparkContext._jvm.java.lang.Runtime.getRuntime().halt(3)

    work()


@dag(**daily)
def collects_more_than_fits():
    @task(retries=5, retry_delay=0)
    def work(ctx):
        with_others_beside(ctx)
        ctx.spark.range(2000, numPartitions=8).selectExpr("repeat(uuid(), 30000)").collect()  # 2 GB

    work()


@dag(**daily)
def stops_spark():
    @task(retries=5, retry_delay=0)
    def work(ctx):
        ctx.spark.stop()

    work()
"""


def folder_of_manager(tmp_path: Path) -> Path:
    """With `manager.yaml` and a bundle of these DAGs."""
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "all.py").write_text(DAG_FILE.replace("ROOT", str(tmp_path)))
    conf = {
        "state": str(tmp_path / "state"),
        "warehouse": str(tmp_path / "warehouse"),
        "bundles": [{"name": "tests", "path": str(tmp_path / "bundle")}],
        "lease": {"seconds": 600},  # nobody can wait for it to run out
        "spark": {"master": "local[2]", "conf": {"spark.sql.shuffle.partitions": "1"}},
    }
    (tmp_path / "manager.yaml").write_text(json.dumps(conf))
    return tmp_path


Start = Callable[..., "subprocess.Popen[bytes]"]


def ready(root: Path, dags: int = 6) -> Store:
    """The state, when a manager has read the DAGs."""
    store = open_store(str(root / "state"))
    wait_for(store.exists)
    wait_for(lambda: store.count("dag", [])[()] == dags)
    return store


def ask_for(store: Store, dag_id: str, days: int) -> str:
    """A backfill of the first days, whose id is the DAG's; the request's id."""
    return request(
        store, CreateBackfill(dag_id=dag_id, start_date=FIRST, end_date=FIRST + timedelta(days=days - 1)), dag_id
    )


def backfill(store: Store, dag_id: str, days: int) -> str:
    ask_for(store, dag_id, days)
    return dag_id


def jvm_of(manager: subprocess.Popen[bytes]) -> int:
    """The child that is a Java."""
    return next(pid for pid in processes_below(manager.pid) if Path(f"/proc/{pid}/comm").read_text().strip() == "java")


def last_line(log: Path) -> str:
    return log.read_text().rstrip().rpartition("\n")[2]


def lease(store: Store) -> tuple[int, str]:
    row = store.lease()
    assert row is not None
    return row.term, row.state
