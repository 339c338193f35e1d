"""Delta's own transaction, step by step: files are written by one, and committed by another with what others have written.

Spark's writer does all in one go, one write a commit. The steps are internal to Delta (`OptimisticTransaction`), so where Delta
has them otherwise, as on Databricks, each write is committed by itself: `is_available`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError, Py4JJavaError

from backfill_manager.store.delta_base import engine_message
from backfill_manager.store.delta_spark.java_classes import DELTA, java_class

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)
_PYTHON_UTILS: Final = "org.apache.spark.api.python.PythonUtils"
_OPERATION: Final = "DeltaOperations$Write"
_OPERATION_ARGUMENTS: Final = 9  # mode, partition columns, predicate, user metadata, and five that are not ours
_OVERWRITE: Final = "commands.WriteIntoDelta"
_OVERWRITE_ARGUMENTS: Final = (
    9  # log, mode, options, partition columns, configuration, rows, and three that are not ours
)
# What a table may have so that adding and removing whole files is all there is to a write.
_PLAIN_FEATURES: Final = frozenset(
    {"appendOnly", "invariants", "checkConstraints", "timestampNtz", "vacuumProtocolCheck"}
)
_PLAIN_WRITER_VERSION: Final = 3  # 4 and later imply change data, generated columns, ...
_LISTED_WRITER_VERSION: Final = 7  # the features are listed by name
_MAX_TABLES: Final = 100  # whose transactions are kept
_MAX_COMMITS: Final = 100  # that are read one by one
_MAX_SINCE: Final = 20_000  # transactions of such commits; then Delta is asked again
_NOTED_COLUMNS: Final = 32  # of which Delta has statistics by default; of a struct each column within counts
_OTHERWISE: Final = {  # settings of a table with which it is not
    "delta.appendOnly": "true",
    "delta.enableChangeDataFeed": "true",
    "delta.enableRowTracking": "true",
}


def is_available(spark: SparkSession) -> bool:
    return _takes(spark, _OPERATION, _OPERATION_ARGUMENTS)


def can_overwrite(spark: SparkSession) -> bool:
    """Whether `DeltaTransaction.overwrite` is."""
    return is_available(spark) and _takes(spark, _OVERWRITE, _OVERWRITE_ARGUMENTS)


def _takes(spark: SparkSession, name: str, arguments: int) -> bool:
    try:
        # Of Spark's jars, which came later.
        loader = java_class(spark, "java.lang.Thread").currentThread().getContextClassLoader()
        found = loader.loadClass(f"{DELTA}.{name}")
        return len(found.getConstructors()[0].getParameterTypes()) == arguments
    except (Py4JError, TypeError, IndexError):
        return False


def set_active(spark: SparkSession) -> None:
    """Spark's active session of this thread, which parts of Delta ask for."""
    java_class(spark, "org.apache.spark.sql.classic.SparkSession").setActiveSession(spark._jsparkSession)


class DeltaTransaction:
    """One that reads the table as it is now. It ends with `commit`, or is left; nothing has to be undone."""

    def __init__(self, spark: SparkSession, log: Any) -> None:
        """`log`: Delta's `DeltaLog`."""
        self._spark, self._class = spark, partial(java_class, spark)
        set_active(spark)
        self._transaction = log.startTransaction()
        self._log = log

    @classmethod
    def at(cls, spark: SparkSession, folder: str) -> DeltaTransaction:
        return cls(spark, java_class(spark, f"{DELTA}.DeltaLog").forTable(spark._jsparkSession, folder))

    @cached_property
    def folder(self) -> str:
        return str(self._log.dataPath().toString())

    def definition(self) -> TableDefinition:
        transaction = self._transaction
        return TableDefinition(transaction.metadata().json(), transaction.protocol().json())

    def recorded(self, transaction: str) -> int | None:
        """The last version under this application transaction id. The commit is refused if another one changes it meanwhile."""
        checksum = self._transaction.snapshot().checksumOpt()
        # Else Delta runs Spark jobs over its log.
        if checksum.isDefined() and checksum.get().setTransactions().isDefined():
            self.expect_unchanged(transaction)
            found = json.loads(self._json(checksum.get().setTransactions().get()))
            return next((int(one["version"]) for one in found if one["appId"] == transaction), None)
        version = int(self._transaction.txnVersion(transaction))
        return None if version < 0 else version

    @cached_property
    def version(self) -> int:
        """Of the table that it reads."""
        return int(self._transaction.snapshot().version())

    @cached_property
    def table_id(self) -> str:
        """Another one when a table was dropped and made anew."""
        return str(self._transaction.metadata().id())

    def transactions(self) -> Any:
        """Scala's map of all application transactions and their last versions."""
        return self._transaction.snapshot().transactions()

    def transactions_of(self, version: int) -> dict[str, int]:
        """Those of one commit."""
        path = self._class(f"{DELTA}.util.FileNames").unsafeDeltaFile(self._log.logPath(), version)
        lines = str(self._log.store().read(path, self._log.newDeltaHadoopConf()).mkString("\n")).split("\n")
        actions = (json.loads(line).get("txn") for line in lines if '"txn"' in line)
        return {action["appId"]: int(action["version"]) for action in actions if action}

    def expect_unchanged(self, transaction: str) -> None:
        """The commit is refused if another one records this transaction meanwhile. (`recorded` does that, too.)"""
        self._transaction.readTxn().addOne(transaction)

    def write_files(self, rows: DataFrame) -> list[str]:
        """Writes the rows into the table's folder, checked by its constraints; returns its `add` actions as JSON. Nobody sees
        them before they are committed."""
        files = self._transaction.writeFiles(rows._jdf)
        return [str(files.apply(i).json()) for i in range(files.length())]

    def read_files(self, added: Sequence[str]) -> DataFrame:
        """The rows of such files, which need not be committed; with the columns of the table."""
        from pyspark.sql import DataFrame

        of_json = self._class(f"{DELTA}.actions.Action").fromJson
        files = self._sequence([of_json(action) for action in added])
        nothing = self._class("scala.Option").empty()
        return DataFrame(self._log.createDataFrame(self._transaction.snapshot(), files, False, nothing), self._spark)

    def files_where(
        self, condition: str, may_hold: Callable[[dict[str, Any]], bool]
    ) -> list[tuple[dict[str, Any], Any]]:
        """The files that may hold rows for which this is true: the fields of `add`, and Delta's object. `may_hold` tells by the
        fields. The commit is refused if another one adds or removes such a file meanwhile."""
        if (known := self._known_files()) is None:
            return [one for one in self._scanned_files(condition) if may_hold(one[0])]
        files, fields = known
        found = [(one, files.apply(i)) for i, one in enumerate(fields) if may_hold(one)]
        parsed = self._spark._jsparkSession.sessionState().sqlParser().parseExpression(condition)
        self._transaction.trackReadPredicates(self._sequence([parsed]), False, True)  # as a scan does by itself
        self._transaction.trackFilesRead(self._sequence([file for _, file in found]))
        return found

    def highest(self, column: str) -> int | None:
        """The highest value by the statistics of all files, without a Spark job; None if they don't tell, -1 without a file."""
        known = self._known_files()
        if known is None:
            return None
        statistics = [json.loads(one.get("stats") or "{}") for one in known[1]]
        values = [int(one["maxValues"][column]) for one in statistics if column in one.get("maxValues", {})]
        return max(values, default=-1) if len(values) == len(statistics) else None

    def _known_files(self) -> tuple[Any, list[dict[str, Any]]] | None:
        """All files of the table, Delta's objects and their fields, without a Spark job: of the checksum of its version, where it
        holds them (up to `spark.databricks.delta.allFilesInCrc.thresholdNumFiles`)."""
        checksum = self._transaction.snapshot().checksumOpt()
        if not checksum.isDefined() or not checksum.get().allFiles().isDefined():
            return None
        files = checksum.get().allFiles().get()
        fields = json.loads(self._json(files))
        return (files, fields) if len(fields) == checksum.get().numFiles() else None

    def _json(self, value: Any) -> str:
        return str(self._class(f"{DELTA}.util.JsonUtils").mapper().writeValueAsString(value))

    def _scanned_files(self, condition: str) -> list[tuple[dict[str, Any], Any]]:
        """The same by Spark jobs over the table's log."""
        found = self._transaction.filterFiles(self._sequence([self._resolved(condition)]), False)
        files = [found.apply(i) for i in range(found.length())]
        fields = [json.loads(file.json())["add"] for file in files]
        statistics = self._statistics([one["path"] for one in fields])  # a scan leaves them out
        return [({**one, "stats": statistics.get(one["path"])}, file) for one, file in zip(fields, files, strict=True)]

    def _resolved(self, condition: str) -> Any:
        """The expression with columns of the table: Delta compares statistics with no other, and would give every file."""
        schema = self._transaction.metadata().schema()
        nothing = self._spark._jsparkSession.createDataFrame(self._class("java.util.ArrayList")(), schema)
        return nothing.where(condition).queryExecution().analyzed().condition()

    def _statistics(self, paths: Sequence[str]) -> dict[str, str]:
        from pyspark.sql import DataFrame
        from pyspark.sql import functions as F

        if not paths:
            return {}
        files = DataFrame(self._transaction.snapshot().allFiles().toDF(), self._spark)
        return {
            row["path"]: row["stats"]
            for row in files.where(F.col("path").isin(*paths)).select("path", "stats").collect()
        }

    def commit(
        self, added: Iterable[str], removed: Iterable[Any], transactions: Iterable[tuple[str, int]], *, metadata: str,
        replaces: bool, rows: int,
    ) -> int:  # fmt: skip
        """All of it in one commit; returns the version. A conflict raises one of `store.delta_spark.conflicts.CONFLICTS`."""
        now, option = round(time.time() * 1000), self._class("scala.Option")
        of_json, mark = self._class(f"{DELTA}.actions.Action").fromJson, self._class(f"{DELTA}.actions.SetTransaction")
        some, none = option.apply, option.empty()
        adds = [of_json(action) for action in added]
        removes = [file.removeWithTimestamp(now, True) for file in removed]
        marks = [mark(name, version, some(now)) for name, version in transactions]
        counts = {"numFiles": len(adds), "numOutputRows": rows}
        if removes:
            counts["numRemovedFiles"] = len(removes)
        self._transaction.registerSQLMetrics(self._spark._jsparkSession, self._metrics(counts))
        mode = self._class("org.apache.spark.sql.SaveMode").valueOf("Overwrite" if replaces else "Append")
        operation = self._class(f"{DELTA}.{_OPERATION}")(mode, none, none, some(metadata), none, none, none, none, none)
        return int(self._transaction.commit(self._sequence([*marks, *adds, *removes]), operation))

    def overwrite(self, rows: DataFrame, options: Mapping[str, str]) -> int:
        """What Spark's writer does in the mode `overwrite` with these options, on top of the version that this transaction reads;
        returns the version. What others have committed since is a conflict, as for `commit`, if it may be among the rows that
        are replaced. The writer itself reads the table as it is when it begins, and overwrites what was there by then."""
        session, none = self._spark._jsparkSession, self._class("scala.Option").empty()
        mode = self._class("org.apache.spark.sql.SaveMode").valueOf("Overwrite")
        how = self._class(f"{DELTA}.DeltaOptions")(self._map(options), session.sessionState().conf())
        write = self._class(f"{DELTA}.{_OVERWRITE}")(
            self._log, mode, how, self._sequence([]), self._map({}), rows._jdf, none, none, False
        )
        actions = write.write(self._transaction, session, none, False)
        metadata = how.userMetadata()
        operation = self._class(f"{DELTA}.{_OPERATION}")(
            mode, none, how.replaceWhere(), metadata, none, none, none, none, none
        )
        return int(self._transaction.commit(actions, operation))

    def _map(self, values: Mapping[str, Any]) -> Any:
        together = self._class("java.util.HashMap")()
        for key, value in values.items():
            together.put(key, value)
        return self._class(_PYTHON_UTILS).toScalaMap(together)

    def _metrics(self, counts: dict[str, int]) -> Any:
        """As the table's history shows them."""
        metrics, of_spark = dict[str, Any](), self._class("org.apache.spark.sql.execution.metric.SQLMetrics")
        for name, count in counts.items():
            metric = of_spark.createMetric(self._spark.sparkContext._jsc.sc(), name)
            metric.set(count)
            metrics[name] = metric
        return self._map(metrics)

    def _sequence(self, items: Sequence[Any]) -> Any:
        together = self._class("java.util.ArrayList")()
        for item in items:
            together.add(item)
        return self._class(_PYTHON_UTILS).toSeq(together)


class TransactionLookup:
    """What is recorded under application transaction ids in the tables that are committed to. Where ids expire, as in our tables,
    Delta knows them from nothing but the whole log, which takes Spark jobs at each version. So this is asked once for a table,
    and then only the commits since are read. Thread-safe."""

    def __init__(self) -> None:
        self._tables: dict[str, _Recorded] = {}  # by folder; one that a thread works with is not there
        self._lock = threading.Lock()

    def recorded(self, delta: DeltaTransaction, transaction: str) -> int | None:
        """As `DeltaTransaction.recorded`."""
        with self._lock:
            known = self._tables.pop(delta.folder, None)
        if known is None or not self._reads_on(known, delta):
            known = _Recorded(delta.table_id, delta.version, delta.transactions())
        with self._lock:
            while len(self._tables) >= _MAX_TABLES:
                del self._tables[next(iter(self._tables))]  # the one that was not committed to for longest
            self._tables[delta.folder] = known
        delta.expect_unchanged(transaction)
        if transaction in known.since:
            return known.since[transaction]
        version = known.then.get(transaction)
        return int(version.get()) if version.isDefined() else None

    def _reads_on(self, known: _Recorded, delta: DeltaTransaction) -> bool:
        """Up to the version of `delta`; False if that can't be done, or Delta should be asked again."""
        version = delta.version
        is_near = 0 <= version - known.version <= _MAX_COMMITS and len(known.since) <= _MAX_SINCE
        if known.table_id != delta.table_id or not is_near:
            return False
        try:
            for number in range(known.version + 1, version + 1):
                known.since |= delta.transactions_of(number)
                known.version = number
        except Py4JJavaError as error:  # Delta has deleted it, as its retention says
            _log.info("%s: version %d can't be read: %s", delta.folder, known.version + 1, engine_message(error))
            return False
        return True


@dataclass
class _Recorded:
    """Of one table."""

    table_id: str
    version: int  # up to which it is known
    then: Any  # Scala's map, of the version at which Delta was asked
    since: dict[str, int] = field(default_factory=dict)  # of the commits after it


class TableDefinition:
    """Columns, settings and features of a table."""

    def __init__(self, metadata: str, protocol: str) -> None:
        """Both as Delta's actions in JSON."""
        self.digest = hashlib.sha256(f"{metadata}\n{protocol}".encode()).hexdigest()
        self._metadata, self._protocol = json.loads(metadata)["metaData"], json.loads(protocol)["protocol"]
        self.schema: dict[str, Any] = json.loads(self._metadata["schemaString"])
        self.table_id: str = self._metadata["id"]

    @property
    def is_plain(self) -> bool:
        """Whether adding and removing whole files is all there is to a write."""
        writer = self._protocol["minWriterVersion"]
        features = {*self._protocol.get("writerFeatures", ()), *self._protocol.get("readerFeatures", ())}
        configuration = self._metadata["configuration"]
        return (
            (writer <= _PLAIN_WRITER_VERSION or writer == _LISTED_WRITER_VERSION)
            and features <= _PLAIN_FEATURES
            and not any(configuration.get(key) == value for key, value in _OTHERWISE.items())
            and all(set(field["metadata"]) <= {"comment"} for field in self.schema["fields"])
        )

    def has_columns(self, schema: dict[str, Any]) -> bool:
        """Whether these are its columns by name and type, in any order; `schema` as Spark writes it in JSON."""
        mine, others = (
            [(field["name"], _type(field["type"])) for field in one["fields"]] for one in (self.schema, schema)
        )
        return len(mine) == len(others) and dict(mine) == dict(others)

    def may_have_statistics_of(self, column: str) -> bool:
        """False where Delta notes no ends of this column for a file: it does so of the first columns only, and of partitions."""
        configuration = self._metadata["configuration"]
        noted = int(configuration.get("delta.dataSkippingNumIndexedCols", _NOTED_COLUMNS))
        if (
            noted < 0
            or "delta.dataSkippingStatsColumns" in configuration
            or column in self._metadata["partitionColumns"]
        ):
            return True
        fields = [one for one in self.schema["fields"] if one["name"] not in self._metadata["partitionColumns"]]
        before = takewhile(lambda one: one["name"] != column, fields)
        return sum(_leaves(one["type"]) for one in before) < noted


def _leaves(kind: Any) -> int:
    is_struct = isinstance(kind, dict) and kind["type"] == "struct"
    return sum(_leaves(one["type"]) for one in kind["fields"]) if is_struct else 1


def _type(kind: Any) -> Any:
    """Without what may differ between rows and the table that they go into."""
    if isinstance(kind, list):
        return [_type(one) for one in kind]
    if isinstance(kind, dict):
        left_out = ("nullable", "containsNull", "valueContainsNull", "metadata")
        return {key: _type(value) for key, value in kind.items() if key not in left_out}
    return kind
