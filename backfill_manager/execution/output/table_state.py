"""A version of a table that tasks write to, from Delta's log: what it is set to, and which of our writes it has."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError

from backfill_manager.errors import AbandonedTry, InvalidInput, nearest
from backfill_manager.execution.lineage.written_tables import each_of
from backfill_manager.execution.output.column_types import different_types, new_columns, nullable_fields, refuse_untyped
from backfill_manager.execution.output.log_actions import (
    clustering_set_by,
    last_numbers,
    names_in_files,
    settable,
)
from backfill_manager.humanise import name_list
from backfill_manager.store.delta_spark.java_classes import DELTA, java_class
from backfill_manager.store.delta_spark.transaction import TableDefinition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


# Each run leaves one transaction id per write in the table; after this time Delta forgets them. A crashed try is tried
# again long before. Checkpoints are written in the committing task's own time (1.6 s against 0.2 s), so not each tenth.
PROPERTIES: Final = {"delta.setTransactionRetentionDuration": "interval 30 days", "delta.checkpointInterval": "50"}
_MAKES_THE_TABLE: Final = ("CREATE TABLE", "REPLACE TABLE")  # operations of Delta
_MAX_TIMES_MADE: Final = 20
MAX_COMMITS_LOOKED_AT: Final = 200  # for a restore, by a try that finds its write in the table: others commit meanwhile


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
        return settable(self.metadata["configuration"])

    @property
    def was_never_written(self) -> bool:
        """No commit but those that make a table as `ctx.write` does: the first write, or each so far, was refused."""
        if self.version >= _MAX_TIMES_MADE or not PROPERTIES.items() <= self.properties.items():
            return False
        newest_first = (self._actions_if_kept(version) or [] for version in range(self.version, -1, -1))
        return all(_only_makes_the_table(actions) for actions in newest_first)

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
            if (actions := self._actions_if_kept(version)) is None:
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
        new = list(new_columns(self.schema, rows.schema))
        if new and not adds_columns:
            similar = nearest(new[0], self.schema.names) if len(new) == 1 and new[0] in rows.columns else ""
            there = {name.lower() for name in rows.columns}
            lacking = name_list([repr(name) for name in self.schema.names if name.lower() not in there])
            renamed = f". The rows lack {lacking}, which the table has" if lacking else ""
            raise InvalidInput(
                f"{call}: the table has no column {', '.join(map(repr, new))}{similar}; schema='merge' adds "
                f"{'it' if len(new) == 1 else 'them'}, in a SQL task ALTER TABLE ... ADD COLUMNS does{renamed}"
            )
        refuse_untyped(call, [field for field in rows.schema.fields if field.name in new])
        if different := different_types(self.schema, rows.schema):
            is_void = " void in " in different
            cure = "a column of NULL alone takes no value: make the table anew" if is_void else "cast it"
            if (
                not is_void and self._snapshot.numOfFiles() == 0
            ):  # but was made or emptied by somebody, or is a preview's
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
        if names := list(nullable_fields(self._fields, json.loads(rows._jdf.schema().json())["fields"])):
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
            if (actions := self._actions_if_kept(version)) is None:
                break
            times = [action["commitInfo"]["timestamp"] for action in actions if "commitInfo" in action]
            if times and times[0] < at.timestamp() * 1000:
                return version
        return -1

    def _actions_if_kept(self, version: int) -> list[dict[str, Any]] | None:
        """None: Delta has deleted the entry, as its retention says. What storage fails with otherwise is raised."""
        try:
            return self._actions(version)
        except Py4JJavaError as error:
            if error.java_exception.getClass().getName() != "java.io.FileNotFoundException":
                raise
            return None

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


_COMPUTED: Final = {"CURRENT_DEFAULT", "delta.generationExpression", "delta.identity.start"}  # metadata of columns
_BYTES: Final = ("numOutputBytes", "numTargetBytesAdded", "numAddedBytes")
_MERGED: Final = ("numTargetRowsInserted", "numTargetRowsUpdated")


def _only_makes_the_table(actions: Iterable[Mapping[str, Any]]) -> bool:
    operation = next((action["commitInfo"].get("operation") for action in actions if "commitInfo" in action), None)
    return operation in _MAKES_THE_TABLE and not any("add" in action or "txn" in action for action in actions)


def _rows_in(metrics: dict[str, str]) -> int | None:
    """Rows that a commit inserted or updated, by Delta's metrics; copied rows do not count."""
    for names in (_MERGED, ("numUpdatedRows",)):
        if all(name in metrics for name in names):
            return sum(int(metrics[name]) for name in names)
    if "numOutputRows" not in metrics:
        return None
    return int(metrics["numOutputRows"]) - int(metrics.get("numCopiedRows", 0))


def _restore_that_undid(commit: int, now: int, restored: Mapping[int, int]) -> int | None:
    """`restored`: by version of a restore the one that it has restored. The first on the way back from `now` that leads past the
    `commit`; None if the commit is still in effect."""
    while now > commit:
        if restored.get(now, now) < commit:
            return now
        now = restored.get(now, now - 1)
    return None
