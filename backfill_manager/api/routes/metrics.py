"""`/metrics` in Prometheus' format: what the state holds, and how this server does. Counted once for each change."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from time import perf_counter
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import Response
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backfill_manager.api.auth import Viewer
from backfill_manager.api.context import AppContext
from backfill_manager.api.responses import PREFIX
from backfill_manager.queries.managers import manager_status
from backfill_manager.queries.pools import list_pools

router = APIRouter(tags=["health"])
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_COUNTED: Final = (
    ("bfm_backfills", "Backfills by state.", "backfill"),
    ("bfm_backfill_items", "Items of backfills by state.", "backfill_item"),
    ("bfm_dag_runs", "DAG runs by state.", "dag_run"),
    ("bfm_task_instances", "Task instances by state.", "task_instance"),
)
_OF_THE_MANAGER: Final = (
    ("ticks", "Ticks of this term."),
    ("commits", "Commits of this term."),
    ("tick_ms", "Median of the last hundred ticks, in milliseconds."),
    ("commit_ms", "Median of the last hundred commits, in milliseconds."),
)
_OF_POOLS: Final = ("slots", "used", "queued", "running")


class StateCollector(Collector):
    """Gauges that are read from the state when they are asked for."""

    def __init__(self, house: AppContext) -> None:
        self._house = house

    def describe(self) -> list[Any]:
        return []  # so that registering reads nothing

    def collect(self) -> Iterator[GaugeMetricFamily]:
        store, house = self._house.store, self._house
        for name, told, table in _COUNTED:
            gauge = GaugeMetricFamily(name, told, labels=["state"])
            counts = house.cached_by_version((table,), ("metrics", table), partial(store.count, table, ("state",)))
            for (state,), number in sorted(counts.items()):
                gauge.add_metric([state], number)
            yield gauge
        yield from self._pools()
        yield from self._manager()

    def _pools(self) -> Iterator[GaugeMetricFamily]:
        tables = ("pool", "task_instance", "dag_version")
        pools = self._house.cached_by_version(tables, "metrics of pools", lambda: list_pools(self._house.store))
        for what in _OF_POOLS:
            gauge = GaugeMetricFamily(f"bfm_pool_{what}", f"Pools: {what}.", labels=["pool"])
            for pool in pools:
                gauge.add_metric([pool["name"]], pool[what])
            yield gauge

    def _manager(self) -> Iterator[GaugeMetricFamily]:
        status = manager_status(self._house.store, self._house.clock.now())
        yield GaugeMetricFamily("bfm_manager_leading", "1 when a living manager leads.", value=float(status["leading"]))
        yield GaugeMetricFamily("bfm_manager_term", "Term of the last leader.", value=status["term"] or 0)
        if status["term"] is not None:
            age_s = status["heartbeat_age_s"]
            yield GaugeMetricFamily("bfm_manager_heartbeat_age_seconds", "Since its last sign of life.", value=age_s)
            for name, told in _OF_THE_MANAGER:
                if (value := status[name]) is not None:
                    yield GaugeMetricFamily(f"bfm_manager_{name}", told, value=value)
        tables = ("request", "response")
        waiting = self._house.cached_by_version(tables, "waiting", lambda: len(self._house.store.unanswered()))
        yield GaugeMetricFamily("bfm_requests_waiting", "Requests that are not answered yet.", value=waiting)


class Metrics:
    """Counts and times the requests of one app; routes are told by their template, so ids make no new series."""

    def __init__(self, house: AppContext) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(StateCollector(house))
        self.requests = Counter(
            "bfm_http_requests", "Requests by route and status.", ["method", "route", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "bfm_http_request_seconds", "Time to the first byte of the answer.", ["method", "route"],
            registry=self.registry,
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60),
        )  # fmt: skip


class MeasureRequests:
    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = perf_counter()

        async def send_and_see(message: Message) -> None:
            if message["type"] == "http.response.start":
                method = scope["method"] if scope["method"] in _METHODS else "other"
                route = _template(scope)
                self._metrics.requests.labels(method, route, message["status"]).inc()
                self._metrics.seconds.labels(method, route).observe(perf_counter() - begun)
            await send(message)

        await self._app(scope, receive, send_and_see)


def _template(scope: Scope) -> str:
    """`/api/v1/dags/{dag_id}`; a route that was included with a prefix may not know it."""
    path = getattr(scope.get("route"), "path", None)
    if path is None:
        return "other"
    return path if not scope["path"].startswith(PREFIX) or path.startswith(PREFIX) else f"{PREFIX}{path}"


_METHODS: Final = frozenset({"GET", "POST", "PATCH", "DELETE", "PUT", "HEAD", "OPTIONS"})


@router.get(
    "/metrics", operation_id="get_metrics", response_class=Response,
    responses={200: {"description": "Prometheus' text format.", "content": {"text/plain": {"schema": {"type": "string"}}}}},
)  # fmt: skip
def metrics(request: Request, _: Viewer) -> Response:
    """Figures for Prometheus. It sends the token as `authorization` of its scrape configuration says."""
    return Response(generate_latest(request.app.state.metrics.registry), headers={"Content-Type": CONTENT_TYPE})
