"""Requests pages over a state from this machine, without a browser."""

from __future__ import annotations

from fastapi.testclient import TestClient

from backfill_manager.api.app import create_app
from backfill_manager.clock import Clock
from backfill_manager.settings import Settings
from backfill_manager.store.base import Store
from backfill_manager.web import page, router


def browser_of(store: Store, clock: Clock, settings: Settings | None = None) -> TestClient:
    app = create_app(
        settings or Settings(), store, clock=clock, secret=b"k" * 32, extra_routers=[router.router],
        error_page=page.error_page,
    )  # fmt: skip
    return TestClient(app, base_url="http://localhost", client=("127.0.0.1", 50_000), follow_redirects=False)
