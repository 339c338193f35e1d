"""States as each release wrote them (tests/data/states) are opened by this one, and a manager goes on with what was in progress.

They were written by the code of their time (tests/data/states/make.py): one for each version of the state's layout.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from deltalake import DeltaTable
from support.recorded_state import SPEC, open_state

from backfill_manager.execution.messages import Outcome, Succeeded, TaskLaunch
from backfill_manager.manager.leader_election import LeaderElector
from backfill_manager.model.records import (
    SCHEMA_VERSION,
    Backfill,
    BackfillItem,
    DagRun,
    Manager,
    Response,
    TaskInstance,
    TaskTry,
)
from backfill_manager.store.delta_rs.store import DeltaRsStore
from backfill_manager.store.table_properties import VERSION_PROPERTY
from backfill_manager.testing import FakeClock, InMemoryManager

STATES = Path(__file__).parents[1] / "data" / "states"
MAX_BYTES = 100_000
VERSIONS = sorted(int(file.name[1:].partition(".")[0]) for file in STATES.glob("v*.tar.gz"))


@pytest.fixture
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with tarfile.open(STATES / f"v{request.param}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "state"


def version_of(root: Path) -> int:
    return int(DeltaTable(str(root / "manager")).metadata().configuration[VERSION_PROPERTY])


def test_there_is_a_small_state_of_every_version_before_this_one() -> None:
    sizes = {file.name: file.stat().st_size for file in STATES.glob("*.tar.gz")}
    assert set(VERSIONS) >= set(range(1, SCHEMA_VERSION)), "tests/data/states/make.py makes one"
    assert max(sizes.values()) < MAX_BYTES


@pytest.mark.parametrize(("root", "version"), [(n, n) for n in VERSIONS], indirect=["root"])
def test_a_state_of_a_release_is_opened_and_nothing_of_it_is_lost(root: Path, version: int) -> None:
    assert version_of(root) == version
    store = DeltaRsStore(str(root))
    assert store.damages() == [], "tables that it did not have yet are not lost"
    store.init()

    assert version_of(root) == SCHEMA_VERSION
    assert all(finding.ok for finding in store.check()), store.check()
    assert [row.state for row in store.read(Backfill, order_by=["created_at", "run_seq"])] == ["failed", "running"]
    items = store.read(BackfillItem, order_by=["backfill_id", "ordinal"])
    assert [item.state for item in items] == [
        "success", "failed", "success", "success", "running", "pending", "pending",
    ]  # fmt: skip
    assert len(store.read(TaskInstance)) == 10 and len(store.read(TaskTry)) == 7
    assert [row.kind for row in store.unanswered()] == ["dag.pause"]


@pytest.mark.parametrize("root", VERSIONS, indirect=True)
def test_a_manager_goes_on_with_a_backfill_that_another_release_left_in_progress(root: Path) -> None:
    clock = FakeClock()
    store = open_state(root, clock)
    store.init()
    last = store.lease()
    assert last is not None and last.state == "leading", "it was killed"
    finished = {(ti.run_id, ti.task_id): ti.launch for ti in store.read(TaskInstance) if ti.state == "success"}
    launched: list[tuple[str, str]] = []

    def script(launch: TaskLaunch) -> Outcome:
        launched.append((launch.run.run_id, launch.task.task_id))
        return Succeeded()

    elector = LeaderElector(store, clock, lease_s=15)
    if (leader := elector.run_once()) is None:  # on another machine its lease runs out first
        clock.advance(seconds=last.lease_s + 1)
        leader = elector.run_once()
    assert leader is not None and leader.term == last.term + 1 and leader.row.state_id is not None
    leader.resign(clock.now())

    manager = InMemoryManager(script=script, clock=clock, store=store)  # type: ignore[arg-type]
    manager.drain()

    assert [row.state for row in store.read(Backfill, order_by=["created_at", "run_seq"])] == ["failed", "success"]
    assert not finished.keys() & set(launched), "what had finished does not run again"
    assert len(launched) == len(set(launched)) == 6
    assert [row.outcome for row in store.read(Response)] == ["accepted"]
    runs = {run.run_id: run.state for run in store.read(DagRun) if run.dag_id == SPEC.dag_id}
    assert sorted(runs.values()) == ["failed", *["success"] * 6]
    assert len(store.read(Manager)) == last.term + 2
