"""`ctx.write`: a run's rows are committed to a Delta table exactly once, whatever crashes, is retried, or comes late.

How:
- Each write carries Delta's application transaction: id `bfm/<state>/<dag>/<task>/<run>/<n>` (n-th write of this task into
  this table), version = the task instance's *generation*. Delta takes a version once. The state's identity is in it because
  run ids repeat: another state, or a `dags test`, writes the same run under an id of its own. A try does not change the
  generation, so the try after a crash between this commit and the state's finds its rows there and writes nothing: in
  append mode too. Clearing raises the generation, so a cleared task writes again: `replace` replaces, `append`
  appends once more. A run that replaces another has a run id, and so transactions, of its own.
- The n-th write must be the same write in each try: a task that branches on `try_number` breaks this.
- An abandoned try (timed out, cancelled, or of a manager that no longer leads) is refused before it computes and again
  before it commits; its Spark jobs are cancelled, and if a newer generation has landed, Delta refuses the older one.
- `replace` is Delta's replaceWhere with the run's interval (or its partition): exactly these rows go, and rows
  outside of them in what is written are an error that changes nothing. A run with neither replaces the whole table.
- Writers of one table queue up inside this process. A writer that has to wait computes and caches its rows meanwhile, so that
  only the commits go one by one. Commits that conflict with other processes are retried.

The commit's user metadata names state, dag, run, task, DAG version, try and interval.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, Literal

from backfill_manager.clock import EPOCH, format_instant, from_micros
from backfill_manager.errors import InvalidInput, nearest
from backfill_manager.execution.interval import bounds
from backfill_manager.execution.messages import TaskLaunch
from backfill_manager.execution.output_identity import StateIdentity, transaction_id, user_metadata
from backfill_manager.execution.output_table import OutputTable, TableState
from backfill_manager.execution.sql_lexer import identifier, string_literal
from backfill_manager.store.delta_spark.conflicts import retry_on_conflict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

Mode = Literal["replace", "append"]


@dataclass(frozen=True)
class _Replaced:
    """The part of a table that a write replaces."""

    where: str  # for replaceWhere: literals in the column's own type
    kind: str  # the type of its column
    name: str  # in messages


class OutputWriter:
    """The writes of one try."""

    def __init__(
        self,
        spark: SparkSession,
        launch: TaskLaunch,
        log: logging.Logger,
        refuse_if_abandoned: Callable[[], None],
        state: StateIdentity,
    ) -> None:
        self._spark, self._launch, self._interval, self._log = spark, launch, launch.interval, log
        self._state = state
        self._refuse_if_abandoned = refuse_if_abandoned
        self._nth: Counter[str] = Counter()

    def write(
        self, df: DataFrame, name: str, *, time_column: str | None, partition_column: str | None, mode: Mode
    ) -> int | None:
        self._check(df, name, time_column, partition_column, mode)
        self._refuse_if_abandoned()
        table = OutputTable(self._spark, name)
        self._nth[table.identity] += 1
        transaction = transaction_id(self._state, self._launch, self._nth[table.identity])
        with self._turn(table, transaction, df):
            return self._commit(table, transaction, df, time_column, partition_column, mode)

    # -- checks -------------------------------------------------------------------------------------------------------
    def _check(self, df: Any, name: str, time_column: str | None, partition_column: str | None, mode: str) -> None:
        from pyspark.sql import DataFrame

        where = f"ctx.write(..., {name!r})"
        if not isinstance(df, DataFrame):
            raise InvalidInput(
                f"{where} takes a Spark DataFrame, not a {type(df).__name__}; ctx.spark.createDataFrame makes one"
            )
        if mode not in ("replace", "append"):
            raise InvalidInput(f"{where}: mode is 'replace' or 'append', not {mode!r}")
        if mode == "append":
            return
        run = self._launch.run
        if run.partition_key is not None and partition_column is None:
            raise InvalidInput(
                f"{where} in a run for partition {run.partition_key!r} needs partition_column=..., "
                "the column that holds the key"
            )
        if run.partition_key is None and self._interval is not None and time_column is None:
            raise InvalidInput(
                f"{where} needs time_column=..., the column by which rows belong to the run's interval "
                "(or mode='append')"
            )
        if run.partition_key is None and self._interval is None and (time_column or partition_column):
            raise InvalidInput(
                f"{where}: run {run.run_id} has neither interval nor partition, so there is nothing to compare "
                f"{'time_column' if time_column else 'partition_column'} with; without it the whole table is replaced"
            )

    def _replaced(
        self, schema: StructType, name: str, time_column: str | None, partition_column: str | None
    ) -> _Replaced | None:
        """The part of the table that this write replaces; None for all of it."""
        key = self._launch.run.partition_key
        if key is not None:
            assert partition_column is not None
            column, kind = self._column(schema, name, partition_column)
            return _Replaced(f"{column} = {_key_literal(key, kind, partition_column)}", kind, f"partition {key!r}")
        if self._interval is None:
            return None
        assert time_column is not None
        column, kind = self._column(schema, name, time_column)
        ends = bounds(self._interval, self._launch.dag.timezone).get(kind)
        if ends is None:
            raise InvalidInput(
                f"ctx.write(..., {name!r}, time_column={time_column!r}): the column is {kind}; "
                "it must be TIMESTAMP, TIMESTAMP_NTZ or DATE"
            )
        start, end = (format_instant(at) for at in self._interval)
        return _Replaced(f"{column} >= {ends.lower} AND {column} < {ends.upper}", kind, f"interval [{start}, {end})")

    def _column(self, schema: StructType, name: str, column: str) -> tuple[str, str]:
        for field in schema.fields:
            if field.name.lower() == column.lower():
                return identifier(field.name), field.dataType.simpleString()
        names = [field.name for field in schema.fields]
        raise InvalidInput(
            f"ctx.write(..., {name!r}): the table has no column {column!r}"
            f"{nearest(column, names) or '; it has ' + ', '.join(names)}"
        )

    # -- the write ----------------------------------------------------------------------------------------------------
    @contextlib.contextmanager
    def _turn(self, table: OutputTable, transaction: str, df: DataFrame) -> Iterator[None]:
        """This writer's turn at the table; the rows are computed while it waits."""
        is_cached = False
        has_turn = table.queue.acquire(blocking=False)
        try:
            if not has_turn:
                written = table.exists() and table.read().recorded(transaction) is not None
                level = df.storageLevel
                if not written and not (level.useMemory or level.useDisk):
                    is_cached = True
                    df.persist().count()
                table.queue.acquire()
                has_turn = True
            yield
        finally:
            if has_turn:
                table.queue.release()
            if is_cached:
                df.unpersist()

    def _commit(
        self,
        table: OutputTable,
        transaction: str,
        df: DataFrame,
        time_column: str | None,
        partition_column: str | None,
        mode: Mode,
    ) -> int | None:
        for attempt in retry_on_conflict(self._log, table.name):
            with attempt:
                self._refuse_if_abandoned()
                if not table.exists():
                    table.create(df.schema)
                before = table.read()
                if self._has_landed(before, transaction):
                    return None
                replaced = None
                if mode == "replace":
                    replaced = self._replaced(before.schema, table.name, time_column, partition_column)
                metadata = user_metadata(self._state, self._launch)
                self._save(table, df, transaction, metadata, mode, replaced)
                return self._committed_rows(table, transaction, metadata, before.version, mode)
        raise AssertionError("tenacity either returns or raises")

    def _committed_rows(
        self, table: OutputTable, transaction: str, metadata: str, before: int, mode: Mode
    ) -> int | None:
        after = table.read()
        commit = after.find(metadata, since=before)
        if commit is None:  # Delta left it out, as the same transaction had landed a moment before
            self._has_landed(after, transaction)
            return None
        rows = "" if commit.rows is None else f"{commit.rows:,} rows "
        verb = "into" if mode == "replace" else "appended to"
        self._log.info("%s%s %s, version %d", rows, verb, table.name, commit.version)
        return commit.rows

    def _has_landed(self, state: TableState, transaction: str) -> bool:
        if not state.has_landed(transaction, self._launch.ti.generation):
            return False
        self._log.info("%s: an earlier try of this run has written its rows; nothing is written again", state.name)
        return True

    def _save(
        self, table: OutputTable, df: DataFrame, transaction: str, metadata: str, mode: Mode, replaced: _Replaced | None
    ) -> None:
        from pyspark.errors import AnalysisException

        writer = df.write.format("delta").mode("append" if mode == "append" else "overwrite")
        writer = writer.option("txnAppId", transaction).option("txnVersion", str(self._launch.ti.generation))
        writer = writer.option("userMetadata", metadata)
        if replaced is not None:
            writer = writer.option("replaceWhere", replaced.where)
        try:
            table.save(writer)
        except AnalysisException as error:
            if replaced is None or error.getCondition() != "DELTA_REPLACE_WHERE_MISMATCH":
                raise
            raise InvalidInput(
                f"ctx.write(..., {table.name!r}): there are rows outside of this run's {replaced.name}"
                f"{_example(str(error), replaced.kind)}; nothing was written. "
                "Leave them out first, as with .where(ctx.in_interval(...))."
            ) from None


def _key_literal(key: str, kind: str, column: str) -> str:
    try:
        if kind == "string":
            return string_literal(key)
        if kind in ("tinyint", "smallint", "int", "bigint"):
            return str(int(key))
        if kind == "date":
            return f"DATE '{date.fromisoformat(key).isoformat()}'"
    except ValueError:
        raise InvalidInput(f"partition key {key!r} does not fit partition_column {column!r}, which is {kind}") from None
    raise InvalidInput(f"partition_column {column!r} is {kind}; it must be STRING, DATE or a whole number")


def _example(message: str, kind: str) -> str:
    """The offending value in Delta's message (a line ` - column : value`), in readable form."""
    match = re.search(r"^ - (\S+) : (.*)$", message, re.MULTILINE)
    if match is None:
        return ""
    column, value = match.groups()
    if value.lstrip("-").isdigit():
        if kind == "date":
            value = (EPOCH + timedelta(days=int(value))).date().isoformat()
        elif kind in ("timestamp", "timestamp_ntz"):
            at = format_instant(from_micros(int(value))) or ""
            value = at if kind == "timestamp" else at.removesuffix("Z")
    return f" (for example {column} = {value})"
