"""Every interleaving of two managers, a client and their clocks, to a fixed depth: two leaders never both commit, and no request
is lost or answered twice.

The managers are the real `LeaderElector` and `Heartbeat` over the real store in memory, whose fence is that of the contract
(tests/store/test_contract.py). One step is one access to the store, or time that passes: for both machines, or for one while
the other sleeps; a step that does not come is a manager under SIGSTOP. A state that was reached before is not gone on from again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import nullcontext
from datetime import datetime, timedelta
from unittest.mock import Mock

import pytest
from support.state_changes import changes, request, response

from backfill_manager.errors import LostLease
from backfill_manager.manager import leader_election
from backfill_manager.manager.leader_election import Heartbeat, LeaderElector
from backfill_manager.model.records import Manager, Request, Response
from backfill_manager.store.base import Leader
from backfill_manager.testing import FakeClock, MemoryStore

LEASE_S = 15
PAUSE_S = 8.0  # two of them are longer than a lease
REQUESTS = 2


class JumpingClock(FakeClock):
    """Its wall clock can be set; time that passes is another matter."""

    jumped = timedelta(0)
    slept_s = 0.0

    def boottime(self) -> float:
        return super().boottime() + self.slept_s

    def now(self) -> datetime:
        return super().now() + self.jumped


class Machine:
    """A manager on a machine of its own, one access to the store at a time."""

    def __init__(self, name: str, store: MemoryStore) -> None:
        self.name, self.store = name, store
        self.clock = JumpingClock()
        self.decided: list[Request] | None = None
        self.start()

    def start(self) -> None:
        self.elector = LeaderElector(self.store, self.clock, lease_s=LEASE_S)
        self.elector._id = f"{self.name * 12}.{self.name * 8}"  # whether its process lives can't be known
        self.leader: Leader | None = None
        self.heart: Heartbeat | None = None

    def elect(self) -> None:
        if self.leader is None and (leader := self.elector.run_once()) is not None:
            self.leader = leader
            self.heart = Heartbeat(leader, self.clock, lease_s=LEASE_S)

    def beat(self) -> None:
        if self.heart is not None:
            self.heart.run_once()
            if not self.heart.is_leader():
                self.start()

    def decide(self) -> None:
        """The first half of a tick: what it reads, while it believes that it leads."""
        if self.heart is not None and self.heart.is_leader():
            self.decided = self.store.unanswered()

    def commit(self) -> int | None:
        """The second half, at any time after the first; the term it was made in, if it was."""
        decided, self.decided = self.decided, None
        if self.leader is None or not decided:
            return None
        try:
            self.leader.commit(changes(*(response(one, self.leader.term) for one in decided)))
        except LostLease:
            self.start()
            return None
        return self.leader.term

    def known(self) -> Hashable:
        """All that its next steps depend on."""
        now, heart, seen = self.clock.monotonic(), self.heart, self.elector.leader
        since_boot = self.clock.boottime()
        return (
            None if self.leader is None else self.leader.term,
            None if heart is None else min(since_boot - heart._last_beat, 2 * LEASE_S),
            seen == self.store.lease(),
            None if seen is None else min(now - self.elector._read_at, 2 * LEASE_S),
            self.clock.jumped,
            None if self.decided is None else tuple(one.request_id for one in self.decided),
        )


class World:
    def __init__(self) -> None:
        self.store = MemoryStore()
        self.store.init()
        self.a, self.b = Machine("a", self.store), Machine("b", self.store)
        self.asked = 0
        self.terms = list[int]()  # of the commits, in their order
        self.a.elect()

    def steps(self) -> dict[str, Callable[[], object]]:
        def passes(*awake: Machine) -> Callable[[], object]:
            def step() -> None:
                for machine in (self.a, self.b):
                    if machine in awake:
                        machine.clock.advance(seconds=PAUSE_S)
                    else:
                        machine.clock.slept_s += PAUSE_S

            return step

        steps: dict[str, Callable[[], object]] = {
            "client asks": self._ask,
            "time passes": passes(self.a, self.b),
            "time passes while a sleeps": passes(self.b),
            "time passes while b sleeps": passes(self.a),
            "the wall clock of a jumps by a day": lambda: setattr(self.a.clock, "jumped", timedelta(days=1)),
            "the wall clock of a jumps back": lambda: setattr(self.a.clock, "jumped", timedelta(days=-1)),
        }
        for machine in (self.a, self.b):
            steps |= {
                f"{machine.name} elects": machine.elect,
                f"{machine.name} beats": machine.beat,
                f"{machine.name} decides": machine.decide,
                f"{machine.name} commits": lambda machine=machine: self._commit(machine),  # type: ignore[misc]
            }
        return steps

    def _ask(self) -> None:
        if self.asked < REQUESTS:
            self.asked += 1
            self.store.append_request(request(f"ask{self.asked}"))

    def _commit(self, machine: Machine) -> None:
        if (term := machine.commit()) is not None:
            self.terms.append(term)

    def known(self) -> Hashable:
        answers = tuple(sorted((row.request_id, row.term) for row in self.store.read(Response)))
        leaders = tuple((row.term, row.manager_id, row.state) for row in self.store.read(Manager))
        return (leaders, self.asked, answers, self.a.known(), self.b.known(), *self.terms[-1:])

    def is_sound(self) -> None:
        assert self.terms == sorted(self.terms), "a former leader has committed after its successor"
        believing = [one.name for one in (self.a, self.b) if one.heart is not None and one.heart.is_leader()]
        assert len(believing) <= 1, "two may write output at the same time"
        answered = Counter(row.request_id for row in self.store.read(Response))
        assert all(times == 1 for times in answered.values()), f"answered twice: {answered}"

    def ends_well(self) -> None:
        """From here on only b is there: it comes to lead, and answers all that is left."""
        for _ in range(3):
            self.b.clock.advance(seconds=LEASE_S + 1)
            self.a.clock.slept_s += LEASE_S + 1
            self.b.beat()
            self.b.elect()
        self.b.decide()
        self._commit(self.b)
        self.is_sound()
        answered = {row.request_id for row in self.store.read(Response)}
        assert answered == {f"ask{n}" for n in range(1, self.asked + 1)}, "lost"


@pytest.fixture(autouse=True)
def nothing_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of leases run out here."""
    monkeypatch.setattr(leader_election, "log", Mock())


def after(path: tuple[str, ...]) -> World:
    world = World()
    for step in path:
        world.steps()[step]()
    return world


def interleavings(depth: int) -> Iterator[tuple[str, ...]]:
    """Paths of steps, one for each state that can be reached within so many."""
    names, seen, level = list(World().steps()), {World().known()}, [()]
    for _ in range(depth):
        level = [path for before in level for path in _new(before, names, seen)]  # type: ignore[misc]
        yield from level


def _new(before: tuple[str, ...], names: list[str], seen: set[Hashable]) -> Iterator[tuple[str, ...]]:
    for name in names:
        world = after((*before, name))
        world.is_sound()
        if (known := world.known()) not in seen:
            seen.add(known)
            yield (*before, name)


@pytest.mark.parametrize(("depth", "least"), [(6, 500), pytest.param(9, 3_000, marks=pytest.mark.slow)])
def test_in_every_interleaving_one_leads_and_each_request_is_answered_once(depth: int, least: int) -> None:
    paths, terms = 0, set[int]()
    for path in interleavings(depth):
        world = after(path)
        world.ends_well()
        paths += 1
        terms |= set(world.terms)
    assert paths >= least and len(terms) > 1, (paths, terms)


def test_a_model_without_the_fence_would_be_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exploration can fail: where a former leader's term is never over, it commits after its successor."""
    monkeypatch.setattr("backfill_manager.store.memory.MemoryLeader._committing", lambda self: nullcontext())
    path = (
        "client asks", "a decides", "time passes while a sleeps", "b elects", "time passes while a sleeps",
        "time passes while a sleeps", "b elects", "b decides", "b commits", "a commits",
    )  # fmt: skip
    with pytest.raises(AssertionError, match="a former leader has committed after its successor"):
        after(path).is_sound()
    assert after(path[:-1]).terms == [2]
