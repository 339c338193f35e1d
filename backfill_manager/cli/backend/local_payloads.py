"""Commands with their fields as typed -> payloads of requests, checked against the state; and dry runs of commands over the
tables, of which nothing is stored."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from backfill_manager.cli.backend.base import Document, accepted
from backfill_manager.cli.backend.watched import watched_response
from backfill_manager.errors import BackfillManagerError, NotFound
from backfill_manager.model.records import BundleRow, DagRow, DagVersion, ImportProblem, Record
from backfill_manager.queries import dags
from backfill_manager.requests import checked_payloads, submit
from backfill_manager.schemas import request_kinds
from backfill_manager.schemas.backfill_options import BackfillInput, CreateBackfill
from backfill_manager.schemas.commands import COMMANDS, ClearTasks, MarkRuns
from backfill_manager.store.base import Condition

if TYPE_CHECKING:
    from backfill_manager.cli.backend.local import LocalBackend

PLAN_TIMEOUT_S: Final = 60.0


def payload_of(backend: LocalBackend, kind: str, values: dict[str, Any], request_id: str) -> Document:
    store, settings = backend.store, backend.context.settings
    backfill = backend.backfill(values["backfill_id"]) if "backfill_id" in values else {}
    match kind:
        case request_kinds.BACKFILL_CREATE:
            return _new_backfill(backend, values, submit.id_from(request_id))
        case request_kinds.BACKFILL_RETRY:
            values = {"latest_version": False, "downstream": False, "items": (), **values}
            latest, items = values["latest_version"], values.pop("items")
            return {**values, **checked_payloads.retried_backfill(backfill, latest_version=latest, items=items)}
        case request_kinds.BACKFILL_SET:
            return checked_payloads.changed_backfill(store, settings, backfill, values["changes"], values.get("was"))
        case request_kinds.BACKFILL_DIFF | request_kinds.BACKFILL_PROMOTE | request_kinds.BACKFILL_DISCARD:
            return COMMANDS[kind].parse({**values, **checked_payloads.previewed_backfill(backfill)}).to_payload()
        case request_kinds.BACKFILL_REVERT:
            return checked_payloads.reverted_backfill(backfill, dry_run=values["dry_run"])
        case request_kinds.RUN_REVERT:
            return checked_payloads.reverted_run(backend.run_row(values), dry_run=values["dry_run"])
        case request_kinds.BACKFILL_PAUSE | request_kinds.BACKFILL_UNPAUSE | request_kinds.BACKFILL_CANCEL:
            return {**values, **checked_payloads.check_not_ended(backfill, kind.removeprefix("backfill."))}
        case request_kinds.DAG_PAUSE | request_kinds.DAG_UNPAUSE | request_kinds.DAG_DEACTIVATE:
            return {"dag_id": dags.current_dag(store, values["dag_id"])[0].dag_id}
        case request_kinds.DAG_TRIGGER:
            values = {"logical_date": None, "conf": {}, **values}
            return checked_payloads.triggered_dag(store, **values, now=backend.clock.now())
        case request_kinds.BUNDLE_PARSE | request_kinds.BUNDLE_DEACTIVATE:
            # An active manager knows its bundles best: its configuration may be another one than ours.
            if not backend.has_active_manager():
                checked_payloads.known_bundle(store, settings, values["bundle"])
            return values
        case request_kinds.RUN_CANCEL:
            return checked_payloads.cancelled_run(backend.run_row(values))
        case request_kinds.RUN_NOTE:
            return checked_payloads.noted_run(backend.run_row(values), values["text"])
        case request_kinds.BACKFILL_NOTE:
            return checked_payloads.noted_backfill(backfill, values["text"])
        case request_kinds.RUN_MARK:
            return checked_payloads.marked_run(backend.run_row(values), values["state"])
        case request_kinds.RUNS_MARK:
            return checked_payloads.marked_runs(store, MarkRuns.parse(values))[0].to_payload()
        case request_kinds.TASK_MARK:
            return checked_payloads.marked_task(store, backend.run_row(values), values["task_id"], values["state"])
        case request_kinds.TASKS_CLEAR:
            return {"ask": _clear_command(backend, values).to_payload()}
        case request_kinds.POOL_SET:
            return checked_payloads.set_pool(store, settings, **values)
        case _:  # manager.stop, state.compact, task.run
            return values


def dry_run_of(backend: LocalBackend, kind: str, values: Mapping[str, Any]) -> Document:
    if kind == request_kinds.BACKFILL_CREATE:
        return _plan_backfill(backend, values)
    if kind == request_kinds.BUNDLE_PARSE:
        return _parse_bundle(backend, values)
    if kind == request_kinds.RUNS_MARK:
        return checked_payloads.marked_runs(backend.store, MarkRuns.parse(values))[1].to_json_document()
    from backfill_manager.planning.runs.clear_plan import preview_clear

    store, command = backend.store, _clear_command(backend, values)
    return preview_clear(store, command, dags.all_dags(store), dags.spec_reader(store)).to_json_document()


def _new_backfill(backend: LocalBackend, values: Mapping[str, Any], backfill_id: str) -> Document:
    """The payload of `backfill.create` and `backfill.dry_run`."""
    settings, now = backend.context.settings, backend.clock.now()
    return checked_payloads.typed_backfill(backend.store, settings, BackfillInput.parse(values), backfill_id, now)


def _clear_command(backend: LocalBackend, values: Mapping[str, Any]) -> ClearTasks:
    return checked_payloads.with_whole_ids(backend.store, ClearTasks.parse(values))


def _plan_backfill(backend: LocalBackend, values: Mapping[str, Any]) -> Document:
    """By an active manager, whose Spark is warm; without one in this process. Both call the same planner."""
    payload = _new_backfill(backend, values, backend.clock.new_id())
    if not backend.has_active_manager():
        return _plan_here(backend, CreateBackfill.from_payload(payload["ask"]))
    request = submit.submit(backend.store, backend.clock, request_kinds.BACKFILL_DRY_RUN, payload)
    response = watched_response(backend.context, request, PLAN_TIMEOUT_S, to="plan")
    if response is None:
        raise BackfillManagerError(
            f"The manager has not planned it within {PLAN_TIMEOUT_S:g} s. `bfm manager status` says whether it may hang; else "
            f"the plan will be in `bfm requests show {request.request_id}`."
        )
    plan: Document = json.loads(accepted(response).payload_json or "{}")
    return plan


def _plan_here(backend: LocalBackend, backfill: CreateBackfill) -> Document:
    from backfill_manager.cli.backend.local_spark import local_spark
    from backfill_manager.execution.inputs.input_statistics import input_files
    from backfill_manager.execution.inputs.interval_rows import rows_counter
    from backfill_manager.execution.inputs.wait_checks import wait_checks_of_plan
    from backfill_manager.planning.backfills.batch_forecast import with_batch_limits
    from backfill_manager.planning.backfills.dry_run import with_dry_run
    from backfill_manager.planning.backfills.make_plan import make_plan
    from backfill_manager.queries.data_gaps import wanted_by_data

    context, store, now = backend.context, backend.store, backend.clock.now()
    if context.out.is_table:
        context.out.note("No manager is running: planning here, which starts Spark and takes some seconds.")
    row, dag = dags.current_dag(store, backfill.dag_id)
    others = dags.current_dags(store) if backfill.downstream else {}
    with local_spark(context) as spark:
        find_wanted = wanted_by_data(store, rows_counter(spark))
        plan = make_plan(spark, store, backfill, dag, row.current_version, others, now, find_wanted)
        plan = with_batch_limits(plan, store, context.settings.limits.batch_target)
        found = with_dry_run(plan, store, now, check_waits=wait_checks_of_plan(spark), files_of=input_files(spark))
        return found.to_json_document()


def _parse_bundle(backend: LocalBackend, values: Mapping[str, Any]) -> Document:
    """Read by this process, compared with the state as it is (also one that does not exist yet)."""
    from backfill_manager.dags.parsers.bundle_state import BundleState
    from backfill_manager.dags.parsers.local_parse import parse_dry_run

    settings, store = backend.context.settings, backend.any_store
    bundles = {bundle.name: bundle for bundle in settings.bundles}
    if values["bundle"] not in bundles:
        raise NotFound("bundle", values["bundle"], bundles)
    before: list[Record] = []
    pools = checked_payloads.pool_names(store, settings)
    if store.exists():
        problems = store.read(ImportProblem, [Condition("is_current", "=", True)])
        before = [*store.read(DagRow), *store.read(DagVersion), *store.read(BundleRow), *problems]
    with tempfile.TemporaryDirectory(prefix="bfm-parse-") as scratch:
        bundle = BundleState(bundles[values["bundle"]], snapshots=Path(scratch), limits=settings.limits)
        removed = values["deactivate_removed"]
        return parse_dry_run(
            bundle, values["subpath"], before, backend.clock, deactivate_removed=removed, pools=pools
        ).to_json_document()
