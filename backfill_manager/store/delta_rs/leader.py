"""The leading half of the delta-rs engine: taking over, and commits that nobody but the leader can make.

Three things refuse a leader that was overtaken. It commits from handles that nobody refreshes, with no retries, so
that any commit of another makes its own a lost race. Each of its commits carries the term as an application
transaction, and whoever takes over first puts one such commit into every table. And a handle that has stood still for
so long that the log entries after it may have been cleaned away (a machine that slept) is compared with the table
before it is used.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from backfill_manager.clock import Clock
from backfill_manager.errors import LostLease, StateError
from backfill_manager.model import states
from backfill_manager.model.records import TABLES, BackfillItem, Manager, Record, columns, has_run_seq
from backfill_manager.model.transitions import Changes
from backfill_manager.store.base import Condition, Leader
from backfill_manager.store.compaction import CompactionTarget, Compactor
from backfill_manager.store.delta_rs.sql import arrow_table, literal, predicate, python_columns, run, select
from backfill_manager.store.delta_rs.tables import DeltaRsTables, translate_errors
from backfill_manager.store.rows import run_seq_spans, within
from backfill_manager.store.schema import LEADER_APP_ID, LED_TABLES, RETENTION_MINUTES

if TYPE_CHECKING:
    import pyarrow as pa

FENCE_ATTEMPTS: Final = 50  # a leader that doesn't know yet may commit between our look and our fence; not so often
STOOD_STILL: Final = timedelta(minutes=RETENTION_MINUTES / 2)
ITEM_FILE_BYTES: Final = 1_000_000  # about 70,000 planned items: a tick rewrites the one or two files it works in


def take_over(tables: DeltaRsTables, row: Manager, clock: Clock) -> DeltaRsLeader:
    """Lease row, fence in every table, sweep; see `Store.lead`."""
    lease = tables.open(Manager.TABLE)
    last = _value(lease, Manager.TABLE, "max(term)") or 0
    if row.term != last + 1:
        raise LostLease(f"Term {row.term} can't be taken: the last one is {last or 'none'}.")
    with translate_errors(Manager.TABLE, tables.place(Manager.TABLE), "written"):
        try:
            _append(lease, arrow_table(Manager, [row]), row.term)
        except CommitFailedError as error:
            raise LostLease(
                f"Term {row.term} can't be taken: another manager was quicker, or the leader is alive."
            ) from error
    handles = {Manager.TABLE: lease, **{name: _fenced(tables, name, row.term) for name in LED_TABLES}}
    highest = max(_value(handles[name], name, "max(run_seq)") or 0 for name in LED_TABLES if has_run_seq(TABLES[name]))
    leader = DeltaRsLeader(tables, row, handles, highest + 1, clock)
    leader.sweep("dag_run", ("task_instance", "task_try", "task_log"))
    leader.sweep("backfill", (BackfillItem.TABLE,))
    return leader


def _fenced(tables: DeltaRsTables, table: str, term: int) -> DeltaTable:
    with translate_errors(table, tables.place(table), "written"):
        for _ in range(FENCE_ATTEMPTS):
            handle = tables.open(table)
            if (handle.transaction_version(LEADER_APP_ID) or 0) > term:
                raise LostLease(f"Term {term} is over before it began: a later manager leads already.")
            try:
                _append(handle, arrow_table(TABLES[table], []), term)
                return handle
            except CommitFailedError:
                continue
    raise StateError(f"Table {table} at {tables.place(table)} can't be fenced: someone else keeps on writing to it.")


def _value(handle: DeltaTable, table: str, what: str, where: str = "TRUE") -> Any:
    return python_columns(run({table: handle}, select(table, [what], where)))[0][0]


def leaders_commit(term: int) -> CommitProperties:
    return CommitProperties(max_commit_retries=0, app_transactions=[Transaction(LEADER_APP_ID, term)])


def _append(handle: DeltaTable, rows: Any, term: int, **how: Any) -> None:
    write_deltalake(handle, rows, mode="append", commit_properties=leaders_commit(term), **how)


class DeltaRsLeader(Leader):
    def __init__(
        self, tables: DeltaRsTables, row: Manager, handles: dict[str, DeltaTable], first_seq: int, clock: Clock
    ) -> None:
        self.row = row
        self._tables = tables
        self._handles = handles
        self._next = first_seq
        self._clock = clock
        self._used = dict.fromkeys(handles, clock.now())
        self._over: str | None = None  # why this term is over
        self._lease_lock = threading.Lock()  # heartbeats come from a thread of their own
        self._housekeeping = Compactor(handles)

    # -- every commit passes here -------------------------------------------------------------------------------------
    @contextmanager
    def _committing(self, table: str) -> Iterator[DeltaTable]:
        if self._over:
            raise LostLease(self._over)
        handle, now = self._handles[table], self._clock.now()
        if abs(now - self._used[table]) > STOOD_STILL:
            self._still_mine(table)
        try:
            with translate_errors(table, self._tables.place(table), "written"):
                try:
                    yield handle
                except CommitFailedError as error:
                    raise self._lost() from error
        except StateError:
            self._still_mine(table)  # an error may be no more than the way in which a lost race shows itself
            raise
        self._used[table] = now

    def _still_mine(self, table: str) -> None:
        if self._tables.open(table).version() != self._handles[table].version():
            raise self._lost()

    def _lost(self) -> LostLease:
        self._over = f"Term {self.term} is over: another manager has written to the state."
        return LostLease(self._over)

    # -- the contract -------------------------------------------------------------------------------------------------
    def next_seq(self, n: int = 1) -> int:
        first, self._next = self._next, self._next + n
        return first

    def commit(self, changes: Changes) -> None:
        for table, rows in changes.by_table():
            with self._committing(table) as handle:
                if TABLES[table].APPEND_ONLY:
                    _append(handle, arrow_table(TABLES[table], rows), self.term)
                else:
                    self._merge(handle, TABLES[table], rows)

    def _merge(self, handle: DeltaTable, record: type[Record], rows: Sequence[Record]) -> dict[str, Any]:
        same = [f"t.{name} = s.{name}" for name in record.KEY]
        if has_run_seq(record):
            spans = run_seq_spans(rows)
            same = [within(spans), "t.run_seq = s.run_seq", *same]
            self._housekeeping.touched(record.TABLE, spans[-1][0])
        merge = handle.merge(
            arrow_table(record, rows), " AND ".join(same), source_alias="s", target_alias="t",
            commit_properties=leaders_commit(self.term),
        )  # fmt: skip
        figures: dict[str, Any] = merge.when_matched_update_all().when_not_matched_insert_all().execute()
        return figures

    def append_items(self, items: pa.Table) -> None:
        rows = items.select(list(columns(BackfillItem))).sort_by("run_seq")
        ids = tuple(rows.column("backfill_id").unique().to_pylist())
        mine = predicate([Condition("backfill_id", "in", ids)] if ids else None)
        with self._committing(BackfillItem.TABLE) as handle:
            if _value(handle, BackfillItem.TABLE, "count(*)", mine):
                handle.delete(mine, commit_properties=leaders_commit(self.term))
            _append(handle, rows, self.term, target_file_size=ITEM_FILE_BYTES)

    def move_items(self, backfill_id: str, was: str, state: str, reason: str) -> None:
        mine = [Condition("backfill_id", "=", backfill_id), Condition("state", "=", was)]
        with self._committing(BackfillItem.TABLE) as handle:
            handle.update(  # as expressions: `new_values` of deltalake 1.6 cuts a text at its first quote
                {"state": literal(state), "reason": literal(reason)},
                predicate=predicate(mine),
                commit_properties=leaders_commit(self.term),
            )

    def heartbeat(self, at: datetime, **known: Any) -> None:
        self._put(heartbeat_at=at, **{name: value for name, value in known.items() if value is not None})

    def resign(self, at: datetime) -> None:
        self._put(state=states.STOPPED, heartbeat_at=at, ended_at=at)
        self._over = f"Term {self.term} is over: it was given back."

    def _put(self, **fields: Any) -> None:
        with self._lease_lock, self._committing(Manager.TABLE) as handle:
            row = self.row.evolve(**fields)
            self._merge(handle, Manager, [row])
            self.row = row

    def sweep(self, parent: str, children: Sequence[str]) -> None:
        """Delete rows that a predecessor wrote for parents it never came to write."""
        last = _value(self._handles[parent], parent, "max(run_seq)")
        orphaned = predicate([Condition("run_seq", ">", -1 if last is None else last)])
        for child in children:
            with self._committing(child) as handle:
                if _value(handle, child, "count(*)", orphaned):
                    handle.delete(orphaned, commit_properties=leaders_commit(self.term))

    def compact(self, *, everywhere: bool = False) -> dict[str, int]:
        if self._over:
            raise LostLease(self._over)
        files: dict[str, int] = {}
        for table in (*LED_TABLES, Manager.TABLE):
            if not everywhere and not self._housekeeping.due(table):
                continue
            if table == Manager.TABLE:
                with self._lease_lock:
                    files[table] = self._tidy(table, everywhere)
            else:
                files[table] = self._tidy(table, everywhere)
        asked = self._tables.fresh("request")
        if everywhere or self._housekeeping.due("request", asked):
            with translate_errors("request", self._tables.place("request"), "tidied"):
                files["request"] = self._housekeeping.tidy_shared("request", self._tables.open("request"), everywhere)
        return files

    def _tidy(self, table: str, thoroughly: bool) -> int:
        with self._committing(table):
            self._still_mine(table)  # vacuum trusts the handle: from a stale one it would take a successor's files
            return self._housekeeping.tidy(
                CompactionTarget(table, self._handles[table], leaders_commit(self.term)), thoroughly
            )
