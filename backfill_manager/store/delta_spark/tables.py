"""The tables of a state that lives in a metastore (`catalog.schema`), and telling in one line why one can't be used."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from delta.tables import DeltaTable
from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from backfill_manager.errors import StateError, StateNotInitialised
from backfill_manager.model.records import RECORDS, TABLES, Manager, Record, columns
from backfill_manager.store.delta_spark.conflicts import CONFLICTS
from backfill_manager.store.schema import SCHEMA_VERSION, VERSION_PROPERTY, check_properties, is_older, properties

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

ENGINE: Final = "delta-spark"
UPGRADE_ATTEMPTS: Final = 5
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
_NOT_THERE: Final = (
    "TABLE_OR_VIEW_NOT_FOUND",
    "SCHEMA_NOT_FOUND",
    "DELTA_TABLE_NOT_FOUND",
    "DELTA_MISSING_DELTA_TABLE",
)


def own_session(spark: SparkSession | None, root: str) -> SparkSession:
    """A session beside the caller's, with settings of its own: what is set here changes nothing for tasks."""
    spark = spark or SparkSession.getActiveSession()
    if spark is None:
        raise StateError(
            f"The state {root} lives in a metastore and is reached through Spark; there is no Spark session here."
        )
    logging.getLogger("SQLQueryContextLogger").setLevel(
        logging.CRITICAL + 1
    )  # PySpark's copy of errors that we tell ourselves
    session = spark.newSession()
    for key, value in SESSION_CONF.items():
        session.conf.set(key, value)
    return session


def first_line(error: BaseException) -> str:
    said = str(error.java_exception.getMessage()) if isinstance(error, Py4JJavaError) else str(error)
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    line = (lines[0] if lines else type(error).__name__).partition(" SQLSTATE:")[0]
    return line if len(line) <= 220 else line[:217] + "..."


def not_there(error: PySparkException) -> bool:
    return (error.getCondition() or "").startswith(_NOT_THERE)


class DeltaSparkTables:
    def __init__(self, root: str, spark: SparkSession | None) -> None:
        self.root = root
        self.spark = own_session(spark, root)
        self._catalog, self._schema = root.split(".")
        self._checked: set[str] = set()

    def name(self, table: str) -> str:
        return f"{self._catalog}.{self._schema}.{table}"

    def locations(self) -> dict[str, str]:
        return {name: self.name(name) for name in TABLES}

    @contextmanager
    def told(self, table: str, doing: str = "read") -> Iterator[None]:
        """What Spark and Delta raise becomes one line. Conflicts of commits pass: they are for the leader to judge."""
        try:
            yield
        except CONFLICTS:
            raise
        except (PySparkException, Py4JError) as error:
            if isinstance(error, PySparkException) and not_there(error) and doing != "made":
                if not self.made():
                    raise StateNotInitialised(self.root) from error
                raise StateError(
                    f"Table {table} of the state is missing at {self.name(table)}. Restore it, or make it anew, empty: "
                    f"`bfm --state {self.root} state init`."
                ) from error
            raise StateError(f"Table {table} at {self.name(table)} can't be {doing}: {first_line(error)}") from error

    def made(self) -> bool:
        try:
            return bool(self.spark.catalog.tableExists(self.name(Manager.TABLE)))
        except AnalysisException as error:
            raise StateError(f"The state {self.root} can't be looked up: {first_line(error)}") from error

    def check_owner(self, table: str) -> None:
        """Once for each table and store: made by us, for this engine, by no newer version."""
        if table in self._checked:
            return
        check_properties(self._properties(table), engine=ENGINE, table=table, place=self.name(table))
        self._checked.add(table)

    def _properties(self, table: str) -> dict[str, str]:
        with self.told(table, "opened"):
            return {row[0]: row[1] for row in self.spark.sql(f"SHOW TBLPROPERTIES {self.name(table)}").collect()}

    def frame(self, table: str, session: SparkSession | None = None) -> DataFrame:
        self.check_owner(table)
        return (session or self.spark).table(self.name(table))

    def delta(self, table: str, session: SparkSession | None = None) -> DeltaTable:
        self.check_owner(table)
        return DeltaTable.forName(session or self.spark, self.name(table))

    def version(self, table: str) -> int:
        """The table's version: from Delta's own log object (milliseconds), or, where the platform has that under
        another name (Databricks), from the history, which is a Spark job."""
        jvm = self.spark._jvm
        identifier = jvm.org.apache.spark.sql.catalyst.TableIdentifier
        log = getattr(jvm.org.apache.spark.sql.delta, "DeltaLog", None)
        if isinstance(log, JavaClass):
            name = identifier.apply(table, jvm.scala.Option.apply(self._schema), jvm.scala.Option.apply(self._catalog))
            nothing = jvm.scala.Option.apply(None)
            return int(log.forTable(self.spark._jsparkSession, name).update(False, nothing, nothing).version())
        row = self.delta(table).history(1).select("version").first()
        return int(row[0]) if row else 0

    def rows_frame(self, record: type[Record], rows: Any, session: SparkSession) -> DataFrame:
        """An Arrow table of one record type as a DataFrame, with the table's own schema."""
        return session.createDataFrame(rows, schema=spark_schema(record))

    def create_missing(self) -> list[str]:
        made = []
        for record in RECORDS:
            with self.told(record.TABLE, "made"):
                if record is RECORDS[0]:
                    self.spark.sql(f"CREATE SCHEMA IF NOT EXISTS {self._catalog}.{self._schema}")
                if self.spark.catalog.tableExists(self.name(record.TABLE)):
                    if self._brought_up_to_date(record):
                        made.append(record.TABLE)
                    continue
                self.spark.sql(_create_table(self.name(record.TABLE), record))
            made.append(record.TABLE)
        return made

    def _brought_up_to_date(self, record: type[Record]) -> bool:
        """A table of an older release gets the columns that were added since. Two managers that start at the same time
        both try: who was not the first looks again at what is left to do."""
        for attempt in range(1, UPGRADE_ATTEMPTS + 1):
            try:
                return self._bring_up_to_date(record)
            except (*CONFLICTS, AnalysisException) as error:  # the other's columns, or just the same ones
                if attempt == UPGRADE_ATTEMPTS:
                    place = self.name(record.TABLE)
                    raise StateError(f"Table {record.TABLE} at {place} can't be made: {first_line(error)}") from error
        return False

    def _bring_up_to_date(self, record: type[Record]) -> bool:
        """True if there was anything to do; the version is said last."""
        name, found = self.name(record.TABLE), self._properties(record.TABLE)
        check_properties(found, engine=ENGINE, table=record.TABLE, place=name, may_be_older=True)
        if not is_older(found):
            return False
        there = set(self.spark.table(name).columns)
        if missing := [x for x in spark_schema(record) if x.name not in there]:
            added = ", ".join(f"{x.name} {x.dataType.simpleString()}" for x in missing)
            self.spark.sql(f"ALTER TABLE {name} ADD COLUMNS ({added})")
        self.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('{VERSION_PROPERTY}' = '{SCHEMA_VERSION}')")
        return True


def _create_table(name: str, record: type[Record]) -> str:
    text = resources.files("backfill_manager.store").joinpath("sql/create_table.sql").read_text(encoding="utf-8")
    fields = (f"{x.name} {x.dataType.simpleString()}{'' if x.nullable else ' NOT NULL'}" for x in spark_schema(record))
    settings = (f"'{key}' = '{value}'" for key, value in {**properties(ENGINE), **FEATURES_OFF}.items())
    return text.format(table=name, columns=", ".join(fields), properties=", ".join(settings))


def spark_schema(record: type[Record]) -> StructType:
    from pyspark.sql import types as t

    kinds = {
        str: t.StringType(),
        int: t.LongType(),
        float: t.DoubleType(),
        bool: t.BooleanType(),
        datetime: t.TimestampType(),
    }
    return t.StructType(
        [t.StructField(name, kinds[kind], nullable) for name, (kind, nullable) in columns(record).items()]
    )
