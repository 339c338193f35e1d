"""The composition root of the API: routes, error handlers and middleware.

    request ─► trusted proxies ─► public path ─► change log ─► security headers ─► limits of the client ─► metrics
            ─► limits of the body ─► unauthenticated changes ─► HEAD ─► gzip ─► ids with slashes ─► authentication ─► a route

Routes read through `conditional_get` (cached by table version, with ETags) and submit commands through `submit` (one row in
the `request` table).
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from fastapi import APIRouter, Depends, FastAPI
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute

from backfill_manager.api.auth import RejectUnauthenticated, Viewer
from backfill_manager.api.client_addresses import TrustedProxies
from backfill_manager.api.client_limits import ClientLimits
from backfill_manager.api.context import AppContext, Context
from backfill_manager.api.errors import ErrorPage, add_error_handlers
from backfill_manager.api.middleware import BodyLimit, ChangeLog, HeadAsGet, OneLook, PublicPath, SecurityHeaders
from backfill_manager.api.openapi import PREFIX, document_of
from backfill_manager.api.parameters import KeepSlashes, reject_unknown_parameters
from backfill_manager.api.preconditions import check_preconditions
from backfill_manager.api.routes import (
    backfills,
    dags,
    events,
    monitoring,
    notifications,
    pools,
    requests,
    runs,
    tables,
)
from backfill_manager.clock import Clock
from backfill_manager.settings import Settings
from backfill_manager.store.base import Store

App = FastAPI  # for callers outside this package, which need not know FastAPI
GZIP_MIN_BYTES: Final = 1000
GZIP_LEVEL: Final = 5  # of 9: higher levels take much longer for a hardly smaller page
ROUTERS: Final = (
    backfills.router, dags.router, runs.router, runs.of_dag_router, pools.router, dags.bundles_router, requests.router,
    notifications.router, tables.router, monitoring.router, events.router,
)  # fmt: skip


@cache
def api_routes() -> list[BaseRoute]:
    """Made once, for all apps of this process: it takes longer than all the rest of an app."""
    root, checks = APIRouter(), [Depends(reject_unknown_parameters), Depends(check_preconditions)]
    for router in ROUTERS:
        root.include_router(router, prefix=PREFIX, dependencies=checks)
    root.include_router(monitoring.metrics_router)
    root.add_api_route("/openapi.json", _document, include_in_schema=False)
    for usual in ("/health", "/healthz"):
        root.add_api_route(usual, _to_health, include_in_schema=False)
    return root.routes


@cache
def openapi() -> dict[str, Any]:
    """The content of `/openapi.json`, made once."""
    return document_of(api_routes())


def _document(context: Context, _: Viewer) -> Response:
    path = context.settings.api.path
    return JSONResponse({**openapi(), **({"servers": [{"url": path}]} if path else {})})


def _to_health() -> Response:
    return RedirectResponse(f"{PREFIX}/health")


def create_app(
    settings: Settings, store: Store, *, clock: Clock, secret: bytes | None = None,
    extra_routers: Sequence[APIRouter] = (), error_page: ErrorPage | None = None,
) -> FastAPI:  # fmt: skip
    """The API over `store`. `secret` signs the browsers' sessions: by default `api.session_secret`; without one, sessions
    end with this process. `extra_routers` are those of the pages, and `error_page` renders the errors at their addresses."""
    routes = [*api_routes(), *(route for router in extra_routers for route in router.routes)]
    app = FastAPI(routes=routes, openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.openapi = openapi  # type: ignore[method-assign]
    secret = secret or (settings.api.session_secret or "").encode() or secrets.token_bytes(32)
    app.state.context = context = AppContext(settings, store, clock, secret=secret)
    app.state.metrics, app.state.error_page = monitoring.Metrics(context), error_page
    add_error_handlers(app)
    # The last one added is the first that a request passes.
    app.add_middleware(KeepSlashes)
    # Inside `HeadAsGet`, so that HEAD has the headers of GET. Events are never compressed, as that would delay them; ETags
    # are weak, so one names both forms of a response.
    app.add_middleware(GZipMiddleware, minimum_size=GZIP_MIN_BYTES, compresslevel=GZIP_LEVEL)
    app.add_middleware(OneLook)
    app.add_middleware(HeadAsGet)
    app.add_middleware(RejectUnauthenticated, context=context)
    app.add_middleware(BodyLimit, max_bytes=settings.api.max_body_bytes, timeout_s=settings.api.body_timeout)
    app.add_middleware(ClientLimits, context=context)
    app.add_middleware(monitoring.MeasureRequests, metrics=app.state.metrics)
    app.add_middleware(SecurityHeaders)
    app.add_middleware(ChangeLog, clock=clock)
    app.add_middleware(PublicPath, path=settings.api.path)
    app.add_middleware(TrustedProxies, networks=settings.api.trusted_proxies)
    return app
