"""Traces by OpenTelemetry: made of what is committed, sent to a real receiver of OTLP that may be away, in no tick's way."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from pydantic import ValidationError
from support.http_sink import PATIENCE
from support.otlp_receiver import Received, Receiver, otlp_receiver
from support.scenarios import accepted, clear

from backfill_manager.errors import InvalidConfig
from backfill_manager.execution import messages as m
from backfill_manager.manager.telemetry.bounded_sender import BoundedSender
from backfill_manager.manager.telemetry.trace_sender import TraceSender, make_exporter
from backfill_manager.manager.telemetry.trace_spans import TraceIds, TraceSpans
from backfill_manager.model.records import Backfill, DagRun, Request
from backfill_manager.settings.model import OpenTelemetrySettings
from backfill_manager.store.base import Condition
from backfill_manager.testing import FakeClock, InMemoryManager, dag_spec, days

STATE = "0123456789ab"
JOB = {
    "name": "save at x.py:3", "began": None, "ended": None, "status": "SUCCEEDED", "application": "local-1", "stages": 2,
    "tasks": 8, "failed_tasks": 0,
}  # fmt: skip
JOBS = {7: JOB, 9: {**JOB, "name": "", "stages": 0, "tasks": 0}}  # 8: Spark keeps it no more


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with otlp_receiver() as it:
        yield it


class Manager(InMemoryManager):
    """Whose commits are traced."""

    def __init__(self, url: str, *, max_waiting: int | None = None, **how: Any) -> None:
        self.url, self.max_waiting = url, max_waiting
        spec = dag_spec("flights", "load", "clean", upstream={"clean": ["load"]}, each={"clean": {"retries": 1}})
        super().__init__(spec, **how)

    def _take_over(self) -> None:
        """A manager has a sender of its own, and knows nothing of that of the one before."""
        ids = TraceIds(STATE)
        exporter = make_exporter(OpenTelemetrySettings(endpoint=self.url, headers={"x-key": "s3cr3t"}))
        assert exporter is not None
        self.sender = TraceSender(
            exporter, ids, TraceSpans(ids, self.clock.now()), state_id=STATE, find_request=self._find_request,
            find_job=JOBS.get, max_waiting=self.max_waiting,
        )  # fmt: skip
        self._on_commit = lambda changes: self.sender.put(changes, self._run_of, self._backfill_of)
        super()._take_over()

    def _find_request(self, request_id: str) -> Request | None:
        return next(iter(self.store.read(Request, [Condition("request_id", "=", request_id)])), None)

    def _run_of(self, key: tuple[str, str]) -> DagRun | None:
        return run.row if (run := self.state.runs.get(key)) else None

    def _backfill_of(self, backfill_id: str) -> Backfill | None:
        return live.row if (live := self.state.backfills.get(backfill_id)) else None

    def run_task(self, outcome: m.Outcome, jobs: tuple[int, ...] = ()) -> m.TaskLaunch:
        """The one that runs, for ten seconds."""
        self.drain()
        ((key, launch),) = self.running.items()
        self.clock.advance(seconds=10)
        self.finish(key, outcome, spark_jobs=jobs)
        self.drain()
        return launch


def one(spans: list[Received], name: str) -> Received:
    (found,) = [span for span in spans if span.name == name]
    return found


def test_a_run_is_a_trace_of_its_tries_and_their_spark_jobs(receiver: Receiver) -> None:
    manager = Manager(receiver.url, script=lambda _: None)
    start = manager.clock.now()
    backfill = manager.backfill("flights", days("2024-01-01", 1))
    launch = manager.run_task(m.Succeeded(), jobs=(7, 8, 9))
    manager.run_task(m.Failed("ValueError: no flights with password=hunter22"))
    manager.run_task(m.Succeeded())
    manager.sender.run_once()

    spans = receiver.wait_for(7)
    assert len(spans) == 7
    run, load, job = (one(spans, name) for name in ("run flights", "task load", "save at x.py:3"))
    assert one(spans, "Spark job 9").parent == load.id
    failed, done = [span for span in spans if span.name == "task clean"]
    assert {span.trace for span in (run, load, job, failed, done)} == {run.trace}
    assert run.parent == "" and [span.parent for span in (load, failed, done)] == [run.id] * 3
    assert job.parent == load.id
    assert (load.start, load.end) == (start, start + timedelta(seconds=10)) == (job.start, job.end)
    assert run.start == start and run.end == done.end
    assert [failed.is_error, done.is_error, run.is_error] == [True, False, False]
    assert failed.attributes["error.type"] == "ValueError" and "hunter22" not in str(spans)
    assert failed.message.startswith("ValueError: no flights with password=")
    assert load.attributes["backfill_manager.task_id"] == "load" and load.attributes["backfill_manager.try_number"] == 1
    assert run.attributes["backfill_manager.interval_start"] == "2024-01-01T00:00:00Z"
    assert job.attributes["backfill_manager.spark_tasks"] == 8
    assert run.resource["service.name"] == "backfill-manager" and run.resource["backfill_manager.state_id"] == STATE
    assert manager.sender.traceparent(launch) == f"00-{load.trace}-{load.id}-01"

    of_backfill = one(spans, "backfill flights")
    assert of_backfill.attributes["backfill_manager.backfill_id"] == backfill
    assert of_backfill.trace != run.trace and run.links == ((of_backfill.trace, of_backfill.parent),)
    path, headers = receiver.sink.requests[0]
    assert path == "/v1/traces" and headers["x-key"] == "s3cr3t"
    assert headers["content-type"] == "application/x-protobuf"


def test_a_request_and_its_plan_are_a_trace_to_which_runs_link(receiver: Receiver) -> None:
    manager = Manager(receiver.url)
    response = accepted(manager, "dag.trigger", dag_id="flights", logical_date=None, conf={})
    manager.drain()
    now = manager.clock.now()
    manager.sender.put_plan(response.request_id, "flights", now, now + timedelta(seconds=2), "no such column")
    manager.sender.run_once()
    spans = receiver.wait_for(5)
    request, plan, run = (one(spans, name) for name in ("dag.trigger", "plan", "run flights"))
    assert plan.parent == request.id and plan.trace == request.trace != run.trace
    assert run.links == ((request.trace, request.id),)
    assert request.attributes["user.name"] == "tests"
    assert plan.is_error and plan.end - plan.start == timedelta(seconds=2)


def test_a_manager_that_is_killed_and_its_successor_make_one_trace(receiver: Receiver) -> None:
    manager = Manager(receiver.url, script=lambda _: None)
    manager.backfill("flights", days("2024-01-01", 1))
    manager.run_task(m.Succeeded())
    manager.sender.run_once()
    killed = manager.sender
    manager.crash()
    assert manager.sender is not killed
    manager.run_task(m.Succeeded())
    manager.sender.run_once()
    spans = receiver.wait_for(4)
    run, tries = one(spans, "run flights"), [span for span in spans if span.name.startswith("task")]
    assert {span.trace for span in tries} == {run.trace} and {span.parent for span in tries} == {run.id}
    assert {span.id for span in tries if span.name == "task load"} and len({span.id for span in spans}) == len(spans)


def test_a_cleared_run_is_another_span_of_its_trace(receiver: Receiver) -> None:
    manager = Manager(receiver.url)
    manager.backfill("flights", days("2024-01-01", 1))
    manager.drain()
    manager.clock.advance(seconds=60)
    accepted(manager, "tasks.clear", **clear("flights"))
    manager.drain()
    manager.sender.run_once()
    spans = [span for span in receiver.spans if span.name == "run flights"]
    assert len(spans) == 2 and len({span.id for span in spans}) == 2 and len({span.trace for span in spans}) == 1
    tries = [span.parent for span in receiver.spans if span.name == "task load"]
    assert sorted(tries) == sorted(span.id for span in spans)


def test_a_row_that_is_committed_again_after_its_end_is_no_second_span(receiver: Receiver) -> None:
    manager = Manager(receiver.url)
    first = manager.backfill("flights", days("2024-01-02", 1))
    manager.drain()
    accepted(manager, "backfill.hide", backfill_id=first)
    manager.backfill("flights", days("2024-01-01", 1))  # its successor's pointer is moved
    manager.drain()
    manager.sender.run_once()
    manager.clock.advance(seconds=1)
    manager.crash()
    accepted(manager, "backfill.hide", backfill_id=first)
    manager.sender.run_once()
    names = [span.name for span in receiver.spans]
    assert names.count("backfill flights") == names.count("run flights") == 2


def test_a_large_backfill_is_a_trace_for_each_run(receiver: Receiver) -> None:
    manager = Manager(receiver.url, slots=200)
    manager.backfill("flights", days("2010-01-01", 300), max_active_runs=100)
    manager.drain()
    manager.sender.run_once()
    spans = receiver.wait_for(901)
    by_trace: dict[str, int] = {}
    for span in spans:
        by_trace[span.trace] = by_trace.get(span.trace, 0) + 1
    assert sorted(by_trace.values()) == [1] + [3] * 300
    assert len(receiver.sink.events) == 2, "in batches"


def test_a_receiver_that_is_away_gets_what_waited_and_the_log_says_it_once(
    receiver: Receiver, capfd: pytest.CaptureFixture[str]
) -> None:
    receiver.sink.refuses = 10**6
    manager = Manager(receiver.url, max_waiting=4, script=lambda _: m.Succeeded())
    for month in (1, 2, 3):
        manager.backfill("flights", days(f"2024-0{month}-01", 1))
        manager.drain()  # no tick waits for it
        assert manager.sender.run_once() == 2.0 ** (month - 1)
    assert not receiver.spans
    receiver.sink.refuses = 0
    assert manager.sender.run_once() is None
    assert [span.name for span in receiver.spans][-1] == "backfill flights"
    assert len(receiver.spans) == 4
    printed = capfd.readouterr()
    (away, back) = [line for line in (printed.out + printed.err).splitlines() if "opentelemetry" in line]
    assert "spans can't be sent; they wait" in away and "status 503" in away
    assert "spans are sent again" in back and "left_out=8" in back and "failures=3" in back


def test_what_comes_while_a_batch_can_not_be_sent_is_sent_after_it(receiver: Receiver) -> None:
    receiver.sink.refuses, receiver.sink.status = 1, 500
    manager = Manager(receiver.url)
    manager.backfill("flights", days("2024-01-01", 1))
    manager.drain()
    assert manager.sender.run_once() == 1.0
    manager.backfill("flights", days("2024-01-02", 1))
    manager.drain()
    assert manager.sender.run_once() is None
    assert [span.name for span in receiver.spans].count("run flights") == 2
    assert len(receiver.spans) == len({span.id for span in receiver.spans}) == 8


def test_what_is_refused_for_good_is_left_out(receiver: Receiver) -> None:
    receiver.sink.refuses, receiver.sink.status = 1, 400
    manager = Manager(receiver.url)
    manager.backfill("flights", days("2024-01-01", 1))
    manager.drain()
    assert manager.sender.run_once() is None and not receiver.spans
    manager.backfill("flights", days("2024-01-02", 1))
    manager.drain()
    assert manager.sender.run_once() is None and len(receiver.spans) == 4


def test_spans_that_a_collector_leaves_out_of_a_batch_are_logged(
    receiver: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    manager = Manager(receiver.url)
    for day, reply in (
        ("2024-01-01", ExportTraceServiceResponse(partial_success={"rejected_spans": 2, "error_message": "too old"})),
        ("2024-01-02", ExportTraceServiceResponse()),
    ):
        receiver.sink.reply = reply.SerializeToString()
        manager.backfill("flights", days(day, 1))
        manager.drain()
        assert manager.sender.run_once() is None
    receiver.sink.reply = b"<html>"
    manager.backfill("flights", days("2024-01-03", 1))
    manager.drain()
    assert manager.sender.run_once() is None
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "left out" in line]
    assert "spans=2" in line and 'reason="too old"' in line


def test_a_thread_of_its_own_sends_and_its_end_sends_the_rest(receiver: Receiver) -> None:
    manager = Manager(receiver.url)
    manager.sender.start()
    manager.backfill("flights", days("2024-01-01", 1))
    manager.drain()
    manager.sender.stop()
    assert len(receiver.spans) == 4


def test_a_batch_in_hand_is_never_left_out_while_it_is_sent() -> None:
    class Sender(BoundedSender[int]):
        def __init__(self) -> None:
            super().__init__("sender", "numbers", "numbers", max_waiting=4, batch=2)
            self.sent, self.begun, self.may_end = list[int](), threading.Event(), threading.Event()

        def send(self, batch: list[int]) -> None:
            self.begun.set()
            assert self.may_end.wait(PATIENCE)
            self.sent += batch

    sender = Sender()
    sender.put_all([1, 2, 3])
    thread = threading.Thread(target=sender.run_once)
    thread.start()
    assert sender.begun.wait(PATIENCE)
    sender.put_all([4, 5, 6])
    sender.may_end.set()
    thread.join()
    assert sender.sent == [1, 2, 5, 6]


# -- the variables of OpenTelemetry ---------------------------------------------------------------------------------------


def test_the_standard_variables_hold(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "nightly")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=ours")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")
    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "3")
    manager = Manager("http://127.0.0.1:1")
    exporter = make_exporter(OpenTelemetrySettings())
    assert exporter is not None
    manager.sender._exporter = exporter
    manager.backfill("flights", days("2024-01-01", 1))
    manager.drain()
    manager.sender.run_once()
    assert len(receiver.sink.events) == 4
    assert all(headers["x-tenant"] == "ours" for _, headers in receiver.sink.requests)
    span = receiver.spans[0]
    assert span.resource["service.name"] == "nightly" and span.resource["deployment.environment.name"] == "test"
    assert len(span.attributes) == 3


@pytest.mark.parametrize(("ratio", "number", "flag"), [("0", 0, "00"), ("1", 4, "01")])
def test_the_sampler_decides_for_a_trace_as_a_whole(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, ratio: str, number: int, flag: str
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", ratio)
    manager = Manager(receiver.url)
    manager.backfill("flights", days("2024-01-01", 1))
    manager.drain()
    manager.sender.run_once()
    assert len(receiver.spans) == number
    assert manager.sender.traceparent(manager.launched[0]).endswith(f"-{flag}")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "OTEL_EXPORTER_OTLP_PROTOCOL must be http/protobuf, not 'grpc'"),
        ("OTEL_TRACES_EXPORTER", "zipkin", "OTEL_TRACES_EXPORTER must be otlp or none, not 'zipkin'"),
    ],
)
def test_what_is_not_there_is_refused_at_the_start(name: str, value: str, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        make_exporter(OpenTelemetrySettings(), {name: value})


@pytest.mark.parametrize("endpoint", ["http://tempo:4318/v1/traces", "http://tempo:4318/otlp/v1/traces/", "tempo:4318"])
def test_an_endpoint_to_which_the_path_would_be_added_twice_is_refused(endpoint: str) -> None:
    with pytest.raises(ValidationError, match="such as http://localhost:4318, without /v1/traces"):
        OpenTelemetrySettings(endpoint=endpoint)
    assert OpenTelemetrySettings(endpoint="http://tempo:4318/otlp").endpoint == "http://tempo:4318/otlp"


@pytest.mark.parametrize("environ", [{"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none"}])
def test_a_variable_turns_traces_off(environ: dict[str, str]) -> None:
    assert make_exporter(OpenTelemetrySettings(), environ) is None


def test_a_queue_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "many")
    with pytest.raises(InvalidConfig, match="OTEL_BSP_MAX_QUEUE_SIZE must be a number of 1 or more, not 'many'"):
        Manager("http://127.0.0.1:1")


def test_a_key_in_the_settings_is_never_printed() -> None:
    settings = OpenTelemetrySettings(headers={"authorization": "Bearer abc"})
    assert "Bearer" not in repr(settings) + settings.model_dump_json()


def test_without_it_nothing_of_opentelemetrys_sdk_is_imported() -> None:
    code = (
        "import sys, backfill_manager.manager.manager; print([n for n in sys.modules if n.startswith('opentelemetry')])"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"


# -- spans of tasks ---------------------------------------------------------------------------------------------------------


def test_a_span_of_a_task_arrives_as_it_was_made_without_secrets(receiver: Receiver) -> None:
    manager = Manager(receiver.url, script=lambda _: None, clock=FakeClock())
    manager.backfill("flights", days("2024-01-01", 1))
    manager.drain()
    ((_, launch),) = manager.running.items()
    _, trace, parent, _ = manager.sender.traceparent(launch).split("-")
    own = m.TaskSpan(
        "fetch", trace, "00000000000000aa", parent, "CLIENT", 10**18, 10**18 + 10**9, "ERROR", "said hunter22", "flights.api",
        {"http.request.method": "GET", "pages": [1, 2], "db.password": "hunter23", "tokens": 7},
        (m.SpanEvent("exception", 10**18, {"text": "hunter22", "api_key": "k"}),), (m.SpanLink("0" * 31 + "1", "0" * 15 + "2"),),
    )  # fmt: skip
    manager.sender.put_own(own.without_secrets(lambda text: text.replace("hunter22", "***")))
    manager.sender.run_once()
    span = one(receiver.spans, "fetch")
    assert (span.trace, span.id, span.parent) == (trace, "00000000000000aa", parent)
    assert (
        span.is_error
        and span.message == "said ***"
        and span.events == (("exception", {"text": "***", "api_key": "***"}),)
    )
    assert span.attributes["db.password"] == "***" and span.attributes["tokens"] == 7
    assert span.attributes["http.request.method"] == "GET" and span.scope == "flights.api"
    assert (span.end - span.start) == timedelta(seconds=1) and span.links == (("0" * 31 + "1", "0" * 15 + "2"),)
