"""A real `kill -9` of a real manager in the middle of promoting several tables: each has its old rows or the new ones, and the
next manager goes on, without doing twice what is done."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable
from support.manager_process import ended, kill, request, rows_in, wait_for

from backfill_manager.clock import UTC, SystemClock
from backfill_manager.execution.promote_revert.promote import PROMOTES
from backfill_manager.model import states as s
from backfill_manager.model.records import Backfill, DagRun, Response
from backfill_manager.requests import submit
from backfill_manager.schemas import request_kinds
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.store import open_store
from backfill_manager.store.base import Store, matching

TABLES = ("a", "b", "c", "d")
DAG_FILE = """
from backfill_manager import dag, task


@dag(schedule="@daily", start_date="2024-01-01", end_date="2024-12-31")
def steady():
    @task
    def replace(ctx):
        from pyspark.sql import functions as f
        one = ctx.spark.range(2).select(f.lit(ctx.interval.start).alias("at"), f.lit(ctx.run_id).alias("run"))
        for table in TABLES:
            ctx.write(one, f"ROOT/{table}", time_column="at")

    replace()
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "bundle").mkdir()
    file = DAG_FILE.replace("ROOT", str(tmp_path)).replace("TABLES", repr(TABLES))
    (tmp_path / "bundle" / "steady.py").write_text(file)
    conf = {
        "state": str(tmp_path / "state"), "warehouse": str(tmp_path / "warehouse"),
        "bundles": [{"name": "tests", "path": str(tmp_path / "bundle")}], "lease": {"seconds": 30},
        "spark": {"master": "local[2]", "conf": {"spark.sql.shuffle.partitions": "1"}},
    }  # fmt: skip
    (tmp_path / "manager.yaml").write_text(json.dumps(conf))
    return tmp_path


def test_killed_between_two_tables_each_is_old_or_new_and_at_the_end_new_once(
    root: Path, managers: Callable[..., subprocess.Popen[bytes]]
) -> None:
    first = managers()
    store = open_store(str(root / "state"))
    wait_for(store.exists)
    wait_for(lambda: store.count("dag", [])[()])
    day = datetime(2024, 1, 1, tzinfo=UTC)
    for name, how in (("real", {}), ("preview", {"preview": True})):
        request(store, CreateBackfill(dag_id="steady", start_date=day, end_date=day, **how), name)
        assert ended(store, name).state == s.SUCCESS
    payload = {"backfill_id": "preview", "partial": False, "rebase": False}
    submit.submit(store, SystemClock(), request_kinds.BACKFILL_PROMOTE, payload)
    wait_for(lambda: promotions(root) != [0, 0, 0, 0])
    kill(first)
    old, new = (run.run_id for run in store.read(DagRun, order_by=["run_seq"]))
    then = promotions(root)
    assert {*then} == {0, 1} and sum(then) < len(TABLES), "it was killed in the middle"
    for table, n in zip(TABLES, then, strict=True):
        assert runs_in(root / table) == [new if n else old] * 2
    assert preview_outcome(store) is None

    managers()
    wait_for(lambda: preview_outcome(store) == s.PROMOTED)
    assert promotions(root) == [1, 1, 1, 1]
    assert {run for table in TABLES for run in runs_in(root / table)} == {new}
    (answer,) = wait_for(lambda: store.read(Response, matching(kind=request_kinds.BACKFILL_PROMOTE)))  # another table
    assert (answer.outcome, answer.message) == ("accepted", "preview preview is promoted: 4 tables, 1 run")
    states = {run.run_id: (run.run_type, run.state) for run in store.read(DagRun)}
    assert states == {old: (s.BACKFILL_RUN, s.OVERRIDDEN), new: (s.BACKFILL_RUN, s.SUCCESS)}


def promotions(root: Path) -> list[int]:
    """Commits of each table that promote something."""
    marks = ([one.get("userMetadata", "{}") for one in DeltaTable(root / table).history()] for table in TABLES)
    return [sum(PROMOTES in json.loads(mark or "{}") for mark in of_table) for of_table in marks]


def runs_in(table: Path) -> list[str]:
    return [run for (run,) in rows_in(table, "t", "SELECT run FROM t")]


def preview_outcome(store: Store) -> str | None:
    (row,) = store.read(Backfill, matching(backfill_id="preview"))
    return row.preview_outcome
