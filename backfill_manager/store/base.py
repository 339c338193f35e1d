"""The contract of every engine. One suite (`tests/store/test_contract.py`) runs on all three.

`Store` is for everyone: it reads everything, and appends to `request`. `Leader` is for the one leading manager: it alone
writes the other tables, and each of its commits carries its term, so that a leader that was overtaken fails with `LostLease`
at its next commit and has changed nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar

from backfill_manager.errors import LostLease
from backfill_manager.model import states
from backfill_manager.model.records import Manager, Record, Request
from backfill_manager.model.transitions import Changes
from backfill_manager.number_ranges import Ranges
from backfill_manager.store.uri import canonical_place

if TYPE_CHECKING:
    import pyarrow as pa

    from backfill_manager.store.whole_tables import PinnedTables

R = TypeVar("R", bound=Record)
Operator = Literal[
    "=", "!=", "<", "<=", ">", ">=", "in", "is_null", "not_null", "starts_with", "shorter_than", "in_ranges"
]
# Parents are committed after their children; a child whose parent never came is an orphan of a tick that broke off.
CHILDREN: Final[Mapping[str, tuple[str, ...]]] = {
    "dag_run": ("task_instance", "task_try", "table_access", "check_result", "task_log"),
    "backfill": ("backfill_item",),
}


@dataclass(frozen=True)
class Condition:
    """`Condition("state", "in", ("queued", "running"))`. A comparison with a null column is not true, as in SQL.
    `shorter_than` compares the number of characters of a text; the value of `in_ranges` are `number_ranges.Ranges`."""

    column: str
    operator: Operator
    value: Any = None


def matching(**values: Any) -> list[Condition]:
    """A condition for each column that a value is given for: `=`, or `in` for a tuple or list. None and an empty tuple or
    list don't restrict."""
    return [
        Condition(column, "in", tuple(value)) if isinstance(value, (tuple, list)) else Condition(column, "=", value)
        for column, value in values.items()
        if value is not None and value not in ((), [])
    ]


def spanning(column: str, values: Collection[Any]) -> list[Condition]:
    """From the least of the values to the greatest, of which a store knows the files."""
    return [Condition(column, ">=", min(values)), Condition(column, "<=", max(values))]


def items_to_move(backfill_id: str, state: str, ordinals: Ranges | None) -> list[Condition]:
    """The items of a backfill in a state, of these ordinals (None: all)."""
    of_ordinals = [] if ordinals is None else [Condition("ordinal", "in_ranges", ordinals)]
    return [*matching(backfill_id=backfill_id, state=state), *of_ordinals]


@dataclass(frozen=True)
class Finding:
    """A result of `state check` for one table: a damaged table may have several."""

    table: str
    ok: bool
    message: str  # what is wrong, where, and what to do
    file: str | None = None  # the damaged one, below the table's folder


class ChangedTables(NamedTuple):
    """The tables that `Store.init` had to touch, by name."""

    created: list[str]
    upgraded: list[str]


class Store(ABC):
    engine: str  # "memory", "delta-rs", "delta-spark"
    root: str

    @property
    def place(self) -> str:
        """Where this state is: the same text for the same place, however `root` spells it."""
        return canonical_place(self.root)

    @abstractmethod
    def init(self, *, recreate: bool = False) -> ChangedTables:
        """Creates the tables of a new state, and adds columns that an older release did not have. Idempotent. A table that is
        missing from a state is made anew, empty, only with `recreate`. `StateError` if one is, if the state can't be written,
        is of a newer version, or of another engine."""

    def check_promises(self) -> None:  # noqa: B027 - most engines have nothing to ask of their storage
        """`StateError` if the storage lets two writers make the same commit: no leader could be fenced there. `init` asks it
        of the storage of a new state."""

    @abstractmethod
    def exists(self) -> bool:
        """True when the state has been created (cheap: looks at one table)."""

    def was_begun(self) -> bool:
        """`exists`, or what is left of a state whose lease is lost, or whose import broke off."""
        return self.exists()

    @abstractmethod
    def check(self) -> list[Finding]:
        """Checks every table: there, readable, right columns, right version and engine, no features others lack."""

    @abstractmethod
    def locations(self) -> dict[str, str]:
        """Table name -> its URI or three-part name, for people who read it with other tools."""

    @abstractmethod
    def read(
        self, record: type[R], where: Sequence[Condition] = (), order_by: Sequence[str] = (), limit: int | None = None,
        without: Sequence[str] = (),
    ) -> list[R]:  # fmt: skip
        """Rows that meet every condition. `order_by` names columns, `-` before one is descending; nulls come last.
        `without`: columns that are not read and are None in the rows, which are to be shown and never to be committed."""

    def first(
        self, record: type[R], where: Sequence[Condition], order_by: Sequence[str] = (), without: Sequence[str] = ()
    ) -> R | None:
        """The first of these rows, if there are any."""
        return next(iter(self.read(record, where, order_by, 1, without)), None)

    @abstractmethod
    def read_arrow(self, table: str, columns: Sequence[str], where: Sequence[Condition] = ()) -> pa.Table:
        """The same as an Arrow table (instants as timestamp[us, UTC]), for what must not become Python rows."""

    @abstractmethod
    def count(self, table: str, by: Sequence[str], where: Sequence[Condition] = ()) -> dict[tuple[Any, ...], int]:
        """Number of rows for each combination of the columns `by` (an empty `by` gives one total under `()`)."""

    @abstractmethod
    def unanswered(self) -> list[Request]:
        """Requests without a response, oldest first; one row for each request id."""

    @abstractmethod
    def version(self, table: str) -> int:
        """A number that changes whenever the table has. Takes milliseconds: it is called many times a second, by caches."""

    def requests_version(self) -> int:
        """A number that changes when a request has arrived."""
        return self.version(Request.TABLE)

    @abstractmethod
    def query(self, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Runs one read-only SQL statement over the state tables (names as they are): column names and rows. Results of
        tasks (`result_json`) come as they are shown: without the secrets that their tries knew of. `InvalidInput` for anything
        that is not a single query, or that the engine can't run."""

    @abstractmethod
    def pin(self) -> PinnedTables:
        """All tables as they are at this moment, to be read as streams of batches."""

    @abstractmethod
    def fill(self, batches_of: Callable[[str], Iterator[pa.RecordBatch]]) -> None:
        """Makes the tables of a state that is not there yet, or that has no row, with these rows of each, lease and all.
        Broken off, it leaves a state that can't be led."""

    @abstractmethod
    def append_request(self, request: Request) -> None:
        """Appends one request. The only write open to clients; many may do so at once. `StateError` if it can't."""

    @abstractmethod
    def lease(self) -> Manager | None:
        """The row of the highest term, or None when nobody has ever led."""

    @abstractmethod
    def lead(self, row: Manager) -> Leader:
        """Takes the lease with this row, whose term is one above the last one read: appends it by compare-and-swap, then
        puts a fencing commit into every table that leaders write. `LostLease` if another manager was quicker. Deletes the
        orphans of a predecessor that crashed in the middle of a tick."""

    def read_copies(self) -> None:  # noqa: B027 - where reading costs no round trips, there is nothing to be gained
        """For commands, which begin anew each time, and pages: may copy what is read inside of `refresh_once` to this machine."""

    def prepare_reads(self, is_over: Callable[[], bool]) -> None:  # noqa: B027 - most engines have nothing to prepare
        """What the first reads would wait for, until `is_over`. For a thread of a server that has just started; what goes wrong
        is met again by who reads."""

    def close(self) -> None:  # noqa: B027 - most engines hold nothing
        """Releases whatever is held."""


def check_next_term(row: Manager, last_term: int) -> None:
    if row.term != last_term + 1:
        raise LostLease(f"Term {row.term} can't be taken: the last one is {last_term or 'none'}.")


class Term:
    """A term of leadership, which may be over."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._over: str | None = None

    def check(self) -> None:
        if self._over:
            raise LostLease(self._over)

    def lost(self) -> LostLease:
        return self.end(f"Term {self.number} is over: another manager has written to the state.")

    def end(self, reason: str) -> LostLease:
        """From now on every commit fails with this `LostLease`."""
        self._over = reason
        return LostLease(reason)


class Leader(ABC):
    """The writing half. Not thread-safe but for `heartbeat`, which has a table of its own."""

    def __init__(self, row: Manager, first_seq: int, term: Term) -> None:
        self.row = row
        self._next_seq = first_seq
        self._term = term

    @property
    def term(self) -> int:
        return self.row.term

    def next_seq(self, n: int = 1) -> int:
        """Reserves `n` consecutive numbers of `run_seq`; returns the first. Higher than every number in the state."""
        first, self._next_seq = self._next_seq, self._next_seq + n
        return first

    @abstractmethod
    def commit(self, changes: Changes) -> None:
        """The group commit of a tick: for each touched table, in `COMMIT_ORDER`, one MERGE by `run_seq` and key (or one
        append, for tables whose rows never change). `LostLease` if this term is over; a table whose commit failed, and
        those after it, are unchanged."""

    @abstractmethod
    def append_items(self, items: pa.Table) -> None:
        """Appends planned items (columns of `backfill_item`) as they are, never as Python rows. Items that a crashed
        attempt left under the same backfill id are replaced."""

    @abstractmethod
    def move_items(self, backfill_id: str, was: str, state: str, reason: str, ordinals: Ranges | None = None) -> None:
        """Every item of this backfill in the state `was` (of these ordinals) takes `state`, with the reason, in one
        statement: there may be a million of them. `LostLease` as in `commit`."""

    @abstractmethod
    def delete(self, table: str, where: Sequence[Condition]) -> None:
        """Deletes the rows that meet every condition. Of `request`, which clients append to at any time: none if one of them
        was quicker. `LostLease` as in `commit`."""

    def heartbeat(self, at: datetime, **figures: Any) -> None:
        """Writes into the lease row that this leader is alive, and its figures (columns of `Manager`; None is left out).
        `LostLease` if it does not lead any more."""
        self._update_lease(heartbeat_at=at, **{name: value for name, value in figures.items() if value is not None})

    def resign(self, at: datetime, **figures: Any) -> None:
        """Gives the lease back (`stopped`), so that a standby need not wait for it to run out. `figures` as in `heartbeat`."""
        known = {name: value for name, value in figures.items() if value is not None}
        self._update_lease(state=states.STOPPED, heartbeat_at=at, ended_at=at, **known)
        self._term.end(f"Term {self.term} is over: it was given back.")

    @abstractmethod
    def _update_lease(self, **fields: Any) -> None: ...

    @abstractmethod
    def compact(self, *, everywhere: bool = False) -> dict[str, int]:
        """Compacts, checkpoints, cleans the log and vacuums where it is due, or `everywhere`, thoroughly; returns table ->
        number of files. Called between ticks, from the thread that commits."""
