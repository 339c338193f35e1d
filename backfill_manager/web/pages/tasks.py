"""*One task* of a run: its attempts, its growing log, and its Spark jobs."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from fastapi import Form, Query
from starlette.responses import RedirectResponse, Response

from backfill_manager.model import states
from backfill_manager.queries.dags import spec_of_run
from backfill_manager.queries.managers import spark_pages
from backfill_manager.queries.runs import run_view
from backfill_manager.queries.tasks import find_task_instance, list_log_lines, list_tries, log_tail, task_view
from backfill_manager.requests.validation import marked_task
from backfill_manager.schemas.kinds import TASK_MARK
from backfill_manager.web import links
from backfill_manager.web.page import OperatorContext, ViewerContext, page_router, redirect
from backfill_manager.web.pages.runs import run_of

router: Final = page_router()
LOG_LINES: Final = 1000  # shown at first, and fetched at once
MAX_SPARK_JOBS: Final = 5  # shown per attempt
TryNumber = Annotated[int | None, Query(alias="try", ge=1, le=2**31)]


@router.get("/dags/{dag_id}/runs/{run_id}/tasks/{task_id}")
def task(
    context: ViewerContext, dag_id: str, run_id: str, task_id: str, number: TryNumber = None, all: bool = False
) -> Response:
    row, task_id = run_of(context, dag_id, run_id), links.from_segment(task_id)
    instance = find_task_instance(context.store, row, task_id)
    if row.run_id != links.from_segment(run_id):
        return redirect(links.to_run(row.dag_id, row.run_id, "tasks", task_id))
    spec = spec_of_run(context.store, row)
    lines, more = log_tail(context.store, row, task_id, try_number=number, limit=LOG_LINES * (20 if all else 1))
    lease = context.store.lease()
    return context.page(
        "task.html", run=run_view(row), task=task_view(instance), zone=spec.timezone if spec else "UTC", number=number,
        tries=list_tries(context.store, row, task_id), spec=spec.by_id.get(task_id) if spec else None, lines=lines,
        more=more, position=_position(lines), is_live=instance.state not in states.TASK_FINISHED | {states.NONE},
        lease=lease, spark=spark_pages(lease, context.now), max_jobs=MAX_SPARK_JOBS, launch=instance.launch,
    )  # fmt: skip


@router.get("/runs/{dag_id}/{run_id}/{task_id}")
def old_task_address(context: ViewerContext, dag_id: str, run_id: str, task_id: str) -> Response:
    """The former address of a task of a run."""
    run = (links.from_segment(dag_id), links.from_segment(run_id))
    address = links.to_run(*run, "tasks", links.from_segment(task_id), **context.request.query_params)
    return RedirectResponse(address, status_code=308)


@router.get("/dags/{dag_id}/runs/{run_id}/tasks/{task_id}/log")
def log(
    context: ViewerContext,
    dag_id: str,
    run_id: str,
    task_id: str,
    after: Annotated[str, Query(pattern=r"^\d{1,9}\.-?\d{1,9}$")] = "0.-1",
    number: TryNumber = None,
) -> Response:
    """The lines after the position `after` (`launch.line`), with the position of the last one in `X-Log-Position`, for
    `log.js`."""
    launch, _, line = after.partition(".")
    row, task_id = run_of(context, dag_id, run_id), links.from_segment(task_id)
    position = (int(launch), int(line))
    lines = list_log_lines(context.store, row, task_id, try_number=number, after=position, limit=LOG_LINES)
    response = context.page("fragments/log_lines.html", lines=lines, before=position[0] or None)
    response.headers["X-Log-Position"] = _position(lines) if lines else after
    return response


@router.post("/dags/{dag_id}/runs/{run_id}/tasks/{task_id}/mark")
async def mark(
    context: OperatorContext,
    dag_id: str,
    run_id: str,
    task_id: str,
    state: Annotated[Literal["success", "failed", "skipped"], Form()],
    back: Annotated[str, Form()] = "/dags",
) -> Response:
    def payload(_: str) -> dict[str, Any]:
        return marked_task(context.store, run_of(context, dag_id, run_id), links.from_segment(task_id), state)

    return await context.submit(TASK_MARK, payload, back=back)


def _position(lines: list[dict[str, Any]]) -> str:
    return f"{lines[-1]['launch']}.{lines[-1]['line']}" if lines else "0.-1"
