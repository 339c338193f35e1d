"""What `bfm backfill diff` and `revert` print of tables, for people."""

from __future__ import annotations

from typing import Any

import pytest

from backfill_manager.cli.commands.revert import _print_plan
from backfill_manager.cli.render.diff import print_diff
from backfill_manager.cli.render.printer import Output
from backfill_manager.cli.render.times import Times


def a_table(**changed: Any) -> dict[str, Any]:
    return {
        "table": "silver.flights", "version": 7, "cloned_version": 5, "key": ["id"], "added": 1, "removed": 0, "changed": 2,
        "same": 40, "schema_changes": [{"column": "delay", "old": "int", "new": None}],
        "columns": [{"name": "origin", "rows": 2, "examples": [{"key": {"id": 3}, "new": "JFK"}]}],
        "intervals": [{"interval": "2013-01-01 – 2013-01-02", "added": 1, "removed": 0, "changed": 2}],
        "examples": {"added": [{"id": 9}], "removed": []},
    } | changed  # fmt: skip


def test_a_comparison_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    print_diff(Output("table"), {"tables": [a_table()]})
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[2:6] == [
        "silver.flights by id 1 0 2 40",
        "silver.flights: column delay: int in the table, none in the preview",
        'silver.flights: origin differs in 2 rows, such as id=3: null → "JFK"',
        "silver.flights: added, such as id=9",
    ]
    assert lines[-1] == "2013-01-01 – 2013-01-02 1 0 2"


def test_a_table_that_does_not_exist_and_many_intervals(capsys: pytest.CaptureFixture[str]) -> None:
    many = [{"interval": str(n), "added": 1, "removed": 0, "changed": 0} for n in range(25)]
    print_diff(Output("table"), {"tables": [a_table(version=None, key=[], intervals=many)]})
    shown = capsys.readouterr()
    assert "whole rows" in shown.out and "does not exist yet; it will be made" in shown.out
    assert shown.err == "5 more intervals with differences; see --output json.\n"


NEW_YEAR = {"interval_start": "2013-01-01T05:00:00Z", "interval_end": "2013-01-02T05:00:00Z"}
ZONES = {"utc": ("T05:00:00Z", "T05:00:00Z"), "America/New_York": ("T00:00:00-05:00",) * 2,
         "dag": ("T14:00:00+09:00",) * 2}  # fmt: skip


@pytest.mark.parametrize("zone", ZONES)
def test_intervals_are_shown_in_the_chosen_zone(zone: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = Output("table", lambda: Times(zone, lambda: {"tokyo": "Asia/Tokyo"}))
    one = {"interval": "2013-01-01T05:00:00Z – 2013-01-02T05:00:00Z", "added": 1, "removed": 0, "changed": 2}
    print_diff(out, {"tables": [a_table(intervals=[one | NEW_YEAR])]}, "tokyo")
    start, end = ZONES[zone]
    assert f"2013-01-01{start} – 2013-01-02{end}" in capsys.readouterr().out

    table = {"table": "t", "back_to": [3], "rows_now": 1, "rows_then": 2, "runs": [{"dag_id": "tokyo", "run_id": "r"}]}
    for labels in (["one"], ["one", "two"]):
        _print_plan(out, {"tables": [table | {"intervals": labels} | NEW_YEAR], "readers": 0})
    shown = " ".join(capsys.readouterr().out.split())
    assert f"2013-01-01{start} – 2013-01-02{end}" in shown
    assert f"2 intervals: 2013-01-01{start} … 2013-01-02{end}" in shown


def test_intervals_of_dates_and_of_older_managers_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output("table", lambda: Times("Asia/Tokyo"))
    print_diff(out, {"tables": [a_table()]})
    table = {"table": "t", "back_to": [], "rows_now": 1, "rows_then": 2, "runs": [{"dag_id": "d", "run_id": "r"}]}
    for labels in (None, ["eu"], ["2013-01-01 – 2013-01-02", "2013-01-05 – 2013-01-06"]):
        _print_plan(out, {"tables": [table | {"intervals": labels}], "readers": 0})
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "2013-01-01 – 2013-01-02 1 0 2" in lines
    assert [lines[n] for n in (-7, -4, -1)] == [
        "t none: it was empty the whole table 1 1 2", "t none: it was empty eu 1 1 2",
        "t none: it was empty 2 intervals: 2013-01-01 – 2013-01-02 … 2013-01-05 – 2013-01-06 1 1 2",
    ]  # fmt: skip


def test_nothing_was_written(capsys: pytest.CaptureFixture[str]) -> None:
    print_diff(Output("table"), {"tables": []})
    assert capsys.readouterr().err == "No run of the preview that has succeeded has written a table.\n"
