"""Makes spans of what has been committed, as plain values: without OpenTelemetry, which `trace_sender` knows. Pure.

    trace of a request:  request ─► plan, backfill
    trace of a run:      run (linked to its request) ─► task try ─► Spark jobs, spans of the task's own code

A run is a trace of its own, so a backfill of 100,000 items is 100,000 small traces and not one that no backend can show. Ids are
digests of what a thing is called in the state: a manager that takes over, and the process of a task, know them without
being given them. A span is made when the thing has ended.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

from backfill_manager.clock import format_instant
from backfill_manager.execution.messages import TaskSpan
from backfill_manager.manager.telemetry.sent_once import SentOnce
from backfill_manager.model import states as s
from backfill_manager.model.records import Backfill, DagRun, Request, Response, RunKey, TaskTry
from backfill_manager.model.transitions import Changes

PREFIX: Final = "backfill_manager"  # of attributes for which OpenTelemetry's conventions have no name
_ENDS_OF_RUNS: Final = (s.SUCCESS, s.FAILED, s.CANCELLED)
_ERRORS: Final = frozenset({s.FAILED})
_TYPE_OF_ERROR: Final = re.compile(
    r"([A-Za-z_][A-Za-z0-9_.]*(?:Error|Exception|Exit|Interrupt|Timeout|Refused|Failed)):"
)

Attributes = dict[str, str | int | float | bool]


class SpanId(NamedTuple):
    trace: int  # 128 bits
    span: int  # 64 bits


@dataclass(frozen=True)
class Span:
    id: SpanId
    name: str
    start: datetime
    end: datetime
    parent: int | None = None  # the span of the same trace
    attributes: Attributes = field(default_factory=dict)
    link: SpanId | None = None
    error: str | None = None


@dataclass(frozen=True)
class AnsweredRequest:
    """A span of a request, whose row is read when the span is sent."""

    id: SpanId
    response: Response


@dataclass(frozen=True)
class EndedJobs:
    """The spans of the Spark jobs of a try, of which Spark is asked when they are sent."""

    within: Span  # the try
    jobs: tuple[int, ...]


Made = Span | AnsweredRequest | EndedJobs | TaskSpan


class TraceIds:
    """The ids of one state, whose identity is in each: run ids repeat between states."""

    def __init__(self, state_id: str) -> None:
        self._state_id = state_id

    def request(self, request_id: str) -> SpanId:
        return SpanId(self._trace("request", request_id), self._span("request", request_id))

    def plan(self, request_id: str, began: datetime) -> SpanId:
        return SpanId(self._trace("request", request_id), self._span("plan", request_id, began.isoformat()))

    def backfill(self, row: Backfill) -> SpanId:
        """Another one for each end: a backfill may be reopened."""
        trace = self._trace("request", row.request_id or row.backfill_id)
        ended = row.completed_at.isoformat() if row.completed_at else ""
        return SpanId(trace, self._span("backfill", row.backfill_id, ended))

    def run(self, run: DagRun) -> SpanId:
        """One trace; another span for each time that it was begun, as a run may be cleared."""
        began = (run.started_at or run.created_at).isoformat()
        return SpanId(self._trace("run", *run.key), self._span("run", *run.key, began))

    def task_try(self, key: tuple[str, str, str, int]) -> SpanId:
        return SpanId(self._trace("run", *key[:2]), self._span("try", *map(str, key)))

    def job(self, of: SpanId, job: int) -> SpanId:
        return SpanId(of.trace, self._span("job", str(of.span), str(job)))

    def _trace(self, *names: str) -> int:
        return int.from_bytes(self._digest("trace", *names)[:16], "big") or 1  # 0 is no id

    def _span(self, *names: str) -> int:
        return int.from_bytes(self._digest("span", *names)[:8], "big") or 1

    def _digest(self, *names: str) -> bytes:
        return hashlib.sha256(json.dumps([self._state_id, *names]).encode()).digest()


class TraceSpans:
    """Makes the spans of one manager. `since`: see `SentOnce`."""

    def __init__(self, ids: TraceIds, since: datetime, *, with_spark_jobs: bool = True) -> None:
        self._ids, self._with_spark_jobs, self._sent = ids, with_spark_jobs, SentOnce(since)

    def of(
        self, changes: Changes, run_of: Callable[[RunKey], DagRun | None], backfill_of: Callable[[str], Backfill | None]
    ) -> Iterator[Made]:
        """Of what has ended. `run_of`, `backfill_of`: those that have not changed in this tick."""
        backfills = {row.backfill_id: row for row in changes.rows(Backfill)}
        runs: dict[RunKey, DagRun] = {run.key: run for run in changes.rows(DagRun)}
        for response in changes.rows(Response):
            yield AnsweredRequest(self._ids.request(response.request_id), response)
        for row in changes.rows(TaskTry):
            run = runs.get((row.dag_id, row.run_id)) or run_of((row.dag_id, row.run_id))
            if run is not None and row.started_at is not None and row.ended_at is not None:
                span = self._try(run, row, row.started_at, row.ended_at)
                yield span
                if self._with_spark_jobs and row.spark_jobs_json:
                    yield EndedJobs(span, tuple(json.loads(row.spark_jobs_json)))
        for run in runs.values():
            at = run.ended_at
            if at is not None and run.state in _ENDS_OF_RUNS and self._sent.is_new(self._ids.run(run), at):
                made_by = run.request_id
                if made_by is None and (backfill_id := run.backfill_id) is not None:
                    of_it = backfills.get(backfill_id) or backfill_of(backfill_id)
                    made_by = of_it.request_id if of_it else None
                yield self._run(run, at, made_by)
        for backfill in backfills.values():
            at, has_ended = backfill.completed_at, backfill.state in s.BACKFILL_FINISHED
            if at is not None and has_ended and self._sent.is_new(self._ids.backfill(backfill), at):
                yield self._backfill(backfill, at)

    def plan(self, request_id: str, dag_id: str, began: datetime, ended: datetime, error: str | None) -> Span:
        parent = self._ids.request(request_id).span
        span_id = self._ids.plan(request_id, began)
        return Span(span_id, "plan", began, ended, parent, _ours(dag_id=dag_id, **_error(error)), error=error)

    def request(self, answered: AnsweredRequest, request: Request) -> Span:
        response = answered.response
        error = response.message if response.outcome == "refused" else None
        about = _ours(
            request_id=request.request_id, outcome=response.outcome, source=request.source, object_id=response.object_id,
        )  # fmt: skip
        return Span(
            answered.id, request.kind, request.requested_at, response.answered_at,
            attributes={**about, "user.name": request.requested_by, **_error(error)}, error=error,
        )  # fmt: skip

    def _run(self, run: DagRun, ended: datetime, request_id: str | None) -> Span:
        """`request_id`: of what made it, or its backfill; None: the schedule did."""
        error = (run.reason or "failed") if run.state in _ERRORS else None
        about = _ours(
            dag_id=run.dag_id, run_id=run.run_id, run_type=run.run_type, state=run.state, dag_version=run.dag_version,
            backfill_id=run.backfill_id, partition_key=run.partition_key, items=run.items, reason=run.reason,
            interval_start=format_instant(run.interval_start), interval_end=format_instant(run.interval_end),
            created_at=format_instant(run.created_at),
        )  # fmt: skip
        started = run.started_at or run.created_at
        return Span(
            self._ids.run(run), f"run {run.dag_id}", started, max(started, ended), None, about | _error(error),
            self._ids.request(request_id) if request_id else None, error,
        )  # fmt: skip

    def _try(self, run: DagRun, row: TaskTry, started: datetime, ended: datetime) -> Span:
        error = (row.error or "failed") if row.state in _ERRORS else None
        about = _ours(
            dag_id=row.dag_id, run_id=row.run_id, task_id=row.task_id, try_number=row.try_number, launch=row.launch,
            state=row.state, pool=row.pool, backfill_id=run.backfill_id, term=row.term,
            reason=row.error if error is None else None,
        )  # fmt: skip
        return Span(
            self._ids.task_try(row.key), f"task {row.task_id}", started, max(started, ended), self._ids.run(run).span,
            about | _error(error), error=error,
        )  # fmt: skip

    def _backfill(self, row: Backfill, ended: datetime) -> Span:
        error = (row.reason or "failed") if row.state in _ERRORS else None
        about = _ours(
            backfill_id=row.backfill_id, dag_id=row.dag_id, state=row.state, items=row.planned, created_by=row.created_by,
            reason=row.reason,
        )  # fmt: skip
        parent = self._ids.request(row.request_id).span if row.request_id else None
        return Span(
            self._ids.backfill(row), f"backfill {row.dag_id}", row.created_at, max(row.created_at, ended), parent,
            about | _error(error), error=error,
        )  # fmt: skip


def job_span(ids: TraceIds, within: Span, number: int, job: Mapping[str, Any]) -> Span:
    """Of a Spark job, as Spark's status store has it (`SparkStatus.job`). One that the store does not know to have ended yet
    ends with its try; one without stages, as over an empty table, has no name there."""
    start = job["began"] or within.start
    end = job["ended"] or max(start, within.end)
    about = _ours(
        spark_job_id=number, spark_application_id=job["application"], spark_stages=job["stages"],
        spark_tasks=job["tasks"], spark_failed_tasks=job["failed_tasks"], spark_job_status=job["status"],
    )  # fmt: skip
    error = "the Spark job has failed" if job["status"] == "FAILED" else None
    name = str(job["name"] or f"Spark job {number}")
    return Span(ids.job(within.id, number), name, start, end, within.id.span, about | _error(error), error=error)


def _ours(**values: str | int | float | bool | None) -> Attributes:
    return {f"{PREFIX}.{name}": value for name, value in values.items() if value is not None}


def _error(message: str | None) -> Attributes:
    """`error.type`, as the conventions want it: of few values."""
    if message is None:
        return {}
    found = _TYPE_OF_ERROR.match(message)
    return {"error.type": found[1] if found else "_OTHER"}
