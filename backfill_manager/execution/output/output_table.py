"""A Delta table that tasks write to: its place, its creation, and what has been written to it."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError

from backfill_manager.errors import AbandonedTry, InvalidInput, nearest
from backfill_manager.execution.lineage.table_access import plain_name
from backfill_manager.execution.lineage.written_tables import each_of
from backfill_manager.execution.messages import AccessedTable
from backfill_manager.execution.spark.catalog import folder_of, hadoop_path, name_parts, register_table
from backfill_manager.store.delta_spark.java_classes import DELTA, java_class
from backfill_manager.store.delta_spark.transaction import TableDefinition, set_active
from backfill_manager.store.sql_guard import identifier
from backfill_manager.value_rules import name_or_path

if TYPE_CHECKING:
    from delta.tables import DeltaTable, DeltaTableBuilder
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
    from pyspark.sql.types import DataType, StructField, StructType

# Each run leaves one transaction id per write in the table; after this time Delta forgets them. A crashed try is tried
# again long before. Checkpoints are written in the committing task's own time (1.6 s against 0.2 s), so not each tenth.
PROPERTIES: Final = {"delta.setTransactionRetentionDuration": "interval 30 days", "delta.checkpointInterval": "50"}

_DELTA_TABLE: Final = "io.delta.tables.DeltaTable"
_WITHOUT_COMMIT: Final = re.compile(r"\..*|\d{20}\.crc|_staged_commits")  # temporary files, checksums, an empty folder
_HADOOP_CHECKSUM: Final = re.compile(r"\..*\.crc")
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CREATIONS: Final = 3
MAX_COMMITS_LOOKED_AT: Final = 200  # for a restore, by a try that finds its write in the table: others commit meanwhile
_LOG_IN_THE_WAY: Final = (
    "DELTA_TABLE_NOT_FOUND", "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION", "DELTA_CANNOT_CREATE_LOG_PATH",
    "java.io.FileNotFoundException",
)  # fmt: skip


@dataclass(frozen=True)
class CommitMark:
    """What a commit carries, so that it lands once and is found again."""

    transaction: str
    generation: int
    metadata: str


@dataclass(frozen=True)
class Commit:
    """One of our writes, by the table's log."""

    version: int
    rows: int | None  # inserted or updated; None where Delta does not say, and for what inserts and updates nothing
    bytes: int | None = None  # of the files that it added
    inserted: int | None = None  # of a MERGE, as is the next
    updated: int | None = None


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
        return cls(spark, ".".join(map(_in_sql, parts)))

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
        return ".".join(parts).lower()

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
        """`InvalidInput` if something else has this name."""
        if self.is_path:
            return bool(java_class(self._spark, _DELTA_TABLE).isDeltaTable(self._spark._jsparkSession, self.name))
        return self._spark.catalog.tableExists(self.name) or register_table(self._spark, self.name)

    def create(self, schema: StructType, like: TableState | None = None) -> str | None:
        """Creates it with these columns, all nullable, or with `NOT NULL`, partitioning, clustering, comment and properties as in
        `like`. Harmless if it exists, or if nothing is written afterwards. Returns the schema (database) that was missing and
        was made, too."""
        from delta.tables import DeltaTable
        from pyspark.sql.types import StructField, StructType

        _refuse_untyped(self.name, schema.fields)
        made = None if self.is_path else self._make_schema()
        builder = DeltaTable.createIfNotExists(self._spark)
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


def _in_sql(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else identifier(name)


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


class TableState:
    """A version of the table, from Delta's log in the driver: no Spark job but the one that Delta's own check makes."""

    def __init__(self, name: str, schema: StructType, log: Any, snapshot: Any, spark: SparkSession) -> None:
        self.name, self.schema, self._log, self._snapshot, self._spark = name, schema, log, snapshot, spark
        self.version: int = snapshot.version()

    @property
    def path(self) -> str:
        """Where it lies, as a URI."""
        return str(self._log.dataPath().toString())

    @property
    def table_id(self) -> str:
        """Another one when the table was dropped and made anew."""
        return str(self._snapshot.metadata().id())

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """Delta's action."""
        found: dict[str, Any] = json.loads(self._snapshot.metadata().json())["metaData"]
        return found

    @property
    def clustering(self) -> list[str]:
        domains = each_of(self._snapshot.domainMetadata())
        return clustering_set_by((json.loads(str(one.json())) for one in domains), self._fields)

    @property
    def properties(self) -> dict[str, str]:
        """Those that may be set."""
        return _settable(self.metadata["configuration"])

    def recorded(self, transaction: str) -> int | None:
        """The last version under this transaction id."""
        version = self._snapshot.transactions().get(transaction)
        return int(version.get()) if version.isDefined() else None

    def has_landed(self, transaction: str, generation: int) -> bool:
        """Whether this generation of a write is in the table. `AbandonedTry` if a later one is; `InvalidInput` if somebody has
        restored an older version of the table since, in which it is not."""
        recorded = self.recorded(transaction)
        if recorded is not None and recorded > generation:
            anew = "this task was cleared and has written anew since this try began"
            raise AbandonedTry(f"{self.name}: {anew}; nothing was written")
        has_landed = recorded == generation
        if has_landed and (restore := self._undone_by(transaction)) is not None:
            raise InvalidInput(
                f"{self.name}: an earlier try of this run had written it, and version {restore} of the table has restored an "
                "older one since. Clear this task: it then writes again"
            )
        return has_landed

    def _undone_by(self, transaction: str) -> int | None:
        """The version that has restored one from before this transaction, which Delta keeps all the same: what it wrote is not
        there, and Delta takes no other. A restore by time counts as one. None: there is none, as far back as is looked."""
        restored: dict[int, int] = {}
        for version in range(self.version, max(self.version - MAX_COMMITS_LOOKED_AT, -1), -1):
            try:
                actions = self._actions(version)
            except Py4JJavaError:  # deleted, as the retention says
                return None
            if any(action.get("txn", {}).get("appId") == transaction for action in actions):
                return _restore_that_undid(version, self.version, restored)
            for info in (action["commitInfo"] for action in actions if "commitInfo" in action):
                if info.get("operation") == "RESTORE":
                    restored[version] = int(info["operationParameters"].get("version") or -1)
        return None

    def refuse_misfits(self, call: str, rows: DataFrame, adds_columns: bool) -> None:
        """`InvalidInput` if the rows have columns that the table lacks and that are not to be added, or columns of other types:
        Delta casts some of these in silence, depending on the kind of write and table, and 1.7 becomes 1."""
        new = list(_new_columns(self.schema, rows.schema))
        if new and not adds_columns:
            similar = nearest(new[0], self.schema.names) if len(new) == 1 and new[0] in rows.columns else ""
            raise InvalidInput(
                f"{call}: the table has no column {', '.join(map(repr, new))}{similar}; schema='merge' adds "
                f"{'it' if len(new) == 1 else 'them'}, in a SQL task ALTER TABLE ... ADD COLUMNS does"
            )
        _refuse_untyped(call, [field for field in rows.schema.fields if field.name in new])
        if different := _different_types(self.schema, rows.schema):
            is_void = " void in " in different
            cure = "a column of NULL alone takes no value: make the table anew" if is_void else "cast it"
            if not is_void and self._snapshot.numOfFiles() == 0:  # as after a first write that was refused
                cure += (
                    ", or drop the table, which has no rows (DROP TABLE in a SQL task): the next write makes it anew"
                )
            raise InvalidInput(f"{call}: {different}; {cure}; nothing was written")

    def refuse_missing(self, call: str, rows: DataFrame) -> None:
        """`InvalidInput` if the rows lack a column that must have a value, which Delta does not compute."""
        there = {name.lower() for name in rows.columns}
        required = [one for one in self._fields if not one["nullable"] and not _COMPUTED & one["metadata"].keys()]
        if missing := [one["name"] for one in required if one["name"].lower() not in there]:
            names = ", ".join(map(repr, missing))
            raise InvalidInput(f"{call}: the rows lack {names}, which is NOT NULL in the table; nothing was written")

    def refuse_nullable_fields(self, call: str, rows: DataFrame) -> None:
        """`InvalidInput` if a struct of the rows has a field that may be NULL by its type, or lacks it, and it is NOT NULL in the
        table. MERGE casts the whole struct, and Spark refuses that cast, whatever the values are."""
        if names := list(_nullable_fields(self._fields, json.loads(rows._jdf.schema().json())["fields"])):
            raise InvalidInput(
                f"{call}: {', '.join(names)} is NOT NULL in the table and may be NULL by the type of the rows, which MERGE does "
                f"not take, whatever the values are; make the struct with coalesce(...) there, or ALTER TABLE ... ALTER COLUMN "
                f"{names[0]} DROP NOT NULL; nothing was written"
            )

    @property
    def numbered_columns(self) -> list[str]:
        """Those that Delta numbers itself, and of which it takes no values (`GENERATED ALWAYS AS IDENTITY`)."""
        explicit = "delta.identity.allowExplicitInsert"
        return [one["name"] for one in self._fields if one["metadata"].get(explicit) is False]

    @property
    def is_append_only(self) -> bool:
        setting = self._snapshot.metadata().configuration().get("delta.appendOnly")
        return bool(setting.isDefined() and str(setting.get()).lower() == "true")

    def with_names(self, file: Mapping[str, Any]) -> Mapping[str, Any]:
        """A file (the fields of `add` or `remove`) with the names that columns have now: with a column mapping the log may have a
        name for a column that was renamed since, and another one for the column that has the name now."""
        now = self._column_by_name_in_files
        if all(in_files == name for in_files, name in now.items()):
            return file

        def renamed(values: Mapping[str, Any] | None) -> dict[str, Any]:
            return {now[key]: value for key, value in (values or {}).items() if key in now}

        statistics = json.loads(file.get("stats") or "{}")
        statistics |= {key: renamed(statistics.get(key)) for key in ("minValues", "maxValues", "nullCount")}
        return {**file, "partitionValues": renamed(file.get("partitionValues")), "stats": json.dumps(statistics)}

    def renamed_columns(self, names: Iterable[str], then: Iterable[Mapping[str, str]]) -> list[str]:
        """Those of these names that the table does not have now, or had for another column `then` (`names_in_files`)."""
        earlier, now = [*then], names_in_files(self._fields)
        return [name for name in names if name not in now or any(one.get(name) != now[name] for one in earlier)]

    @cached_property
    def _column_by_name_in_files(self) -> dict[str, str]:
        return {in_files: name for name, in_files in names_in_files(self._fields).items()}

    @property
    def last_numbers(self) -> dict[str, int | None]:
        """Of the columns that Delta numbers itself, the last number that it gave."""
        return last_numbers(self._fields)

    @cached_property
    def _fields(self) -> list[dict[str, Any]]:
        """As Delta's log has them: what a DataFrame of the table says of a column leaves things out."""
        fields: list[dict[str, Any]] = json.loads(self._snapshot.schema().json())["fields"]
        return fields

    @property
    def definition(self) -> TableDefinition:
        return TableDefinition(self._snapshot.metadata().json(), self._snapshot.protocol().json())

    def commits(self, since: int) -> Iterator[tuple[int, list[dict[str, Any]]]]:
        """The commits after version `since`, each with its actions as in the log; `Py4JJavaError` where Delta has deleted one, as
        its retention says."""
        for version in range(since + 1, self.version + 1):
            yield version, self._actions(version)

    def version_before(self, at: datetime) -> int:
        """The last version that was committed before; -1: none that the log still has."""
        for version in range(self.version, -1, -1):
            try:
                actions = self._actions(version)
            except Py4JJavaError:  # deleted, as the retention says
                break
            times = [action["commitInfo"]["timestamp"] for action in actions if "commitInfo" in action]
            if times and times[0] < at.timestamp() * 1000:
                return version
        return -1

    def _actions(self, version: int) -> list[dict[str, Any]]:
        path = java_class(self._spark, f"{DELTA}.util.FileNames").unsafeDeltaFile(self._log.logPath(), version)
        lines = str(self._log.store().read(path, self._log.newDeltaHadoopConf()).mkString("\n")).split("\n")
        return [json.loads(line) for line in lines if line]

    def find(self, metadata: str, since: int) -> Commit | None:
        """The commit after version `since` that carries this user metadata."""
        changes = self._log.getChanges(since + 1, *(getattr(self._log, f"getChanges$default${i}")() for i in (2, 3)))
        while changes.hasNext():
            version_and_actions = changes.next()
            first = json.loads(version_and_actions._2().head().json())  # commitInfo comes first
            info = first.get("commitInfo", {})
            if info.get("userMetadata") == metadata:
                metrics = info.get("operationMetrics", {})
                parts = (int(metrics[name]) if name in metrics else None for name in _MERGED)
                size = next((int(metrics[name]) for name in _BYTES if name in metrics), None)
                return Commit(int(version_and_actions._1()), _rows_in(metrics), size, *parts)
        return None


def _restore_that_undid(commit: int, now: int, restored: Mapping[int, int]) -> int | None:
    """`restored`: by version of a restore the one that it has restored. The first on the way back from `now` that leads past the
    `commit`; None if the commit is still in effect."""
    while now > commit:
        if restored.get(now, now) < commit:
            return now
        now = restored.get(now, now - 1)
    return None


def settings_in(metadata: Mapping[str, Any], columns: Collection[str]) -> dict[str, Any]:
    """What a table is set to by ALTER and REPLACE TABLE, except for the names and types of its columns, by what people call it.
    `metadata`: Delta's action. Of columns, these alone."""
    found = {f"the property {key}": value for key, value in _settable(metadata["configuration"]).items()}
    found |= {"its comment": metadata.get("description"), "its partitioning": ", ".join(metadata["partitionColumns"])}
    for field in json.loads(metadata["schemaString"])["fields"]:
        name, about = field["name"], field["metadata"]
        if name in columns:
            found[f"NOT NULL of {name}"] = not field["nullable"]
            found |= {f"{key} of {name}": value for key, value in _settable(about).items()}
    return {key: value for key, value in found.items() if value}


def _settable(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key not in _OF_DELTA_ITSELF}


def metadata_set_by(actions: Iterable[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Delta's action of a commit with these actions; None if it has not set it."""
    return next((action["metaData"] for action in actions if "metaData" in action), None)


def clustering_set_by(actions: Iterable[Mapping[str, Any]], fields: Sequence[Mapping[str, Any]]) -> list[str]:
    """The columns, quoted as in SQL, by which Delta clusters a table with these `fields` after a commit with these actions that
    has set them."""
    for action in actions:
        domain = action.get("domainMetadata", {})
        if domain.get("domain") == "delta.clustering" and not domain["removed"]:
            columns = json.loads(domain["configuration"])["clusteringColumns"]
            return [".".join(_in_sql(name) for name in _names_now(column, fields)) for column in columns]
    return []


def _names_now(column: Iterable[str], fields: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Of a column, or of a field of a struct with those that it is in; `column` has their names in files."""
    for in_files in column:
        field = dict(zip(names_in_files(fields).values(), fields, strict=True))[in_files]
        yield field["name"]
        fields = field["type"]["fields"] if isinstance(field["type"], dict) else ()  # no table is clustered by an array


def columns_set_by(actions: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]] | None:
    """The columns after a commit with these actions, as in Delta's log; None if it has not set them."""
    metadata = metadata_set_by(actions)
    return None if metadata is None else json.loads(metadata["schemaString"])["fields"]


def names_in_files(columns: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """By column its name in files and their statistics: with a column mapping another one, which stays."""
    return {one["name"]: one["metadata"].get("delta.columnMapping.physicalName", one["name"]) for one in columns}


def last_numbers(fields: Sequence[Mapping[str, Any]]) -> dict[str, int | None]:
    """`fields` of a schema, as Delta's log has it."""
    numbered = (one for one in fields if "delta.identity.start" in one["metadata"])
    return {one["name"]: one["metadata"].get("delta.identity.highWaterMark") for one in numbered}


_OF_DELTA_ITSELF: Final = {
    "delta.columnMapping.id", "delta.columnMapping.maxColumnId", "delta.columnMapping.physicalName",
    "delta.identity.highWaterMark", "delta.rowTracking.materializedRowIdColumnName",
    "delta.rowTracking.materializedRowCommitVersionColumnName",
}  # fmt: skip
_COMPUTED: Final = {"CURRENT_DEFAULT", "delta.generationExpression", "delta.identity.start"}  # metadata of columns
_BYTES: Final = ("numOutputBytes", "numTargetBytesAdded", "numAddedBytes")
_MERGED: Final = ("numTargetRowsInserted", "numTargetRowsUpdated")


def _rows_in(metrics: dict[str, str]) -> int | None:
    """Rows that a commit inserted or updated, by Delta's metrics; copied rows do not count."""
    for names in (_MERGED, ("numUpdatedRows",)):
        if all(name in metrics for name in names):
            return sum(int(metrics[name]) for name in names)
    if "numOutputRows" not in metrics:
        return None
    return int(metrics["numOutputRows"]) - int(metrics.get("numCopiedRows", 0))


def _refuse_untyped(what: str, fields: Sequence[StructField]) -> None:
    """`InvalidInput` for columns in which there is the type that Spark gives to NULL alone: the table's would take no value."""
    names = [field.name for field in fields if '"void"' in json.dumps(field.dataType.jsonValue())]
    if names:
        raise InvalidInput(
            f"{what}: column {', '.join(map(repr, names))} has no type, as it is nothing but NULL; cast it, as in "
            "CAST(NULL AS STRING); nothing was written"
        )


def _new_columns(table: StructType, rows: StructType, within: str = "") -> Iterator[str]:
    """Columns, and fields of structs as `column.field`, that the table lacks."""
    from pyspark.sql.types import StructType

    of_table = {field.name.lower(): field.dataType for field in table.fields}
    for field in rows.fields:
        kind = of_table.get(field.name.lower())
        if kind is None:
            yield within + field.name
        elif isinstance(kind, StructType) and isinstance(field.dataType, StructType):
            yield from _new_columns(kind, field.dataType, f"{within}{field.name}.")


def _nullable_fields(
    table: Iterable[Mapping[str, Any]], rows: Iterable[Mapping[str, Any]], within: str = ""
) -> Iterator[str]:
    """Fields of structs, as `column.field`, that are NOT NULL in the table, and may be NULL in the rows or are not there.
    `table`, `rows`: as the JSON of a schema has them."""
    of_rows = {field["name"].lower(): field for field in rows}
    for field in table:
        given = of_rows.get(field["name"].lower())
        if within and not field["nullable"] and (given is None or given["nullable"]):
            yield within + field["name"]
        elif given is not None and "fields" in field["type"] and "fields" in given["type"]:
            yield from _nullable_fields(field["type"]["fields"], given["type"]["fields"], f"{within}{field['name']}.")


def _different_types(table: StructType, rows: StructType) -> str:
    of_table = {field.name.lower(): field.dataType for field in table.fields}
    return "; ".join(
        f"column {field.name!r} is {field.dataType.simpleString()} here and "
        f"{of_table[field.name.lower()].simpleString()} in the table"
        for field in rows.fields
        if field.name.lower() in of_table and not _fits(field.dataType, of_table[field.name.lower()])
    )


def _fits(kind: DataType, into: DataType) -> bool:
    """Whether values of this type go into a column of that one as they are; fields that only one struct has, and NULL, do."""
    from pyspark.sql.types import ArrayType, MapType, NullType, StringType, StructType

    if isinstance(kind, StructType) and isinstance(into, StructType):
        return not _different_types(into, kind)
    if isinstance(kind, ArrayType) and isinstance(into, ArrayType):
        return _fits(kind.elementType, into.elementType)
    if isinstance(kind, MapType) and isinstance(into, MapType):
        return _fits(kind.keyType, into.keyType) and _fits(kind.valueType, into.valueType)
    if isinstance(kind, StringType) and isinstance(into, StringType):  # of whatever collation
        return True
    return isinstance(kind, NullType) or kind == into
