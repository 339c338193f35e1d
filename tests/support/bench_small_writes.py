"""Measures one small `ctx.write` after another: 1,000 rows of a day, each by a try of its own, into a table of other days.

    python -m support.bench_small_writes TABLE_DAYS WRITES

A process with a Spark of its own, so that two revisions can take turns: for each line on its standard input it makes WRITES
writes into a new table, and prints one line of JSON.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
import tempfile
import threading
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from backfill_manager.clock import SystemClock, parse_instant
from backfill_manager.execution.messages import Event, Succeeded, TaskEnded
from backfill_manager.execution.spark.session import build_session
from backfill_manager.model.records import Pool
from support.bench_tries import cpu_by_process
from support.executor_fixture import a_launch, an_executor, fork_servers
from support.task_snapshot import of_snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST: Final = parse_instant("2020-01-01T00:00:00Z")
FUNCTION: Final = """
import time
from backfill_manager import dag, task

@dag("work_dag", schedule="@daily")
def work_dag():
    @task
    def work(ctx):
        from backfill_manager.execution.task_processes import task_spark
        start, end = (int(at.timestamp()) for at in ctx.interval)
        rows = ctx.spark.range(1000).selectExpr(f"timestamp_seconds({start} + id % ({end} - {start})) AS at", "id AS value")
        calls, send = [], task_spark._Connection.send_command
        task_spark._Connection.send_command = lambda self, command: calls.append(1) or send(self, command)
        began = time.perf_counter()
        ctx.write(rows, ctx.params["table"], time_column="at")
        return {"seconds": time.perf_counter() - began, "py4j_calls": len(calls)}
    work()
"""


class SmallWrites:
    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._folder, self._clock = spark, folder, SystemClock()
        self._ended: TaskEnded | None = None
        self._has_ended = threading.Event()
        (folder / "snapshot").mkdir()
        (folder / "snapshot" / "work_dag.py").write_text(FUNCTION)

    def measure(self, days: int, writes: int) -> dict[str, Any]:
        """Of one write: seconds of the call, and of the try; CPU in milliseconds by process; Spark jobs by their description."""
        table = str(Path(tempfile.mkdtemp(dir=self._folder)) / "table")
        jobs = self._spark.sparkContext._jsc.sc()
        with an_executor(self._spark, self._on_event) as executor:
            executor.prepare()
            server = fork_servers().get(None).pid
            self._fill(table, days)
            self._write(executor, table, days)
            first, cpu, found = int(jobs.dagScheduler().nextJobId()), cpu_by_process(self._spark, server), []
            for n in range(writes):
                began = self._clock.monotonic()
                found.append({**self._write(executor, table, days + 1 + n), "try": self._clock.monotonic() - began})
            after, last = cpu_by_process(self._spark, server), int(jobs.dagScheduler().nextJobId())
        rows = self._spark.read.format("delta").load(table).count()
        if rows != (days + 1 + writes) * 1000:
            raise RuntimeError(f"{rows} rows")
        return {
            "table_days": days, "writes": writes,
            "write_s": round(statistics.median(one["seconds"] for one in found), 3),
            "try_s": round(statistics.median(one["try"] for one in found), 3),
            "py4j_calls": statistics.median(one["py4j_calls"] for one in found),
            "cpu_ms": {name: round((after[name] - cpu[name]) / writes * 1000) for name in cpu},
            "jobs": (last - first) / writes, "jobs_by_kind": self._jobs(first, last, writes),
        }  # fmt: skip

    def _fill(self, table: str, days: int) -> None:
        """One file for each day."""
        start = int(FIRST.timestamp())
        rows = self._spark.range(days * 1000, numPartitions=1).selectExpr(
            f"timestamp_seconds({start} + 86400 * (id div 1000) + id % 1000) AS at", "id % 1000 AS value"
        )
        rows.limit(0).write.format("delta").option("delta.setTransactionRetentionDuration", "interval 30 days").option(
            "delta.checkpointInterval", "50"
        ).save(table)
        rows.repartitionByRange(max(days, 1), "at").write.format("delta").mode("append").save(table)

    def _write(self, executor: Any, table: str, day: int) -> dict[str, float]:
        at = FIRST + timedelta(days=day)
        launch = a_launch("work", interval=(at, at + timedelta(days=1)), params={"table": table})
        self._has_ended.clear()
        executor.launch(of_snapshot(launch, self._folder / "snapshot", "work_dag.py"))
        self._has_ended.wait()
        assert self._ended is not None
        outcome = self._ended.outcome
        if not isinstance(outcome, Succeeded) or outcome.result_json is None:
            raise RuntimeError(f"a write failed: {outcome}")
        found: dict[str, float] = json.loads(outcome.result_json)
        return found

    def _on_event(self, event: Event) -> None:
        if isinstance(event, TaskEnded):
            self._ended = event
            self._has_ended.set()

    def _jobs(self, first: int, last: int, writes: int) -> dict[str, str]:
        """Number, and milliseconds, for each write."""
        context = self._spark.sparkContext._jsc.sc()
        context.listenerBus().waitUntilEmpty(60_000)
        number: Counter[str] = Counter()
        took: Counter[str] = Counter()
        for job in range(first, last):
            data = context.statusStore().job(job)
            text = data.description().get() if data.description().isDefined() else data.name()
            what = re.sub(r"[0-9a-f]{8}-[-0-9a-f]+|\d+|/\S+", "...", text.splitlines()[-1])[:80]
            number[what] += 1
            if data.completionTime().isDefined():
                took[what] += data.completionTime().get().getTime() - data.submissionTime().get().getTime()
        return {what: f"{n / writes:.1f} jobs, {took[what] / writes:.0f} ms" for what, n in number.most_common()}


def main(days: str, writes: str) -> None:
    pools = [Pool(name=name, slots=16, weight=1, min_share=0) for name in ("scheduled", "backfill")]
    spark = build_session(
        pools=pools, app_name="small writes", master="local[2]", conf={"spark.ui.retainedJobs": "10000"}
    )
    with tempfile.TemporaryDirectory(prefix="bfm-bench-") as folder:
        small = SmallWrites(spark, Path(folder))
        for _ in sys.stdin:
            print(json.dumps(small.measure(int(days), int(writes))), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
