"""A trace of a real backfill: the request, its plan, runs, tries, their Spark jobs, and spans that a task's own code makes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.manager_process import TIMEOUT_S, ended, request
from support.otlp_receiver import Receiver, otlp_receiver

from backfill_manager.clock import UTC
from backfill_manager.manager.manager import run_manager
from backfill_manager.model import states as s
from backfill_manager.model.records import TaskInstance
from backfill_manager.schemas.backfill_options import CreateBackfill
from backfill_manager.settings import BundleSettings, Settings
from backfill_manager.store import open_store
from backfill_manager.store.base import Condition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST = datetime(2024, 3, 5, tzinfo=UTC)
DAG_FILE = """
import os
import threading
from backfill_manager import dag, sql, task


@dag(schedule="@daily", start_date="2024-03-01", end_date="2024-12-31")
def traced():
    @task
    def count(ctx):
        from opentelemetry import trace
        tracer = trace.get_tracer("traced.api")
        with tracer.start_as_current_span("fetch", attributes={"pages": 3}):
            n = ctx.spark.range(100).repartition(2).count()
            cause = trace.SpanContext(1, 2, is_remote=True)
            with tracer.start_as_current_span("parse", links=[trace.Link(cause)]) as span:
                span.add_event("parsed", {"why": "password=hunter22"})

        @tracer.start_as_current_span("in a thread")
        def work():
            pass

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return [n, os.environ["TRACEPARENT"], "OTEL_EXPORTER_OTLP_HEADERS" in os.environ]

    @task
    def quiet(ctx):
        import sys
        return [name for name in sys.modules if name.startswith("opentelemetry.")]

    [count(), quiet()] >> sql("query", "SELECT count(*) FROM range(10)")
"""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with otlp_receiver() as it:
        yield it


def test_a_backfill_of_a_day_from_its_request_to_its_spark_jobs(
    receiver: Receiver, tmp_path: Path, spark: SparkSession
) -> None:
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    (bundle / "traced.py").write_text(DAG_FILE)
    settings = Settings(
        state=str(tmp_path / "state"), bundles=[BundleSettings(name="tests", path=str(bundle))],
        opentelemetry={"endpoint": receiver.url},
    )  # fmt: skip
    ready, stop = threading.Event(), threading.Event()
    manager = threading.Thread(
        target=run_manager, args=(settings,),
        kwargs={"state": settings.state, "ready": ready, "stop": stop, "spark": spark},
    )  # fmt: skip
    manager.start()
    try:
        assert ready.wait(TIMEOUT_S)
        store = open_store(settings.state)
        request(store, CreateBackfill(dag_id="traced", start_date=FIRST, end_date=FIRST), "b1")
        done = ended(store, "b1")
        assert done.state == s.SUCCESS, done.reason
        results = {
            row.task_id: row.result_json or "" for row in store.read(TaskInstance, [Condition("dag_id", "=", "traced")])
        }
    finally:
        stop.set()
        manager.join(TIMEOUT_S)
    spans = receiver.spans  # the manager's end has sent the rest
    by_name = {span.name: span for span in spans}
    asked, plan, backfill, run = (by_name[n] for n in ("backfill.create", "plan", "backfill traced", "run traced"))
    assert plan.parent == backfill.parent == asked.id and run.links == ((asked.trace, asked.id),)
    assert asked.start <= plan.start <= plan.end <= asked.end <= run.start <= run.end <= backfill.end

    tries = {name: by_name[f"task {name}"] for name in ("count", "quiet", "query")}
    assert {span.parent for span in tries.values()} == {run.id}
    fetch, parse, in_thread = (by_name[name] for name in ("fetch", "parse", "in a thread"))
    assert fetch.parent == in_thread.parent == tries["count"].id and parse.parent == fetch.id
    assert tries["count"].start <= fetch.start <= parse.start <= parse.end <= fetch.end <= tries["count"].end
    assert fetch.scope == "traced.api" and fetch.attributes == {"pages": 3}
    assert fetch.resource["service.name"] == "backfill-manager"
    assert [name for name, _ in parse.events] == ["parsed"] and "hunter22" not in str(spans)
    assert parse.links == ((f"{1:032x}", f"{2:016x}"),)
    assert f'"00-{run.trace}-{tries["count"].id}-01"' in results["count"] and "false" in results["count"]
    assert results["quiet"] == "[]", "a task that makes no spans imports nothing"

    jobs = [span for span in spans if "backfill_manager.spark_job_id" in span.attributes]
    assert {span.parent for span in jobs} == {tries["count"].id, tries["query"].id}
    assert all(span.attributes["backfill_manager.spark_job_status"] == "SUCCEEDED" for span in jobs)
    (of_count, *_) = [span for span in jobs if span.parent == tries["count"].id]
    assert fetch.start - timedelta(milliseconds=2) <= of_count.start <= of_count.end <= fetch.end + timedelta(seconds=1)
    assert of_count.attributes["backfill_manager.spark_application_id"] == spark.sparkContext.applicationId
    assert {span.trace for span in (*tries.values(), fetch, parse, in_thread, *jobs)} == {run.trace}
    assert len({span.id for span in spans}) == len(spans)
