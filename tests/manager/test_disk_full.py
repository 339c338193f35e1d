"""The disk of the state is full, for real: the manager waits or ends with one line, nothing is lost, and it goes on."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.manager_process import wait_for
from support.recorded_state import NOON, SPEC, open_state
from support.scenarios import a_third_kill_would_fail_a_task
from support.small_disk import SIZE, SmallDisk, small_disk

from backfill_manager.clock import SystemClock
from backfill_manager.errors import LostLease, StateError
from backfill_manager.manager.commit_preconditions import why_no_commit
from backfill_manager.manager.leader_election import LeaderElector
from backfill_manager.model.records import Response, TaskTry
from backfill_manager.requests import submit
from backfill_manager.store.delta_rs.store import DeltaRsStore
from backfill_manager.testing import FakeClock, InMemoryManager, days


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk") as made:
        yield made


def manager_on(disk: SmallDisk) -> InMemoryManager:
    clock = FakeClock(NOON)
    return InMemoryManager(SPEC, clock=clock, store=open_state(disk.folder / "state", clock))  # type: ignore[arg-type]


def test_the_manager_waits_and_goes_on_when_there_is_space(disk: SmallDisk, capfd: pytest.CaptureFixture[str]) -> None:
    manager = manager_on(disk)
    stop = threading.Event()
    loop = threading.Thread(target=lambda: manager._loop.run_until(stop.is_set))
    disk.fill(leave=SIZE // 8)  # less than is wanted for a commit, enough for what clients write
    assert why_no_commit(manager.store.root)
    loop.start()
    try:
        store, shown = DeltaRsStore(str(disk.folder / "state")), list[str]()

        def waits() -> bool:
            shown.append(capfd.readouterr().err)
            return "no tick: the disk of the state" in "".join(shown)

        wait_for(waits)
        submit.submit(store, SystemClock(), "dag.pause", {"dag_id": "flights"}, requested_by="tests")
        manager.events.wake_for_requests()
        assert store.read(Response) == [], "a tick would have failed"

        disk.clear()
        wait_for(lambda: store.read(Response))
    finally:
        stop.set()
        manager.events.wake()
        loop.join()
    assert [row.outcome for row in store.read(Response)] == ["accepted"]
    assert "".join([*shown, capfd.readouterr().err]).count("no tick: the disk") == 1


@pytest.mark.parametrize("seed", range(5))
def test_a_disk_that_fills_up_in_a_commit_loses_nothing(disk: SmallDisk, seed: int) -> None:
    """Other programs fill it at any instant; the manager ends each time with one line, and is started when there is space."""
    chance, ends = random.Random(seed), list[str]()
    manager = manager_on(disk)
    manager.backfill("flights", days("2024-01-01", 6), max_active_runs=2)
    for _ in range(25):
        is_full = chance.random() < 0.4 and not a_third_kill_would_fail_a_task(manager)
        if is_full:
            disk.fill(leave=chance.choice([0, 0, 4096, 8192, 16384]))
        try:
            manager.tick()
        except (StateError, LostLease) as error:
            ends.append(str(error))
            disk.clear()
            manager.crash()
            continue
        if is_full:
            disk.clear()
        manager.clock.advance(seconds=1)
    manager.drain()
    assert ends and all(("\n" not in line and "can't be written: " in line) or "Term" in line for line in ends), ends
    assert any("No space left on device" in line for line in ends), ends
    assert not manager.state.runs and not manager.state.backfills
    (backfill,) = manager.store.query("SELECT backfill_id FROM backfill")[1]
    assert manager.states(backfill[0]) == {"success": 6}
    tries = Counter(row.key for row in manager.store.read(TaskTry))
    assert max(tries.values()) == 1 and len({key[:3] for key in tries}) == 12
    assert all(finding.ok for finding in manager.store.check())


def test_a_client_gets_the_reason_in_one_line_and_may_ask_again(disk: SmallDisk) -> None:
    manager = manager_on(disk)
    disk.fill()
    with pytest.raises(StateError, match="No space left on device") as shown:
        manager.ask("dag.pause", dag_id="flights")
    assert "\n" not in str(shown.value) and "Table request at" in str(shown.value)

    disk.clear()
    manager.ask("dag.pause", dag_id="flights")
    manager.drain()
    assert manager.state.catalog.dags["flights"].is_paused


def test_a_manager_does_not_take_the_lease_of_a_state_whose_disk_is_full(
    disk: SmallDisk, capfd: pytest.CaptureFixture[str]
) -> None:
    manager = manager_on(disk)
    manager.leader.resign(NOON)
    store, stop, shown = DeltaRsStore(str(disk.folder / "state")), threading.Event(), list[str]()
    disk.fill()
    elector = LeaderElector(store, SystemClock(), lease_s=15)
    with ThreadPoolExecutor(1) as thread:
        leader = thread.submit(elector.wait, stop)

        def waits() -> bool:
            shown.append(capfd.readouterr().err)
            return "waiting: the disk of the state at" in "".join(shown)

        wait_for(waits)
        assert not leader.done()
        disk.clear()
        led = leader.result()
    assert led is not None and led.term == 2
