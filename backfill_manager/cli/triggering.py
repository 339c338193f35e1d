"""`bfm dags trigger`: a run by hand. Which interval it got is in the manager's answer."""

from __future__ import annotations

from backfill_manager.cli.answers import answered
from backfill_manager.cli.call import Call
from backfill_manager.requests.json_values import conf_of
from backfill_manager.model.records import DagRun
from backfill_manager.requests import asking
from backfill_manager.requests.kinds import DAG_TRIGGER
from backfill_manager.store.contract import Condition
from backfill_manager.views.payloads import triggered_dag
from backfill_manager.views.runs import run_view


def trigger_dag(call: Call, dag_id: str, logical_date: str | None, conf: str | None) -> None:
    payload = triggered_dag(call.store, dag_id, logical_date, conf_of(conf))
    request = asking.ask(call.store, call.clock, DAG_TRIGGER, payload)
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
            "run": None if run is None else run_view(run),
        }
        call.out.document(told)
    elif answer is None:
        call.out.line(f"Trigger {dag_id}: asked for (request {request.request_id}).")
    else:
        call.out.line(f"Asked for: {answer.message}.")


def _run(call: Call, dag_id: str, run_id: str) -> DagRun | None:
    found = call.store.read(DagRun, [Condition("dag_id", "=", dag_id), Condition("run_id", "=", run_id)], limit=1)
    return found[0] if found else None
