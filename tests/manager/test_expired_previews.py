"""Previews that nobody promotes or discards, as the service that looks for them has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.preview_scenarios import previewed

from backfill_manager.manager.services.table_jobs import TableJobs
from backfill_manager.model.records import Response
from backfill_manager.schemas import request_kinds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_request_keeps_an_expired_preview_only_until_it_is_answered(spark: SparkSession) -> None:
    manager, _, preview_id = previewed()
    manager.clock.advance(days=8)
    manager.ask(request_kinds.BACKFILL_DIFF, backfill_id=preview_id)

    def arrives_after_the_request(event: Any) -> None:
        manager.tick()
        manager.events.put(event)

    jobs = TableJobs(
        spark, manager.store, manager.clock, state_id="s", keep_s=7 * 86_400, on_event=arrives_after_the_request,
        on_spark_gone=print,
    )  # fmt: skip
    manager._loop._table_jobs = jobs
    jobs.set_up()
    jobs.run_once()  # finds it, while the request comes
    manager.drain()
    assert manager.row(preview_id).preview_outcome is None
    jobs.run_once()  # compares
    manager.drain()
    assert [row.outcome for row in manager.store.read(Response) if row.kind == request_kinds.BACKFILL_DIFF] == [
        "accepted"
    ]
    jobs.run_once()
    manager.drain()
    assert manager.row(preview_id).preview_outcome == "expired"
