"""`bfm(...)`: one command line, run in this process as the entry point runs it, on a real state in its own folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.bfm import Bfm, BfmResult
from support.sample_state import FilledState, StandingClock

from backfill_manager.cli.app import run
from backfill_manager.cli.context import CliContext


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

    def run_it(*args: str, environ: dict[str, str] | None = None) -> BfmResult:
        capfd.readouterr()
        code = run(args, CliContext(environ=environ or {}, clock=clock, pause=clock.pass_time))
        out, err = capfd.readouterr()
        return BfmResult(code, out, err)

    return run_it
