"""`%backfill` in a real IPython, on a real state."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import CapturedIO, capture_output
from support.sample_state import FilledState, StandingClock
from traitlets.config import Config

from backfill_manager.cli.context import CliContext
from backfill_manager.notebook import backfill, show


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.delenv("BFM_SERVER", raising=False)
    monkeypatch.delenv("BFM_STATE", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # a shell puts one of its own there
    config = Config()
    config.HistoryManager.enabled = False
    shell = InteractiveShell.instance(config=config)
    shell.run_line_magic("load_ext", "backfill_manager.notebook")
    yield shell
    InteractiveShell.clear_instance()


def shown(shell: InteractiveShell, line: str) -> CapturedIO:
    with capture_output() as captured:
        ran = shell.run_cell(line)
    captured.success = ran.success
    return captured


def texts(captured: CapturedIO, kind: str = "text/plain") -> list[str]:
    return [str(one.data[kind]) for one in captured.outputs if kind in one.data]


def test_a_backfill_is_drawn_once(shell: InteractiveShell, state: FilledState) -> None:
    state.backfill("b1", {"success": 2, "failed": 1}, state="failed")
    captured = shown(shell, "%backfill latest --once")
    assert captured.success
    assert "Backfill b1 of flights" in texts(captured)[-1]
    assert "2 success, 1 failed" in texts(captured)[-1]
    assert "<pre" in texts(captured, "text/html")[-1]


def test_the_newest_are_listed(shell: InteractiveShell, state: FilledState) -> None:
    assert "There are no backfills yet" in texts(shown(shell, "%backfill"))[-1]
    state.backfill("b1", {"success": 2, "failed": 1}, state="failed")
    (listed,) = texts(shown(shell, "%backfill"))
    assert "b1" in listed and "flights" in listed and "3 of 3" in listed


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%backfill nope", "UsageError: There is no backfill 'nope'"),
        ("%backfill --sate x", "UsageError: unrecognized arguments: --sate"),
        ("%backfill b1 --state s --server http://127.0.0.1:1", "UsageError: --server and --state don't go together"),
    ],
)
def test_what_is_wrong_is_one_line(shell: InteractiveShell, state: FilledState, line: str, message: str) -> None:
    state.backfill("b1", {"success": 1}, state="success")
    captured = shown(shell, line)
    assert not captured.success
    said = captured.stderr.strip()
    assert said.startswith(message) and len(said.splitlines()) == 1, said


def test_it_is_one_output_that_follows_the_backfill_to_its_end(
    shell: InteractiveShell, state: FilledState, clock: StandingClock
) -> None:
    state.leads()
    state.backfill("b1", {"running": 2})
    state.clock.meanwhile = [
        lambda: state.goes_on("b1", fail=[1]),
        lambda: state.goes_on("b1", "failed", succeed=[2], reason="1 item failed"),
    ]
    context = CliContext(state=str(state.root), environ={}, clock=clock, pause=clock.pass_time)
    captured = drawn(context)
    assert len({one.transient["display_id"] for one in captured.outputs}) == 1
    assert [one.update for one in captured.outputs] == [False, *[True] * (len(captured.outputs) - 1)]
    first, last = texts(captured)[1], texts(captured)[-1]
    assert "2 running" in first
    assert "failed 2013-01-01T05:00:00Z  clean: ValueError: no such [day]" in last
    assert "1 success, 1 failed" in last and "1 item failed" in last


def test_an_interrupt_ends_the_watching_with_the_last_card_standing(
    shell: InteractiveShell, state: FilledState, clock: StandingClock
) -> None:
    state.leads()
    state.backfill("b1", {"running": 2})

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    captured = drawn(CliContext(state=str(state.root), environ={}, clock=clock, pause=interrupt))
    assert "2 running" in texts(captured)[-1]
    assert "the backfill keeps running" in texts(captured)[-1]


def drawn(context: CliContext) -> Any:
    with capture_output() as captured:
        show(context, "b1")
    context.close()
    return captured


def test_its_help_names_it_as_it_is_typed() -> None:
    assert "%backfill [--state STATE]" in str(backfill.__doc__) and "%%" not in str(backfill.__doc__)
