"""`bfm dags trigger`: a run by hand. Which interval it got is in the manager's answer."""

from __future__ import annotations

from backfill_manager.cli.backend.base import Document
from backfill_manager.cli.context import CliContext
from backfill_manager.cli.render.response import answered
from backfill_manager.errors import NotFound
from backfill_manager.requests.json_input import parse_conf


def trigger_dag(
    call: CliContext, dag_id: str, logical_date: str | None, conf: str | None, *, allow_future: bool
) -> None:
    request = call.source.trigger(dag_id, logical_date, parse_conf(conf), allow_future=allow_future)
    answer = answered(call, request)
    run = None if answer is None or answer.object_id is None else _run(call, dag_id, answer.object_id)
    if not call.out.is_table:
        told = {
            "request_id": request.request_id,
            "kind": request.kind,
            "dag_id": dag_id,
            "outcome": answer.outcome if answer else "waiting",
            "message": answer.message if answer else None,
            "run_id": answer.object_id if answer else None,
            "run": run,
        }
        call.out.document(told)
    elif answer is None:
        call.out.line(f"Trigger {dag_id}: asked for (request {request.request_id}).")
    else:
        call.out.line(f"Asked for: {answer.message}.")


def _run(call: CliContext, dag_id: str, run_id: str) -> Document | None:
    try:
        return call.source.run(run_id, dag_id)
    except NotFound:  # made, and not committed yet
        return None
