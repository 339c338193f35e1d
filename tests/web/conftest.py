"""Fixtures for page tests: a `TestClient` over a state in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from support.busy_state import busy_ground, empty_store
from support.page_client import browser_of

from backfill_manager.api.auth import sha256_of
from backfill_manager.settings import Settings
from backfill_manager.testing import FakeClock, InMemoryManager
from backfill_manager.web import page

TOKENS = {"ada": "operator", "ben": "viewer"}


@pytest.fixture(autouse=True)
def nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are answered only when a test ticks its manager, so pages must not wait for a response."""
    monkeypatch.setattr(page, "RESPONSE_TIMEOUT_S", 0.0)


@pytest.fixture(scope="module")
def busy_ground_of_module() -> InMemoryManager:
    return busy_ground()


@pytest.fixture
def busy(busy_ground_of_module: InMemoryManager) -> TestClient:
    """Shared, read only."""
    return browser_of(busy_ground_of_module.store, busy_ground_of_module.clock)


@pytest.fixture
def manager() -> InMemoryManager:
    """For tests that change the state."""
    return busy_ground()


@pytest.fixture
def browser(manager: InMemoryManager) -> TestClient:
    return browser_of(manager.store, manager.clock)


@pytest.fixture
def empty() -> TestClient:
    return browser_of(empty_store(), FakeClock())


@pytest.fixture
def logged_in(
    manager: InMemoryManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], TestClient]]:
    """A client logged in as the named user."""
    monkeypatch.setenv("BFM_CACHE", str(tmp_path))  # which sessions were logged out, of a state in memory
    tokens = [{"name": name, "role": role, "sha256": sha256_of(f"token of {name}")} for name, role in TOKENS.items()]
    settings = Settings.model_validate({"api": {"tokens": tokens}})

    def enter(name: str) -> TestClient:
        browser = browser_of(manager.store, manager.clock, settings)
        if name:
            answer = browser.post("/login", data={"token": f"token of {name}", "next": "/pools"})
            assert (answer.status_code, answer.headers["location"]) == (303, "/pools")
        return browser

    yield enter
