"""What a cleaner of /tmp does to a manager that lives for months: systemd-tmpfiles deletes what is ten days old."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from backfill_manager.execution.spark.spark_health import lack_of_executors, spark_gone_reason, temporary_folders
from backfill_manager.manager.services.spark_monitor import (
    EXECUTORS_INTERVAL_S,
    REPORT_LACK_S,
    SPARK_INTERVAL_S,
    TOUCH_INTERVAL_S,
    ExecutorMonitor,
    SparkMonitor,
)
from backfill_manager.testing import FakeClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONG_AGO = 1_000_000_000


@pytest.fixture
def blocks(tmp_path: Path) -> Path:
    folder = tmp_path / "blockmgr-1"
    (folder / "3f").mkdir(parents=True)
    for place in (folder / "3f", folder):
        os.utime(place, (LONG_AGO, LONG_AGO))
    return folder


def monitor_of(folder: Path, clock: FakeClock) -> tuple[SparkMonitor, list[str]]:
    gone: list[str] = []
    return SparkMonitor(lambda: None, gone.append, [folder], clock), gone


def test_spark_without_its_temporary_files_is_gone(blocks: Path) -> None:
    monitor, gone = monitor_of(blocks, FakeClock())
    assert (monitor.run_once(), gone) == (SPARK_INTERVAL_S, [])
    (blocks / "3f").rmdir()
    blocks.rmdir()
    assert (monitor.run_once(), gone) == (None, [f"its folder {blocks} was deleted"])


def test_what_spark_uses_seldom_does_not_grow_old(blocks: Path) -> None:
    clock = FakeClock()
    monitor, _ = monitor_of(blocks, clock)
    monitor.run_once()
    assert {place.stat().st_mtime for place in (blocks, blocks / "3f")} == {LONG_AGO}
    clock.advance(seconds=TOUCH_INTERVAL_S)
    monitor.run_once()
    assert all(place.stat().st_mtime > LONG_AGO for place in (blocks, blocks / "3f"))


def test_spark_answers_without_the_folders_that_it_needs(spark: SparkSession) -> None:
    folders = temporary_folders(spark)
    assert {folder.name.partition("-")[0] for folder in folders} == {"blockmgr", "spark", "pyspark"}
    moved = {folder: folder.with_name(f"{folder.name}.moved") for folder in folders if folder.name.startswith("block")}
    for folder, aside in moved.items():
        folder.rename(aside)
    try:
        assert spark_gone_reason(spark) is None
    finally:
        for folder, aside in moved.items():
            aside.rename(folder)


def test_jobs_that_wait_for_executors_are_reported_once_and_their_end_too(capsys: pytest.CaptureFixture[str]) -> None:
    few = int(REPORT_LACK_S / EXECUTORS_INTERVAL_S) - 1
    looks = [*[True] * few, False, *[True] * (3 * few), False, False]
    seen = iter(looks)
    monitor = ExecutorMonitor(lambda: next(seen))
    assert {monitor.run_once() for _ in looks} == {EXECUTORS_INTERVAL_S}
    said = [line for line in capsys.readouterr().err.splitlines() if "component=spark_monitor" in line]
    assert ["Spark has no executor, so its jobs wait" in said[0], "wait for no executor any more" in said[1], len(said)] == [
        True, True, 2,
    ]  # fmt: skip


def test_a_driver_that_is_its_own_executor_lacks_none(spark: SparkSession) -> None:
    assert lack_of_executors(spark) is None
