"""The clones of a preview: what its tasks write in place of the tables.

    <warehouse>/_previews/<preview>/<table>/source.json   which table, at which version
    <warehouse>/_previews/<preview>/<table>/clone/        Delta's shallow clone: the files of the table, until it is written

A clone is made at the first write of a table: `source.json` is written once and never changed, and the clone is of the version
that is named there, however many tries make it at the same time, or are killed between the two. A table that does not exist is
not cloned: the first write makes it in place of the clone.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final

from backfill_manager.errors import InvalidInput
from backfill_manager.execution.output.output_table import OutputTable
from backfill_manager.execution.output.table_turns import Turns
from backfill_manager.execution.spark.catalog import hadoop_path, warehouse
from backfill_manager.store.delta_spark.java_classes import java_class
from backfill_manager.store.sql_guard import identifier
from backfill_manager.value_rules import table_key

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER: Final = "_previews"  # of the warehouse
SOURCE_FILE: Final = "source.json"
_CLONE: Final = "clone"


@dataclass(frozen=True)
class Source:
    """A table that a preview has written, as it was when its clone was made; the content of `source.json`."""

    table: str  # its name, or its path
    identity: str  # see `OutputTable.identity`
    path: str | None = None  # None: it did not exist, as with the next two
    version: int | None = None
    table_id: str | None = None


@dataclass(frozen=True)
class ClonedTable:
    source: Source
    path: str  # of the clone


class Clones:
    """Those of one preview."""

    def __init__(self, spark: SparkSession, preview_id: str) -> None:
        self._spark, self.preview_id = spark, preview_id
        self.folder = f"{warehouse(spark)}/{FOLDER}/{preview_id}"
        self._known: dict[str, ClonedTable] = {}  # by folder: what is written there does not change

    def all(self) -> list[ClonedTable]:
        """Those that exist, by the names of their tables."""
        where, files = hadoop_path(self._spark, self.folder)
        if not files.exists(where):
            return []
        for status in files.listStatus(where):
            folder = str(status.getPath().toString())
            path = f"{folder}/{_CLONE}"
            if folder not in self._known and (source := self._read(folder)) is not None and self._is_table(path):
                self._known[folder] = ClonedTable(source, path)
        return sorted(self._known.values(), key=lambda one: one.source.table)

    def of(self, table: OutputTable) -> ClonedTable | None:
        from pyspark.errors import PySparkException

        clones = self.all()
        by_name = {table_key(one.source.identity): one for one in clones}
        by_name |= {table_key(one.source.path): one for one in clones if one.source.path is not None}
        if (found := by_name.get(table_key(table.identity))) is not None or table.is_path or not clones:
            return found
        try:
            path = table.read().path if table.exists() else None
        except (PySparkException, InvalidInput):  # a view, or not a table of Delta
            return None
        return None if path is None else by_name.get(table_key(path))

    def make(self, table: OutputTable, turns: Turns) -> OutputTable:
        """The clone of a table that is to be written; of one that does not exist, where it is to be."""
        if (existing := self.of(table)) is not None:
            return OutputTable(self._spark, existing.path)
        path = table.read().path if table.exists() else None
        folder = f"{self.folder}/{_key(path or table.identity)}"
        with turns.acquire(folder):
            source = self._read(folder)
            if source is None:
                source = Source(table.name, table.identity)
                if path is not None:
                    state = table.read()
                    source = replace(source, path=state.path, version=state.version, table_id=state.table_id)
                self._write(folder, source)
            self._clone(source, f"{folder}/{_CLONE}")
        return OutputTable(self._spark, f"{folder}/{_CLONE}")

    def discard(self) -> int:
        """Deletes all of them; returns how many there were. The tables and their files stay."""
        where, files = hadoop_path(self._spark, self.folder)
        number = len(self.all())
        self._known.clear()
        files.delete(where, True)
        return number

    def _clone(self, source: Source, path: str) -> None:
        if source.version is None or self._is_table(path):
            return
        target = OutputTable(self._spark, path)
        target.remove_unfinished_log()
        table = f"{delta_name(source.path or '')} VERSION AS OF {source.version}"
        self._spark.sql(f"CREATE TABLE {delta_name(path)} SHALLOW CLONE {table}")

    def _is_table(self, path: str) -> bool:
        from delta.tables import DeltaTable

        return bool(DeltaTable.isDeltaTable(self._spark, path))

    def _read(self, folder: str) -> Source | None:
        where, files = hadoop_path(self._spark, f"{folder}/{SOURCE_FILE}")
        if not files.exists(where):
            return None
        with contextlib.closing(files.open(where)) as stream:
            text = str(java_class(self._spark, "org.apache.commons.io.IOUtils").toString(stream, "UTF-8"))
        return Source(**json.loads(text))

    def _write(self, folder: str, source: Source) -> None:
        """Whole or not at all: under another name first, which Hadoop's rename never lays over a file that is there."""
        where, files = hadoop_path(self._spark, f"{folder}/{SOURCE_FILE}")
        unfinished, _ = hadoop_path(self._spark, f"{folder}/{SOURCE_FILE}.tmp")
        with contextlib.closing(files.create(unfinished, True)) as stream:
            stream.write(bytearray(json.dumps(asdict(source)).encode()))
        files.rename(unfinished, where)


def remaining(spark: SparkSession) -> list[str]:
    """Ids of previews that have clones, of whichever state."""
    where, files = hadoop_path(spark, f"{warehouse(spark)}/{FOLDER}")
    return sorted(str(one.getPath().getName()) for one in files.listStatus(where)) if files.exists(where) else []


def _key(text: str) -> str:
    """The name of a folder: readable, and of this table alone."""
    last = re.split(r"[/.]", text.rstrip("/"))[-1]
    return f"{re.sub(r'[^A-Za-z0-9_]', '_', last)[:40]}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def delta_name(path: str) -> str:
    """A table as Delta's SQL names it by its path."""
    return f"delta.{identifier(path)}"
