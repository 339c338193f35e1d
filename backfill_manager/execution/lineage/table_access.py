"""The tables that a try has read and written, with their Delta versions.

Reads are found in the plans of queries, when these are analysed: in a Python task in every one that begins with a table or a file
(`spark.table`, `spark.read`, `spark.sql`, `DeltaTable`), in a SQL task in all. The version is the one that the table had at that
moment: rows of a later one may be read as well, never fewer. Writes are those of `ctx.write`, `ctx.merge` and SQL tasks; of
others nothing is known.
"""

from __future__ import annotations

import functools
import json
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from py4j.java_gateway import JavaObject, is_instance_of
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from backfill_manager.execution.error_format import one_line
from backfill_manager.execution.lineage.column_lineage import SourceColumn, relation_columns, source_columns
from backfill_manager.execution.lineage.written_tables import each_of
from backfill_manager.execution.messages import AccessedTable
from backfill_manager.execution.spark.catalog import with_new_tables
from backfill_manager.masking import mask_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

MAX_ACCESSES: Final = 200  # of one try; a loop over thousands of tables keeps the first
_PLANS: Final = "org.apache.spark.sql.catalyst.plans.logical.LogicalPlan"
_FILES: Final = "org.apache.spark.sql.execution.datasources.HadoopFsRelation"
_LISTED_FILES: Final = "org.apache.spark.sql.execution.datasources.PartitioningAwareFileIndex"
_DELTA: Final = ".delta."  # in the name of a class
_COMMANDS: Final = ("Command", "CommandResult", "AsSelect")  # ends of names
_OF_A_QUERY: Final = ("AppendData", "OverwriteByExpression", "CreateTableAsSelect", "ReplaceTableAsSelect")

_accesses: TableAccesses | None = None  # of the try of this process


class TableAccesses:
    """Those of one try, each once, in the order in which they came."""

    def __init__(self, *, with_columns: bool = False) -> None:
        """`with_columns`: the columns of tables are recorded too, and what those of written ones are computed from (some 0.1 s
        for each write)."""
        self._with_columns = with_columns
        self._found: dict[AccessedTable, None] = {}
        self._lock = threading.Lock()

    def add(self, access: AccessedTable) -> None:
        if access.path is not None:
            access = replace(access, path=mask_text(access.path))
        with self._lock:
            if len(self._found) < MAX_ACCESSES:
                self._found[access] = None

    def read_by(self, df: DataFrame) -> None:
        """The tables that this query reads. It is not run."""
        try:
            for access in tables_in(df, with_columns=self._with_columns):
                self.add(access)
        except (Py4JError, PySparkException) as error:  # the latter of what PySpark knows; the task itself goes on
            log.warning("What a query reads could not be recorded: %s", one_line(error))

    def columns_of(self, df: DataFrame) -> str | None:
        """The columns that a write of this query (or a statement that has written one) has written, as JSON:
        [{"name", "type", "from": [[table, column], ...]}, ...]. None: it is not to be recorded, or not known."""
        if not self._with_columns:
            return None
        try:
            plan = df._jdf.queryExecution().analyzed()
            plan = plan.query() if _class(plan).rpartition(".")[2] in _OF_A_QUERY else plan
            relations = {
                column.id: SourceColumn(mask_text(str(table.name or table.path)), column.name)
                for leaf in _relations_in(plan, df.sparkSession.sparkContext._gateway)
                for table in _files_of(leaf, df.sparkSession.sparkContext._gateway)
                for column in relation_columns(leaf.toJSON())
            }
            sources = source_columns(plan.toJSON(), relations)
            fields = json.loads(plan.schema().json())["fields"]
        except (Py4JError, PySparkException) as error:
            log.warning("The columns of a write could not be recorded: %s", one_line(error))
            return None
        columns = [{"name": f["name"], "type": _type(f["type"]), "from": sources.get(f["name"], ())} for f in fields]
        return json.dumps(columns, ensure_ascii=False)

    def all(self) -> tuple[AccessedTable, ...]:
        with self._lock:
            return tuple(self._found)


def plain_name(name: str) -> str:
    """Without the catalog that is Spark's own."""
    return name.removeprefix("spark_catalog.")


def record_reads(accesses: TableAccesses) -> None:
    """From here on this process adds what its queries read, here and nowhere else. Only in a task process: it changes PySpark's
    classes."""
    global _accesses
    change_readers()
    _accesses = accesses


@functools.cache
def change_readers() -> None:
    """The first half of `record_reads`, which fork servers do for all of their processes, those that read files too."""
    from delta.tables import DeltaTable
    from pyspark.sql import DataFrameReader, SparkSession

    readers = ("load", "table", "parquet", "orc", "csv", "json", "text")
    for owner, names in ((SparkSession, ("table", "sql")), (DataFrameReader, readers), (DeltaTable, ("toDF",))):
        for name in names:
            setattr(owner, name, _recorded(getattr(owner, name)))


def _recorded(method: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
    @functools.wraps(method)
    def record(owner: Any, *args: Any, **options: Any) -> DataFrame:
        if _accesses is None:
            return method(owner, *args, **options)
        spark = getattr(owner, "_spark", owner)  # of a reader and of a DeltaTable
        df = with_new_tables(spark, lambda: method(owner, *args, **options))
        _accesses.read_by(df)
        return df

    return record


def tables_in(df: DataFrame, *, with_columns: bool = False) -> Iterator[AccessedTable]:
    """The tables that this query reads. It is not run. `with_columns`: with those of the version that it reads."""
    return _tables_in(df._jdf.queryExecution().analyzed(), df.sparkSession.sparkContext._gateway, with_columns)


def tables_of_explained(df: DataFrame) -> Iterator[AccessedTable]:
    """The tables that the statement of an `EXPLAIN` (df) reads. The statement is not run: only its plan is analysed."""
    gateway, session = df.sparkSession.sparkContext._gateway, df.sparkSession._jsparkSession
    skip = gateway.jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
    explained = df._jdf.queryExecution().analyzed().logicalPlan()
    return _tables_in(session.sessionState().executePlan(explained, skip).analyzed(), gateway)


def _tables_in(plan: Any, gateway: Any, with_columns: bool = False) -> Iterator[AccessedTable]:
    for leaf in _relations_in(plan, gateway):
        yield from _files_of(leaf, gateway, with_columns)


def _relations_in(plan: Any, gateway: Any) -> Iterator[Any]:
    for leaf in each_of(plan.collectLeaves()):
        kind = _class(leaf).rpartition(".")[2]
        if kind == "LogicalRelation":
            yield leaf
        elif kind == "MergeIntoCommand":
            yield from _relations_in(leaf.source(), gateway)
        elif kind.endswith(_COMMANDS):  # the plans of their queries are no children
            for one in _fields(leaf):
                if is_instance_of(gateway, one, _PLANS):
                    yield from _relations_in(one, gateway)
    for query in each_of(plan.subqueriesAll()):
        yield from _relations_in(query, gateway)


def _files_of(leaf: Any, gateway: Any, with_columns: bool = False) -> Iterator[AccessedTable]:
    relation, entry = leaf.relation(), leaf.catalogTable()
    if not is_instance_of(gateway, relation, _FILES):
        return
    name = plain_name(str(entry.get().identifier().unquotedString())) if entry.isDefined() else None
    files = relation.location()
    if _DELTA in _class(files):
        path, metadata = str(files.path().toString()), files.metadata()
        columns = _columns(str(metadata.schemaString())) if with_columns else None
        yield AccessedTable("read", name, path, int(files.version()), table_id=str(metadata.id()), columns_json=columns)
    else:
        for path in _folders(files, gateway):
            yield AccessedTable("read", name, path)


def _folders(files: Any, gateway: Any) -> Iterable[str]:
    """The paths that a query was given; in place of files the folders that they lie in, or each run would read other tables."""
    paths = str(files.rootPaths().mkString("\n")).split("\n")
    leaves = files.allFiles() if is_instance_of(gateway, files, _LISTED_FILES) else None
    if leaves is None or leaves.isEmpty() or str(leaves.head().getPath().toString()) not in paths:
        return paths
    return dict.fromkeys(path.rpartition("/")[0] or "/" for path in paths)


def _columns(schema: str) -> str:
    """Those of a table, as of a write (`columns_of`), but for what they are computed from."""
    columns = [{"name": one["name"], "type": _type(one["type"])} for one in json.loads(schema)["fields"]]
    return json.dumps(columns, ensure_ascii=False)


def _type(of_spark: Any) -> str:
    """`long`, `decimal(10,2)`, `struct`: a type as Spark's JSON names it, without the parts of a nested one."""
    return of_spark if isinstance(of_spark, str) else str(of_spark["type"])


def _class(java: Any) -> str:
    return str(java.getClass().getName())


def _fields(leaf: Any) -> Iterator[JavaObject]:
    values = leaf.productIterator()
    while values.hasNext():
        value = values.next()
        if isinstance(value, JavaObject):
            yield value
