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
- Writers of one table take turns (execution/table_turns.py). A writer that has to wait computes and caches its rows meanwhile,
  so that only the commits go one by one. Commits that conflict with writers outside of this manager are retried.

The commit's user metadata names state, dag, run, task, DAG version, try and interval.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, Literal

from backfill_manager.clock import EPOCH, format_instant, from_micros
from backfill_manager.errors import InvalidInput, nearest
from backfill_manager.execution.interval import bounds
from backfill_manager.execution.output_table import OutputTable, TableState
from backfill_manager.execution.sql_lexer import identifier, string_literal
from backfill_manager.execution.write_context import WriteContext
from backfill_manager.humanise import plural
from backfill_manager.store.delta_spark.conflicts import retry_on_conflict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
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

    def __init__(self, this: WriteContext) -> None:
        self._try = this
        self._nth: Counter[str] = Counter()

    def write(
        self, df: DataFrame, name: str, *, time_column: str | None, partition_column: str | None, mode: Mode
    ) -> int | None:
        column = self._checked_column(df, name, time_column, partition_column, mode)
        self._try.refuse_if_abandoned()
        table = OutputTable(self._try.spark, name)
        self._nth[table.identity] += 1
        transaction = self._try.transaction_id(self._nth[table.identity])
        with self._turn(table, transaction, df) as rows:
            repeated = retry_on_conflict(self._try.log, table.name)
            return repeated(self._commit, table, transaction, rows, column, mode)

    def _checked_column(
        self, df: Any, name: str, time_column: str | None, partition_column: str | None, mode: str
    ) -> str | None:
        """The column by which this write replaces rows; None if it replaces all, or none."""
        from pyspark.sql import DataFrame

        where = f"ctx.write(..., {name!r})"
        if not isinstance(df, DataFrame):
            raise InvalidInput(
                f"{where} takes a Spark DataFrame, not a {type(df).__name__}; ctx.spark.createDataFrame makes one"
            )
        if mode not in ("replace", "append"):
            raise InvalidInput(f"{where}: mode is 'replace' or 'append', not {mode!r}")
        if mode == "append":
            return None
        run = self._try.launch.run
        if run.partition_key is not None:
            if partition_column is None:
                raise InvalidInput(
                    f"{where} in a run for partition {run.partition_key!r} needs partition_column=..., "
                    "the column that holds the key"
                )
            return partition_column
        if self._try.launch.interval is not None:
            if time_column is None:
                raise InvalidInput(
                    f"{where} needs time_column=..., the column by which rows belong to the run's interval "
                    "(or mode='append')"
                )
            return time_column
        if time_column or partition_column:
            raise InvalidInput(
                f"{where}: run {run.run_id} has neither interval nor partition, so there is nothing to compare "
                f"{'time_column' if time_column else 'partition_column'} with; without it the whole table is replaced"
            )
        return None

    def _replaced(self, schema: StructType, name: str, by: str) -> _Replaced:
        """The part of the table that this write replaces."""
        launch = self._try.launch
        column, kind = self._column(schema, name, by)
        if (key := launch.run.partition_key) is not None:
            return _Replaced(f"{column} = {_key_literal(key, kind, by)}", kind, f"partition {key!r}")
        assert launch.interval is not None
        ends = bounds(launch.interval, launch.dag.timezone).get(kind)
        if ends is None:
            raise InvalidInput(
                f"ctx.write(..., {name!r}, time_column={by!r}): the column is {kind}; "
                "it must be TIMESTAMP, TIMESTAMP_NTZ or DATE"
            )
        start, end = (format_instant(at) for at in launch.interval)
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

    @contextlib.contextmanager
    def _turn(self, table: OutputTable, transaction: str, df: DataFrame) -> Iterator[DataFrame]:
        """This writer's turn at the table, with what it is to write; the rows are computed while it waits."""
        cached: DataFrame | None = None
        turn = self._try.turns.try_acquire(table.identity)
        try:
            if turn is None:
                written = table.exists() and table.read().recorded(transaction) is not None
                level = df.storageLevel
                if not written and not (level.useMemory or level.useDisk):
                    cached = _only_ours(df)
                    cached.persist().count()
                turn = self._try.turns.acquire(table.identity)
            yield df if cached is None else cached
        finally:
            if turn is not None:
                turn.release()
            if cached is not None:
                cached.unpersist()

    def _commit(
        self, table: OutputTable, transaction: str, df: DataFrame, column: str | None, mode: Mode
    ) -> int | None:
        from pyspark.errors import AnalysisException

        self._try.refuse_if_abandoned()
        if not table.exists():
            table.create(df.schema)
        before = table.read()
        if self._has_landed(before, transaction):
            return None
        metadata = self._try.user_metadata()
        writer = df.write.format("delta").mode("append" if mode == "append" else "overwrite")
        writer = writer.option("txnAppId", transaction).option("txnVersion", str(self._try.launch.ti.generation))
        writer = writer.option("userMetadata", metadata)
        replaced = None if column is None else self._replaced(before.schema, table.name, column)
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
        after = table.read()
        commit = after.find(metadata, since=before.version)
        if commit is None:  # Delta left it out, as the same transaction had landed a moment before
            self._has_landed(after, transaction)
            return None
        rows = "" if commit.rows is None else f"{plural(commit.rows, 'row')} "
        verb = "into" if mode == "replace" else "appended to"
        self._try.log.info("%s%s %s, version %d", rows, verb, table.name, commit.version)
        return commit.rows

    def _has_landed(self, state: TableState, transaction: str) -> bool:
        if not state.has_landed(transaction, self._try.launch.ti.generation):
            return False
        self._try.log.info("%s: an earlier try of this run has written its rows; nothing is written again", state.name)
        return True


def _only_ours(df: DataFrame) -> DataFrame:
    """The same rows by a plan that nobody else has. Spark shares cached rows among all whose plans are the same, as those of the
    next try are; and of rows that a killed process had begun to cache, it waits for the rest for ever."""
    from pyspark.sql import functions as F

    return df.where(F.lit(secrets.token_hex(16)).isNotNull())


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
