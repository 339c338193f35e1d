"""*One run*: its details, Gantt, tasks and actions."""

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
from backfill_manager.web import links
from backfill_manager.web.links import PageNumber, paginate
from backfill_manager.web.page import OperatorContext, PageContext, ViewerContext, page_router, redirect
from backfill_manager.web.svg.gantt import gantt

router: Final = page_router()
TASKS_PER_PAGE: Final = 200


@router.get("/dags/{dag_id}/runs/{run_id}")
def run(context: ViewerContext, dag_id: str, run_id: str, page: PageNumber = 1) -> Response:
    row = run_of(context, dag_id, run_id)
    if row.run_id != links.from_segment(run_id):  # `latest`, a prefix or a date
        return redirect(links.to_run(row.dag_id, row.run_id))
    spec = spec_of_run(context.store, row)
    tasks = {task["task_id"]: task for task in list_task_instances(context.store, row)}
    order = [task.task_id for task in spec.in_order] if spec else []
    drawn = gantt(spans_of_run(context.store, row, spec, context.now))
    ordered = [tasks[task_id] for task_id in (*order, *sorted(set(tasks) - set(order))) if task_id in tasks]
    paged = paginate(ordered, page, TASKS_PER_PAGE, "dags", row.dag_id, "runs", row.run_id)
    shown = {task["task_id"] for task in paged.rows}
    return context.page(
        "run.html", run=run_details(row), zone=spec.timezone if spec else "UTC", drawn=drawn, paged=paged,
        bars=[bar for bar in drawn.rows if bar.task_id in shown],
    )  # fmt: skip


@router.get("/runs/{run_id}")
def run_by_id(context: ViewerContext, run_id: str) -> Response:
    """For an id without its DAG; if several DAGs have such a run, the error names them."""
    row = find_run(context.store, links.from_segment(run_id))
    return redirect(links.to_run(row.dag_id, row.run_id))


@router.get("/runs/{dag_id}/{run_id}")
def old_run_address(context: ViewerContext, dag_id: str, run_id: str) -> Response:
    """The former address of a run, for bookmarks."""
    return RedirectResponse(_address(dag_id, run_id), status_code=308)


@router.post("/dags/{dag_id}/runs/{run_id}/cancel")
async def cancel(context: OperatorContext, dag_id: str, run_id: str, back: Annotated[str, Form()] = "") -> Response:
    def payload(_: str) -> dict[str, Any]:
        return cancelled_run(run_of(context, dag_id, run_id))

    return await context.submit(RUN_CANCEL, payload, back=back or _address(dag_id, run_id))


@router.post("/dags/{dag_id}/runs/{run_id}/mark")
async def mark(
    context: OperatorContext,
    dag_id: str,
    run_id: str,
    state: Annotated[Literal["success", "failed"], Form()],
    back: Annotated[str, Form()] = "",
) -> Response:
    def payload(_: str) -> dict[str, Any]:
        return marked_run(run_of(context, dag_id, run_id), state)

    return await context.submit(RUN_MARK, payload, back=back or _address(dag_id, run_id))


def run_of(context: PageContext, dag_id: str, run_id: str) -> DagRun:
    return find_run(context.store, links.from_segment(run_id), dag_id=links.from_segment(dag_id))


def _address(dag_id: str, run_id: str) -> str:
    return links.to_run(links.from_segment(dag_id), links.from_segment(run_id))
