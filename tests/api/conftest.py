from __future__ import annotations

import pytest
from support.api_server import Stage


@pytest.fixture
def stage() -> Stage:
    return Stage()
