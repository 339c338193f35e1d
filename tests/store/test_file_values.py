"""Rows of intervals that share files: their values read without Spark, against rows in a list."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from backfill_manager.planning.data.data_gaps import Axis, lie_across
from backfill_manager.store.data_tables import file_values
from backfill_manager.store.data_tables.file_values import counted_in_files
from backfill_manager.store.data_tables.table_log import read_table_log

HOUR = 3_600_000_000
START = datetime(2024, 5, 1, tzinfo=timezone.utc)
DAYS = Axis(*(int(START.timestamp()) * 1_000_000 + 24 * HOUR * np.array(side) for side in ([0, 1, 1, 4], [1, 1, 3, 5])))
HOURS = [1, 5, 30, 47, 71, 72, 96, 100, 119, 120, 500]  # and one row without a time
EXPECTED = [2, 0, 3, 3]


def write(path: Path, kind: str, **more: Any) -> None:
    times: list[Any] = [START + timedelta(hours=hour) for hour in HOURS]
    typed = {
        "timestamp": lambda: pa.array([*times, None], pa.timestamp("us", tz="UTC")),
        "timestamp_ntz": lambda: pa.array([*(at.replace(tzinfo=None) for at in times), None], pa.timestamp("us")),
        "date": lambda: pa.array([*(at.date() for at in times), None]),
    }[kind]()
    of = pa.array(["a b/ü%20"] * len(typed))
    write_deltalake(path, pa.table({"at": typed, "of": of}), mode="append", **more)


def counted(path: Path) -> list[int] | None:
    log = read_table_log(f"file:{path}", "AT", None, None)
    across = log.files.where(lie_across(DAYS, log.files))
    found = counted_in_files(f"file:{path}", across, log.name_in_files, log.kind, DAYS.starts, DAYS.ends)
    return None if found is None else found.tolist()


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz", "date"])
@pytest.mark.parametrize("partition_by", [None, ["of"]])
def test_rows_of_files_that_several_intervals_share(tmp_path: Path, kind: str, partition_by: list[str] | None) -> None:
    for _ in range(2):
        write(tmp_path / "t", kind, partition_by=partition_by)
    assert counted(tmp_path / "t") == [2 * n for n in EXPECTED]


def test_a_file_is_read_once(tmp_path: Path) -> None:
    write(tmp_path / "t", "timestamp")
    assert counted(tmp_path / "t") == EXPECTED
    table = DeltaTable(tmp_path / "t")
    for file in table.file_uris():
        Path(file).unlink()
    assert counted(tmp_path / "t") == EXPECTED
    file_values._counts.clear()
    assert counted(tmp_path / "t") is None, "what can't be read is not known"


def test_no_more_is_read_than_a_page_can_wait_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "t", "timestamp")
    monkeypatch.setattr(file_values, "MAX_ROWS", len(HOURS) - 1)
    assert counted(tmp_path / "t") is None
    write(tmp_path / "u", "timestamp", configuration={"delta.dataSkippingNumIndexedCols": "0"})
    assert counted(tmp_path / "u") is None, "as the file itself says"
    monkeypatch.undo()
    assert counted(tmp_path / "u") == EXPECTED


def test_a_file_of_before_the_table_had_the_column(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", pa.table({"of": ["x"]}))
    write(tmp_path / "t", "timestamp", schema_mode="merge")
    assert counted(tmp_path / "t") == EXPECTED
