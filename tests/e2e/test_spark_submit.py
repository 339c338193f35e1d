"""A manager under the real spark-submit: how it stops on signals, and that nothing outlives a killed part of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backfill_manager.model.records import DagRow, Manager
from backfill_manager.process_info import is_process_alive
from backfill_manager.store import Store, open_store

REPOSITORY = Path(__file__).parents[2]
TIMEOUT_S = 300.0


class Submitted:
    """`./spark-submit.sh` after its installing, from a folder with a state and a bundle, in a process group of its own."""

    def __init__(self, folder: Path) -> None:
        self.store: Store = open_store(str(folder / "state"))
        environ = {name: value for name, value in os.environ.items() if not name.startswith("BFM_")}
        environ |= {"BFM_STATE": "state", "BFM_WAREHOUSE": "./warehouse", "BFM_BUNDLES": "[{name: own, path: dags}]"}
        (folder / "dags").mkdir()
        (folder / "dags" / "own.dag.yaml").write_text("dag_id: own\ntasks: {one: {sql: SELECT 1}}\n")
        self.process = subprocess.Popen(
            [sys.executable, str(REPOSITORY / "jobs" / "submit.py"), "start"],
            cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        self._until(lambda: self.store.exists() and bool(self.store.read(DagRow)))
        self.driver = self.lease.pid
        self.jvm = int(Path(f"/proc/{self.driver}/stat").read_text().rpartition(")")[2].split()[1])

    @property
    def lease(self) -> Manager:
        row = self.store.lease()
        assert row is not None
        return row

    def _until(self, seen: Callable[[], bool]) -> None:
        moment = threading.Event()
        for _ in range(int(TIMEOUT_S / 0.1)):
            if seen():
                return
            assert self.process.poll() is None, self.process.communicate()[0]
            moment.wait(0.1)
        raise AssertionError("it does not lead")

    def wait(self) -> tuple[int, str]:
        """The exit code and what was said. Whoever keeps our pipe open keeps this from returning."""
        result, _ = self.process.communicate(timeout=TIMEOUT_S)
        return self.process.returncode, result

    def nothing_is_left(self) -> bool:
        moment = threading.Event()
        for _ in range(int(TIMEOUT_S / 0.1)):
            if not is_process_alive(self.driver) and not is_process_alive(self.jvm):
                return True
            moment.wait(0.1)
        return False


@pytest.fixture
def submitted(tmp_path: Path) -> Iterator[Submitted]:
    it = Submitted(tmp_path)
    yield it
    for pid in (it.process.pid, it.driver, it.jvm):
        if is_process_alive(pid):
            os.kill(pid, signal.SIGKILL)
    it.process.communicate()


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds the driver's parent in /proc")


def test_a_stopped_manager_drains_and_gives_the_lease_back(submitted: Submitted) -> None:
    assert [dag.dag_id for dag in submitted.store.read(DagRow)] == ["own"], "paths begin where it was started"
    submitted.process.send_signal(signal.SIGTERM)
    code, result = submitted.wait()
    assert code == 0, result
    assert submitted.nothing_is_left()
    assert submitted.lease.state == "stopped", result
    assert "incubator" not in result and "WARN" not in result


def test_with_its_jvm_killed_the_driver_ends_too_and_the_exit_code_tells(submitted: Submitted) -> None:
    os.kill(submitted.jvm, signal.SIGKILL)
    code, result = submitted.wait()
    assert code == 137, result
    assert submitted.nothing_is_left()
    assert result.count("Spark is gone: ") == 1 and "Traceback" not in result
    assert submitted.lease.state == "stopped", result


def test_with_the_submitter_killed_nothing_goes_on_in_the_dark(submitted: Submitted) -> None:
    submitted.process.kill()  # and not fetched by us: a dead process that nobody has fetched is dead all the same
    assert submitted.nothing_is_left()
    assert submitted.lease.state == "stopped"  # there was time to end well


def test_options_of_spark_submit_count_more_than_what_a_manager_sets_itself(tmp_path: Path) -> None:
    (tmp_path / "dags").mkdir()
    (tmp_path / "dags" / "own.py").write_text(
        f"""
from pathlib import Path
from backfill_manager import dag, task

@dag(schedule="@once", start_date="2024-01-01")
def own():
    @task
    def say(ctx):
        names = ("spark.sql.execution.arrow.pyspark.enabled", "spark.sql.shuffle.partitions", "spark.sql.ansi.enabled")
        Path({str(tmp_path / "said")!r}).write_text(" ".join(map(ctx.spark.conf.get, names)))

    say()
"""
    )
    conf = {"spark.sql.ansi.enabled": "false", "spark.sql.shuffle.partitions": "4"}
    configured = {
        "state": "state",
        "bundles": [{"name": "own", "path": "dags"}],
        "spark": {"master": "local[2]", "conf": conf},
    }
    (tmp_path / "manager.yaml").write_text(json.dumps(configured))
    environ = {name: value for name, value in os.environ.items() if not name.startswith("BFM_")}
    typed = ["--conf", "spark.sql.execution.arrow.pyspark.enabled=false", "--conf", "spark.sql.shuffle.partitions=7"]
    command = [
        sys.executable,
        str(REPOSITORY / "jobs" / "submit.py"),
        "start",
        "--conf",
        "manager.yaml",
        "--until-idle",
        "--",
        *typed,
    ]
    done = subprocess.run(
        command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "said").read_text() == "false 7 false"
