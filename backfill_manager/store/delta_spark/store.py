"""The engine for a state in a metastore (`catalog.schema`: Unity Catalog, Hive, Glue), where delta-rs can't write.

The same tables and promises; slower ticks (a MERGE takes a second or more), because every read and commit is a Spark job.
Conditions become Column expressions with literals, so no text from outside is ever part of a statement.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from backfill_manager.errors import StateError
from backfill_manager.model.records import TABLES, Manager, Request
from backfill_manager.store.base import Condition, Leader
from backfill_manager.store.delta_base import DeltaStore, first_line, query_error
from backfill_manager.store.delta_spark.conflicts import CONFLICTS
from backfill_manager.store.delta_spark.tables import DeltaSparkTables, column_of
from backfill_manager.store.filters import record_of
from backfill_manager.store.rows import python_columns, to_arrow
from backfill_manager.store.sql_guard import single_query, tables_named

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

# Functions that call any Java method: the one way in which a query could do something other than read.
_ESCAPES: Final = ("java_method", "reflect", "try_reflect")


class DeltaSparkStore(DeltaStore):
    engine = DeltaSparkTables.ENGINE
    tables: DeltaSparkTables

    def __init__(self, root: str, spark: SparkSession | None = None) -> None:
        super().__init__(root, DeltaSparkTables(root, spark))

    def _inspect(self, table: str) -> tuple[list[str], tuple[int, int]]:
        with self.tables.translate_errors(table):
            names = self.tables.frame(table).columns
            detail = self.tables.delta(table).detail().select("minReaderVersion", "minWriterVersion").first()
        return names, (0, 0) if detail is None else (detail[0], detail[1])

    def _scan(self, table: str) -> int:
        with self.tables.translate_errors(table):
            frame = self.tables.frame(table)
            every = [f.count(f.col(column).cast("string")) for column in frame.columns]
            row = frame.agg(f.count(f.lit(1)), *every).first()
        return row[0] if row else 0

    # -- reading ------------------------------------------------------------------------------------------------------
    def _where(self, table: str, where: Sequence[Condition] | None) -> DataFrame:
        frame = self.tables.frame(table)
        return frame.where(f.lit(False)) if where is None else _narrowed(frame, where)

    def _read(
        self, table: str, names: Sequence[str], where: Sequence[Condition] | None, order: Sequence[tuple[str, bool]],
        limit: int | None,
    ) -> list[list[Any]]:  # fmt: skip
        with self.tables.translate_errors(table):
            frame = self._where(table, where)
            if order:
                frame = frame.orderBy(*(f.desc_nulls_last(n) if down else f.asc_nulls_last(n) for n, down in order))
            return python_columns((frame if limit is None else frame.limit(limit)).select(*names).toArrow())

    def _read_arrow(self, table: str, names: Sequence[str], where: Sequence[Condition] | None) -> pa.Table:
        with self.tables.translate_errors(table):
            return self._where(table, where).select(*names).toArrow()

    def _count(self, table: str, by: Sequence[str], where: Sequence[Condition] | None) -> list[list[Any]]:
        with self.tables.translate_errors(table):
            return python_columns(self._where(table, where).groupBy(*by).agg(f.count(f.lit(1))).toArrow())

    def _run(self, tables: Sequence[str], sql: str, **values: str) -> list[list[Any]]:
        for name in tables:
            self.tables.ensure_owned(name)
        sql = sql.format(**values, **{name: self.tables.location(name) for name in tables})
        with self.tables.translate_errors(tables[0]):
            return python_columns(self.tables.spark.sql(sql).toArrow())

    def version(self, table: str) -> int:
        name = record_of(table).TABLE
        self.tables.ensure_owned(name)
        with self.tables.translate_errors(name):
            return self.tables.version(name)

    def query(self, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        query = single_query(sql)
        for table in tables_named(query, list(TABLES)):
            self.tables.ensure_owned(table)
        if escapes := tables_named(query, list(_ESCAPES)):
            raise query_error(f"{escapes[0]} could do more than read.")
        spark = self.tables.spark
        try:
            spark._jsparkSession.sessionState().sqlParser().parseQuery(query)  # a query, or it can't be parsed
            spark.catalog.setCurrentCatalog(self.root.split(".")[0])
            spark.catalog.setCurrentDatabase(self.root.split(".")[1])
            found = spark.sql(query).toArrow()
        except (PySparkException, Py4JError) as error:
            raise query_error(first_line(error), no_table=_unknown_table(error)) from error
        return list(found.column_names), list(zip(*python_columns(found), strict=True))

    # -- writing ------------------------------------------------------------------------------------------------------
    def append_request(self, request: Request) -> None:
        table = Request.TABLE
        self.tables.ensure_owned(table)
        try:
            with self.tables.translate_errors(table, "written"):
                frame = self.tables.rows_frame(Request, to_arrow(Request, [request]), self.tables.spark)
                frame.write.format("delta").mode("append").saveAsTable(self.tables.location(table))
        except CONFLICTS as error:
            raise StateError(
                f"The request could not be written to {self.tables.location(table)}: {first_line(error)}"
            ) from error

    def lead(self, row: Manager) -> Leader:
        from backfill_manager.store.delta_spark.leader import take_over

        return take_over(self, row)


def _unknown_table(error: Exception) -> str | None:
    if isinstance(error, PySparkException) and error.getCondition() == "TABLE_OR_VIEW_NOT_FOUND":
        name: str = (error.getMessageParameters() or {}).get("relationName", "")
        return name.replace("`", "").rpartition(".")[2]
    return None


def _narrowed(frame: DataFrame, conditions: Sequence[Condition]) -> DataFrame:
    for condition in conditions:
        frame = frame.where(column_of(condition))
    return frame
