"""The engine for a state in a metastore (`catalog.schema`: Unity Catalog, Hive, Glue), where delta-rs can't write.

The same tables and promises; slower ticks (a MERGE takes a second or more), because every read and commit is a Spark
job. Conditions become Column expressions with literals, so no text from outside is ever part of a statement.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as f

from backfill_manager.clock import micros
from backfill_manager.errors import InvalidInput, StateError, nearest
from backfill_manager.model.records import TABLES, Manager, Request
from backfill_manager.model.records import columns as record_columns
from backfill_manager.store.base import Condition, Finding, Leader, R, Store
from backfill_manager.store.delta_spark.conflicts import CONFLICTS
from backfill_manager.store.delta_spark.tables import ENGINE, DeltaSparkTables, first_line
from backfill_manager.store.filters import checked, columns_without, known_columns, orders, record_of, records_of
from backfill_manager.store.rows import python_columns, to_arrow
from backfill_manager.store.schema import arrow_schema, column_mismatch
from backfill_manager.store.sql_guard import single_query, tables_named

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

# Functions that call any Java method: the one way in which a query could do something other than read.
_ESCAPES: Final = ("java_method", "reflect", "try_reflect")


class DeltaSparkStore(Store):
    engine = ENGINE

    def __init__(self, root: str, spark: SparkSession | None = None) -> None:
        self.root = root
        self.tables = DeltaSparkTables(root, spark)

    # -- the state as a whole -----------------------------------------------------------------------------------------
    def beside(self, root: str) -> Store:
        from backfill_manager.store import open_store

        return open_store(root, spark=self.tables.spark)

    def init(self) -> list[str]:
        return self.tables.create_missing()

    def exists(self) -> bool:
        return self.tables.made()

    def check(self) -> list[Finding]:
        return [self._check(name) for name in TABLES]

    def _check(self, table: str) -> Finding:
        record, name = TABLES[table], self.tables.name(table)
        try:
            with self.tables.told(table):
                frame = self.tables.frame(table)
                if wrong := column_mismatch(record, frame.columns):
                    return Finding(table, False, f"{wrong} (at {name})")
                detail = self.tables.delta(table).detail().select("minReaderVersion", "minWriterVersion").first()
                if detail is None or tuple(detail) != (1, 2):
                    return Finding(
                        table,
                        False,
                        f"protocol {detail} instead of 1/2: a feature is on that not every reader has (at {name})",
                    )
                every = [
                    f.count(f.col(column).cast("string")) for column in frame.columns
                ]  # touches each column of each file
                row = frame.agg(f.count(f.lit(1)), *every).first()
        except StateError as error:
            return Finding(table, False, str(error))
        return Finding(table, True, f"{row[0] if row else 0} rows")

    def locations(self) -> dict[str, str]:
        return self.tables.locations()

    # -- reading ------------------------------------------------------------------------------------------------------
    def _where(self, table: str, where: Sequence[Condition]) -> DataFrame:
        frame = self.tables.frame(table)
        conditions = checked(record_of(table), where)
        return frame.where(f.lit(False)) if conditions is None else _narrowed(frame, conditions)

    def read(
        self,
        record: type[R],
        where: Sequence[Condition] = (),
        order_by: Sequence[str] = (),
        limit: int | None = None,
        without: Sequence[str] = (),
    ) -> list[R]:
        with self.tables.told(record.TABLE):
            names = columns_without(record, without)
            frame = self._where(record.TABLE, where)
            order = orders(record, order_by)
            if order:
                frame = frame.orderBy(*(f.desc_nulls_last(n) if down else f.asc_nulls_last(n) for n, down in order))
            found = (frame if limit is None else frame.limit(limit)).select(*names).toArrow()
        return records_of(record, names, python_columns(found))

    def read_arrow(self, table: str, columns: Sequence[str], where: Sequence[Condition] = ()) -> pa.Table:
        import pyarrow as pa

        record = record_of(table)
        names = known_columns(record, columns)
        with self.tables.told(table):
            found = self._where(table, where).select(*names).toArrow()
        return found.cast(pa.schema([arrow_schema(record).field(name).with_nullable(True) for name in names]))

    def count(self, table: str, by: Sequence[str], where: Sequence[Condition] = ()) -> dict[tuple[Any, ...], int]:
        names = known_columns(record_of(table), by)
        with self.tables.told(table):
            *keys, counts = python_columns(self._where(table, where).groupBy(*names).agg(f.count(f.lit(1))).toArrow())
        return dict(zip(zip(*keys, strict=True) if keys else [()], counts, strict=True))

    def unanswered(self) -> list[Request]:
        text = resources.files("backfill_manager.store").joinpath("sql/unanswered.sql").read_text(encoding="utf-8")
        names = {name: self.tables.name(name) for name in ("request", "response")}
        for name in names:
            self.tables.check_owner(name)
        with self.tables.told(Request.TABLE):
            sql = text.format(columns=", ".join(f"r.{name}" for name in record_columns(Request)), **names)
            found = python_columns(self.tables.spark.sql(sql).toArrow())
        first: dict[str, Request] = {}
        for values in zip(*found, strict=True):
            request = Request(*values)
            first.setdefault(request.request_id, request)
        return list(first.values())

    def version(self, table: str) -> int:
        name = record_of(table).TABLE
        self.tables.check_owner(name)
        with self.tables.told(name):
            return self.tables.version(name)

    def query(self, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        query = single_query(sql)
        for table in tables_named(query, list(TABLES)):
            self.tables.check_owner(table)
        if named := tables_named(query, list(_ESCAPES)):
            raise InvalidInput(f"The query can't be run: {named[0]} could do more than read.")
        spark = self.tables.spark
        try:
            spark._jsparkSession.sessionState().sqlParser().parseQuery(query)  # a query, or it can't be parsed
            spark.catalog.setCurrentCatalog(self.root.split(".")[0])
            spark.catalog.setCurrentDatabase(self.root.split(".")[1])
            found = spark.sql(query).toArrow()
        except (PySparkException, Py4JError) as error:
            raise InvalidInput(f"The query can't be run: {_in_our_words(error)}") from error
        return list(found.column_names), list(zip(*python_columns(found), strict=True))

    # -- clients ------------------------------------------------------------------------------------------------------
    def ask(self, request: Request) -> None:
        self.tables.check_owner(Request.TABLE)
        try:
            with self.tables.told(Request.TABLE, "written"):
                frame = self.tables.rows_frame(Request, to_arrow(Request, [request]), self.tables.spark)
                frame.write.format("delta").mode("append").saveAsTable(self.tables.name(Request.TABLE))
        except CONFLICTS as error:
            raise StateError(
                f"The request could not be written to {self.tables.name(Request.TABLE)}: {first_line(error)}"
            ) from error

    # -- leadership ---------------------------------------------------------------------------------------------------
    def lease(self) -> Manager | None:
        return next(iter(self.read(Manager, order_by=["-term"], limit=1)), None)

    def lead(self, row: Manager) -> Leader:
        from backfill_manager.store.delta_spark.leader import take_over

        return take_over(self, row)


def _in_our_words(error: Exception) -> str:
    if isinstance(error, PySparkException) and error.getCondition() == "TABLE_OR_VIEW_NOT_FOUND":
        wrong = (error.getMessageParameters() or {}).get("relationName", "").replace("`", "").rpartition(".")[2]
        return f"there is no table {wrong!r}{nearest(wrong, TABLES) or '; there are ' + ', '.join(TABLES)}"
    return first_line(error)


def _narrowed(frame: DataFrame, conditions: Sequence[Condition]) -> DataFrame:
    for condition in conditions:
        frame = frame.where(column_of(condition))
    return frame


def column_of(condition: Condition) -> Column:
    """A checked condition as an expression of literals."""
    column, value = f.col(condition.column), condition.value
    match condition.operator:
        case "is_null":
            return column.isNull()
        case "not_null":
            return column.isNotNull()
        case "in":
            return column.isin([_literal(one) for one in value])
        case "starts_with":
            return column.startswith(_literal(value))
        case "shorter_than":
            return f.length(column) < _literal(value)
        case "=":
            return column == _literal(value)
        case "!=":
            return column != _literal(value)
        case "<":
            return column < _literal(value)
        case "<=":
            return column <= _literal(value)
        case ">":
            return column > _literal(value)
        case _:
            return column >= _literal(value)


def _literal(value: Any) -> Column:
    return f.timestamp_micros(f.lit(micros(value))) if hasattr(value, "tzinfo") else f.lit(value)
