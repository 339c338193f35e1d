"""The leading half of the Spark engine.

Spark's appends are no compare-and-swap, so the fence is Delta's application transaction alone: every write of a
leader carries `term * 2**40 + n`, and Delta skips a write whose number is not above the table's last one. It skips
silently: a MERGE then reports nothing, an append or DELETE is looked for in the table's history, and either way the
leader learns that its term is over. Two that meet in the middle of a commit get a conflict, which means the same, but for
a fence and a heartbeat: these try again, and are skipped if there is a successor.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from delta.tables import DeltaTable
from pyspark.sql import functions as f

from backfill_manager.errors import LostLease, StateError
from backfill_manager.model.records import TABLES, Manager, Record, Request, has_run_seq
from backfill_manager.model.transitions import Changes
from backfill_manager.store.base import Condition, Term, check_next_term
from backfill_manager.store.delta_base import DeltaLeader, DeltaWriter, merge_condition, run_seq_spans
from backfill_manager.store.delta_spark.conflicts import CONFLICTS, marked_commits
from backfill_manager.store.delta_spark.tables import DeltaSparkTables, own_session
from backfill_manager.store.delta_spark.transaction import DeltaTransaction
from backfill_manager.store.sql_text import SPARK, predicate, python_columns, select
from backfill_manager.store.table_properties import LEADER_APP_ID, LED_TABLES

if TYPE_CHECKING:
    from backfill_manager.store.delta_spark.store import DeltaSparkStore

COMPACT_AFTER: Final = 100  # commits to a table
WRITE_ATTEMPTS: Final = 5
TABLES_AT_ONCE: Final = 4
MAX_REWRITTEN_BYTES: Final = 32 << 20  # of files; beyond, MERGE writes only what has changed


def take_over(store: DeltaSparkStore, row: Manager) -> DeltaSparkLeader:
    """Lease row, fence in every table, orphans; see `Store.lead`."""
    last = store.lease()
    check_next_term(row, last.term if last else 0)
    if last is None and store.tables.is_half_imported():
        raise store.tables.half_imported()
    numbers = itertools.count(row.term * 2**40)
    writer = Writer(store.tables, row, numbers, Term(row.term))
    writer.append(Manager, [row])
    with ThreadPoolExecutor(TABLES_AT_ONCE, thread_name_prefix="bfm-fence") as threads:
        list(threads.map(writer.fence, LED_TABLES))
    return DeltaSparkLeader(store, row, _highest_run_seqs(store), writer)


def _highest_run_seqs(store: DeltaSparkStore) -> dict[str, int]:
    """By table; -1 for one that is empty. By the statistics of the files where they tell, else by one Spark job."""
    numbered = [name for name in LED_TABLES if has_run_seq(TABLES[name])]
    found: dict[str, int] = {}
    if store.tables.has_transactions:
        by_files = {name: store.tables.transaction(name, store.tables.spark).highest("run_seq") for name in numbered}
        found = {name: int(value) for name, value in by_files.items() if value is not None}
    if left := [name for name in numbered if name not in found]:
        selects = (select(store.tables.name_in_sql(name), [f"'{name}'", "coalesce(max(run_seq), -1)"]) for name in left)
        found |= dict(zip(*python_columns(store.tables.run(left, " UNION ALL ".join(selects))), strict=True))
    return found


class Writer(DeltaWriter):
    """Writes in one session of its own (the marks of a MERGE are settings of the session) under one term."""

    def __init__(self, tables: DeltaSparkTables, row: Manager, numbers: Iterator[int], term: Term) -> None:
        self._tables = tables
        self._session = own_session(tables.spark, tables.root)
        self._row = row
        self.numbers = numbers
        self.term = term
        self.commits: Counter[str] = Counter()

    @contextmanager
    def _writing(self, table: str) -> Iterator[None]:
        self.term.check()
        try:
            with self._tables.translate_errors(table, "written"):
                yield
        except CONFLICTS as error:
            raise LostLease(f"Term {self._row.term} is over: another manager has written to the state.") from error

    def _next(self) -> tuple[int, str]:
        """A commit's number, and the mark by which it is found in the table's history."""
        number = next(self.numbers)
        return number, f"{self._row.manager_id} {number}"

    @contextmanager
    def _committing(self, table: str) -> Iterator[tuple[int, str]]:
        with self._writing(table):
            yield self._next()
        self.commits[table] += 1

    @contextmanager
    def _changing(self, table: str) -> Iterator[tuple[int, str]]:
        with self._committing(table) as (number, mark), marked_commits(self._session, LEADER_APP_ID, number, mark):
            yield number, mark

    def append(self, record: type[Record], rows: Sequence[Record] | pa.Table) -> None:
        if self._tables.has_transactions:
            return self.staged(record, rows)()
        table = record.TABLE
        with self._committing(table) as (number, mark):
            self._tables.ensure_owned(table)
            frame = self._tables.rows_frame(record, rows, self._session)
            write = frame.write.format("delta").mode("append").option("userMetadata", mark)
            write = write.option("txnAppId", LEADER_APP_ID).option("txnVersion", str(number))
            write.saveAsTable(self._tables.location(table))
            self._expect_last(table, number, mark)

    def staged(
        self, record: type[Record], rows: Sequence[Record] | pa.Table, *, updates: bool = False
    ) -> Callable[[], None]:
        """Writes the files of a commit, by Delta's own transaction; what is returned commits them. `updates`: it does what a
        MERGE does. The files that may hold such rows are then written anew, in one Spark job where MERGE takes several and a look
        into the history; where these are too large for that, it is a MERGE, later. A fence, which has no rows, takes no Spark
        job, and nothing here looks into the history."""
        table = record.TABLE
        number, mark = self._next()
        with self._writing(table):
            transaction = self._transaction(table, number)
            held = self._files_with(record, rows, transaction) if updates else []
            if sum(fields["size"] for fields, _ in held) > MAX_REWRITTEN_BYTES:
                return partial(self._merge, record, rows)
            frame = self._tables.rows_frame(record, rows, self._session)
            if held:
                there = transaction.read_files([str(file.json()) for _, file in held])
                keys = f.broadcast(frame.select(*record.KEY))
                frame = there.join(keys, list(record.KEY), "left_anti").select(*frame.columns).union(frame)
            added = transaction.write_files(frame.coalesce(1) if updates else frame) if len(rows) else []

        def commit() -> None:
            with self._writing(table):
                files, marks = [file for _, file in held], [(LEADER_APP_ID, number)]
                transaction.commit(added, files, marks, metadata=mark, replaces=bool(held), rows=len(rows))
            self.commits[table] += 1

        return commit

    def _files_with(
        self, record: type[Record], rows: Sequence[Record], transaction: DeltaTransaction
    ) -> Sequence[tuple[dict[str, Any], Any]]:
        spans = run_seq_spans(rows) if has_run_seq(record) else []
        within = " OR ".join(f"(run_seq >= {low} AND run_seq <= {high})" for low, high in spans) or "true"
        return transaction.files_where(within, partial(_may_hold, spans))

    def _transaction(self, table: str, number: int) -> DeltaTransaction:
        transaction = self._tables.transaction(table, self._session)
        last = transaction.recorded(LEADER_APP_ID)
        if last is not None and last >= number:
            raise self.term.lost()
        return transaction

    def fence(self, table: str) -> None:
        self.insist(table, lambda: self.append(TABLES[table], []))

    def insist(self, table: str, write: Callable[[], None]) -> None:
        """Write once more after a conflict: with the predecessor, in the middle of its last commit, or with an OPTIMIZE,
        which is nobody's term. After a successor our number is too low, and `LostLease` comes without a conflict."""
        for _ in range(WRITE_ATTEMPTS):
            try:
                return write()
            except LostLease as error:
                if not isinstance(error.__cause__, CONFLICTS):
                    raise
        raise StateError(
            f"Table {table} at {self._tables.location(table)} can't be written: someone else keeps on writing to it."
        )

    def merge(self, record: type[Record], rows: Sequence[Record]) -> None:
        if self._tables.has_transactions:
            self.staged(record, rows, updates=True)()
        else:
            self._merge(record, rows)

    def _merge(self, record: type[Record], rows: Sequence[Record]) -> None:
        spans = run_seq_spans(rows) if has_run_seq(record) else []
        with self._changing(record.TABLE):
            source = self._tables.rows_frame(record, rows, self._session).alias("s")
            target = self._tables.delta(record.TABLE, self._session).alias("t")
            merge = target.merge(source, merge_condition(record, spans))
            if not merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute().collect():
                raise self.term.lost()  # no report: skipped, as the table has seen a higher number

    def delete(self, table: str, where: Sequence[Condition]) -> None:
        self._change_rows(table, where, lambda delta, met: delta.delete(met))

    def delete_requests(self, where: Sequence[Condition]) -> None:
        with self._tables.translate_errors(Request.TABLE, "written"), suppress(*CONFLICTS):
            self._tables.delta(Request.TABLE, self._session).delete(predicate(where, SPARK))

    def update(self, table: str, where: Sequence[Condition], values: Mapping[str, str]) -> None:
        literals = {name: f.lit(value) for name, value in values.items()}
        self._change_rows(table, where, lambda delta, met: delta.update(met, literals))

    def _change_rows(self, table: str, where: Sequence[Condition], change: Callable[[DeltaTable, str], Any]) -> None:
        met = predicate(where, SPARK)
        with self._tables.translate_errors(table):
            if not self._tables.frame(table, self._session).where(met).limit(1).count():
                return
        with self._changing(table) as (number, mark):
            change(self._tables.delta(table, self._session), met)
            self._expect_last(table, number, mark)

    def _expect_last(self, table: str, number: int, mark: str) -> None:
        """The commit that has just been made is this one: it was not skipped."""
        if self._tables.has_transactions:
            if self._tables.transaction(table, self._session).recorded(LEADER_APP_ID) != number:
                raise self.term.lost()
            return
        last = self._tables.delta(table, self._session).history(1).select("userMetadata").first()
        if last is None or last[0] != mark:
            raise self.term.lost()

    def compact(self, table: str) -> int:
        """OPTIMIZE and VACUUM; the table's own retention counts (Delta 4.4 would ignore a number of hours here)."""
        with self._tables.translate_errors(table, "compacted"):
            delta = self._tables.delta(table, self._session)
            with suppress(*CONFLICTS):  # a client that writes at this moment goes first; the next time is soon enough
                delta.optimize().executeCompaction()
            delta.vacuum()
            detail = delta.detail().select("numFiles").first()
        self.commits[table] = 0
        return int(detail[0]) if detail else 0


class DeltaSparkLeader(DeltaLeader):
    _writer: Writer

    def __init__(self, store: DeltaSparkStore, row: Manager, highest: Mapping[str, int], writer: Writer) -> None:
        super().__init__(row, highest, writer)
        self._store = store
        self._lease_writer = Writer(store.tables, row, writer.numbers, writer.term)  # for the heartbeats' own thread
        self._compacted_requests = 0  # version of `request` when it was last compacted
        # The same for all commits: each thread of Python has one in the JVM.
        self._threads = ThreadPoolExecutor(TABLES_AT_ONCE, thread_name_prefix="bfm-commit")

    def commit(self, changes: Changes) -> None:
        """The files of all tables are written side by side, where nobody sees them, and then committed one after another."""
        tables = list(changes.by_table())
        if not self._store.tables.has_transactions or len(tables) < 2:
            return super().commit(changes)
        staged = [
            self._threads.submit(self._writer.staged, TABLES[table], rows, updates=not TABLES[table].APPEND_ONLY)
            for table, rows in tables
        ]
        wait(staged)
        commits = [one.result() for one in staged]  # nothing is committed if one has failed
        for commit in commits:
            commit()

    def _update_lease(self, **fields: Any) -> None:
        row = self.row.evolve(**fields)
        self._lease_writer.insist(Manager.TABLE, lambda: self._lease_writer.merge(Manager, [row]))
        self.row = row

    def compact(self, *, everywhere: bool = False) -> dict[str, int]:
        term, commits = self._writer.term, self._writer.commits
        term.check()
        commits[Manager.TABLE] += self._lease_writer.commits.pop(Manager.TABLE, 0)
        due = [table for table in (*LED_TABLES, Manager.TABLE) if everywhere or commits[table] >= COMPACT_AFTER]
        requests_version = self._store.requests_version()
        if everywhere or requests_version - self._compacted_requests >= COMPACT_AFTER:
            due.append(Request.TABLE)
            self._compacted_requests = requests_version
        if not due:
            return {}
        last = self._store.lease()
        if last is None or last.term != self.term:  # OPTIMIZE carries no number: it would disturb the real leader
            raise term.lost()
        files: dict[str, int] = {}
        for table in due:
            term.check()  # it may take minutes, in which a heartbeat meets a successor
            files[table] = self._writer.compact(table)
        return files


def _may_hold(spans: Sequence[tuple[int, int]], file: Mapping[str, Any]) -> bool:
    """By the statistics of a file, whether rows of these `run_seq`s may be in it; `file`: the fields of its `add`."""
    statistics = json.loads(file.get("stats") or "{}")
    low, high = (statistics.get(of, {}).get("run_seq") for of in ("minValues", "maxValues"))
    return not spans or low is None or high is None or any(low <= last and first <= high for first, last in spans)
