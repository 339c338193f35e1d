"""What the log of a data table tells of its rows without opening a file: where the rows of each file lie along one column, and
which files every commit has added or removed.

What delta-rs can't open, or has a reader feature that is not known here, is left to Spark: `why_unknown` says so. So are the
numbers of rows of a table with more deletion vectors than can be read at once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from pyarrow import fs

from backfill_manager.store.data_tables.commits import Commits, LogEntries, actions_in
from backfill_manager.store.data_tables.places import (
    FIRST,
    PAST,
    TIME_TYPES,
    Changes,
    Files,
    micros_of,
    numbers_of,
    step_after,
)
from backfill_manager.store.delta_base import engine_message
from backfill_manager.store.delta_rs.tables import UNUSABLE, is_engine_error

_NAME_IN_FILES: Final = "delta.columnMapping.physicalName"
# With these, and those of the protocol's older versions, a file's rows are those that its statistics speak of.
_KNOWN_FEATURES: Final = frozenset(
    {"columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
)
MAX_DELETION_ROWS: Final = 20_000_000  # of files with deletion vectors


@dataclass(frozen=True)
class TableLog:
    """A table as its log shows it. The fields after `problem` mean nothing where there is one."""

    problem: str | None = None  # why nothing is known of it: it is gone, it is no Delta table, ...
    is_gone: bool = False
    table_id: str = ""
    version: int = -1
    kind: str = ""  # the column's type in Spark's words; empty: there is no such column
    column: str = ""  # as the table spells it
    name_in_files: str = ""  # empty: it is in none, as it divides the table
    files: Files = field(default_factory=Files)
    why_unknown: str | None = None  # why `files` and `changes` say nothing, though the table is there; Spark can count
    changes: Changes = field(default_factory=Changes)
    changes_from: int = 0  # commits from this version on are known

    def problem_of(self, column: str) -> str | None:
        """Why no interval lies along this column, which is the one that was asked for."""
        if self.problem is not None or self.kind in TIME_TYPES:
            return self.problem
        kind = f"is {self.kind}" if self.kind else "is not there"
        return f"its column {column!r} {kind}: intervals lie along a TIMESTAMP, TIMESTAMP_NTZ or DATE"


def plain_location(path: str) -> str:
    """A path as delta-rs takes it: a local one without `file:`."""
    return "/" + path.removeprefix("file:").lstrip("/") if path.startswith("file:") else path


def read_table_log(path: str, column: str, since: int | None, state_id: str | None) -> TableLog:
    """The table at a path or URI. `since`: the version after which commits are read (None: none of them). A commit is ours when
    its user metadata names the state with this id."""
    location = plain_location(path)
    if UNUSABLE.search(location):
        return TableLog("its path has characters that delta-rs does not take")
    try:  # not by `is_deltatable`, which holds up all threads of this process, for as long as storage hangs
        table = DeltaTable(location)
    except TableNotFoundError:
        return _not_there(location)
    except Exception as error:
        if not is_engine_error(error):
            raise
        return _not_opened(location, column, error)
    fields = {one.name.casefold(): one for one in table.schema().fields}
    found = fields.get(column.casefold())
    kind = "" if found is None else str(getattr(found.type, "type", "") or "")
    known = TableLog(
        table_id=str(table.metadata().id), version=table.version(), kind=kind, column=found.name if found else column
    )
    if kind not in TIME_TYPES:
        return known
    return _with_files(known, table, location, since, state_id)


def _with_files(known: TableLog, table: DeltaTable, location: str, since: int | None, state_id: str | None) -> TableLog:
    if others := set(table.protocol().reader_features or ()) - _KNOWN_FEATURES:
        return _unknown(known, f"its log is not read here, as it has {', '.join(sorted(others))}")
    names = {one.name: str(one.metadata.get(_NAME_IN_FILES, one.name)) for one in table.schema().fields}
    name = names[known.column]
    is_partition = known.column in table.metadata().partition_columns
    try:
        may_have_deleted = "deletionVectors" in (table.protocol().reader_features or ())
        kept = _kept(table) if may_have_deleted else {}
        files = _files(_added(table), name, kept)
        if kept is None:
            files = Files(files.first, files.past, np.where(files.rows == 0, 0, -1))
        known = replace(known, files=files, name_in_files="" if is_partition else name)
        if since is None or since >= known.version:
            return replace(known, changes_from=known.version + 1)
        log = LogEntries(location)
        entries, changes_from = log.since(since, known.version)
        commits = Commits(known.column, name, known.kind, state_id, is_partition=is_partition)
        changes = commits.changes(entries, lambda: _files_before(log, location, name, max(since, changes_from - 1)))
    except Exception as error:
        if not is_engine_error(error) and not isinstance(error, ValueError):
            raise
        return _unknown(known, f"its log can't be read: {engine_message(error)}")
    return replace(known, changes=changes, changes_from=changes_from)


def _kept(table: DeltaTable) -> dict[str, pa.BooleanArray] | None:
    """Of the files with deletion vectors which rows are left, by their names; rows beyond the end are. None: too many."""
    kept: dict[str, pa.BooleanArray] = {}
    n = 0
    for batch in map(pa.record_batch, table.deletion_vectors()):
        for path, left in zip(batch["filepath"].to_pylist(), batch["selection_vector"], strict=True):
            kept[file_name(path)] = left.values
            n += len(left.values)
        if n > MAX_DELETION_ROWS:
            return None
    return kept


def file_name(path: str) -> str:
    """Of a file of a table, by its path in the log or its URL: unique within the table, as it has a UUID."""
    return unquote(path).rpartition("/")[2]


def _files_before(log: LogEntries, location: str, column: str, base: int) -> tuple[pa.Array, Files]:
    """Paths and places of the files of version `base`, or, where the log does not reach so far back, of the first one that can
    still be read."""
    for version in (base, *(one for one in log.checkpoints() if one > base)):
        try:
            added = _added(DeltaTable(location, version=version))
        except Exception as error:
            if not is_engine_error(error):
                raise
            continue
        return added["path"].cast(pa.string()).combine_chunks(), _files(added, column)
    return pa.array([], pa.string()), Files()


def _unknown(known: TableLog, why: str) -> TableLog:
    return replace(known, why_unknown=why, changes_from=known.version + 1)


def _not_there(location: str) -> TableLog:
    try:
        system = fs.PyFileSystem(DeltaStorageHandler(location))
        files = system.get_file_info(fs.FileSelector("", allow_not_found=True))
    except Exception as error:
        if not is_engine_error(error):
            raise
        files = []
    if any(not info.base_name.startswith((".", "_")) for info in files):
        return TableLog("it is no Delta table: its folder has files, and no log")
    return TableLog(f"it is gone: nothing lies at {location}", is_gone=True)


def _not_opened(location: str, column: str, error: Exception) -> TableLog:
    """A table that is there and that delta-rs does not read: Spark may."""
    try:
        texts = dict(LogEntries(location).since(-1, 2**62)[0])
        metadata = next(
            action["metaData"]
            for _, text in sorted(texts.items(), reverse=True)
            for action in actions_in(text)
            if "metaData" in action
        )
        fields = json.loads(metadata["schemaString"])["fields"]
    except StopIteration:
        return TableLog(f"it can't be read: {engine_message(error)}")
    except Exception as other:
        if not is_engine_error(other) and not isinstance(other, (ValueError, KeyError)):
            raise
        return TableLog(f"it can't be read: {engine_message(error)}")
    found = next((one for one in fields if one["name"].casefold() == column.casefold()), None)
    kind = found["type"] if found is not None and isinstance(found["type"], str) else ""
    known = TableLog(table_id=metadata["id"], version=max(texts), kind=kind, column=found["name"] if found else column)
    return _unknown(known, f"delta-rs does not read this table ({engine_message(error)})")


def _added(table: DeltaTable) -> pa.Table:
    return pa.table(table.get_add_actions(flatten=True))


def _files(added: pa.Table, column: str, kept: Mapping[str, pa.BooleanArray] | None = None) -> Files:
    """From the columns of `get_add_actions(flatten=True)`, of which those are missing that no file has. `column`: its name
    there."""
    n, there = added.num_rows, frozenset(added.column_names)
    if n == 0:
        return Files()
    paths = added["path"].cast(pa.string()).combine_chunks()
    records = added["num_records"].cast(pa.int64()) if "num_records" in there else pa.nulls(n, pa.int64())
    nulls = (
        added[f"null_count.{column}"].cast(pa.int64()) if f"null_count.{column}" in there else pa.nulls(n, pa.int64())
    )
    if kept:
        deleted = {name: pc.sum(pc.invert(left)).as_py() for name, left in kept.items()}
        gone = pa.array([deleted.get(file_name(path), 0) for path in paths.to_pylist()], pa.int64())
        records = pc.subtract(records, gone)
        # how many of the deleted rows have a value is not known where some have none
        nulls = pc.if_else(pc.and_(pc.greater(gone, 0), pc.greater(nulls, 0)), None, nulls)
    low, high = (f"partition.{column}",) * 2 if f"partition.{column}" in there else (f"min.{column}", f"max.{column}")
    if not {low, high} <= there:  # no file has statistics of it
        rows = pc.if_else(pc.equal(pc.coalesce(pc.subtract(records, nulls), records), 0), 0, -1)
        return Files(np.full(n, FIRST, np.int64), np.full(n, PAST, np.int64), numbers_of(rows, -1), paths, kept or {})
    first, last = micros_of(added[low]), micros_of(added[high])
    is_partition = low == high  # a file of one has the same value in all rows
    rows = pc.if_else(pc.is_valid(first), records, 0) if is_partition else pc.subtract(records, nulls)
    is_date = pa.types.is_date(added[high].type)
    ends = numbers_of(last, 0)
    past = np.where(
        numbers_of(pc.is_valid(last).cast(pa.int64()), 0) == 1, ends + step_after(ends, is_date=is_date), PAST
    )
    return Files(numbers_of(first, FIRST), past, numbers_of(rows, -1), paths, kept or {})
