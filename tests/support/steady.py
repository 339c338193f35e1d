"""A backfill of days for stories in which managers are killed, stopped and replaced. Each day writes a row into two tables, one
by replacing its interval and one by appending; whatever happens, each day is in each of them once."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from backfill_manager.clock import UTC
from backfill_manager.model import states as s
from backfill_manager.model.records import DagRun, TaskInstance
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.store import open_store
from backfill_manager.store.base import Condition, Store
from support.manager_process import ended, request, rows_of, wait_for

FIRST = datetime(2024, 1, 1, tzinfo=UTC)
DAG_FILE = """
from backfill_manager import dag, task


@dag(schedule="@daily", start_date="2024-01-01", end_date="2024-12-31", max_active_runs=4)
def steady():
    @task
    def replace(ctx):
        from pyspark.sql import functions as f
        one = ctx.spark.range(1).select(f.lit(ctx.interval.start).alias("at"), f.lit(ctx.run_id).alias("run"))
        ctx.write(one, "replaced", time_column="at")

    @task
    def append(ctx):
        ctx.write(ctx.spark.table("replaced").where(f"run = '{ctx.run_id}'"), "appended", mode="append")

    replace() >> append()
"""


class Steady:
    """Its configuration is `root`/manager.yaml; state and warehouse are there, too, unless `place` names a folder of a bucket.
    `rows`: where the test itself finds the warehouse's tables, where the manager's name is of no use to it."""

    def __init__(self, root: Path, *, place: str | None = None, rows: str | None = None, **conf: Any) -> None:
        self.root = root
        (root / "bundle").mkdir()
        (root / "bundle" / "steady.py").write_text(DAG_FILE)
        self._warehouse = f"{place or root}/warehouse"
        where: dict[str, Any] = {
            "state": f"{place or root}/state",
            "warehouse": self._warehouse.replace("s3:", "s3a:"),
            "snapshots": str(root / "snapshots"),
            "bundles": [{"name": "tests", "path": str(root / "bundle")}],
            "lease": {"seconds": 20},
            "spark": {"master": "local[2]", "conf": {"spark.sql.shuffle.partitions": "1"}},
        }
        self._conf = {**where, **conf}
        self._rows = rows or self._warehouse
        (root / "manager.yaml").write_text(json.dumps(self._conf))

    @cached_property
    def store(self) -> Store:
        return open_store(str(self._conf["state"]))

    def begin(self, days: int, **settings: Any) -> None:
        self.days = days
        wait_for(self.store.exists)
        wait_for(lambda: self.store.count("dag", [])[()])
        request(
            self.store,
            CreateBackfill(dag_id="steady", start_date=FIRST, end_date=FIRST + timedelta(days=days - 1), **settings),
            "all",
        )

    def done(self) -> int:
        return self.store.count("dag_run", [], [Condition("state", "=", s.SUCCESS)])[()]

    def when_done(self, days: int) -> None:
        wait_for(lambda: self.done() >= days or self.failed())
        assert not self.failed()
        assert self.done() < self.days, "in the middle"

    def has_ended(self) -> bool:
        return bool(self.store.count("backfill", [], [Condition("state", "in", sorted(s.BACKFILL_FINISHED))])[()])

    def failed(self) -> list[str | None]:
        return [ti.error for ti in self.store.read(TaskInstance, [Condition("state", "=", s.FAILED)])]

    def when_led_by(self, pid: int) -> None:
        wait_for(lambda: (lease := self.store.lease()) and lease.pid == pid)

    def log(self, number: int) -> str:
        return (self.root / f"manager{number}.log").read_text()

    def end(self) -> None:
        """Nothing is lost, nothing was done twice."""
        row = ended(self.store, "all")
        tasks = self.store.read(TaskInstance)
        assert row.state == s.SUCCESS, [ti.error for ti in tasks if ti.error]
        assert self.store.count("backfill_item", ["state"]) == {(s.SUCCESS,): self.days}
        assert {ti.state for ti in tasks} == {s.SUCCESS}
        runs = {run.run_id: run.interval_start for run in self.store.read(DagRun)}
        assert len(runs) == self.days
        self.check_tables(runs)

    def check_tables(self, runs: dict[str, Any]) -> None:
        """`runs`: the beginning of the interval of each."""
        for table in ("replaced", "appended"):
            written = rows_of(f"{self._rows}/{table}")
            assert Counter(at for at, _ in written) == Counter(runs.values()), table
            assert dict((run, at) for at, run in written) == runs
