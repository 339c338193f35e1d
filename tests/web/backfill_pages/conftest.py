"""Fixtures of the pages of backfills."""

from __future__ import annotations

from datetime import datetime

import pytest
from fastapi.testclient import TestClient
from support.backfill_pages import (
    SPECS,
)
from support.page_client import browser_of

from backfill_manager.clock import UTC, SystemClock
from backfill_manager.testing import FakeClock, InMemoryManager


@pytest.fixture
def manager() -> InMemoryManager:
    """Nothing has run yet; tasks run until a test ends them."""
    return InMemoryManager(*SPECS, script=lambda launch: None, clock=FakeClock(datetime(2024, 1, 31, 12, tzinfo=UTC)))


@pytest.fixture
def browser(manager: InMemoryManager) -> TestClient:
    return browser_of(manager.store, SystemClock())
