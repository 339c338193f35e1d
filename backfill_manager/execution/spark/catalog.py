"""Registers the warehouse's tables in Spark's in-memory catalog.

Without a metastore Spark loses its catalog at each start, though the tables' folders are in the warehouse. A Delta table's folder
has all that a catalog needs, so it is registered again. It then counts as an external table: `DROP TABLE` removes it from the
catalog and leaves its files.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from backfill_manager.errors import InvalidConfig
from backfill_manager.execution.error_format import one_line
from backfill_manager.store.delta_spark.java_classes import java_class
from backfill_manager.store.sql_guard import identifier

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_T = TypeVar("_T")
_VALID: Final = re.compile(r"[A-Za-z0-9_]+")  # what Spark accepts in a session catalog


def register_tables(spark: SparkSession) -> list[str]:
    """Registers every Delta table in the folder of `spark.sql.warehouse.dir` that the catalog lacks (also those in `<schema>.db`
    folders); returns their names. Does nothing where there is a metastore. Call it once at the start. `InvalidConfig` if Spark
    can't read there."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    if not _is_in_memory(spark):
        return []
    try:
        return _register_folders(spark)
    except (PySparkException, Py4JJavaError) as error:
        raise InvalidConfig(
            f"Spark can't read the warehouse {warehouse(spark)}: {one_line(error).rstrip('.')}. See `warehouse` in the "
            "configuration. A path without a scheme lies in Hadoop's `fs.defaultFS`; for a folder of this machine write `file:///...`."
        ) from error


def _register_folders(spark: SparkSession) -> list[str]:
    found: list[tuple[str, str, str]] = []
    for folder, path in _folders(spark, warehouse(spark)):
        if folder.endswith(".db") and _VALID.fullmatch(schema := folder.removesuffix(".db")):
            found += ((schema, *table) for table in _folders(spark, path))
        else:
            found.append(("default", folder, path))
    return [f"{schema}.{table}" for schema, table, path in found if _register_folder(spark, schema, table, path)]


def register_table(spark: SparkSession, name: str) -> bool:
    """The same for one table, that is about to be created or was not found: True if it existed, and the catalog lacked it."""
    folder = folder_of(spark, name)
    return folder is not None and _register_folder(spark, *_schema_and_table(spark, name), folder)


def with_new_tables(spark: SparkSession, query: Callable[[], _T], text: str | None = None) -> _T:
    """What `query` returns. If it names a table that the catalog lacks, and that another program has made in the warehouse since
    the start, that is registered, and `query` called once more: nothing of it has run, as its analysis has failed. `text`: its
    SQL; of a script (BEGIN ... END) earlier statements may have run, so it is left to the next try."""
    from pyspark.errors import AnalysisException

    while True:
        try:
            return query()
        except AnalysisException as error:
            missing = (error.getMessageParameters() or {}).get("relationName")
            if (
                error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND"
                or missing is None
                or not register_table(spark, missing)
            ):
                raise
            if text is not None and _may_be_script(spark, text):
                raise


def _may_be_script(spark: SparkSession, text: str) -> bool:
    from pyspark.errors import ParseException

    try:
        plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(text)
    except ParseException:  # with {names} that PySpark fills in
        return True
    return bool(plan.getClass().getSimpleName() == "CompoundBody")


def folder_of(spark: SparkSession, name: str) -> str | None:
    """The folder of the warehouse for a table of this name; None where there is a metastore, and for what is no table name of the
    session's own catalog."""
    schema, table = _schema_and_table(spark, name)
    if not _is_in_memory(spark) or "." in schema or not _VALID.fullmatch(table):
        return None
    folder = "" if schema == "default" else f"/{schema}.db"
    return f"{warehouse(spark)}{folder}/{as_in_catalog(spark, table)}"


def as_in_catalog(spark: SparkSession, name: str) -> str:
    """As Spark's own catalog has the name of a table, and its folder."""
    return name if str(spark.conf.get("spark.sql.caseSensitive")).lower() == "true" else name.lower()


def _schema_and_table(spark: SparkSession, name: str) -> tuple[str, str]:
    schema, _, table = name.replace("`", "").removeprefix("spark_catalog.").rpartition(".")
    return schema or spark.catalog.currentDatabase(), table


def _is_in_memory(spark: SparkSession) -> bool:
    return str(spark.conf.get("spark.sql.catalogImplementation", "in-memory")) == "in-memory"


def warehouse(spark: SparkSession) -> str:
    return str(spark.conf.get("spark.sql.warehouse.dir")).rstrip("/")


def _register_folder(spark: SparkSession, schema: str, table: str, path: str) -> bool:
    from delta.tables import DeltaTable
    from pyspark.errors import AnalysisException

    name = f"{identifier(schema)}.{identifier(table)}"  # of digits alone, too
    if not _VALID.fullmatch(table) or spark.catalog.tableExists(name) or not DeltaTable.isDeltaTable(spark, path):
        return False
    if not spark.catalog.databaseExists(identifier(schema)):
        spark.sql(f"CREATE SCHEMA IF NOT EXISTS {identifier(schema)}")
    try:
        spark.catalog.createTable(name, path=path, source="delta")
    except AnalysisException as error:
        if error.getCondition() != "TABLE_OR_VIEW_ALREADY_EXISTS":
            raise  # else another task, which has just created it or has found it, was first
    return True


def name_parts(spark: SparkSession, name: str) -> list[str]:
    """Of a table's name, by Spark's parser; its `ParseException` if it is none."""
    parsed: Any = spark._jsparkSession.sessionState().sqlParser().parseMultipartIdentifier(name)
    return [str(parsed.apply(i)) for i in range(parsed.length())]


def hadoop_path(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """A path on any file system, as Hadoop has it, and its file system."""
    where = java_class(spark, "org.apache.hadoop.fs.Path")(path)
    return where, where.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())


def _folders(spark: SparkSession, path: str) -> list[tuple[str, str]]:
    """(name, path) of each folder in a folder; none if it does not exist."""
    where, file_system = hadoop_path(spark, path)
    if not file_system.exists(where):
        return []
    folders = [status.getPath() for status in file_system.listStatus(where) if status.isDirectory()]
    return sorted((str(folder.getName()), str(folder.toString())) for folder in folders)
