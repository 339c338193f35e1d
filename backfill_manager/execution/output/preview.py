"""Directs a preview's tasks to its clones (clones.py): what they write, and what they read where there is a clone.

Tasks name tables as always. Names and paths are replaced in what goes through `ctx`, SQL tasks and reads of PySpark (`redirect`).
What can't be replaced is refused: the plan of each query is looked through for tables that have a clone (`note_reads`), and
a Python task writes by `ctx` alone.
"""

from __future__ import annotations

import contextlib
import functools
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError

from backfill_manager.errors import InvalidInput
from backfill_manager.execution.lineage.table_access import MAX_ACCESSES, plain_name, tables_in
from backfill_manager.execution.lineage.written_tables import Name, Written, relations_in, written_by
from backfill_manager.execution.messages import AccessedTable
from backfill_manager.execution.output.clones import Clones, Source, delta_name
from backfill_manager.execution.output.output_table import OutputTable
from backfill_manager.execution.output.table_turns import Turns
from backfill_manager.execution.spark.catalog import name_parts, with_new_tables
from backfill_manager.masking import mask_text
from backfill_manager.store.sql_guard import identifier
from backfill_manager.value_rules import table_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# Statements that write tables by a name that can be replaced.
_REPLACEABLE: Final = re.compile(
    r"InsertIntoStatement|Union|MergeIntoTable|UpdateTable|DeleteFromTable|Overwrite\w+|(Create|Replace)Table(AsSelect)?|TruncateTable"
    r"|(Add|Alter|Rename|Drop)Columns?|SetTableProperties|UnsetTableProperties"
)


class Preview:
    """A preview, as one of its tries has it."""

    def __init__(self, session: Callable[[], SparkSession], preview_id: str, turns: Turns) -> None:
        self._session, self.preview_id, self._turns = session, preview_id, turns
        self._own = threading.local()
        self._reads = dict[AccessedTable, None]()

    @property
    def reads(self) -> list[AccessedTable]:
        """The tables that its queries have read so far: those outside of the preview as they were, and for a clone its table,
        without a version, which is that of the commit that promotes it."""
        return list(self._reads)[:MAX_ACCESSES]

    @property
    def spark(self) -> SparkSession:
        return self._session()

    @functools.cached_property
    def clones(self) -> Clones:
        return Clones(self.spark, self.preview_id)

    @contextlib.contextmanager
    def itself(self) -> Iterator[None]:
        """What this thread does with tables meanwhile, it does with clones, and it may write them."""
        before, self._own.now = getattr(self._own, "now", False), True
        try:
            yield
        finally:
            self._own.now = before

    def is_itself(self) -> bool:
        return bool(getattr(self._own, "now", False))

    def table_to_write(self, table: OutputTable) -> OutputTable:
        with self.itself():
            return self.clones.make(table, self._turns)

    def name(self, name: str) -> str:
        """What a table of this name, or the one at this path, is in the preview."""
        from pyspark.errors import PySparkException

        with self.itself():
            try:
                table = OutputTable.named(self.spark, name_parts(self.spark, name))
                found = None if self._is_temporary(name) else self.clones.of(table)
            except (PySparkException, InvalidInput, Py4JJavaError):  # no name that Spark understands: it says why
                found = None
        return name if found is None else delta_name(found.path)

    def path(self, path: str) -> str:
        with self.itself():
            found = self.clones.of(OutputTable(self.spark, path)) if "/" in path else None
        return path if found is None else found.path

    def read_text(self, text: str) -> str:
        """A query with clones in it; `InvalidInput` for what writes a table."""
        with self.itself():
            parsed = re.sub(r"\{(\w+)\}", r"_\1_", text)  # as long as `spark.sql(..., name=df)` has it, and a name
            written = written_by(self.spark, parsed, lambda _: "")
            if written is not None and (written.names or _has_no_name(written)):
                raise InvalidInput(f"spark.sql({text[:60]!r}...) writes a table: {_ONLY_BY_CTX}")
            return text if written is None else self._replaced(text, parsed=parsed)

    def statement(self, text: str, evaluate: Callable[[str], str], *, writes: bool) -> str:
        """A statement of a SQL task, with clones in place of tables; `writes`: these are made for the tables that it writes."""
        written = written_by(self.spark, text, evaluate)
        if written is None:
            return text
        _check_kind(text, written)
        if not writes:
            return self._replaced(text)
        tables = {name: OutputTable.named(self.spark, name) for name in written.names}
        clones = {name: self.clones.make(one, self._turns).name for name, one in tables.items()}
        replaced = self._replaced(text, clones)
        now = written_by(self.spark, replaced, evaluate)
        if now is None or {OutputTable.named(self.spark, name).name for name in now.names} != set(clones.values()):
            raise _not_redirected(text, "write the name of the table in place of IDENTIFIER(...)")
        return replaced

    def note_reads(self, df: DataFrame, tables_of: Callable[[DataFrame], Iterator[AccessedTable]] = tables_in) -> None:
        """Adds what a query reads to `reads`; `InvalidInput` if it reads a table of which there is a clone: by a view, a version,
        a computed name."""
        if self.is_itself():
            return
        with self.itself():
            clones = self.clones.all()
            originals = {table_key(one.source.path): one for one in clones if one.source.path is not None}
            sources = {table_key(one.path): one.source for one in clones}
            for access in tables_of(df):
                if (clone := originals.get(table_key(access.path or ""))) is not None:
                    name = clone.source.table
                    raise InvalidInput(
                        f"a query reads {name} as it is outside of this preview, which has written it: by a view, a version, or "
                        "a name that can't be replaced; name the table itself"
                    )
                source = sources.get(table_key(access.path or ""))
                self._reads[_masked(access) if source is None else _outside(source)] = None

    def _replaced(self, text: str, clones: Mapping[Name, str] | None = None, parsed: str | None = None) -> str:
        """`clones`: the paths of those that the text must name in place of these tables; others are looked for. `parsed`: what
        Spark's parser gets in place of the text, with the same names at the same places."""
        places = dict[tuple[int, int], str]()
        for name, place in relations_in(self.spark, parsed or text):
            path = (clones or {}).get(name) or self._path_of(name)
            if path is None:
                continue
            if place is None:
                where = f"{'.'.join(name)} in {text.strip()[:40]!r}"
                raise InvalidInput(f"{where} can't be replaced by its clone in a preview")
            places[place] = delta_name(path)
        for (start, end), replacement in sorted(places.items(), reverse=True):
            text = text[:start] + replacement + text[end:]
        return text

    def _path_of(self, name: Name) -> str | None:
        if len(name) == 1 and self._is_temporary(identifier(name[0])):
            return None
        found = self.clones.of(OutputTable.named(self.spark, name))
        return None if found is None else found.path

    def _is_temporary(self, name: str) -> bool:
        if "/" in name or len(parts := name_parts(self.spark, name)) > 1:
            return False
        return bool(self.spark._jsparkSession.sessionState().catalog().getTempView(parts[0]).isDefined())


_ONLY_BY_CTX: Final = (
    "in a preview only ctx.write, ctx.merge and SQL tasks do, which write clones; nothing was written. Change the task, or leave "
    "it out with --tasks."
)
_WRITES: Final = {
    "DataFrameWriter": ("save", "saveAsTable", "insertInto", "parquet", "orc", "csv", "json", "text", "jdbc", "xml"),
    "DataFrameWriterV2": ("create", "replace", "createOrReplace", "append", "overwrite", "overwritePartitions"),
    "DataStreamWriter": ("start", "toTable"),  # of a sink of its own or not: its checkpoint would move on, too
    "MergeIntoWriter": ("merge",),
    "Catalog": (
        "createTable", "createExternalTable", "createDatabase", "dropTable", "dropView", "dropDatabase", "truncateTable",
        "recoverPartitions",
    ),
    "DeltaTable": (
        "delete", "update", "vacuum", "optimize", "restoreToVersion", "restoreToTimestamp", "generate", "clone",
        "cloneAtVersion", "cloneAtTimestamp", "convertToDelta", "upgradeTableProtocol", "addFeatureSupport",
        "dropFeatureSupport",
    ),
    "DeltaMergeBuilder": ("execute",),
    "DeltaTableBuilder": ("execute",),
}  # fmt: skip


def redirect(preview: Preview) -> None:
    """From here on this process reads clones, and writes by `ctx` alone. Only in a task process: it changes PySpark's classes."""
    from delta.tables import DeltaMergeBuilder, DeltaTable, DeltaTableBuilder
    from pyspark.sql import DataFrameReader, DataFrameWriter, DataFrameWriterV2, SparkSession
    from pyspark.sql.catalog import Catalog
    from pyspark.sql.merge import MergeIntoWriter
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    for owner, names, change in (
        (SparkSession, ("table",), preview.name), (DataFrameReader, ("table",), preview.name),
        (SparkSession, ("sql",), preview.read_text),
        (DataFrameReader, ("load", "parquet", "orc", "csv", "json", "text"), preview.path),
    ):  # fmt: skip
        for name in names:
            setattr(owner, name, _read(getattr(owner, name), change, preview))
    DeltaTable.toDF = _read(DeltaTable.toDF, None, preview)
    DeltaTable.forName = classmethod(_delta(DeltaTable.forName.__func__, DeltaTable.forPath.__func__, preview))
    DeltaTable.forPath = classmethod(_delta(DeltaTable.forPath.__func__, DeltaTable.forPath.__func__, preview))
    writers = (DataFrameWriter, DataFrameWriterV2, DataStreamWriter, MergeIntoWriter, Catalog)
    for owner in (*writers, DeltaTable, DeltaMergeBuilder, DeltaTableBuilder):
        for name in _WRITES[owner.__name__]:
            if hasattr(owner, name):
                setattr(owner, name, _refused(getattr(owner, name), f"{owner.__name__}.{name}", preview))


def _read(
    method: Callable[..., DataFrame], change: Callable[[str], str] | None, preview: Preview
) -> Callable[..., DataFrame]:
    @functools.wraps(method)
    def read(self: Any, *args: Any, **options: Any) -> DataFrame:
        if preview.is_itself():
            return method(self, *args, **options)
        if change is not None and args and isinstance(args[0], str):
            args = (change(args[0]), *args[1:])
        for key in ("tableName", "sqlQuery", "path"):
            if change is not None and isinstance(options.get(key), str):
                options[key] = change(options[key])
        with preview.itself():
            df = with_new_tables(getattr(self, "_spark", self), lambda: method(self, *args, **options))
        preview.note_reads(df)
        return df

    return read


def _delta(method: Callable[..., Any], by_path: Callable[..., Any], preview: Preview) -> Callable[..., Any]:
    @functools.wraps(method)
    def found(cls: Any, spark: SparkSession, name: str, *args: Any, **options: Any) -> Any:
        if preview.is_itself():
            return method(cls, spark, name, *args, **options)
        with preview.itself():
            clone = preview.clones.of(OutputTable(spark, name))
            return method(cls, spark, name, *args, **options) if clone is None else by_path(cls, spark, clone.path)

    return found


def _refused(method: Callable[..., Any], call: str, preview: Preview) -> Callable[..., Any]:
    @functools.wraps(method)
    def write(*args: Any, **options: Any) -> Any:
        if not preview.is_itself():
            raise InvalidInput(f"{call} writes: {_ONLY_BY_CTX}")
        return method(*args, **options)

    return write


def _has_no_name(written: Written) -> bool:
    """Whether it writes what has no name in it that could be replaced: a folder, or whatever another text says."""
    return written.kind == "InsertIntoDir" or "ExecuteImmediate" in written.kind


def _check_kind(text: str, written: Written) -> None:
    """`InvalidInput` for a statement that can't be directed to clones, whatever its tables are."""
    if written.is_script:
        raise _not_redirected(text, "split it into statements without BEGIN ... END")
    if _has_no_name(written):
        raise _not_redirected(text, "what it writes is no table, or is named in another text")
    if written.names and not _REPLACEABLE.fullmatch(written.kind):
        these = "INSERT, MERGE, UPDATE, DELETE, TRUNCATE, CREATE or REPLACE TABLE, and columns and properties of ALTER TABLE"
        raise _not_redirected(text, f"{these} can")
    if written.format not in (None, "delta"):
        other = f"it makes a table of {written.format}, and clones are Delta tables"
        raise _not_redirected(text, f"{other}; write USING delta")
    if written.has_location:
        raise _not_redirected(text, "a preview makes tables in a folder of its own; leave LOCATION out")


def _not_redirected(text: str, why: str) -> InvalidInput:
    begins = f"a statement that begins with {text.strip()[:40]!r}"
    return InvalidInput(f"{begins} can't be directed to the clones of a preview: {why}; nothing was run")


def _outside(source: Source) -> AccessedTable:
    """A read of its clone, see `Preview.reads`."""
    if "/" in source.identity:
        return AccessedTable("read", None, source.path or source.identity)
    return AccessedTable("read", plain_name(source.identity), source.path)


def _masked(access: AccessedTable) -> AccessedTable:
    return access if access.path is None else replace(access, path=mask_text(access.path))
