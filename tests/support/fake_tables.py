"""Stands for `manager.table_jobs.TableJobs` in stories without Spark: what becomes of tables is given."""

from __future__ import annotations

from typing import Any

from backfill_manager.execution.promote_revert.preview_parts import WriteOfTry
from backfill_manager.execution.promote_revert.promote import Promoted
from backfill_manager.execution.promote_revert.revert import Reverted
from backfill_manager.manager.operations.previews import successful_runs
from backfill_manager.manager.services.table_jobs import TableJobResult
from backfill_manager.manager.tick_context import PreviewJob, RevertJob
from backfill_manager.model.records import TableAccess
from backfill_manager.schemas import request_kinds
from backfill_manager.testing import InMemoryManager

PATH = "file:/w/t"


class FakeTables:
    """Does nothing, and says so: at once, or (`is_slow`) when `end_all` is called. Remembers what it was asked for."""

    def __init__(self, manager: InMemoryManager, version: int = 90, *, is_slow: bool = False) -> None:
        self.manager, self.jobs, self.refusal, self.version = manager, list[RevertJob | PreviewJob](), "", version
        self._is_slow, self._waiting = is_slow, list[RevertJob | PreviewJob]()
        manager._loop._table_jobs = self  # type: ignore[assignment]

    def work(self, job: Any) -> None:
        self.jobs.append(job)
        self._waiting.append(job)
        if not self._is_slow:
            self.end_all()

    def end_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        for job in waiting:
            self._end(job)

    @property
    def is_working(self) -> bool:
        return bool(self._waiting)

    def _end(self, job: RevertJob | PreviewJob) -> None:
        if isinstance(job, PreviewJob):
            self.manager.events.put(TableJobResult(job, {"tables": []}, self._promoted(job)))
            return
        writes = tuple(
            WriteOfTry(one.version or 0, one.dag_id, one.run_id, one.task_id, one.launch)
            for one in self.manager.store.read(TableAccess)
            if (one.dag_id, one.run_id) in job.runs and one.access == "write"
        )
        version = None if job.dry_run else self.version
        done = Reverted("t", "t", PATH, "id", version, 0, (0,), (), 1, 0, writes)
        document = {"tables": [done.to_json_document()]}
        result = (
            TableJobResult(job, refusal=self.refusal)
            if self.refusal
            else TableJobResult(job, document, reverted=(done,))
        )
        self.manager.events.put(result)

    def _promoted(self, job: PreviewJob) -> tuple[Promoted, ...]:
        if job.kind != request_kinds.BACKFILL_PROMOTE:
            return ()
        runs = successful_runs(self.manager.store, job.preview_id)
        return (Promoted("t", "t", PATH, 7, 1, tuple(WriteOfTry(1, run.dag_id, run.run_id, "a", 1) for run in runs)),)

    def delete(self, preview_id: str) -> None: ...
