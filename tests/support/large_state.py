"""Writes a state of a million task instances in some seconds: Arrow data directly into tables that `init` made, in files as
compaction leaves them (rising `run_seq`, 50,000 rows each). No leader takes part, so nothing of it is a shortcut that
the code under test could take, too."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from backfill_manager.clock import UTC
from backfill_manager.dags.definition import DagSpec, TaskSpec
from backfill_manager.model.records import TABLES, Backfill, DagRow, DagVersion, Pool, Record
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.store import open_store
from backfill_manager.store.delta_rs.compaction import BIG_ROWS
from backfill_manager.store.sql_text import arrow_table
from backfill_manager.store.table_properties import arrow_schema

FIRST = datetime(2000, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
STATES = ("success", "failed", "running", "pending", "skipped")


@dataclass(frozen=True)
class BigState:
    """What was written. `largest` is the backfill with half of all items; the others share the rest."""

    root: Path
    backfill_ids: tuple[str, ...]
    largest: str
    items: int
    task_instances: int


def write_big_state(
    root: Path, *, task_instances: int, items: int, backfills: int, dags: int = 10, tasks: int = 10
) -> BigState:
    """Each item that ran has a run of `tasks` task instances; runs of the schedule make up the rest of
    `task_instances`. The largest backfill goes on: a part of its items runs and waits."""
    open_store(str(root)).init()
    ids = [f"{n * 2654435761 % 2**48:012x}" for n in range(1, backfills + 1)]
    dag_ids = [f"dag_{n:02d}" for n in range(dags)]
    of_each = [items // 2, *_shares(items - items // 2, backfills - 1)]
    of_dag = [dag_ids[n % dags] for n in range(backfills)]
    _put(root, _dags(dag_ids, tasks))
    _put(root, [Pool("scheduled", 16, 4, 2), Pool("backfill", 16, 1, 0)])

    planned = _items(ids, of_each)
    _append(root, "backfill_item", planned)
    _put(root, _backfills(ids, of_dag, of_each))
    runs = _runs(planned, dict(zip(ids, of_dag, strict=True)), dag_ids, task_instances // tasks)
    _append(root, "dag_run", runs)
    _append(root, "task_instance", _instances(runs, [f"task_{n}" for n in range(tasks)]))
    return BigState(root, tuple(ids), ids[0], items, runs.num_rows * tasks)


def _shares(whole: int, parts: int) -> list[int]:
    return [whole // parts + (n < whole % parts) for n in range(parts)] if parts else []


def _put(root: Path, rows: Sequence[Record]) -> None:
    by_table: dict[str, list[Record]] = {}
    for row in rows:
        by_table.setdefault(row.TABLE, []).append(row)
    for table, same in by_table.items():
        write_deltalake(str(root / table), arrow_table(TABLES[table], same), mode="append")


def _append(root: Path, table: str, rows: pa.Table) -> None:
    """In files of `BIG_ROWS`, each a commit of its own, as it came about."""
    handle = DeltaTable(str(root / table))
    for part in _slices(rows):
        write_deltalake(handle, part, mode="append")


def _slices(rows: pa.Table) -> Iterator[pa.Table]:
    for begin in range(0, rows.num_rows, BIG_ROWS):
        yield rows.slice(begin, BIG_ROWS)


def _dags(dag_ids: Sequence[str], tasks: int) -> list[Record]:
    rows: list[Record] = []
    for dag_id in dag_ids:
        specs = tuple(TaskSpec(f"task_{n}", upstream=(f"task_{n - 1}",) if n else ()) for n in range(tasks))
        spec = DagSpec(dag_id=dag_id, tasks=specs, schedule="@hourly", start_date=FIRST, file=f"{dag_id}.py")
        rows += [
            DagRow(dag_id, "examples", spec.file, 1, False, True, json.dumps("@hourly"), "UTC", FIRST),
            DagVersion(dag_id, 1, "hash", spec.to_json(), "examples", spec.file, "/nowhere", FIRST),
        ]
    return rows


def _backfills(ids: Sequence[str], of_dag: Sequence[str], of_each: Sequence[int]) -> list[Record]:
    rows: list[Record] = []
    seq = 0
    for n, (backfill_id, dag_id, planned) in enumerate(zip(ids, of_dag, of_each, strict=True)):
        seq += planned
        ask = CreateBackfill(dag_id=dag_id, start_date=FIRST, end_date=FIRST + planned * HOUR)
        at = FIRST + (len(ids) - n) * HOUR  # the largest is the newest
        rows.append(
            Backfill(
                backfill_id=backfill_id, dag_id=dag_id, state="failed" if n else "running",
                config_json=json.dumps(ask.config()), reprocess="none", max_active_runs=16, priority=0, pool="backfill",
                is_paused=False, created_at=at, run_seq=seq, planned=planned, dag_version=1, created_by="ada",
                request_id=f"r{backfill_id}", started_at=at, completed_at=at + HOUR if n else None,
            )
        )  # fmt: skip
    return rows


def _items(ids: Sequence[str], of_each: Sequence[int]) -> pa.Table:
    """By backfill and ordinal. Of the first backfill a tenth is yet to come; all others have ended."""
    number = np.repeat(np.arange(len(ids)), of_each)
    ordinal = np.concatenate([np.arange(1, n + 1) for n in of_each])
    place = ordinal / np.repeat(of_each, of_each)
    state = np.where(ordinal % 50 == 0, 1, np.where(ordinal % 33 == 0, 4, 0))
    state = np.where((number == 0) & (place > 0.9), np.where(place < 0.9002, 2, 3), state)
    names = np.array(STATES)[state]
    at = _instants(ordinal)
    ran = np.isin(names, ("success", "failed", "running"))
    run_id = np.char.add(np.char.add("backfill__", _texts(ordinal)), np.char.add("__", number.astype(str)))
    return _table(
        "backfill_item",
        backfill_id=pa.array(np.array(ids)[number]), ordinal=pa.array(ordinal), state=pa.array(names),
        run_seq=pa.array(np.arange(1, len(ordinal) + 1)), logical_date=at, interval_start=at,
        interval_end=_instants(ordinal + 1), run_id=pa.array(run_id, mask=~ran),
        reason=pa.array(np.full(len(ordinal), "already exists"), mask=names != "skipped"),
    )  # fmt: skip


def _runs(items: pa.Table, dag_of: dict[str, str], dag_ids: Sequence[str], expected: int) -> pa.Table:
    """A run for each item that ran; the rest, up to `wanted`, are the schedule's."""
    ran = items.filter(pa.compute.is_valid(items["run_id"]))
    backfill_ids = ran["backfill_id"].to_pylist()
    more = max(0, expected - ran.num_rows)
    state = np.concatenate([np.array(ran["state"].to_pylist(), dtype=object), np.full(more, "success", dtype=object)])
    ordinal = np.concatenate([np.array(ran["ordinal"].to_pylist(), dtype=np.int64), np.arange(more) // len(dag_ids)])
    scheduled = np.char.add("scheduled__", _texts(np.arange(more) // len(dag_ids)))
    dags = np.array([dag_of[one] for one in backfill_ids] + [dag_ids[n % len(dag_ids)] for n in range(more)])
    total = ran.num_rows + more
    of_backfill = np.arange(total) < ran.num_rows
    at, end = _instants(ordinal), _instants(ordinal + 1)
    begun = np.concatenate([np.array(backfill_ids, dtype=object), np.full(more, None, dtype=object)])
    return _table(
        "dag_run",
        dag_id=pa.array(dags), run_id=pa.array(np.concatenate([np.array(ran["run_id"].to_pylist()), scheduled])),
        run_type=pa.array(np.where(of_backfill, "backfill", "scheduled")), state=pa.array(state, pa.string()),
        dag_version=pa.array(np.ones(total, dtype=np.int64)),
        run_seq=pa.array(np.arange(items.num_rows + 1, items.num_rows + 1 + total)), created_at=end,
        logical_date=at, interval_start=at, interval_end=end, backfill_id=pa.array(begun, pa.string()),
        ordinal=pa.array(ordinal, mask=~of_backfill), items=pa.array(np.ones(total, dtype=np.int64)),
        conf_json=pa.array(np.full(total, "{}")), started_at=end,
        ended_at=pa.array(end.to_numpy(zero_copy_only=False) + np.timedelta64(90, "s"), mask=state == "running").cast(
            pa.timestamp("us", tz="UTC")
        ),
    )  # fmt: skip


def _instances(runs: pa.Table, task_ids: Sequence[str]) -> pa.Table:
    """The tasks of a run one after the other; of a failed run the last has failed, of a running one it runs."""
    n, each = runs.num_rows, len(task_ids)
    took = {name: runs[name].take(pa.array(np.repeat(np.arange(n), each))) for name in ("dag_id", "run_id", "run_seq")}
    state = np.full((n, each), "success", dtype=object)
    state[:, -1] = runs["state"].to_pylist()
    ones = pa.array(np.ones(n * each, dtype=np.int64))
    ended = runs["created_at"].take(pa.array(np.repeat(np.arange(n), each)))
    return _table(
        "task_instance",
        **took, task_id=pa.array(np.tile(task_ids, n)), state=pa.array(state.ravel(), pa.string()), try_number=ones,
        launch=ones, generation=pa.array(np.zeros(n * each, dtype=np.int64)),
        failures=pa.array(np.zeros(n * each, dtype=np.int64)), pool=pa.array(np.full(n * each, "backfill")),
        priority=pa.array(np.zeros(n * each, dtype=np.int64)), queued_at=ended, started_at=ended, ended_at=ended,
        duration_s=pa.array(np.full(n * each, 9.0)),
    )  # fmt: skip


def _instants(day: Any) -> pa.Array:
    return pa.array(np.datetime64("2000-01-01", "us") + day.astype("timedelta64[h]")).cast(pa.timestamp("us", tz="UTC"))


def _texts(day: Any) -> Any:
    return np.char.add(np.datetime_as_string(np.datetime64("2000-01-01", "D") + day.astype("timedelta64[h]")), "Z")


def _table(table: str, **known: Any) -> pa.Table:
    """All columns of the table; those that are not known are null."""
    schema = arrow_schema(TABLES[table])
    rows = len(next(iter(known.values())))
    arrays = [known.get(field.name, pa.nulls(rows, field.type)) for field in schema]
    return pa.table([array.cast(field.type) for array, field in zip(arrays, schema, strict=True)], schema=schema)
