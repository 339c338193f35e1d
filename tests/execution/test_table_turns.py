"""Turns at a table: in order of arrival, appends together, and none that stays taken."""

from __future__ import annotations

import random
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule
from support.waiting_turns import turns_waiting

from backfill_manager.errors import AbandonedTry
from backfill_manager.execution.output.table_turns import TableTurn, TableTurns, TurnHolder

PATIENCE = 60.0


class Asked:
    """Tries that have asked for a turn at table `t`, by letter; capital letters have the table alone, small ones share it."""

    def __init__(self) -> None:
        self.turns, self.came = TableTurns(), ""
        self.holders: dict[str, TurnHolder] = {}
        self._by_name: dict[str, TableTurn] = {}

    def ask(self, *names: str, table: str = "t") -> Asked:
        for name in names:
            holder = self.holders.setdefault(name, TurnHolder(self.turns))
            self._by_name[name] = holder.request(
                table, shared=name.islower(), on_turn=lambda name=name: self._note(name)
            )
        return self

    def _note(self, name: str) -> None:
        assert not self.turns._lock.locked(), "nobody is called under the lock"
        self.came += name

    def release(self, *names: str) -> None:
        for name in names:
            self._by_name[name].release()


@pytest.fixture
def asked() -> Asked:
    return Asked()


def test_writers_have_the_table_one_after_another_in_the_order_in_which_they_came(asked: Asked) -> None:
    asked.ask("A", "B", "C")
    for name, came in (("A", "A"), ("B", "AB"), ("C", "ABC")):
        assert asked.came == came
        asked.release(name)
    assert asked.came == "ABC"


def test_appends_have_it_together_and_pass_nobody_who_came_before(asked: Asked) -> None:
    asked.ask("a", "b", "M", "c", "d")
    assert asked.came == "ab"
    asked.release("a")
    assert asked.came == "ab"
    asked.release("b")
    assert asked.came == "abM"
    asked.release("M")
    assert asked.came == "abMcd"


def test_one_that_waits_can_be_withdrawn_and_those_behind_it_move_up(asked: Asked) -> None:
    asked.ask("a", "M", "b", "N")
    asked.release("M")
    assert asked.came == "ab"
    asked.release("a", "b")
    assert asked.came == "abN", "M never came"


def test_to_release_a_turn_twice_takes_nothing_from_the_next_one(asked: Asked) -> None:
    asked.ask("A", "B", "C")
    asked.release("A", "A", "A")
    assert asked.came == "AB"


def test_tables_do_not_know_each_other_and_one_that_nobody_uses_is_forgotten(asked: Asked) -> None:
    asked.ask("A").ask("B", table="u")
    assert asked.came == "AB"
    asked.ask("C")
    assert (turns_waiting(asked.turns, "t"), turns_waiting(asked.turns, "u"), turns_waiting(asked.turns, "v")) == (
        1,
        0,
        0,
    )
    asked.release("A", "B", "C")
    assert asked.turns._queues == {}


def test_who_does_not_want_to_wait_gets_none() -> None:
    turns = TableTurns()
    one, other = TurnHolder(turns), TurnHolder(turns)
    alone = one.try_acquire("t")
    assert alone is not None
    assert other.try_acquire("t") is None and other.try_acquire("t", shared=True) is None
    alone.release()
    first, second = one.try_acquire("t", shared=True), other.try_acquire("t", shared=True)
    assert first is not None and second is not None and other.try_acquire("t") is None
    waits = one.request("t")
    assert other.try_acquire("t", shared=True) is None, "another one waits already"
    first.release()
    second.release()
    assert waits.state == "held"


def test_it_is_free_again_after_an_error() -> None:
    holder = TurnHolder(TableTurns())
    with pytest.raises(RuntimeError), holder.acquire("t"):
        raise RuntimeError("the disk is full")
    assert holder.try_acquire("t") is not None


def test_a_try_that_has_ended_holds_nothing_waits_for_nothing_and_gets_nothing(asked: Asked) -> None:
    asked.ask("A", "B", "C").ask("A", table="u").ask("D", table="u")
    asked.ask("A")  # again, behind C
    asked.holders["A"].release_all()
    assert asked.came == "AABD" or asked.came == "AADB"
    asked.release("B", "C")
    assert turns_waiting(asked.turns, "t") == 0
    asked.holders["A"].release_all()
    for late in (asked.holders["A"].request, asked.holders["A"].try_acquire, asked.holders["A"].acquire):
        with pytest.raises(AbandonedTry, match="this try is over"):
            late("t")


def test_a_try_that_is_stopped_keeps_what_it_holds_and_waits_no_more(asked: Asked) -> None:
    asked.ask("A").ask("X", table="u").ask("A", table="u").ask("B", table="u").ask("C")
    asked.holders["A"].stop_waiting()
    assert asked.came == "AX"
    asked.release("X")
    assert asked.came == "AXB"
    asked.holders["A"].release_all()
    assert asked.came == "AXBC"


def test_a_thread_that_waits_for_its_turn_is_let_go_when_its_try_is_stopped() -> None:
    turns = TableTurns()
    holder, complaint, waits = TurnHolder(turns), [], threading.Event()
    turn = TurnHolder(turns).acquire("t")

    def write() -> None:
        mine = holder.request("t")
        waits.set()
        with pytest.raises(AbandonedTry) as refused:
            mine.wait()
        complaint.append(str(refused.value))

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    assert waits.wait(PATIENCE)
    holder.stop_waiting()
    thread.join(PATIENCE)
    assert complaint == ["this try ended while it waited for its turn at t; it writes no more"]
    turn.release()
    assert turns._queues == {}


def test_a_listener_that_fails_keeps_nobody_else_from_the_turn_that_came_with_it(asked: Asked) -> None:
    asked.ask("M")

    def fails() -> None:
        raise RuntimeError("a bug of the listener")

    TurnHolder(asked.turns).request("t", shared=True, on_turn=fails)
    asked.ask("a")
    with pytest.raises(RuntimeError, match="a bug of the listener"):
        asked.release("M")
    assert asked.came == "Ma"


# -- any sequence -----------------------------------------------------------------------------------------------------


class Sequence(RuleBasedStateMachine):
    """Whatever is asked, released, withdrawn and ended: nobody is passed, nobody shares who must not, nobody is forgotten."""

    holders = Bundle("holders")
    requests = Bundle("requests")

    @initialize()
    def begin(self) -> None:
        self.turns = TableTurns()
        self.came: Counter[int] = Counter()  # how often each request has heard that its turn has come
        self.live: dict[int, tuple[TurnHolder, TableTurn]] = {}  # in the order of arrival
        self.had: set[int] = set()  # those that were seen with their turn
        self.closed: set[TurnHolder] = set()
        self.last = 0

    @rule(target=holders)
    def new_try(self) -> TurnHolder:
        return TurnHolder(self.turns)

    @rule(target=requests, holder=holders, table=st.sampled_from("tu"), shared=st.booleans())
    def ask(self, holder: TurnHolder, table: str, shared: bool) -> int:
        self.last = number = self.last + 1
        if holder in self.closed:
            with pytest.raises(AbandonedTry):
                holder.request(table, shared=shared)
        else:
            turn = holder.request(table, shared=shared, on_turn=lambda: self.came.update([number]))
            self.live[number] = (holder, turn)
        return number

    @rule(target=requests, holder=holders, table=st.sampled_from("tu"), shared=st.booleans())
    def try_at_once(self, holder: TurnHolder, table: str, shared: bool) -> int:
        self.last = number = self.last + 1
        if holder in self.closed:
            return number
        others = [turn for _, turn in self.live.values() if turn.identity == table]
        is_free = all(turn.state == "held" and turn.shared and shared for turn in others)
        turn = holder.try_acquire(table, shared=shared)
        assert (turn is not None) == is_free
        if turn is not None:
            self.live[number] = (holder, turn)
            self.came[number] += 1
        return number

    @rule(table=st.sampled_from("tu"), shared=st.booleans())
    def one_that_ends_as_soon_as_its_turn_comes(self, table: str, shared: bool) -> None:
        holder, number = TurnHolder(self.turns), self.last + 1
        self.last = number

        def end() -> None:
            self.came[number] += 1
            self.live.pop(number, None)
            holder.release_all()

        turn = holder.request(table, shared=shared, on_turn=end)
        if turn.state != "over":
            self.live[number] = (holder, turn)

    @rule(number=requests)
    def release(self, number: int) -> None:
        """Or withdraw, or once more."""
        if number in self.live:
            self.live.pop(number)[1].release()

    @rule(holder=holders)
    def stop_waiting(self, holder: TurnHolder) -> None:
        self.closed.add(holder)
        self.live = {n: (h, turn) for n, (h, turn) in self.live.items() if h is not holder or turn.state == "held"}
        holder.stop_waiting()

    @rule(holder=holders)
    def release_all(self, holder: TurnHolder) -> None:
        self.closed.add(holder)
        self.live = {n: (h, turn) for n, (h, turn) in self.live.items() if h is not holder}
        holder.release_all()

    @invariant()
    def nobody_is_passed_forgotten_or_disturbed(self) -> None:
        for table in "tu":
            states = [turn.state for _, turn in self.live.values() if turn.identity == table]
            shared = [turn.shared for _, turn in self.live.values() if turn.identity == table]
            held = states.count("held")
            assert states == ["held"] * held + ["waiting"] * (len(states) - held), "in the order of arrival"
            assert held == 1 or all(shared[:held]), "alone, or all share it"
            if held < len(states):
                assert held and not all(shared[: held + 1]), "the first that waits could not have it now"
            assert turns_waiting(self.turns, table) == len(states) - held
            assert (table in self.turns._queues) == bool(states)

    @invariant()
    def each_hears_once_that_its_turn_has_come(self) -> None:
        for number, (_, turn) in self.live.items():
            assert self.came[number] == (turn.state == "held")
        assert set(self.came.values()) <= {1}


TestAnySequence = Sequence.TestCase
TestAnySequence.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


# -- threads ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def impatient_threads() -> Iterator[None]:
    """Python passes from thread to thread as often as it can."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("impatient_threads")
def test_many_threads_over_few_tables_never_write_where_another_one_does() -> None:
    turns, guard = TableTurns(), threading.Lock()
    inside: dict[str, Counter[str]] = {"t": Counter(), "u": Counter()}
    written: Counter[str] = Counter()
    wrong: list[Any] = []

    def write(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(60):
            holder, table, shared = TurnHolder(turns), rng.choice("tu"), rng.random() < 0.4
            how = rng.choice(["acquire", "try", "withdraw", "listen"])
            if how == "withdraw":
                holder.request(table, shared=shared)
                holder.release_all()
                continue
            if how == "listen":
                came = threading.Event()
                turn: TableTurn | None = holder.request(table, shared=shared, on_turn=came.set)
                if not came.wait(PATIENCE):
                    wrong.append(f"a wake-up was lost at {table}")
                    return
            else:
                turn = (holder.acquire if how == "acquire" else holder.try_acquire)(table, shared=shared)
            if turn is None:
                continue
            with guard:
                inside[table]["shared" if shared else "alone"] += 1
                if inside[table]["alone"] + bool(inside[table]["shared"]) > 1:
                    wrong.append((table, dict(inside[table])))
                written[table] += 1
            with guard:
                inside[table]["shared" if shared else "alone"] -= 1
            turn.release() if rng.random() < 0.5 else holder.release_all()

    threads = [threading.Thread(target=write, args=(seed,), daemon=True) for seed in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == [] and min(written.values()) > 50
    assert turns._queues == {}
