"""*One run*: its facts, its tasks, their tries over time, and what can be done to it."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from fastapi import Form
from starlette.responses import Response

from backfill_manager.dags.definition import DagSpec
from backfill_manager.errors import NotFound
from backfill_manager.model.records import DagRun
from backfill_manager.requests.kinds import RUN_CANCEL, RUN_MARK
from backfill_manager.ui import paths
from backfill_manager.ui.drawing.gantt import gantt
from backfill_manager.ui.site import OperatorVisit, Visit, VisitOf, lead_to, page_router
from backfill_manager.views.dags import spec_reader
from backfill_manager.views.payloads import cancelled_run, marked_run
from backfill_manager.views.runs import find_run, run_details
from backfill_manager.views.spans_of_run import spans_of_run
from backfill_manager.views.tasks import list_task_instances

router: Final = page_router()


@router.get("/runs/{dag_id}/{run_id}")
def run(visit: VisitOf, dag_id: str, run_id: str) -> Response:
    row = run_of(visit, dag_id, run_id)
    if row.run_id != paths.from_segment(run_id):  # `latest` will be another one tomorrow
        return lead_to(paths.to("runs", row.dag_id, row.run_id))
    spec = spec_of(visit, row)
    tasks = {one["task_id"]: one for one in list_task_instances(visit.store, row)}
    order = [task.task_id for task in spec.in_order] if spec else []
    drawn = gantt(spans_of_run(visit.store, row, spec, visit.now))
    return visit.page(
        "run.html", run=run_details(row), zone=spec.timezone if spec else "UTC", drawn=drawn,
        tasks=[tasks[one] for one in order if one in tasks] + [tasks[one] for one in sorted(set(tasks) - set(order))],
    )  # fmt: skip


@router.post("/runs/{dag_id}/{run_id}/cancel")
async def cancel(visit: OperatorVisit, dag_id: str, run_id: str, back: Annotated[str, Form()] = "") -> Response:
    def payload(_: str) -> dict[str, Any]:
        return cancelled_run(run_of(visit, dag_id, run_id))

    return await visit.ask(RUN_CANCEL, payload, back=back or _page_of(dag_id, run_id))


@router.post("/runs/{dag_id}/{run_id}/mark")
async def mark(
    visit: OperatorVisit,
    dag_id: str,
    run_id: str,
    state: Annotated[Literal["success", "failed"], Form()],
    back: Annotated[str, Form()] = "",
) -> Response:
    def payload(_: str) -> dict[str, Any]:
        return marked_run(run_of(visit, dag_id, run_id), state)

    return await visit.ask(RUN_MARK, payload, back=back or _page_of(dag_id, run_id))


def run_of(visit: Visit, dag_id: str, run_id: str) -> DagRun:
    return find_run(visit.store, paths.from_segment(run_id), dag_id=paths.from_segment(dag_id))


def spec_of(visit: Visit, row: DagRun) -> DagSpec | None:
    """The definition that the run has; None when that version is gone."""
    try:
        return spec_reader(visit.store)(row.dag_id, row.dag_version)
    except NotFound:
        return None


def _page_of(dag_id: str, run_id: str) -> str:
    return paths.to("runs", paths.from_segment(dag_id), paths.from_segment(run_id))
