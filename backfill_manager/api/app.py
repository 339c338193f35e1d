"""The composition root of the API: routes, error handlers and middleware.

    request ─► change log ─► security headers ─► rate limit ─► metrics ─► limits of the body ─► unauthenticated changes
            ─► HEAD ─► gzip ─► ids with slashes ─► authentication ─► a route

Routes read through `conditional_get` (cached by table version, with ETags) and submit commands through `submit` (one row in
the `request` table).
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Final

from fastapi import APIRouter, Depends, FastAPI
from starlette.middleware.gzip import GZipMiddleware

from backfill_manager import __version__
from backfill_manager.api.auth import RejectUnauthenticated
from backfill_manager.api.context import AppContext
from backfill_manager.api.errors import ErrorPage, add_error_handlers
from backfill_manager.api.middleware import BodyLimit, ChangeLog, HeadAsGet, RateLimit, SecurityHeaders
from backfill_manager.api.openapi import PREFIX, customize_openapi
from backfill_manager.api.parameters import KeepSlashes, reject_unknown_parameters
from backfill_manager.api.routes import backfills, bundles, dags, events, monitoring, pools, requests, runs
from backfill_manager.clock import Clock
from backfill_manager.settings import Settings
from backfill_manager.store.base import Store

App = FastAPI  # for callers outside this package, which need not know FastAPI
DESCRIPTION: Final = """Backfills, DAGs, runs and tasks, over the state tables.

Reads need no manager. A change is a request to the manager: `202` with the address of the request, or with
`?wait=seconds` the manager's answer. Errors are problem documents (RFC 9457). See docs/rest-api.md of the project.
"""
GZIP_MIN_BYTES: Final = 1000
GZIP_LEVEL: Final = 5  # of 9: higher levels take much longer for a hardly smaller page
ROUTERS: Final = (
    backfills.router, dags.router, runs.router, runs.of_dag_router, pools.router, bundles.router, requests.router,
    monitoring.router, events.router,
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
    """The API over `store`. `secret` signs the browsers' sessions: by default `api.session_secret`; without one, sessions
    end with this process. `extra_routers` are those of the pages, and `error_page` renders the errors at their addresses."""
    app = FastAPI(
        title="backfill_manager", version=__version__, description=DESCRIPTION, docs_url=None, redoc_url=None,
        redirect_slashes=False,
    )  # fmt: skip
    secret = secret or (settings.api.session_secret or "").encode() or secrets.token_bytes(32)
    app.state.context = context = AppContext(settings, store, clock, secret=secret)
    app.state.metrics, app.state.error_page = monitoring.Metrics(context), error_page
    for router in ROUTERS:
        app.include_router(router, prefix=PREFIX, dependencies=[Depends(reject_unknown_parameters)])
    for router in (monitoring.metrics_router, *extra_routers):
        app.include_router(router)
    add_error_handlers(app)
    customize_openapi(app)
    # The last one added is the first that a request passes.
    app.add_middleware(KeepSlashes)
    # Inside `HeadAsGet`, so that HEAD has the headers of GET. Events are never compressed, as that would delay them; ETags
    # are weak, so one names both forms of a response.
    app.add_middleware(GZipMiddleware, minimum_size=GZIP_MIN_BYTES, compresslevel=GZIP_LEVEL)
    app.add_middleware(HeadAsGet)
    app.add_middleware(RejectUnauthenticated, context=context)
    app.add_middleware(BodyLimit, max_bytes=settings.api.max_body_bytes, timeout_s=settings.api.body_timeout)
    app.add_middleware(monitoring.MeasureRequests, metrics=app.state.metrics)
    app.add_middleware(RateLimit, clock=clock, per_second=settings.api.requests_per_second)
    app.add_middleware(SecurityHeaders)
    app.add_middleware(ChangeLog, clock=clock)
    return app
