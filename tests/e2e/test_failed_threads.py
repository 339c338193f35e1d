"""A manager never stays half alive: when a thread that it can't do without fails, it gives its lease back and ends."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from backfill_manager.errors import ServiceFailed
from backfill_manager.execution.executor import Executor
from backfill_manager.manager.leader_election import Heartbeat
from backfill_manager.manager.manager import run_manager
from backfill_manager.manager.services.bundle_watcher import BundleService
from backfill_manager.manager.services.planner import Planner
from backfill_manager.manager.services.request_poller import RequestPoller
from backfill_manager.manager.services.spark_monitor import SparkMonitor
from backfill_manager.model import states as s
from backfill_manager.settings import BundleSettings, Settings
from backfill_manager.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "bundle").mkdir()
    return Settings(
        state=str(tmp_path / "state"), bundles=[BundleSettings(name="tests", path=str(tmp_path / "bundle"))]
    )


LOOPS = [
    (Planner, "run_once", "planner"), (RequestPoller, "run_once", "request poller"), (Heartbeat, "run_once", "heartbeat"),
    (BundleService, "run_once", "bundle tests"), (SparkMonitor, "run_once", "Spark monitor"),
    (Executor, "_handle_deadlines", "executor of term 1"),
]  # fmt: skip


@pytest.mark.parametrize(("service", "loop", "name"), LOOPS, ids=[name for _, _, name in LOOPS])
def test_a_service_that_fails_ends_the_manager_with_one_line_and_its_lease_given_back(
    service: type, loop: str, name: str, settings: Settings, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: Any) -> None:
        raise ZeroDivisionError("a bug of ours")

    monkeypatch.setattr(service, loop, fails)
    with pytest.raises(ServiceFailed) as ended:
        run_manager(settings, state=settings.state, spark=spark)
    result = str(ended.value)
    assert result.startswith(f"A service of the manager has failed ({name}): ZeroDivisionError: a bug of ours.")
    assert "start it again" in result and "\n" not in result
    lease = open_store(settings.state).lease()
    assert lease is not None and lease.state == s.STOPPED, "a standby takes over at once"
