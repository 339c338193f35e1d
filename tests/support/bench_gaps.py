"""A table of which only the log is there, with many files, written interval by interval; and a state that has recorded it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from backfill_manager.dags.definition import DagSpec, TaskSpec
from backfill_manager.model.records import DagRun, Manager, Record, TableAccess
from backfill_manager.model.transitions import Changes
from backfill_manager.queries.data_gaps import find_gaps
from backfill_manager.store.memory import MemoryStore

START = datetime(2013, 1, 1, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)
HOURLY = DagSpec("bench", (TaskSpec("work"),), schedule="@hourly", start_date=START)
EMPTY_EVERY, FOREIGN_EVERY = 1000, 500  # of so many intervals one has no file; one was rewritten by somebody else


def measure_gaps(folder: Path, intervals: int, files: int) -> dict[str, Any]:
    """Seconds that the gaps take, and how many were found."""
    version = _write_log(folder, intervals, files // intervals)
    store = _state(folder, intervals)
    begun = time.perf_counter()
    report = find_gaps(store, HOURLY, START, START + HOUR * (intervals - 1))
    rows = report.to_json_document()
    took = time.perf_counter() - begun
    found = {name: sum(row["finding"] == name for row in rows) for name in {row["finding"] for row in rows}}
    return {"intervals": intervals, "files": files, "commits": version, "seconds": round(took, 2), "found": found}


def _write_log(folder: Path, intervals: int, each: int) -> int:
    """A commit for each interval, then those of somebody else; a checkpoint at the end, as Delta writes them."""
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    field = {"name": "at", "type": "timestamp", "nullable": True, "metadata": {}}
    metadata = {
        "id": "bench", "format": {"provider": "parquet", "options": {}}, "partitionColumns": [], "configuration": {},
        "createdTime": 0, "schemaString": json.dumps({"type": "struct", "fields": [field]}),
    }  # fmt: skip
    first = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}]
    ours = {"userMetadata": json.dumps({"state": "mine", "dag": "bench"})}
    commits = [(first, ours)]
    commits += [(list(_added(n, each)), ours) for n in range(intervals)]
    for n in range(0, intervals, FOREIGN_EVERY):
        gone = {"path": f"{n}-0", "deletionTimestamp": 0, "dataChange": True, "partitionValues": {}}
        commits.append(([{"remove": gone}, *_added(n, 1, "theirs")], {}))
    for version, (actions, info) in enumerate(commits):
        lines = [{"commitInfo": {"timestamp": 0, "operation": "WRITE", **info}}, *actions]
        (log / f"{version:020d}.json").write_text("\n".join(map(json.dumps, lines)))
    DeltaTable(folder).create_checkpoint()
    return len(commits)


def _added(n: int, files: int, name: str = "") -> Iterator[dict[str, Any]]:
    if n % EMPTY_EVERY == EMPTY_EVERY - 1:
        return
    for i in range(files):
        ends = [
            (START + HOUR * n + timedelta(minutes=i * 60 / files + more)).isoformat()[:19] + ".000Z" for more in (0, 1)
        ]
        stats = {"numRecords": 10, "minValues": {"at": ends[0]}, "maxValues": {"at": ends[1]}, "nullCount": {"at": 0}}
        file = {"path": f"{n}-{i}{name}", "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True}
        yield {"add": {**file, "stats": json.dumps(stats)}}


def _state(folder: Path, intervals: int) -> MemoryStore:
    store = MemoryStore()
    store.init()
    leader = store.lead(Manager(1, "m", "h", 1, "leading", START, START, 30, "1", state_id="mine"))
    changes = Changes()
    for n in range(intervals):
        for row in _rows(folder, n, START + HOUR * n):
            changes.put(row)
    leader.commit(changes)
    return store


def _rows(folder: Path, n: int, at: datetime) -> Iterator[Record]:
    run = DagRun("bench", f"run {n}", "scheduled", "success", 1, n, at, at, at, at + HOUR)
    yield run
    yield TableAccess(
        "bench", run.run_id, "work", 1, 1, "write", n, at, True, 1, f"file:{folder}", "silver", n + 1, 100, 1, at, at + HOUR,
        None, "bench", "at",
    )  # fmt: skip
