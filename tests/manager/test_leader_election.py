"""Taking the lease, standing by, losing it: with a fake clock, and no second process."""

from __future__ import annotations

import os
from datetime import timedelta

import pytest

from backfill_manager.errors import LostLease, SparkGone, StateError, StateLost, StateUnavailable
from backfill_manager.manager.leader_election import MAX_AWAY_S, Heartbeat, LeaderElector
from backfill_manager.model import states as s
from backfill_manager.model.records import Manager
from backfill_manager.process_info import manager_id
from backfill_manager.queries.managers import list_standbys
from backfill_manager.store.base import Leader
from backfill_manager.testing import FakeClock, MemoryStore

ELSEWHERE = "0123456789ab.deadbeef"


@pytest.fixture
def store() -> MemoryStore:
    made = MemoryStore()
    made.init()
    return made


def led_elsewhere(store: MemoryStore, clock: FakeClock, term: int = 1) -> Leader:
    """A leader on another machine: whether its process lives can't be known."""
    return store.lead(Manager(term, ELSEWHERE, "far", 1, s.LEADING, clock.now(), clock.now(), 15, "0"))


def candidate(store: MemoryStore, clock: FakeClock) -> LeaderElector:
    return LeaderElector(store, clock, lease_s=15)


def test_the_first_manager_leads_at_once(store: MemoryStore) -> None:
    leader = candidate(store, FakeClock()).run_once()
    assert leader is not None and leader.term == 1


def test_a_standby_waits_until_the_row_stood_still_for_the_whole_lease(store: MemoryStore) -> None:
    clock = FakeClock()
    old = led_elsewhere(store, clock)
    standby = candidate(store, clock)
    assert standby.run_once() is None
    clock.advance(seconds=10)
    old.heartbeat(clock.now())
    clock.advance(seconds=10)
    assert standby.run_once() is None, "the row has changed: the leader lives"
    clock.advance(seconds=14)
    assert standby.run_once() is None
    clock.advance(seconds=1.5)
    new = standby.run_once()
    assert new is not None and new.term == 2
    with pytest.raises(LostLease):
        old.heartbeat(clock.now())


def test_a_standby_says_so_now_and_then_and_is_known_until_it_leads_or_falls_silent(store: MemoryStore) -> None:
    clock = FakeClock()
    old = led_elsewhere(store, clock)
    standby = candidate(store, clock)
    for _ in range(10):
        standby.report_standby()
        clock.advance(seconds=60)
    (known,) = list_standbys(store, clock.now())
    assert (known["pid"], len(store.unanswered())) == (os.getpid(), 2)
    assert list_standbys(store, clock.now() + timedelta(hours=1)) == []
    old.resign(clock.now())
    assert standby.run_once() is not None
    assert list_standbys(store, clock.now()) == []


def test_a_wall_clock_that_is_wrong_takes_no_lease_away(store: MemoryStore) -> None:
    clock = FakeClock()
    old = led_elsewhere(store, clock)
    old.heartbeat(clock.now().replace(year=2001))
    assert candidate(store, clock).run_once() is None


def test_a_lease_that_was_given_back_is_taken_at_once(store: MemoryStore) -> None:
    clock = FakeClock()
    led_elsewhere(store, clock).resign(clock.now())
    assert candidate(store, clock).run_once() is not None


def test_a_leader_of_this_machine_that_is_gone_is_not_waited_for(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    here = manager_id("0123456789ab")
    store.lead(Manager(1, here, "here", 2**22 + 1, s.LEADING, clock.now(), clock.now(), 15, "0"))  # above any pid
    assert candidate(store, clock).run_once() is not None


def test_who_was_slower_goes_on_standing_by(store: MemoryStore) -> None:
    clock = FakeClock()
    led_elsewhere(store, clock)
    one, other = candidate(store, clock), candidate(store, clock)
    assert one.run_once() is None and other.run_once() is None
    clock.advance(seconds=16)
    won = one.run_once()
    assert won is not None and won.row.manager_id != ELSEWHERE
    assert other.leader is not None and other.leader.term == 1, "as it last saw"


def test_the_heartbeat_notices_that_another_leads(store: MemoryStore) -> None:
    clock, result = FakeClock(), list[bool]()
    old = led_elsewhere(store, clock)
    heart = Heartbeat(old, clock, lease_s=15, on_lost=lambda: result.append(True))
    heart.run_once()
    assert heart.is_leader()
    led_elsewhere(store, clock, term=2)
    heart.run_once()
    assert not heart.is_leader() and result == [True]


def test_a_leader_whose_heartbeat_stood_still_does_not_lead_any_more(store: MemoryStore) -> None:
    clock = FakeClock()
    heart = Heartbeat(led_elsewhere(store, clock), clock, lease_s=15, on_lost=lambda: None)
    clock.advance(seconds=16)  # the machine slept
    assert not heart.is_leader(), "its tasks' writes are refused before it notices"


def test_storage_that_is_away_for_a_moment_costs_no_lease_but_for_long_it_does(store: MemoryStore) -> None:
    clock, result = FakeClock(), list[bool]()
    leader = led_elsewhere(store, clock)
    heart = Heartbeat(leader, clock, lease_s=15, on_lost=lambda: result.append(True))

    class Away:
        def heartbeat(self, *_: object, **__: object) -> None:
            raise StateError("Table manager can't be written: connection refused")

    heart._leader = Away()  # type: ignore[assignment]
    clock.advance(seconds=5)
    heart.run_once()
    assert heart.is_leader() and not result
    clock.advance(seconds=11)
    heart.run_once()
    assert not heart.is_leader() and result == [True]


class AwayFor:
    """Sets `stop` after so many waits, and lets time pass in each. `store` can't be reached from the second look on, so many
    times."""

    def __init__(self, store: MemoryStore, clock: FakeClock, looks: int) -> None:
        self._clock, self._lease, self.looks, self.left = clock, store.lease, 0, looks
        store.lease = self._look  # type: ignore[method-assign]

    def _look(self) -> Manager | None:
        self.looks += 1
        if self.looks > 1 and self.left:
            self.left -= 1
            raise StateUnavailable("Table manager can't be read: connection refused")
        return self._lease()

    def is_set(self) -> bool:
        return False

    def wait(self, seconds: float) -> None:
        self._clock.advance(seconds=seconds)


def test_a_standby_waits_for_storage_that_is_away(store: MemoryStore, capfd: pytest.CaptureFixture[str]) -> None:
    clock = FakeClock()
    led_elsewhere(store, clock)
    away = AwayFor(store, clock, looks=20)
    leader = candidate(store, clock).wait(away)  # type: ignore[arg-type]
    assert leader is not None and leader.term == 2 and away.left == 0
    assert capfd.readouterr().err.count("waiting: Table manager can't be read: connection refused") == 1


def test_a_standby_ends_when_storage_stays_away_and_its_supervisor_starts_it_again(store: MemoryStore) -> None:
    clock = FakeClock()
    led_elsewhere(store, clock)
    with pytest.raises(StateLost, match="connection refused") as ended:
        candidate(store, clock).wait(AwayFor(store, clock, looks=10_000))  # type: ignore[arg-type]
    assert ended.value.exit_code == 1 and clock.monotonic() == pytest.approx(MAX_AWAY_S, abs=3)


def test_a_state_that_can_not_be_read_at_the_start_is_refused(store: MemoryStore) -> None:
    clock = FakeClock()
    away = AwayFor(store, clock, looks=10_000)
    away.looks = 1
    with pytest.raises(StateUnavailable):
        candidate(store, clock).wait(away)  # type: ignore[arg-type]


def test_a_standby_of_a_state_in_a_catalog_does_not_wait_for_spark_that_is_gone(store: MemoryStore) -> None:
    clock = FakeClock()
    led_elsewhere(store, clock)
    standby = LeaderElector(store, clock, lease_s=15, spark_gone_reason=lambda: "its JVM has ended")
    with pytest.raises(SparkGone, match="its JVM has ended"):
        standby.wait(AwayFor(store, clock, looks=10_000))  # type: ignore[arg-type]
    assert clock.monotonic() < 15
