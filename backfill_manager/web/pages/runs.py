"""*One run*: its facts, its tasks, their tries over time, and what can be done to it."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from fastapi import Form
from starlette.responses import RedirectResponse, Response

from backfill_manager.model.records import DagRun
from backfill_manager.queries.dags import spec_of_run
from backfill_manager.queries.gantt import spans_of_run
from backfill_manager.queries.runs import find_run, run_details
from backfill_manager.queries.tasks import list_task_instances
from backfill_manager.requests.validation import cancelled_run, marked_run
from backfill_manager.schemas.kinds import RUN_CANCEL, RUN_MARK
from backfill_manager.web import paths
from backfill_manager.web.page import OperatorVisit, PageContext, PageContextOf, page_router, redirect
from backfill_manager.web.paging import PageNumber, cut
from backfill_manager.web.svg.gantt import gantt

router: Final = page_router()
ON_A_PAGE: Final = 200  # tasks


@router.get("/dags/{dag_id}/runs/{run_id}")
def run(visit: PageContextOf, dag_id: str, run_id: str, page: PageNumber = 1) -> Response:
    row = run_of(visit, dag_id, run_id)
    if row.run_id != paths.from_segment(run_id):  # `latest` will be another one tomorrow
        return redirect(paths.to_run(row.dag_id, row.run_id))
    spec = spec_of_run(visit.store, row)
    tasks = {one["task_id"]: one for one in list_task_instances(visit.store, row)}
    order = [task.task_id for task in spec.in_order] if spec else []
    drawn = gantt(spans_of_run(visit.store, row, spec, visit.now))
    every = [tasks[one] for one in order if one in tasks] + [tasks[one] for one in sorted(set(tasks) - set(order))]
    paged = cut(every, page, ON_A_PAGE, "dags", row.dag_id, "runs", row.run_id)
    shown = {one["task_id"] for one in paged.rows}
    return visit.page(
        "run.html", run=run_details(row), zone=spec.timezone if spec else "UTC", drawn=drawn, paged=paged,
        bars=[one for one in drawn.rows if one.task_id in shown],
    )  # fmt: skip


@router.get("/runs/{run_id}")
def run_by_its_id(visit: PageContextOf, run_id: str) -> Response:
    """For an id without its DAG; an error that names the runs where several DAGs have one of this id."""
    row = find_run(visit.store, paths.from_segment(run_id))
    return redirect(paths.to_run(row.dag_id, row.run_id))


@router.get("/runs/{dag_id}/{run_id}")
def old_address(visit: PageContextOf, dag_id: str, run_id: str) -> Response:
    """The address that a run had before its DAG's was a part of it: bookmarks have it."""
    return RedirectResponse(_page_of(dag_id, run_id), status_code=308)


@router.post("/dags/{dag_id}/runs/{run_id}/cancel")
async def cancel(visit: OperatorVisit, dag_id: str, run_id: str, back: Annotated[str, Form()] = "") -> Response:
    def payload(_: str) -> dict[str, Any]:
        return cancelled_run(run_of(visit, dag_id, run_id))

    return await visit.ask(RUN_CANCEL, payload, back=back or _page_of(dag_id, run_id))


@router.post("/dags/{dag_id}/runs/{run_id}/mark")
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


def run_of(visit: PageContext, dag_id: str, run_id: str) -> DagRun:
    return find_run(visit.store, paths.from_segment(run_id), dag_id=paths.from_segment(dag_id))


def _page_of(dag_id: str, run_id: str) -> str:
    return paths.to_run(paths.from_segment(dag_id), paths.from_segment(run_id))
