"""Tables that outlive Spark's in-memory catalog.

Without a metastore Spark forgets at each start which tables there are, though their folders lie in the warehouse. A
Delta table's folder tells all that a catalog needs, so it is simply made known again. It then counts as an external
table: `DROP TABLE` forgets it and leaves its files.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from backfill_manager.execution.sql_lexer import identifier

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_VALID: Final = re.compile(r"[A-Za-z0-9_]+")  # what Spark accepts in a session catalog


def register_tables(spark: SparkSession) -> list[str]:
    """Make known every Delta table in the folder of `spark.sql.warehouse.dir` that the catalog doesn't know (also those
    in `<schema>.db` folders); returns their names. Does nothing where there is a metastore. Call it once at the
    start."""
    if not _forgets(spark):
        return []
    adopted = []
    for folder, path in _folders(spark, _warehouse(spark)):
        if folder.endswith(".db") and _VALID.fullmatch(schema := folder.removesuffix(".db")):
            for table, table_path in _folders(spark, path):
                adopted += _adopt_folder(spark, schema, table, table_path)
        else:
            adopted += _adopt_folder(spark, "default", folder, path)
    return adopted


def adopt(spark: SparkSession, name: str) -> bool:
    """The same for one table that is about to be made: True if it was there."""
    folder = folder_of(spark, name)
    return folder is not None and bool(_adopt_folder(spark, *_schema_and_table(spark, name), folder))


def folder_of(spark: SparkSession, name: str) -> str | None:
    """The folder of the warehouse in which a table of this name lies, if it does; None where a metastore knows where
    tables are, and for what is no name of a table in the session's own catalog."""
    schema, table = _schema_and_table(spark, name)
    if not _forgets(spark) or "." in schema or not _VALID.fullmatch(table):
        return None
    folder = "" if schema == "default" else f"/{schema}.db"
    return f"{_warehouse(spark)}{folder}/{table.lower()}"


def _schema_and_table(spark: SparkSession, name: str) -> tuple[str, str]:
    schema, _, table = name.removeprefix("spark_catalog.").replace("`", "").rpartition(".")
    return schema or spark.catalog.currentDatabase(), table


def _forgets(spark: SparkSession) -> bool:
    return str(spark.conf.get("spark.sql.catalogImplementation", "in-memory")) == "in-memory"


def _warehouse(spark: SparkSession) -> str:
    return str(spark.conf.get("spark.sql.warehouse.dir")).rstrip("/")


def _adopt_folder(spark: SparkSession, schema: str, table: str, path: str) -> list[str]:
    from delta.tables import DeltaTable

    name = f"{schema}.{table}"
    if not _VALID.fullmatch(table) or spark.catalog.tableExists(name) or not DeltaTable.isDeltaTable(spark, path):
        return []
    if not spark.catalog.databaseExists(schema):
        spark.sql(f"CREATE SCHEMA IF NOT EXISTS {identifier(schema)}")
    spark.catalog.createTable(name, path=path, source="delta")
    return [name]


def _folders(spark: SparkSession, path: str) -> list[tuple[str, str]]:
    """(name, path) of each folder in a folder, wherever it is; none if it does not exist."""
    jvm: Any = spark._jvm
    where = jvm.org.apache.hadoop.fs.Path(path)
    file_system = where.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    if not file_system.exists(where):
        return []
    found = [status.getPath() for status in file_system.listStatus(where) if status.isDirectory()]
    return sorted((str(folder.getName()), str(folder.toString())) for folder in found)
