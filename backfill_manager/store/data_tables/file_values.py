"""Reads the values of one column from chosen files of a Delta table, where the statistics in its log do not tell which interval a
row lies in: a batch writes the rows of many intervals into one file. Files never change, so what was counted of one is kept.

Only this column is read, without Spark; of more rows than `MAX_ROWS`, or of files that can't be read here, nothing is said.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from cachetools import LRUCache, cached
from deltalake.fs import DeltaStorageHandler
from pyarrow import fs

from backfill_manager.store.data_tables.places import DAY, Files, Numbers
from backfill_manager.store.data_tables.table_log import file_name, plain_location
from backfill_manager.store.delta_rs.tables import is_engine_error

MAX_ROWS: Final = 20_000_000  # about a second of reading from a local disk
MAX_FILES: Final = 2_000
_THREADS: Final = 8
_counts: LRUCache[Hashable, tuple[Numbers, Numbers]] = LRUCache(maxsize=10_000)
_lock: Final = Lock()


def counted_in_files(
    path: str, files: Files, column: str, kind: str, starts: Numbers, ends: Numbers
) -> Numbers | None:  # fmt: skip
    """How many rows of these files lie in each interval `starts <= value < ends` (in order, none overlapping another), in the
    units of `places.py`; `column` is its name in files, empty if it is in none. None: there is too much to read, or it
    can't be read."""
    if not column or files.paths is None or len(files.rows) > MAX_FILES:
        return None
    counted = np.zeros(len(starts), np.int64)
    axis = _digest(starts, ends)
    location = plain_location(path)
    system = fs.PyFileSystem(DeltaStorageHandler(location))

    def key(file: str, kept: pa.BooleanArray | None) -> Hashable:
        return location, file, column, axis, None if kept is None else _digest(kept)

    @cached(_counts, key, _lock)
    def count(file: str, kept: pa.BooleanArray | None) -> tuple[Numbers, Numbers]:
        places = _places(system, file, column, kind, kept)
        at = np.searchsorted(ends, places, "right")
        at = at[(at < len(starts)) & (starts[np.minimum(at, len(starts) - 1)] <= places)]
        return np.unique(at, return_counts=True)

    paths = files.paths.to_pylist()
    names, kept = [unquote(path) for path in paths], [files.kept.get(file_name(path)) for path in paths]
    try:
        with ThreadPoolExecutor(_THREADS) as threads:
            more = threads.map(lambda at: _rows(system, names[at]), np.flatnonzero(files.rows < 0))
            if files.rows[files.rows > 0].sum() + sum(more) > MAX_ROWS:
                return None
            for at, n in threads.map(count, names, kept):
                counted[at] += n
    except Exception as error:
        if not is_engine_error(error) and not isinstance(error, pa.ArrowException):
            raise
        return None
    return counted


def _digest(*values: Numbers | pa.BooleanArray) -> bytes:
    return hashlib.blake2b(b"".join(np.asarray(one).tobytes() for one in values), digest_size=16).digest()


def _rows(system: fs.FileSystem, file: str) -> int:
    from pyarrow import parquet

    with system.open_input_file(file) as source:
        return int(parquet.read_metadata(source).num_rows)


def _places(system: fs.FileSystem, file: str, column: str, kind: str, kept: pa.BooleanArray | None) -> Numbers:
    from pyarrow import parquet

    with system.open_input_file(file) as source:
        values = parquet.ParquetFile(source, coerce_int96_timestamp_unit="us").read([column])
    if column not in values.column_names:  # of before the table had it
        return np.zeros(0, np.int64)
    if kept is not None:
        after = pa.array(np.ones(max(values.num_rows - len(kept), 0), np.bool_))
        values = values.filter(pa.chunked_array([kept, after]))
    found = values[column].drop_null()
    if kind == "date":
        return np.asarray(found.cast(pa.date32()).cast(pa.int32()), np.int64) * DAY
    return np.asarray(found.cast(pa.timestamp("us", found.type.tz)).cast(pa.int64()), np.int64)
