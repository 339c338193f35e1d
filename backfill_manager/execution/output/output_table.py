"""A Delta table that tasks write to: its place, its creation, and what has been written to it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError

from backfill_manager.errors import InvalidInput
from backfill_manager.execution.lineage.table_access import plain_name
from backfill_manager.execution.messages import AccessedTable
from backfill_manager.execution.output.column_types import refuse_untyped
from backfill_manager.execution.output.delta_refusals import named_refusals
from backfill_manager.execution.output.table_state import PROPERTIES, Commit, TableState
from backfill_manager.execution.spark.catalog import as_in_catalog, folder_of, hadoop_path, name_parts, register_table
from backfill_manager.store.delta_spark.java_classes import java_class
from backfill_manager.store.delta_spark.transaction import set_active
from backfill_manager.store.sql_guard import identifier, identifier_if_needed
from backfill_manager.value_rules import name_or_path

if TYPE_CHECKING:
    from delta.tables import DeltaTable, DeltaTableBuilder
    from pyspark.sql import DataFrameWriter, SparkSession
    from pyspark.sql.types import StructType


_DELTA_TABLE: Final = "io.delta.tables.DeltaTable"
_WITHOUT_COMMIT: Final = re.compile(r"\..*|\d{20}\.crc|_staged_commits")  # temporary files, checksums, an empty folder
_HADOOP_CHECKSUM: Final = re.compile(r"\..*\.crc")
_CREATIONS: Final = 3
_LOG_IN_THE_WAY: Final = (
    "DELTA_TABLE_NOT_FOUND", "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION", "DELTA_CANNOT_CREATE_LOG_PATH",
    "java.io.FileNotFoundException",
)  # fmt: skip


class OutputTable:
    def __init__(self, spark: SparkSession, name: str) -> None:
        """`name` is a path if it has a `/` in it, as delta.`/a/path` has, too; else a table's name, as Spark resolves it."""
        self._spark, name = spark, name_or_path(name)
        self.is_path = "/" in name
        self.name = name if self.is_path else plain_name(name)  # Delta's own parser refuses the other
        if self.is_path:
            path, file_system = hadoop_path(spark, name)
            self.identity = str(file_system.makeQualified(path).toString())
        else:
            self.identity = self._qualified_name()

    @classmethod
    def named(cls, spark: SparkSession, parts: Sequence[str]) -> OutputTable:
        """The table of a name in parts, as Spark's parser gives it; delta.`/a/path` (any format's) is that path."""
        if len(parts) == 2 and "/" in parts[1]:
            return cls(spark, parts[1])
        return cls(spark, ".".join(map(identifier_if_needed, parts)))

    def _qualified_name(self) -> str:
        from pyspark.errors import ParseException

        try:
            parts = name_parts(self._spark, self.name)
        except ParseException:
            raise InvalidInput(
                f"{self.name!r} is neither a table's name (table, schema.table, catalog.schema.table) "
                "nor a path (with a /)"
            ) from None
        if len(parts) == 1:
            parts.insert(0, self._spark.catalog.currentDatabase())
        if len(parts) == 2:
            parts.insert(0, self._spark.catalog.currentCatalog())
        return as_in_catalog(self._spark, ".".join(parts))

    @property
    def key(self) -> str:
        """Its name in the catalog, else its path."""
        return self.identity if self.is_path else plain_name(self.identity)

    def written(
        self, path: str, table_id: str, commit: Commit | None = None, interval_column: str | None = None,
        columns: str | None = None,
    ) -> AccessedTable:  # fmt: skip
        """That a try has written it, there; without a commit an earlier one has."""
        name = None if self.is_path else plain_name(self.identity)
        version, rows, size = (None, None, None) if commit is None else (commit.version, commit.rows, commit.bytes)
        return AccessedTable("write", name, path, version, rows, size, table_id, interval_column, columns)

    def exists(self) -> bool:
        """`InvalidInput` if something else has this name, or nothing can have it."""
        if self.is_path:
            return bool(java_class(self._spark, _DELTA_TABLE).isDeltaTable(self._spark._jsparkSession, self.name))
        with named_refusals(repr(self.name)):
            return self._spark.catalog.tableExists(self.name) or register_table(self._spark, self.name)

    def create(self, schema: StructType, like: TableState | None = None, *, again: bool = False) -> str | None:
        """Creates it with these columns, all nullable, or with `NOT NULL`, partitioning, clustering, comment and properties as in
        `like`. Harmless if it exists, or if nothing is written afterwards. Returns the schema (database) that was missing and
        was made, too. `InvalidInput` for a relative path. `again`: it exists, and gets these columns in place of its own."""
        from delta.tables import DeltaTable
        from pyspark.sql.types import StructField, StructType

        refuse_untyped(self.name, schema.fields)
        if self.is_path and not hadoop_path(self._spark, self.name)[0].isAbsolute():
            raise InvalidInput(
                f"{self.name!r} is a relative path, which depends on the folder in which Spark was started; no table is made "
                f"there. Write an absolute one, as {self.identity!r}"
            )
        made = None if self.is_path else self._make_schema()
        builder = (DeltaTable.replace if again else DeltaTable.createIfNotExists)(self._spark)
        builder = builder.location(self.name) if self.is_path else builder.tableName(self.name)
        required = set() if like is None else {field.name for field in like.schema.fields if not field.nullable}
        fields = ((field.name, field.dataType, field.name not in required, field.metadata) for field in schema.fields)
        builder = builder.addColumns(StructType([StructField(*field) for field in fields]))
        if like is not None:
            if partitioned_by := like.metadata["partitionColumns"]:
                builder = builder.partitionedBy(partitioned_by)
            if clustered_by := like.clustering:
                builder = builder.clusterBy(*clustered_by)
            if comment := like.metadata.get("description"):
                builder = builder.comment(comment)
        for key, value in (PROPERTIES | (like.properties if like is not None else {})).items():
            builder = builder.property(key, value)
        self._execute(builder)
        return made

    def _execute(self, builder: DeltaTableBuilder) -> None:
        """What the JVM still does for a process that was killed while it created the table may get in the way; not for long."""
        from pyspark.errors import AnalysisException

        for repetition in range(_CREATIONS):
            try:
                self.remove_unfinished_log()
                builder.execute()
            except (AnalysisException, Py4JJavaError) as error:
                if repetition + 1 == _CREATIONS or not any(name in str(error) for name in _LOG_IN_THE_WAY):
                    raise
            else:
                return

    def _make_schema(self) -> str | None:
        schema = ".".join(identifier(part) for part in name_parts(self._spark, self.name)[:-1])
        if not schema or self._spark.catalog.databaseExists(schema):
            return None
        self._spark.sql(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        return schema.replace("`", "")

    def remove_unfinished_log(self) -> None:
        """Removes what a writer leaves that was killed while it created the table: a log folder without a commit, where Delta
        creates no table. Only if there is nothing else. A checksum without its commit is what is left when one of two such
        writers removes the log of the other. The JVM may still go on with what that writer has begun: a commit that it makes
        meanwhile stays, as nothing is deleted that is not named before, and no folder that is not empty."""
        folder = self.name if self.is_path else folder_of(self._spark, self.name)
        if folder is None:
            return
        table, files = hadoop_path(self._spark, folder)
        place = files.makeQualified(table).toUri()
        if place.getScheme() == "file":
            _remove_unfinished_local_log(Path(place.getPath()))
            return
        log, _ = hadoop_path(self._spark, f"{folder}/_delta_log")
        if not files.exists(log) or len(files.listStatus(table)) > 1:
            return
        left = [status.getPath() for status in files.listStatus(log)]
        if not all(_WITHOUT_COMMIT.fullmatch(str(path.getName())) for path in left):
            return
        with suppress(Py4JJavaError):  # a folder that is not empty, or not any more
            for path in (*left, log):
                files.delete(path, False)

    def save(self, writer: DataFrameWriter) -> None:
        writer.save(self.name) if self.is_path else writer.saveAsTable(self.name)

    def delta(self, spark: SparkSession) -> DeltaTable:
        """The table, as this session has it."""
        from delta.tables import DeltaTable
        from pyspark.errors import AnalysisException

        tables, session = java_class(spark, _DELTA_TABLE), spark._jsparkSession
        if self.is_path:
            return DeltaTable(spark, tables.forPath(session, self.name))
        try:
            return DeltaTable(spark, tables.forName(session, self.name))
        except AnalysisException as error:
            if error.getCondition() == "DELTA_MISSING_DELTA_TABLE":
                raise InvalidInput(
                    f"{self.name!r} is not a Delta table; ctx.write and ctx.merge write Delta tables only"
                ) from None
            raise

    def log(self, spark: SparkSession) -> Any:
        """Its `DeltaLog`."""
        return self.delta(spark)._jdt.deltaLog()

    def folder(self, spark: SparkSession) -> str | None:
        """Where it lies, as a URI; None if it does not exist."""
        return str(self.log(spark).dataPath().toString()) if self.exists() else None

    def read(self) -> TableState:
        """The table as it is now."""
        from pyspark.sql.types import StructType

        delta = self.delta(self._spark)
        log = delta._jdt.deltaLog()
        set_active(self._spark)  # Delta wants it where it reads a v2 checkpoint
        snapshot = log.update(*(getattr(log, f"update$default${i}")() for i in (1, 2, 3)))
        # Not by PySpark: the task reads nothing.
        schema = StructType.fromJson(json.loads(delta._jdt.toDF().schema().json()))
        return TableState(self.name, schema, log, snapshot, self._spark)


def _remove_unfinished_local_log(table: Path) -> None:
    """Not by Hadoop's local file system: it hides its checksum files, and does not delete an empty folder in one step."""
    log = table / "_delta_log"
    try:
        left = [*log.iterdir()]
        beside = [file for file in table.iterdir() if file != log and not _HADOOP_CHECKSUM.fullmatch(file.name)]
    except (FileNotFoundError, NotADirectoryError):
        return
    if beside or not all(_WITHOUT_COMMIT.fullmatch(file.name) for file in left):
        return
    with suppress(OSError):  # likewise
        for file in left:
            file.rmdir() if file.is_dir() else file.unlink(missing_ok=True)
        log.rmdir()
