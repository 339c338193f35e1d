"""Where a request leads: the page of what it was about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backfill_manager.schemas import kinds
from backfill_manager.web.paths import to, to_run


def about(request: Mapping[str, Any]) -> tuple[str, str] | None:
    """Address and name of the thing that a request (of `queries.requests`) made or touched."""
    names, made = request["about"], request["object_id"]
    if "backfill_id" in names:
        return to("backfills", names["backfill_id"]), f"backfill {names['backfill_id']}"
    if request["kind"] == kinds.POOL_SET:
        return "/pools", f"pool {names.get('name')}"
    if request["kind"] == kinds.MANAGER_STOP:
        return "/manager", "manager"
    dag_id, run_id = names.get("dag_id"), names.get("run_id")
    if request["kind"] in (kinds.DAG_TRIGGER, kinds.TASK_RUN):
        run_id = made
    if dag_id is None:
        return None
    return (to_run(dag_id, run_id), str(run_id)) if run_id else (to("dags", dag_id), dag_id)
