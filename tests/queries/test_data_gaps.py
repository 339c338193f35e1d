"""Gaps of a DAG by its records and real tables: whose column, which tables, what they hold."""

from __future__ import annotations

import shutil
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from support.lake import DAY, MAY, UTC_DAYS, Lake
from support.sample_state import FilledState

from backfill_manager.dags.definition import DagSpec, TableRead
from backfill_manager.errors import InvalidInput
from backfill_manager.planning.data.data_gaps import Axis
from backfill_manager.queries.data_gaps import find_gaps, wanted_by_data
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.store.data_tables import file_values


@pytest.fixture
def lake(state: FilledState, tmp_path: Path) -> Lake:
    return Lake(state, tmp_path)


def test_runs_and_rows_side_by_side(lake: Lake) -> None:
    version = lake.rows("silver", 1)
    lake.run(1, ("write", "silver", version))
    lake.run(2, ("write", "silver", version))
    lake.rows("silver", 3)
    rows = lake.gaps().to_json_document()
    assert [(row["interval_start"], row["finding"], row["rows"]) for row in rows] == [
        ("2024-05-02T00:00:00Z", "empty", 0), ("2024-05-03T00:00:00Z", "no_run", 3),
    ]  # fmt: skip
    assert rows[0]["run_id"] and rows[1]["run_id"] is None
    assert lake.gaps().is_missing.tolist() == [False, True, False, True]


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz", "date"])
def test_columns_of_each_type_in_the_zone_of_the_dag(lake: Lake, kind: str) -> None:
    """Noon in UTC is the morning in New York; readings of a clock and dates are of its own days."""
    zone = DagSpec("flights", UTC_DAYS.tasks, schedule="@daily", timezone="America/New_York", start_date=MAY)
    start = datetime(2024, 5, 1, 4, tzinfo=timezone.utc)
    version = lake.rows("silver", 1, kind=kind)
    run_id = lake.state.run(on="2024-05-01T04:00Z", interval_end=start + DAY)
    lake.access(run_id, 1, "write", "silver", version, interval_start=start, interval_end=start + DAY)
    report = find_gaps(lake.state.store, zone, start, start + DAY)
    (table,) = report.tables
    assert table.judged is not None
    assert table.judged.rows.n.tolist() == [3, 0] and table.judged.rows.is_exact.all()


def test_rewritten_by_somebody_else_and_not_by_us(lake: Lake) -> None:
    first = lake.rows("silver", 1)
    for day in (1, 2):
        lake.run(day, ("write", "silver", first if day == 1 else lake.rows("silver", 2)))
    assert lake.found(2) == []
    lake.rows("silver", 1)
    lake.rows("silver", 2, ours=False)
    assert lake.found(2) == [("silver", 2, "rewritten")]
    DeltaTable(lake.folder / "silver").delete("at < '2024-05-02'")
    assert lake.found(2) == [("silver", 1, "empty"), ("silver", 1, "rewritten"), ("silver", 2, "rewritten")]


def test_outdated_by_what_was_read_last(lake: Lake) -> None:
    then = lake.rows("bronze", 1, 2, 3)
    for day in (1, 2, 3):
        lake.run(day, ("read", "bronze", then), ("write", "silver", lake.rows("silver", day)))
    lake.rows("bronze", 2)
    assert lake.found(3) == [("silver", 2, "outdated")]
    assert lake.gaps(3).is_outdated.tolist() == [False, True, False]
    again = lake.run(2, ("read", "bronze", 1), ("write", "silver", lake.rows("silver", 2)), run_id="again")
    assert lake.found(3) == [], again


def test_a_commit_of_days_apart_changes_no_day_between_them(lake: Lake) -> None:
    then = lake.rows("bronze", 1, 2, 3)
    for day in (1, 2, 3):
        lake.run(day, ("read", "bronze", then), ("write", "silver", lake.rows("silver", day)))
    ends = ((MAY + DAY * n, MAY + DAY * (n + 1)) for n in (0, 2))
    parts = ({"column": "at", "kind": "timestamp", "lower": str(a), "upper": str(b)} for a, b in ends)
    lake.rows("bronze", 1, 3, about={"writes": [{"state": "mine", "replaced": one} for one in parts]})
    assert lake.found(3) == [("silver", 1, "outdated"), ("silver", 3, "outdated")]


def test_a_revert_of_a_part_of_a_commit_is_a_change(lake: Lake) -> None:
    then = lake.rows("bronze", 1)
    lake.run(1, ("read", "bronze", then), ("write", "silver", lake.rows("silver", 1)))
    writes = [{"state": "mine", "dag": "load", "run": run} for run in ("first", "second")]
    since = lake.rows("bronze", 1, about={"writes": writes})
    lake.rows("bronze", 1, about={"reverts": [["load", "first"]], "undoes_from": since})
    assert lake.found(1) == [("silver", 1, "outdated")]


def test_who_has_read_what_was_reverted_is_outdated(lake: Lake) -> None:
    then = lake.rows("bronze", 1, 2)
    for day in (1, 2):
        lake.run(day, ("read", "bronze", then), ("write", "silver", lake.rows("silver", day)))
    since = lake.rows("bronze", 1, 2, about={"dag": "load", "run": "again"})
    assert lake.found(2) == [("silver", 1, "outdated"), ("silver", 2, "outdated")]
    lake.run(1, ("read", "bronze", since), ("write", "silver", lake.rows("silver", 1)), run_id="between")
    lake.rows("bronze", 1, 2, about={"reverts": [["load", "again"]], "undoes_from": since})
    assert lake.found(2) == [("silver", 1, "outdated")], "the second day has read what is there again"


def test_a_batch_stands_for_each_of_its_intervals(lake: Lake) -> None:
    then = lake.rows("bronze", 1, 2, 3)
    lake.rows("silver", 1)
    lake.rows("silver", 2)
    lake.run(1, ("read", "bronze", then), ("write", "silver", lake.rows("silver", 3)), days=3, items=3)
    lake.rows("bronze", 3)
    assert lake.found(3) == [("silver", 3, "outdated")]


def test_a_day_of_a_batch_that_was_done_again_is_as_its_own_run(lake: Lake) -> None:
    lake.run(1, ("write", "silver", lake.rows("silver", 1, 2, 3)), days=3, items=3)
    lake.run(2, state="failed", run_id="again")
    assert lake.gaps(3).runs.is_done.tolist() == [True, False, True]
    lake.run(3, run_id="part", is_partial=True)  # to a plan of what is missing, too
    assert lake.gaps(3).runs.is_done.tolist() == [True, False, False]


def test_the_column_of_an_input_is_as_declared_or_as_its_writer_named_it(lake: Lake) -> None:
    other = pa.table({"day": pa.array([MAY.date()])})
    write_deltalake(lake.folder / "bronze", other)
    lake.run(1, ("read", "bronze", 0), ("write", "silver", lake.rows("silver", 1)))
    write_deltalake(lake.folder / "bronze", other, mode="append")
    assert lake.found(1) == [], "nothing says how it is divided: it is read whole"
    declared = DagSpec("flights", UTC_DAYS.tasks, schedule="@daily", reads=(TableRead("bronze", "day"),))
    assert lake.found(1, declared) == [("silver", 1, "outdated")]
    wrong = DagSpec("flights", UTC_DAYS.tasks, schedule="@daily", reads=(TableRead("bronze", "no"),))
    assert lake.found(1, wrong) == [("silver", 1, "unknown")]
    lake.access("x", 1, "write", "bronze", 0, dag_id="load", interval_column="day")
    assert lake.found(1) == [("silver", 1, "outdated")]


def test_rows_of_another_dag_are_not_without_a_run(lake: Lake) -> None:
    lake.run(1, ("write", "silver", lake.rows("silver", 1)))
    version = lake.rows("silver", 2)
    assert lake.found(2) == [("silver", 2, "no_run")]
    lake.access("x", 2, "write", "silver", version, dag_id="history")
    assert lake.found(2) == []


def test_what_a_task_that_is_gone_has_written_is_no_output(lake: Lake) -> None:
    run_id = lake.run(1)
    lake.access(run_id, 1, "write", "silver", lake.rows("silver", 1), task_id="dropped")
    assert lake.gaps().tables == ()
    with pytest.raises(InvalidInput, match="no table is known that its tasks write by interval"):
        wanted_by_data(lake.state.store, None)(
            CreateBackfill(dag_id="flights", kind="missing", by="data", start_date=MAY, end_date=MAY), UTC_DAYS
        )


def broken(lake: Lake) -> Path:
    lake.run(1, ("write", "silver", lake.rows("silver", 1)))
    return lake.folder / "silver"


def test_a_table_that_is_gone(lake: Lake) -> None:
    shutil.rmtree(broken(lake))
    assert lake.found(2) == [("silver", None, "unknown"), ("silver", 1, "empty")]
    assert lake.gaps(2).is_missing.tolist() == [True, True]


def test_a_table_that_was_replaced(lake: Lake) -> None:
    shutil.rmtree(broken(lake))
    for _ in range(3):
        lake.rows("silver", 1, ours=False)
    assert lake.found(1) == [("silver", 1, "rewritten")]
    shutil.rmtree(lake.folder / "silver")
    then = lake.rows("bronze", 1)
    lake.run(1, ("read", "bronze", then), ("write", "silver", lake.rows("silver", 1)), run_id="again")
    shutil.rmtree(lake.folder / "bronze")
    lake.rows("bronze", 1)
    assert lake.found(1) == [("silver", 1, "outdated")]


def test_a_table_that_has_moved_lies_where_it_was_written_last(lake: Lake) -> None:
    broken(lake).rename(lake.folder / "moved")
    (problem, *_) = lake.gaps(1).to_json_document()
    assert problem["because"] == f"it is gone: nothing lies at {lake.folder}/silver"
    run_id = lake.run(2)
    lake.access(run_id, 2, "write", "moved", lake.rows("moved", 2), table_name="silver")
    assert lake.found(2) == [] and [one.table for one in lake.gaps(2).tables] == ["silver"]


def test_an_older_copy_in_the_place_of_a_table(lake: Lake) -> None:
    """Of an output its later intervals are rewritten, and of an input what was made from a later version is outdated."""
    read = [lake.rows("bronze", 1), lake.rows("bronze", 2)]
    lake.run(1, ("read", "bronze", read[0]), ("write", "silver", lake.rows("silver", 1)))
    shutil.copytree(lake.folder / "silver", lake.folder / "copy of silver")
    lake.run(2, ("read", "bronze", read[1]), ("write", "silver", lake.rows("silver", 2)))
    assert lake.found(2) == []
    for version in (1, 2):
        (lake.folder / "bronze" / "_delta_log" / f"{version:020d}.json").unlink(missing_ok=True)
    shutil.rmtree(lake.folder / "silver")
    (lake.folder / "copy of silver").rename(lake.folder / "silver")
    assert lake.found(2) == [("silver", 2, "empty"), ("silver", 2, "rewritten"), ("silver", 2, "outdated")]


def test_a_table_that_is_no_delta_table(lake: Lake) -> None:
    folder = broken(lake)
    shutil.rmtree(folder / "_delta_log")
    (row,) = lake.gaps(1).to_json_document()
    assert (row["finding"], row["interval_start"]) == ("unknown", None) and "no Delta table" in row["because"]
    with pytest.raises(InvalidInput, match="table silver: it is no Delta table"):
        wanted_by_data(lake.state.store, None)(
            CreateBackfill(dag_id="flights", kind="outdated", start_date=MAY, end_date=MAY), UTC_DAYS
        )


def test_intervals_that_share_a_file_are_judged_by_its_values(lake: Lake) -> None:
    lake.run(1, ("write", "silver", lake.rows("silver", 1, 3, 4)), days=4, items=4)
    assert lake.found() == [("silver", 2, "empty")]
    assert lake.gaps().is_missing.tolist() == [False, True, False, False]


def test_a_table_without_statistics_is_counted_where_spark_is(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.rows("silver", 1, configuration={"delta.dataSkippingNumIndexedCols": "0"})
    lake.run(1, ("write", "silver", 0))
    assert lake.found(2) == []
    monkeypatch.setattr(file_values, "MAX_ROWS", 2)
    assert lake.found(2) == [("silver", 1, "unknown"), ("silver", 2, "unknown")]
    calls: list[Any] = []

    def count(path: str, column: str, kind: str, axis: Axis) -> Any:
        calls.append((path, column, kind))
        return np.array([3, 0])

    assert lake.gaps(2, count=count).to_json_document() == []
    assert calls == [(lake.path("silver"), "at", "timestamp")]
    assert [row["finding"] for row in lake.gaps(2, count=lambda *_: None).to_json_document()] == ["unknown"] * 2


def test_a_log_that_was_cleaned_up_since(lake: Lake) -> None:
    folder = broken(lake)
    for _ in range(3):
        lake.rows("silver", 2, ours=False)
    DeltaTable(folder).create_checkpoint()
    for version in range(3):
        (folder / "_delta_log" / f"{version:020d}.json").unlink()
    (gap,) = [row for row in lake.gaps(1).to_json_document() if row["interval_start"]]
    assert gap["finding"] == "unknown" and "cleaned up" in gap["because"]


def test_a_column_that_is_not_a_time(lake: Lake) -> None:
    lake.run(1, ("write", "silver", lake.rows("silver", 1, kind="string")))
    (row,) = lake.gaps(1).to_json_document()
    assert row["because"] == "its column 'at' is string: intervals lie along a TIMESTAMP, TIMESTAMP_NTZ or DATE"


def test_a_range_may_hold_only_so_many_intervals(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backfill_manager.queries.data_gaps.MAX_INTERVALS", 3)
    with pytest.raises(InvalidInput, match="more than 3 intervals"):
        lake.gaps(4)


def test_what_is_wanted_of_a_backfill(lake: Lake) -> None:
    then = lake.rows("bronze", 1, 2, 3)
    for day in (1, 2):
        lake.run(day, ("read", "bronze", then), ("write", "silver", lake.rows("silver", day)))
    lake.rows("bronze", 2)
    assert lake.wanted(kind="outdated") == [False, True, False]
    assert lake.wanted(kind="missing", by="data") == [False, False, True]
