"""Statistics of the files of a Delta table from its log, without opening any of them."""

from __future__ import annotations

import pyarrow as pa
from deltalake import DeltaTable

from backfill_manager.store.delta_rs.tables import UNUSABLE, is_engine_error


def file_statistics(location: str, time_column: str | None) -> pa.Table | None:
    """One row for each file of the table at a path or URI: `rows` (null where its writer did not say), `bytes`, and the
    `first` and `last` value of the time column, in the column's own type: timestamp[us, UTC], timestamp[us] or date32.
    Where they are not known they are null; they are of the type null where nothing is (no such column, or one of another
    type). None if no Delta table can be read there."""
    if UNUSABLE.search(location):
        return None
    try:
        files = pa.table(DeltaTable(location).get_add_actions(flatten=True))
    except Exception as error:
        if not is_engine_error(error):
            raise
        return None
    counted = "num_records" in files.column_names
    return pa.table({
        "rows": files["num_records"].cast(pa.int64()) if counted else pa.nulls(files.num_rows),
        "bytes": files["size_bytes"].cast(pa.int64()),
        "first": _times(files, time_column, "min"),
        "last": _times(files, time_column, "max"),
    })  # fmt: skip


def _times(files: pa.Table, time_column: str | None, end: str) -> pa.ChunkedArray | pa.Array:
    """Of a table that is partitioned by the column, it is a partition value and not a statistic."""
    names = {name.casefold(): name for name in files.column_names}
    for prefix in (end, "partition"):
        name = names.get(f"{prefix}.{time_column}".casefold()) if time_column else None
        if name is None:
            continue
        if pa.types.is_date32(files[name].type):
            return files[name]
        if pa.types.is_timestamp(files[name].type):
            return files[name].cast(pa.timestamp("us", tz="UTC" if files[name].type.tz else None))
    return pa.nulls(files.num_rows)
