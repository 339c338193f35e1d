"""Turns at tables: who may write a table now, in the order in which they asked.

Two writers that replace different intervals of one unpartitioned table conflict in Delta (12 to 14 of 16 fail, measured), so the
commits of a manager to a table are made one after another, each of one write or of many (output_group_commit.py). INSERTs of SQL
tasks, which never conflict with each other, share a turn: they hold it together. Writers outside of the manager meet
Delta's own check.

The queues are in the manager's process. Its threads (SQL tasks) wait in `acquire`. A task process sends a message instead; the
manager asks in its name by `request`, which keeps no thread waiting. Each try has a `TurnHolder`, so that none of its turns
stays taken, whatever becomes of the try.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from backfill_manager.errors import AbandonedTry

Turn = contextlib.AbstractContextManager[object]  # that has come; it ends with the `with` block


class Turns(Protocol):
    """What the writes of a try need: turns at tables, which are named by `OutputTable.identity`."""

    def try_acquire(self, identity: str, *, shared: bool = False) -> Turn | None:
        """A turn if it is free and nobody waits for it, else None."""

    def acquire(self, identity: str, *, shared: bool = False) -> Turn:
        """Waits for a turn. `AbandonedTry` if the try is stopped before it comes."""
        ...


class TableTurn:
    """A turn that was asked for: it waits, is held, or is over."""

    def __init__(
        self, turns: TableTurns, holder: TurnHolder, identity: str, *, shared: bool, on_turn: Callable[[], None]
    ) -> None:
        self.holder, self.identity, self.shared = holder, identity, shared
        self.state: Literal["waiting", "held", "over"] = "waiting"  # changed by `turns`, under its lock
        self._turns, self._on_turn = turns, on_turn
        self._has_changed = threading.Event()

    def release(self) -> None:
        """A held turn goes to the next ones, one that waits is withdrawn. Harmless when repeated."""
        self._turns.end([self])

    def wait(self) -> TableTurn:
        """Returns when it is held. `AbandonedTry` if it was withdrawn before that."""
        try:
            self._has_changed.wait()
        except BaseException:  # an interrupt of this thread
            self.release()
            raise
        if self.state != "held":
            raise AbandonedTry(f"this try ended while it waited for its turn at {self.identity}; it writes no more")
        return self

    def announce(self, *, has_come: bool) -> None:
        """It does not wait any more."""
        self._has_changed.set()
        if has_come:
            self._on_turn()

    def __enter__(self) -> TableTurn:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


@dataclass(frozen=True)
class Queued:
    """A table that somebody waits for."""

    held: frozenset[TableTurn]
    waiting: tuple[TableTurn, ...]


class _Queue:
    """The turns at one table that wait or are held."""

    def __init__(self) -> None:
        self.waiting: dict[TableTurn, None] = {}  # in the order of arrival
        self.held: set[TableTurn] = set()

    def is_free(self, *, shared: bool) -> bool:
        """Whether one more may hold it: nobody does, or it is shared by all."""
        return not self.held or (shared and next(iter(self.held)).shared)

    def admit(self) -> list[TableTurn]:
        """Gives their turn to those who come first, as many as can have it together; returns these."""
        admitted: list[TableTurn] = []
        while self.waiting and self.is_free(shared=(first := next(iter(self.waiting))).shared):
            del self.waiting[first]
            self.held.add(first)
            first.state = "held"
            admitted.append(first)
        return admitted


class TableTurns:
    """The queues of all tables; a table that nobody uses has none. Used by `TurnHolder`s, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the states of all turns, and the holders
        self._queues: dict[str, _Queue] = {}

    def add(self, turn: TableTurn, holder: TurnHolder, *, only_if_free: bool = False) -> bool:
        """Puts it into its queue; False if it is `only_if_free` and is not."""
        with self._lock:
            holder.check_open()
            queue = self._queues.get(turn.identity) or _Queue()
            if only_if_free and (queue.waiting or not queue.is_free(shared=turn.shared)):
                return False
            self._queues[turn.identity] = queue
            queue.waiting[turn] = None
            holder.turns = [*(other for other in holder.turns if other.state != "over"), turn]
            admitted = queue.admit()
        _announce(admitted)
        return True

    def end(self, turns: Iterable[TableTurn]) -> None:
        """Those that are held go to the next ones, those that wait are withdrawn."""
        with self._lock:
            withdrawn, admitted = self._end(turns)
        _announce(admitted, withdrawn)

    def close(self, holder: TurnHolder, *, only_waiting: bool) -> None:
        """Ends its turns, or those that wait; it gets no further ones."""
        with self._lock:
            holder.is_closed = True
            ended = [turn for turn in holder.turns if not only_waiting or turn.state == "waiting"]
            withdrawn, admitted = self._end(ended)
        _announce(admitted, withdrawn)

    def queued(self) -> dict[str, Queued]:
        """By identity, the tables for which somebody waits."""
        with self._lock:
            queues = self._queues.items()
            return {
                identity: Queued(frozenset(queue.held), tuple(queue.waiting))
                for identity, queue in queues
                if queue.waiting
            }

    def _end(self, turns: Iterable[TableTurn]) -> tuple[list[TableTurn], list[TableTurn]]:
        """Returns those that are withdrawn, and those whose turn has come by that."""
        withdrawn: list[TableTurn] = []
        changed: dict[str, _Queue] = {}
        for turn in turns:
            if turn.state == "over":
                continue
            queue = changed[turn.identity] = self._queues[turn.identity]
            if turn.state == "waiting":
                del queue.waiting[turn]
                withdrawn.append(turn)
            else:
                queue.held.remove(turn)
            turn.state = "over"
        admitted: list[TableTurn] = []
        for identity, queue in changed.items():  # when all have left: none of them gets what another one frees
            admitted += queue.admit()
            if not queue.held:  # then nobody waits either
                del self._queues[identity]
        return withdrawn, admitted


def _announce(admitted: Iterable[TableTurn], withdrawn: Iterable[TableTurn] = ()) -> None:
    """Outside of the lock: who is called may ask for turns and end them. Each is called, whatever another one raises."""
    with contextlib.ExitStack() as calls:
        for turn in reversed([*admitted]):
            calls.callback(turn.announce, has_come=True)
        for turn in withdrawn:
            calls.callback(turn.announce, has_come=False)


class TurnHolder:
    """The turns of one try (a `Turns`). Thread-safe."""

    def __init__(self, turns: TableTurns, name: str = "a write") -> None:
        """`name`: whose they are, for the log."""
        self._turns, self.name = turns, name
        self.turns: list[TableTurn] = []  # waiting or held; some are over. Like `is_closed` changed by `TableTurns`
        self.is_closed = False

    def request(self, identity: str, *, shared: bool = False, on_turn: Callable[[], None] = lambda: None) -> TableTurn:
        """Asks for a turn without waiting for it. `on_turn` is called once when it has come: here, or in the thread that frees
        the table, so it must neither block nor raise. A turn that another thread releases at that moment may be over by then.
        `AbandonedTry` if the try has been stopped."""
        turn = TableTurn(self._turns, self, identity, shared=shared, on_turn=on_turn)
        self._turns.add(turn, self)
        return turn

    def try_acquire(self, identity: str, *, shared: bool = False) -> TableTurn | None:
        """A turn if it is free and nobody waits for it. `AbandonedTry` if the try has been stopped."""
        turn = TableTurn(self._turns, self, identity, shared=shared, on_turn=lambda: None)
        return turn if self._turns.add(turn, self, only_if_free=True) else None

    def acquire(self, identity: str, *, shared: bool = False) -> TableTurn:
        """Waits for a turn. `AbandonedTry` if the try is stopped before it comes."""
        return self.request(identity, shared=shared).wait()

    def stop_waiting(self) -> None:
        """The try is stopped: turns that it waits for are withdrawn and it gets no further ones. It keeps those that it holds, as
        it may be writing."""
        self._turns.close(self, only_waiting=True)

    def release_all(self) -> None:
        """The try has ended: so have all its turns."""
        self._turns.close(self, only_waiting=False)

    def check_open(self) -> None:
        if self.is_closed:
            raise AbandonedTry("this try is over; it writes no more")


# All managers of a process (one after another, or of several states in tests) share them, as they may share tables.
PROCESS_TURNS: Final = TableTurns()
