"""What a dry run says of rows, files, bytes and time: from tables' logs and past runs, and only what is known."""

from __future__ import annotations

import dataclasses
import json
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill_manager.clock import EPOCH, parse_instant
from backfill_manager.dags.definition import DagSpec, TableRead, TaskSpec
from backfill_manager.model.records import DagRun, Manager
from backfill_manager.model.transitions import Changes
from backfill_manager.planning.backfills.backfill_plan import BackfillPlan
from backfill_manager.planning.backfills.estimates import estimate, past_runs, with_estimates
from backfill_manager.planning.batches.auto_batch_size import BatchLimits, PastRun
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.store.data_tables.file_statistics import file_statistics
from backfill_manager.store.memory import MemoryStore

INSTANT = pa.timestamp("us", tz="UTC")
NOW = parse_instant("2024-02-01T12:00:00Z")


def at(day: float) -> datetime:
    return EPOCH + timedelta(days=day)


def dag(*reads: TableRead, **result: Any) -> DagSpec:
    return DagSpec("flights", (TaskSpec("clean"),), schedule="@daily", reads=reads, **result)


def items(intervals: list[tuple[float, float]], skipped: tuple[int, ...] = ()) -> pa.Table:
    n = len(intervals)
    starts = pa.array([at(start) for start, _ in intervals], INSTANT)
    states = ["skipped" if ordinal in skipped else "pending" for ordinal in range(1, n + 1)]
    return pa.table(
        {
            "ordinal": pa.array(range(1, n + 1), pa.int64()),
            "logical_date": starts,
            "interval_start": starts,
            "interval_end": pa.array([at(end) for _, end in intervals], INSTANT),
            "partition_key": pa.nulls(n, pa.string()),
            "state": pa.array(states, pa.string()),
            "reason": pa.array(["in flight" if state == "skipped" else None for state in states], pa.string()),
        }
    )


def plan(spec: DagSpec, of: pa.Table, **result: Any) -> BackfillPlan:
    return BackfillPlan(CreateBackfill(dag_id=spec.dag_id, **result), spec, 1, of)


def days(*numbers: int) -> list[tuple[float, float]]:
    return [(number, number + 1) for number in numbers]


def read_of(made: BackfillPlan, name: str = "rows") -> list[int | None]:
    values: list[int | None] = estimate(made, (), file_statistics, NOW).items[name].to_pylist()
    return values


def totals(made: BackfillPlan) -> dict[str, int | None]:
    return estimate(made, (), file_statistics, NOW).read


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Three files: 2 rows of day 1; 3 rows of days 2 and 3; 4 rows of day 3."""
    where = str(tmp_path / "flights_raw")
    for times in ([1.0, 1.5], [2.0, 2.9, 3.1], [3.0, 3.2, 3.4, 3.999]):
        rows = {"Time_Hour": pa.array([at(t) for t in times], INSTANT), "n": pa.array(range(len(times)))}
        write_deltalake(where, pa.table(rows), mode="append")
    return where


def test_an_item_reads_the_files_whose_times_meet_its_interval(table: str) -> None:
    made = plan(dag(TableRead(table, "time_hour")), items(days(0, 1, 2, 3, 4)))
    assert read_of(made, "rows") == [0, 2, 3, 7, 0]
    assert read_of(made, "files") == [0, 1, 1, 2, 0]
    size = {path.stat().st_size for path in Path(table).glob("*.parquet")}
    assert read_of(made, "bytes")[1] in size
    assert totals(made) == {"rows": 12, "files": 4, "bytes": sum(n or 0 for n in read_of(made, "bytes"))}


def test_a_skipped_item_reads_nothing(table: str) -> None:
    made = plan(dag(TableRead(table, "time_hour")), items(days(1, 2, 3), skipped=(1, 3)))
    assert read_of(made) == [0, 3, 0] and totals(made)["rows"] == 3


def test_items_of_one_run_read_a_file_once(table: str) -> None:
    spec = dag(TableRead(table, "time_hour"), batchable=True)
    made = plan(spec, items(days(1, 2, 3)), batch=2)
    assert read_of(made) == [2, 3, 7]
    assert totals(made)["rows"] == 5 + 7 and totals(plan(spec, items(days(1, 2, 3)), batch=3))["rows"] == 9


def test_a_table_read_without_a_time_column_is_read_whole_by_each(table: str) -> None:
    for read in (TableRead(table), TableRead(table, "n"), TableRead(table, "no_such_column")):
        assert read_of(plan(dag(read), items(days(1, 9)))) == [9, 9]


def test_partitions_have_no_interval_and_read_all(table: str) -> None:
    keys = items(days(1, 2))
    none = pa.nulls(2, INSTANT)
    for name in ("logical_date", "interval_start", "interval_end"):
        keys = keys.set_column(keys.column_names.index(name), name, none)
    made = plan(dag(TableRead(table, "time_hour")), keys, kind="partitions", partitions=("a", "b"))
    assert read_of(made) == [9, 9] and totals(made)["rows"] == 18


def test_a_file_that_does_not_tell_its_times_counts_for_every_item(table: str) -> None:
    nothing = pa.table({"Time_Hour": pa.nulls(5, INSTANT), "n": pa.array(range(5))})
    write_deltalake(table, nothing, mode="append")
    assert read_of(plan(dag(TableRead(table, "time_hour")), items(days(0, 1)))) == [5, 7]


def test_several_tables_add_up_and_one_that_is_not_there_is_named(table: str, tmp_path: Path) -> None:
    nowhere = str(tmp_path / "not_yet")
    spec = dag(TableRead(table, "time_hour"), TableRead(table), TableRead(nowhere, "at"), TableRead(nowhere))
    made = estimate(plan(spec, items(days(1, 2))), (), file_statistics, NOW)
    assert made.items["rows"].to_pylist() == [2 + 9, 3 + 9] and made.unknown == (nowhere,)
    alone = estimate(plan(dag(TableRead(nowhere)), items(days(1))), (), file_statistics, NOW)
    assert alone.items["rows"].to_pylist() == [None] and set(alone.read.values()) == {None}


@pytest.mark.parametrize("place", ["", "s3x://bucket/table", "a[b]/c", "\x00/x"])
def test_a_place_that_can_not_be_read_is_not_there(place: str, tmp_path: Path) -> None:
    assert file_statistics(place or str(tmp_path), "at") is None


def test_a_date_is_its_midnight_in_the_dags_own_zone(tmp_path: Path) -> None:
    spec = {"timezone": "America/New_York"}
    five = [(number + 5 / 24, number + 1 + 5 / 24) for number in (1, 2, 3)]  # local days: 05:00 to 05:00 UTC
    for n, (name, divided_by) in enumerate((("plain", None), ("divided", ["day"]))):
        where = str(tmp_path / name)
        for day, rows in ((2, 3), (3, 4), (4, 5)):
            column = pa.array([date(1970, 1, day)] * rows)
            write_deltalake(where, pa.table({"day": column, "n": range(rows)}), mode="append", partition_by=divided_by)
        assert read_of(plan(dag(TableRead(where, "day"), **spec), items(five))) == [3, 4, 5], n
    wall = str(tmp_path / "wall")
    times = pa.array([datetime(1970, 1, 2, 0, 0), datetime(1970, 1, 2, 23, 59)], pa.timestamp("us"))
    write_deltalake(wall, pa.table({"at": times}))
    assert read_of(plan(dag(TableRead(wall, "at"), **spec), items(five))) == [2, 0, 0]


FILE = st.tuples(st.integers(0, 20), st.integers(0, 5), st.integers(1, 50), st.booleans())


@settings(deadline=None)
@given(st.lists(FILE), st.lists(st.tuples(st.integers(0, 20), st.integers(1, 5)), min_size=1))
def test_counting_at_once_gives_what_looking_at_every_file_would(
    files: list[tuple[int, int, int, bool]], intervals: list[tuple[int, int]]
) -> None:
    statistics = pa.table(
        {
            "rows": pa.array([rows for _, _, rows, _ in files], pa.int64()),
            "bytes": pa.array([rows * 10 for _, _, rows, _ in files], pa.int64()),
            "first": pa.array([at(first) if says else None for first, _, _, says in files], INSTANT),
            "last": pa.array([at(first + more) if says else None for first, more, _, says in files], INSTANT),
        }
    )
    of = items([(start, start + length) for start, length in intervals])
    made = estimate(plan(dag(TableRead("t", "at")), of), (), lambda *_: statistics, NOW)
    for n, (start, length) in enumerate(intervals):
        met = [r for first, more, r, says in files if not says or (first < start + length and first + more >= start)]
        assert made.items.slice(n, 1).to_pylist() == [{"rows": sum(met), "files": len(met), "bytes": 10 * sum(met)}]


def test_a_writer_that_does_not_count_rows_leaves_them_unknown() -> None:
    statistics = pa.table(
        {
            "rows": pa.array([5, None], pa.int64()), "bytes": pa.array([10, 20], pa.int64()),
            "first": pa.array([at(1), at(2)], INSTANT), "last": pa.array([at(1), at(2)], INSTANT),
        }
    )  # fmt: skip
    made = estimate(plan(dag(TableRead("t", "at")), items(days(1, 2))), (), lambda *_: statistics, NOW)
    assert made.items.to_pylist() == [{"rows": None, "files": 1, "bytes": 10}, {"rows": None, "files": 1, "bytes": 20}]
    assert made.read == {"rows": None, "files": 2, "bytes": 30}


@pytest.mark.usefixtures("must_end")
def test_a_million_items_over_a_hundred_thousand_files_are_not_looked_at_pair_by_pair() -> None:
    n, files = 1_000_000, 100_000
    starts = np.arange(n, dtype=np.int64) * 3_600_000_000
    firsts = np.sort(np.random.default_rng(7).integers(0, int(starts[-1]), files))
    instants = pa.array(starts).cast(INSTANT)
    of = pa.table(
        {
            "ordinal": np.arange(1, n + 1), "logical_date": instants, "interval_start": instants,
            "interval_end": pa.array(starts + 3_600_000_000).cast(INSTANT), "partition_key": pa.nulls(n, pa.string()),
            "state": pa.repeat("pending", n), "reason": pa.nulls(n, pa.string()),
        }
    )  # fmt: skip
    weights = np.ones(files, np.int64)
    statistics = pa.table(
        {
            "rows": weights, "bytes": weights,
            "first": pa.array(firsts).cast(INSTANT), "last": pa.array(firsts + 1).cast(INSTANT),
        }
    )  # fmt: skip
    made = estimate(plan(dag(TableRead("t", "at")), of), (), lambda *_: statistics, NOW)
    assert made.read["files"] is not None and made.read["files"] >= files - 1


# -- how long ----------------------------------------------------------------------------------------------------------


def run(seconds: float, **result: Any) -> DagRun:
    return DagRun(
        "flights", result.pop("run_id", "r"), result.pop("run_type", "backfill"), result.pop("state", "success"), 1, 1, NOW,
        started_at=NOW, ended_at=NOW + timedelta(seconds=seconds), **result,
    )  # fmt: skip


def test_how_long_it_takes_is_estimated_from_past_runs() -> None:
    made = plan(dag(max_active_runs=4), items(days(*range(10)), skipped=(1, 2)))
    document = estimate(made, [run(10), run(40), run(60, items=3)], file_statistics, NOW).to_json_document()
    assert document == {
        "rows": None, "files": None, "bytes": None, "run_s": {"median": 20.0, "shortest": 10.0, "longest": 40.0},
        "total_s": 40.0, "finishes_at": "2024-02-01T12:00:40Z", "unknown": [],
    }  # fmt: skip


def test_batches_that_size_themselves_take_as_long_as_the_dry_run_foresees() -> None:
    """By what the tasks of past runs took, without what they waited for."""
    asked = plan(dag(batchable=True), items(days(*range(10))), batch="auto")
    made = dataclasses.replace(asked, past=[PastRun(1, 30.0)], limits=BatchLimits(1, 600.0))
    found = estimate(made, [run(99)], file_statistics, NOW)
    assert (found.durations, found.total_s, found.finishes_at) == (None, 300.0, NOW + timedelta(minutes=5))


def test_no_more_runs_go_on_at_once_than_there_are() -> None:
    one = estimate(plan(dag(max_active_runs=16), items(days(1))), [run(30)], file_statistics, NOW)
    assert one.total_s == 30
    batched = estimate(
        plan(dag(max_active_runs=16, batchable=True), items(days(1, 2, 3, 4)), batch=2), [run(30)], file_statistics, NOW
    )
    assert batched.total_s == 60
    own = estimate(plan(dag(), items(days(1, 2, 3, 4)), max_active_runs=2), [run(30)], file_statistics, NOW)
    assert own.total_s == 60


def test_runs_that_all_wait_for_the_one_before_go_on_one_by_one() -> None:
    spec = DagSpec("flights", (TaskSpec("clean", depends_on_past=True),), schedule="@daily", max_active_runs=8)
    assert estimate(plan(spec, items(days(*range(20)))), [run(10)], file_statistics, NOW).total_s == 200


def test_runs_that_are_only_marked_read_nothing_and_take_no_time(table: str) -> None:
    made = plan(dag(TableRead(table, "at")), items(days(1, 2)), mark_success=True)
    found = estimate(made, [run(3600)], file_statistics, NOW)
    assert (found.total_s, found.finishes_at, found.durations) == (0, NOW, None)
    assert found.read == {"rows": 0, "files": 0, "bytes": 0} and found.items["rows"].to_pylist() == [0, 0]


def test_nothing_is_estimated_for_a_dag_that_has_never_run() -> None:
    document = estimate(plan(dag(), items(days(1))), (), file_statistics, NOW).to_json_document()
    assert (document["run_s"], document["total_s"], document["finishes_at"]) == (None, None, None)


def test_nothing_left_to_do_is_over_now() -> None:
    made = estimate(plan(dag(), items(days(1), skipped=(1,))), [run(30)], file_statistics, NOW)
    assert (made.total_s, made.finishes_at) == (0, NOW)


def test_more_time_than_there_is_has_no_end() -> None:
    long = DagRun("flights", "r", "backfill", "success", 1, 1, NOW, started_at=EPOCH, ended_at=at(10**6))
    made = estimate(plan(dag(max_active_runs=1), items(days(*range(10)))), [long], file_statistics, NOW)
    assert made.total_s == 10**7 * 86_400 and made.finishes_at is None


def test_of_the_last_hundred_runs_that_succeeded_those_count_that_left_nothing_out() -> None:
    store = MemoryStore()
    store.init()
    leader = store.lead(Manager(1, "m", "host", 1, "leading", NOW, NOW, 15, "0"))
    changes = Changes()
    for n in range(120):
        changes.put(run(n, run_id=f"r{n}").evolve(run_seq=leader.next_seq()))
    for n, other in enumerate(({"state": "failed"}, {"run_type": "external"})):
        changes.put(run(9999, run_id=f"other{n}", **other).evolve(run_seq=leader.next_seq()))
    unstarted = run(9999, run_id="unstarted").evolve(run_seq=leader.next_seq(), started_at=None)
    changes.put(unstarted)
    changes.put(run(50.5, run_id="in part", is_partial=True).evolve(run_seq=leader.next_seq()))
    changes.put(run(9999, run_id="elsewhere").evolve(dag_id="other", run_seq=leader.next_seq()))
    leader.commit(changes)
    found = past_runs(store, plan(dag(), items(days(1))))
    assert [one.run_id for one in found] == [f"r{n}" for n in range(119, 20, -1)]


# -- the document ------------------------------------------------------------------------------------------------------


def test_a_dry_run_tells_the_figures_of_each_item_and_of_all_downstream(table: str) -> None:
    below = plan(dag(), items(days(1)))
    root = plan(dag(TableRead(table, "time_hour")), items(days(1, 2)), downstream=True)
    root = BackfillPlan(root.command, root.dag, 1, root.items, downstream=(below,))
    store = MemoryStore()
    store.init()
    document = json.loads(json.dumps(with_estimates(root, store, file_statistics, NOW).to_json_document()))
    assert [(item["rows"], item["files"]) for item in document["items"]] == [(2, 1), (3, 1)]
    assert document["summary"]["estimate"]["rows"] == 5
    (child,) = document["downstream"]
    assert child["items"][0]["rows"] is None and child["summary"]["estimate"]["unknown"] == []


def test_without_an_estimate_a_plan_says_nothing_of_it(table: str) -> None:
    document = plan(dag(TableRead(table)), items(days(1))).to_json_document()
    assert "estimate" not in document["summary"] and "rows" not in document["items"][0]


def test_zones_of_columns_are_distinguished(tmp_path: Path) -> None:
    where = str(tmp_path / "t")
    tokyo = pa.timestamp("us", tz="Asia/Tokyo")
    moment = datetime(2024, 1, 1, tzinfo=timezone.utc)
    write_deltalake(where, pa.table({"at": pa.array([moment], tokyo), "text": ["2024-01-01"]}))
    found = file_statistics(where, "AT")
    assert found is not None and found["first"].to_pylist() == [moment]
    text = file_statistics(where, "text")
    assert text is not None and pa.types.is_null(text["first"].type)
