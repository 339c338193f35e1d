"""Previews without Spark: what is done with clones is given."""

from __future__ import annotations

from collections.abc import Callable

from backfill_manager.execution.messages import AccessedTable, Outcome, TaskLaunch
from backfill_manager.execution.promote_revert.preview_parts import WriteOfTry
from backfill_manager.execution.promote_revert.promote import Promoted
from backfill_manager.manager.prefetch import refill
from backfill_manager.manager.services.table_jobs import TableJobResult
from backfill_manager.manager.tick_context import PreviewJob
from backfill_manager.model.records import DagRun
from backfill_manager.schemas import request_kinds
from backfill_manager.testing import InMemoryManager, dag_spec, days

SPEC = dag_spec("d", "a", "b", upstream={"b": ["a"]}, each={"a": {"depends_on_past": True}})

READS = (AccessedTable("read", "bronze.t", "file:/w/b", 3), AccessedTable("read", "silver.t", "file:/w/t"))


class FakeClones:
    """Does at once what `TableJobs` does with tables: nothing, and says so. Remembers what it was asked for."""

    def __init__(self, manager: InMemoryManager) -> None:
        self.manager, self.promoted, self.deleted = manager, list[PreviewJob](), list[str]()
        self.refusal = ""
        manager._loop._table_jobs = self

    def work(self, job: PreviewJob) -> None:
        runs = [run for run in self.manager.store.read(DagRun) if run.run_type in ("preview", "backfill")]
        writes = tuple(
            WriteOfTry(1, run.dag_id, run.run_id, "a", 1, reads=READS)
            for run in runs
            if run.run_id.startswith("preview__")
        )
        table = Promoted("silver.t", "silver.t", "file:/w/t", 7, 1, writes)
        tables = (table,) if job.kind == request_kinds.BACKFILL_PROMOTE else ()
        self.promoted.append(job)
        self.manager.events.put(TableJobResult(job, {"tables": len(tables)}, tables, self.refusal))

    def delete(self, preview_id: str) -> None:
        self.deleted.append(preview_id)


def a_preview(manager: InMemoryManager, n: int = 3, **fields: object) -> str:
    preview_id = manager.backfill("d", days("2023-01-01", n), reprocess="completed", **fields)
    live = manager.state.backfills[preview_id]
    manager.state.put(live.row.evolve(preview_id=preview_id))
    manager.commit()
    refill(live, manager.store)
    return preview_id


def previewed(script: Callable[[TaskLaunch], Outcome | None] | None = None) -> tuple[InMemoryManager, FakeClones, str]:
    """Two days that have real runs, and a preview of three that has ended."""
    manager = InMemoryManager(SPEC)
    clones = FakeClones(manager)
    manager.backfill("d", days("2023-01-01", 2))
    manager.drain()
    if script is not None:
        manager.script = script
    preview_id = a_preview(manager)
    manager.drain()
    return manager, clones, preview_id
