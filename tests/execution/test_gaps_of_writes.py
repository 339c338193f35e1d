"""Gaps by data of what tasks have really read and written: the whole way from a task's writes to a plan."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.executor_fixture import THIS_STATE, TaskRunner, a_launch, day

from backfill_manager.dags.definition import DagSpec, TaskSpec
from backfill_manager.execution.inputs.interval_rows import rows_counter
from backfill_manager.execution.messages import Succeeded, TaskEnded, TaskLaunch
from backfill_manager.manager.decisions.apply_outcomes import access_row
from backfill_manager.model.records import Manager
from backfill_manager.model.transitions import Changes
from backfill_manager.planning.backfills.make_plan import make_plan
from backfill_manager.queries.data_gaps import find_gaps, wanted_by_data
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.store.base import Leader
from backfill_manager.store.data_tables import file_values
from backfill_manager.store.memory import MemoryStore

DAG = DagSpec("work_dag", (TaskSpec("work"),), schedule="@daily", start_date=day(1))
LATER = datetime(2013, 2, 1, tzinfo=timezone.utc)


def ended(runner: TaskRunner, leader: Leader, launch: TaskLaunch, work: Any) -> None:
    """Runs it, and records what a manager would."""
    assert isinstance(runner.run(launch, work), Succeeded)
    (end,) = (e for e in runner.recorder.events if isinstance(e, TaskEnded) and e.key == launch.key)
    changes = Changes()
    changes.put(launch.run.evolve(state="success"))
    for number, table in enumerate(end.tables, start=1):
        changes.put(access_row(launch.run, launch.key, number, table, end.at))
    leader.commit(changes)


def test_from_the_writes_of_tasks_to_the_plan_that_mends_them(
    runner: TaskRunner, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bronze, silver = str(tmp_path / "bronze"), str(tmp_path / "silver")
    rows = spark.range(8).selectExpr("id", "TIMESTAMP'2013-01-01 06:00:00Z' + make_dt_interval(0, int(id) * 12) AS at")
    rows.coalesce(1).write.format("delta").save(bronze)

    def work(ctx: Any) -> None:
        read = ctx.spark.read.format("delta").load(bronze)
        ctx.write(read.where(ctx.in_interval("at")).coalesce(1), silver, time_column="at")

    store = MemoryStore()
    store.init()
    leader = store.lead(Manager(1, "m", "h", 1, "leading", day(1), day(1), 30, "1", state_id=THIS_STATE.state_id))
    for n in (1, 2, 3):
        ended(runner, leader, a_launch(interval=(day(n), day(n + 1))), work)

    def found(count: Any = None) -> list[tuple[int, str, int | None]]:
        report = find_gaps(store, DAG, day(1), day(4), count)
        return [(int(one["interval_start"][8:10]), one["finding"], one["rows"]) for one in report.to_json_document()]

    assert found() == []
    spark.sql(f"DELETE FROM delta.`{silver}` WHERE at < '2013-01-02T00:00:00Z'")
    spark.sql(f"INSERT INTO delta.`{bronze}` VALUES (9, TIMESTAMP'2013-01-03 01:00:00Z')")
    spark.sql(f"INSERT INTO delta.`{silver}` VALUES (9, TIMESTAMP'2013-01-04 01:00:00Z')")
    assert found() == [(1, "empty", 0), (1, "rewritten", 0), (3, "outdated", 2), (4, "no_run", 1)]
    spark.sql(f"OPTIMIZE delta.`{silver}`")
    in_one_file = [(1, "empty", 0), (1, "rewritten", 0), (3, "outdated", 2), (4, "no_run", 1)]
    assert found() == in_one_file
    monkeypatch.setattr(file_values, "MAX_ROWS", 4)
    assert [one for one in found() if one[1] == "unknown"] == [(n, "unknown", None) for n in (2, 3, 4)]
    assert found(rows_counter(spark)) == in_one_file

    def planned(**kind: Any) -> list[datetime]:
        command = CreateBackfill(dag_id="work_dag", start_date=day(1), end_date=day(4), **kind)
        find_wanted = wanted_by_data(store, rows_counter(spark))
        plan = make_plan(spark, store, command, DAG, 1, {}, LATER, find_wanted)
        found: list[datetime] = plan.items["logical_date"].to_pylist()
        return found

    assert planned(kind="missing", by="data") == [day(1)]
    assert planned(kind="outdated") == [day(3)]
    ended(runner, leader, a_launch(run_id="again", interval=(day(3), day(4))), work)
    assert planned(kind="outdated") == []
