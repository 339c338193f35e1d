from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "views"))  # the state on disk that views' stories are told over

from api_stage import Stage


@pytest.fixture
def stage() -> Stage:
    return Stage()
