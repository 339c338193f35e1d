"""`ctx.write` and `ctx.merge`: idempotent writes. Rows are committed to a Delta table exactly once (txnAppId, txnVersion),
whatever crashes, is retried, or comes late.

How:
- Each write carries Delta's application transaction: id `bfm/<state>/<dag>/<task>/<run>/<n>` (n-th write of this task into
  this table), version = the task instance's *generation*. Delta takes a version once. The state's identity is in it because
  run ids repeat: another state, or a `dags test`, writes the same run under an id of its own. A try does not change the
  generation, so the try after a crash between this commit and the state's finds its rows there and writes nothing: in
  append mode too. Clearing raises the generation, so a cleared task writes again: `replace` replaces, `append`
  appends once more. A run that replaces another has a run id, and so transactions, of its own.
- The n-th write must be the same write in each try: a task that branches on `try_number` breaks this. How writes are
  numbered, in streams and with threads, is in write_numbers.py.
- An abandoned try (timed out, cancelled, or of a manager that no longer leads) is refused before it computes and again
  before it commits; its Spark jobs are cancelled, and if a newer generation has landed, Delta refuses the older one.
- Checks of the rows (row_checks.py) come after they are staged or kept, and before the commit: what is committed is
  what was checked. Where they fail nothing is committed, and staged files stay as those of a killed writer do.
- What a commit does with the rows is in delta_write.py and output_merge.py.
- An interval, a partition or an append is staged as files, which the manager commits with those of others
  (output_group_commit.py). Every other write is a commit of its own, in its turn at the table (table_turns.py); while
  it waits its rows are computed and cached. Commits that conflict with writers outside of this manager are retried.

The commit's user metadata names state, dag, run, task, DAG version, try and interval.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from backfill_manager.errors import InvalidInput
from backfill_manager.execution.output.delta_refusals import named_refusals
from backfill_manager.execution.output.delta_write import Write
from backfill_manager.execution.output.output_group_commit import Answer
from backfill_manager.execution.output.output_merge import Merge
from backfill_manager.execution.output.output_table import OutputTable
from backfill_manager.execution.output.row_checks import RowChecks
from backfill_manager.execution.output.staged_write import Replaced, StagedWrite
from backfill_manager.execution.output.table_state import Commit, CommitMark, TableState
from backfill_manager.execution.output.write_context import WriteContext
from backfill_manager.execution.output.write_numbers import WriteNumbers
from backfill_manager.execution.spark.cached_rows import cached
from backfill_manager.humanise import plural
from backfill_manager.masking import mask_text
from backfill_manager.schemas.checks import Check, read_checks, with_own
from backfill_manager.store.delta_spark.conflicts import retry_on_conflict
from backfill_manager.store.delta_spark.transaction import DeltaTransaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NEW_COLUMNS: Final = "merge"  # the value of `schema=` that lets a commit add columns


class OutputWriter:
    def __init__(self, this: WriteContext) -> None:
        self._try = this
        self._numbers = WriteNumbers()

    def land(self, df: DataFrame, name: str, change: Write | Merge, checks: Sequence[str | Check]) -> int | None:
        try:
            own_checks = read_checks(checks)
        except ValueError as error:
            raise InvalidInput(f"{change.call}: checks {error}") from None
        self._try.refuse_if_abandoned()
        table = given = OutputTable(self._try.spark, name)
        preview = self._try.preview
        if preview is not None:
            table = preview.table_to_write(given)
            self._try.log.info("preview: %s is written in %s", given.name, table.name)
        with (
            contextlib.nullcontext() if preview is None else preview.itself(),
            self._numbers.next(self._try.spark, table, change.call) as number,
        ):
            return self._land_in(table, self._try.transaction_id(number), df, change, own_checks, given.key)

    def _land_in(
        self, table: OutputTable, transaction: str, df: DataFrame, change: Write | Merge, own_checks: Sequence[Check], key: str
    ) -> int | None:  # fmt: skip
        """`key`: of the table as the task names it, which a preview writes elsewhere."""
        columns = self._try.accesses.columns_of(df)
        checks = RowChecks(
            with_own(self._try.launch.task.checks, own_checks), task_id=self._try.launch.task.task_id, table=mask_text(key),
            transaction=transaction, log=self._try.log, rows_before=self._try.rows_before, results=self._try.check_results,
        )  # fmt: skip
        repeated = retry_on_conflict(self._try.log, table.name)
        if self._try.commit_together is not None and isinstance(change, Write) and change.replaces_part_or_appends:
            staged = repeated(self._staged, table, transaction, df, change, checks)
            answer = Answer("alone") if staged is None else self._try.commit_together(staged)
            if staged is not None and answer.kind == "landed":
                commit, column = Commit(answer.version, staged.rows, staged.bytes), change.interval_column
                self._try.accesses.add(table.written(staged.folder, staged.table_id, commit, column, columns))
                self._log_landed(table, change, answer.version, staged.rows, others=answer.others)
                return staged.rows
            if answer.why:
                self._try.log.info("%s: a commit of its own, as %s", table.name, answer.why)
        with self._turn(table, transaction, df) as rows:
            is_kept = checks or isinstance(change, Merge)  # what is checked is what is written
            with cached(rows) if is_kept else contextlib.nullcontext(rows) as kept:
                return repeated(self._commit, table, transaction, kept, change, checks, columns)

    def _staged(
        self, table: OutputTable, transaction: str, df: DataFrame, write: Write, checks: RowChecks
    ) -> StagedWrite | None:
        """The rows as files that others commit (output_group_commit.py); None where only a commit of its own does."""
        from pyspark.sql.types import StructType

        if not table.exists():
            with self._try.turns.acquire(table.identity):
                self._try.refuse_if_abandoned()
                self._create_if_missing(table, df, write)
        delta = DeltaTransaction(self._try.spark, table.log(self._try.spark))
        # Not for a first launch: it has nothing to find, the lookup takes Spark jobs, and the commit does it for all.
        definition = delta.definition()
        recorded = delta.recorded(transaction) if self._try.launch.ti.launch > 1 else None
        has_landed = recorded is not None and recorded >= self._try.launch.ti.generation
        if has_landed or not definition.is_plain or not definition.has_columns(json.loads(df._jdf.schema().json())):
            return None
        replaced = write.replaced(StructType.fromJson(definition.schema))
        if replaced is not None and not definition.may_have_statistics_of(replaced.column):
            return None
        with named_refusals(write.call, df):
            files = tuple(delta.write_files(df))
        staged = StagedWrite(
            table.name, table.identity, delta.folder, definition.table_id, definition.digest, files, replaced, transaction,
            self._try.launch.ti.generation, self._metadata(write, replaced),
        )  # fmt: skip
        if not staged.is_known_by_statistics:
            return None
        if checks:
            checks.run(delta.read_files(staged.files), staged.rows)
        return staged

    def _create_if_missing(self, table: OutputTable, rows: DataFrame, change: Write | Merge) -> None:
        if table.exists():
            return
        change.check(None, rows)
        with named_refusals(change.call):
            made = table.create(rows.schema)
        if made is not None:
            self._try.log.info("made the schema %s", made)

    def _checked(self, before: TableState, table: OutputTable, rows: DataFrame, change: Write | Merge) -> TableState:
        """The table. If no write has reached it yet, it gets the columns of one that does not fit: those that it has may be what
        was wrong with the write for which it was made."""
        try:
            change.check(before, rows)
        except InvalidInput:
            if self._try.launch.preview_id or not before.was_never_written:  # promoting goes by the table's own columns
                raise
            change.check(None, rows)
            with named_refusals(change.call):
                table.create(rows.schema, again=True)
            self._try.log.info(
                "made the table %s anew with the columns of these rows: it has never had any rows", table.name
            )
            before = table.read()
            change.check(before, rows)
        return before

    @contextlib.contextmanager
    def _turn(self, table: OutputTable, transaction: str, df: DataFrame) -> Iterator[DataFrame]:
        """This writer's turn at the table, with what it is to write; the rows are computed while it waits."""
        with contextlib.ExitStack() as held:
            rows = df
            turn = self._try.turns.try_acquire(table.identity)
            if turn is None:
                if not table.exists() or table.read().recorded(transaction) is None:
                    rows = held.enter_context(cached(df))
                    rows.count()
                turn = self._try.turns.acquire(table.identity)
            held.enter_context(turn)
            yield rows

    def _commit(
        self, table: OutputTable, transaction: str, rows: DataFrame, change: Write | Merge, checks: RowChecks, columns: str | None
    ) -> int | None:  # fmt: skip
        self._try.refuse_if_abandoned()
        self._create_if_missing(table, rows, change)
        before = table.read()
        if self._has_landed(before, transaction):
            checks.skip()
            self._try.accesses.add(table.written(before.path, before.table_id))
            return None
        before = self._checked(before, table, rows, change)
        if checks:
            checks.run(rows)
            self._try.refuse_if_abandoned()
        metadata = self._metadata(change, change.replaced(before.schema))
        mark = CommitMark(transaction, self._try.launch.ti.generation, metadata)
        with named_refusals(change.call, rows):
            change.commit(table, before, rows, mark)
        after = table.read()
        commit = after.find(mark.metadata, since=before.version)
        if commit is None:  # Delta left it out, as the same transaction had landed a moment before
            if self._has_landed(after, transaction):
                self._try.accesses.add(table.written(after.path, after.table_id))
            return None
        column = change.interval_column if isinstance(change, Write) else None
        self._try.accesses.add(table.written(after.path, after.table_id, commit, column, columns))
        parts = "" if commit.inserted is None else f" ({commit.inserted:,} inserted, {commit.updated:,} updated)"
        self._log_landed(table, change, commit.version, commit.rows, parts)
        return commit.rows

    def _metadata(self, change: Write | Merge, replaced: Replaced | None) -> str:
        """With what it replaces or the key that it merges by: what promoting a preview and reverting a run do with these rows."""
        how: dict[str, Any] = {"replaced": dataclasses.asdict(replaced)} if replaced is not None else {}
        return self._try.user_metadata(**how, **({"key": change.on} if isinstance(change, Merge) else {}))

    def _log_landed(
        self, table: OutputTable, change: Write | Merge, version: int, rows: int | None, parts: str = "", others: int = 0
    ) -> None:  # fmt: skip
        number = "" if rows is None else f"{plural(rows, 'row')} "
        together = f", in one commit with {plural(others, 'other write')}" if others else ""
        self._try.log.info("%s%s %s%s, version %d%s", number, change.verb, table.name, parts, version, together)

    def _has_landed(self, state: TableState, transaction: str) -> bool:
        if not state.has_landed(transaction, self._try.launch.ti.generation):
            return False
        self._try.log.info("%s: an earlier try of this run has written its rows; nothing is written again", state.name)
        return True


def check_arguments(call: str, df: Any, schema: str | None) -> None:
    from pyspark.sql import DataFrame

    if not isinstance(df, DataFrame):
        given = type(df).__name__
        raise InvalidInput(f"{call} takes a Spark DataFrame, not a {given}; ctx.spark.createDataFrame makes one")
    if df.isStreaming:
        raise InvalidInput(
            f"{call} takes a DataFrame of rows that are there, not a stream: read the source without readStream, or call it in "
            "the stream's foreachBatch"
        )
    names = Counter(map(str.lower, df.columns))
    if twice := [name for name, times in names.items() if times > 1]:
        raise InvalidInput(f"{call}: the rows have two columns {twice[0]!r}; names do not differ by case")
    if schema not in (None, NEW_COLUMNS):
        raise InvalidInput(f"{call}: schema is 'merge', which adds new columns, or left out, not {schema!r}")
