"""Previews over the tables: the plan of a backfill, of a clear, and what parsing a bundle would change. Nothing is stored."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from backfill_manager.cli.backend.base import Document, accepted
from backfill_manager.cli.backend.local_submit import clear_command, new_backfill
from backfill_manager.errors import BackfillManagerError, NotFound
from backfill_manager.model.records import BundleRow, DagRow, DagVersion, ImportProblem, Record
from backfill_manager.queries import dags
from backfill_manager.requests import submit
from backfill_manager.schemas.commands import CreateBackfill
from backfill_manager.schemas.kinds import BACKFILL_DRY_RUN
from backfill_manager.store.base import Condition, Store

if TYPE_CHECKING:
    from backfill_manager.cli.backend.local import LocalBackend

PLAN_TIMEOUT_S: Final = 60.0


def plan_backfill(backend: LocalBackend, values: Mapping[str, Any]) -> Document:
    """By an active manager, whose Spark is warm; without one in this process. Both call the same planner."""
    store, clock = backend.store, backend.clock
    payload = new_backfill(backend, values, clock.new_id())
    if not backend.has_active_manager():
        return _plan_here(backend, CreateBackfill.from_payload(payload["ask"]))
    response = backend.wait(submit.submit(store, clock, BACKFILL_DRY_RUN, payload), PLAN_TIMEOUT_S)
    if response is None:
        raise BackfillManagerError(
            f"The manager has not planned it within {PLAN_TIMEOUT_S:g} s; look at `bfm manager status`."
        )
    plan: Document = json.loads(accepted(response).payload_json or "{}")
    return plan


def _plan_here(backend: LocalBackend, backfill: CreateBackfill) -> Document:
    from backfill_manager.cli.backend.local_spark import local_spark
    from backfill_manager.execution.input_statistics import input_files
    from backfill_manager.planning.downstream_plan import plan_with_downstream
    from backfill_manager.planning.estimates import with_estimates
    from backfill_manager.planning.reruns import with_reruns

    context, store, now = backend.context, backend.store, backend.clock.now()
    if context.out.is_table:
        context.out.note("No manager is running: planning here, which starts Spark and takes some seconds.")
    row, dag = dags.current_dag(store, backfill.dag_id)
    others = dags.current_dags(store) if backfill.downstream else {}
    with local_spark(context) as spark:
        plan = with_reruns(plan_with_downstream(spark, store, backfill, dag, row.current_version, others, now), store)
        return with_estimates(plan, store, input_files(spark), now).to_json_document()


def plan_clear(backend: LocalBackend, values: Mapping[str, Any]) -> Document:
    from backfill_manager.planning.clear_plan import plan_clear

    store = backend.store
    return plan_clear(
        store, clear_command(backend, values), dags.all_dags(store), dags.spec_reader(store)
    ).to_json_document()


def parse_bundle(backend: LocalBackend, values: Mapping[str, Any]) -> Document:
    """Read by this process, compared with the state as it is (also one that does not exist yet)."""
    from backfill_manager.dags.parsers.local_parse import preview

    settings = backend.context.settings
    bundles = {bundle.name: bundle for bundle in settings.bundles}
    if values["bundle"] not in bundles:
        raise NotFound("bundle", values["bundle"], bundles)
    with tempfile.TemporaryDirectory(prefix="bfm-parse-") as scratch:
        return preview(
            bundles[values["bundle"]],
            values["subpath"],
            _parsed_before(backend.any_store),
            snapshots=Path(scratch),
            limits=settings.limits,
            clock=backend.clock,
            deactivate_removed=values["deactivate_removed"],
        ).to_json_document()


def _parsed_before(store: Store) -> list[Record]:
    if not store.exists():
        return []
    problems = store.read(ImportProblem, [Condition("is_current", "=", True)])
    return [*store.read(DagRow), *store.read(DagVersion), *store.read(BundleRow), *problems]
