"""A filled state for each story."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.sample_state import FilledState, StandingClock


@pytest.fixture
def clock() -> StandingClock:
    return StandingClock()


@pytest.fixture
def state(tmp_path: Path, clock: StandingClock) -> FilledState:
    return FilledState(tmp_path / "state", clock)
