"""`bfm backfill gaps`, over the tables and over a server."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest
from support.bfm import Bfm
from support.lake import Lake
from support.sample_state import FilledState, StandingClock

from backfill_manager.api.app import create_app
from backfill_manager.api.server import listen, served_beside
from backfill_manager.cli.context import CliContext
from backfill_manager.settings import Settings
from backfill_manager.store.data_tables import file_values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RANGE = ("--from", "2024-05-01", "--to", "2024-05-04")


@pytest.fixture
def lake(state: FilledState, tmp_path: Path) -> Lake:
    lake = Lake(state, tmp_path / "lake")
    lake.story()
    return lake


def test_findings_as_a_table_with_what_to_do(bfm: Bfm, lake: Lake) -> None:
    shown = bfm("backfill", "gaps", "flights", *RANGE)
    assert shown.code == 0
    for text in ("2024-05-02", "empty", "rewritten", "outdated", "bronze has changed in its version 1"):
        assert text in shown.out
    assert f"bfm backfill create flights {' '.join(RANGE)} --kind missing --by data`" in shown.err
    assert f"bfm backfill create flights {' '.join(RANGE)} --kind outdated`" in shown.err
    few = bfm("backfill", "gaps", "flights", *RANGE, "--limit", "1")
    assert "1 of 3 findings (1 empty, 1 rewritten, 1 outdated)" in few.err


def test_a_backfill_that_would_run_nothing_is_not_suggested(bfm: Bfm, lake: Lake) -> None:
    lake.access(lake.run(2, state="success"), 2, "write", "silver", 0, rows_written=0)
    shown = bfm("backfill", "gaps", "flights", *RANGE)
    assert "it wrote no row" in shown.out and "--kind missing" not in shown.err and "--kind outdated" in shown.err


def test_findings_as_json_are_the_same_over_a_server(bfm: Bfm, lake: Lake, clock: StandingClock) -> None:
    command = ("backfill", "gaps", "flights", *RANGE, "--output", "json")
    local = bfm(*command).document
    assert [(row["interval_start"], row["finding"]) for row in local] == [
        ("2024-05-02T00:00:00Z", "empty"), ("2024-05-03T00:00:00Z", "rewritten"), ("2024-05-04T00:00:00Z", "outdated"),
    ]  # fmt: skip
    settings = Settings(state=str(lake.state.root))
    with served_beside(create_app(settings, lake.state.store, clock=clock), listen("127.0.0.1", 0)) as url:
        assert bfm(*command, "--server", url).document == local
        assert "--count starts Spark" in bfm(*command, "--server", url, "--count").error
    one = bfm(*command, "--finding", "empty").document
    assert [row["finding"] for row in one] == ["empty"]


@pytest.mark.parametrize("is_gone", [False, True])
def test_findings_over_a_server_have_the_order_of_local_ones_from_page_to_page(
    bfm: Bfm, lake: Lake, clock: StandingClock, is_gone: bool
) -> None:
    lake.rows("silver", 4, ours=False)
    if is_gone:
        shutil.rmtree(lake.folder / "silver")
    command = ("backfill", "gaps", "flights", *RANGE, "--output", "json")
    local = bfm(*command).document
    found = [(row["interval_start"], row["finding"]) for row in local]
    if is_gone:
        assert found[0] == (None, "unknown"), "what holds of the whole table comes first"
    else:
        assert found[-2:] == [("2024-05-04T00:00:00Z", "rewritten"), ("2024-05-04T00:00:00Z", "outdated")]
    app = create_app(Settings(state=str(lake.state.root)), lake.state.store, clock=clock)
    with served_beside(app, listen("127.0.0.1", 0)) as url:
        assert bfm(*command, "--server", url).document == local
        address = f"{url}/api/v1/dags/flights/gaps?start_date=2024-05-01&end_date=2024-05-04&limit=1"
        read, cursor = [], ""
        while cursor is not None:
            with urlopen(address + (f"&cursor={cursor}" if cursor else "")) as answer:
                page = json.load(answer)
            read, cursor = read + page["items"], page["next_cursor"]
        assert read == local


def test_a_reversed_range_is_refused_with_the_dates_as_they_were_typed(
    bfm: Bfm, lake: Lake, clock: StandingClock
) -> None:
    command = ("backfill", "gaps", "flights", "--from", "2024-05-09", "--to", "2024-05-04")
    assert "--from 2024-05-09 is after --to 2024-05-04;" in bfm(*command).error
    app = create_app(Settings(state=str(lake.state.root)), lake.state.store, clock=clock)
    with served_beside(app, listen("127.0.0.1", 0)) as url:
        assert "--from 2024-05-09 is after --to 2024-05-04;" in bfm(*command, "--server", url).error


def test_no_gaps_and_a_range_that_holds_nothing(bfm: Bfm, lake: Lake) -> None:
    none = bfm("backfill", "gaps", "flights", "--from", "2024-05-01", "--to", "2024-05-01").err
    assert "No gaps" in none
    assert "`bfm backfill create flights --from 2024-05-01 --to 2024-05-01 --kind missing --dry-run`" in none
    assert "--from" in bfm("backfill", "gaps", "flights", "--from", "2024-05-09", "--to", "2024-05-04").error
    assert "--to must not be empty" in bfm("backfill", "gaps", "flights", "--to", "").error
    assert "'flights'" in bfm("backfill", "gaps", "flight").error
    assert "there are empty, no_run" in bfm("backfill", "gaps", "flights", "--finding", "emty").error


def test_before_the_first_run_nothing_is_compared(
    bfm: Bfm, state: FilledState, clock: StandingClock, tmp_path: Path
) -> None:
    state.dag("flights")
    state.dag("flights.old")
    other = Lake(state, tmp_path / "lake")
    other.access(state.run(dag_id="flights.old"), 1, "write", "silver", 0, dag_id="flights.old")
    said = "Nothing to compare: no run of flights has written a table yet."
    assert said in bfm("backfill", "gaps", "flights", *RANGE).err
    app = create_app(Settings(state=str(state.root)), state.store, clock=clock)
    with served_beside(app, listen("127.0.0.1", 0)) as url:
        assert said in bfm("backfill", "gaps", "flights", *RANGE, "--server", url).err


def test_rows_that_are_too_many_to_read_are_counted_with_spark(
    bfm: Bfm, lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark is that of the tests; a command starts one of its own."""

    @contextmanager
    def running(context: CliContext) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr("backfill_manager.cli.backend.local_spark.local_spark", running)
    lake.run(5, ("write", "silver", lake.rows("silver", 5, 6)))
    command = ("backfill", "gaps", "flights", "--from", "2024-05-05", "--to", "2024-05-06")
    assert [row["finding"] for row in bfm(*command, "--output", "json").document] == ["no_run"]
    monkeypatch.setattr(file_values, "MAX_ROWS", 5)
    open_ = bfm(*command)
    assert open_.out.count("unknown") == 1 and "(2 intervals)" in open_.out and "--count counts them" in open_.err
    assert [row["finding"] for row in bfm(*command, "--output", "json").document] == ["unknown"] * 2
    assert [row["finding"] for row in bfm(*command, "--count", "--output", "json").document] == ["no_run"]


def test_what_is_unknown_of_neighbouring_intervals_is_one_line_whatever_else_is_found_in_them(
    bfm: Bfm, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def row(day: int | None, finding: str = "unknown", table: str = "silver") -> dict[str, str | int | None]:
        start, end = (None, None) if day is None else (f"2024-05-{day:02}T00:00:00Z", f"2024-05-{day + 1:02}T00:00:00Z")
        return {
            "dag_id": "flights", "table": table, "finding": finding, "because": "as it is", "interval_start": start,
            "interval_end": end, "rows": None, "usual_rows": None, "run_id": f"run{day}",
        }  # fmt: skip

    found = [row(None), row(None), row(1), row(2), row(2, "outdated"), row(3), row(5), row(6, table="gold")]
    monkeypatch.setattr("backfill_manager.cli.backend.local.LocalBackend.gaps", lambda *_, **__: found)
    lines = [line.split() for line in bfm("backfill", "gaps", "flights").out.splitlines() if "as it is" in line]
    assert [line[0] for line in lines] == ["silver"] * 5 + ["gold"]
    assert [" ".join(line).count("(3 intervals)") for line in lines] == [0, 0, 1, 0, 0, 0]
    few = bfm("backfill", "gaps", "flights", "--limit", "3").err
    assert "5 of 8 findings (1 outdated, 7 unknown)" in few, "of the intervals, not of the lines"


def test_several_dags_and_all_that_have_a_schedule(bfm: Bfm, lake: Lake, clock: StandingClock) -> None:
    lake.state.dag("other")
    lake.state.dag("manual", schedule=None)
    one = bfm("backfill", "gaps", "flights", *RANGE, "--output", "json").document
    every = ("backfill", "gaps", *RANGE, "--output", "json")
    assert (
        bfm(*every).document == bfm("backfill", "gaps", "other", "flights", *RANGE, "--output", "json").document == one
    )
    shown = bfm("backfill", "gaps", *RANGE)
    assert "DAG" in shown.out and "flights" in shown.out
    assert f"bfm backfill create flights {' '.join(RANGE)} --kind outdated`" in shown.err, "the one that has any"
    assert "2 DAGs hold what their runs" in bfm("backfill", "gaps", "--from", "2024-05-01", "--to", "2024-05-01").err
    named = bfm("backfill", "gaps", "manual", "flights", *RANGE)
    assert named.code == 0 and "manual: " in named.err, "the others are shown"
    assert bfm("backfill", "gaps", "nothing", "flights", *RANGE).code != 0
    settings = Settings(state=str(lake.state.root))
    with served_beside(create_app(settings, lake.state.store, clock=clock), listen("127.0.0.1", 0)) as url:
        assert bfm(*every, "--server", url).document == one


def test_a_range_that_no_dag_takes_is_refused_and_no_dag_without_gaps(bfm: Bfm, lake: Lake) -> None:
    lake.state.dag("other")
    for dags in ((), ("flights", "other")):
        refused = bfm("backfill", "gaps", *dags, "--from", "nonsense")
        assert (refused.code, refused.out) == (2, "")
        assert "--from: 'nonsense' is not a date" in refused.error
        assert "--from 2024-05-09 is after" in bfm("backfill", "gaps", *dags, "--from", "2024-05-09", *RANGE[2:]).error

    lake.state.dag("manual", schedule=None)
    some = bfm("backfill", "gaps", "manual", "other", "flights", "--from", "2024-05-01", "--to", "2024-05-01")
    assert some.code == 0 and "manual: " in some.err
    assert "No gaps: the tables of 2 DAGs hold" in some.err, "of those that were compared"
