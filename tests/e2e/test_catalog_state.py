"""The state in Spark's own catalog (`catalog.schema`, here one of Hive's with Derby): a leader is killed."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.manager_process import kill, rows_in, wait_for
from support.steady import FIRST, Steady

from backfill_manager.client import Client
from backfill_manager.clock import UTC
from backfill_manager.model import states as s


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("days", [12, 365])
def test_a_leader_is_killed_and_the_next_ends_the_work(
    root: Path, managers: Callable[..., subprocess.Popen[bytes]], days: int
) -> None:
    """Over REST: another process can't open the catalog while the manager has it."""
    of_spark = {
        "spark.sql.shuffle.partitions": "1", "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={root}/metastore;create=true",
    }  # fmt: skip
    story = Steady(root, state="spark_catalog.jobs", api={"port": 0}, spark={"master": "local[2]", "conf": of_spark})

    def client(number: int) -> Client:
        address = wait_for(lambda: re.search(r"The web pages are at (http://127\.0\.0\.1:\d+)", story.log(number)))
        return Client(address[1])

    first = managers("--with-ui")
    with client(0) as over_rest:
        wait_for(lambda: list(over_rest.dags()))
        last = FIRST.replace(day=days) if days < 31 else FIRST.replace(month=12, day=30)
        asked = over_rest.create_backfill("steady", start_date=f"{FIRST:%F}", end_date=f"{last:%F}", wait=60)
        backfill_id = str(asked.object_id)
        begun = next(seen for seen in over_rest.watch(backfill_id) if seen.success)
        assert begun.success < days, "in the middle"
    kill(first)
    managers("--with-ui")
    with client(1) as over_rest:
        *_, end = over_rest.watch(backfill_id)
        assert (end.state, end.success) == (s.SUCCESS, days)

    jobs = f"{root}/warehouse/jobs.db"
    ticks = rows_in(f"{jobs}/manager", "t", "SELECT term, ticks, tick_ms, commits, commit_ms FROM t ORDER BY term")
    print("term, ticks, median in ms, commits, median in ms:", ticks)
    runs = rows_in(f"{jobs}/dag_run", "t", "SELECT run_id, interval_start FROM t")
    assert len(runs) == days
    story.check_tables({run_id: start.replace(tzinfo=UTC) for run_id, start in runs})
    assert rows_in(f"{jobs}/task_try", "t", "SELECT count(*) FROM t WHERE state = 'lost'") != [(0,)], (
        "something was running"
    )
