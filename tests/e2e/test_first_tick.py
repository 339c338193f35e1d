"""A manager that has just started goes by what its bundles hold now, not by what the last one found."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.bfm_beside_manager import bfm_beside_manager, write_bundle
from support.manager_process import wait_for

from backfill_manager.clock import SystemClock
from backfill_manager.manager.event_queue import EventQueue
from backfill_manager.manager.services.bundle_watcher import AllBundlesParsed
from backfill_manager.model.records import DagRun
from backfill_manager.requests import submit
from backfill_manager.schemas import request_kinds
from backfill_manager.schemas.commands import TriggerDag
from backfill_manager.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE = """
from backfill_manager import dag, task


@dag(schedule=None)
def orders():
    @task(retries=RETRIES)
    def load(ctx): ...

    load()
"""


@pytest.mark.spark
def test_a_request_that_waited_for_the_manager_gets_the_version_that_the_files_hold_now(
    tmp_path: Path, spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    file = write_bundle(tmp_path, "orders.py", FILE.replace("RETRIES", "1"))
    with bfm_beside_manager(tmp_path, spark, capfd) as bfm:
        assert bfm("dags", "trigger", "orders").code == 0
    file.write_text(FILE.replace("RETRIES", "2"))
    with closing(open_store(str(tmp_path / "state"))) as store:
        submit.submit(
            store,
            SystemClock(),
            request_kinds.DAG_TRIGGER,
            TriggerDag(dag_id="orders", logical_date=None, conf={}).to_payload(),
        )
        with bfm_beside_manager(tmp_path, spark, capfd):
            runs = wait_for(lambda: len(found := store.read(DagRun, order_by=("run_seq",))) == 2 and found)
    assert [run.dag_version for run in runs] == [1, 2]


def test_the_wait_for_the_bundles_ends_when_they_are_parsed_or_the_manager_is_to_end() -> None:
    events, over = EventQueue(), threading.Event()

    def waiting() -> threading.Thread:
        thread = threading.Thread(target=events.wait_for_bundles, args=(3600.0, over.is_set), daemon=True)
        thread.start()
        return thread

    first = waiting()
    events.wake()
    assert first.is_alive()
    over.set()
    events.wake()
    first.join(60)
    over.clear()
    second = waiting()
    events.put(AllBundlesParsed())
    second.join(60)
    assert not first.is_alive() and not second.is_alive()
