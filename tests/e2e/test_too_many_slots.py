"""A manager whose pools have more slots than Spark has threads for subqueries says so at its start."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from backfill_manager.manager.manager import run_manager
from backfill_manager.settings import PoolSettings, Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(("slots", "lines"), [(112, 0), (113, 1)])
def test_more_slots_than_threads_for_subqueries_are_warned_of_at_the_start(
    slots: int, lines: int, tmp_path: Path, spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    pools = [PoolSettings(name="scheduled", slots=16), PoolSettings(name="backfill", slots=slots)]
    settings = Settings(state=str(tmp_path / "state"), bundles=[], pools=pools)
    assert run_manager(settings, state=settings.state, spark=spark, until_idle=True) == 0
    warnings = [line for line in capfd.readouterr().err.splitlines() if "threads for subqueries" in line]
    assert len(warnings) == lines
    assert all(
        "level=warning component=manager" in line and "the pools have 129 slots in all" in line for line in warnings
    )
