"""Where the API is wired: read this to learn what there is."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final

from fastapi import APIRouter, FastAPI

from backfill_manager import __version__
from backfill_manager.api import health
from backfill_manager.api.house import House
from backfill_manager.api.problems import tell_problems
from backfill_manager.clock import Clock
from backfill_manager.settings import Settings
from backfill_manager.store.contract import Store

PREFIX: Final = "/api/v1"


def create_app(
    settings: Settings,
    store: Store,
    *,
    clock: Clock,
    secret: bytes | None = None,
    extra_routers: Sequence[APIRouter] = (),
) -> FastAPI:
    """The API over `store`. `secret` signs the browsers' sessions; without one they end with this process.
    `extra_routers` come from above (pages)."""
    app = FastAPI(title="backfill_manager", version=__version__, docs_url=None, redoc_url=None)
    app.state.house = House(settings, store, clock, secret=secret or secrets.token_bytes(32))
    tell_problems(app)
    for router in (health.router,):
        app.include_router(router, prefix=PREFIX)
    for router in extra_routers:
        app.include_router(router)
    return app
