from __future__ import annotations

import pytest
from support.api_server import ApiFixture


@pytest.fixture
def api() -> ApiFixture:
    return ApiFixture()
