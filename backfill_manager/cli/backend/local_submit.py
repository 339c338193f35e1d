"""Commands with their fields as typed -> payloads of requests, checked against the state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from backfill_manager.cli.backend.base import Document
from backfill_manager.queries import dags
from backfill_manager.requests import submit, validation
from backfill_manager.requests.backfill_checks import read_backfill
from backfill_manager.schemas import kinds
from backfill_manager.schemas.commands import BackfillInput, ClearTasks

if TYPE_CHECKING:
    from backfill_manager.cli.backend.local import LocalBackend


def payload_of(backend: LocalBackend, kind: str, values: dict[str, Any], request_id: str) -> Document:
    store, settings, now = backend.store, backend.context.settings, backend.clock.now()
    match kind:
        case kinds.BACKFILL_CREATE:
            return new_backfill(backend, values, submit.id_from(request_id))
        case kinds.BACKFILL_RETRY:
            return validation.retried_backfill(backend.backfill(values["backfill_id"]))
        case kinds.BACKFILL_SET:
            backfill = backend.backfill(values["backfill_id"])
            return validation.changed_backfill(store, settings, backfill, values["changes"])
        case kinds.BACKFILL_PAUSE | kinds.BACKFILL_UNPAUSE | kinds.BACKFILL_CANCEL:
            backfill = backend.backfill(values["backfill_id"])
            return {**values, **validation.check_not_ended(backfill, kind.removeprefix("backfill."))}
        case kinds.DAG_PAUSE | kinds.DAG_UNPAUSE | kinds.DAG_DEACTIVATE:
            return {"dag_id": dags.current_dag(store, values["dag_id"])[0].dag_id}
        case kinds.DAG_TRIGGER:
            values = {"logical_date": None, "conf": {}, **values}
            return validation.triggered_dag(store, **values, now=now)
        case kinds.BUNDLE_PARSE | kinds.BUNDLE_DEACTIVATE:
            # An active manager knows its bundles best: its configuration may be another one than ours.
            if not backend.has_active_manager():
                validation.known_bundle(store, settings, values["bundle"])
            return values
        case kinds.RUN_CANCEL:
            return validation.cancelled_run(backend.run_row(values))
        case kinds.RUN_MARK:
            return validation.marked_run(backend.run_row(values), values["state"])
        case kinds.TASK_MARK:
            return validation.marked_task(store, backend.run_row(values), values["task_id"], values["state"])
        case kinds.TASKS_CLEAR:
            return {"ask": clear_command(backend, values).to_payload()}
        case kinds.POOL_SET:
            return validation.set_pool(store, **{"weight": None, "min_share": None, **values})
        case _:  # manager.stop, state.compact, task.run
            return values


def new_backfill(backend: LocalBackend, values: Mapping[str, Any], backfill_id: str) -> Document:
    """The payload of `backfill.create` and `backfill.dry_run`; dates are read in the DAG's zone."""
    backfill = BackfillInput.parse(values)
    command = read_backfill(backfill, dags.current_dag(backend.store, backfill.dag_id)[1])
    return validation.new_backfill(backend.store, backend.context.settings, command, backfill_id, backend.clock.now())


def clear_command(backend: LocalBackend, values: Mapping[str, Any]) -> ClearTasks:
    return validation.with_whole_run_ids(backend.store, ClearTasks.parse(values))
