"""Measures a backfill of many small intervals of one table: each a run of its own with one `ctx.write`, against a bare Spark loop
that does the same `replaceWhere` commits one after another. Rounds alternate; compare the ratios."""

from __future__ import annotations

import statistics
import tempfile
import threading
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backfill_manager.clock import UTC, SystemClock
from backfill_manager.model import states as s
from backfill_manager.model.records import Backfill, DagRun, Pool
from backfill_manager.requests.submit import submit
from backfill_manager.schemas import request_kinds
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.store.base import Store, matching
from support.bench_overhead import running_manager

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FIRST = datetime(2024, 1, 1, tzinfo=UTC)
ROWS = 1000
DAG_FILE = """
from backfill_manager import dag, task

@dag(schedule="@daily", start_date="2024-01-01", max_active_runs=64, max_active_tasks=64, params={"table": ""})
def daily():
    @task
    def write(ctx):
        start, end = (int(at.timestamp()) for at in ctx.interval)
        rows = ctx.spark.range(ROWS).selectExpr(f"timestamp_seconds({start} + id % ({end} - {start})) AS at", "id AS value")
        ctx.write(rows, ctx.params["table"], time_column="at")
    write()
""".replace("ROWS", str(ROWS))


def measure_writes(days: int, width: int, *, rounds: int = 3, spark: SparkSession | None = None) -> dict[str, Any]:
    """Returns intervals per second of both ways and their ratio (managed / bare), and commits and Spark jobs per interval."""
    pools = [Pool(name=name, slots=width, weight=1, min_share=0) for name in (s.SCHEDULED_RUN, s.BACKFILL_RUN)]
    clock = SystemClock()
    found: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="bfm-tables-") as folder, running_manager({"daily.py": DAG_FILE}, pools, spark) as (
        store, session,
    ):  # fmt: skip
        for number in range(-1, rounds):  # the first is a warm-up
            n = days if number >= 0 else width
            tables = [str(Path(folder) / f"{name} {number}") for name in ("bare", "managed")]
            began = clock.monotonic()
            _bare(session, tables[0], n)
            bare = n / (clock.monotonic() - began)
            jobs = _last_job(session)
            managed = _managed(store, tables[1], n, clock)
            jobs = _last_job(session) - jobs
            counts = [session.read.format("delta").load(table).groupBy("at", "value").count() for table in tables]
            if counts[0].exceptAll(counts[1]).count() or counts[1].exceptAll(counts[0]).count():
                raise RuntimeError("the tables differ")
            commits = session.sql(f"DESCRIBE HISTORY delta.`{tables[1]}`").where("operation = 'WRITE'").count()
            if number >= 0:
                found.append({"bare": bare, "managed": managed, "commits": commits / n, "jobs": jobs / n})
    return {
        "days": days, "width": width, "rounds": rounds, "bare_per_s": _median(found, "bare"),
        "managed_per_s": _median(found, "managed"), "ratios": [round(one["managed"] / one["bare"], 2) for one in found],
        "commits_per_interval": _median(found, "commits"), "spark_jobs_per_interval": _median(found, "jobs"),
    }  # fmt: skip


def _median(found: list[dict[str, float]], name: str) -> float:
    return float(f"{statistics.median(one[name] for one in found):.3g}")


def _last_job(spark: SparkSession) -> int:
    """The number of the next Spark job of this application."""
    return int(spark.sparkContext._jsc.sc().dagScheduler().nextJobId())


def _rows(spark: SparkSession, day: datetime) -> DataFrame:
    start, end = (int(at.timestamp()) for at in (day, day + timedelta(days=1)))
    return spark.range(ROWS).selectExpr(f"timestamp_seconds({start} + id % ({end} - {start})) AS at", "id AS value")


def _bare(spark: SparkSession, table: str, days: int) -> None:
    _rows(spark, FIRST).limit(0).write.format("delta").save(table)
    for n in range(days):
        day = FIRST + timedelta(days=n)
        where = f"at >= TIMESTAMP '{day:%Y-%m-%d} 00:00:00Z' AND at < TIMESTAMP '{day + timedelta(days=1):%Y-%m-%d} 00:00:00Z'"
        _rows(spark, day).write.format("delta").mode("overwrite").option("replaceWhere", where).save(table)


def _managed(store: Store, table: str, days: int, clock: SystemClock) -> float:
    """Intervals per second, from the first start to the last end."""
    backfill_id = clock.new_id()
    command = CreateBackfill(
        dag_id="daily", start_date=FIRST, end_date=FIRST + timedelta(days=days - 1), reprocess="completed", batch=1,
        max_active_runs=64, conf={"table": table},
    )  # fmt: skip
    submit(store, clock, request_kinds.BACKFILL_CREATE, {"backfill_id": backfill_id, "ask": command.to_payload()})
    sleeper = threading.Event()
    while not any(row.state in s.BACKFILL_FINISHED for row in store.read(Backfill, matching(backfill_id=backfill_id))):
        sleeper.wait(0.5)  # polling takes CPU from the manager
    done = store.read(DagRun, matching(backfill_id=backfill_id))
    starts = [run.started_at for run in done if run.started_at is not None]
    ends = [run.ended_at for run in done if run.ended_at is not None and run.state == s.SUCCESS]
    if len(ends) != days:
        raise RuntimeError(f"{len(ends)} of {days} runs succeeded")
    return days / (max(ends) - min(starts)).total_seconds()
