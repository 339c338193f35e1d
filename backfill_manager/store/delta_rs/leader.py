"""The leading half of the delta-rs engine: taking over, and commits that only the leader can make.

Three things refuse a leader that was overtaken. It commits from handles that nobody refreshes, without retries, so that any
commit of another makes its own a lost race. Each of its commits carries the term as an application transaction, and taking over
first puts one such commit into every table. And a handle that has stood still for so long that the log entries
after it may have been cleaned away (a machine that slept) is compared with the table before it is used.

A store may carry a commit out and lose its answer, and what is sent again then finds it made: this looks like a commit of
another. So each carries a token of its own, by which the leader knows it again, and goes on.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from backfill_manager.clock import Clock
from backfill_manager.errors import LostLease, StateError
from backfill_manager.model.records import TABLES, BackfillItem, Manager, Record, Request, has_run_seq
from backfill_manager.store.base import Condition, Term, check_next_term
from backfill_manager.store.delta_base import DeltaLeader, DeltaWriter, merge_condition, run_seq_spans
from backfill_manager.store.delta_rs.append_turn import turn_to_append
from backfill_manager.store.delta_rs.compaction import CompactionTarget, Compactor
from backfill_manager.store.delta_rs.log import (
    CommitArguments,
    is_lost_race,
    of_a_leader,
    unless_others_are_quicker,
)
from backfill_manager.store.delta_rs.tables import DeltaRsTables, is_engine_error, run
from backfill_manager.store.delta_rs.upsert import SpanWriter, narrow_spans
from backfill_manager.store.sql_text import arrow_table, literal, predicate, python_columns, select
from backfill_manager.store.table_properties import LEADER_APP_ID, LED_TABLES, RETENTION_MINUTES

if TYPE_CHECKING:
    import pyarrow as pa

FENCE_ATTEMPTS: Final = 50  # a leader that was overtaken may commit between our look and our fence; not so often
MAX_IDLE: Final = timedelta(minutes=RETENTION_MINUTES / 2)
TOKEN: Final = "bfmCommit"  # in the commit's information
TAKE_OVER_BEAT_S: Final = 2.0
MAX_WAIT_FOR_TURN_S: Final = 1.0  # of the compaction of requests, among the clients; ticks wait for it
FENCES_AT_ONCE: Final = 8  # delta-rs asks for many objects of one log at a time
ITEM_FILE_BYTES: Final = 1_000_000  # about 70,000 planned items: a tick rewrites the one or two files it works in
_log = logging.getLogger(__name__)


def take_over(tables: DeltaRsTables, row: Manager, clock: Clock) -> DeltaRsLeader:
    """Lease row, fence in every table, orphans; see `Store.lead`. The fences are made side by side, and meanwhile the lease is
    kept: a store that takes 100 ms for each request needs longer for them than a lease lasts."""
    lease = tables.open(Manager.TABLE)
    last_term = _value(lease, Manager.TABLE, "max(term)") or 0
    check_next_term(row, last_term)
    # `fill` marks each table that it has filled, this one last; nobody else does before there is a term
    if not last_term and lease.transaction_version(LEADER_APP_ID) is None and tables.was_led():
        lease = tables.open(Manager.TABLE)
        check_next_term(row, _value(lease, Manager.TABLE, "max(term)") or 0)  # another has begun to lead meanwhile
        raise tables.half_imported()
    for table in (Manager.TABLE, *LED_TABLES):
        tables.check_may_write(table)
    writer = DeltaRsWriter(tables, row.term, {Manager.TABLE: lease}, clock)
    try:
        writer.append(Manager, [row])
    except LostLease as error:
        raise LostLease(
            f"Term {row.term} can't be taken: another manager was quicker, or the leader is alive."
        ) from error
    highest, beat_at = dict[str, int](), clock.monotonic()
    with ThreadPoolExecutor(FENCES_AT_ONCE, "fence") as threads:
        left = {threads.submit(_fence, tables, name, row.term) for name in LED_TABLES}
        while left:
            done, left = wait(left, TAKE_OVER_BEAT_S, return_when=FIRST_COMPLETED)
            for fenced in done:
                name, handle, seq = fenced.result()
                writer.take(name, handle)
                if seq is not None:
                    highest[name] = seq
            if left and clock.monotonic() - beat_at >= TAKE_OVER_BEAT_S:
                row, beat_at = row.evolve(heartbeat_at=clock.now()), clock.monotonic()
                writer.merge(Manager, [row])
    return DeltaRsLeader(row, highest, writer)


def _fence(tables: DeltaRsTables, name: str, term: int) -> tuple[str, DeltaTable, int | None]:
    """The table, its handle, and its highest `run_seq`: -1 if it is empty, None if its rows have none."""
    handle = _fenced(tables, name, term)
    if not has_run_seq(TABLES[name]):
        return name, handle, None
    with tables.translate_errors(name):
        return name, handle, _highest_seq(handle, name)


def _highest_seq(handle: DeltaTable, table: str) -> int:
    """-1 if the table is empty. From the log, which has it for each file: over a slow store reading them all takes long. Where it
    has not, from the files."""
    files = handle.get_add_actions(flatten=True)
    if "max.run_seq" in files.schema.names and None not in (found := files["max.run_seq"].to_pylist()):
        return max(found, default=-1)
    seq = _value(handle, table, "max(run_seq)")
    return -1 if seq is None else seq


def _fenced(tables: DeltaRsTables, table: str, term: int) -> DeltaTable:
    with tables.translate_errors(table, "written"):
        for _ in range(FENCE_ATTEMPTS):
            handle = tables.open(table)
            if (handle.transaction_version(LEADER_APP_ID) or 0) > term:
                raise LostLease(f"Term {term} is over before it began: a later manager leads already.")
            try:
                _append(handle, arrow_table(TABLES[table], []), leaders_commit(handle, term))
                return handle
            except DeltaError as error:
                if not is_lost_race(error):
                    raise
    raise StateError(f"Table {table} at {tables.location(table)} can't be fenced: someone else keeps on writing to it.")


def _value(handle: DeltaTable, table: str, what: str, where: str = "TRUE") -> Any:
    return python_columns(run({table: handle}, select(table, [what], where)))[0][0]


def leaders_commit(handle: DeltaTable, term: int, token: str = "") -> CommitArguments:
    commit = CommitProperties(
        max_commit_retries=0, app_transactions=[Transaction(LEADER_APP_ID, term)], custom_metadata={TOKEN: token}
    )
    return {"commit_properties": commit, "post_commithook_properties": of_a_leader(handle.version())}


def _append(handle: DeltaTable, rows: Any, commit: CommitArguments, **options: Any) -> None:
    write_deltalake(handle, rows, mode="append", **commit, **options)


class DeltaRsWriter(DeltaWriter):
    def __init__(self, tables: DeltaRsTables, term: int, handles: dict[str, DeltaTable], clock: Clock) -> None:
        self.term = Term(term)
        self.tables = tables
        self.handles = handles
        self.compactor = Compactor()
        self._spans = SpanWriter()
        self._clock = clock
        self._used = dict.fromkeys(handles, clock.now())
        self._unsettled: dict[str, str] = {}  # table -> token of a commit of which nothing is known

    def take(self, table: str, handle: DeltaTable) -> None:
        self.handles[table], self._used[table] = handle, self._clock.now()

    @contextmanager
    def committing(self, table: str, *, is_compaction: bool = False) -> Iterator[tuple[DeltaTable, CommitArguments]]:
        """Every commit passes here. `is_compaction`: of several, and of what is no commit; so an error is one even if the last
        commit has arrived."""
        self.term.check()
        if (unsettled := self._unsettled.get(table)) is not None:
            self._has_arrived(table, unsettled)
        now, token = self._clock.now(), secrets.token_hex(8)
        if abs(now - self._used[table]) > MAX_IDLE:
            self.check_not_overtaken(table)
        try:
            with self.tables.translate_errors(table, "written"):
                try:
                    handle = self.handles[table]
                    yield handle, leaders_commit(handle, self.term.number, token)
                except Exception as error:
                    if not is_engine_error(error):
                        raise
                    if self._has_arrived(table, token):
                        if is_compaction:
                            raise
                        _log.warning("a commit to %s has arrived, though storage said: %s", table, error)
                    elif isinstance(error, CommitFailedError):
                        raise self.term.lost() from error
                    else:
                        raise
        except StateError:
            self.check_not_overtaken(table)  # an error may be no more than the way in which a lost race shows itself
            raise
        self._used[table] = now

    def _has_arrived(self, table: str, token: str) -> bool:
        """Whether the last commit is this one: it has arrived, though storage said otherwise, and nobody has committed since. Nor
        before, as it is a compare-and-swap; so the leader goes on from there. Where that can't be seen now (`StateError`), it is
        looked for before the next commit."""
        self._unsettled[table] = token
        now = self.tables.open(table)
        with self.tables.translate_errors(table):
            is_last = now.history(1)[0].get(TOKEN) == token
        del self._unsettled[table]
        if is_last:
            self.handles[table] = now
        return bool(is_last)

    def check_not_overtaken(self, table: str) -> None:
        if self.tables.open(table).version() != self.handles[table].version():
            raise self.term.lost()

    def append(self, record: type[Record], rows: Sequence[Record] | pa.Table) -> None:
        options = {"target_file_size": ITEM_FILE_BYTES} if record is BackfillItem else {}
        with self.committing(record.TABLE) as (handle, commit):
            # One batch: of several, the writer may mix up the order.
            table = arrow_table(record, rows) if isinstance(rows, Sequence) else rows.combine_chunks()
            _append(handle, table, commit, **options)

    def merge(self, record: type[Record], rows: Sequence[Record]) -> None:
        spans = run_seq_spans(rows) if has_run_seq(record) else []
        narrow = narrow_spans(rows) if spans else None
        if spans:
            self.compactor.touched(record.TABLE, spans[-1][0])
        with self.committing(record.TABLE) as (handle, commit):
            if narrow is not None:
                self._spans.overwrite(handle, record, rows, narrow, commit)
                return
            merge = handle.merge(
                arrow_table(record, rows), merge_condition(record, spans), source_alias="s", target_alias="t",
                **commit,
            )  # fmt: skip
            merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def delete(self, table: str, where: Sequence[Condition]) -> None:
        with self.committing(table) as (handle, commit):
            if _value(handle, table, "count(*)", predicate(where)):
                handle.delete(predicate(where), **commit)

    def delete_requests(self, where: Sequence[Condition]) -> None:
        with self.tables.translate_errors(Request.TABLE, "written"):
            handle = self.tables.open(Request.TABLE)
            if _value(handle, Request.TABLE, "count(*)", predicate(where)):
                with unless_others_are_quicker():
                    handle.delete(predicate(where), commit_properties=CommitProperties(max_commit_retries=0))

    def update(self, table: str, where: Sequence[Condition], values: Mapping[str, str]) -> None:
        # as expressions: `new_values` of deltalake 1.6 cuts a text at its first quote
        expressions = {name: literal(value) for name, value in values.items()}
        with self.committing(table) as (handle, commit):
            handle.update(expressions, predicate=predicate(where), **commit)


class DeltaRsLeader(DeltaLeader):
    _writer: DeltaRsWriter

    def __init__(self, row: Manager, highest: Mapping[str, int], writer: DeltaRsWriter) -> None:
        super().__init__(row, highest, writer)
        self._lease_lock = threading.Lock()  # heartbeats come from a thread of their own

    def _update_lease(self, **fields: Any) -> None:
        with self._lease_lock:
            row = self.row.evolve(**fields)
            self._writer.merge(Manager, [row])
            self.row = row

    def compact(self, *, everywhere: bool = False) -> dict[str, int]:
        """What fails in it is logged, and done again when it is next due: it ends no manager. `everywhere`: it is raised."""
        writer, compactor, files = self._writer, self._writer.compactor, dict[str, int]()
        writer.term.check()
        for table in (*LED_TABLES, Manager.TABLE):
            if everywhere or compactor.is_due(table, writer.handles[table]):
                lock = self._lease_lock if table == Manager.TABLE else nullcontext()
                with (
                    lock,
                    _putting_off(compactor, table, lambda: writer.handles[table], everywhere),  # noqa: B023
                    writer.committing(table, is_compaction=True) as (handle, commit),
                ):
                    writer.check_not_overtaken(table)  # vacuum through a stale handle would take a successor's files
                    files[table] = compactor.compact(CompactionTarget(table, handle, commit), everywhere)
        table = Request.TABLE
        if everywhere or compactor.is_due(table, writer.tables.fresh(table)):
            with (
                _putting_off(compactor, table, lambda: writer.tables.fresh(table), everywhere),
                writer.tables.translate_errors(table, "compacted"),
                turn_to_append(writer.tables.location(table), MAX_WAIT_FOR_TURN_S),
            ):
                files[table] = compactor.compact_shared(table, writer.tables.open(table), everywhere)
        return files


@contextmanager
def _putting_off(compactor: Compactor, table: str, now: Callable[[], DeltaTable], is_asked_for: bool) -> Iterator[None]:
    try:
        yield
    except StateError as error:
        if is_asked_for:
            raise
        compactor.put_off(table, now())
        _log.warning("table %s is not compacted: %s", table, error)
