"""Finds damaged files of a state's tables: log entries, checkpoints, `_last_checkpoint`, data files, whole tables.

Reads the log itself, because delta-rs can't open a table whose log is damaged, and takes an empty log entry for a commit of
nothing.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.fs import DeltaStorageHandler
from pyarrow import fs

from backfill_manager.errors import StateError
from backfill_manager.humanise import plural
from backfill_manager.store.delta_rs.tables import DeltaRsTables

Kind = Literal["table", "log", "last entry", "checkpoint", "last checkpoint", "data", "repair"]
LOG: Final = "_delta_log"
LAST_CHECKPOINT: Final = f"{LOG}/_last_checkpoint"
# Tables whose rows can be made again from other tables, from the bundles, or from the configuration.
DERIVABLE: Final = ("task_try", "response", "dag", "import_error", "bundle", "pool")
BACK_UP: Final = "restore it from a back-up (docs/how-to/back-it-up.md)"
UNFINISHED: Final = (
    "unfinished-repair.json"  # in the folder of `manager`: what a repair has yet to do when the files are whole
)
HINT_REMEDY: Final = "the repair removes it; it only names the newest checkpoint, and the next one writes it anew"
_ENTRY: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint\.parquet")


@dataclass(frozen=True)
class Damage:
    """One damaged file of a table."""

    table: str
    kind: Kind
    file: str  # below the table's folder; empty: the table itself
    problem: str
    remedy: str  # what `--repair` does, or what a person has to do
    can_be_repaired: bool
    rows: int = 0  # of a data file
    run_seqs: tuple[int, int] | None = None

    def __str__(self) -> str:
        return f"{self.file or 'the table'} {self.problem}: {self.remedy}"


class TableFiles:
    """The files of one table, on a disk or in an object store."""

    def __init__(self, tables: DeltaRsTables, table: str) -> None:
        self.table = table
        handler = DeltaStorageHandler(tables.location(table))
        self.system, self._raw = fs.PyFileSystem(handler), handler._handler

    def sizes(self, folder: str = "") -> dict[str, int]:
        """Name -> bytes of the files in a folder."""
        listed = self.system.get_file_info(fs.FileSelector(folder, allow_not_found=True))
        return {info.base_name: info.size for info in listed if info.type == fs.FileType.File}

    def text(self, file: str) -> str:
        with self.system.open_input_stream(file) as stream:
            return bytes(stream.read()).decode(errors="replace")

    def write(self, file: str, text: str) -> None:
        stream = self._raw.open_output_stream(file, None)  # through pyarrow it would get buffers, which it refuses
        stream.write(text.encode())
        stream.close()  # type: ignore[attr-defined]  # missing in its stubs

    def set_aside(self, file: str) -> None:
        """Under a name that no reader looks for."""
        self.system.move(file, f"{file}.damaged")

    def delete(self, file: str) -> None:
        self.system.delete_file(file)


def damages_of(tables: DeltaRsTables, table: str) -> list[Damage]:
    if not DeltaTable.is_deltatable(tables.location(table)):
        return [] if tables.is_from_before(table) else [_gone(table)]
    files = TableFiles(tables, table)
    found = _damages_of_log(files)
    return found or _damages_of_data(files, tables)


def _damages_of_log(files: TableFiles) -> list[Damage]:
    names = files.sizes(LOG)
    entries = {int(match[1]) for name in names if (match := _ENTRY.fullmatch(name))}
    checkpoints = {int(match[1]): f"{LOG}/{name}" for name in names if (match := _CHECKPOINT.fullmatch(name))}
    unreadable = {version: why for version, file in checkpoints.items() if (why := _why_unreadable(files, file))}
    begin = max((version + 1 for version in checkpoints if version not in unreadable), default=0)
    found = list(_damages_of_entries(files, begin, max([*entries, *checkpoints, begin - 1]), entries))
    is_whole = all(damage.can_be_repaired for damage in found)
    for version, why in sorted(unreadable.items()):
        remedy = (
            "the log is whole without it, the repair writes it anew"
            if is_whole
            else f"the log entries before it are gone; {BACK_UP}"
        )
        found.append(Damage(files.table, "checkpoint", checkpoints[version], why, remedy, is_whole))
    if "_last_checkpoint" in names and not unreadable and (why := _why_a_lie(files, checkpoints)):
        found.append(Damage(files.table, "last checkpoint", LAST_CHECKPOINT, why, HINT_REMEDY, True))
    return found


def _gone(table: str) -> Damage:
    if table in DERIVABLE:
        remedy = "the repair makes it anew, from what other tables, bundles and configuration tell"
    else:
        remedy = f"{BACK_UP}, or `bfm state init` makes it anew, empty: its rows are lost then"
    return Damage(table, "table", "", "is gone", remedy, table in DERIVABLE)


def _damages_of_entries(files: TableFiles, begin: int, last: int, there: set[int]) -> list[Damage]:
    """Of the log entries that no checkpoint holds."""
    found = []
    for version in range(begin, last + 1):
        file = f"{LOG}/{version:020}.json"
        try:  # also one that was not listed: clients may have added it and the next one meanwhile
            why = _why_no_entry(files.text(file))
        except FileNotFoundError:
            why = "is missing"
        if why and version == last and version in there and version > begin:
            remedy = f"the repair sets it aside, which undoes this one commit (version {version})"
            found.append(Damage(files.table, "last entry", file, why, remedy, True))
        elif why:
            found.append(Damage(files.table, "log", file, why, f"later commits build on it; {BACK_UP}", False))
    return found


def _why_no_entry(text: str) -> str | None:
    lines = [line for line in text.splitlines() if line.strip()]
    for number, line in enumerate(lines, 1):
        try:
            if isinstance(json.loads(line), dict):
                continue
        except ValueError:
            pass
        return f"is truncated or damaged at line {number}"
    return None if lines else "is empty"


def _why_unreadable(files: TableFiles, file: str, rows: int | None = None) -> str | None:
    """Why a Parquet file can't be read to its end, or has another number of rows; None if all is well."""
    try:
        with files.system.open_input_file(file) as source, pq.ParquetFile(source) as parquet:
            read = sum(batch.num_rows for batch in parquet.iter_batches())
    except (pa.ArrowException, OSError) as error:
        return f"can't be read ({str(error).splitlines()[0].rstrip('.')[:120]})"
    return None if rows in (None, read) else f"has {plural(read, 'row')} in place of {rows}"


def _why_a_lie(files: TableFiles, checkpoints: dict[int, str]) -> str | None:
    try:
        version = json.loads(files.text(LAST_CHECKPOINT))["version"]
    except (ValueError, KeyError, TypeError):
        return "is truncated or damaged"
    return None if version in checkpoints else f"names a checkpoint of version {version}, which is not there"


def _damages_of_data(files: TableFiles, tables: DeltaRsTables) -> list[Damage]:
    try:
        added = tables.open(files.table, may_be_older=True).get_add_actions(flatten=True)
    except StateError:  # of another engine or a newer version
        return []
    columns: dict[str, Any] = {name: added[name].to_pylist() for name in added.schema.names}
    there, found = files.sizes(), []
    for at, path in enumerate(columns["path"]):
        rows, size = columns["num_records"][at] or 0, columns["size_bytes"][at]
        if path not in there:
            why: str | None = "is gone"
        elif there[path] != size:
            why = f"has {there[path]} bytes in place of {size}"
        else:
            why = _why_unreadable(files, path, rows)
        if why:
            first, last = (columns.get(f"{end}.run_seq", [None] * (at + 1))[at] for end in ("min", "max"))
            span = None if first is None or last is None else (int(first), int(last))
            held = f"it held {plural(rows, 'row')}" + (f", run_seq {span[0]} to {span[1]}" if span else "")
            remedy = f"{held}; the repair takes it out of the table and makes again what other tables tell"
            found.append(Damage(files.table, "data", path, why, remedy, True, rows, span))
    return found
