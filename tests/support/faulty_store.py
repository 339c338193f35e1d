"""Stores whose storage goes wrong by chance: around the memory store, and around the real delta-rs store.

What may happen to one use of storage: it fails; it is slow (a fake clock moves on); it fails and leaves half of what it was
to write; there is no space left, until a few more attempts have failed; it is carried out and the connection is lost before
the answer. Reads fail or are slow. Faults come only inside of `with faults.strike():`.
"""

from __future__ import annotations

import errno
import random
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from backfill_manager.errors import LostLease, StateError
from backfill_manager.model.records import TABLES, Manager, Record, Request, columns
from backfill_manager.requests import submit
from backfill_manager.store.base import Condition, Leader, R
from backfill_manager.store.delta_rs.store import DeltaRsStore
from backfill_manager.store.delta_rs.tables import DeltaRsTables
from backfill_manager.store.memory import MemoryStore
from backfill_manager.store.table_properties import arrow_schema
from backfill_manager.testing import FakeClock, InMemoryManager
from support.scenarios import Killed, a_third_kill_would_fail_a_task

FAILS, SLOW, HALF_WRITTEN, FULL, CUT_OFF = "fails", "slow", "half-written", "full", "cut off"
OF_READS, OF_WRITES = (FAILS, SLOW), (FAILS, SLOW, HALF_WRITTEN, FULL, CUT_OFF)
MAX_SLOW_S = 4.0


class Faults:
    """Which use of storage goes wrong, and how: `rate` of them."""

    def __init__(self, seed: int, clock: FakeClock, rate: float) -> None:
        self._chance, self._clock, self._rate = random.Random(seed), clock, rate
        self._on, self._full_for = False, 0
        self.seen: Counter[str] = Counter()

    @contextmanager
    def strike(self, when: bool = True) -> Iterator[None]:
        before, self._on = self._on, when
        try:
            yield
        finally:
            self._on = before

    @contextmanager
    def around(self, *, writes: bool, half_write: Callable[[], None] = lambda: None) -> Iterator[None]:
        kind = self._drawn(writes) if self._on else None
        if kind == SLOW:
            self._clock.advance(seconds=self._chance.uniform(0.1, MAX_SLOW_S))
        elif kind == HALF_WRITTEN:
            half_write()
            raise OSError(errno.EIO, "Input/output error")
        elif kind == FULL:
            raise OSError(errno.ENOSPC, "No space left on device")
        elif kind == FAILS:
            raise OSError(errno.ETIMEDOUT, "Connection timed out")
        with self.strike(when=False):  # one use of storage may be made of several
            yield
        if kind == CUT_OFF:
            raise OSError(errno.ECONNRESET, "Connection reset by peer")

    def _drawn(self, writes: bool) -> str | None:
        if writes and self._full_for:
            self._full_for -= 1
            return FULL
        if self._chance.random() >= self._rate:
            return None
        kind = self._chance.choice(OF_WRITES if writes else OF_READS)
        if kind == FULL:
            self._full_for = self._chance.randint(0, 5)
        self.seen[kind] += 1
        return kind


class FaultyMemoryStore(MemoryStore):
    """In memory: a commit of several tables may break off between any two."""

    def __init__(self, faults: Faults) -> None:
        super().__init__()
        self._faults = faults

    @contextmanager
    def _storage(self, writes: bool = False) -> Iterator[None]:
        try:
            with self._faults.around(writes=writes):
                yield
        except OSError as error:
            raise StateError(f"The state can't be used: {error}") from error

    def read(
        self, record: type[R], where: Sequence[Condition] = (), order_by: Sequence[str] = (), limit: int | None = None,
        without: Sequence[str] = (),
    ) -> list[R]:  # fmt: skip
        with self._storage():
            return super().read(record, where, order_by, limit, without)

    def count(self, table: str, by: Sequence[str], where: Sequence[Condition] = ()) -> dict[tuple[Any, ...], int]:
        with self._storage():
            return super().count(table, by, where)

    def unanswered(self) -> list[Request]:
        with self._storage():
            return super().unanswered()

    def lease(self) -> Manager | None:
        with self._storage():
            return super().lease()

    def append_request(self, request: Request) -> None:
        with self._storage(writes=True):
            super().append_request(request)

    def write(self, rows: Sequence[Record]) -> None:
        with self._storage(writes=True):
            super().write(rows)

    def replace(self, table: str, rows: list[Record]) -> None:
        with self._storage(writes=True):
            super().replace(table, rows)


class FaultyTables(DeltaRsTables):
    """Tables of delta-rs. What goes wrong does so inside of the package's own handling of errors."""

    def __init__(self, root: str, faults: Faults) -> None:
        super().__init__(root)
        self._faults = faults

    @contextmanager
    def translate_errors(self, table: str, doing: str = "read") -> Iterator[None]:
        with super().translate_errors(table, doing):
            half_write = lambda: self._leave_half_a_commit(table)  # noqa: E731
            with self._faults.around(writes=doing == "written", half_write=half_write):
                yield

    def _leave_half_a_commit(self, table: str) -> None:
        """As a writer that died: half of a data file, and a log entry that never got its name."""
        place = Path(self.location(table))
        (place / f"part-00001-{uuid.uuid4()}-c000.snappy.parquet").write_bytes(b"PAR1 and no more")
        (place / "_delta_log" / f"_commit_{uuid.uuid4()}.json.tmp").write_text('{"add":{"path":"part-0')


class FaultyDeltaStore(DeltaRsStore):
    """The real delta-rs store; with what `InMemoryManager` and its stories use of a `MemoryStore`."""

    def __init__(self, root: Path | str, faults: Faults, clock: FakeClock) -> None:
        super().__init__(str(root), clock=clock)
        self.tables = FaultyTables(str(root), faults)
        self._leader: Leader | None = None

    def lead(self, row: Manager) -> Leader:
        self._leader = super().lead(row)
        return self._leader

    def write(self, rows: Sequence[Record]) -> None:
        import pyarrow as pa

        assert self._leader is not None
        if rows:
            names, schema = list(columns(type(rows[0]))), arrow_schema(type(rows[0]))
            data = {name: [getattr(row, name) for row in rows] for name in names}
            self._leader.append_items(pa.table(data, schema=schema))

    def rows(self, table: str) -> list[Record]:
        return self.read(TABLES[table], order_by=TABLES[table].KEY)


class FaultyManager(InMemoryManager):
    """Ends when its storage fails it, as a real one does, and is started again until it leads. Clients repeat what they were
    not told to have arrived. A manager does not end for the third time in a row under one task (`test_crash_loops.py`)."""

    faults: Faults

    def tick(self) -> bool:
        try:
            with self.faults.strike(when=not a_third_kill_would_fail_a_task(self)):
                return super().tick()
        except (StateError, LostLease) as error:
            raise Killed from error

    def crash(self) -> None:
        while True:
            try:
                with self.faults.strike():
                    return super().crash()
            except (StateError, LostLease):
                continue

    def ask(self, kind: str, **payload: Any) -> None:
        request_id = self.clock.new_id()
        while True:
            try:
                with self.faults.strike():
                    submit.submit(self.store, self.clock, kind, payload, request_id=request_id, requested_by="tests")
                    return
            except StateError:
                continue
