"""Sends spans by OpenTelemetry's SDK: OTLP over HTTP, from a thread of its own.

    committed rows, plans, spans of tasks ─► trace_spans ─► queue (bounded_sender) ─► spans of the SDK ─► collector

The SDK makes them, so its variables hold: the sampler, the limits, the resource. Ids are given to it, see `TraceIds`. What a
request or a Spark job was is asked when its span is sent. They are telemetry: what happened stays in the state.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

from backfill_manager import __version__
from backfill_manager.errors import BackfillManagerError, InvalidConfig
from backfill_manager.execution.messages import TaskLaunch, TaskSpan
from backfill_manager.logging import get_logger
from backfill_manager.manager.telemetry.bounded_sender import MAX_WAITING, BoundedSender
from backfill_manager.manager.telemetry.trace_spans import (
    PREFIX,
    AnsweredRequest,
    EndedJobs,
    Made,
    Span,
    SpanId,
    TraceIds,
    TraceSpans,
    job_span,
)
from backfill_manager.masking import mask_text
from backfill_manager.model.records import Backfill, DagRun, Request, RunKey
from backfill_manager.model.transitions import Changes
from backfill_manager.settings.model import OpenTelemetrySettings

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan, Tracer
    from opentelemetry.sdk.trace import Span as OpenSpan

EXTRA: Final = "opentelemetry: needs OpenTelemetry's SDK; pip install 'backfill-manager[opentelemetry]'"
SERVICE: Final = "backfill-manager"
MAX_BATCH: Final = 512  # as OpenTelemetry has it, if OTEL_BSP_MAX_EXPORT_BATCH_SIZE does not say otherwise
_NEVER_TAKEN: Final = frozenset({400, 413, 422})  # statuses of a batch that will be refused again

log = get_logger("opentelemetry")

FindRequest = Callable[[str], "Request | None"]
FindJob = Callable[[int], "dict[str, Any] | None"]


class Exporter(Protocol):
    def export(self, spans: list[ReadableSpan]) -> None:
        """Sends them; an exception says why they could not be sent, and may be later."""

    def close(self) -> None: ...


class _NotSent(BackfillManagerError):
    """A collector that is away, or that refuses what it is sent."""


def make_exporter(settings: OpenTelemetrySettings, environ: Mapping[str, str] = os.environ) -> Exporter | None:
    """`InvalidConfig` when the SDK is missing, or a variable wants what is not there. None: a variable turns traces off."""
    try:
        import opentelemetry.exporter.otlp.proto.http.trace_exporter
        import opentelemetry.sdk.trace  # noqa: F401
    except ImportError:
        raise InvalidConfig(EXTRA) from None
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    exporter = environ.get("OTEL_TRACES_EXPORTER", "otlp").strip() or "otlp"
    if exporter == "none":
        return None
    if exporter != "otlp":
        raise InvalidConfig(f"opentelemetry: OTEL_TRACES_EXPORTER must be otlp or none, not {exporter!r}")
    for name in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        protocol = environ.get(name, "").strip() or "http/protobuf"
        if protocol != "http/protobuf":
            raise InvalidConfig(f"opentelemetry: {name} must be http/protobuf, not {protocol!r}")
    return _OtlpExporter(settings)


class _OtlpExporter:
    """The SDK's exporter, with the reason of a failure: it has none but what it logs."""

    def __init__(self, settings: OpenTelemetrySettings) -> None:
        import requests
        from opentelemetry.exporter.otlp.proto.http import trace_exporter

        endpoint = None if settings.endpoint is None else f"{settings.endpoint.rstrip('/')}/v1/traces"
        headers = {name: value.get_secret_value() for name, value in settings.headers.items()} or None
        session = requests.Session()
        session.hooks["response"].append(self._take_answer)
        self._said, self._status, self._answer = _LastWords(), None, b""
        for name in (trace_exporter.__name__, "opentelemetry.exporter.otlp.common.http"):
            logger = logging.getLogger(name)
            logger.handlers, logger.propagate = [self._said], False  # the manager says it once, in its own words
        self._exporter = trace_exporter.OTLPSpanExporter(endpoint=endpoint, headers=headers, session=session)

    def _take_answer(self, response: Any, *_: Any, **__: Any) -> None:
        self._status, self._answer = response.status_code, response.content

    def export(self, spans: list[ReadableSpan]) -> None:
        from opentelemetry.sdk.trace.export import SpanExportResult

        self._status, self._answer, self._said.first = None, b"", ""
        if self._exporter.export(spans) is SpanExportResult.SUCCESS:
            number, reason = _rejected(self._answer)
            if number:  # the exporter does not look
                log.warning("spans are refused and left out", spans=number, reason=mask_text(reason))
            return
        reason = mask_text(self._said.first.partition(", retrying in")[0]) or "no reason was given"
        if self._status is not None:
            reason = f"the collector answers with status {self._status}"
        if self._status not in _NEVER_TAKEN:
            raise _NotSent(reason)
        log.warning("spans are refused and left out", spans=len(spans), reason=reason)

    def close(self) -> None:
        self._exporter.shutdown()  # type: ignore[no-untyped-call]  # an attempt that waits is given up


def _rejected(answer: bytes) -> tuple[int, str]:
    """How many spans of a batch that it took the collector left out, and why (`partial_success`)."""
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    try:
        partial = ExportTraceServiceResponse.FromString(answer).partial_success
    except DecodeError:  # an answer of something else than a collector
        return 0, ""
    return partial.rejected_spans, partial.error_message


class _LastWords(logging.Handler):
    first = ""  # that was logged since it was emptied; what follows are the further attempts

    def emit(self, record: logging.LogRecord) -> None:
        self.first = self.first or record.getMessage()


class TraceSender(BoundedSender[Made]):
    """`find_request` reads the state and `find_job` asks Spark, both in this sender's thread."""

    def __init__(
        self, exporter: Exporter, ids: TraceIds, spans: TraceSpans, *, state_id: str, find_request: FindRequest,
        find_job: FindJob, max_waiting: int | None = None,
    ) -> None:  # fmt: skip
        bound = max_waiting or _from_environment("OTEL_BSP_MAX_QUEUE_SIZE", MAX_WAITING)
        batch = min(bound, _from_environment("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", MAX_BATCH))
        super().__init__("trace sender", "spans", "opentelemetry", max_waiting=bound, batch=batch)
        self._exporter, self._ids, self._spans = exporter, ids, spans
        self._find_request, self._find_job = find_request, find_job
        self._sdk = SdkSpans(state_id)
        self._made: list[ReadableSpan] = []  # of the batch in hand, so that another attempt asks nobody again

    def put(
        self, changes: Changes, run_of: Callable[[RunKey], DagRun | None], backfill_of: Callable[[str], Backfill | None]
    ) -> None:
        """What has been committed; see `TraceSpans.of`."""
        if made := list(self._spans.of(changes, run_of, backfill_of)):
            self.put_all(made)

    def put_plan(self, request_id: str, dag_id: str, began: datetime, ended: datetime, error: str | None) -> None:
        self.put_all([self._spans.plan(request_id, dag_id, began, ended, error)])

    def put_own(self, span: TaskSpan) -> None:
        """A span of a task's code, without secrets."""
        self.put_all([span])

    def traceparent(self, launch: TaskLaunch) -> str:
        """What the process of a try gets as TRACEPARENT: spans of its code are below the span of the try."""
        of_try = self._ids.task_try(launch.key)
        is_sampled = self._sdk.is_sampled(of_try.trace)
        return f"00-{of_try.trace:032x}-{of_try.span:016x}-{'01' if is_sampled else '00'}"

    def send(self, batch: list[Made]) -> None:
        if not self._made:
            self._made = [span for made in batch for span in self._spans_of(made)]
        if self._made:
            self._exporter.export(self._made)
        self._made = []

    def stop(self) -> None:
        super().stop()
        self._exporter.close()

    def _spans_of(self, made: Made) -> Iterator[ReadableSpan]:
        match made:
            case TaskSpan():
                yield from self._sdk.of_task(made)
            case Span():
                yield from self._sdk.of(made)
            case AnsweredRequest(response=response):
                if (request := self._find_request(response.request_id)) is not None:
                    yield from self._sdk.of(self._spans.request(made, request))
            case EndedJobs(within, jobs):
                for number in jobs if self._sdk.is_sampled(within.id.trace) else ():
                    if (job := self._find_job(number)) is not None:
                        yield from self._sdk.of(job_span(self._ids, within, number, job))


class SdkSpans:
    """Spans of the SDK: sampled, limited and with a resource as its variables say."""

    def __init__(self, state_id: str) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
        from opentelemetry.sdk.trace.id_generator import IdGenerator

        ended = list["ReadableSpan"]()

        class Ids(IdGenerator):
            next = SpanId(1, 1)  # of the next span

            def generate_span_id(self) -> int:
                return self.next.span

            def generate_trace_id(self) -> int:
                return self.next.trace

        class Collected(SpanProcessor):
            def on_end(self, span: ReadableSpan) -> None:
                ended.append(span)

        ids = Ids()
        own = {"service.version": __version__, f"{PREFIX}.state_id": state_id}
        resource = Resource.create(own)
        if str(resource.attributes["service.name"]).startswith("unknown_service"):
            resource = resource.merge(Resource({"service.name": SERVICE}))
        self._provider = TracerProvider(resource=resource, id_generator=ids, shutdown_on_exit=False)
        self._provider.add_span_processor(Collected())
        self._ids, self._ended = ids, ended

    def is_sampled(self, trace: int) -> bool:
        """As the sampler decides for the first span of this trace. Any thread may ask."""
        from opentelemetry.context import Context
        from opentelemetry.sdk.trace.sampling import Decision

        decision = self._provider.sampler.should_sample(Context(), trace, "").decision
        return decision is Decision.RECORD_AND_SAMPLE

    def of(self, span: Span) -> list[ReadableSpan]:
        """None when it is not sampled."""
        from opentelemetry.trace import Link, Status, StatusCode

        attributes = {name: mask_text(v) if isinstance(v, str) else v for name, v in span.attributes.items()}
        links = [Link(self._context(span.link))] if span.link else []
        made = self._begin(
            SERVICE, span.id, span.parent, name=mask_text(span.name), attributes=attributes, links=links,
            start_time=_nanoseconds(span.start),
        )  # fmt: skip
        if span.error is not None:
            made.set_status(Status(StatusCode.ERROR, mask_text(span.error)))
        return self._end(made, _nanoseconds(span.end))

    def of_task(self, span: TaskSpan) -> list[ReadableSpan]:
        from opentelemetry.trace import Link, SpanKind, Status, StatusCode

        links = [
            Link(self._context(SpanId(int(one.trace_id, 16), int(one.span_id, 16))), one.attributes)
            for one in span.links
        ]
        parent = int(span.parent_id, 16) if span.parent_id else None
        made = self._begin(
            span.scope or SERVICE, SpanId(int(span.trace_id, 16), int(span.span_id, 16)), parent, name=span.name,
            attributes=span.attributes, links=links, kind=SpanKind[span.kind], start_time=span.start_ns,
        )  # fmt: skip
        for event in span.events:
            made.add_event(event.name, event.attributes, event.at_ns)
        if span.status != "UNSET":
            made.set_status(Status(StatusCode[span.status], span.message if span.status == "ERROR" else None))
        return self._end(made, span.end_ns)

    def _begin(self, scope: str, own: SpanId, parent: int | None, **how: Any) -> OpenSpan:
        from opentelemetry.context import Context
        from opentelemetry.trace import NonRecordingSpan, set_span_in_context

        self._ids.next = own
        context = Context()
        if parent is not None:
            context = set_span_in_context(NonRecordingSpan(self._context(SpanId(own.trace, parent))), context)
        tracer: Tracer = self._provider.get_tracer(scope, __version__ if scope == SERVICE else None)  # type: ignore[assignment]
        made: OpenSpan = tracer.start_span(context=context, **how)  # type: ignore[assignment]
        return made

    def _context(self, of: SpanId) -> Any:
        from opentelemetry.trace import SpanContext, TraceFlags

        flags = TraceFlags(TraceFlags.SAMPLED if self.is_sampled(of.trace) else TraceFlags.DEFAULT)
        return SpanContext(of.trace, of.span, is_remote=True, trace_flags=flags)

    def _end(self, span: OpenSpan, at: int) -> list[ReadableSpan]:
        span.end(at)
        ended, self._ended[:] = list(self._ended), []
        return ended


def _nanoseconds(at: datetime) -> int:
    return int(at.timestamp()) * 1_000_000_000 + at.microsecond * 1_000


def _from_environment(name: str, default: int) -> int:
    value = os.environ.get(name, "").strip()
    if not value:
        return default
    if not value.isdigit() or int(value) < 1:
        raise InvalidConfig(f"opentelemetry: {name} must be a number of 1 or more, not {value!r}")
    return int(value)
