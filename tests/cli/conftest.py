"""`bfm(...)`: one command line, run in this process as the entry point runs it, on a real state in its own folder."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "views"))  # the state that both rooms' stories are told over
sys.path.insert(0, str(Path(__file__).parents[1] / "story"))  # a real manager

from command_line import Bfm, Said
from filled_state import FilledState, StandingClock

from backfill_manager.cli.app import run
from backfill_manager.cli.call import Call


@pytest.fixture
def clock() -> StandingClock:
    return StandingClock()


@pytest.fixture
def state(tmp_path: Path, clock: StandingClock) -> FilledState:
    return FilledState(tmp_path / "state", clock)


@pytest.fixture
def bfm(
    tmp_path: Path, clock: StandingClock, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Bfm:
    """In an empty folder, with an empty environment: `./state` is the state unless a test says otherwise."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FORCE_COLOR", raising=False)

    def run_it(*args: str, environ: dict[str, str] | None = None) -> Said:
        capfd.readouterr()
        code = run(args, Call(environ=environ or {}, clock=clock, pause=clock.pass_time))
        out, err = capfd.readouterr()
        return Said(code, out, err)

    return run_it
