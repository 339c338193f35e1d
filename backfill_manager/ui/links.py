"""Where a request leads: the page of what it was about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backfill_manager.requests import kinds
from backfill_manager.ui.paths import to, to_run


def about(request: Mapping[str, Any]) -> tuple[str, str] | None:
    """Address and name of the thing that a request (of `views.requests`) made or touched."""
    payload, made = request["payload"], request["object_id"]
    if not isinstance(payload, dict):
        return None
    if request["kind"] == kinds.TASKS_CLEAR:
        dag_id = payload.get("ask", {}).get("dag")
        return None if payload.get("ask", {}).get("is_regex") or not dag_id else (to("dags", dag_id), str(dag_id))
    if "backfill_id" in payload:
        return to("backfills", payload["backfill_id"]), f"backfill {payload['backfill_id']}"
    if request["kind"] == kinds.POOL_SET:
        return "/pools", f"pool {payload.get('name')}"
    if request["kind"] == kinds.MANAGER_STOP:
        return "/manager", "manager"
    dag_id, run_id = payload.get("dag_id"), payload.get("run_id")
    if request["kind"] in (kinds.DAG_TRIGGER, kinds.TASK_RUN):
        run_id = made
    if not isinstance(dag_id, str):
        return None
    return (to_run(dag_id, run_id), str(run_id)) if run_id else (to("dags", dag_id), dag_id)
