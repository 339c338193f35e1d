"""`bfm backfill diff` for people."""

from __future__ import annotations

from typing import Any

import pytest

from backfill_manager.cli.render.diff import print_diff
from backfill_manager.cli.render.printer import Output


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


def test_nothing_was_written(capsys: pytest.CaptureFixture[str]) -> None:
    print_diff(Output("table"), {"tables": []})
    assert capsys.readouterr().err == "No run of the preview that has succeeded has written a table.\n"
