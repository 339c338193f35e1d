"""What is printed on terminals that are narrow, and of texts that would control them."""

from __future__ import annotations

import json

import pytest
from support.bfm import Bfm
from support.sample_state import FilledState

from backfill_manager.cli.commands.run_watch import run_summary
from backfill_manager.cli.render.printer import Output, cell
from backfill_manager.dags.definition import TaskSpec

RUN = "backfill__2013-01-01T05:00:00Z"


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, *, columns: int) -> None:
    for name, value in {"FORCE_COLOR": "1", "NO_COLOR": "1", "COLUMNS": str(columns)}.items():
        monkeypatch.setenv(name, value)


def test_names_of_pools_stay_whole_on_a_narrow_terminal(
    bfm: Bfm, state: FilledState, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_terminal(monkeypatch, columns=50)
    state.pools()
    lines = [line.split()[:1] for line in bfm("pools", "list").out.splitlines()]
    assert ["scheduled"] in lines and ["backfill"] in lines


def test_no_column_of_what_matters_vanishes_on_a_narrow_terminal(
    bfm: Bfm, state: FilledState, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_terminal(monkeypatch, columns=50)
    state.dag()
    run_id = state.run("2013-01-01", {"clean": "failed"}, state="cancelled", reason="too late")
    shown = bfm("runs", "list").out
    assert any(run_id in line and "cancelled" in line for line in shown.splitlines()), "whole"
    assert {"fli", "ght", "s", "too", "late"} <= set(shown.split()), "broken over lines, and all there"


def test_runs_and_dags_take_a_line_each_on_a_terminal_of_80_columns(
    bfm: Bfm, state: FilledState, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_terminal(monkeypatch, columns=80)
    state.dag()
    run_id = state.run("2013-01-01", {"clean": "success"}, state="success")
    for noun, whole in (("runs", (run_id, "success")), ("dags", ("flights", "America/New_York"))):
        heading, _line, row = bfm(noun, "list").out.splitlines()
        assert set(whole) <= set(row.split()), (noun, heading, row)


def test_no_terminal_obeys_what_a_task_has_logged_or_failed_with(bfm: Bfm, state: FilledState) -> None:
    state.dag()
    state.backfill("b1", {"running": 1})
    state.logged(RUN, "\x1b]0;title\x07 and \x1b[31mred\u202e\nnext\tline")
    out = bfm("tasks", "logs", "flights", RUN, "clean").out
    assert r"\x1b]0;title\x07 and \x1b[31mred\u202e" in out and "\nnext " in out
    assert not {"\x1b", "\x07", "\u202e"} & set(out)
    assert str(cell("error", "\x1b[2J failed", None)) == r"\x1b[2J failed"


def test_no_terminal_obeys_an_error_in_a_line_of_its_own_or_in_a_document(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = "\x1b]0;title\x1b\\ \x9b31mred\u202e"
    run = {"run_id": RUN, "dag_id": "flights", "state": "failed", "duration_s": None, "reason": said}
    Output("table").print_line(run_summary(run))
    Output("json").print_document(run)
    line, _, document = capsys.readouterr().out.partition("\n")
    assert line.endswith(r"\x1b]0;title\x1b\ \x9b31mred\u202e")
    assert not {"\x1b", "\x9b", "\u202e"} & set(document) and json.loads(document) == run


def test_a_text_is_printed_as_it_is_and_no_picture_of_it(bfm: Bfm, state: FilledState) -> None:
    state.dag(tasks=[TaskSpec("totals", kind="sql", sql="SELECT raw:book:title, '[red]:dog:'")])
    assert "  SELECT raw:book:title, '[red]:dog:'" in bfm("dags", "render", "flights", "2013-01-05").out

    shown = bfm("state", "sql", """SELECT count(*) AS "days [total]", 1 AS ":dog:" FROM dag""")
    assert shown.out.splitlines()[0].split() == ["days", "[total]", ":dog:"]
