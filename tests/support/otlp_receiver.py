"""A collector on loopback: takes OTLP over HTTP, decodes it as OpenTelemetry's own definitions say, and keeps the spans."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from backfill_manager.clock import UTC
from support.http_sink import PATIENCE, Sink, http_sink


@dataclass(frozen=True)
class Received:
    """A span as it arrived; ids as hexadecimal, "" for no parent."""

    name: str
    trace: str
    id: str
    parent: str
    start: datetime
    end: datetime
    attributes: dict[str, Any]
    resource: dict[str, Any]
    scope: str
    links: tuple[tuple[str, str], ...]
    events: tuple[tuple[str, dict[str, Any]], ...]
    is_error: bool
    message: str


class Receiver:
    def __init__(self, sink: Sink) -> None:
        self.sink = sink

    @property
    def url(self) -> str:
        return self.sink.url

    @property
    def spans(self) -> list[Received]:
        return [span for batch in self.sink.events for span in batch["spans"]]

    def wait_for(self, number: int) -> list[Received]:
        """At least so many spans, in the order in which they ended."""
        with self.sink.changed:
            assert self.sink.changed.wait_for(lambda: len(self.spans) >= number, PATIENCE), self.spans
            return sorted(self.spans, key=lambda span: (span.end, span.start))


@contextmanager
def otlp_receiver(port: int = 0) -> Iterator[Receiver]:
    with http_sink(lambda body: {"spans": list(_spans(body))}, port) as sink:
        yield Receiver(sink)


def _spans(body: bytes) -> Iterator[Received]:
    for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        resource = _values(of_resource.resource.attributes)
        for of_scope in of_resource.scope_spans:
            for span in of_scope.spans:
                yield Received(
                    span.name, span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex(),
                    _instant(span.start_time_unix_nano), _instant(span.end_time_unix_nano), _values(span.attributes),
                    resource, of_scope.scope.name, tuple((one.trace_id.hex(), one.span_id.hex()) for one in span.links),
                    tuple((event.name, _values(event.attributes)) for event in span.events),
                    span.status.code == span.status.STATUS_CODE_ERROR, span.status.message,
                )  # fmt: skip


def _values(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


def _instant(nanoseconds: int) -> datetime:
    return datetime.fromtimestamp(nanoseconds / 1e9, UTC)
