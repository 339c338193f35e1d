"""Bundles with packages of their own, with a real manager: the code of their tasks and of Spark's Python workers has them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.manager_process import ended, request, wait_for
from support.tiny_wheel import make_wheel

from backfill_manager.clock import UTC
from backfill_manager.model import states as s
from backfill_manager.model.records import DagRow, DagRun, DagVersion, ImportProblem, TaskInstance
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.settings import BundleSettings, Settings
from backfill_manager.store.base import Store, matching
from backfill_manager.user_cache import cache_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST = datetime(2024, 3, 1, tzinfo=UTC)
DAG_FILE = """
import pathlib
import sys
import threading
import tiny
from backfill_manager import dag, task

@dag("NAME", schedule="@daily", start_date="2024-01-01", end_date="2024-12-31")
def made():
    @task
    def tell(ctx):
        from pyspark.sql.functions import udf

        @udf("array<string>")
        def there(_):
            import sys
            import tiny
            return [tiny.VERSION, sys.prefix]

        (row,) = ctx.spark.range(1).select(there("id")).collect()
        if "gates" in ctx.params:
            gates, day = pathlib.Path(ctx.params["gates"]), ctx.logical_date.day
            (gates / f"at {day}").touch()
            while not (gates / f"open {day}").exists():
                threading.Event().wait(0.1)
        return {"task": [tiny.VERSION, sys.prefix], "worker": row[0]}
    tell()
"""


@pytest.fixture
def settings(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Two bundles with two versions of `tiny`, one with it not at all."""
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "jars").symlink_to(cache_folder().absolute() / "jars")
    monkeypatch.setenv("BFM_CACHE", str(cache))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # without uv
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    bundles = []
    for name, version in (("one", "1.0"), ("two", "2.0"), ("none", "3.0")):
        if name != "none":
            make_wheel(tmp_path / "wheels", "tiny", version, {"tiny.py": f"VERSION = {version!r}\n"})
        folder = tmp_path / name
        folder.mkdir()
        (folder / "made.py").write_text(DAG_FILE.replace("NAME", name))
        (folder / "requirements.txt").write_text(f"tiny=={version}\n")
        bundles.append(BundleSettings(name=name, path=str(folder), fetch_interval=0.5, requirements="requirements.txt"))
    return Settings(state=str(tmp_path / "state"), bundles=bundles)


def interpreter(store: Store, dag_id: str) -> str | None:
    """That of its current version."""
    (row,) = store.read(DagRow, matching(dag_id=dag_id))
    (version,) = store.read(DagVersion, matching(dag_id=dag_id, version=row.current_version))
    return version.python


def tries(store: Store, backfill_id: str) -> list[TaskInstance]:
    keys = {(run.dag_id, run.run_id) for run in store.read(DagRun, matching(backfill_id=backfill_id))}
    found = [ti for ti in store.read(TaskInstance) if (ti.dag_id, ti.run_id) in keys]
    return sorted(found, key=lambda ti: ti.run_id)


def test_tasks_and_their_udfs_have_the_packages_of_their_bundle(manager: Callable[[], Store], tmp_path: Path) -> None:
    store = manager()
    wait_for(lambda: {row.dag_id for row in store.read(DagRow)} == {"one", "two"})
    for dag_id in ("one", "two"):
        request(store, CreateBackfill(dag_id=dag_id, start_date=FIRST, end_date=FIRST), dag_id)
    for dag_id, version in (("one", "1.0"), ("two", "2.0")):
        assert ended(store, dag_id).state == s.SUCCESS
        where = str(Path(str(interpreter(store, dag_id))).parents[1])
        (ti,) = tries(store, dag_id)
        assert json.loads(ti.result_json or "null") == {"task": [version, where], "worker": [version, where]}
    (problem,) = store.read(ImportProblem, matching(is_current=True))
    assert (problem.bundle, problem.file) == ("none", ".")
    assert (
        "Could not find a version that satisfies the requirement tiny==3.0 (from versions: 1.0, 2.0)" in problem.message
    )


def test_runs_keep_the_environment_of_their_version_and_fail_with_the_cure_when_it_is_gone(
    manager: Callable[[], Store], tmp_path: Path
) -> None:
    store, gates = manager(), tmp_path / "gates"
    gates.mkdir()
    wait_for(lambda: {row.dag_id for row in store.read(DagRow)} == {"one", "two"})
    old = str(interpreter(store, "one"))
    last = FIRST.replace(day=3)
    conf = {"gates": str(gates)}
    request(store, CreateBackfill(dag_id="one", start_date=FIRST, end_date=last, conf=conf, max_active_runs=1), "old")
    wait_for((gates / "at 1").exists)
    (tmp_path / "one" / "requirements.txt").write_text("tiny==2.0\n")
    wait_for(lambda: interpreter(store, "one") != old)
    assert interpreter(store, "one") == interpreter(store, "two")
    (gates / "open 1").touch()
    wait_for((gates / "at 2").exists)  # begun after the edit
    shutil.rmtree(Path(old).parents[1])
    (gates / "open 2").touch()
    assert ended(store, "old").state == s.FAILED
    first, second, third = tries(store, "old")
    assert [json.loads(ti.result_json or "null")["worker"][0] for ti in (first, second)] == ["1.0", "1.0"]
    assert (third.state, third.error) == (
        s.FAILED,
        f"The interpreter of DAG 'one' version 1 is gone: there is no {old}. It is made again when the bundle is parsed with "
        "the same requirements (`bfm bundles parse`); or clear the run with the latest version.",
    )
