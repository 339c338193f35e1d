"""The commands that repair and run by hand, with nothing faked: a real manager, its Delta state, Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.bfm import Bfm
from support.bfm_beside_manager import bfm_beside_manager
from support.manager_process import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAG_FILE = """
import os
from backfill_manager import dag, task

@dag(schedule="@daily", start_date="2024-03-01", end_date="2024-03-31", timezone="Europe/Amsterdam", batchable=True)
def two():
    @task
    def count(ctx):
        if os.path.exists("TROUBLE"):
            raise ValueError("there is trouble")
        ctx.log.info("counted %s for %s", ctx.spark.range(7).count(), ctx.interval.start)

    @task
    def report(ctx):
        pass

    count() >> report()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project: one bundle, one configuration; `trouble` in it lets tasks fail."""
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "two.py").write_text(DAG_FILE.replace("TROUBLE", str(tmp_path / "trouble")))
    (tmp_path / "m.yaml").write_text(
        f"bundles:\n- {{name: tests, path: '{tmp_path / 'bundle'}'}}\nretention: {{snapshots: 1 hour}}\n"
    )
    return tmp_path


@pytest.fixture
def bfm(folder: Path, spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> Iterator[Bfm]:
    """Beside a manager that leads, in the time that really passes. Its log goes to standard error as well."""
    with bfm_beside_manager(folder, spark, capfd) as beside:
        yield beside


def becomes(bfm: Bfm, run_id: str, state: str) -> None:
    wait_for(lambda: bfm("runs", "show", run_id, "--output", "json").document["state"] == state)


def test_a_failed_run_by_hand_is_cleared_marked_and_drawn(bfm: Bfm, folder: Path) -> None:
    (folder / "trouble").touch()
    triggered = bfm("dags", "trigger", "two", "--logical-date", "2024-03-05", "--wait", "--output", "json")
    run_id = triggered.document["run_id"]
    assert (triggered.code, triggered.document["run"]["state"]) == (1, "failed")
    assert "failed  count  ValueError: there is trouble" in triggered.err
    assert run_id == "manual__2024-03-04T23:00:00Z"
    assert "✗" in bfm("runs", "timeline", "two").out

    (folder / "trouble").unlink()
    assert "2 tasks of 1 run." in bfm("tasks", "clear", "two", "-f", "-n").out
    assert bfm("tasks", "clear", "two", "-f", "-y").out.splitlines()[-1].startswith("cleared 2 tasks")
    becomes(bfm, run_id, "success")
    shown = bfm("runs", "show", run_id, "--output", "json").document
    assert [(one["try_number"], one["state"]) for one in shown["tries"] if one["task_id"] == "count"] == [
        (1, "failed"),
        (2, "success"),
    ]

    assert bfm("tasks", "mark", "two", run_id, "report", "failed").code == 0
    becomes(bfm, run_id, "failed")
    assert bfm("runs", "mark", run_id, "success").code == 0
    becomes(bfm, run_id, "success")
    assert bfm("runs", "cancel", run_id).code == 4

    again = bfm("dags", "trigger", "two", "--logical-date", "2024-03-05")
    assert (again.code, f"it overrides {run_id}" in again.out) == (0, True)
    [standing] = bfm("runs", "timeline", "two", "--output", "json").document
    assert [one["run_id"] for one in standing["overridden"]] == [run_id]


def test_the_state_is_compacted_by_the_manager_that_leads_or_without_one(bfm: Bfm) -> None:
    bfm("dags", "trigger", "two", "--logical-date", "2024-03-05")
    compacted = bfm("state", "compact", "--output", "json")
    assert (compacted.code, compacted.document["files"]["dag_run"]) == (0, 1)
    assert [one["outcome"] for one in bfm("requests", "list", "--output", "json").document][:2] == ["accepted"] * 2
    bfm("manager", "stop")
    wait_for(lambda: bfm("manager", "status", "--output", "json").document["state"] != "leading")
    compacted = bfm("state", "compact", "--output", "json")
    assert (compacted.code, compacted.document["files"]["request"]) == (0, 1)
    status = bfm("manager", "status", "--output", "json").document
    assert (status["state"], status["term"]) == ("stopped", 2), "it took the lease, and gave it back"


def test_the_state_is_pruned_by_the_manager_that_leads_or_without_one(bfm: Bfm, folder: Path) -> None:
    unused = folder / "state" / "snapshots" / ("a" * 64)

    def pruned(*options: str) -> int:
        unused.mkdir(exist_ok=True)
        os.utime(unused, (0, 0))
        result = bfm("state", "prune", "--output", "json", *options)
        assert (result.code, result.document["pruned"]["versions"]) == (0, 0)
        return int(result.document["pruned"]["snapshots"])

    assert (pruned("--dry-run"), unused.is_dir()) == (1, True)
    assert (pruned(), unused.is_dir()) == (1, False)
    assert [one["kind"] for one in bfm("requests", "list", "--output", "json").document] == ["state.prune"]
    bfm("manager", "stop")
    wait_for(lambda: bfm("manager", "status", "--output", "json").document["state"] != "leading")
    assert (pruned(), unused.is_dir()) == (1, False)
    assert len(list((folder / "state" / "snapshots").glob("?" * 64))) == 1, "that of the DAG's version"


def test_one_task_is_run_by_hand_and_followed(bfm: Bfm, folder: Path) -> None:
    result = bfm("tasks", "run", "two", "count", "2024-03-05")

    assert result.code == 0
    assert "counted 7 for 2024-03-04 23:00:00" in result.out
    assert result.out.splitlines()[-1] == "count of two for 2024-03-05: success"
    (folder / "trouble").touch()
    failed = bfm("tasks", "run", "two", "count", "2024-03-05", "--output", "json")
    assert (failed.code, failed.document["state"], failed.document["error"]) == (
        1,
        "failed",
        "ValueError: there is trouble",
    )
    assert bfm("runs", "timeline", "two", "--output", "json").document == []


def test_a_backfill_is_changed_and_retried(bfm: Bfm, folder: Path) -> None:
    (folder / "trouble").touch()
    march = ("two", "-s", "2024-03-10", "-e", "2024-03-13")
    planned = bfm("backfill", "create", *march, "--batch", "2", "-n", "--output", "json").document
    assert (planned["summary"]["items"], planned["summary"]["runs"]) == (4, 2)
    assert [item["batch"] for item in planned["items"]] == [1, 1, 3, 3]

    failed = bfm(
        "backfill", "create", *march, "--set", "retries=0", "--max-active-runs", "1", "--stop-on-failure", "1", "--wait"
    )
    assert failed.code == 1
    changed = bfm("backfill", "set", "latest", "--stop-on-failure", "100", "--set", "count.timeout=60")
    assert changed.code == 0, changed.err
    result = bfm("backfill", "show", "latest", "--output", "json").document
    assert (result["stop_on_failure"], result["overrides"]) == (100, {"retries": 0, "count.timeout": 60})

    assert bfm("backfill", "retry", "latest").code == 4, "it lives: it is paused"
    assert bfm("backfill", "unpause", "latest").code == 0
    assert bfm("backfill", "watch", "latest").code == 1
    (folder / "trouble").unlink()
    assert bfm("backfill", "retry", "latest").code == 0
    assert bfm("backfill", "watch", "latest").code == 0
    assert bfm("backfill", "show", "latest", "--output", "json").document["success"] == 4


def test_without_a_manager_one_task_is_run_by_this_process(folder: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("BFM_")}

    def process(*args: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "backfill_manager", "--conf", "m.yaml", *args]
        return subprocess.run(line, cwd=folder, env=environ, capture_output=True, text=True, check=False)

    assert process("manager", "start", "--until-idle").returncode == 0, "the DAGs are known"
    ended = process("tasks", "run", "two", "count", "2024-03-05", "--output", "json")

    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    assert (result["task_id"], result["state"]) == ("count", "success")
    assert "counted 7" in result["logs"][0]["message"]
    assert process("manager", "status").returncode == 1
