"""What `ctx.merge` does with the rows: an upsert by key, as one MERGE.

- A row whose key is in the table replaces the values of its columns there; columns that the rows lack keep theirs. Others are
  inserted. Keys are compared with `<=>`, so that NULL is a key like any other and a second merge changes nothing.
- Two rows of one key are refused before anything is written: Delta would insert both when the table has neither.
- MERGE takes its transaction from the session's configuration. A session of its own has it, because others of the task
  (threads, a statement after it) use `ctx.spark` meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backfill_manager.errors import InvalidInput, nearest
from backfill_manager.execution.output.output_table import OutputTable
from backfill_manager.execution.output.table_state import CommitMark, TableState
from backfill_manager.store.delta_spark.conflicts import marked_commits
from backfill_manager.store.sql_guard import identifier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class Merge:
    call: str
    on: tuple[str, ...]  # columns of the rows, as they are written there
    adds_columns: bool
    verb: str = "merged into"

    @classmethod
    def checked(cls, call: str, df: DataFrame, on: str | Sequence[str], adds_columns: bool) -> Merge:
        given = [on] if isinstance(on, str) else list(on)
        if not given or not all(isinstance(name, str) for name in given):
            raise InvalidInput(f"{call}: on=[...] names the columns of the key, such as on=['id']; it is {on!r}")
        if twice := [name for name, n in Counter(name.lower() for name in given).items() if n > 1]:
            raise InvalidInput(f"{call}: on=[...] has {twice[0]!r} twice")
        return cls(call, tuple(_spelt(call, df.columns, "the DataFrame", name) for name in given), adds_columns)

    def check(self, table: TableState | None, rows: DataFrame) -> None:
        if table is None:
            self._refuse_second_rows(rows)  # before the table is made, which would stay empty
            return
        for name in self.on:
            _spelt(self.call, table.schema.names, "the table", name)
        table.refuse_misfits(self.call, rows, self.adds_columns)
        table.refuse_nullable_fields(self.call, rows)

    def replaced(self, schema: StructType) -> None:
        """No part of a table: any row may be of it."""

    def commit(self, table: OutputTable, before: TableState, rows: DataFrame, mark: CommitMark) -> None:
        from pyspark.sql import SparkSession

        self._refuse_second_rows(rows)
        spark = rows.sparkSession
        own = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())
        # As each of them spells it: a session may be case-sensitive, a table is not.
        spelt = {name.lower(): name for name in before.schema.names}
        of_table = {name: identifier(spelt.get(name.lower(), name)) for name in rows.columns}
        values = {of_table[name]: f"new.{identifier(name)}" for name in rows.columns}
        is_key = " AND ".join(f"old.{of_table[name]} <=> new.{identifier(name)}" for name in self.on)
        merge = table.delta(own).alias("old").merge(rows.alias("new"), is_key)
        if self.adds_columns:
            merge = merge.withSchemaEvolution()
        changed = {name: value for name, value in values.items() if name not in {of_table[one] for one in self.on}}
        if changed:
            merge = merge.whenMatchedUpdate(set=changed)
        with marked_commits(own, mark.transaction, mark.generation, mark.metadata):
            merge.whenNotMatchedInsert(values=values).execute()

    def _refuse_second_rows(self, rows: DataFrame) -> None:
        from pyspark.sql import functions as F

        keys = [F.col(identifier(name)) for name in self.on]
        second = rows.groupBy(*keys).count().where("count > 1").first()
        if second is not None:
            key = ", ".join(f"{name}={value!r}" for name, value in zip(self.on, second, strict=False))
            raise InvalidInput(
                f"{self.call}: {second['count']:,} rows have the key {key}, and which of them is to stay is not said; "
                f"nothing was written. Leave one of each key, as with .dropDuplicates({list(self.on)})."
            )


def _spelt(call: str, columns: Sequence[str], whose: str, name: str) -> str:
    """The column of this name, as it is written there."""
    for column in columns:
        if column.lower() == name.lower():
            return column
    raise InvalidInput(
        f"{call}: on=[...] has {name!r}, and {whose} has no such column"
        f"{nearest(name, columns) or '; it has ' + ', '.join(columns)}"
    )
