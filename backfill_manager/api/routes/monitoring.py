"""`/health`: for probes, without a token; and `/metrics` for Prometheus, computed once for each change of the state."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from time import perf_counter
from typing import Any, Final, get_args

from fastapi import APIRouter, Request
from fastapi.responses import Response
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backfill_manager import __version__
from backfill_manager.api.auth import Viewer, user_or_none
from backfill_manager.api.context import AppContext, Context
from backfill_manager.api.middleware import Middleware, on_start
from backfill_manager.api.openapi import PREFIX, READS
from backfill_manager.errors import StateError
from backfill_manager.model import states as s
from backfill_manager.model.records import TABLES
from backfill_manager.queries.managers import manager_status
from backfill_manager.queries.pools import list_pools
from backfill_manager.schemas.checks import CheckOutcome
from backfill_manager.schemas.resources import Health, ManagerStatus
from backfill_manager.store.base import Condition

router = APIRouter(tags=["health"])
metrics_router = APIRouter(tags=["health"])
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_COUNTS: Final = {
    "backfill": ("Backfills", s.BACKFILL_STATES), "backfill_item": ("Items of backfills", s.ITEM_STATES),
    "dag_run": ("DAG runs", s.RUN_STATES), "task_instance": ("Task instances", s.TASK_STATES),
}  # fmt: skip
_MANAGER_GAUGES: Final = (
    ("heartbeat_age_seconds", "heartbeat_age_s", "Since its last heartbeat."),
    ("ticks", "ticks", "Ticks of this term."),
    ("commits", "commits", "Commits of this term."),
    ("tick_ms", "tick_ms", "Median of the last hundred ticks, in milliseconds."),
    ("commit_ms", "commit_ms", "Median of the last hundred commits, in milliseconds."),
)
_POOL_GAUGES: Final = ("slots", "used", "queued", "running")
_METHODS: Final = frozenset({"GET", "POST", "PATCH", "DELETE", "PUT", "HEAD", "OPTIONS"})


@router.get(
    "/health", operation_id="get_health", response_model=Health,
    responses={status: READS[status] for status in (403, 422, 429, 431, 503)},
)  # fmt: skip
def health(request: Request, context: Context) -> Health:
    """Returns whether the state can be read (`503` if not), and whether a manager is running. Without a manager, reads work and
    changes wait for the next one."""
    user = user_or_none(context, request)
    try:
        context.versions(tuple(TABLES))  # opens every table, also those that the rest does not need
        status = manager_status(context.store, context.clock.now())
    except StateError:
        if user is None:  # it says where the state is
            raise StateError("The state can't be read. A request with a token says why.") from None
        raise
    return Health(
        status="ok",
        manager="leading" if status["leading"] else "none",
        detail=status["advice"],
        leader=ManagerStatus.model_validate(status) if user and status["term"] is not None else None,
        version=__version__,
    )


@metrics_router.get(
    "/metrics", operation_id="get_metrics", response_class=Response,
    responses={
        200: {"description": "Metrics in Prometheus' text format.", "content": {"text/plain": {"schema": {"type": "string"}}}},
        **{status: READS[status] for status in (401, 403, 429, 431, 503)},
    },
)  # fmt: skip
def get_metrics(request: Request, _: Viewer) -> Response:
    """Returns metrics for Prometheus, which sends the token given as `authorization` in its scrape configuration."""
    return Response(generate_latest(request.app.state.metrics.registry), headers={"Content-Type": CONTENT_TYPE})


class StateCollector(Collector):
    """Gauges of the state, read when Prometheus scrapes."""

    def __init__(self, context: AppContext) -> None:
        self._context = context

    def describe(self) -> list[Any]:
        return []  # so that registering reads nothing

    def collect(self) -> Iterator[GaugeMetricFamily]:
        cached, store = self._context.cached_by_version, self._context.store
        # Of each count also 0: what compares a value with one before it needs the sample before the first.
        for table, (rows, states) in _COUNTS.items():
            gauge = GaugeMetricFamily(f"bfm_{table}s", f"{rows} by state.", labels=["state"])
            counts = cached((table,), ("metrics", table), partial(store.count, table, ("state",)))
            for state in states:
                gauge.add_metric([state], counts.get((state,), 0))
            yield gauge
        gauge = GaugeMetricFamily("bfm_scheduled_runs", "Scheduled DAG runs by state.", labels=["state"])
        scheduled = [Condition("run_type", "=", s.SCHEDULED_RUN)]
        counts = cached(("dag_run",), ("metrics", "scheduled"), partial(store.count, "dag_run", ("state",), scheduled))
        for state in s.RUN_STATES:
            gauge.add_metric([state], counts.get((state,), 0))
        yield gauge
        gauge = GaugeMetricFamily(
            "bfm_check_results", "Checks of rows before they are published, by outcome.", labels=["outcome"]
        )
        counts = cached(("check_result",), ("metrics", "checks"), partial(store.count, "check_result", ("outcome",)))
        for outcome in get_args(CheckOutcome):
            gauge.add_metric([outcome], counts.get((outcome,), 0))
        yield gauge
        pools = cached(("pool", "task_instance", "dag_version"), ("metrics", "pools"), lambda: list_pools(store))
        for name in _POOL_GAUGES:
            gauge = GaugeMetricFamily(f"bfm_pool_{name}", f"Pools: {name}.", labels=["pool"])
            for pool in pools:
                gauge.add_metric([pool["name"]], pool[name])
            yield gauge
        yield from self._manager()
        waiting = cached(("request", "response"), ("metrics", "waiting"), lambda: len(store.unanswered()))
        yield GaugeMetricFamily("bfm_requests_waiting", "Requests without a response.", value=waiting)
        unsent = [Condition("state", "=", "waiting"), Condition("failures", ">", 0)]
        counts = cached(
            ("notification",), ("metrics", "notifications"), partial(store.count, "notification", (), unsent)
        )
        yield GaugeMetricFamily(
            "bfm_notifications_failing", "Notifications that wait because an attempt to send them has failed.",
            value=counts.get((), 0),
        )  # fmt: skip

    def _manager(self) -> Iterator[GaugeMetricFamily]:
        status = manager_status(self._context.store, self._context.clock.now())
        yield GaugeMetricFamily("bfm_manager_leading", "1 when a manager is running.", value=float(status["leading"]))
        yield GaugeMetricFamily("bfm_manager_term", "Term of the last leader.", value=status["term"] or 0)
        for name, key, help in _MANAGER_GAUGES if status["term"] is not None else ():
            if (value := status[key]) is not None:
                yield GaugeMetricFamily(f"bfm_manager_{name}", help, value=value)
        help = "For which one of its loops has been at the same work, or hangs; 0 unless that is unusually long."
        yield GaugeMetricFamily("bfm_manager_slow_loop_seconds", help, value=status.get("slow_loop_s") or 0.0)


class Metrics:
    """Counts and times the requests of one app, by route template (so ids make no new series)."""

    def __init__(self, context: AppContext) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(StateCollector(context))
        self.requests = Counter(
            "bfm_http_requests", "Requests by route and status.", ["method", "route", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "bfm_http_request_seconds", "Time to the first byte of the response.", ["method", "route"],
            registry=self.registry,
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60),
        )  # fmt: skip


class MeasureRequests(Middleware):
    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        super().__init__(app)
        self._metrics = metrics

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        started, has_answered = perf_counter(), False

        def measure(message: Message) -> None:
            nonlocal has_answered
            has_answered = True
            method = scope["method"] if scope["method"] in _METHODS else "other"
            route = _template(scope)
            self._metrics.requests.labels(method, route, message["status"]).inc()
            self._metrics.seconds.labels(method, route).observe(perf_counter() - started)

        try:
            await self._app(scope, receive, on_start(send, measure))
        except Exception:  # answered by the outermost layer
            if not has_answered:
                measure({"type": "http.response.start", "status": 500})
            raise


def _template(scope: Scope) -> str:
    """`/api/v1/dags/{dag_id}`; the path of a route that was included with a prefix lacks it."""
    path = getattr(scope.get("route"), "path", None)
    prefix = PREFIX if path and scope["path"].startswith(PREFIX) else ""
    return "other" if path is None else prefix + path.removeprefix(PREFIX)
