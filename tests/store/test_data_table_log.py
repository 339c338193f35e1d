"""What the log of a table tells, of logs that are written here action by action, and of tables of delta-rs."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from backfill_manager.clock import micros
from backfill_manager.store.data_tables.places import FIRST, PAST
from backfill_manager.store.data_tables.table_log import TableLog, read_table_log

HOUR = 3_600_000_000
JANUARY = micros(datetime(2013, 1, 1, tzinfo=timezone.utc))
OURS = {"userMetadata": json.dumps({"state": "mine", "dag": "flights"})}


class Log:
    """A Delta table of which only the log is there."""

    def __init__(
        self,
        folder: Path,
        kind: str = "timestamp",
        *,
        partitioned: bool = False,
        table_id: str = "first",
        **protocol: Any,
    ):
        self.folder, self.version = folder, -1
        (folder / "_delta_log").mkdir(parents=True)
        field = {"name": "at", "type": kind, "nullable": True, "metadata": {}}
        schema = json.dumps({"type": "struct", "fields": [field, {**field, "name": "v", "type": "long"}]})
        self.commit(
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2, **protocol}},
            {"metaData": {
                "id": table_id, "format": {"provider": "parquet", "options": {}}, "schemaString": schema,
                "partitionColumns": ["at"] if partitioned else [], "configuration": {}, "createdTime": 0,
            }},
        )  # fmt: skip

    def commit(self, *actions: dict[str, Any], info: dict[str, Any] | None = None) -> int:
        self.version += 1
        lines = [{"commitInfo": {"timestamp": 0, "operation": "WRITE", **(info or {})}}, *actions]
        self.entry(self.version).write_text("\n".join(map(json.dumps, lines)))
        return self.version

    def entry(self, version: int) -> Path:
        return self.folder / "_delta_log" / f"{version:020d}.json"

    def read(self, since: int | None = None, column: str = "at") -> TableLog:
        return read_table_log(f"file:{self.folder}", column, since, "mine")


def added(
    path: str, low: str | None = None, high: str | None = None, rows: int | None = 5, nulls: int = 0, **more: Any
) -> dict[str, Any]:
    stats: dict[str, Any] = {} if rows is None else {"numRecords": rows}
    if low is not None:
        stats |= {"minValues": {"at": low}, "maxValues": {"at": high}, "nullCount": {"at": nulls}}
    elif nulls:
        stats |= {"nullCount": {"at": nulls}}
    base = {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True}
    return {"add": {**base, **({"stats": json.dumps(stats)} if stats else {}), **more}}


def removed(path: str, **more: Any) -> dict[str, Any]:
    return {"remove": {"path": path, "deletionTimestamp": 0, "dataChange": True, "partitionValues": {}, **more}}


def at(hour: int) -> str:
    return f"2013-01-01T{hour:02}:00:00.000Z"


def places(log: TableLog) -> list[tuple[int, int, int]]:
    """Of files: hours of the first value and of what is past the last, and rows; in order."""

    def hour(value: int) -> int:
        return value if value in (FIRST, PAST) else -(-(value - JANUARY) // HOUR)

    files = log.files
    return sorted(
        (hour(a), hour(b), n)
        for a, b, n in zip(files.first.tolist(), files.past.tolist(), files.rows.tolist(), strict=True)
    )


def test_files_by_their_statistics(tmp_path: Path) -> None:
    log = Log(tmp_path / "t")
    log.commit(added("a", at(0), at(1)), added("b", at(5), at(6), rows=9, nulls=2), added("c"), added("d", rows=None),
               added("e", rows=4, nulls=4), added("f", rows=0))  # fmt: skip
    found = log.read()
    assert (found.problem, found.table_id, found.version, found.kind) == (None, "first", 1, "timestamp")
    assert places(found) == sorted(
        [(0, 2, 5), (5, 7, 7), (FIRST, PAST, -1), (FIRST, PAST, -1), (FIRST, PAST, 0), (FIRST, PAST, -1)]
    )
    assert found.changes_from == 2 and not len(found.changes.version)


def test_the_last_millisecond_is_open_where_the_writer_cuts_times(tmp_path: Path) -> None:
    log = Log(tmp_path / "t")
    log.commit(added("a", at(0), "2013-01-01T00:59:59.999Z"), added("b", at(1), "2013-01-01T01:59:59.999999Z"))
    assert places(log.read()) == [(0, 1, 5), (1, 2, 5)]


@pytest.mark.parametrize(
    ("text", "hour"),
    [(at(5), 5), ("2013-01-01T05:00:00", 5), ("2013-01-01 05:00:00.5", 5), ("2013-01-01T05:00:00.000-07:00", 12),
     ("2013-01-01T05:00:00+0100", 4), ("+12013-01-01T05:00:00Z", None), ("soon", None)],
)  # fmt: skip
def test_times_as_writers_put_them_into_the_log(tmp_path: Path, text: str, hour: int | None) -> None:
    log = Log(tmp_path / "t")
    log.commit(added("a", text, text))
    changes = log.read(since=0).changes
    assert changes.is_placed.tolist() == [hour is not None]
    assert hour is None or (changes.first - JANUARY).tolist()[0] // HOUR == hour


def test_a_column_that_divides_the_table(tmp_path: Path) -> None:
    log = Log(tmp_path / "t", "date", partitioned=True)
    value = {"partitionValues": {"at": "2013-01-02"}}
    log.commit(added("at=2013-01-02/a", **value), added("at=null/b", partitionValues={"at": None}))
    log.commit(removed("at=2013-01-02/a", **value))
    before, now = log.read(since=0), log.read()
    assert places(now) == [(FIRST, PAST, 0)]
    assert before.changes.first.tolist()[::2] == [JANUARY + 24 * HOUR] * 2
    assert before.changes.past.tolist()[::2] == [JANUARY + 48 * HOUR] * 2
    assert before.changes.first[1] == before.changes.past[1], "rows without a value lie nowhere"


@pytest.mark.parametrize(("kind", "text"), [("timestamp_ntz", "2013-01-01T05:00:00.000"), ("date", "2013-01-01")])
def test_readings_and_dates_are_places_of_their_own_clock(tmp_path: Path, kind: str, text: str) -> None:
    features = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["timestampNtz"],
        "writerFeatures": ["timestampNtz"],
    }
    log = Log(tmp_path / "t", kind, **features)
    log.commit(added("a", text, text))
    found = log.read(since=0)
    hours = (5, 6, 5) if kind == "timestamp_ntz" else (0, 24, 5)
    assert places(found) == [hours]
    assert (found.changes.first - JANUARY).tolist() == [hours[0] * HOUR]


def test_changes_since_a_version_and_whose_they_are(tmp_path: Path) -> None:
    log = Log(tmp_path / "t")
    log.commit(added("a", at(0), at(0)), added("b", at(1), at(1)), info=OURS)
    log.commit(removed("a"), added("a2", at(0), at(3)), info=OURS)
    log.commit(removed("b"))
    log.commit(removed("a2", dataChange=False), added("a3", at(0), at(3), dataChange=False))
    grouped = {"userMetadata": json.dumps({"writes": [{"state": "mine"}, {"state": "other"}]})}
    log.commit(added("c", at(7), at(7)), info=grouped)
    log.commit(added("d", at(8), at(8)), info={"userMetadata": json.dumps({"writes": [{"state": "mine"}]})})
    changes = log.read(since=1).changes
    assert changes.version.tolist() == [2, 2, 3, 5, 6], "compaction changes nothing"
    assert changes.is_ours.tolist() == [True, True, False, False, True]
    assert ((changes.first - JANUARY) // HOUR).tolist() == [0, 0, 1, 7, 8], "what is removed is looked up"
    assert changes.is_placed.all()


def replacing(*hours: tuple[int, int] | None, column: str = "at", kind: str = "timestamp", state: str = "mine") -> Any:
    """The info of a commit of writes that have replaced these hours; None: any row."""

    def end(hour: int) -> str:
        return f"2013-01-01T{hour:02}:00:00.000000Z"

    def write(ends: tuple[int, int] | None) -> dict[str, Any]:
        if ends is None:
            return {"state": state}
        return {
            "state": state,
            "replaced": {"column": column, "kind": kind, "lower": end(ends[0]), "upper": end(ends[1])},
        }

    return {"userMetadata": json.dumps({"writes": [write(one) for one in hours]})}


def test_our_commits_change_what_they_say_though_their_files_reach_further(tmp_path: Path) -> None:
    log = Log(tmp_path / "t")
    log.commit(added("a", at(0), at(9)))
    log.commit(removed("a"), added("a2", at(0), at(9)), info=replacing((4, 6)))
    log.commit(removed("a2"), added("a3", at(0), at(9)), added("b", at(4), at(7)), info=replacing((2, 3), (5, 6)))
    log.commit(removed("a3"), added("a4"), info=replacing((7, 8)))
    for info in (
        replacing((1, 2), None), replacing((1, 2), column="v"), replacing((1, 2), kind="date"), replacing((1, 2), state="other"),
        {"userMetadata": json.dumps({"state": "mine"})}, {},
    ):  # fmt: skip
        log.commit(added("c", at(1), at(3)), info=info)
    changes = log.read(since=1).changes
    hours = ((changes.first - JANUARY) // HOUR).tolist(), (-((JANUARY - changes.past) // HOUR)).tolist()
    found = [*zip(changes.version.tolist(), *hours, strict=True)]
    assert found == sorted(found, key=lambda one: one[0])
    assert sorted(found[:9]) == [
        (2, 4, 6), (2, 4, 6), (3, 2, 3), (3, 2, 3), (3, 5, 6), (3, 5, 6), (3, 5, 6), (4, 7, 8), (4, 7, 8)
    ]  # fmt: skip
    assert {one[1:] for one in found[9:]} == {(1, 4)} and len(found) == 15
    assert changes.is_placed.all()


def test_what_was_removed_long_ago_and_nobody_knows_has_no_place(tmp_path: Path) -> None:
    log = Log(tmp_path / "t")
    log.commit(added("a"))
    log.commit(removed("a"), added("b", at(1), at(1)))
    changes = log.read(since=1).changes
    assert changes.is_placed.tolist() == [False, True]


def test_a_log_that_was_cleaned_up(tmp_path: Path) -> None:
    log = Log(tmp_path / "t")
    for hour in range(6):
        log.commit(added(f"f{hour}", at(hour), at(hour)))
    DeltaTable(log.folder).create_checkpoint()
    log.commit(removed("f2"), added("g", at(9), at(9)))
    for version in range(5):
        log.entry(version).unlink()
    found = log.read(since=1)
    assert found.changes_from == 5
    assert found.changes.version.tolist() == [5, 6, 7, 7]
    assert found.changes.is_placed.all()
    assert len(found.files.rows) == 6


def test_a_table_that_is_gone_and_what_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "part-0.parquet").write_bytes(b"PAR1")
    gone = read_table_log(f"file:{tmp_path}/gone", "at", None, None)
    assert gone.is_gone and gone.problem == f"it is gone: nothing lies at {tmp_path}/gone"
    plain = read_table_log(f"file:{tmp_path}/plain", "at", None, None)
    assert not plain.is_gone and plain.problem == "it is no Delta table: its folder has files, and no log"
    odd = read_table_log("file:/tmp/a[b]", "at", None, None)
    assert odd.problem is not None and "characters" in odd.problem


def test_a_column_that_is_not_there_or_of_another_type(tmp_path: Path) -> None:
    log = Log(tmp_path / "t")
    assert log.read(column="v").kind == "long"
    assert log.read(column="no").kind == ""
    assert log.read(column="AT").column == "at"


@pytest.mark.parametrize("feature", ["typeWidening", "madeUpLater"])
def test_a_feature_that_is_not_known_is_left_to_spark(tmp_path: Path, feature: str) -> None:
    names = [feature]
    log = Log(tmp_path / "t", minReaderVersion=3, minWriterVersion=7, readerFeatures=names, writerFeatures=names)
    log.commit(added("a", at(0), at(0)))
    found = log.read(since=0)
    assert found.problem is None and found.why_unknown is not None
    assert (found.table_id, found.version, found.kind) == ("first", 1, "timestamp")


def test_a_table_that_may_have_deletion_vectors_and_has_none(tmp_path: Path) -> None:
    names = ["deletionVectors"]
    log = Log(tmp_path / "t", minReaderVersion=3, minWriterVersion=7, readerFeatures=names, writerFeatures=names)
    log.commit(added("a", at(0), at(0)))
    assert places(log.read()) == [(0, 1, 5)]


def test_a_damaged_log_is_named(tmp_path: Path) -> None:
    log = Log(tmp_path / "t")
    log.commit(added("a", at(0), at(0)))
    log.entry(1).write_text("{")
    found = log.read(since=0)
    assert found.problem is not None and "can't be read" in found.problem


def test_tables_of_delta_rs(tmp_path: Path) -> None:
    path = tmp_path / "t"
    times = pa.array(
        [datetime(2013, 1, 1, hour, 30, tzinfo=timezone.utc) for hour in range(4)], pa.timestamp("us", tz="UTC")
    )
    write_deltalake(path, pa.table({"at": times, "v": pa.array(range(4))}))
    write_deltalake(path, pa.table({"at": times[:1], "v": [9]}), mode="append")
    DeltaTable(path).delete("v = 3")
    found = read_table_log(str(path), "at", 0, None)
    assert found.files.rows.sum() == 4
    assert found.changes.version.tolist() == [1, 2, 2] and found.changes.is_placed.all()
    assert np.all(found.changes.past > found.changes.first)
