"""What `ctx.write` does with the rows: it replaces a run's interval or partition (Delta's replaceWhere), or the whole table, or
appends.

- `replace` is Delta's replaceWhere with the run's interval (or its partition): exactly these rows go, and rows
  outside of them in what is written are an error that changes nothing. A run with neither replaces the whole table.
- `overwrite` replaces the whole table, whatever run it is. Columns that the rows lack stay, and get their default, or NULL.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Final, get_args

from backfill_manager.clock import EPOCH, format_instant, from_micros
from backfill_manager.errors import InvalidInput, nearest
from backfill_manager.execution.interval import bounds, ends
from backfill_manager.execution.messages import TaskLaunch
from backfill_manager.execution.output.delta_refusals import OUTSIDE
from backfill_manager.execution.output.output_table import OutputTable
from backfill_manager.execution.output.staged_write import EVERY_ROW, Replaced
from backfill_manager.execution.output.table_state import CommitMark, TableState
from backfill_manager.model.states import WriteMode
from backfill_manager.store.sql_guard import identifier, string_literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

MODES: Final = get_args(WriteMode)
_KEYS_OF_NULL: Final = ("", "__HIVE_DEFAULT_PARTITION__")  # as values of a column by which a table is partitioned


@dataclass(frozen=True)
class Write:
    call: str
    launch: TaskLaunch
    column: str | None  # by which it replaces rows; None if it replaces all, or none
    mode: WriteMode
    adds_columns: bool
    interval_column: str | None = None  # that tells which rows are the run's, also of those that are appended

    @property
    def verb(self) -> str:
        return "appended to" if self.mode == "append" else "into"

    @property
    def replaces_part_or_appends(self) -> bool:
        return self.mode == "append" or self.column is not None

    @classmethod
    def checked(
        cls, call: str, launch: TaskLaunch, time_column: str | None, partition_column: str | None, mode: WriteMode,
        adds_columns: bool,
    ) -> Write:  # fmt: skip
        if mode not in MODES:
            raise InvalidInput(f"{call}: mode is 'replace', 'append' or 'overwrite', not {mode!r}")
        column = None
        if mode == "replace":
            column = _column_of_run(call, launch, time_column, partition_column)
        elif mode == "overwrite" and (time_column or partition_column):
            given = "time_column" if time_column else "partition_column"
            raise InvalidInput(
                f"{call}: mode='overwrite' replaces the whole table, so it takes no {given}; mode='replace', which does, "
                "replaces the rows of the run's interval or partition"
            )
        of_run = time_column if launch.run.partition_key is None else partition_column
        return cls(call, launch, column, mode, adds_columns, of_run if launch.interval or column else None)

    def check(self, table: TableState | None, rows: DataFrame) -> None:
        if self.column is not None:
            _column(self.call, rows.schema, "the DataFrame", self.column)
        if table is None:
            self.replaced(rows.schema)  # a column by which it can't replace makes no table, which would keep its type
            return
        self._refuse_key_of_null(table)
        table.refuse_misfits(self.call, rows, self.adds_columns)
        table.refuse_missing(self.call, rows)

    def commit(self, table: OutputTable, before: TableState, rows: DataFrame, mark: CommitMark) -> None:
        from pyspark.errors import AnalysisException

        writer = rows.write.format("delta").mode("append" if self.mode == "append" else "overwrite")
        writer = writer.options(txnAppId=mark.transaction, txnVersion=str(mark.generation), userMetadata=mark.metadata)
        writer = writer.option("mergeSchema", self.adds_columns)
        replaced = self.replaced(before.schema)
        if self.mode != "append":
            writer = writer.option("replaceWhere", EVERY_ROW if replaced is None else replaced.where)
        try:
            table.save(writer)
        except AnalysisException as error:
            if replaced is not None and OUTSIDE in str(error):
                example = _example(str(error), replaced.kind)
                raise InvalidInput(
                    f"{self.call}: there are rows outside of this run's {replaced.name}{example}; nothing was written. "
                    f"Leave them out first{self._where(replaced)}.{self._day_of(example, replaced)}"
                ) from None
            raise

    def _where(self, replaced: Replaced) -> str:
        """In SQL as in Python. (Dates in SQL depend on the time zone of the DAG.)"""
        column = replaced.column
        if self.launch.task.kind != "sql":
            of_key = f".where(df[{column!r}] == ctx.partition_key)"
            return f", as with {'.where(ctx.in_interval(...))' if replaced.key is None else of_key}"
        if replaced.key is not None:
            return f", as with WHERE {column} = :partition_key"
        is_instant = replaced.kind == "timestamp"
        return f", as with WHERE {column} >= :interval_start AND {column} < :interval_end" if is_instant else ""

    def _day_of(self, example: str, replaced: Replaced) -> str:
        """For a day that Spark's functions have made of an instant: it begins in UTC."""
        zone = self.launch.dag.timezone
        if replaced.key is not None or zone == "UTC" or not example.endswith("T00:00:00Z)"):
            return ""
        return (
            f" Days of this DAG begin in {zone}, those of Spark's functions in UTC: "
            f"CAST(from_utc_timestamp(at, '{zone}') AS DATE) is the DAG's day of an instant `at`."
        )

    def _refuse_key_of_null(self, table: TableState) -> None:
        """Delta notes some texts of a partition as NULL: the rows would not be found again, and be there twice after a retry."""
        key, column = self.launch.run.partition_key, (self.column or "").lower()
        if key in _KEYS_OF_NULL and column in (name.lower() for name in table.metadata["partitionColumns"]):
            raise InvalidInput(
                f"{self.call}: the table is partitioned by {self.column}, and Delta has {key!r} as NULL there; use another key, "
                "or a table that is not partitioned by it; nothing was written"
            )

    def replaced(self, schema: StructType) -> Replaced | None:
        """The part of a table with these columns that it replaces; None if it replaces all, or none."""
        if self.column is None:
            return None
        launch, by = self.launch, self.column
        column, kind = _column(self.call, schema, "the table", by)
        name = next(name for name in schema.names if name.lower() == by.lower())
        if (key := launch.run.partition_key) is not None:
            where = f"{column} = {_key_literal(key, kind, by)}"
            return Replaced(where, name, kind, f"partition {key!r}", key=key)
        assert launch.interval is not None
        literals = bounds(launch.interval, launch.dag.timezone).get(kind)
        if literals is None:
            wanted = "TIMESTAMP, TIMESTAMP_NTZ or DATE"
            raise InvalidInput(f"{self.call}: time_column {by!r} is {kind}; it must be {wanted}")
        start, end = (format_instant(at) for at in launch.interval)
        lower, upper = ends(launch.interval, launch.dag.timezone)[kind]
        where = f"{column} >= {literals[0]} AND {column} < {literals[1]}"
        return Replaced(where, name, kind, f"interval [{start}, {end})", lower, upper)


def _column_of_run(call: str, launch: TaskLaunch, time_column: str | None, partition_column: str | None) -> str | None:
    """The column that tells which rows are this run's; None if it has neither interval nor partition."""
    run = launch.run
    if run.partition_key is not None:
        if partition_column is None:
            raise InvalidInput(
                f"{call} in a run for partition {run.partition_key!r} needs partition_column=..., "
                "the column that holds the key (or mode='append'; mode='overwrite' replaces the whole table)"
            )
        return partition_column
    if launch.interval is not None and launch.interval.start == launch.interval.end:
        raise InvalidInput(
            f"{call}: run {run.run_id} has an empty interval, as its DAG has no schedule, so no rows are its own; "
            "mode='overwrite' replaces the whole table (or mode='append', or ctx.merge)"
        )
    if launch.interval is not None:
        if time_column is None:
            raise InvalidInput(
                f"{call} needs time_column=..., the column by which rows belong to the run's interval "
                "(or mode='append'; mode='overwrite' replaces the whole table)"
            )
        return time_column
    if time_column or partition_column:
        raise InvalidInput(
            f"{call}: run {run.run_id} has neither interval nor partition, so there is nothing to compare "
            f"{'time_column' if time_column else 'partition_column'} with; mode='overwrite' without it replaces the whole table"
        )
    return None


def _column(call: str, schema: StructType, whose: str, column: str) -> tuple[str, str]:
    """Its name in SQL, and its type."""
    for field in schema.fields:
        if field.name.lower() == column.lower():
            return identifier(field.name), field.dataType.simpleString()
    raise InvalidInput(
        f"{call}: {whose} has no column {column!r}"
        f"{nearest(column, schema.names) or '; it has ' + ', '.join(schema.names)}"
    )


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
