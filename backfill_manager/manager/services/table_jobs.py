"""Works with tables for requests, in a thread of its own: compares, promotes and deletes the clones of previews; reverts runs.

    request ─► job ─► `TableJobResult` ─► the tick commits the outcome with the response ─► clones that are not needed any more go

A manager that is killed anywhere in it is followed by one that gets the same request again: what has been done is left out. Once
an hour, at its start, and after a job for which a preview did not expire, it looks for previews that have expired, and for clones
that a crash has left behind.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from backfill_manager.clock import Clock
from backfill_manager.errors import BackfillManagerError, InvalidInput
from backfill_manager.execution.error_format import one_line
from backfill_manager.execution.output.clones import ClonedTable, Clones, remaining
from backfill_manager.execution.output.output_table import OutputTable
from backfill_manager.execution.output.table_turns import PROCESS_TURNS, TurnHolder
from backfill_manager.execution.promote_revert.preview_parts import WriteOfTry, each
from backfill_manager.execution.promote_revert.promote import PreviewedTable, Promoted, Promotion
from backfill_manager.execution.promote_revert.revert import Reversion, Reverted
from backfill_manager.execution.promote_revert.table_diff import MAX_PARTS, diff, schema_changes
from backfill_manager.execution.promote_revert.table_swap import rows_at
from backfill_manager.execution.spark.spark_health import spark_gone_reason
from backfill_manager.execution.spark.spark_job_group import SparkJobGroup
from backfill_manager.logging import get_logger
from backfill_manager.manager.operations.previews import expired, successful_runs
from backfill_manager.manager.operations.reverts import MAX_READERS, readers
from backfill_manager.manager.steady_clock import Doubt, SteadyClock
from backfill_manager.manager.tick_context import PreviewJob, RevertJob
from backfill_manager.masking import secrets_in
from backfill_manager.model.pools import BACKFILL_POOL
from backfill_manager.model.records import Backfill
from backfill_manager.model.stored_json import shown_column
from backfill_manager.schemas import request_kinds
from backfill_manager.service import Service
from backfill_manager.store.base import Store, matching

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SWEEP_INTERVAL: Final = timedelta(hours=1)
log = get_logger("previews")


@dataclass(frozen=True)
class TableJobResult:
    job: PreviewJob | RevertJob
    document: dict[str, Any] = field(default_factory=dict)
    promoted: tuple[Promoted, ...] = ()
    refusal: BackfillManagerError | str = ""
    reverted: tuple[Reverted, ...] = ()


@dataclass(frozen=True)
class PreviewsExpired:
    preview_ids: tuple[str, ...]


class TableJobs(Service):
    def __init__(
        self, spark: SparkSession, store: Store, clock: Clock, *, state_id: str, keep_s: float | None,
        on_event: Callable[[TableJobResult | PreviewsExpired], None], on_spark_gone: Callable[[str], None],
        is_leader: Callable[[], bool] = lambda: True, doubt: Doubt | None = None,
    ) -> None:  # fmt: skip
        super().__init__("previews")
        self._spark, self._store, self._clock, self._state_id, self._keep_s = spark, store, clock, state_id, keep_s
        self._steady = SteadyClock(clock, doubt)
        self._on_event, self._on_spark_gone, self._is_leader = on_event, on_spark_gone, is_leader
        self._jobs: queue.SimpleQueue[PreviewJob | RevertJob | str] = queue.SimpleQueue()
        self._next_sweep: datetime | None = None
        self._expired: list[str] = []  # as the last sweep found them
        self._turns = TurnHolder(PROCESS_TURNS, "a promotion or a revert")
        self._group = SparkJobGroup(BACKFILL_POOL, "bfm/previews", "previews")  # each job has a pool of its own

    def work(self, job: PreviewJob | RevertJob) -> None:
        """`on_event` gets the result, in this service's thread."""
        self._jobs.put(job)
        self.wake()

    def delete(self, preview_id: str) -> None:
        """The clones of a preview whose outcome is committed."""
        self._jobs.put(preview_id)
        self.wake()

    def stop(self) -> None:
        self._stopping.set()
        self._turns.stop_waiting()
        self._group.cancel_jobs(self._spark.sparkContext)
        super().stop()
        self._turns.release_all()

    def set_up(self) -> None:
        self._session = self._spark.newSession()
        self._session.conf.set("spark.sql.files.ignoreMissingFiles", "false")  # rows would be left out in silence
        self._group.enter(self._session)

    def run_once(self) -> float | None:
        try:
            job = self._jobs.get_nowait()
        except queue.Empty:
            return self._sweep()
        if isinstance(job, str):
            self._delete([job])
        elif (result := self._result(job)) is not None:
            self._on_event(result)
            if isinstance(job, PreviewJob) and job.preview_id in self._expired:
                self._next_sweep = None  # for this job it did not expire
        return 0

    def _result(self, job: PreviewJob | RevertJob) -> TableJobResult | None:
        """None for no answer: this manager is stopping, or Spark is gone."""
        try:
            self._session.conf.set("spark.scheduler.pool", job.pool)
            self._spark.sparkContext.setLocalProperty("spark.scheduler.pool", job.pool)
            return self._done(job)
        except Exception as error:
            if self._stopping.is_set():
                return None
            if reason := spark_gone_reason(self._spark):
                self._on_spark_gone(reason)
                return None
            if isinstance(error, BackfillManagerError):
                return TableJobResult(job, refusal=error)
            log.error("request failed", kind=job.kind, request=job.request_id, exc_info=error)
            return TableJobResult(job, refusal=f"It failed: {one_line(error)}")

    def _done(self, job: PreviewJob | RevertJob) -> TableJobResult:
        if isinstance(job, RevertJob):
            reversion = Reversion(self._session, self._state_id, job.runs, self._turns, self._is_leader)
            reverted = tuple(reversion.run(job.tables, dry_run=job.dry_run))
            documents = [one.to_json_document() for one in reverted]
            read_by = readers(self._store, reverted, set(job.runs))
            document = {"tables": documents, "read_by": read_by[:MAX_READERS], "readers": len(read_by)}
            return TableJobResult(job, document, reverted=reverted)
        clones = Clones(self._session, job.preview_id)
        runs = {run.key for run in successful_runs(self._store, job.preview_id)}
        if job.kind == request_kinds.BACKFILL_PROMOTE:
            promotion = Promotion(
                self._session, job.preview_id, self._state_id, runs, self._turns, rebase=job.rebase,
                is_leader=self._is_leader,
            )  # fmt: skip
            promoted = tuple(promotion.run(clones.all()))
            return TableJobResult(job, {"tables": [_promoted(one) for one in promoted]}, promoted)
        found = clones.all()
        if job.table is not None:
            found = _named(self._session, found, job.table)
        rows = self._store.read(Backfill, matching(preview_id=job.preview_id))
        known = tuple(secret for row in rows for secret in secrets_in(shown_column(row, "conf_json")))
        tables = [_diff_of(self._session, clone, runs, job.key, known) for clone in found]
        document = {"backfill_id": job.preview_id, "tables": [one for one in tables if one is not None]}
        return TableJobResult(job, document)

    def _sweep(self) -> float | None:
        now = self._clock.now()
        # A sweep that is later than that was planned before the clock was set back.
        if self._next_sweep is not None and now < self._next_sweep <= now + SWEEP_INTERVAL:
            return (self._next_sweep - now).total_seconds()
        self._next_sweep = now + SWEEP_INTERVAL
        try:
            if self._keep_s is not None:
                self._expired = expired(self._store, self._steady.now() - timedelta(seconds=self._keep_s))
                if self._expired:
                    self._on_event(PreviewsExpired(tuple(self._expired)))
            left = remaining(self._session)
            rows = self._store.read(Backfill, matching(preview_id=left)) if left else []
            self._delete(sorted({row.preview_id or "" for row in rows if row.preview_outcome is not None}))
        except Exception as error:  # noqa: BLE001 - logged; the next sweep does it
            if not self._stopping.is_set() and spark_gone_reason(self._spark) is None:
                log.warning("could not look for clones of previews", reason=one_line(error))
        return SWEEP_INTERVAL.total_seconds()

    def _delete(self, preview_ids: Sequence[str]) -> None:
        for preview_id in preview_ids:
            try:
                Clones(self._session, preview_id).discard()
            except Exception as error:  # noqa: BLE001 - logged; the next sweep does it
                if not self._stopping.is_set() and spark_gone_reason(self._spark) is None:
                    log.warning("could not delete the clones of a preview", backfill=preview_id, reason=one_line(error))


def _promoted(one: Promoted) -> dict[str, Any]:
    return {"table": one.table, "version": one.version, "parts": one.parts or None, "writes": len(one.writes)}


def _named(spark: SparkSession, clones: Sequence[ClonedTable], name: str) -> list[ClonedTable]:
    identity = OutputTable(spark, name).identity
    found = [one for one in clones if identity in (one.source.identity, one.source.path)]
    if not found:
        written = ", ".join(one.source.table for one in clones) or "none"
        raise InvalidInput(f"the preview has not written a table {name!r}; it has written {written}")
    return found


def _diff_of(
    spark: SparkSession, clone: ClonedTable, runs: set[tuple[str, str]], key: Sequence[str], known: tuple[str, ...]
) -> dict[str, Any] | None:  # fmt: skip
    """None for a table that no successful run has written, unless it was made without rows. `known`: secrets of the preview's
    params."""
    table = PreviewedTable(spark, clone, runs)
    if not table.writes and (table.is_written or clone.source.version is not None):
        return None
    new, state = table.rows(), table.output.read() if table.output.exists() else None
    old = new.limit(0) if state is None else rows_at(spark, state.path, None, table.parts)
    parts = [] if table.parts.is_whole else each(table.writes, MAX_PARTS)
    found = diff(old, new, list(key) or _merge_key(table.writes), parts)
    return {
        "table": table.name, "version": state.version if state else None, "cloned_version": clone.source.version,
        "schema_changes": schema_changes(old.schema, new.schema), **asdict(found.without_secrets(known)),
    }  # fmt: skip


def _merge_key(writes: Sequence[WriteOfTry]) -> list[str]:
    """The columns by which all of them were merged."""
    keys = {one.key for one in writes}
    return list(next(iter(keys))) if len(keys) == 1 else []
