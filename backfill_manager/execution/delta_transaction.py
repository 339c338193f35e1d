"""Delta's own transaction, step by step: files are written by one, and committed by another with what others have written.

Spark's writer does all in one go, one write a commit. The steps are internal to Delta (`OptimisticTransaction`), so where Delta
has them otherwise, as on Databricks, each write is committed by itself: `is_available`.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OPERATION: Final = "DeltaOperations$Write"
_OPERATION_ARGUMENTS: Final = 9  # mode, partition columns, predicate, user metadata, and five that are not ours
# What a table may have so that adding and removing whole files is all there is to a write.
_PLAIN_FEATURES: Final = frozenset(
    {"appendOnly", "invariants", "checkConstraints", "timestampNtz", "vacuumProtocolCheck"}
)
_PLAIN_WRITER_VERSION: Final = 3  # 4 and later imply change data, generated columns, ...
_LISTED_WRITER_VERSION: Final = 7  # the features are listed by name
_OTHERWISE: Final = {  # settings of a table with which it is not
    "delta.appendOnly": "true",
    "delta.enableChangeDataFeed": "true",
    "delta.enableRowTracking": "true",
}


def is_available(spark: SparkSession) -> bool:
    try:
        loader = (
            spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        )  # of Spark's jars, which came later
        operation = loader.loadClass(f"org.apache.spark.sql.delta.{_OPERATION}")
        return len(operation.getConstructors()[0].getParameterTypes()) == _OPERATION_ARGUMENTS
    except (Py4JError, TypeError, IndexError):
        return False


class DeltaTransaction:
    """One that reads the table as it is now. It ends with `commit`, or is left; nothing has to be undone."""

    def __init__(self, spark: SparkSession, log: Any) -> None:
        """`log`: Delta's `DeltaLog`."""
        self._spark, self._jvm = spark, spark._jvm
        spark._get_j_spark_session_class(self._jvm).setActiveSession(spark._jsparkSession)
        self._transaction = log.startTransaction()
        self._log = log

    @classmethod
    def at(cls, spark: SparkSession, folder: str) -> DeltaTransaction:
        return cls(spark, spark._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, folder))

    @property
    def folder(self) -> str:
        return str(self._log.dataPath().toString())

    def definition(self) -> TableDefinition:
        transaction = self._transaction
        return TableDefinition(transaction.metadata().json(), transaction.protocol().json())

    def recorded(self, transaction: str) -> int | None:
        """The last version under this application transaction id. The commit is refused if another one changes it meanwhile."""
        version = int(self._transaction.txnVersion(transaction))
        return None if version < 0 else version

    def write_files(self, rows: DataFrame) -> list[str]:
        """Writes the rows into the table's folder, checked by its constraints; returns its `add` actions as JSON. Nobody sees
        them before they are committed."""
        files = self._transaction.writeFiles(rows._jdf)
        return [str(files.apply(i).json()) for i in range(files.length())]

    def files_where(self, condition: str) -> list[tuple[dict[str, Any], Any]]:
        """The files that may hold rows for which this is true, by their statistics: the fields of `add`, and Delta's object. The
        commit is refused if another one adds or removes such a file meanwhile."""
        parsed = self._spark._jsparkSession.sessionState().sqlParser().parseExpression(condition)
        found = self._transaction.filterFiles(self._sequence([parsed]), False)
        files = [found.apply(i) for i in range(found.length())]
        fields = [json.loads(file.json())["add"] for file in files]
        statistics = self._statistics([one["path"] for one in fields])  # a scan leaves them out
        return [({**one, "stats": statistics.get(one["path"])}, file) for one, file in zip(fields, files, strict=True)]

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
        jvm, now = self._jvm, round(time.time() * 1000)
        delta = jvm.org.apache.spark.sql.delta
        of_json = delta.actions.Action.fromJson
        some, none = jvm.scala.Option.apply, jvm.scala.Option.empty()
        adds = [of_json(action) for action in added]
        removes = [file.removeWithTimestamp(now, True) for file in removed]
        marks = [delta.actions.SetTransaction(name, version, some(now)) for name, version in transactions]
        counts = {"numFiles": len(adds), "numOutputRows": rows}
        if removes:
            counts["numRemovedFiles"] = len(removes)
        self._transaction.registerSQLMetrics(self._spark._jsparkSession, self._metrics(counts))
        mode = jvm.org.apache.spark.sql.SaveMode.valueOf("Overwrite" if replaces else "Append")
        operation = getattr(delta, _OPERATION)(mode, none, none, some(metadata), none, none, none, none, none)
        return int(self._transaction.commit(self._sequence([*marks, *adds, *removes]), operation))

    def _metrics(self, counts: dict[str, int]) -> Any:
        """As the table's history shows them."""
        metrics = self._jvm.java.util.HashMap()
        for name, count in counts.items():
            metric = self._jvm.org.apache.spark.sql.execution.metric.SQLMetrics.createMetric(
                self._spark.sparkContext._jsc.sc(), name
            )
            metric.set(count)
            metrics.put(name, metric)
        return self._jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(metrics)

    def _sequence(self, items: Sequence[Any]) -> Any:
        together = self._jvm.java.util.ArrayList()
        for item in items:
            together.add(item)
        return self._jvm.org.apache.spark.api.python.PythonUtils.toSeq(together)


class TableDefinition:
    """Columns, settings and features of a table."""

    def __init__(self, metadata: str, protocol: str) -> None:
        """Both as Delta's actions in JSON."""
        self.digest = hashlib.sha256(f"{metadata}\n{protocol}".encode()).hexdigest()
        self._metadata, self._protocol = json.loads(metadata)["metaData"], json.loads(protocol)["protocol"]
        self.schema: dict[str, Any] = json.loads(self._metadata["schemaString"])

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


def _type(kind: Any) -> Any:
    """Without what may differ between rows and the table that they go into."""
    if isinstance(kind, list):
        return [_type(one) for one in kind]
    if isinstance(kind, dict):
        left_out = ("nullable", "containsNull", "valueContainsNull", "metadata")
        return {key: _type(value) for key, value in kind.items() if key not in left_out}
    return kind
