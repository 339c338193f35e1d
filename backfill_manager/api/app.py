"""Where the API is wired: read this to learn what there is.

    request ─► change log ─► security headers ─► rate limit ─► metrics ─► body ─► strangers ─► gzip ─► ids with slashes
            ─► access ─► a route

Routes read by `reading` (cached by table version, with ETags) and ask by `asking` (one row in `request`).
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final

from fastapi import APIRouter, Depends, FastAPI
from starlette.middleware.gzip import GZipMiddleware

from backfill_manager import __version__
from backfill_manager.api.auth import RefuseStrangers
from backfill_manager.api.context import AppContext
from backfill_manager.api.errors import ErrorPage, tell_problems
from backfill_manager.api.middleware import BodyLimit, ChangeLog, HeadAsGet, RateLimit, SecurityHeaders
from backfill_manager.api.openapi import document
from backfill_manager.api.parameters import only_known_parameters
from backfill_manager.api.paths import KeepSlashes
from backfill_manager.api.responses import PREFIX
from backfill_manager.api.routes import (
    backfills,
    dags,
    events,
    health,
    metrics,
    pools,
    requests,
    runs,
)
from backfill_manager.clock import Clock
from backfill_manager.settings import Settings
from backfill_manager.store.base import Store

App = FastAPI  # for those who may not know FastAPI
DESCRIPTION: Final = """Backfills and everything around them, over the state tables.

Reading needs no manager. A change is a request to the manager: `202` with where to look for its answer, or with
`?wait=seconds` the answer itself. Errors are problem documents (RFC 9457). See docs/rest-api.md of the project.
"""
COMPRESSED_FROM: Final = 1000  # bytes
COMPRESSION: Final = 5  # of 9: beyond, a page gets hardly smaller and takes much longer
ROUTERS: Final = (
    backfills.router, dags.router, dags.errors_router, runs.router, runs.of_dag_router, pools.router,
    pools.bundles_router, requests.router, health.router, events.router,
)  # fmt: skip


def create_app(
    settings: Settings,
    store: Store,
    *,
    clock: Clock,
    secret: bytes | None = None,
    extra_routers: Sequence[APIRouter] = (),
    error_page: ErrorPage | None = None,
) -> FastAPI:
    """The API over `store`. `secret` signs the browsers' sessions: by default `api.session_secret`; without one they end
    with this process.
    `extra_routers` come from above (pages), and with them the `error_page` that tells what went wrong at their addresses."""
    app = FastAPI(
        title="backfill_manager", version=__version__, description=DESCRIPTION, docs_url=None, redoc_url=None,
        redirect_slashes=False,
    )  # fmt: skip
    known = (settings.api.session_secret or "").encode()
    house = AppContext(settings, store, clock, secret=secret or known or secrets.token_bytes(32))
    app.state.house, app.state.metrics, app.state.error_page = house, metrics.Metrics(house), error_page
    for router in ROUTERS:
        app.include_router(router, prefix=PREFIX, dependencies=[Depends(only_known_parameters)])
    app.include_router(metrics.router)
    for router in extra_routers:
        app.include_router(router)
    tell_problems(app)
    document(app)
    # The last that is added is the first that a request meets.
    app.add_middleware(KeepSlashes)
    # Within `HeadAsGet`, so that HEAD tells of what GET sends. A stream of events is never compressed, as it would be held
    # back; ETags are weak, and so name both forms of an answer.
    app.add_middleware(GZipMiddleware, minimum_size=COMPRESSED_FROM, compresslevel=COMPRESSION)
    app.add_middleware(HeadAsGet)
    app.add_middleware(RefuseStrangers, house=house)
    app.add_middleware(BodyLimit, most=settings.api.max_body_bytes, within_s=settings.api.body_timeout)
    app.add_middleware(metrics.MeasureRequests, metrics=app.state.metrics)
    app.add_middleware(RateLimit, clock=clock, per_second=settings.api.requests_per_second)
    app.add_middleware(SecurityHeaders)
    app.add_middleware(ChangeLog, clock=clock)
    return app
