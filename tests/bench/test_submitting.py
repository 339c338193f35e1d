"""How long the manager's thread is held when a large bundle has been read: figures to print, never a timed assertion."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from pathlib import Path

import pytest

from backfill_manager.clock import SystemClock
from backfill_manager.dags.bundles.files import BundleContent
from backfill_manager.dags.definition import DagSpec, TaskSpec
from backfill_manager.dags.importing.loader import ParsedFile
from backfill_manager.dags.versions import Submission
from backfill_manager.manager.state import ManagerState
from backfill_manager.model.records import Manager
from backfill_manager.store import open_store

DAGS = 3000
AT = datetime(2024, 1, 1, tzinfo=timezone.utc)


def large_bundle(helper: str) -> Submission:
    """One DAG of one task in each file, and a helper module that all may use."""
    names = [f"d{n:05}" for n in range(DAGS)]
    tasks = (TaskSpec("s", kind="sql", sql="SELECT 1"),)
    files = [f"{name}.py" for name in names]
    parsed = [
        ParsedFile(file, (name,), (DagSpec(name, tasks, schedule="@daily", file=file).to_json(),))
        for name, file in zip(names, files, strict=True)
    ]
    content = BundleContent({**dict.fromkeys(files, "0"), "helper.py": helper}, tuple(files))
    return Submission("b", "/b", "standard", content, snapshot=f"/snapshots/{helper}", parsed=tuple(parsed))


def test_the_bundle_is_as_large_as_it_says() -> None:
    assert len(ManagerState().catalog.submit(large_bundle("1"), AT).changes) == DAGS


@pytest.mark.bench
def test_submitting_a_bundle_of_three_thousand_dags(tmp_path: Path) -> None:
    clock, state = SystemClock(), ManagerState()
    store = open_store(str(tmp_path / "state"))
    store.init()
    leader = store.lead(Manager(1, "m", "host", 1, "leading", AT, AT, 15, "0"))
    looks = [("first", "1"), ("unchanged", "1"), ("helper edited", "2"), ("unchanged", "2"), ("helper edited", "3")]
    for what, helper in looks:
        found = large_bundle(helper)
        began, cpu = clock.monotonic(), time.thread_time()
        changes = state.catalog.submit(found, AT).changes
        submitted, cpu = clock.monotonic(), time.thread_time() - cpu
        rows = state.take_changes()
        if len(rows):
            leader.commit(rows)
        state.evict_versions()
        ended = clock.monotonic()
        print(
            f"\n{DAGS} DAGs, {what}: submit {(submitted - began) * 1000:.0f} ms ({cpu * 1000:.0f} ms of a core), "
            f"commit {(ended - submitted) * 1000:.0f} ms, {len(changes)} changes"
        )
