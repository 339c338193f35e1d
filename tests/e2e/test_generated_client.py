"""The whole story of a backfill by a client that somebody else's generator makes of the OpenAPI document: a real server, a
real manager with Spark."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from support.browser_server import served
from support.manager_process import TIMEOUT_S, wait_for

from backfill_manager.clock import SystemClock
from backfill_manager.settings import BundleSettings, Settings
from backfill_manager.store.base import Store

pytest.importorskip("openapi_python_client", reason="openapi-python-client needs Python 3.11")

# A task that waits for the file `gate`, and fails on the second day while the file `broken` is there.
DAG_FILE = """
import pathlib, threading
from backfill_manager import dag, task

FOLDER = pathlib.Path("THE_FOLDER")

@dag(schedule="@daily", start_date="2024-03-01", end_date="2024-03-31", max_active_runs=1)
def readings():
    @task
    def load(ctx):
        while not (FOLDER / "gate").exists():
            threading.Event().wait(0.05)
        if ctx.interval.start.day == 2 and (FOLDER / "broken").exists():
            raise ValueError("the sensor was off")
        return ctx.spark.range(24).count()

    load()
"""
WAIT_S = 60.0


class GeneratedClient:
    """`client.pause_backfill(...)` calls the generated module of that operation, and checks the status."""

    def __init__(self, package: str, client: Any) -> None:
        self.models = importlib.import_module(f"{package}.models")
        self._package, self._client = package, client

    def __call__(self, tag: str, operation: str, *args: str, status: int = 200, **arguments: Any) -> Any:
        """The parsed answer."""
        module = importlib.import_module(f"{self._package}.api.{tag}.{operation}")
        answer = module.sync_detailed(*args, client=self._client, **arguments)
        assert answer.status_code is HTTPStatus(status), answer.content
        assert answer.parsed is not None
        return answer.parsed

    def backfill(self, backfill_id: str) -> Any:
        return self("backfills", "get_backfill", backfill_id)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def settings(folder: Path) -> Settings:
    (folder / "bundle").mkdir()
    (folder / "bundle" / "readings.py").write_text(DAG_FILE.replace("THE_FOLDER", str(folder)))
    return Settings(
        state=str(folder / "state"),
        bundles=[BundleSettings(name="tests", path=str(folder / "bundle"), fetch_interval=0.2)],
    )


@pytest.fixture
def client(
    manager: Callable[[], Store], settings: Settings, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[GeneratedClient]:
    package = "client_of_the_test"
    (folder / "generator.yaml").write_text("post_hooks: []\n")
    generator = [sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none", "--fail-on-warning"]
    with served(manager(), SystemClock(), settings) as url:
        made = subprocess.run(
            [*generator, "--url", f"{url}/openapi.json", "--config", "generator.yaml", "--output-path", package],
            cwd=folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert made.returncode == 0, made.stdout + made.stderr
        monkeypatch.syspath_prepend(str(folder))
        generated = importlib.import_module(package)
        with generated.Client(base_url=url, timeout=TIMEOUT_S, raise_on_unexpected_status=True) as client:
            yield GeneratedClient(package, client)


def test_a_generated_client_runs_the_whole_story_of_a_backfill(
    client: GeneratedClient, folder: Path, spark: object
) -> None:
    m = client.models
    assert client("health", "get_health").manager == m.HealthManager.LEADING
    [dag] = wait_for(lambda: client("dags", "list_dags").items)
    assert (dag.dag_id, dag.schedule) == ("readings", "@daily")
    (folder / "broken").touch()
    wanted = m.NewBackfill(dag_id="readings", start_date="2024-03-01", end_date="2024-03-03", max_active_runs=1)

    plan = client("backfills", "plan_backfill", body=wanted)
    assert [(item.ordinal, item.state) for item in plan.items] == [(n, m.PlannedItemState.PENDING) for n in (1, 2, 3)]
    assert client("backfills", "list_backfills").items == []

    created = client("backfills", "create_backfill", body=wanted, wait=WAIT_S, status=201)
    backfill_id = created.answer.object_id
    [running] = wait_for(lambda: client("backfills", "list_running_tasks", backfill_id).items)
    assert (running.dag_id, running.task_id) == ("readings", "load")

    paused = client("backfills", "pause_backfill", backfill_id, wait=WAIT_S)
    assert (paused.kind, paused.state) == ("backfill.pause", m.RequestDetailsState.ACCEPTED)
    (folder / "gate").touch()
    wait_for(lambda: client.backfill(backfill_id).success == 1)
    waiting = client.backfill(backfill_id)
    assert (waiting.state, waiting.pending, waiting.running) == (m.BackfillDetailsState.PAUSED, 2, 0)

    client("backfills", "unpause_backfill", backfill_id, wait=WAIT_S)
    ended = wait_for(lambda: (found := client.backfill(backfill_id)).completed_at and found)
    assert (ended.state, ended.success, ended.failed) == (m.BackfillDetailsState.FAILED, 2, 1)
    [failed] = client("backfills", "list_items", backfill_id, state=[m.ListItemsStateType0Item.FAILED]).items
    log = client("runs", "get_log_of_run_of_dag", "readings", failed.run_id, "load")
    assert any("the sensor was off" in line.message for line in log.lines)

    (folder / "broken").unlink()
    client("backfills", "retry_backfill", backfill_id, body=None, wait=WAIT_S)
    retried = wait_for(lambda: (found := client.backfill(backfill_id)).completed_at and found)
    assert (retried.state, retried.success) == (m.BackfillDetailsState.SUCCESS, 3)

    # what it covered, as it is shown, is what another one can be asked for by
    (folder / "gate").unlink()
    again = m.NewBackfill(dag_id="readings", config=retried.config, reprocess=m.NewBackfillReprocess.COMPLETED)
    second_id = client("backfills", "create_backfill", body=again, wait=WAIT_S, status=201).answer.object_id
    wait_for(lambda: client("backfills", "list_running_tasks", second_id).items)
    client("backfills", "cancel_backfill", second_id, body=m.Cancel(let_running_finish=False), wait=WAIT_S)
    cancelled = wait_for(lambda: (found := client.backfill(second_id)).completed_at and found)
    assert (cancelled.state, cancelled.cancelled) == (m.BackfillDetailsState.CANCELLED, 3)
    assert cancelled.config == retried.config

    refused = client("backfills", "cancel_backfill", second_id, body=None, wait=WAIT_S, status=409)
    assert (refused.code, refused.detail) == (
        "backfill_ended", f"Backfill {second_id} has ended (cancelled): there is nothing to cancel.",
    )  # fmt: skip
