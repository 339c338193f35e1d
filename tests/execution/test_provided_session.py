"""A Spark session that is there already: it is used and left running, and one that won't do is refused in one line."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from backfill_manager.errors import InvalidConfig
from backfill_manager.execution.spark.provided_session import (
    find_session,
    problem_of,
    refuse_remote,
    shortcomings,
    why_remote,
)
from backfill_manager.execution.spark.session import SparkProvider
from backfill_manager.model.records import DagRow, Manager
from backfill_manager.settings import Settings
from backfill_manager.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPOSITORY = Path(__file__).parents[2]
ConnectSession = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})


@pytest.mark.parametrize(
    ("environ", "conf", "session", "reason"),
    [
        ({"SPARK_REMOTE": "unix:///databricks/sparkconnect/grpc.sock"}, {}, None, "SPARK_REMOTE is set"),
        ({"SPARK_CONNECT_MODE_ENABLED": "1"}, {}, None, "SPARK_CONNECT_MODE_ENABLED is set"),
        ({}, {"spark.remote": "sc://host"}, None, "spark.remote is set"),
        ({}, {"spark.api.mode": "connect"}, None, "Spark's API mode is `connect`"),
        ({"SPARK_API_MODE": "Connect"}, {}, None, "Spark's API mode is `connect`"),
        ({"SPARK_API_MODE": "connect"}, {"spark.api.mode": "classic"}, None, None),
        ({}, {}, ConnectSession, "the session that is there is one of its clients"),
        ({"SPARK_HOME": "/opt/spark"}, {"spark.master": "local"}, object, None),
    ],
)
def test_spark_connect_is_recognised(
    environ: dict[str, str], conf: dict[str, str], session: type | None, reason: str | None
) -> None:
    assert why_remote(environ, conf, session) == reason
    if reason is None:
        refuse_remote(environ, conf, session)
    else:
        with pytest.raises(InvalidConfig, match="dedicated access mode"):
            refuse_remote(environ, conf, session)


@pytest.mark.parametrize("zone", ["UTC", "Etc/UTC", "Z"])
def test_a_session_in_utc_will_do(zone: str) -> None:
    assert problem_of(zone) is None


def test_a_session_in_another_zone_is_refused_with_what_to_set() -> None:
    assert "set `spark.sql.session.timeZone UTC`" in str(problem_of("Europe/Berlin"))


def test_a_session_without_what_tasks_need_is_used_and_each_thing_is_said() -> None:
    assert shortcomings("FAIR", 128) == []
    pools, subqueries = shortcomings("FIFO", 16)
    assert "set `spark.scheduler.mode FAIR`" in pools
    assert subqueries.startswith("16 tasks at once") and "set `spark.sql.subquery.maxThreadThreshold 128`" in subqueries


def test_a_manager_says_at_its_start_that_there_is_only_spark_connect(tmp_path: Path) -> None:
    environ = {**os.environ, "SPARK_REMOTE": "sc://localhost:15002", "BFM_STATE": str(tmp_path / "state")}
    command = [sys.executable, "-m", "backfill_manager", "manager", "start"]
    done = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert line.startswith("Spark Connect has no SparkContext") and "SPARK_REMOTE is set" in line
    assert not (tmp_path / "state").exists(), "it was refused before anything was made"


def test_a_session_that_is_there_is_found_and_never_stopped(spark: SparkSession) -> None:
    provider = SparkProvider(Settings())
    session = provider.get()
    assert session.sparkContext is spark.sparkContext
    provider.stop()
    assert session.range(3).count() == 3
    assert find_session() is not None


@pytest.mark.parametrize("in_catalog", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_job_of_a_manager_uses_the_session_that_is_there_and_its_arguments(
    in_catalog: bool,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As a Databricks job has it, `in_catalog` with a state in the catalog, too."""
    state = "spark_catalog.state_of_the_job" if in_catalog else str(tmp_path / "state")
    (tmp_path / "dags").mkdir()
    (tmp_path / "dags" / "nothing.py").write_text(
        "from backfill_manager import dag, sql\n@dag(schedule=None)\ndef nothing():\n    sql('one', 'SELECT 1')\n"
    )
    conf = {"state": str(tmp_path / "not this one"), "bundles": [{"name": "main", "path": str(tmp_path / "dags")}]}
    (tmp_path / "manager.yaml").write_text(json.dumps(conf))
    monkeypatch.setenv("BFM_LEASE__SECONDS", "77")
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "19")

    code = manager_job().main(["--conf", str(tmp_path / "manager.yaml"), "--state", state, "--until-idle"])

    assert code == 0, capsys.readouterr().err
    assert not (tmp_path / "not this one").exists()
    store = open_store(state, spark=spark if in_catalog else None)
    [row] = store.read(Manager)
    assert (row.state, row.lease_s, row.application_id) == ("stopped", 77, spark.sparkContext.applicationId)
    assert [dag.dag_id for dag in store.read(DagRow)] == ["nothing"]
    assert spark.range(3).count() == 3, "the session goes on"


def manager_job() -> Any:
    spec = importlib.util.spec_from_file_location("manager_job", REPOSITORY / "jobs" / "manager.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
