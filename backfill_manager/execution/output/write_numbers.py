"""Which write of a task is which, so that a try finds what the one before it has written: the n-th into a table, and in a stream
(`foreachBatch`) the n-th of its batch into the table.

A stream with a checkpoint goes on in the next try where it was, so its first batch there is another one; the batch's own number
stays. Streams are distinguished by their names: the id of one without a checkpoint is another one in each try.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from backfill_manager.errors import InvalidInput
from backfill_manager.execution.output.output_table import OutputTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"  # of the thread that Spark calls `foreachBatch` in


class _Series(NamedTuple):
    """Writes that are distinguished by their order alone."""

    table: str  # its identity
    batch: str  # "" outside of streams


class WriteNumbers:
    """Those of one try. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: Counter[_Series] = Counter()
        self._writing: set[_Series] = set()
        self._tables: dict[str, OutputTable] = {}  # by identity: the same table, by its name when it was written first
        self._folders: dict[str, str] = {}  # by identity, of those that were there when another was written
        self._unnamed: dict[str, str] = {}  # identity of a table -> id of the stream without a name that writes it

    @contextlib.contextmanager
    def next(self, spark: SparkSession, table: OutputTable, call: str) -> Iterator[str]:
        """The number of the write that is done meanwhile. `InvalidInput` where nothing tells it from another."""
        with self._lock:
            identity = self._identity(spark, table)
            series = _Series(identity, self._batch(spark, identity, call))
            if series in self._writing:
                raise InvalidInput(
                    f"{call}: another thread of this task is writing this table, and a retry tells writes of one table apart by "
                    "their order, which is left to chance there; write it from one thread, or once, with union"
                )
            self._last[series] += 1
            number = self._last[series]
            self._writing.add(series)
        try:
            yield f"{series.batch}{number}"
        finally:
            with self._lock:
                self._writing.remove(series)

    def _identity(self, spark: SparkSession, table: OutputTable) -> str:
        """Of the table, which may have been written by another name before: by its path, or another one of the catalog."""
        if table.identity not in self._tables:
            folder = self._folder(spark, table) if self._tables else None
            same = (one for one in self._tables.values() if folder is not None and self._folder(spark, one) == folder)
            self._tables[table.identity] = next(same, table)
        return self._tables[table.identity].identity

    def _folder(self, spark: SparkSession, table: OutputTable) -> str | None:
        if table.identity not in self._folders and (folder := table.folder(spark)) is not None:
            self._folders[table.identity] = folder
        return self._folders.get(table.identity)

    def _batch(self, spark: SparkSession, identity: str, call: str) -> str:
        context = spark.sparkContext
        batch, query = context.getLocalProperty(_BATCH), context.getLocalProperty(_QUERY)
        if batch is None or query is None:
            return ""
        stream = spark._jsparkSession.streams().get(query)
        name = None if stream is None else stream.name()
        if name is None and self._unnamed.setdefault(identity, query) != query:
            raise InvalidInput(
                f"{call}: two streams of this task write this table, and a retry could not tell their batches apart; give each a "
                "name, with writeStream.queryName('...')"
            )
        return f"stream/{name or ''}/{batch}/"
