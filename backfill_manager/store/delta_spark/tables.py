"""The tables of a state that lives in a metastore (`catalog.schema`)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
from delta.tables import DeltaTable
from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from backfill_manager.errors import StateError
from backfill_manager.model.records import RECORDS, SCHEMA_VERSION, Manager, Record
from backfill_manager.store.base import ChangedTables
from backfill_manager.store.delta_base import DeltaTables, engine_message, sql_file
from backfill_manager.store.delta_spark.conflicts import CONFLICTS
from backfill_manager.store.delta_spark.java_classes import DELTA, java_class
from backfill_manager.store.delta_spark.transaction import DeltaTransaction, is_available
from backfill_manager.store.sql_text import SPARK, arrow_table
from backfill_manager.store.table_properties import LED_TABLES, VERSION_PROPERTY, arrow_schema, properties

# A state table is small: one partition is enough for its log, its shuffles and its files' list. No control decision may
# wait for the slots of tasks, hence the pool (execution.session puts it before all others).
SESSION_CONF: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.scheduler.pool": "control",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.optimize.minFileSize": "8388608",  # bigger ones stay: a MERGE shall rewrite little
    "spark.databricks.delta.optimize.maxFileSize": "16777216",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",  # a vacuum of 43 files: 1.8 s instead of 39 s
}
# On where a platform switches them on by itself; each is a feature that some reader of these tables lacks.
FEATURES_OFF: Final = {"delta.enableDeletionVectors": "false", "delta.enableRowTracking": "false"}
DEFAULT_PROPERTIES: Final = "spark.databricks.delta.properties.defaults."  # for all tables that a session makes
IMPORT_PROPERTY: Final = "backfill_manager.import"  # of the first table: how far the one that makes the state has come
BEGUN: Final = "begun"
DONE: Final = "done"
_MISSING: Final = ("TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND", "DELTA_TABLE_NOT_FOUND", "DELTA_MISSING_DELTA_TABLE")


def own_session(spark: SparkSession | None, root: str) -> SparkSession:
    """A session beside the caller's, with settings of its own: what is set here changes nothing for tasks."""
    spark = spark or SparkSession.getActiveSession()
    if spark is None:
        raise StateError(
            f"The state {root} lives in a metastore and is reached through Spark; there is no Spark session here."
        )
    # PySpark's copy of errors that we show ourselves
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    session = spark.newSession()
    for key, value in SESSION_CONF.items():
        session.conf.set(key, value)
    for key in [key for key in session.conf.getAll if key.startswith(DEFAULT_PROPERTIES)]:
        session.conf.unset(key)  # a site's: features that some readers lack, or append-only
    return session


class DeltaSparkTables(DeltaTables):
    ENGINE = "delta-spark"
    DIALECT = SPARK
    CONFLICTS = (*CONFLICTS, AnalysisException)  # of an upgrade: the other's columns, or just the same ones

    def __init__(self, root: str, spark: SparkSession | None) -> None:
        self.root = root
        self.spark = own_session(spark, root)
        self._catalog, self._schema = root.split(".")
        self._checked: set[str] = set()
        self._folders: dict[str, str] = {}  # by table; to ask its log there takes a quarter of asking the metastore

    def location(self, table: str) -> str:
        return f"{self._catalog}.{self._schema}.{table}"

    name_in_sql = location

    @contextmanager
    def translate_errors(self, table: str, doing: str = "read") -> Iterator[None]:
        """Conflicts of commits pass: they are for the leader to judge."""
        try:
            yield
        except CONFLICTS:
            raise
        except (PySparkException, Py4JError) as error:
            condition = (error.getCondition() or "") if isinstance(error, PySparkException) else ""
            if condition.startswith(_MISSING) and doing != "made":
                raise self.missing(table) from error
            raise self.unusable(table, doing, error) from error

    def exists(self) -> bool:
        try:
            return self._has(Manager.TABLE)
        except AnalysisException as error:
            raise StateError(f"The state {self.root} can't be looked up: {engine_message(error)}") from error

    def ensure_owned(self, table: str) -> None:
        """`check_owner`, once for each table and store."""
        if table not in self._checked:
            self.check_owner(table, self._properties(table))
            self._checked.add(table)

    def _properties(self, table: str) -> dict[str, str]:
        with self.translate_errors(table, "opened"):
            return {row[0]: row[1] for row in self.spark.sql(f"SHOW TBLPROPERTIES {self.location(table)}").collect()}

    def frame(self, table: str, session: SparkSession | None = None) -> DataFrame:
        self.ensure_owned(table)
        return (session or self.spark).table(self.location(table))

    def delta(self, table: str, session: SparkSession | None = None) -> DeltaTable:
        self.ensure_owned(table)
        return DeltaTable.forName(session or self.spark, self.location(table))

    def run(self, tables: Sequence[str], sql: str) -> pa.Table:
        for table in tables:
            self.ensure_owned(table)
        with self.translate_errors(tables[0]):
            return self.spark.sql(sql).toArrow()

    def version(self, table: str) -> int:
        """The table's version: from Delta's own log object (milliseconds), or, where the platform has that under
        another name (Databricks), from the history, which is a Spark job."""
        self.ensure_owned(table)
        with self.translate_errors(table):
            if self._delta_log is None:
                row = self.delta(table).history(1).select("version").first()
                return int(row[0]) if row else 0
            if table in self._folders:
                found = self._log_version(self._delta_log.forTable(self.spark._jsparkSession, self._folders[table]))
                if found >= 0:
                    return found
            log = self._log(table, self.spark)  # a table that is gone is missed here
            self._folders[table] = str(log.dataPath().toString())
            return self._log_version(log)

    @cached_property
    def _delta_log(self) -> Any | None:
        """Delta's class of that name; Databricks has it under another."""
        found = getattr(self.spark._jvm.org.apache.spark.sql.delta, "DeltaLog", None)
        return found if isinstance(found, JavaClass) else None

    def _log_version(self, log: Any) -> int:
        """-1 where there is no table."""
        some = java_class(self.spark, "scala.Option").apply
        return int(log.update(False, some(None), some(None)).version())

    def _log(self, table: str, session: SparkSession) -> Any:
        """Delta's `DeltaLog`."""
        some = java_class(session, "scala.Option").apply
        identifier = java_class(session, "org.apache.spark.sql.catalyst.TableIdentifier")
        name = identifier.apply(table, some(self._schema), some(self._catalog))
        return java_class(session, f"{DELTA}.DeltaLog").forTable(session._jsparkSession, name)

    @cached_property
    def has_transactions(self) -> bool:
        """Whether Delta's own transaction can be used step by step; it can't on Databricks."""
        return is_available(self.spark)

    def transaction(self, table: str, session: SparkSession) -> DeltaTransaction:
        self.ensure_owned(table)
        return DeltaTransaction(session, self._log(table, session))

    def rows_frame(self, record: type[Record], rows: Sequence[Record] | pa.Table, session: SparkSession) -> DataFrame:
        """With the table's own schema."""
        if isinstance(rows, Sequence):
            rows = pa.RecordBatchReader.from_stream(arrow_table(record, rows)).read_all()
        return session.createDataFrame(rows, schema=spark_schema(record))

    def create_missing(self, *, in_a_state: bool) -> ChangedTables:
        with self.translate_errors(RECORDS[0].TABLE, "made"):
            self.spark.sql(f"CREATE SCHEMA IF NOT EXISTS {self._catalog}.{self._schema}")
        return super().create_missing(in_a_state=in_a_state)

    def _has(self, table: str) -> bool:
        return bool(self.spark.catalog.tableExists(self.location(table)))

    def create(self, record: type[Record]) -> None:
        fields = (
            f"{x.name} {x.dataType.simpleString()}{'' if x.nullable else ' NOT NULL'}" for x in spark_schema(record)
        )
        settings = (f"'{key}' = '{value}'" for key, value in {**properties(self.ENGINE), **FEATURES_OFF}.items())
        sql = sql_file("create_table").format(
            table=self.location(record.TABLE), columns=", ".join(fields), properties=", ".join(settings)
        )
        self.spark.sql(sql)

    def note_import(self, how_far: str) -> None:
        with self.translate_errors(LED_TABLES[0], "written"):
            self.spark.sql(
                f"ALTER TABLE {self.location(LED_TABLES[0])} SET TBLPROPERTIES ('{IMPORT_PROPERTY}' = '{how_far}')"
            )

    def is_half_imported(self) -> bool:
        return self._properties(LED_TABLES[0]).get(IMPORT_PROPERTY) == BEGUN

    def _upgrade(self, record: type[Record]) -> bool:
        name = self.location(record.TABLE)
        if not self.check_owner(record.TABLE, self._properties(record.TABLE), may_be_older=True):
            return False
        there = set(self.spark.table(name).columns)
        if missing := [x for x in spark_schema(record) if x.name not in there]:
            added = ", ".join(f"{x.name} {x.dataType.simpleString()}" for x in missing)
            self.spark.sql(f"ALTER TABLE {name} ADD COLUMNS ({added})")
        self.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('{VERSION_PROPERTY}' = '{SCHEMA_VERSION}')")
        return True


def spark_schema(record: type[Record]) -> StructType:
    return from_arrow_schema(arrow_schema(record))
