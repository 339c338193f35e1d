"""What the log of a Delta table tells of its rows without opening a file: where the rows of each file lie along one column, and
which files every commit has added or removed. For tables of the data, not of the state.

Places are numbers along the column, whatever its type: epoch micros of a TIMESTAMP, micros of the reading of a TIMESTAMP_NTZ, of
a DATE those of its midnight. Statistics are bounds: the ends of a TIMESTAMP are cut to milliseconds by Spark, so a value may lie
up to a millisecond after the last one.

What delta-rs can't open, or has a reader feature that is not known here, is left to Spark: `why_unknown` says so. So are the
numbers of rows of a table that may have deletion vectors, of which delta-rs shows none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from backfill_manager.store.delta_rs.tables import UNUSABLE, is_engine_error

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from numpy.typing import NDArray
    from pyarrow import fs

    Numbers = NDArray[np.int64]
    Flags = NDArray[np.bool_]

FIRST: Final = -(2**62)  # before every value, as the next is after it: of a file of which nothing is known
PAST: Final = 2**62
TIME_TYPES: Final = ("timestamp", "timestamp_ntz", "date")
_LOG: Final = "_delta_log"
_NAME_IN_FILES: Final = "delta.columnMapping.physicalName"
_ENTRY: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint\.")
# With these, and those of the protocol's older versions, a file's rows are those that its statistics speak of.
_KNOWN_FEATURES: Final = frozenset(
    {"columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
)
_THREADS: Final = 8  # that read log entries
_MILLISECOND: Final = 1000
_DAY: Final = 86_400_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND: Final = timedelta(microseconds=1)
_NO_NUMBERS: Final = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Files:
    """Files of a table: `first <= value < past` holds for the column in all their rows where it is not null."""

    first: Numbers = field(default_factory=lambda: _NO_NUMBERS)
    past: Numbers = field(default_factory=lambda: _NO_NUMBERS)
    rows: Numbers = field(default_factory=lambda: _NO_NUMBERS)  # whose value is not null; -1: not known


@dataclass(frozen=True)
class Changes:
    """Files that commits have added or removed, with rows that came or went: one element for each, in the order of versions."""

    version: Numbers = field(default_factory=lambda: _NO_NUMBERS)
    first: Numbers = field(default_factory=lambda: _NO_NUMBERS)
    past: Numbers = field(default_factory=lambda: _NO_NUMBERS)
    is_ours: Flags = field(default_factory=lambda: np.zeros(0, np.bool_))
    is_placed: Flags = field(default_factory=lambda: np.zeros(0, np.bool_))  # False: where its rows lie is not known

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
    files: Files = field(default_factory=Files)
    why_unknown: str | None = None  # why `files` and `changes` say nothing, though the table is there; Spark can count
    changes: Changes = field(default_factory=Changes)
    changes_from: int = 0  # commits from this version on are known


def plain_location(path: str) -> str:
    """A path as delta-rs takes it: a local one without `file:`."""
    return "/" + path.removeprefix("file:").lstrip("/") if path.startswith("file:") else path


def read_table_log(path: str, column: str, since: int | None, state_id: str | None) -> TableLog:
    """The table at a path or URI. `since`: the version after which commits are read (None: none of them). A commit is ours when
    its user metadata names the state with this id."""
    from deltalake import DeltaTable

    location = plain_location(path)
    if UNUSABLE.search(location):
        return TableLog("its path has characters that delta-rs does not take")
    try:
        if not DeltaTable.is_deltatable(location):
            return _not_there(location)
        table = DeltaTable(location)
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
    try:
        files = _files(_added(table), name)
        if "deletionVectors" in (table.protocol().reader_features or ()):
            files = Files(files.first, files.past, np.where(files.rows == 0, 0, -1))
        if since is None or since >= known.version:
            return _replaced(known, files=files, changes_from=known.version + 1)
        entries, changes_from = _LogEntries(location).since(since, known.version)
        changes = _Commits(name, known.kind, state_id, location).changes(entries, max(since, changes_from - 1))
    except Exception as error:
        if not is_engine_error(error) and not isinstance(error, ValueError):
            raise
        return _unknown(known, f"its log can't be read: {_first_line(error)}")
    return _replaced(known, files=files, changes=changes, changes_from=changes_from)


def _replaced(known: TableLog, **more: Any) -> TableLog:
    return TableLog(**{**vars(known), **more})


def _unknown(known: TableLog, why: str) -> TableLog:
    return _replaced(known, why_unknown=why, changes_from=known.version + 1)


def _not_there(location: str) -> TableLog:
    from deltalake.fs import DeltaStorageHandler
    from pyarrow import fs

    try:
        system = fs.PyFileSystem(DeltaStorageHandler(location))
        files = system.get_file_info(fs.FileSelector("", allow_not_found=True))
    except Exception as error:
        if not is_engine_error(error):
            raise
        files = []
    if any(not info.base_name.startswith((".", "_")) for info in files):
        return TableLog("it is no Delta table: its folder has files, and no log")
    return TableLog("it is gone: nothing lies at its path", is_gone=True)


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
        return TableLog(f"it can't be read: {_first_line(error)}")
    except Exception as other:
        if not is_engine_error(other) and not isinstance(other, (ValueError, KeyError)):
            raise
        return TableLog(f"it can't be read: {_first_line(error)}")
    found = next((one for one in fields if one["name"].casefold() == column.casefold()), None)
    kind = found["type"] if found is not None and isinstance(found["type"], str) else ""
    known = TableLog(table_id=metadata["id"], version=max(texts), kind=kind, column=found["name"] if found else column)
    return _unknown(known, f"delta-rs does not read this table ({_first_line(error)})")


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")[:200]


def _added(table: DeltaTable) -> pa.Table:
    import pyarrow as pa

    return pa.table(table.get_add_actions(flatten=True))


def _files(added: pa.Table, column: str) -> Files:
    """From the columns of `get_add_actions(flatten=True)`, of which those are missing that no file has. `column`: its name
    there."""
    import pyarrow as pa
    import pyarrow.compute as pc

    n, there = added.num_rows, frozenset(added.column_names)
    if n == 0:
        return Files()
    records = added["num_records"].cast(pa.int64()) if "num_records" in there else pa.nulls(n, pa.int64())
    nulls = (
        added[f"null_count.{column}"].cast(pa.int64()) if f"null_count.{column}" in there else pa.nulls(n, pa.int64())
    )
    low, high = (f"partition.{column}",) * 2 if f"partition.{column}" in there else (f"min.{column}", f"max.{column}")
    if not {low, high} <= there:  # no file has statistics of it
        rows = pc.if_else(pc.equal(pc.coalesce(pc.subtract(records, nulls), records), 0), 0, -1)
        return Files(np.full(n, FIRST, np.int64), np.full(n, PAST, np.int64), _numbers(rows, -1))
    first, last = _micros(added[low]), _micros(added[high])
    is_partition = low == high  # a file of one has the same value in all rows
    rows = pc.if_else(pc.is_valid(first), records, 0) if is_partition else pc.subtract(records, nulls)
    is_date = pa.types.is_date(added[high].type)
    ends = _numbers(last, 0)
    past = np.where(_numbers(pc.is_valid(last).cast(pa.int64()), 0) == 1, ends + _step(ends, is_date=is_date), PAST)
    return Files(_numbers(first, FIRST), past, _numbers(rows, -1))


def _numbers(values: pa.ChunkedArray | pa.Array, null: int) -> Numbers:
    import pyarrow as pa
    import pyarrow.compute as pc

    found: Numbers = np.asarray(pc.fill_null(values, null).cast(pa.int64()), np.int64)
    return found


def _micros(values: pa.ChunkedArray) -> pa.ChunkedArray:
    import pyarrow as pa

    if pa.types.is_date(values.type):
        values = values.cast(
            pa.timestamp("s")
        )  # there is no cast from days to microseconds of the same kind in all releases
    return values.cast(pa.timestamp("us", tz=getattr(values.type, "tz", None))).cast(pa.int64())


def _step(last: Numbers, *, is_date: bool) -> Numbers:
    """From the last value that is known to where there is none any more: Spark cuts to whole milliseconds, delta-rs does not."""
    found: Numbers = np.where(is_date, _DAY, np.where(last % _MILLISECOND == 0, _MILLISECOND, 1))
    return found


class _LogEntries:
    """The JSON files of a log."""

    def __init__(self, location: str) -> None:
        from deltalake.fs import DeltaStorageHandler
        from pyarrow import fs

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
    """Turns log entries into `Changes`."""

    def __init__(self, column: str, kind: str, state_id: str | None, location: str) -> None:
        self._column, self._kind, self._state_id, self._location = column, kind, state_id, location
        self._places: dict[str, tuple[int, int] | None] = {}  # of files, by path

    def changes(self, entries: Iterable[tuple[int, bytes]], base: int) -> Changes:
        """`base`: the version before the first entry, whose files are looked up where an entry removes one without saying what
        it held."""
        found: list[tuple[int, tuple[int, int] | str | None, bool]] = []  # a text: the path of a file to be looked up
        for version, text in entries:
            actions = list(_actions(text))
            is_ours = any(self._is_ours(one["commitInfo"]) for one in actions if "commitInfo" in one)
            for one in actions:
                for name in ("add", "remove"):
                    if (file := one.get(name)) is None:
                        continue
                    place = self._place(file)
                    if name == "add":
                        self._places[file["path"]] = place
                    if file.get("dataChange", True):
                        wanted = name == "remove" and place is None
                        found.append((version, file["path"] if wanted else place, is_ours))
        return self._as_changes(found, base)

    def _as_changes(self, found: list[tuple[int, tuple[int, int] | str | None, bool]], base: int) -> Changes:
        if any(isinstance(place, str) and self._places.get(place) is None for _, place, _ in found):
            self._look_up(base)
        placed = [
            (version, self._places.get(place) if isinstance(place, str) else place, ours)
            for version, place, ours in found
        ]
        ends = [place or (FIRST, PAST) for _, place, _ in placed]
        return Changes(
            np.array([version for version, _, _ in placed], np.int64),
            np.array([first for first, _ in ends], np.int64), np.array([past for _, past in ends], np.int64),
            np.array([ours for _, _, ours in placed], np.bool_),
            np.array([place is not None for _, place, _ in placed], np.bool_),
        )  # fmt: skip

    def _look_up(self, base: int) -> None:
        """The files of the table as it was before the entries, or, where its log does not reach so far back, as of the first
        version that can still be read."""
        from deltalake import DeltaTable

        for version in (base, *(one for one in _LogEntries(self._location).checkpoints() if one > base)):
            try:
                added = _added(DeltaTable(self._location, version=version))
            except Exception as error:
                if not is_engine_error(error):
                    raise
                continue
            files = _files(added, self._column)
            for path, first, past in zip(
                added["path"].to_pylist(), files.first.tolist(), files.past.tolist(), strict=True
            ):
                if self._places.get(path) is None and (first, past) != (FIRST, PAST):
                    self._places[path] = (first, past)
            return

    def _is_ours(self, info: Mapping[str, Any]) -> bool:
        if self._state_id is None or self._state_id not in (text := str(info.get("userMetadata") or "")):
            return False
        try:
            about = json.loads(text)
        except ValueError:
            return False
        writes = about.get("writes", [about]) if isinstance(about, dict) else []
        return all(isinstance(one, dict) and one.get("state") == self._state_id for one in writes) and bool(writes)

    def _place(self, file: Mapping[str, Any]) -> tuple[int, int] | None:
        """Where the rows of a file (the fields of `add` or `remove`) lie; None: not known."""
        try:
            if self._column in (values := file.get("partitionValues") or {}):
                text = values[self._column]
                return self._between(text, text) if text else (PAST, PAST)
            statistics = json.loads(file.get("stats") or "{}")
            if not statistics:
                return None
            low, high = (statistics.get(end, {}).get(self._column) for end in ("minValues", "maxValues"))
            rows, nulls = statistics.get("numRecords"), statistics.get("nullCount", {}).get(self._column)
            if rows == 0 or (rows is not None and rows == nulls):
                return PAST, PAST  # no row lies anywhere
            return None if low is None or high is None else self._between(low, high)
        except (ValueError, OverflowError):  # a time that Python does not have
            return None

    def _between(self, low: str, high: str) -> tuple[int, int]:
        first, last = self._micros(low), self._micros(high)
        return first, last + (_DAY if self._kind == "date" else _MILLISECOND if last % _MILLISECOND == 0 else 1)

    def _micros(self, text: str) -> int:
        if self._kind == "date":
            return date.fromisoformat(text).toordinal() * _DAY - _EPOCH.toordinal() * _DAY
        at = datetime.fromisoformat(text.replace("Z", "+00:00"))
        return ((at if at.tzinfo else at.replace(tzinfo=timezone.utc)) - _EPOCH) // _MICROSECOND
