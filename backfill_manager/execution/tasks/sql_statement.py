"""One statement of a SQL task that writes by itself: MERGE, INSERT, UPDATE, DELETE, CREATE TABLE, OPTIMIZE, ...

- It waits for its turn at every table that it writes, as `ctx.write` does; all take several in one order, so that there is no
  deadlock. Plain INSERTs share their turn: Delta lets appends pass each other. Parallel runs of one DAG meet no
  conflict, and CREATE TABLE IF NOT EXISTS makes one table.
- A conflict with a writer outside of this manager repeats this statement alone. Delta has refused its only commit, so
  nothing of it is there.
- Changes of rows (INSERT, MERGE, UPDATE, DELETE, and CREATE or REPLACE TABLE AS SELECT) carry a Delta transaction: id
  `.../sql-<number of the statement>`, version = generation. One that had landed before a crash is left out the next time,
  and says so. All others (CREATE TABLE, ALTER, TRUNCATE, OPTIMIZE, RESTORE, ...) have no transaction in Delta and are run
  again when the task is, unless a statement after them has landed: make them idempotent.
- Statements are done in order, so when one has landed, those before it are done, whether or not they have a transaction: they
  are left out with it. Else the next try would do `DELETE FROM t ...; INSERT INTO t ...` by half: a DELETE that had found
  nothing, or a TRUNCATE, has left no transaction, and would take away the rows of the INSERT, which then is left out. The
  query of a task with `into` is the last of them. CREATE TABLE IF NOT EXISTS and CREATE OR REPLACE VIEW are done all the
  same: what comes after reads what they make, and a new manager without a metastore may have lost it.
- A table of another format (CREATE TABLE without USING delta makes Parquet) has no transactions: an INSERT into it is run again
  with the task, and is not recorded; the task's log warns of that.
- Delta takes a transaction once for each table, so a statement that wrote the rows of one table twice (a script, a
  multi-table INSERT) would silently lose the second write. It is refused.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.errors import PySparkException

from backfill_manager.errors import InvalidInput
from backfill_manager.execution.lineage.table_access import tables_of_explained
from backfill_manager.execution.lineage.written_tables import Written, written_by
from backfill_manager.execution.output.delta_refusals import named_refusals
from backfill_manager.execution.output.output_table import OutputTable
from backfill_manager.execution.output.table_state import TableState
from backfill_manager.execution.output.table_turns import Turns
from backfill_manager.execution.output.write_context import WriteContext
from backfill_manager.humanise import plural
from backfill_manager.store.delta_spark.conflicts import marked_commits, retry_on_conflict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RECENT_COMMITS: Final = 20  # of a table that did not exist before: our own is among them


class StatementRunner:
    """The statements of one try. `execute(text)` hands one to Spark, with the run's parameters."""

    def __init__(
        self, this: WriteContext, execute: Callable[[str], DataFrame], texts: Sequence[str], into: str | None = None
    ) -> None:
        """`into`: the table that the rows of a query after them go into, as the first write of the task."""
        self._try, self._execute, self._texts, self._into = this, execute, [*texts], into

    def run(self, number: int) -> int | None:
        """Runs the `number`-th statement; returns the rows that it inserted or updated, None where that is unknown."""
        self._try.refuse_if_abandoned()
        if self._try.preview is not None:
            text = self._try.preview.statement(self._texts[number - 1], self.evaluated, writes=True)
            self._texts[number - 1] = text
        written = self._written(number)
        tables = {name: OutputTable.named(self._try.spark, name) for name in written.names}
        self._refuse_second_writes(number, written, tables)
        if tables and not written.is_harmless_again and (later := self._landed_after(number)):
            self._try.log.info("statement %d: skipped, as an earlier try has completed statement %d", number, later)
            return None
        changed = [tables[name] for name in written.rows]
        what = f"statement {number}" + "".join(f", {table.name}" for table in tables.values())
        with _turn(self._try.turns, list(tables.values()), shared=written.only_appends):
            for table in tables.values() if written.makes else ():
                if _read(table) is None:
                    table.remove_unfinished_log()
            repeated = retry_on_conflict(self._try.log, what)
            return repeated(self._run_once, number, changed, is_one_write=not (written.is_script or written.other))

    def _written(self, number: int) -> Written:
        text, preview = self._texts[number - 1], self._try.preview
        if preview is not None:  # of a statement that has not run, the tables may have no clones yet
            text = preview.statement(text, self.evaluated, writes=False)
        return written_by(self._try.spark, text, self.evaluated) or Written()

    def _landed_after(self, number: int) -> int | None:
        """The last later statement that an earlier try has completed, as far as the tables show."""
        if self._try.launch.ti.launch == 1:
            return None
        if self._into is not None and self._has_landed(self._read_into(self._into), self._try.transaction_id(1)):
            return len(self._texts) + 1
        for later in range(len(self._texts), number, -1):
            try:
                names = self._written(later).rows
            except (PySparkException, InvalidInput):  # its name depends on a variable that is not declared yet
                continue
            transaction = self._transaction(later)
            if any(self._has_landed(_read(OutputTable.named(self._try.spark, name)), transaction) for name in names):
                return later
        return None

    def _read_into(self, name: str) -> TableState | None:
        table, preview = OutputTable(self._try.spark, name), self._try.preview
        if preview is None:
            return _read(table)
        with preview.itself():
            clone = preview.clones.of(table)
            return None if clone is None else _read(OutputTable(self._try.spark, clone.path))

    def _transaction(self, number: int) -> str:
        return self._try.transaction_id(f"sql-{number}")

    def evaluated(self, expression: str) -> str:
        row = self._execute(f"SELECT {expression}").first()
        return str(row[0]) if row else ""

    def _refuse_second_writes(self, number: int, written: Written, tables: dict[tuple[str, ...], OutputTable]) -> None:
        times: Counter[str] = Counter()
        for name, n in written.rows.items():
            times[tables[name].identity] += n
        twice = [table.name for table in tables.values() if times[table.identity] > 1]
        if twice:
            raise InvalidInput(
                f"sql task {self._try.launch.task.task_id!r}, statement {number}: it writes {twice[0]} more than once, and Delta "
                "would take the first write only (one transaction for each statement and table). Make these writes "
                "separate statements, split by `;` outside of BEGIN ... END, or write the rows in one."
            )

    def _run_once(self, number: int, changed: list[OutputTable], *, is_one_write: bool) -> int | None:
        self._try.refuse_if_abandoned()
        transaction = self._transaction(number)
        before = {table.identity: _read(table) for table in changed}
        landed = [self._has_landed(state, transaction) for state in before.values()]
        if is_one_write and landed and all(landed):
            self._try.log.info("statement %d: an earlier try of this run has completed it; it is not run again", number)
            for table in changed:
                if (state := before[table.identity]) is not None:
                    self._try.accesses.add(table.written(state.path, state.table_id))
            return None
        # Its commit says what it reads, so this is found before.
        if changed and (preview := self._try.preview) is not None:
            preview.note_reads(self._execute(f"EXPLAIN {self._texts[number - 1]}"), tables_of_explained)
        metadata = self._try.user_metadata(statement=number)
        tables = "".join(f", {table.name}" for table in changed)
        call = f"sql task {self._try.launch.task.task_id!r}, statement {number}{tables}"
        marked = marked_commits(self._try.spark, transaction, self._try.launch.ti.generation, metadata)
        with named_refusals(call), marked:
            done = self._execute(self._texts[number - 1])
            if not done.isLocal():  # a command has run already; a query has to be executed
                done.write.format("noop").mode("overwrite").save()
        columns = self._try.accesses.columns_of(done) if is_one_write and changed else None
        of_try = (transaction, metadata, columns)
        counts = [self._log_commit(number, table, before[table.identity], *of_try) for table in changed]
        rows = [n for n in counts if n is not None]
        return sum(rows) if rows else None

    def _has_landed(self, state: TableState | None, transaction: str) -> bool:
        return state is not None and state.has_landed(transaction, self._try.launch.ti.generation)

    def _log_commit(
        self, number: int, table: OutputTable, before: TableState | None, transaction: str, metadata: str,
        columns: str | None,
    ) -> int | None:  # fmt: skip
        """Logs what the statement did to this table; returns the rows."""
        now = _read(table)
        if now is None:
            if table.exists():  # else it was dropped
                text = (
                    "statement %d: %s is not a Delta table (`USING delta` makes one): its rows are not written exactly once, and "
                    "no write of it is recorded"
                )
                self._try.log.warning(text, number, table.name)
            return None
        since = max(-1, now.version - RECENT_COMMITS) if before is None else before.version
        commit = now.find(metadata, since=since)
        if commit is not None:
            rows = "" if commit.rows is None else f"{plural(commit.rows, 'row')} into "
            self._try.log.info("statement %d: %s%s, version %d", number, rows, table.name, commit.version)
            self._try.accesses.add(table.written(now.path, now.table_id, commit, columns=columns))
            return commit.rows
        if self._has_landed(now, transaction):
            self._try.accesses.add(table.written(now.path, now.table_id))
            text = "statement %d: an earlier try of this run has written to %s; nothing is written again"
            self._try.log.info(text, number, table.name)
        else:
            self._try.log.info("statement %d: nothing to change in %s", number, table.name)
        return None


@contextlib.contextmanager
def _turn(turns: Turns, tables: list[OutputTable], *, shared: bool) -> Iterator[None]:
    """Only a thread waits here; nothing of Spark does."""
    with contextlib.ExitStack() as held:
        for identity in sorted({table.identity for table in tables}):
            held.enter_context(turns.acquire(identity, shared=shared))
        yield


def _read(table: OutputTable) -> TableState | None:
    """The table as it is now; None if it does not exist, or is no Delta table."""
    try:
        return table.read() if table.exists() else None
    except (PySparkException, InvalidInput):
        return None
