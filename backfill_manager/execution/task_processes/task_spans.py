"""Spans that the code of a task makes by the API of OpenTelemetry, in the process of the task.

    trace.get_tracer(...).start_as_current_span("fetch") ─► the channel to the manager, which masks and sends it

The process has TRACEPARENT, and OTEL_PYTHON_TRACER_PROVIDER names `make_provider`: the API calls it when the task first asks for
a tracer. So a task that makes no spans imports nothing, no process of a task knows an endpoint or its keys, and none waits for a
collector. A task that sets a provider of its own has that, and TRACEPARENT. Without the SDK in its interpreter, spans are not
recorded, as ever without it.
"""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final

from backfill_manager.execution.messages import SpanValue

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.trace import Span, Tracer

MAX_SPANS: Final = 10_000  # of one try; a loop that makes them must not keep the manager busy
ENTRY: Final = ("opentelemetry_tracer_provider", "backfill_manager")
TRACEPARENT: Final = "TRACEPARENT"
_PROVIDER: Final = "OTEL_PYTHON_TRACER_PROVIDER"

log = logging.getLogger(__name__)

Deliver = Callable[[dict[str, Any]], None]
_deliver: Deliver | None = None
_left = MAX_SPANS  # of the try that runs


def set_up(traceparent: str, deliver: Deliver) -> None:
    """Before the task's code runs. `deliver` takes a span as the fields of `messages.TaskSpan`; any thread may call it."""
    global _deliver, _left
    _deliver, _left = deliver, MAX_SPANS
    os.environ[TRACEPARENT] = traceparent
    if _PROVIDER not in os.environ and _is_found():
        os.environ[_PROVIDER] = ENTRY[1]


def _is_found() -> bool:
    """Whether the API would find the SDK and this module: it raises in the task's code if not. This package may be a zip."""
    if importlib.util.find_spec("opentelemetry") is None or importlib.util.find_spec("opentelemetry.sdk") is None:
        return False
    try:
        points = metadata.distribution("backfill-manager").entry_points
    except metadata.PackageNotFoundError:
        return False
    return any((point.group, point.name) == ENTRY for point in points)


def make_provider() -> TracerProvider:
    """Called by the API of OpenTelemetry. Spans without a parent in the task are below the one of the try."""
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
    from opentelemetry.trace import NonRecordingSpan, get_current_span, set_span_in_context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    def below(context: Context | None) -> Context | None:
        carrier = {"traceparent": os.environ.get(TRACEPARENT, "")}  # a process may serve one try after another
        of_try = get_current_span(TraceContextTextMapPropagator().extract(carrier)).get_span_context()
        if get_current_span(context).get_span_context().is_valid or not of_try.is_valid:
            return context
        return set_span_in_context(NonRecordingSpan(of_try), context)

    class ToManager(SpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            global _left
            _left -= 1
            if _deliver is not None and _left >= 0:
                _deliver(fields_of(span))
            elif _left == -1:
                log.warning("This try has made more than %s spans; further ones are not sent.", f"{MAX_SPANS:,}")

    class Provider(TracerProvider):
        def get_tracer(self, *args: Any, **options: Any) -> Tracer:
            return _below(super().get_tracer(*args, **options), below)

    provider = Provider(shutdown_on_exit=False)
    provider.add_span_processor(ToManager())
    return provider


def _below(tracer: Tracer, below: Callable[[Context | None], Context | None]) -> Tracer:
    """Its spans begin so in any thread of the task: a new thread has no current span. The SDK's other ways to begin one come by
    `start_span`, when the span begins."""
    start_span = tracer.start_span

    def start_below(name: str, context: Context | None = None, *args: Any, **options: Any) -> Span:
        return start_span(name, below(context), *args, **options)

    tracer.start_span = start_below  # type: ignore[method-assign]
    return tracer


def fields_of(span: ReadableSpan) -> dict[str, Any]:
    """The fields of `messages.TaskSpan`."""
    context = span.get_span_context()
    assert context is not None
    return {
        "name": span.name, "trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}",
        "parent_id": None if span.parent is None else f"{span.parent.span_id:016x}", "kind": span.kind.name,
        "start_ns": span.start_time or 0, "end_ns": span.end_time or 0, "status": span.status.status_code.name,
        "message": span.status.description, "scope": span.instrumentation_scope.name if span.instrumentation_scope else "",
        "attributes": _plain(span.attributes),
        "events": [
            {"name": event.name, "at_ns": event.timestamp, "attributes": _plain(event.attributes)} for event in span.events
        ],
        "links": [
            {
                "trace_id": f"{link.context.trace_id:032x}", "span_id": f"{link.context.span_id:016x}",
                "attributes": _plain(link.attributes),
            } for link in span.links
        ],
    }  # fmt: skip


def _plain(attributes: Mapping[str, Any] | None) -> dict[str, SpanValue]:
    """As JSON has it; bytes, which it has not, are left out."""
    values = {name: list(v) if isinstance(v, tuple | list) else v for name, v in (attributes or {}).items()}
    return {name: v for name, v in values.items() if isinstance(v, str | bool | int | float | list)}
