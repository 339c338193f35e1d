"""What the log of a Delta table tells of its rows without opening a file: where the rows of each file lie along one column, and
which files every commit has added or removed. For tables of the data, not of the state.

Places are numbers along the column, whatever its type: epoch micros of a TIMESTAMP, micros of the reading of a TIMESTAMP_NTZ, of
a DATE those of its midnight. Statistics are bounds: the ends of a TIMESTAMP are cut to milliseconds by Spark, so a value may lie
up to a millisecond after the last one.

What delta-rs can't open, or has a reader feature that is not known here, is left to Spark: `why_unknown` says so. So are the
numbers of rows of a table with more deletion vectors than can be read at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from numpy.typing import NDArray
from pyarrow import fs
from pyarrow import json as arrow_json

from backfill_manager.store.delta_base import engine_message
from backfill_manager.store.delta_rs.tables import UNUSABLE, is_engine_error

Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]

FIRST: Final = -(2**62)  # before every value, as the next is after it: of a file of which nothing is known
PAST: Final = 2**62
TIME_TYPES: Final = ("timestamp", "timestamp_ntz", "date")
REVERTS: Final = "reverts"  # in the user metadata of a commit that reverts runs: [[dag_id, run_id], ...]
UNDOES_FROM: Final = "undoes_from"  # beside it: the first version that it undoes
_LOG: Final = "_delta_log"
_NAME_IN_FILES: Final = "delta.columnMapping.physicalName"
_ENTRY: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint\.")
# With these, and those of the protocol's older versions, a file's rows are those that its statistics speak of.
_KNOWN_FEATURES: Final = frozenset(
    {"columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
)
MAX_DELETION_ROWS: Final = 20_000_000  # of files with deletion vectors
_THREADS: Final = 8  # that read log entries
_MILLISECOND: Final = 1000
DAY: Final = 86_400_000_000
_NO_NUMBERS: Final = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Files:
    """Files of a table: `first <= value < past` holds for the column in all their rows where it is not null."""

    first: Numbers = field(default_factory=lambda: _NO_NUMBERS)
    past: Numbers = field(default_factory=lambda: _NO_NUMBERS)
    rows: Numbers = field(default_factory=lambda: _NO_NUMBERS)  # whose value is not null; -1: not known
    paths: pa.Array | None = None  # None: their rows are not to be read, as some may have been deleted since
    # by name, of files with deleted rows: which are left
    kept: Mapping[str, pa.BooleanArray] = field(default_factory=dict)

    def where(self, chosen: Flags) -> Files:
        paths = None if self.paths is None else self.paths.filter(chosen)
        return Files(self.first[chosen], self.past[chosen], self.rows[chosen], paths, self.kept)


@dataclass(frozen=True)
class Changes:
    """Files that commits have added or removed, with rows that came or went: one element for each, in the order of versions."""

    version: Numbers = field(default_factory=lambda: _NO_NUMBERS)
    first: Numbers = field(default_factory=lambda: _NO_NUMBERS)
    past: Numbers = field(default_factory=lambda: _NO_NUMBERS)
    is_ours: Flags = field(default_factory=lambda: np.zeros(0, np.bool_))
    is_placed: Flags = field(default_factory=lambda: np.zeros(0, np.bool_))  # False: where its rows lie is not known
    # Of a revert the first version that it has undone: who has read one before it has what is there again. Else 0.
    undoes_from: Numbers = field(default_factory=lambda: _NO_NUMBERS)

    def where(self, chosen: Flags) -> Changes:
        return Changes(*(values[chosen] for values in vars(self).values()))


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
        log = _LogEntries(location)
        entries, changes_from = log.since(since, known.version)
        commits = _Commits(known.column, name, known.kind, state_id, is_partition=is_partition)
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


def _files_before(log: _LogEntries, location: str, column: str, base: int) -> tuple[pa.Array, Files]:
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
        texts = dict(_LogEntries(location).since(-1, 2**62)[0])
        metadata = next(
            action["metaData"]
            for _, text in sorted(texts.items(), reverse=True)
            for action in _actions(text)
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
        return Files(np.full(n, FIRST, np.int64), np.full(n, PAST, np.int64), _numbers(rows, -1), paths, kept or {})
    first, last = _micros(added[low]), _micros(added[high])
    is_partition = low == high  # a file of one has the same value in all rows
    rows = pc.if_else(pc.is_valid(first), records, 0) if is_partition else pc.subtract(records, nulls)
    is_date = pa.types.is_date(added[high].type)
    ends = _numbers(last, 0)
    past = np.where(_numbers(pc.is_valid(last).cast(pa.int64()), 0) == 1, ends + _step(ends, is_date=is_date), PAST)
    return Files(_numbers(first, FIRST), past, _numbers(rows, -1), paths, kept or {})


def _numbers(values: pa.ChunkedArray | pa.Array, null: int) -> Numbers:
    found: Numbers = np.asarray(pc.fill_null(values, null).cast(pa.int64()), np.int64)
    return found


def _micros(values: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_date(values.type):
        # There is no cast from days to microseconds of the same kind in all releases.
        values = values.cast(pa.timestamp("s"))
    return values.cast(pa.timestamp("us", tz=getattr(values.type, "tz", None))).cast(pa.int64())


def _step(last: Numbers, *, is_date: bool) -> Numbers:
    """From the last value that is known to where there is none any more: Spark cuts to whole milliseconds, delta-rs does not."""
    found: Numbers = np.where(is_date, DAY, np.where(last % _MILLISECOND == 0, _MILLISECOND, 1))
    return found


class _LogEntries:
    """The JSON files of a log."""

    def __init__(self, location: str) -> None:
        self._system = fs.PyFileSystem(DeltaStorageHandler(location))
        self._names = [info.base_name for info in self._system.get_file_info(fs.FileSelector(_LOG))]

    def since(self, version: int, last: int) -> tuple[Iterable[tuple[int, bytes]], int]:
        """The entries after `version`, up to `last`, without a gap at the end, and the first of them: the log has been cleaned
        up before it."""
        found = {int(match[1]) for name in self._names if (match := _ENTRY.fullmatch(name))}
        first = last = min(last, max(found, default=-1))
        while first - 1 in found and first - 1 > version:
            first -= 1
        if last not in found:
            return [], last + 1
        with ThreadPoolExecutor(_THREADS) as threads:
            wanted = range(first, last + 1)
            texts = threads.map(lambda number: _entry(self._system, number), wanted)
            return list(zip(wanted, texts, strict=True)), first

    def checkpoints(self) -> list[int]:
        """Versions that can be read whatever became of the entries before them; in order."""
        return sorted({int(match[1]) for name in self._names if (match := _CHECKPOINT.match(name))})


def _entry(system: fs.FileSystem, version: int) -> bytes:
    with system.open_input_stream(f"{_LOG}/{version:020d}.json") as stream:
        return bytes(stream.read())


def _actions(text: bytes) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        if line.strip():
            yield json.loads(line)


class _Commits:
    """Turns log entries into `Changes`, all of them at once."""

    def __init__(self, name: str, column: str, kind: str, state_id: str | None, *, is_partition: bool) -> None:
        """`name`: of the column; `column`: its name in files; `is_partition`: it divides the table, so a file has its value in
        its place."""
        self._name, self._column, self._kind = name, column, kind
        self._state_id, self._is_partition = state_id, is_partition

    def changes(
        self, entries: Iterable[tuple[int, bytes]], files_before: Callable[[], tuple[pa.Array, Files]]
    ) -> Changes:
        """`files_before`: paths and places of the files before the first entry, where an entry removes one without saying what it
        held."""
        lines, versions = _lines(entries)
        if not lines:
            return Changes()
        parsed = _parsed(lines, self._schema())
        metadata = self._metadata(parsed["commitInfo"], versions)
        ours = np.array([one for one, about in metadata.items() if self._is_ours(about)], np.int64)
        # each of what was added, then of what was removed
        number: list[Numbers] = []
        first: list[Numbers] = []
        past: list[Numbers] = []
        is_placed: list[Flags] = []
        paths: list[Any] = []
        for name in ("add", "remove"):
            at = np.flatnonzero(np.asarray(pc.is_valid(parsed[name])))
            files = parsed[name].combine_chunks().take(pa.array(at))
            is_change = np.asarray(pc.fill_null(pc.struct_field(files, "dataChange"), True))
            firsts, pasts, placed = self._places(files)
            first.append(firsts)
            past.append(pasts)
            is_placed.append(placed)
            paths.append(pc.struct_field(files, "path"))
            number.append(np.where(is_change, at, -1))
        if not is_placed[1].all():
            self._look_up(paths, first, past, is_placed, files_before)
        order = np.concatenate(number)
        chosen = np.argsort(order, kind="stable")[np.count_nonzero(order < 0) :]
        version = versions[order[chosen]]
        firsts, pasts, placed = np.concatenate(first), np.concatenate(past), np.concatenate(is_placed)
        undone, undoes_from = _undone({one: metadata[one] for one in ours.tolist()})
        froms = np.array([undoes_from.get(one, 0) for one in version.tolist()], np.int64)
        places = self._clipped(metadata, version, firsts[chosen], pasts[chosen], placed[chosen])
        found = Changes(version, *places[:2], np.isin(version, ours), places[2], froms)
        return found.where(~np.isin(version, undone))

    def _clipped(
        self,
        metadata: Mapping[int, Mapping[str, Any]],
        version: Numbers,
        first: Numbers,
        past: Numbers,
        is_placed: Flags,
    ) -> tuple[Numbers, Numbers, Flags]:
        """A commit of ours that says that it has replaced intervals has changed rows nowhere else, though its files, written
        anew because of some of their rows, reach further."""
        spans = {one: span for one in sorted(metadata) if (span := self._span(metadata[one])) is not None}
        if not spans:
            return first, past, is_placed
        versions = np.array([*spans], np.int64)
        (low, has_low), (high, has_high) = (
            _instants(pa.array(ends, pa.string()), self._kind) for ends in zip(*spans.values(), strict=True)
        )
        at = np.minimum(np.searchsorted(versions, version), len(versions) - 1)
        is_one = (versions[at] == version) & (has_low & has_high)[at]
        first, past = (
            np.where(is_one, np.maximum(first, low[at]), first),
            np.where(is_one, np.minimum(past, high[at]), past),
        )
        return first, past, is_placed | is_one

    def _span(self, about: Mapping[str, Any]) -> tuple[str, str] | None:
        """From the first to the last end of the intervals along the column that a commit has replaced."""
        writes = [one for one in about.get("writes", [about]) if isinstance(one, dict)]
        parts = [one.get("replaced") or {} for one in writes]
        of_column = [one for one in parts if (one.get("column"), one.get("kind")) == (self._name, self._kind)]
        ends = [(one["lower"], one["upper"]) for one in of_column if one.get("lower") and one.get("upper")]
        if not ends or len(ends) < len(parts):
            return None
        return min(lower for lower, _ in ends), max(upper for _, upper in ends)

    @staticmethod
    def _look_up(
        paths: Sequence[pa.Array], first: list[Numbers], past: list[Numbers], is_placed: list[Flags],
        files_before: Callable[[], tuple[pa.Array, Files]],
    ) -> None:  # fmt: skip
        """Gives what was removed the places at which it was added: by these entries, or before them."""

        def place(known: pa.Array, firsts: Numbers, pasts: Numbers, are_placed: Flags) -> None:
            found = np.asarray(pc.fill_null(pc.index_in(paths[1], known), -1))
            gains = ~is_placed[1] & (found >= 0)
            gains[gains] &= are_placed[found[gains]]
            first[1], past[1] = first[1].copy(), past[1].copy()
            first[1][gains], past[1][gains] = firsts[found[gains]], pasts[found[gains]]
            is_placed[1] = is_placed[1] | gains

        place(paths[0], first[0], past[0], is_placed[0])
        if not is_placed[1].all():
            known, files = files_before()
            place(known, files.first, files.past, (files.first != FIRST) | (files.past != PAST))

    def _schema(self) -> pa.Schema:
        value = pa.struct([(self._column, pa.string())])
        file = pa.struct(
            [("path", pa.string()), ("dataChange", pa.bool_()), ("stats", pa.string()), ("partitionValues", value)]
        )
        return pa.schema([("commitInfo", pa.struct([("userMetadata", pa.string())])), ("add", file), ("remove", file)])

    def _metadata(self, infos: pa.ChunkedArray, versions: Numbers) -> dict[int, dict[str, Any]]:
        """What this state may have said of its commits, by version, in order."""
        found = dict[int, dict[str, Any]]()
        for version, info in zip(versions.tolist(), infos.to_pylist(), strict=True):
            text = str((info or {}).get("userMetadata") or "")
            if self._state_id is None or self._state_id not in text:
                continue
            try:
                about = json.loads(text)
            except ValueError:
                continue
            if isinstance(about, dict):
                found[version] = about
        return dict(sorted(found.items()))

    def _is_ours(self, about: Mapping[str, Any]) -> bool:
        writes = about.get("writes", [about])
        return bool(writes) and all(isinstance(one, dict) and one.get("state") == self._state_id for one in writes)

    def _places(self, files: pa.StructArray) -> tuple[Numbers, Numbers, Flags]:
        """Where the rows of files (the fields of `add` or `remove`) lie, and whether that is known. Rows without a
        value lie nowhere."""
        if self._is_partition:
            text = pc.struct_field(files, ["partitionValues", self._column])
            first, is_known = _instants(text, self._kind)
            last = first
            is_empty = np.asarray(pc.is_valid(pc.struct_field(files, "partitionValues"))) & ~np.asarray(
                pc.fill_null(pc.greater(pc.utf8_length(text), 0), False)
            )
        else:
            value, count = (pa.struct([(self._column, kind)]) for kind in (pa.string(), pa.int64()))
            schema = pa.schema(
                [("numRecords", pa.int64()), ("minValues", value), ("maxValues", value), ("nullCount", count)]
            )
            texts = pc.struct_field(files, "stats").to_pylist()
            stats = _parsed([(text or "{}").replace("\n", " ").encode() for text in texts], schema)
            first, has_first = _instants(pc.struct_field(stats["minValues"], self._column), self._kind)
            last, has_last = _instants(pc.struct_field(stats["maxValues"], self._column), self._kind)
            is_known = has_first & has_last
            rows, nulls = stats["numRecords"], pc.struct_field(stats["nullCount"], self._column)
            none = pc.or_kleene(pc.equal(rows, 0), pc.equal(rows, nulls))
            is_empty = np.asarray(pc.fill_null(none, False))
        past = last + _step(last, is_date=self._kind == "date")
        ends = (np.where(is_known, one, nothing) for one, nothing in ((first, FIRST), (past, PAST)))
        first, past = (np.where(is_empty, PAST, one) for one in ends)
        return first, past, is_known | is_empty


def _undone(commits: Mapping[int, Mapping[str, Any]]) -> tuple[list[int], dict[int, int]]:
    """Of our commits those of which nothing is left, as reverts have put back all that they had written, and by version of such a
    revert the first that it has undone. A revert of a part of a commit is a change like any other."""
    undone, undoes_from = list[int](), dict[int, int]()
    written = dict[int, set[tuple[str, str]]]()
    for version, about in commits.items():
        if REVERTS not in about:
            written[version] = {(one.get("dag", ""), one.get("run", "")) for one in about.get("writes", [about])}
            continue
        runs = {(dag, run) for dag, run in about[REVERTS]}
        touched = [one for one, by in written.items() if by & runs]
        if UNDOES_FROM in about and all(written[one] <= runs for one in touched):
            undone += touched
            undoes_from[version] = about[UNDOES_FROM]
        for one in touched:
            written[one] -= runs
    return undone, undoes_from


def _lines(entries: Iterable[tuple[int, bytes]]) -> tuple[list[bytes], Numbers]:
    """The actions that matter here, each with the version of its entry."""
    lines, versions = list[bytes](), list[int]()
    for version, text in entries:
        wanted = [
            line for line in text.splitlines() if any(name in line for name in (b'"add"', b'"remove"', b'"commitInfo"'))
        ]
        lines += wanted
        versions += [version] * len(wanted)
    return lines, np.array(versions, np.int64)


def _parsed(lines: Sequence[bytes], schema: pa.Schema) -> pa.Table:
    """One row for each line, a document of JSON, with the fields of the schema alone. `ValueError` for what is none."""
    if not lines:
        return schema.empty_table()
    size = max(map(len, lines)) + 1
    return arrow_json.read_json(
        pa.BufferReader(b"\n".join(lines)), arrow_json.ReadOptions(block_size=max(1 << 22, 2 * size)),
        arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )  # fmt: skip


def _instants(texts: pa.ChunkedArray | pa.Array, kind: str) -> tuple[Numbers, Flags]:
    """Places of values as a log writes them, and which are known: not those that are missing, or that Arrow has no time for."""
    if kind == "date":
        days = pc.if_else(pc.match_substring_regex(texts, r"^\d{4}-\d\d-\d\d$"), texts, None).cast(pa.date32())
        return _numbers(days.cast(pa.int32()), 0) * DAY, np.asarray(pc.is_valid(days))
    is_time = pc.match_substring_regex(texts, r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:?\d\d)?$")
    has_zone = pc.match_substring_regex(texts, r"(Z|:\d\d(\.\d+)?[+-]\d\d:?\d\d)$")
    zoned = pc.if_else(pc.and_(is_time, has_zone), texts, None).cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    naive = pc.if_else(pc.and_not(is_time, has_zone), texts, None).cast(pa.timestamp("us")).cast(pa.int64())
    instants = pc.coalesce(zoned, naive)
    return _numbers(instants, 0), np.asarray(pc.is_valid(instants))
