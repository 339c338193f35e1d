"""The engine for a state in a metastore (`catalog.schema`: Unity Catalog, Hive, Glue), where delta-rs can't write.

The same tables and promises; slower ticks, because every read and commit takes Spark jobs: half a second for each table, by
Delta's own transaction, and several times that where it can't be used (Databricks).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from backfill_manager.errors import StateError
from backfill_manager.model.records import TABLES, Manager, Request
from backfill_manager.store.base import Leader
from backfill_manager.store.delta_base import DeltaStore, engine_message, query_error
from backfill_manager.store.delta_spark.conflicts import CONFLICTS
from backfill_manager.store.delta_spark.tables import BEGUN, DONE, DeltaSparkTables
from backfill_manager.store.sql_guard import tables_named
from backfill_manager.store.whole_tables import FILLING_ORDER, PinnedTables, TablesReadWhole
from backfill_manager.store.wrong_rows import Wrong

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

    def _wrong_rows(self, table: str) -> list[Wrong]:
        remedy = "correct them, or restore the table, with Spark (DELETE, UPDATE, RESTORE TABLE)"
        return [dataclasses.replace(one, remedy=remedy, can_be_repaired=False) for one in super()._wrong_rows(table)]

    def _query(self, query: str, places: Mapping[str, str]) -> pa.Table:
        for table in places:
            self.tables.ensure_owned(table)
        if escapes := tables_named(query, list(_ESCAPES)):
            raise query_error(f"{escapes[0]} could do more than read.")
        spark, (catalog, schema) = self.tables.spark, self.root.split(".")
        try:
            spark._jsparkSession.sessionState().sqlParser().parseQuery(query)  # a query, or it can't be parsed
            spark.catalog.setCurrentCatalog(catalog)
            spark.catalog.setCurrentDatabase(schema)
            return spark.sql(query).toArrow()
        except (PySparkException, Py4JError) as error:
            unknown = isinstance(error, PySparkException) and error.getCondition() == "TABLE_OR_VIEW_NOT_FOUND"
            name = (error.getMessageParameters() or {}).get("relationName", "") if unknown else None
            no_table = None if name is None else name.replace("`", "").rpartition(".")[2]
            raise query_error(engine_message(error), no_table=no_table) from error

    def pin(self) -> PinnedTables:
        return TablesReadWhole(self)

    def fill(self, batches_of: Callable[[str], Iterator[pa.RecordBatch]]) -> None:
        self.init()
        self.tables.note_import(BEGUN)
        for table in FILLING_ORDER:
            with self.tables.translate_errors(table, "written"):
                for batch in batches_of(table):
                    frame = self.tables.rows_frame(TABLES[table], pa.Table.from_batches([batch]), self.tables.spark)
                    frame.write.format("delta").mode("append").saveAsTable(self.tables.location(table))
        self.tables.note_import(DONE)

    def append_request(self, request: Request) -> None:
        table = Request.TABLE
        self.tables.ensure_owned(table)
        try:
            with self.tables.translate_errors(table, "written"):
                frame = self.tables.rows_frame(Request, [request], self.tables.spark)
                frame.write.format("delta").mode("append").saveAsTable(self.tables.location(table))
        except CONFLICTS as error:
            raise StateError(
                f"The request could not be written to {self.tables.location(table)}: {engine_message(error)}"
            ) from error

    def lead(self, row: Manager) -> Leader:
        from backfill_manager.store.delta_spark.leader import take_over

        return take_over(self, row)
